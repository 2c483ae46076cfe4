// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"strings"
	"testing"
)

// TestTrunksOfOthers: a caller that does not see a port does not learn that it is a trunk's
// parent. Every caller learns that a port is a subport (neutron 21.0.0: services/trunk/models.py,
// whose SubPort has no project).
func TestTrunksOfOthers(t *testing.T) {
	d := newTrunked(t)
	subport := d.port(nil)
	if refused := d.act("add_subports", sub(subport, 100)); refused != "200" {
		t.Fatal("add_subports:", refused)
	}
	for name, tc := range map[string]struct {
		who        caller
		port, want string
	}{
		"a parent of others'":  {other, d.parent, "PortNotFound"},
		"one's own parent":     {member, d.parent, "ParentPortInUse"},
		"a subport of others'": {other, subport, "TrunkPortInUse"},
	} {
		t.Run(name, func(t *testing.T) {
			got := refusal(d.ask(tc.who, "POST", "/trunks", object{"trunk": object{"port_id": tc.port}}))
			if !strings.Contains(got, tc.want) {
				t.Errorf("POST /trunks = %q, want %s", got, tc.want)
			}
		})
	}
}
