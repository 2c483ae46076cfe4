// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/plan/preflight"
)

// docs/preflight.md has a row for every finding that there is, and no other.
func TestDocsNameEveryFinding(t *testing.T) {
	text, err := os.ReadFile("../../../docs/preflight.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, " | ")
		if len(cells) == 4 && strings.HasPrefix(line, "| `") {
			rows = append(rows, strings.Join(cells[:3], " | "))
		}
	}
	var want []string
	for _, k := range preflight.Catalog() {
		want = append(want, fmt.Sprintf("| `%s` | `%s` | %s", k.Name, k.Severity, strings.TrimSuffix(k.Meaning, ".")))
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("docs/preflight.md (-findings of the code +rows):\n%s", diff)
	}
}
