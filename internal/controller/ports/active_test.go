// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"testing"

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
		if c.asked && (!r.memory.isActive("p") || !r.isActive(port)) {
			t.Errorf("%s, attached %v: not active although the SDN says so", c.typ, c.attachment != nil)
		}
	}
}
