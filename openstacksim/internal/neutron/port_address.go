// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/netip"
	"slices"
)

// wish is a request for one address. Neutron chooses fields that are "".
type wish struct{ subnet, address string }

func wishes(list []any) []wish {
	out := make([]wish, 0, len(list))
	for _, e := range list {
		m, _ := e.(map[string]any)
		out = append(out, wish{values(m).text("subnet_id"), values(m).text("ip_address")})
	}
	return out
}

// subnetAddresses are a subnet's addresses, and the pools that they come from.
type subnetAddresses struct {
	*addresses
	of []pool
}

// addressesOf returns the addresses of the subnet.
func (s *Service) addressesOf(n *subnet) *subnetAddresses {
	a := s.subnetAddresses[n.ID]
	if a != nil && slices.Equal(a.of, n.AllocationPools) {
		return a
	}
	pools := make([]span, 0, len(n.AllocationPools))
	for _, p := range n.AllocationPools {
		first, _ := netip.ParseAddr(p.Start)
		last, _ := netip.ParseAddr(p.End)
		pools = append(pools, span{first, last})
	}
	if a == nil {
		a = &subnetAddresses{addresses: newAddresses(pools)}
		s.subnetAddresses[n.ID] = a
	} else {
		a.reset(pools)
	}
	a.of = slices.Clone(n.AllocationPools)
	return a
}

// automatic reports whether each port gets an address of the subnet without asking.
func automatic(n *subnet) bool {
	return n.IPVersion == 6 && n.IPv6AddressMode != nil && (*n.IPv6AddressMode == "slaac" || *n.IPv6AddressMode == "dhcpv6-stateless")
}

// candidates returns the subnets of the network for ports of this owner. Subnets with a matching
// service type come first (neutron 21.0.0: db/ipam_backend_mixin.py, _ipam_get_subnets).
func (c *call) candidates(p *port) ([]*subnet, *fault) {
	var special, open []*subnet
	some := false
	for _, n := range c.subnetsOf(p.NetworkID) {
		some = true
		switch {
		case len(n.ServiceTypes) == 0:
			open = append(open, n)
		case slices.Contains(n.ServiceTypes, p.DeviceOwner):
			special = append(special, n)
		}
	}
	if all := append(special, open...); len(all) > 0 || !some {
		return all, nil
	}
	return nil, conflict("IpAddressGenerationFailureNoMatchingSubnet",
		"No valid service subnet for the given device owner, network %s, service type %s.", p.NetworkID, p.DeviceOwner)
}

// asking is a request for one address of the subnets. If address is valid, it must be that one.
type asking struct {
	subnets []*subnet
	address netip.Addr
}

// allocate takes the addresses of a new port (neutron 21.0.0: db/ipam_pluggable_backend.py,
// _allocate_ips_for_port).
func (c *call) allocate(p *port, wanted []wish, given bool) ([]fixedIP, *fault) {
	subnets, f := c.candidates(p)
	if f != nil {
		return nil, f
	}
	var requests []asking
	if given {
		if requests, f = c.requests(p, wanted, subnets); f != nil {
			return nil, f
		}
	} else {
		requests = oneOfEachVersion(subnets)
	}
	return c.takeAll(p, append(requests, autoRequests(p, subnets, nil)...))
}

func oneOfEachVersion(subnets []*subnet) (out []asking) {
	var v4, v6 []*subnet
	for _, n := range subnets {
		switch {
		case n.IPVersion == 4:
			v4 = append(v4, n)
		case !automatic(n):
			v6 = append(v6, n)
		}
	}
	for _, group := range [][]*subnet{v4, v6} {
		if len(group) > 0 {
			out = append(out, asking{subnets: group})
		}
	}
	return out
}

// requests converts wishes to requests.
func (c *call) requests(p *port, wanted []wish, subnets []*subnet) ([]asking, *fault) {
	var out []asking
	for _, w := range wanted {
		n, f := c.subnetFor(p, w, subnets)
		if f != nil {
			return nil, f
		}
		r := asking{subnets: []*subnet{n}}
		switch {
		case w.address != "" && automatic(n) && !p.ofRouter():
			return nil, refuse(400, "AllocationOnAutoAddressSubnet",
				"IPv6 address %s cannot be directly assigned to a port on subnet %s as the subnet is configured for automatic addresses", w.address, n.ID)
		case w.address != "":
			r.address, _ = netip.ParseAddr(w.address)
		case automatic(n) && !p.ofRouter():
			continue // every automatic subnet gives an address anyway
		}
		out = append(out, r)
	}
	return out, nil
}

// subnetFor returns the subnet of a wish (neutron 21.0.0: db/ipam_backend_mixin.py,
// _get_subnet_for_fixed_ip).
func (c *call) subnetFor(p *port, w wish, subnets []*subnet) (*subnet, *fault) {
	if len(subnets) == 0 {
		return nil, invalid("IP allocation requires subnets for network")
	}
	if w.subnet != "" {
		i := slices.IndexFunc(subnets, func(n *subnet) bool { return n.ID == w.subnet })
		if i < 0 {
			if _, f := c.subnets.find(c, w.subnet); f != nil {
				return nil, f
			}
			return nil, invalid("Failed to create port on network %s, because fixed_ips included invalid subnet %s", p.NetworkID, w.subnet)
		}
		if w.address != "" && !onSubnet(subnets[i], w.address, p.DeviceOwner) {
			return nil, refuse(400, "InvalidIpForSubnet", "IP address %s is not a valid IP for the specified subnet.", w.address)
		}
		return subnets[i], nil
	}
	if w.address == "" {
		return nil, invalid("IP allocation requires subnet_id or ip_address")
	}
	for _, n := range subnets {
		if onSubnet(n, w.address, p.DeviceOwner) {
			return n, nil
		}
	}
	return nil, refuse(400, "InvalidIpForNetwork", "IP address %s is not a valid IP for any of the subnets on the specified network.", w.address)
}

// onSubnet reports whether a port may have the address on the subnet (neutron
// 21.0.0: ipam/utils.py, check_subnet_ip).
func onSubnet(n *subnet, address, owner string) bool {
	a, err := netip.ParseAddr(address)
	prefix, e := netip.ParsePrefix(n.CIDR)
	if err != nil || e != nil || !prefix.Contains(a) {
		return false
	}
	if a.Is6() {
		return a != prefix.Addr() || owner == "" || owner == ownerGateway || (&port{DeviceOwner: owner}).ofRouter()
	}
	// For netaddr, a subnet of one or two addresses has no broadcast address.
	return a != prefix.Addr() && (prefix.Bits() >= 31 || a != last(prefix))
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// autoRequests returns the requests for a port's automatic addresses.
func autoRequests(p *port, subnets []*subnet, without []string) (out []asking) {
	if p.ofRouter() {
		return nil
	}
	for _, n := range subnets {
		if automatic(n) && !slices.Contains(without, n.ID) {
			out = append(out, asking{[]*subnet{n}, eui64(n.CIDR, p.MACAddress)})
		}
	}
	return out
}

// takeAll takes the requested addresses. Given addresses come first, so that no other request
// draws them.
func (c *call) takeAll(p *port, requests []asking) ([]fixedIP, *fault) {
	out := make([]fixedIP, 0, len(requests))
	slices.SortStableFunc(requests, func(a, b asking) int {
		return boolean(b.address.IsValid()) - boolean(a.address.IsValid())
	})
	for i, r := range requests {
		ip, f := c.takeOne(p, r, i)
		if f != nil {
			return nil, f
		}
		out = append(out, ip)
	}
	return out, nil
}

// noAddress is the error if the subnets of a request are full. If the request is for several
// ports, the addresses taken for it stay taken without a port (observed on neutron 21.0.0: IPAM
// has transactions of its own).
const noAddress = "IpAddressGenerationFailure"

func (c *call) takeOne(p *port, r asking, i int) (fixedIP, *fault) {
	for _, n := range r.subnets {
		a := c.addressesOf(n)
		address := r.address
		var ok bool
		switch {
		case r.address.IsValid():
			ok = a.take(address)
		case p.DeviceOwner == ownerDHCP || p.DeviceOwner == "network:distributed":
			address, ok = a.lowest()
		default:
			address, ok = a.draw(lot(p.ID, -1-i))
		}
		if ok {
			c.undo(func() { a.release(address) })
			c.taken = append(c.taken, func() { a.take(address) })
			return fixedIP{n.ID, address.String()}, nil
		}
		if r.address.IsValid() {
			return fixedIP{}, conflict("IpAddressAlreadyAllocated", "IP address %s already allocated in subnet %s", address, n.ID)
		}
	}
	return fixedIP{}, conflict(noAddress, "No more IP addresses available on network %s.", p.NetworkID)
}

// releaseAddresses makes addresses free again.
func (c *call) releaseAddresses(ips []fixedIP) {
	for _, ip := range ips {
		a := c.subnetAddresses[ip.SubnetID]
		address, err := netip.ParseAddr(ip.IPAddress)
		if a == nil || err != nil {
			continue
		}
		a.release(address)
		c.undo(func() { a.take(address) })
	}
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
