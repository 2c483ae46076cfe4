// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"reflect"
	"testing"
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
		if got := len(r.memory.awaitActives()) == 1; got != c.asked {
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
		if asked, waits := r.memory.awaitActives()["p"]; asked != asks || waits != (asks != "") {
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
	if !after.isActive(port) || len(after.memory.awaitActives()) != 0 {
		t.Error("another leader asks again about a port whose status says that it is active")
	}
}

// A port that a sandbox waits for is asked about every second at first, and every few seconds as long
// as the sandbox waits. Another sandbox's question begins anew.
func TestQuestionsOfASandbox(t *testing.T) {
	questions, asked := map[string]question{}, map[string][]int{}
	for second := range 61 {
		waiting := map[string]string{"down": "", "pod": "a"}
		if second >= 40 {
			waiting["pod"] = "b"
		}
		for _, name := range dueNow(questions, waiting, time.Duration(second)*time.Second) {
			asked[name] = append(asked[name], second)
		}
	}
	want := map[string][]int{
		"down": {0, 2, 6, 14, 30, 60},
		"pod":  {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 26, 30, 34, 38, 40, 41, 42, 43, 44, 45, 46, 47, 48, 50, 52, 55, 58},
	}
	if !reflect.DeepEqual(asked, want) {
		t.Errorf("asked at %v, want %v", asked, want)
	}
}
