// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// A subport is on its trunk whether a pod has it or not. So the SDN is asked for a free
// subport, too, and pods need not wait for that later. With the other types a free port passes
// no traffic.
func TestActiveOfEachType(t *testing.T) {
	attached := &v1.Attachment{ContainerID: "c", Interface: "eth0"}
	for _, c := range []struct {
		typ        string
		attachment *v1.Attachment
		active     bool
		asked      bool
	}{
		{"ovs", nil, false, false}, {"ovs", attached, true, false},
		{"bridge", nil, false, false}, {"bridge", attached, true, false},
		{"macvlan", nil, false, false}, {"macvlan", attached, true, false},
		{"vlan", nil, false, true}, {"vlan", attached, false, true},
		{"midonet", nil, false, false}, {"midonet", attached, false, true},
	} {
		r := &Reconciler{memory: newPortMemory()}
		port := &v1.KuryrPort{}
		port.Name, port.Spec.VIF.Type, port.Status.Attachment = "p", c.typ, c.attachment
		if got := r.isActive(port); got != c.active {
			t.Errorf("%s, attached %v: active %v, want %v", c.typ, c.attachment != nil, got, c.active)
		}
		if got := len(awaited(r.memory)) == 1; got != c.asked {
			t.Errorf("%s, attached %v: the SDN is asked: %v, want %v", c.typ, c.attachment != nil, got, c.asked)
		}
		if c.asked && (!r.memory.isActive("p", "") || !r.isActive(port)) {
			t.Errorf("%s, attached %v: not active although the SDN says so", c.typ, c.attachment != nil)
		}
	}
}

// neutron-openvswitch-agent tags a port before it sets the flows of its security groups. And until it
// has seen that a port was unplugged, the SDN says ACTIVE. So only an answer from after the tag of this
// sandbox counts.
func TestActiveOfAPortThatTheAgentWires(t *testing.T) {
	r := &Reconciler{memory: newPortMemory()}
	port := &v1.KuryrPort{}
	port.Name, port.Spec.VIF.Type = "p", "ovs"
	port.Spec.VIF.Details = map[string]string{v1.DetailWiredBy: v1.WiredByAgent}
	expect := func(what string, active bool, asks string) {
		t.Helper()
		if got := r.isActive(port); got != active {
			t.Errorf("%s: active %v, want %v", what, got, active)
		}
		if asked, waits := awaited(r.memory)["p"]; asked != asks || waits != (asks != "") {
			t.Errorf("%s: the SDN is asked for sandbox %q (%v), want %q", what, asked, waits, asks)
		}
	}
	attach := func(container string, tagged bool) {
		port.Status.Attachment = &v1.Attachment{ContainerID: container, Interface: "eth0", Tagged: tagged}
	}
	expect("free", false, "")
	attach("a", false)
	expect("plugged", false, "")
	attach("a", true)
	expect("tagged", false, "a")
	r.memory.isActive("p", "a")
	expect("active", true, "")
	port.Status.Active, port.Status.ActiveFor = true, "a"
	expect("active, as the status says", true, "")

	attach("b", true) // that a was untagged and b not yet tagged was not seen
	expect("tagged for the next sandbox", false, "b")
	if r.memory.isActive("p", "a"); r.isActive(port) {
		t.Error("an answer to a question for the sandbox before counts")
	}
	r.memory.isActive("p", "b")
	expect("active for the next sandbox", true, "")
	attach("b", false)
	expect("plugged anew for the same sandbox", false, "")
	attach("b", true)
	expect("tagged again", false, "b")

	after := &Reconciler{memory: newPortMemory()} // another leader
	port.Status.ActiveFor = "b"
	if !after.isActive(port) || len(awaited(after.memory)) != 0 {
		t.Error("another leader asks again about a port whose status says that it is active")
	}
}

// A port that a sandbox waits for is asked about every second at first, and every few seconds as long
// as the sandbox waits. Another sandbox's question begins anew.
func TestQuestionsOfASandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, asked := newPortMemory(), map[string][]int{}
		for second := range 61 {
			m.awaitActive(portNamed("down"), "")
			m.awaitActive(portNamed("pod"), map[bool]string{false: "a", true: "b"}[second >= 40])
			for name := range m.askedNow() {
				asked[name] = append(asked[name], second)
			}
			time.Sleep(time.Second)
		}
		want := map[string][]int{
			"down": {0, 1, 2, 3, 4, 5, 7, 9, 12, 15, 19, 24, 30, 38, 48, 60},
			"pod":  {0, 1, 2, 3, 4, 5, 7, 9, 12, 15, 19, 23, 27, 31, 35, 39, 40, 41, 42, 43, 44, 45, 47, 49, 52, 55, 59},
		}
		if !reflect.DeepEqual(asked, want) {
			t.Errorf("asked at %v, want %v", asked, want)
		}
	})
}

// awaited returns the ports that wait for the SDN to pass their traffic, each with the sandbox.
func awaited(m *portMemory) map[string]string {
	names := map[string]string{}
	for name, n := range m.ports.All() {
		if !n.active.since.IsZero() && !n.active.seen {
			names[name] = n.active.sandbox
		}
	}
	return names
}

func portNamed(name string) *v1.KuryrPort {
	port := &v1.KuryrPort{}
	port.Name, port.Spec.NodeName = name, "node"
	return port
}
