// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/openstacksim/internal/table"
)

// updatePort checks and completes a changed port (neutron 21.0.0: plugins/ml2/plugin.py,
// update_port). The checks run in Neutron's order.
func updatePort(c *call, p, old *port, in values) *fault {
	c.defaultGroup(p.ProjectID)
	if c.Later && p.VNICType != old.VNICType && old.VIFType != vifUnbound {
		// neutron 26.0.3: plugins/ml2/plugin.py, _validate_port_update
		return portInUse(old)
	}
	if f := c.changeMAC(p, old); f != nil {
		return f
	}
	if in.given("device_owner") || p.DeviceID != old.DeviceID {
		if f := c.ownerAllowed(p, p.DeviceOwner); f != nil {
			return f
		}
	}
	if f := c.changeAddresses(p, old, in); f != nil {
		return f
	}
	if f := c.changeSecurity(p, old, in); f != nil {
		return f
	}
	p.DNSName, p.DNSDomain = "", ""
	p.ExtraDHCPOpts = options(old.ExtraDHCPOpts, in.list("extra_dhcp_opts"))
	if f := ignoredOwner(p, old); f != nil {
		return f
	}
	if f := c.routerKnown(p); f != nil {
		return f
	}
	if f := c.changeBinding(p, old, in); f != nil {
		return f
	}
	c.counted(p, old, in)
	return nil
}

// columns are the attributes that Neutron writes to the port's own database row, even if their
// values stay the same.
var columns = []string{"name", "device_id", "device_owner", "admin_state_up", "mac_address", "description"}

// counted raises the revision as Neutron's database writes do. Some writes follow the answer, and
// count only afterwards: clearing or committing a binding, a change of nothing, and the second
// table of a description (all observed on Neutron 21.0.0). Neutron 26.0.3 commits a binding before
// it answers, and counts only what changes.
func (c *call) counted(p, old *port, in values) {
	bound := p.HostID != old.HostID || p.VNICType != old.VNICType || !reflect.DeepEqual(p.Profile, old.Profile)
	attempt := p.HostID != "" && (bound || old.VIFType == vifFailed || old.VIFType == vifUnbound)
	written := func(column string) bool {
		return in.given(column) && (!c.Later || table.Value(p, column) != table.Value(old, column))
	}
	shown := bound && attempt || slices.ContainsFunc(columns, written) || p.related(old)
	p.hidden = old.hidden
	switch {
	case attempt && c.Later:
		p.RevisionNumber += commits
	case attempt:
		p.hidden++
	}
	if in.given("description") && !c.Later {
		p.hidden++
	}
	if !shown {
		if bound || !c.Later {
			p.hidden++
		}
		p.RevisionNumber-- // the generic code counts every change
	}
	p.UpdatedAt = "" // differs from the old value; touch sets the time later
}

// related reports whether attributes in other tables of Neutron have changed.
func (p *port) related(old *port) bool {
	return !slices.Equal(p.FixedIPs, old.FixedIPs) || !slices.Equal(p.SecurityGroups, old.SecurityGroups) ||
		!slices.Equal(p.AllowedAddressPairs, old.AllowedAddressPairs) || !slices.Equal(p.ExtraDHCPOpts, old.ExtraDHCPOpts) ||
		p.PortSecurityEnabled != old.PortSecurityEnabled || !reflect.DeepEqual(p.QoSPolicyID, old.QoSPolicyID)
}

// changeMAC changes the MAC address of an unbound port. null draws one.
func (c *call) changeMAC(p, old *port) *fault {
	if p.MACAddress != "" && p.MACAddress == old.MACAddress {
		return nil
	}
	if old.VIFType != vifUnbound && old.VIFType != vifFailed {
		return conflict("PortBound", "Unable to complete operation on port %s, port is already bound, port type: %s, old_mac %s, new_mac %s.",
			p.ID, old.VIFType, old.MACAddress, p.MACAddress)
	}
	if p.trusted() && !strings.EqualFold(p.MACAddress, old.MACAddress) {
		// Neutron 21 means the port's ID, but prints Python's function id.
		return conflict("UnsupportedPortDeviceOwner", "Operation mac address update is not supported for device_owner %s on port <built-in function id>.", p.DeviceOwner)
	}
	c.releaseMAC(old)
	if p.MACAddress == "" {
		c.drawMAC(p)
		return nil
	}
	return c.takeMAC(p)
}

// changeAddresses takes and releases addresses to match the request (neutron 21.0.0:
// db/ipam_backend_mixin.py, _get_changed_ips_for_port).
func (c *call) changeAddresses(p, old *port, in values) *fault {
	p.FixedIPs, p.DNSAssignment = old.FixedIPs, old.DNSAssignment
	list, given := in["fixed_ips"].([]any)
	if !given {
		return nil
	}
	add, keep, remove, f := c.changes(p, old, wishes(list))
	if f != nil {
		return f
	}
	subnets, f := c.candidates(p)
	if f != nil {
		return f
	}
	requests, f := c.requests(p, add, subnets)
	if f != nil {
		return f
	}
	c.releaseAddresses(remove)
	handled := []string{}
	for _, ip := range append(slices.Clone(keep), remove...) {
		handled = append(handled, ip.SubnetID)
	}
	added, f := c.takeAll(p, append(requests, autoRequests(p, subnets, handled)...))
	if f != nil {
		return f
	}
	p.setAddresses(append(keep, added...))
	return nil
}

// changes compares a port's addresses with the requested ones. A named address stays, then one
// address of each named subnet. The others are removed.
func (c *call) changes(p, old *port, wanted []wish) (add []wish, keep, remove []fixedIP, f *fault) {
	rest, open := slices.Clone(old.FixedIPs), []wish{}
	for _, w := range wanted {
		if w.address == "" {
			open = append(open, w)
			continue
		}
		i := slices.IndexFunc(rest, func(ip fixedIP) bool { return ip.IPAddress == w.address })
		if i < 0 {
			add = append(add, w)
			continue
		}
		keep, rest = append(keep, rest[i]), slices.Delete(rest, i, i+1)
	}
	for _, w := range open {
		if w.subnet == "" {
			return nil, nil, nil, invalid("IP allocation requires subnet_id or ip_address")
		}
		i := lastOf(rest, w.subnet)
		if i < 0 {
			add = append(add, w)
			continue
		}
		keep, rest = append(keep, rest[i]), slices.Delete(rest, i, i+1)
	}
	for _, ip := range rest {
		if n, ok := c.subnets.rows.Get(ip.SubnetID); ok && automatic(n) && !p.ofRouter() {
			keep = append(keep, ip)
		} else {
			remove = append(remove, ip)
		}
	}
	return add, keep, remove, nil
}

func lastOf(ips []fixedIP, subnet string) int {
	for i := len(ips) - 1; i >= 0; i-- {
		if ips[i].SubnetID == subnet {
			return i
		}
	}
	return -1
}

// changeSecurity changes port security, address pairs and groups.
func (c *call) changeSecurity(p, old *port, in values) *fault {
	if in.given("port_security_enabled") && !in.has("port_security_enabled") {
		p.PortSecurityEnabled = old.PortSecurityEnabled
	}
	pairs, groups := old.AllowedAddressPairs, old.SecurityGroups
	if in.given("allowed_address_pairs") {
		pairs = p.AllowedAddressPairs
	}
	if in.given("security_groups") {
		groups = texts(in.list("security_groups"))
	}
	if !p.PortSecurityEnabled {
		if f := insecure(pairs, groups, in); f != nil {
			return f
		}
	}
	if in.given("allowed_address_pairs") {
		if f := p.setPairs(pairs); f != nil {
			return f
		}
	}
	p.SecurityGroups = old.SecurityGroups
	if !in.given("security_groups") || sameGroups(groups, old.SecurityGroups) {
		return nil
	}
	if p.trusted() {
		p.SecurityGroups = []string{}
		return nil
	}
	var f *fault
	p.SecurityGroups, f = c.groupsFor(p, groups)
	return f
}

// insecure refuses what a port without port security may not have (neutron 21.0.0:
// plugins/ml2/plugin.py, _portsec_ext_port_update_processing).
func insecure(pairs []addressPair, groups []string, in values) *fault {
	switch {
	case len(pairs) > 0:
		return pairsNeedSecurity()
	case len(groups) > 0 && in.given("security_groups"):
		return refuse(400, "PortSecurityAndIPRequiredForSecurityGroups",
			"Port security must be enabled and port must have an IP address in order to use security groups.")
	case len(groups) > 0:
		return conflict("PortSecurityPortHasSecurityGroup",
			"Port has security group associated. Cannot disable port security or IP address until security group is removed.")
	}
	return nil
}

func sameGroups(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), b)
}

// ignoredOwner refuses changes of the owner of a floating IP's port, which OVN does not know
// (neutron 21.0.0: ovn/mech_driver/mech_driver.py, _validate_ignored_port).
func ignoredOwner(p, old *port) *fault {
	was, is := old.DeviceOwner == ownerFloating, p.DeviceOwner == ownerFloating
	switch {
	case is && !was:
		return refuse(400, "OVNPortUpdateError", "Bad port request: Updating device_owner to %s for port %s is not supported.", p.DeviceOwner, p.ID)
	case was && !is:
		return refuse(400, "OVNPortUpdateError", "Bad port request: Updating device_owner for port %s owned by %s is not supported.", p.ID, old.DeviceOwner)
	}
	return nil
}

// routerKnown refuses a port of a router that there is not. Neutron 26.0.3 means to read the
// router's flavor (ovn/mech_driver/mech_driver.py, _is_ovn_router_flavor_port).
func (c *call) routerKnown(p *port) *fault {
	if !c.Later || !p.ofRouter() && p.DeviceOwner != ownerGateway || c.routers.has(p.DeviceID) {
		return nil
	}
	return internalError()
}

// maxProfile is the maximum length of a binding profile as JSON (neutron 21.0.0:
// plugins/ml2/models.py, BINDING_PROFILE_LEN).
const maxProfile = 4095

// profileWrong checks a binding profile as ML2 and OVN do (neutron 21.0.0: common/ovn/utils.py,
// validate_and_get_data_from_binding_profile).
func (c *call) profileWrong(profile map[string]any) *fault {
	if text, err := json.Marshal(profile); err != nil || len(text) > maxProfile {
		return invalid("binding:profile value too large")
	}
	if v, there := profile["capabilities"]; there {
		if _, ok := v.([]any); !ok {
			return invalid("Invalid binding:profile. capabilities must be of type list.")
		}
	}
	if profile["parent_name"] == nil && profile["tag"] == nil {
		return nil
	}
	parent, isText := profile["parent_name"].(string)
	tag, isInt := profile["tag"].(int)
	switch {
	case profile["parent_name"] == nil || profile["tag"] == nil:
		return invalid("Invalid binding:profile. dict_keys(['parent_name', 'tag']) are all required.")
	case !isText:
		return invalid("Invalid binding:profile. %s %s value invalid type", "parent_name", show(profile["parent_name"]))
	case !isInt:
		return invalid("Invalid binding:profile. %s %s value invalid type", "tag", show(profile["tag"]))
	}
	if _, ok := c.ports.rows.Get(parent); !ok {
		return c.ports.notFound(parent)
	}
	if tag < 0 || tag > 4095 {
		return invalid("Invalid binding:profile. tag \"%d\" must be an integer between 0 and 4095, inclusive", tag)
	}
	return nil
}

// eui64 returns the address of a MAC address in a network of 64 bits.
func eui64(cidr, mac string) netip.Addr {
	prefix, err := netip.ParsePrefix(cidr)
	b := make([]byte, 0, 6)
	for part := range strings.SplitSeq(mac, ":") {
		b = append(b, hexByte(part))
	}
	if err != nil || len(b) != 6 {
		return netip.Addr{}
	}
	a := prefix.Masked().Addr().As16()
	copy(a[8:], []byte{b[0] ^ 2, b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]})
	return netip.AddrFrom16(a)
}

func hexByte(s string) (n byte) {
	for i := range len(s) {
		digit := strings.IndexByte("0123456789abcdef", s[i]|0x20)
		if s[i] >= '0' && s[i] <= '9' {
			digit = int(s[i] - '0')
		}
		n = n<<4 | byte(max(digit, 0))
	}
	return n
}
