// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"
	"slices"
)

// asked returns the port or subnet that an interface call names.
func asked(body map[string]any, both bool) (portID, subnetID string, f *fault) {
	_, byPort := body["port_id"]
	_, bySubnet := body["subnet_id"]
	if !byPort && !bySubnet {
		return "", "", badRouter("Either subnet_id or port_id must be specified")
	}
	for _, key := range []string{"port_id", "subnet_id"} {
		if v, given := body[key]; given && !isUUID(v) {
			return "", "", badRouter("%s", checkUUID(v, nil))
		}
	}
	if byPort && bySubnet && !both {
		return "", "", badRouter("Cannot specify both subnet-id and port-id")
	}
	portID, _ = body["port_id"].(string)
	subnetID, _ = body["subnet_id"].(string)
	return portID, subnetID, nil
}

// addInterface handles PUT /v2.0/routers/ID/add_router_interface (neutron 21.0.0: db/l3_db.py).
func addInterface(c *call, id string, body map[string]any) (any, *fault) {
	r, f := c.routers.find(c, id)
	if f != nil {
		return nil, f
	}
	portID, subnetID, f := asked(body, false)
	if f != nil {
		return nil, f
	}
	var p *port
	var subnets []*subnet
	if portID != "" {
		p, subnets, f = c.interfaceByPort(r, portID)
	} else {
		p, subnets, f = c.interfaceBySubnet(r, subnetID)
	}
	if f != nil {
		return nil, f
	}
	c.changeRouter(r.ID)
	return interfaceInfo(r, p, subnets, len(subnets)-1), nil
}

// interfaceInfo returns the answer of an interface call.
func interfaceInfo(r *router, p *port, subnets []*subnet, main int) any {
	ids := make([]string, len(subnets))
	for i, s := range subnets {
		ids[i] = s.ID
	}
	return map[string]any{
		"id": r.ID, "tenant_id": p.TenantID, "port_id": p.ID, "network_id": p.NetworkID,
		"subnet_id": ids[main], "subnet_ids": ids,
	}
}

// changeRouter counts a change of a router's ports as a change of the router.
func (c *call) changeRouter(id string) {
	if old, ok := c.routers.rows.Get(id); ok {
		r := *old
		r.touch(c)
		c.routers.put(c, &r)
	}
}

// interfaceByPort makes one of the caller's ports an interface of the router.
func (c *call) interfaceByPort(r *router, id string) (*port, []*subnet, *fault) {
	p, f := c.ports.find(c, id)
	if f != nil {
		return nil, nil, f
	}
	if p.DeviceID != "" {
		return nil, nil, portInUse(p)
	}
	if len(p.FixedIPs) == 0 {
		return nil, nil, badRouter("Router port must have at least one fixed IP")
	}
	var subnets []*subnet
	four := 0
	for _, ip := range p.FixedIPs {
		s, ok := c.subnets.rows.Get(ip.SubnetID)
		if !ok {
			return nil, nil, c.subnets.notFound(ip.SubnetID)
		}
		if f := routable(s); f != nil {
			return nil, nil, f
		}
		subnets = append(subnets, s)
		if s.IPVersion == 4 {
			four++
		}
	}
	if f := c.overlaps(r, subnets, false); f != nil {
		return nil, nil, f
	}
	if four > 1 {
		return nil, nil, badRouter("Cannot have multiple IPv4 subnets on router port")
	}
	iface := p.copied()
	iface.DeviceID, iface.DeviceOwner = r.ID, ownerRouter
	iface.Status = statusActive // OVN reports it up at once
	iface.touch(c)
	c.ports.put(c, iface)
	return iface, subnets, nil
}

// routable refuses a subnet whose routes another router announces (neutron 21.0.0: db/l3_db.py,
// _validate_subnet_address_mode).
func routable(s *subnet) *fault {
	if s.IPVersion == 6 && s.IPv6RAMode == nil && s.IPv6AddressMode != nil {
		return badRouter("IPv6 subnet %s configured to receive RAs from an external router cannot be added to Neutron Router.", s.ID)
	}
	return nil
}

// interfaceBySubnet makes a port with the subnet's gateway address.
func (c *call) interfaceBySubnet(r *router, id string) (*port, []*subnet, *fault) {
	s, f := c.subnets.find(c, id)
	if f != nil {
		return nil, nil, f
	}
	if s.GatewayIP == nil {
		return nil, nil, badRouter("Subnet for router interface must have a gateway IP")
	}
	if s.ProjectID != c.who.ProjectID && !c.admin() {
		return nil, nil, badRouter("Cannot add interface to router because subnet %s is not owned by project making the request", s.ID)
	}
	if f := routable(s); f != nil {
		return nil, nil, f
	}
	if f := c.overlaps(r, []*subnet{s}, false); f != nil {
		return nil, nil, f
	}
	if s.IPVersion == 6 {
		if p := c.sixth(r, s.NetworkID); p != nil {
			return c.addPrefix(p, s)
		}
	}
	p, f := c.newPort(portSpec{
		ProjectID: r.ProjectID, NetworkID: s.NetworkID, DeviceID: r.ID, DeviceOwner: ownerRouter,
		Status:    statusActive, // OVN reports it up at once
		Addresses: []wish{{s.ID, *s.GatewayIP}},
	})
	if f != nil {
		return nil, nil, f
	}
	return p, []*subnet{s}, nil
}

// sixth returns the router's IPv6 interface on a network; it has at most one.
func (c *call) sixth(r *router, network string) *port {
	for _, p := range c.ifaces(r.ID) {
		if p.NetworkID == network && p.DeviceOwner == ownerRouter && slices.ContainsFunc(p.FixedIPs, six) {
			return p
		}
	}
	return nil
}

func six(ip fixedIP) bool {
	a, _ := parseAddress(ip.IPAddress)
	return a.Is6()
}

func (c *call) addPrefix(p *port, s *subnet) (*port, []*subnet, *fault) {
	a, _ := parseAddress(*s.GatewayIP)
	if !c.addressesOf(s).take(a) {
		return nil, nil, conflict("IpAddressAlreadyAllocated", "IP address %s already allocated in subnet %s", a, s.ID)
	}
	c.undo(func() { c.addressesOf(s).release(a) })
	iface := p.copied()
	iface.setAddresses(append(slices.Clone(p.FixedIPs), fixedIP{s.ID, a.String()}))
	iface.touch(c)
	c.ports.put(c, iface)
	return iface, []*subnet{s}, nil
}

// overlaps refuses overlapping subnets, which a router cannot tell apart (neutron 21.0.0:
// db/l3_db.py, _check_for_dup_router_subnets). If the gateway shall move, its current network is
// ignored.
func (c *call) overlaps(r *router, subnets []*subnet, moved bool) *fault {
	var known []*subnet
	for _, p := range c.ifaces(r.ID) {
		if p.DeviceOwner == ownerGateway {
			if !moved {
				known = append(known, c.subnetsOf(p.NetworkID)...)
			}
			continue
		}
		for _, ip := range p.FixedIPs {
			// Neutron 26.0.3 says that the subnet overlaps with itself (observed).
			if !c.Later && slices.ContainsFunc(subnets, func(s *subnet) bool { return s.ID == ip.SubnetID }) {
				return badRouter("Router already has a port on subnet %s", ip.SubnetID)
			}
			if s, ok := c.subnets.rows.Get(ip.SubnetID); ok {
				known = append(known, s)
			}
		}
	}
	for _, o := range known {
		for _, s := range subnets {
			if s.prefix().Overlaps(o.prefix()) {
				return badRouter("Cidr %s of subnet %s overlaps with cidr %s of subnet %s", s.CIDR, s.ID, o.CIDR, o.ID)
			}
		}
	}
	return nil
}

// removeInterface handles PUT /v2.0/routers/ID/remove_router_interface.
func removeInterface(c *call, id string, body map[string]any) (any, *fault) {
	portID, subnetID, f := asked(body, true)
	if f != nil {
		return nil, f
	}
	r, f := c.routers.find(c, id)
	if f != nil {
		return nil, f
	}
	p, f := c.iface(r, portID, subnetID)
	if f != nil {
		return nil, f
	}
	var subnets []*subnet
	for _, ip := range p.FixedIPs {
		s, ok := c.subnets.rows.Get(ip.SubnetID)
		if !ok || portID == "" && s.ID != subnetID {
			continue
		}
		if f := c.interfaceNeeded(r, s); f != nil {
			return nil, f
		}
		subnets = append(subnets, s)
	}
	if portID == "" && len(p.FixedIPs) > 1 {
		less := p.copied()
		less.setAddresses(slices.DeleteFunc(slices.Clone(p.FixedIPs), func(ip fixedIP) bool { return ip.SubnetID == subnetID }))
		less.touch(c)
		c.releaseAddresses(slices.DeleteFunc(slices.Clone(p.FixedIPs), func(ip fixedIP) bool { return ip.SubnetID != subnetID }))
		c.ports.put(c, less)
	} else if f := c.dropPort(p.ID); f != nil {
		return nil, f
	}
	c.changeRouter(r.ID)
	return interfaceInfo(r, p, subnets, 0), nil
}

// iface returns the interface of a router that a call names.
func (c *call) iface(r *router, portID, subnetID string) (*port, *fault) {
	on := func(p *port) bool {
		return slices.ContainsFunc(p.FixedIPs, func(ip fixedIP) bool { return ip.SubnetID == subnetID })
	}
	if portID == "" {
		if _, f := c.subnets.find(c, subnetID); f != nil {
			return nil, f
		}
	}
	for _, p := range c.ifaces(r.ID) {
		switch {
		case p.DeviceOwner != ownerRouter:
		case portID == "" && on(p):
			return p, nil
		case portID == p.ID && subnetID != "" && !on(p):
			return nil, refuse(400, "SubnetMismatchForPort", "Subnet on port %s does not match the requested subnet %s.", portID, subnetID)
		case portID == p.ID:
			return p, nil
		}
	}
	if portID != "" {
		return nil, refuse(http.StatusNotFound, "RouterInterfaceNotFound", "Router %s does not have an interface with id %s", r.ID, portID)
	}
	return nil, refuse(http.StatusNotFound, "RouterInterfaceNotFoundForSubnet", "Router %s has no interface on subnet %s", r.ID, subnetID)
}

// interfaceNeeded refuses to remove a router's interface to a subnet that floating IPs or routes
// need.
func (c *call) interfaceNeeded(r *router, s *subnet) *fault {
	for fip := range c.floatingIPs.rows.All() {
		if fip.RouterID == nil || *fip.RouterID != r.ID || fip.PortID == nil || fip.FixedIPAddress == nil {
			continue
		}
		p, ok := c.ports.rows.Get(*fip.PortID)
		if ok && slices.Contains(p.FixedIPs, fixedIP{s.ID, *fip.FixedIPAddress}) {
			return conflict("RouterInterfaceInUseByFloatingIP",
				"Router interface for subnet %s on router %s cannot be deleted, as it is required by one or more floating IPs.", s.ID, r.ID)
		}
	}
	for _, route := range r.Routes {
		if hop, ok := parseAddress(route.NextHop); ok && s.prefix().Contains(hop) {
			return conflict("RouterInterfaceInUseByRoute",
				"Router interface for subnet %s on router %s cannot be deleted, as it is required by one or more routes.", s.ID, r.ID)
		}
	}
	return nil
}
