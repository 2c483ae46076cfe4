// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import "net/netip"

// hosts returns the first and the last address of a subnet that ports can get.
func hosts(p netip.Prefix) (first, end netip.Addr) {
	first, end = p.Addr(), last(p)
	switch {
	case first.Is6() && p.Bits() < 128:
		return first.Next(), end
	case first.Is4() && p.Bits() <= 30:
		return first.Next(), end.Prev()
	}
	return first, end
}

// firstHost returns the default gateway: the address after the network's own, even if outside of
// the subnet. In IPv6 it is the network's own address (observed on Neutron 21.0.0).
func firstHost(p netip.Prefix) *string {
	a := p.Addr()
	if a.Is4() {
		a = a.Next()
	}
	s := a.String()
	return &s
}

// poolsOf returns the default pools: every address for ports, except the gateway (neutron 21.0.0:
// ipam/utils.py, generate_pools).
func poolsOf(p netip.Prefix, gateway *string) []pool {
	first, end := hosts(p)
	if first == end {
		return []pool{{first.String(), end.String()}}
	}
	var g netip.Addr
	if gateway != nil {
		g, _ = parseAddress(*gateway)
	}
	if !g.IsValid() || g.Less(first) || end.Less(g) {
		return []pool{{first.String(), end.String()}}
	}
	out := []pool{}
	if first.Less(g) {
		out = append(out, pool{first.String(), g.Prev().String()})
	}
	if g.Less(end) {
		out = append(out, pool{g.Next().String(), end.String()})
	}
	return out
}

// checkPools checks the pools of a request (neutron 21.0.0: db/ipam_backend_mixin.py,
// pools_to_ip_range and validate_allocation_pools).
func (n *subnet) checkPools() *fault {
	first, end := hosts(n.prefix())
	for i, p := range n.AllocationPools {
		from, to := p.ends()
		if from.Is4() != to.Is4() || to.Less(from) {
			return refuse(400, "InvalidAllocationPool", "The allocation pool {'start': '%s', 'end': '%s'} is not valid.", p.Start, p.End)
		}
		n.AllocationPools[i] = pool{from.String(), to.String()}
	}
	for _, p := range n.AllocationPools {
		from, to := p.ends()
		if from.Is4() != first.Is4() {
			return refuse(400, "InvalidAllocationPool", "The allocation pool %s is not valid.", p)
		}
		if from.Less(first) || end.Less(to) {
			return refuse(400, "OutOfBoundsAllocationPool", "The allocation pool %s spans beyond the subnet cidr %s.", p, n.CIDR)
		}
	}
	for i, p := range n.AllocationPools {
		from, to := p.ends()
		for _, o := range n.AllocationPools[i+1:] {
			if a, b := o.ends(); !to.Less(a) && !b.Less(from) {
				return conflict("OverlappingAllocationPools", "Found overlapping allocation pools: %s %s for subnet %s.", p, o, n.CIDR)
			}
		}
	}
	return n.gatewayOutside()
}

// gatewayOutside refuses pools that contain the gateway's address.
func (n *subnet) gatewayOutside() *fault {
	if n.GatewayIP == nil {
		return nil
	}
	g, _ := parseAddress(*n.GatewayIP)
	for _, p := range n.AllocationPools {
		if from, to := p.ends(); !g.Less(from) && !to.Less(g) {
			return conflict("GatewayConflictWithAllocationPools", "Gateway ip %s conflicts with allocation pool %s.", g, p)
		}
	}
	return nil
}
