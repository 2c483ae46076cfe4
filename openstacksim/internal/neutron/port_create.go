// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// createPort completes a new port (neutron 21.0.0: plugins/ml2/plugin.py, create_port). The
// checks run in Neutron's order.
func createPort(c *call, p *port, in values) *fault {
	c.defaultGroup(p.ProjectID)
	if f := c.ownerAllowed(p, p.DeviceOwner); f != nil {
		return f
	}
	n, f := c.networks.find(c, p.NetworkID)
	if f != nil {
		return refuse(404, "NetworkNotFound", "Network %s could not be found.", p.NetworkID)
	}
	p.NetworkID, p.RevisionNumber = n.ID, 1
	if p.Status == "" {
		p.Status = statusDown
	}
	// Neutron 21 accepts tags and drops them: it lacks the extension
	// tag-ports-during-bulk-creation (observed).
	p.Tags, p.ExtraDHCPOpts = []string{}, options(nil, in.list("extra_dhcp_opts"))
	p.DNSName, p.DNSDomain = "", ""
	if f := c.address(p, in); f != nil {
		return f
	}
	p.PortSecurityEnabled = n.PortSecurityEnabled
	if in.has("port_security_enabled") {
		p.PortSecurityEnabled = in.truth("port_security_enabled")
	}
	p.PortSecurityEnabled = p.PortSecurityEnabled && !p.trusted()
	if f := c.secure(p, in); f != nil {
		return f
	}
	if in.given("device_owner") { // not of a port that Neutron makes for a router
		if f := c.routerKnown(p); f != nil {
			return f
		}
	}
	return c.newBinding(p)
}

// address gives a new port its MAC and IP addresses.
func (c *call) address(p *port, in values) *fault {
	if c.bulk && p.MACAddress == "" && c.addressesItself(p) {
		return internalError()
	}
	if p.MACAddress == "" {
		c.drawMAC(p)
	} else if f := c.takeMAC(p); f != nil {
		return f
	}
	wanted, given := in["fixed_ips"].([]any)
	ips, f := c.allocate(p, wishes(wanted), given)
	if f != nil {
		return f
	}
	p.setAddresses(ips)
	p.IPAllocation = "immediate"
	if given && len(wanted) == 0 {
		p.IPAllocation = "none"
	}
	return nil
}

// addressesItself reports whether a port has an address that is derived from its MAC address. A
// bulk request chooses addresses before it has a MAC address (observed on neutron 21.0.0).
func (c *call) addressesItself(p *port) bool {
	return !p.ofRouter() && slices.ContainsFunc(c.subnetsOf(p.NetworkID), automatic)
}

// secure sets the address pairs and the groups of a new port.
func (c *call) secure(p *port, in values) *fault {
	pairs := in.list("allowed_address_pairs")
	if len(pairs) > 0 && !p.PortSecurityEnabled {
		return pairsNeedSecurity()
	}
	if f := p.setPairs(p.AllowedAddressPairs); f != nil {
		return f
	}
	groups, given := in["security_groups"].([]any)
	switch {
	case p.trusted():
		p.SecurityGroups = []string{}
		return nil
	case !p.PortSecurityEnabled && len(groups) > 0:
		return refuse(400, "PortSecurityAndIPRequiredForSecurityGroups",
			"Port security must be enabled and port must have an IP address in order to use security groups.")
	case p.PortSecurityEnabled && !given:
		p.SecurityGroups = c.defaultGroups(p.ProjectID)
		return nil
	}
	var f *fault
	p.SecurityGroups, f = c.groupsFor(p, texts(groups))
	return f
}

func pairsNeedSecurity() *fault {
	return conflict("AddressPairAndPortSecurityRequired", "Port Security must be enabled in order to have allowed address pairs on a port.")
}

// setPairs completes address pairs. The default MAC address is the port's own.
func (p *port) setPairs(pairs []addressPair) *fault {
	out := make([]addressPair, 0, len(pairs))
	for _, pair := range pairs {
		if pair.MACAddress == "" {
			pair.MACAddress = p.MACAddress
		}
		if slices.ContainsFunc(out, func(o addressPair) bool {
			return strings.EqualFold(o.MACAddress, pair.MACAddress) && o.IPAddress == pair.IPAddress
		}) {
			return refuse(400, "DuplicateAddressPairInRequest", "Request contains duplicate address pair: mac_address %s ip_address %s.", pair.MACAddress, pair.IPAddress)
		}
		out = append(out, pair)
	}
	slices.SortFunc(out, func(a, b addressPair) int {
		return strings.Compare(a.MACAddress+" "+a.IPAddress, b.MACAddress+" "+b.IPAddress)
	})
	p.AllowedAddressPairs = out
	return nil
}

// setAddresses stores addresses in the database's order.
func (p *port) setAddresses(ips []fixedIP) {
	slices.SortFunc(ips, func(a, b fixedIP) int { return strings.Compare(a.IPAddress, b.IPAddress) })
	p.FixedIPs, p.DNSAssignment = ips, ips
}

// options changes DHCP options as a request says. An option without a value is removed or not
// added (neutron 21.0.0: db/extradhcpopt_db.py).
func options(old []dhcpOption, wanted []any) []dhcpOption {
	out := append([]dhcpOption{}, old...)
	for _, w := range wanted {
		m, _ := w.(map[string]any)
		o := dhcpOption{Name: values(m).text("opt_name"), Value: values(m).text("opt_value"), IPVersion: 4}
		if n, ok := parseInt(m["ip_version"]); ok {
			o.IPVersion = n
		}
		blank := o.Value == "" && (m["opt_value"] == nil || o.Name != "router" && o.Name != "classless-static-route")
		i := slices.IndexFunc(out, func(e dhcpOption) bool { return e.Name == o.Name && e.IPVersion == o.IPVersion })
		switch {
		case i < 0 && !blank:
			out = append(out, o)
		case i >= 0 && m["opt_value"] == nil:
			out = slices.Delete(out, i, i+1)
		case i >= 0 && !blank:
			out[i] = o
		}
	}
	return out
}

// ownerAllowed refuses ports of other projects' routers, unless the caller is an administrator
// (neutron 21.0.0: db/db_base_plugin_v2.py, _enforce_device_owner_not_router_intf_or_device_id).
func (c *call) ownerAllowed(p *port, owner string) *fault {
	if !(&port{DeviceOwner: owner}).ofRouter() || c.admin() || p.DeviceID == "" {
		return nil
	}
	if whose := c.projectOf("router", p.DeviceID); whose != "" && whose != p.ProjectID {
		return conflict("DeviceIDNotOwnedByTenant", "The following device_id %s is not owned by your tenant or matches another tenants router.", p.DeviceID)
	}
	return nil
}

// macKey is a MAC address in use. Another network may use the same one.
type macKey struct{ network, mac string }

// takeMAC takes the port's MAC address on its network.
func (c *call) takeMAC(p *port) *fault {
	key := macKey{p.NetworkID, strings.ToLower(p.MACAddress)}
	if _, taken := c.macs[key]; taken {
		return conflict("MacAddressInUse", "Unable to complete operation for network %s. The mac address %s is in use.", p.NetworkID, p.MACAddress)
	}
	c.macs[key] = struct{}{}
	c.undo(func() { delete(c.macs, key) })
	return nil
}

func (c *call) releaseMAC(p *port) {
	key := macKey{p.NetworkID, strings.ToLower(p.MACAddress)}
	delete(c.macs, key)
	c.undo(func() { c.macs[key] = struct{}{} })
}

// drawMAC draws a MAC address as Neutron does (neutron 21.0.0: base_mac's default
// fa:16:3e:00:00:00).
func (c *call) drawMAC(p *port) {
	const hex = "0123456789abcdef"
	for i := 0; ; i++ {
		n := lot(p.ID, i)
		mac := []byte("fa:16:3e:00:00:00")
		for at := 9; at < len(mac); at += 3 {
			mac[at], mac[at+1] = hex[n&15], hex[n>>4&15]
			n >>= 8
		}
		p.MACAddress = string(mac)
		if c.takeMAC(p) == nil {
			return
		}
	}
}

// lot draws a number for a resource. It depends only on the ID and i, so that the same IDs lead
// to the same addresses.
func lot(id string, i int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	h.Write([]byte(strconv.Itoa(i)))
	n := h.Sum64()
	return n ^ n>>29 // the low bits of FNV alone repeat
}

// texts returns the strings of a list.
func texts(list []any) []string {
	out := make([]string, 0, len(list))
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
