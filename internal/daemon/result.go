// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net"
	"net/netip"

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
	r.Routes = routes(e.Port)
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

// routes returns the default routes, one of each family, and the port's own routes.
func routes(p portRecord) []*types.Route {
	var all []*types.Route
	seen := map[bool]bool{}
	for _, a := range p.Addresses {
		is4 := a.Prefix.Addr().Is4()
		if !p.Default || !a.Gateway.IsValid() || seen[is4] {
			continue
		}
		seen[is4] = true
		everything := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if is4 {
			everything = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		all = append(all, &types.Route{Dst: ipNet(everything), GW: a.Gateway.AsSlice()})
	}
	for _, r := range p.Routes {
		all = append(all, &types.Route{Dst: ipNet(r.Destination), GW: r.Gateway.AsSlice()})
	}
	return all
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// matches returns what of e the result of an ADD lacks. Other plugins of a chain may have added to
// the result. Versions before 0.3.0 had one address of each family.
func matches(e entry, r *types100.Result) error {
	if len(r.IPs) == 0 {
		return fmt.Errorf("it has no address")
	}
	ours := map[netip.Prefix]bool{}
	for _, a := range e.Port.Addresses {
		ours[a.Prefix] = true
	}
	for _, ip := range r.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		bits, _ := ip.Address.Mask.Size()
		if ok && ours[netip.PrefixFrom(addr.Unmap(), bits)] {
			return nil
		}
	}
	return fmt.Errorf("none of its addresses is the port's: %v", r.IPs)
}
