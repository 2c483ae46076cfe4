// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// trunked is a trunk on a bound parent port, and ports to be added.
type trunked struct {
	*desk
	net, parent, trunk string
}

func newTrunked(t *testing.T) *trunked {
	d := newDesk(t)
	net, _ := d.net("10.1.0.0/24")
	parent := text(d.make(admin, "port", object{"network_id": net, "binding:host_id": "n1"}), "id")
	return &trunked{d, net, parent, text(d.make(member, "trunk", object{"port_id": parent}), "id")}
}

func (d *trunked) port(more object) string {
	what := object{"network_id": d.net}
	for k, v := range more {
		what[k] = v
	}
	return text(d.make(admin, "port", what), "id")
}

// sub returns an entry of sub_ports.
func sub(port string, vlan any) object {
	return object{"port_id": port, "segmentation_type": "vlan", "segmentation_id": vlan}
}

func (d *trunked) act(verb string, ports ...any) string {
	d.t.Helper()
	return refusal(d.ask(member, "PUT", "/trunks/"+d.trunk+"/"+verb, object{"sub_ports": ports}))
}

func TestSubports(t *testing.T) {
	d := newTrunked(t)
	p := d.port(nil)
	status, answer := d.ask(member, "PUT", "/trunks/"+d.trunk+"/add_subports", object{"sub_ports": list{sub(p, "100")}})
	if status != 200 || answer["status"] != "DOWN" || answer["id"] != d.trunk {
		t.Errorf("add_subports = %d %v, want the trunk by itself, DOWN", status, answer)
	}
	if got := d.get("trunk", d.trunk)["status"]; got != "ACTIVE" {
		t.Errorf("status after that = %v, want ACTIVE", got)
	}
	shows := func(when, owner, vif, status string, profile object) {
		t.Helper()
		now := d.get("port", p)
		want := object{"device_owner": owner, "binding:vif_type": vif, "status": status, "binding:profile": profile, "binding:host_id": ""}
		got := object{}
		for k := range want {
			got[k] = now[k]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the subport (-want +got):\n%s", when, diff)
		}
	}
	profile := object{"parent_name": d.parent, "tag": 100.0}
	shows("added", "trunk:subport", "ovs", "DOWN", profile)
	if err := d.Plug(d.parent, true); err != nil {
		t.Fatal(err)
	}
	shows("parent plugged", "trunk:subport", "ovs", "ACTIVE", profile)
	details := d.get("port", d.parent)["trunk_details"].(object)
	if diff := cmp.Diff(list{object{
		"port_id": p, "segmentation_type": "vlan", "segmentation_id": 100.0, "mac_address": d.get("port", p)["mac_address"],
	}}, details["sub_ports"]); diff != "" {
		t.Errorf("trunk_details of the parent (-want +got):\n%s", diff)
	}
	d.change("port", d.parent, object{"binding:host_id": "n2"})
	shows("parent moved", "trunk:subport", "ovs", "DOWN", profile)
	d.change("port", d.parent, object{"binding:host_id": "n1"})
	shows("parent back where it is plugged", "trunk:subport", "ovs", "ACTIVE", profile)
	if err := d.Plug(d.parent, true); err != nil {
		t.Fatal(err)
	}
	second := d.port(nil)
	if got := d.act("add_subports", sub(second, 7)); got != "200" || d.get("port", second)["status"] != "ACTIVE" {
		t.Errorf("a subport for an ACTIVE parent = %s, status %v; want ACTIVE", got, d.get("port", second)["status"])
	}
	if got := d.act("remove_subports", object{"port_id": p}); got != "200" {
		t.Errorf("remove_subports = %s", got)
	}
	shows("removed", "", "unbound", "DOWN", object{})
	if got := refusal(d.ask(member, "DELETE", "/ports/"+p, nil)); got != "204" {
		t.Errorf("DELETE of what was a subport = %s", got)
	}
}

func TestSubportRefusals(t *testing.T) {
	d := newTrunked(t)
	first, free, used := d.port(nil), d.port(nil), d.port(object{"device_id": "vm"})
	second := d.port(nil)
	d.make(member, "trunk", object{"port_id": second})
	if got := d.act("add_subports", sub(first, 100)); got != "200" {
		t.Fatal(got)
	}
	for name, c := range map[string]struct {
		ports list
		want  string
	}{
		"number in use":          {list{sub(free, 100)}, "409 DuplicateSubPort"},
		"port in use":            {list{sub(first, 101)}, "409 TrunkPortInUse"},
		"port of a device":       {list{sub(used, 101)}, "409 PortInUse"},
		"the parent":             {list{sub(d.parent, 101)}, "409 ParentPortInUse"},
		"another trunk's parent": {list{sub(second, 101)}, "409 ParentPortInUse"},
		"no such port":           {list{sub(d.net, 101)}, "404 PortNotFound"},
		"no port":                {list{sub("foo", 101)}, "400 InvalidInput"},
		"too large":              {list{sub(free, 4095)}, "400 InvalidInput"},
		"nought":                 {list{sub(free, 0)}, "400 InvalidInput"},
		"no number":              {list{sub(free, "abc")}, "400 InvalidInput"},
		"number null":            {list{sub(free, nil)}, "400 InvalidInput"},
		"the port alone":         {list{object{"port_id": free}}, "400 InvalidInput"},
		"another type":           {list{object{"port_id": free, "segmentation_type": "vxlan", "segmentation_id": 3}}, "400 InvalidInput"},
		"type of its network":    {list{object{"port_id": free, "segmentation_type": "inherit"}}, "400 InvalidInput"},
		"port twice":             {list{sub(free, 5), sub(free, 6)}, "400 InvalidInput"},
		"number twice":           {list{sub(free, 5), sub(used, 5)}, "400 InvalidInput"},
		"one of two":             {list{sub(free, 5), sub(used, 6)}, "409 PortInUse"},
	} {
		if got := d.act("add_subports", c.ports...); got != c.want {
			t.Errorf("%s: add_subports = %s, want %s", name, got, c.want)
		}
	}
	_, answer := d.ask(member, "GET", "/trunks/"+d.trunk+"/get_subports", nil)
	want := object{"sub_ports": list{object{"port_id": first, "segmentation_type": "vlan", "segmentation_id": 100.0}}}
	if diff := cmp.Diff(want, answer); diff != "" {
		t.Errorf("get_subports after all refusals (-want +got):\n%s", diff)
	}
	if got := d.get("port", free)["device_owner"]; got != "" {
		t.Errorf("device_owner = %v of a port that was refused, want none", got)
	}
}

func TestTrunkLife(t *testing.T) {
	d := newTrunked(t)
	p, q := d.port(nil), d.port(nil)
	d.act("add_subports", sub(p, 1), sub(q, 2))
	steps := []struct {
		name, method, path string
		body               any
		want               string
	}{
		{"the parent is in use", "DELETE", "/ports/" + d.parent, nil, "409 PortInUseAsTrunkParent"},
		{"the subport is in use", "DELETE", "/ports/" + p, nil, "409 PortInUseAsSubPort"},
		{"a second trunk on the parent", "POST", "/trunks", object{"trunk": object{"port_id": d.parent}}, "409 ParentPortInUse"},
		{"a trunk on a subport", "POST", "/trunks", object{"trunk": object{"port_id": p}}, "409 TrunkPortInUse"},
		{"a trunk on no port", "POST", "/trunks", object{"trunk": object{"port_id": d.net}}, "404 PortNotFound"},
		{"off", "PUT", "/trunks/" + d.trunk, object{"trunk": object{"admin_state_up": false}}, "200"},
		{"add when off", "PUT", "/trunks/" + d.trunk + "/add_subports", object{"sub_ports": list{}}, "409 TrunkDisabled"},
		{"remove when off", "PUT", "/trunks/" + d.trunk + "/remove_subports", object{"sub_ports": list{}}, "409 TrunkDisabled"},
		{"delete when off", "DELETE", "/trunks/" + d.trunk, nil, "409 TrunkDisabled"},
		{"on", "PUT", "/trunks/" + d.trunk, object{"trunk": object{"admin_state_up": true}}, "200"},
		{"remove what is not there", "PUT", "/trunks/" + d.trunk + "/remove_subports", object{"sub_ports": list{object{"port_id": p}, object{"port_id": d.net}}}, "404 SubPortNotFound"},
		{"delete", "DELETE", "/trunks/" + d.trunk, nil, "204"},
		{"but once", "DELETE", "/trunks/" + d.trunk, nil, "404 TrunkNotFound"},
		{"the parent can go", "DELETE", "/ports/" + d.parent, nil, "204"},
		{"the subport can go", "DELETE", "/ports/" + p, nil, "204"},
	}
	for _, s := range steps {
		if got := refusal(d.ask(member, s.method, s.path, s.body)); got != s.want {
			t.Errorf("%s: %s %s = %s, want %s", s.name, s.method, s.path, got, s.want)
		}
	}
	if got := d.get("port", q)["device_owner"]; got != "" {
		t.Errorf("device_owner = %v after the trunk went, want none", got)
	}
}

func TestTrunkOfAnUnboundParent(t *testing.T) {
	d := newTrunked(t)
	p := d.port(nil)
	d.act("add_subports", sub(p, 1))
	if err := d.Plug(d.parent, true); err != nil {
		t.Fatal(err)
	}
	d.change("port", d.parent, object{"binding:host_id": ""})
	if got := d.get("trunk", d.trunk)["status"]; got != "DOWN" {
		t.Errorf("status of a trunk whose parent is unbound = %v, want DOWN", got)
	}
	if got := d.get("port", p)["status"]; got != "DOWN" {
		t.Errorf("status of its subport = %v, want DOWN", got)
	}
}
