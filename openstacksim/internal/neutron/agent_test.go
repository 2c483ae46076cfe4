// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/openstacksim/internal/neutron"
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

// With ML2/OVS the agent reports itself, and a port's details say whether its firewall needs a Linux
// bridge.
func TestOpenVSwitchAgent(t *testing.T) {
	d := newDesk(t, func(o *neutron.Options) { o.OVS = map[string]bool{"n1": false, "n2": true} })
	net := text(d.make(admin, "network", object{"name": "net"}), "id")
	for host, hybrid := range map[string]bool{"n1": false, "n2": true} {
		_, answer := d.ask(admin, http.MethodGet, "/agents?agent_type=Open+vSwitch+agent&host="+host, nil)
		agents := answer["agents"].(list)
		if len(agents) != 1 || agents[0].(object)["configurations"].(object)["ovs_hybrid_plug"] != hybrid {
			t.Errorf("agents of %s: %v, want one with ovs_hybrid_plug %v", host, agents, hybrid)
		}
		want := object{"port_filter": true, "connectivity": "l2", "ovs_hybrid_plug": hybrid, "datapath_type": "system", "bridge_name": "br-int"}
		p := d.make(admin, "port", object{"network_id": net, "binding:host_id": host})
		if diff := cmp.Diff(want, p["binding:vif_details"]); diff != "" || p["binding:vif_type"] != "ovs" {
			t.Errorf("a new port on %s: %v (-want +got):\n%s", host, p["binding:vif_type"], diff)
		}
		want["bound_drivers"] = object{"0": "openvswitch"}
		_, answer = d.ask(admin, http.MethodGet, "/ports/"+text(p, "id"), nil)
		if diff := cmp.Diff(want, answer["port"].(object)["binding:vif_details"]); diff != "" {
			t.Errorf("the port later (-want +got):\n%s", diff)
		}
	}
}
