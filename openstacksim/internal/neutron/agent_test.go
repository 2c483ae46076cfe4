// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"net/http"
	"testing"
)

// Neutron binds no port to a host whose agent is dead, and leaves bound ones.
func TestDeadAgent(t *testing.T) {
	d := newDesk(t)
	net := text(d.make(admin, "network", object{"name": "net"}), "id")
	before := text(d.make(admin, "port", object{"network_id": net, "binding:host_id": "n1"}), "id")
	if err := d.SetAgent("n1", false); err != nil {
		t.Fatal(err)
	}
	_, answer := d.ask(admin, http.MethodGet, "/agents?host=n1", nil)
	if agents := answer["agents"].(list); len(agents) != 1 || agents[0].(object)["alive"] != false {
		t.Errorf("agents of n1: %v, want one that is dead", agents)
	}
	if p := d.make(admin, "port", object{"network_id": net, "binding:host_id": "n1"}); p["binding:vif_type"] != "binding_failed" {
		t.Errorf("a port on a host with a dead agent is %v, want binding_failed", p["binding:vif_type"])
	}
	if _, answer = d.ask(admin, http.MethodGet, "/ports/"+before, nil); answer["port"].(object)["binding:vif_type"] != "ovs" {
		t.Errorf("a port from before is %v, want ovs", answer["port"])
	}
	if err := d.SetAgent("n1", true); err != nil || d.SetAgent("n9", true) == nil {
		t.Errorf("SetAgent of n1: %v; of a host that there is not: want an error", err)
	}
	if p := d.make(admin, "port", object{"network_id": net, "binding:host_id": "n1"}); p["binding:vif_type"] != "ovs" {
		t.Errorf("a port after the agent is back is %v, want ovs", p["binding:vif_type"])
	}
}
