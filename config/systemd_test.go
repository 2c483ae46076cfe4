// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// systemd knows each setting of the unit, and rates what the service may do as nearly nothing.
func TestSystemdUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("SKIPPED: needs systemd-analyze (Debian: systemd)")
	}
	const name = "kuryr-controller.service"
	text, err := os.ReadFile(filepath.Join("systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable() // the unit's program has to be there
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(unit, bytes.Replace(text, []byte("/usr/local/bin/kuryr "), []byte(self+" "), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--man=no", "--recursive-errors=no", unit},
		{"security", "--no-pager", "--offline=true", "--threshold=20", unit}, // 2.0 of 10; it was 1.2 with systemd 252
	} {
		if out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput(); err != nil {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}
