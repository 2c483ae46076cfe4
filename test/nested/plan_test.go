// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nested

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/kuryr-go/kuryr/internal/plug"
)

// plan is what the virtual machine is told: its own port, those of its pods,
// and whom they have to reach.
type plan struct {
	Own     port     `json:"own"`
	Pods    []port   `json:"pods"`
	Targets []string `json:"targets"` // addresses that answer to a ping
}

// port is one of Neutron's.
type port struct {
	ID      string       `json:"id"`
	MAC     string       `json:"mac"`
	VLANID  int          `json:"vlanID,omitempty"`
	Address netip.Prefix `json:"address"`
	Gateway netip.Addr   `json:"gateway"`
	MTU     int          `json:"mtu"`
}

// Ports of TCP that each pod listens on.
const (
	sinkPort = 7001 // counts what it is sent and answers with the number
	endPort  = 7000 // ends the virtual machine's work
)

// iface is the port of the k-th pod, as it is plugged into a sandbox.
func (p plan) iface(t *testing.T, k int, netns string) plug.Interface {
	t.Helper()
	own := p.Pods[k]
	mac, err := net.ParseMAC(own.MAC)
	if err != nil {
		t.Fatal(err)
	}
	return plug.Interface{
		PortID: own.ID, Type: "vlan", ContainerID: fmt.Sprintf("pod%d", k), Netns: netns, Name: "eth0",
		MAC: mac, MTU: own.MTU, VLANID: own.VLANID, Default: true,
		Addresses: []plug.Address{{Prefix: own.Address, Gateway: own.Gateway}},
	}
}
