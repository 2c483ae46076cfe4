// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plug"
)

const parentPort = "d28c7404-7495-4557-b7fc-3e293508dbc6"

// nestedPort returns the port of a pod on a node that is a virtual machine. The controller
// reports a subport as active, for which ADD waits.
func nestedPort(typ string, vlan int32) *v1.KuryrPort {
	p := kuryrPort(portA, uidA)
	p.Spec.VIF = v1.VIF{
		Type: typ, VLANID: vlan, ParentPortID: parentPort, MACAddress: "fa:16:3e:00:00:01", MTU: 1442,
		Addresses: []v1.Address{{IP: "10.0.0.5", PrefixLength: 24, Gateway: "10.0.0.1"}},
		Routes:    []v1.Route{{Destination: "10.96.0.0/16", Gateway: "10.0.0.254"}},
	}
	p.Status.Active = typ == "vlan"
	return p
}

// The driver gets a nested port as the KuryrPort describes it. A daemon that knows the port only
// from the journal unplugs it with the same description.
func TestNestedPortIsPluggedAsItsKuryrPortSays(t *testing.T) {
	for _, test := range []struct {
		typ  string
		vlan int
	}{{"vlan", 101}, {"macvlan", 0}} {
		t.Run(test.typ, func(t *testing.T) {
			t.Parallel()
			n := newNode(t).start()
			n.api.put(nestedPort(test.typ, int32(test.vlan)))
			n.do(request("ADD", "c1", "/run/netns/a"))
			n.rests(portA, "c1")
			want := plug.Interface{
				PortID: portA, Type: test.typ, VLANID: test.vlan, ParentPortID: parentPort,
				ContainerID: "c1", Netns: "/run/netns/a", Name: "eth0", Pod: "default/web",
				MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 0, 1}, MTU: 1442, Default: true,
				Addresses: []plug.Address{{Prefix: netip.MustParsePrefix("10.0.0.5/24"), Gateway: netip.MustParseAddr("10.0.0.1")}},
				Routes:    []plug.Route{{Destination: netip.MustParsePrefix("10.96.0.0/16"), Gateway: netip.MustParseAddr("10.0.0.254")}},
			}
			n.isPlugged(want)
			n.end()
			n.api.setDown(true)
			n.startAnyhow()
			entries := n.daemon.journal.ofPort(portA)
			if len(entries) != 1 {
				t.Fatalf("after a restart the journal has %d entries of the port, want 1", len(entries))
			}
			if diff := cmp.Diff(want, entries[0].iface(), byText); diff != "" {
				t.Errorf("after a restart (-want +got):\n%s", diff)
			}
			n.do(request("DEL", "c1", "/run/netns/a"))
			n.eventually("it is unplugged", func() bool { return n.where(portA) == "" })
		})
	}
}

// byText compares addresses by their text, because their fields are not exported.
var byText = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func (n *node) isPlugged(want plug.Interface) {
	n.t.Helper()
	n.set(func() {
		if diff := cmp.Diff(want, n.plugged[want.PortID], byText); diff != "" {
			n.t.Errorf("what the driver was told (-want +got):\n%s", diff)
		}
	})
}
