// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/netip"
	"testing"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// A nested port has no device on the node, so the result names only the pod's.
func TestResultNamesTheInterfacesThereAre(t *testing.T) {
	for typ, want := range map[string]int{"ovs": 2, "bridge": 2, "vlan": 1, "macvlan": 1} {
		e := entry{ContainerID: "c", IfName: "eth0", Netns: "/run/netns/pod", Port: portRecord{
			ID: "4d1a6a0e-6f4e-4e0e-8a51-5a7c6d0f9b11", Type: typ,
			Addresses: []plug.Address{{Prefix: netip.MustParsePrefix("10.0.0.5/24")}},
		}}
		r := result(e, cni.Config{}, 0)
		if len(r.Interfaces) != want {
			t.Errorf("a port of type %s: %d interfaces, want %d", typ, len(r.Interfaces), want)
			continue
		}
		for _, ip := range r.IPs {
			if at := r.Interfaces[*ip.Interface]; at.Name != "eth0" || at.Sandbox != e.Netns {
				t.Errorf("a port of type %s: address %s is said to be on %+v, want the pod's interface", typ, ip.Address.String(), at)
			}
		}
	}
}

// The result's MTU is the port's, limited by the node's configuration.
func TestResultHasTheNodesMTU(t *testing.T) {
	for _, c := range []struct {
		typ              string
		port, node, want int
	}{
		{"ovs", 1442, 0, 1442}, {"ovs", 1442, 1400, 1400}, {"ovs", 1442, 9000, 1442}, {"ovs", 0, 1400, 1400}, {"ovs", 0, 0, 0},
		{"bridge", 1442, 1400, 1400}, {"vlan", 1442, 0, 1442},
	} {
		e := entry{IfName: "eth0", Port: portRecord{ID: portA, Type: c.typ, MTU: c.port}}
		interfaces := result(e, cni.Config{}, c.node).Interfaces
		if got := interfaces[len(interfaces)-1].Mtu; got != c.want {
			t.Errorf("a port of type %s with %d, on a node with %d: the result says %d, want %d", c.typ, c.port, c.node, got, c.want)
		}
	}
}
