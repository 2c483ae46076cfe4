// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// result returns the answer to the ADD that made e.
func result(e entry, conf cni.Config, nodeMTU int) *types100.Result {
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: conf.DNS}
	if e.Port.Type != "vlan" && e.Port.Type != "macvlan" {
		r.Interfaces = append(r.Interfaces, &types100.Interface{Name: plug.HostDevice(e.Port.ID)}) // the node's end
	}
	pods := len(r.Interfaces)
	r.Interfaces = append(r.Interfaces,
		&types100.Interface{Name: e.IfName, Mac: e.iface().HardwareAddr().String(), Mtu: e.mtu(nodeMTU), Sandbox: e.Netns})
	for _, a := range e.Port.Addresses {
		ip := &types100.IPConfig{Interface: types100.Int(pods), Address: ipNet(a.Prefix)}
		if a.Gateway.IsValid() {
			ip.Gateway = a.Gateway.AsSlice()
		}
		r.IPs = append(r.IPs, ip)
	}
	hops := e.iface().Hops()
	slices.SortStableFunc(hops, func(a, b plug.Hop) int { // default routes first
		return cmp.Compare(min(a.Destination.Bits(), 1), min(b.Destination.Bits(), 1))
	})
	for _, hop := range hops {
		route := &types.Route{Dst: ipNet(hop.Destination)}
		if hop.Gateway.IsValid() {
			route.GW = hop.Gateway.AsSlice()
		}
		r.Routes = append(r.Routes, route)
	}
	return r
}

// mtu returns the smaller one of the port's MTU and node.mtu. A bridge, or a virtual machine's
// own interface, may limit it further, which only package plug sees.
func (e entry) mtu(node int) int {
	if node > 0 && (node < e.Port.MTU || e.Port.MTU == 0) {
		return node
	}
	return e.Port.MTU
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// matches returns an error unless one of the addresses in the result of an ADD is e's. Other plugins
// of a chain may have added to the result.
func matches(e entry, found []netip.Prefix) error {
	for _, a := range e.Port.Addresses {
		if slices.Contains(found, a.Prefix) {
			return nil
		}
	}
	return fmt.Errorf("none of its addresses is the port's: %v", found)
}
