// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// subnet is a subnet.
type subnet struct {
	standard
	Name              string      `json:"name"`
	IPVersion         int         `json:"ip_version"`
	NetworkID         string      `json:"network_id"`
	SubnetPoolID      *string     `json:"subnetpool_id"`
	CIDR              string      `json:"cidr"`
	GatewayIP         *string     `json:"gateway_ip"`
	AllocationPools   []pool      `json:"allocation_pools"`
	DNSNameservers    []string    `json:"dns_nameservers"`
	HostRoutes        []hostRoute `json:"host_routes"`
	EnableDHCP        bool        `json:"enable_dhcp"`
	IPv6RAMode        *string     `json:"ipv6_ra_mode"`
	IPv6AddressMode   *string     `json:"ipv6_address_mode"`
	ServiceTypes      []string    `json:"service_types"`
	DNSPublishFixedIP *bool       `json:"dns_publish_fixed_ip,omitempty"`
	SegmentID         *string     `json:"segment_id"`
	External          bool        `json:"router:external"` // its network is; only in answers
}

// pool is an allocation pool. It includes both ends.
type pool struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

func (p pool) String() string { return p.Start + "-" + p.End }

// ends returns the ends as addresses. Those of a stored pool are valid.
func (p pool) ends() (first, last netip.Addr) {
	first, _ = parseAddress(p.Start)
	last, _ = parseAddress(p.End)
	return first, last
}

// hostRoute is a route to a CIDR.
type hostRoute struct {
	Destination string `json:"destination"`
	NextHop     string `json:"nexthop"`
}

func (s *Service) registerSubnets() {
	s.subnets = &kind[subnet]{
		one: "subnet", many: "subnets", title: "Subnet",
		create: createSubnet, update: updateSubnet, remove: removeSubnet, created: createdSubnet,
		shown: func(c *call, n *subnet) bool {
			net, ok := c.networks.rows.Get(n.NetworkID)
			// Neutron 26.0.3 also shows those of external networks (db/external_net_db.py).
			return c.owns(n.ProjectID) || ok && (net.Shared || net.External && c.Later || c.owns(net.ProjectID))
		},
		view: viewSubnet,
		filters: map[string]func(*call, *subnet, []string) bool{
			"shared": sharedSubnet, "cidr": hasCIDR, "router:external": externalSubnet,
		},
	}
	register(s, s.subnets)
}

// sharedSubnet is the filter shared. A subnet is shared if its network is.
func sharedSubnet(c *call, n *subnet, wanted []string) bool {
	net, ok := c.networks.rows.Get(n.NetworkID)
	return ok && slices.Contains(wanted, strings.ToLower(repr(net.Shared)))
}

// viewSubnet returns a subnet for an answer. It is external if its network is.
func viewSubnet(c *call, n *subnet) *subnet {
	net, ok := c.networks.rows.Get(n.NetworkID)
	if !ok || !net.External {
		return n
	}
	shown := *n
	shown.External = true
	return &shown
}

func externalSubnet(c *call, n *subnet, wanted []string) bool {
	return slices.Contains(wanted, strconv.FormatBool(viewSubnet(c, n).External))
}

func hasCIDR(_ *call, n *subnet, wanted []string) bool { return slices.Contains(wanted, n.CIDR) }

// prefix returns the subnet's CIDR.
func (n *subnet) prefix() netip.Prefix {
	p, _ := netip.ParsePrefix(n.CIDR)
	return p
}

func badSubnet(format string, args ...any) *fault {
	f := refuse(400, "BadRequest", format, args...)
	f.message = "Bad subnets request: " + f.message + "."
	return f
}

// createSubnet completes a new subnet (neutron 21.0.0:
// db/db_base_plugin_v2.py, _create_subnet_precommit).
func createSubnet(c *call, n *subnet, in values) *fault {
	length, hasLength := in.number("prefixlen")
	if n.CIDR != "" && hasLength {
		return badSubnet("cidr and prefixlen must not be supplied together")
	}
	if n.CIDR != "" {
		address, bits, _ := parseNetwork(n.CIDR)
		n.CIDR = masked(address, bits).String()
	}
	from, f := c.poolFor(n, in)
	if f != nil {
		return f
	}
	n.SubnetPoolID = nil
	if from == nil {
		if n.CIDR == "" {
			return badSubnet("a subnetpool must be specified in the absence of a cidr")
		}
		if f := c.checkSubnet(n, nil, in); f != nil {
			return f
		}
	}
	net, f := c.networks.find(c, n.NetworkID)
	if f != nil {
		return f
	}
	if from != nil {
		if f := c.fromPool(n, from, length, in); f != nil {
			return f
		}
	}
	return c.completeSubnet(n, net, in)
}

// completeSubnet checks a subnet against the others of its network, and fills in gateway and
// pools.
func (c *call) completeSubnet(n *subnet, net *network, in values) *fault {
	p := n.prefix()
	if !in.given("gateway_ip") {
		n.GatewayIP = firstHost(p)
		if !in.has("cidr") { // of a prefix that a pool gave, in either family (neutron 21.0.0: ipam/subnet_alloc.py)
			n.GatewayIP = new(p.Addr().Next().String())
		}
	}
	if len(n.AllocationPools) > 0 {
		if f := n.checkPools(); f != nil {
			return f
		}
	} else { // an empty list equals no list (observed on Neutron 21.0.0)
		n.AllocationPools = poolsOf(p, n.GatewayIP)
	}
	if p.Bits() == 0 {
		return invalid("0 is not allowed as CIDR prefix length")
	}
	for _, id := range net.Subnets {
		if o, ok := c.subnets.rows.Get(id); ok && o.prefix().Overlaps(p) {
			return invalid("Requested subnet with cidr: %s for network: %s overlaps with another subnet", n.CIDR, net.ID)
		}
	}
	if f := c.samePool(n, net); f != nil {
		return f
	}
	// The simulator chose this gateway, in a subnet of two addresses (neutron 21.0.0:
	// ipam/requests.py).
	if n.GatewayIP != nil && gatewayInvalid(p, *n.GatewayIP) {
		problem := "allocated in CIDR"
		if c.Later {
			problem = "the network or broadcast IP address"
		}
		return conflict("IpamValueInvalid", "Gateway IP %s cannot be %s %s", *n.GatewayIP, problem, p)
	}
	if n.SegmentID != nil {
		return refuse(404, "SegmentNotFound", "Segment %s could not be found.", *n.SegmentID)
	}
	n.NetworkID = net.ID
	n.filled()
	return nil
}

// filled replaces missing lists by empty ones.
func (n *subnet) filled() {
	if n.DNSNameservers == nil {
		n.DNSNameservers = []string{}
	}
	if n.HostRoutes == nil {
		n.HostRoutes = []hostRoute{}
	}
	if n.ServiceTypes == nil {
		n.ServiceTypes = []string{}
	}
	if n.AllocationPools == nil {
		n.AllocationPools = []pool{}
	}
	n.DNSPublishFixedIP = nil // Neutron has the extension, but not its plugin
}

// createdSubnet adds the subnet to its network. If the network is external, its gateways are
// updated.
func createdSubnet(c *call, n *subnet) *fault {
	// Service types have database rows of their own, which change the subnet (observed on Neutron
	// 21.0.0).
	if len(n.ServiceTypes) > 0 {
		typed := *n
		typed.RevisionNumber++
		c.subnets.put(c, &typed)
	}
	c.changeNetwork(n.NetworkID, func(net *network) {
		net.Subnets = append(slices.Clone(net.Subnets), n.ID)
		slices.Sort(net.Subnets)
	})
	return nil
}

// maxServers and maxRoutes are Neutron's defaults (neutron 21.0.0: conf/common.py).
const (
	maxServers = 5
	maxRoutes  = 20
)

// checkSubnet checks the subnet on its own, in Neutron's order (neutron 21.0.0:
// db/db_base_plugin_v2.py, _validate_subnet). For a new subnet old is nil, and in includes
// defaults.
func (c *call) checkSubnet(n, old *subnet, in values) *fault {
	p := n.prefix()
	version := func(what, address string) *fault {
		a, _, ok := parseNetwork(address)
		if ok && a.Is4() == (n.IPVersion == 4) {
			return nil
		}
		return invalid("%s '%s' does not match the ip_version '%d'", what, address, n.IPVersion)
	}
	if f := version("cidr", n.CIDR); f != nil {
		return f
	}
	if in.truth("enable_dhcp") && (old == nil || !old.EnableDHCP) {
		if f := fitForDHCP(p); f != nil {
			return f
		}
	}
	if in.has("gateway_ip") && n.GatewayIP != nil {
		if f := version("gateway_ip", *n.GatewayIP); f != nil {
			return f
		}
		if gatewayInvalid(p, *n.GatewayIP) {
			return invalid("Gateway is not valid on subnet")
		}
		if f := c.gatewayFree(n, old); f != nil {
			return f
		}
	}
	if f := n.checkLists(old, in, version); f != nil {
		return f
	}
	return n.checkModes(old, in)
}

func fitForDHCP(p netip.Prefix) *fault {
	switch a := p.Addr(); {
	case a.Is4() && p.Bits() > 30, a.Is6() && p.Bits() > 126:
		return invalid("Subnet has a prefix length that is incompatible with DHCP service enabled")
	case a.IsMulticast():
		return invalid("Multicast IP subnet is not supported if enable_dhcp is True")
	case a.IsLoopback():
		return invalid("Loopback IP subnet is not supported if enable_dhcp is True")
	case a.Is4() && a.IsUnspecified():
		return invalid("First IP '0.0.0.0' of network is not supported if enable_dhcp is True.")
	}
	return nil
}

// gatewayInvalid reports whether a gateway is the network's own or broadcast address. Any other
// address is valid (neutron 21.0.0: ipam/utils.py).
func gatewayInvalid(p netip.Prefix, gateway string) bool {
	a, _ := parseAddress(gateway)
	return a.Is4() && p.Contains(a) && (a == p.Addr() || a == last(p))
}

// gatewayFree refuses to change the gateway while a router has its address.
func (c *call) gatewayFree(n, old *subnet) *fault {
	if old == nil || old.GatewayIP == nil || *old.GatewayIP == *n.GatewayIP {
		return nil
	}
	p := c.firstPort(n.NetworkID, func(p *port) bool {
		return p.ofRouter() && slices.Contains(p.FixedIPs, fixedIP{n.ID, *old.GatewayIP})
	})
	if p == nil {
		return nil
	}
	return conflict("GatewayIpInUse", "Current gateway ip %s already in use by port %s. Unable to update.", *old.GatewayIP, p.ID)
}

func (n *subnet) checkLists(old *subnet, in values, version func(what, address string) *fault) *fault {
	id := "new subnet"
	if old != nil {
		id = n.ID
	}
	if in.has("dns_nameservers") {
		if len(n.DNSNameservers) > maxServers {
			return refuse(400, "DNSNameServersExhausted", "Unable to complete operation for %s. The number of DNS nameservers exceeds the limit %d.", id, maxServers)
		}
		for _, s := range n.DNSNameservers {
			if f := version("dns_nameserver", s); f != nil {
				return f
			}
		}
	}
	if !in.has("host_routes") {
		return nil
	}
	if len(n.HostRoutes) > maxRoutes {
		return refuse(400, "HostRoutesExhausted", "Unable to complete operation for %s. The number of host routes exceeds the limit %d.", id, maxRoutes)
	}
	for _, r := range n.HostRoutes {
		if f := version("nexthop", r.NextHop); f != nil {
			return f
		}
		if f := version("destination", r.Destination); f != nil {
			return f
		}
	}
	return nil
}

// checkModes checks the IPv6 modes.
func (n *subnet) checkModes(old *subnet, in values) *fault {
	ra, address := n.IPv6RAMode, n.IPv6AddressMode
	switch {
	case n.IPVersion == 4 && in.has("ipv6_ra_mode"):
		return invalid("ipv6_ra_mode is not valid when ip_version is 4")
	case n.IPVersion == 4 && in.has("ipv6_address_mode"):
		return invalid("ipv6_address_mode is not valid when ip_version is 4")
	case n.IPVersion == 4:
		return nil
	case old != nil:
		if v, given := in["enable_dhcp"]; given && v == false && (ra != nil || address != nil) {
			return invalid("Cannot disable enable_dhcp with ipv6 attributes set")
		}
		return nil
	case (ra != nil || address != nil) && !n.EnableDHCP:
		return invalid("ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False")
	case ra != nil && address != nil && *ra != *address:
		return invalid("ipv6_ra_mode set to '%s' with ipv6_address_mode set to '%s' is not valid. If both attributes are set, they must be the same value", *ra, *address)
	case automatic(n) && n.prefix().Bits() != 64:
		return invalid("Invalid CIDR %s for IPv6 address mode. OpenStack uses the EUI-64 address format, which requires the prefix to be /64", n.CIDR)
	}
	return nil
}

// updateSubnet checks a change (neutron 21.0.0: db/db_base_plugin_v2.py,
// _update_subnet_precommit).
func updateSubnet(c *call, n, old *subnet, in values) *fault {
	if f := c.checkSubnet(n, old, in); f != nil {
		return f
	}
	n.filled()
	counted := *n
	counted.AllocationPools = old.AllocationPools
	c.aside(n, old, equal(&counted, old))
	if in.has("allocation_pools") {
		if f := n.checkPools(); f != nil {
			return f
		}
	}
	if in.has("allocation_pools") || !equal(n.GatewayIP, old.GatewayIP) {
		return n.gatewayOutside()
	}
	return nil
}

// removeSubnet refuses while ports have addresses of the subnet (neutron 21.0.0:
// db/db_base_plugin_v2.py, delete_subnet). Neutron's own ports, and ports with an automatic
// address, only lose that address.
func removeSubnet(c *call, n *subnet) *fault {
	var lose []*port
	for _, p := range c.portsOn(n.ID) {
		if p.ofRouter() || !automatic(n) && !slices.Contains(autoDeleted, p.DeviceOwner) {
			return conflict("SubnetInUse", "Unable to complete operation on subnet %s: One or more ports have an IP allocation from this subnet.", n.ID)
		}
		lose = append(lose, p)
	}
	for _, p := range lose {
		less := *p
		less.FixedIPs = slices.DeleteFunc(slices.Clone(p.FixedIPs), func(ip fixedIP) bool { return ip.SubnetID == n.ID })
		less.DNSAssignment = assignment(less.FixedIPs)
		less.touch(c)
		c.ports.put(c, &less)
	}
	c.changeNetwork(n.NetworkID, func(net *network) {
		net.Subnets = slices.DeleteFunc(slices.Clone(net.Subnets), func(id string) bool { return id == n.ID })
	})
	c.forgetAddresses(n.ID)
	return nil
}

// dropSubnet removes a subnet that is deleted with its network.
func (c *call) dropSubnet(id string) {
	c.subnets.drop(c, id)
	c.forgetAddresses(id)
}

// forgetAddresses forgets the taken addresses of a subnet that is being deleted.
func (c *call) forgetAddresses(id string) {
	taken, ok := c.subnetAddresses[id]
	if !ok {
		return
	}
	delete(c.subnetAddresses, id)
	c.undo(func() { c.subnetAddresses[id] = taken })
}
