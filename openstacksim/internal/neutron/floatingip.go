// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"
	"slices"
	"strings"
)

// floatingIP is a floating IP. Its address belongs to a port of its own.
type floatingIP struct {
	standard
	FloatingNetworkID string       `json:"floating_network_id"`
	FloatingIPAddress string       `json:"floating_ip_address"`
	FixedIPAddress    *string      `json:"fixed_ip_address"`
	PortID            *string      `json:"port_id"`
	RouterID          *string      `json:"router_id"`
	Status            string       `json:"status"`
	QoSPolicyID       *string      `json:"qos_policy_id"`
	DNSName           string       `json:"dns_name"`
	DNSDomain         string       `json:"dns_domain"`
	PortDetails       *portDetails `json:"port_details"`
	PortForwardings   []any        `json:"port_forwardings"`

	own string // the ID of that port
}

// portDetails is what a floating IP shows of its associated port.
type portDetails struct {
	Name         string `json:"name"`
	NetworkID    string `json:"network_id"`
	MACAddress   string `json:"mac_address"`
	AdminStateUp bool   `json:"admin_state_up"`
	Status       string `json:"status"`
	DeviceID     string `json:"device_id"`
	DeviceOwner  string `json:"device_owner"`
}

func (s *Service) registerFloatingIPs() {
	s.floatingIPs = &kind[floatingIP]{
		one: "floatingip", many: "floatingips", title: "FloatingIP", lost: showsNothing,
		create: createFloatingIP, update: updateFloatingIP, remove: removeFloatingIP, view: viewFloatingIP,
		missing: func(id string) *fault {
			return refuse(http.StatusNotFound, "FloatingIPNotFound", "Floating IP %s could not be found", id)
		},
	}
	register(s, s.floatingIPs)
	s.portGone = freeFloatingIPs
}

func badFloatingIP(format string, args ...any) *fault {
	f := refuse(http.StatusBadRequest, "BadRequest", format, args...)
	f.message = "Bad floatingip request: " + f.message + "."
	return f
}

func viewFloatingIP(c *call, f *floatingIP) *floatingIP {
	if f.PortID == nil {
		return f
	}
	p, ok := c.ports.rows.Get(*f.PortID)
	if !ok {
		return f
	}
	shown := *f
	shown.PortDetails = &portDetails{p.Name, p.NetworkID, p.MACAddress, p.AdminStateUp, p.Status, p.DeviceID, p.DeviceOwner}
	return &shown
}

// createFloatingIP completes a new floating IP (neutron 21.0.0: db/l3_db.py,
// _create_floatingip).
func createFloatingIP(c *call, f *floatingIP, in values) *fault {
	net, fault := c.networks.find(c, f.FloatingNetworkID)
	if fault != nil {
		return fault
	}
	if !net.External {
		return badFloatingIP("Network %s is not a valid external network", net.ID)
	}
	if !slices.ContainsFunc(c.subnetsOf(net.ID), func(s *subnet) bool { return s.IPVersion == 4 }) {
		return badFloatingIP("Network %s does not contain any IPv4 subnet", net.ID)
	}
	var wanted []wish
	if in.has("subnet_id") || in.has("floating_ip_address") {
		wanted = []wish{{in.text("subnet_id"), in.text("floating_ip_address")}}
	}
	p, fault := c.newPort(portSpec{NetworkID: net.ID, DeviceID: f.ID, DeviceOwner: ownerFloating, Status: statusNone, Addresses: wanted})
	if fault != nil {
		return fault
	}
	i := slices.IndexFunc(p.FixedIPs, func(ip fixedIP) bool { return !six(ip) })
	if i < 0 {
		return refuse(400, "ExternalIpAddressExhausted", "Unable to find any IP address on external network %s.", net.ID)
	}
	f.own, f.FloatingNetworkID, f.FloatingIPAddress = p.ID, net.ID, p.FixedIPs[i].IPAddress
	f.Status, f.PortForwardings, f.QoSPolicyID = statusDown, []any{}, nil
	return c.associate(f, &floatingIP{}, in)
}

// updateFloatingIP associates a floating IP with a port, or with none (neutron 21.0.0:
// db/l3_db.py, _update_floatingip).
func updateFloatingIP(c *call, f, old *floatingIP, in values) *fault {
	if !in.given("port_id") && old.PortID != nil && in.given("fixed_ip_address") {
		in["port_id"] = *old.PortID
		f.PortID = old.PortID
	}
	if !in.given("port_id") && !in.given("fixed_ip_address") {
		return nil
	}
	return c.associate(f, old, in)
}

// associate associates a floating IP with the port that the request names.
func (c *call) associate(f, old *floatingIP, in values) *fault {
	if !in.has("port_id") {
		if in.has("fixed_ip_address") {
			return badFloatingIP("fixed_ip_address cannot be specified without a port_id")
		}
		f.PortID, f.FixedIPAddress, f.RouterID = nil, nil, nil
		c.floatingStatus(f, old)
		return nil
	}
	p, fault := c.ports.find(c, in.text("port_id"))
	if fault != nil {
		return fault
	}
	if p.TenantID != f.TenantID && !c.admin() {
		return badFloatingIP("Cannot process floating IP association with Port %s, since that port is owned by a different tenant", p.ID)
	}
	ip, fault := inner(p, in.text("fixed_ip_address"))
	if fault != nil {
		return fault
	}
	id, fault := c.routerFor(p, ip.SubnetID, f.FloatingNetworkID)
	if fault != nil {
		return fault
	}
	if old.PortID == nil || *old.PortID != p.ID {
		if fault := c.leadsAlready(f, p, ip.IPAddress); fault != nil {
			return fault
		}
	}
	f.PortID, f.FixedIPAddress, f.RouterID = &p.ID, &ip.IPAddress, &id
	c.floatingStatus(f, old)
	return nil
}

// leadsAlready refuses a second floating IP of the same external network for one address.
func (c *call) leadsAlready(f *floatingIP, p *port, address string) *fault {
	for o := range c.floatingIPs.rows.All() {
		if o.ID == f.ID || o.PortID == nil || *o.PortID != p.ID || *o.FixedIPAddress != address || o.FloatingNetworkID != f.FloatingNetworkID {
			continue
		}
		return conflict("FloatingIPPortAlreadyAssociated",
			"Cannot associate floating IP %s (%s) with port %s using fixed IP %s, as that fixed IP already has a floating IP on external network %s.",
			f.FloatingIPAddress, f.ID, p.ID, address, f.FloatingNetworkID)
	}
	return nil
}

// inner returns the address of a port that a floating IP shall be associated with.
func inner(p *port, wanted string) (fixedIP, *fault) {
	if strings.HasPrefix(p.DeviceOwner, "network:") && p.DeviceOwner != "network:" {
		// Neutron does not fill in the name either.
		return fixedIP{}, badFloatingIP("Port %%(id)s is unable to be assigned a floating IP%s", "")
	}
	if wanted != "" {
		if six(fixedIP{IPAddress: wanted}) {
			return fixedIP{}, badFloatingIP("Cannot process floating IP association with %s, since that is not an IPv4 address", wanted)
		}
		for _, ip := range p.FixedIPs {
			if ip.IPAddress == wanted {
				return ip, nil
			}
		}
		return fixedIP{}, badFloatingIP("Port %s does not have fixed ip %s", p.ID, wanted)
	}
	four := slices.DeleteFunc(slices.Clone(p.FixedIPs), six)
	switch len(four) {
	case 0:
		return fixedIP{}, badFloatingIP("Cannot add floating IP to port %s that has no fixed IPv4 addresses", p.ID)
	case 1:
		return four[0], nil
	}
	return fixedIP{}, badFloatingIP("Port %s has multiple fixed IPv4 addresses.  Must provide a specific IPv4 address when assigning a floating IP", p.ID)
}

// routerFor returns the router between a subnet and an external network. Of several, it is the
// one with the subnet's gateway address.
func (c *call) routerFor(p *port, subnetID, network string) (string, *fault) {
	s, ok := c.subnets.rows.Get(subnetID)
	if !ok {
		return "", c.subnets.notFound(subnetID)
	}
	first := ""
	for iface := range c.ports.rows.All() {
		if iface.NetworkID != p.NetworkID || iface.DeviceOwner != ownerRouter {
			continue
		}
		r, ok := c.routers.rows.Get(iface.DeviceID)
		if !ok || r.Gateway == nil || r.Gateway.NetworkID != network {
			continue
		}
		for _, ip := range iface.FixedIPs {
			if ip.SubnetID != subnetID {
				continue
			}
			if s.GatewayIP != nil && ip.IPAddress == *s.GatewayIP {
				return r.ID, nil
			}
			if first == "" {
				first = r.ID
			}
		}
	}
	if first != "" {
		return first, nil
	}
	return "", refuse(http.StatusNotFound, "ExternalGatewayForFloatingIPNotFound",
		"External network %s is not reachable from subnet %s.  Therefore, cannot associate Port %s with a Floating IP.", network, subnetID, p.ID)
}

// floatingStatus sets, after the answer, the status that OVN reports of a floating IP. That
// counts as a change (observed on Neutron 21.0.0).
func (c *call) floatingStatus(f, old *floatingIP) {
	if (f.PortID == nil) == (old.PortID == nil) {
		return
	}
	id := f.ID
	c.later(0, func(c *call) {
		f, ok := c.floatingIPs.rows.Get(id)
		if !ok {
			return
		}
		now := *f
		if now.Status = statusActive; f.PortID == nil {
			now.Status = statusDown
		}
		now.touch(c)
		c.floatingIPs.put(c, &now)
	})
}

func removeFloatingIP(c *call, f *floatingIP) *fault {
	return c.dropPort(f.own)
}

// freeFloatingIPs dissociates the floating IPs of a port that is being deleted.
func freeFloatingIPs(c *call, p *port) {
	var leading []*floatingIP
	for f := range c.floatingIPs.rows.All() {
		if f.PortID != nil && *f.PortID == p.ID {
			leading = append(leading, f)
		}
	}
	for _, f := range leading {
		free := *f
		free.PortID, free.FixedIPAddress, free.RouterID, free.Status = nil, nil, nil, statusDown
		free.touch(c)
		c.floatingIPs.put(c, &free)
	}
}
