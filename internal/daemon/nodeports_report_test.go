// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// A conflict about a port is reported once, whatever other ports are in conflict. It is reported
// again after the conflict was gone for a while.
func TestConflictsAreToldOnce(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	n := &nodePorts{logged: map[string]string{}}
	of := func(port uint16, holder string) nodeport.Conflict {
		f := nodeport.Frontend{Address: netip.MustParseAddr("192.0.2.1"), Protocol: "TCP", Port: port}
		return nodeport.Conflict{Frontend: f, For: "pod default/late", Holder: holder}
	}
	for i, round := range []struct {
		conflicts []nodeport.Conflict
		told      int
	}{
		{[]nodeport.Conflict{of(80, "pod default/a"), of(443, "pod default/a"), of(8080, "pod default/b")}, 3},
		{[]nodeport.Conflict{of(80, "pod default/a"), of(443, "pod default/a"), of(8080, "pod default/b")}, 0},
		{[]nodeport.Conflict{of(80, "pod default/a"), of(443, "pod default/b")}, 1},
		{nil, 0},
		{[]nodeport.Conflict{of(80, "pod default/a")}, 1},
	} {
		lines = nil
		n.tellConflicts(log, round.conflicts)
		if len(lines) != round.told {
			t.Errorf("round %d: told %d, want %d:\n%s", i, len(lines), round.told, strings.Join(lines, "\n"))
		}
	}
}
