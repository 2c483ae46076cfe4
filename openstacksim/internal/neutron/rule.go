// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"slices"
	"strconv"
)

// rule is a security group rule. Its group shows all of its fields. A rule on its own lacks tags
// and the number of its standard attributes (observed on Neutron 21.0.0).
type rule struct {
	standard
	// The default rules of a group have null as their description. Rules made by a request never
	// do (observed on Neutron 21.0.0).
	Description    *string `json:"description"`
	GroupID        string  `json:"security_group_id"`
	Direction      string  `json:"direction"`
	EtherType      string  `json:"ethertype"`
	Protocol       *string `json:"protocol"`
	PortMin        *int    `json:"port_range_min"`
	PortMax        *int    `json:"port_range_max"`
	RemotePrefix   *string `json:"remote_ip_prefix"`
	NormalizedCIDR *string `json:"normalized_cidr"`
	RemoteGroup    *string `json:"remote_group_id"`
	RemoteAddress  *string `json:"remote_address_group_id"`
	AttributesID   int     `json:"standard_attr_id"`
	// OfDefault is true or false; its group shows null in a list. Neutron 21 does not have it.
	OfDefault json.RawMessage `json:"belongs_to_default_sg,omitempty"`
}

// markRule notes whether a rule belongs to a project's default group.
func (c *call) markRule(r *rule, ofDefault bool) {
	if c.Later {
		r.OfDefault = strconv.AppendBool(nil, ofDefault)
	}
}

// protocolNumbers are the numbers of the named protocols, in decimal (neutron_lib 3.1.0:
// constants.py, IP_PROTOCOL_MAP).
var protocolNumbers = map[string]string{
	"ah": "51", "dccp": "33", "egp": "8", "esp": "50", "gre": "47", "hopopt": "0", "icmp": "1", "igmp": "2", "ip": "0",
	"ipip": "4", "ipv6-encap": "41", "ipv6-frag": "44", "ipv6-icmp": "58", "icmpv6": "58", "ipv6-nonxt": "59",
	"ipv6-opts": "60", "ipv6-route": "43", "ospf": "89", "pgm": "113", "rsvp": "46", "sctp": "132", "tcp": "6",
	"udp": "17", "udplite": "136", "vrrp": "112",
}

// protocolNames maps numbers to names. Two numbers have more than one name; Neutron's map keeps
// these.
var protocolNames = func() map[string]string {
	names := map[string]string{}
	for name, number := range protocolNumbers {
		if name != "icmpv6" && name != "hopopt" {
			names[number] = name
		}
	}
	return names
}()

var (
	portProtocols = []string{"33", "132", "6", "17", "136"}
	icmpProtocols = []string{"1", "58"}
	onlyIPv6      = []string{"41", "44", "58", "59", "60", "43"}
)

// protocolNumber returns the protocol's number, "" for any protocol.
func (r *rule) protocolNumber() string {
	if r.Protocol == nil {
		return ""
	}
	if number, ok := protocolNumbers[*r.Protocol]; ok {
		return number
	}
	return *r.Protocol
}

// canonical converts the rule to the form that Neutron stores (neutron 21.0.0:
// db/securitygroups_db.py, _make_canonical_*).
func (r *rule) canonical() {
	if r.EtherType == "IPv6" && r.Protocol != nil {
		switch *r.Protocol {
		case "icmp", "icmpv6":
			r.Protocol = pointer("ipv6-icmp")
		case "1":
			r.Protocol = pointer("58")
		}
	}
	if is(r.PortMin, 1) && is(r.PortMax, 65535) {
		r.PortMin, r.PortMax = nil, nil
	}
	if r.RemotePrefix != nil {
		address, bits, _ := parseNetwork(*r.RemotePrefix)
		r.NormalizedCIDR = pointer(masked(address, bits).String())
	}
}

// wrong returns Neutron's objection to the rule itself (neutron 21.0.0: db/securitygroups_db.py,
// _validate_security_group_rule).
func (r *rule) wrong() *fault {
	if f := r.portsWrong(); f != nil {
		return f
	}
	if r.RemotePrefix != nil {
		address, _, _ := parseNetwork(*r.RemotePrefix)
		if address.Is4() != (r.EtherType == "IPv4") {
			return refuse(400, "SecurityGroupRuleParameterConflict",
				"Conflicting value ethertype %s for CIDR %s", r.EtherType, *r.RemotePrefix)
		}
	}
	if r.EtherType == "IPv4" && r.Protocol != nil && slices.Contains(onlyIPv6, r.protocolNumber()) {
		return refuse(400, "SecurityGroupEthertypeConflictWithProtocol",
			"Invalid ethertype %s for protocol %s.", r.EtherType, *r.Protocol)
	}
	remotes := 0
	for _, remote := range []*string{r.RemotePrefix, r.RemoteGroup, r.RemoteAddress} {
		if remote != nil && *remote != "" {
			remotes++
		}
	}
	if remotes > 1 {
		return refuse(400, "SecurityGroupMultipleRemoteEntites",
			"Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided.")
	}
	return nil
}

func (r *rule) portsWrong() *fault {
	if r.PortMin == nil && r.PortMax == nil {
		return nil
	}
	if r.Protocol == nil {
		return refuse(400, "SecurityGroupProtocolRequiredWithPorts", "Must also specify protocol if port range is given.")
	}
	switch number := r.protocolNumber(); {
	case slices.Contains(portProtocols, number):
		if is(r.PortMin, 0) || is(r.PortMax, 0) {
			return refuse(400, "SecurityGroupInvalidPortValue", "Invalid value for port 0")
		}
		if r.PortMin == nil || r.PortMax == nil || *r.PortMin > *r.PortMax {
			return refuse(400, "SecurityGroupInvalidPortRange", "For TCP/UDP protocols, port_range_min must be <= port_range_max")
		}
	case slices.Contains(icmpProtocols, number):
		return r.icmpWrong()
	default:
		return refuse(400, "SecurityGroupInvalidProtocolForPort",
			"Ports cannot be specified for protocol %s. Ports are only supported for DCCP, SCTP, TCP, UDP, UDPLITE.", number)
	}
	return nil
}

// icmpWrong checks type and code, which take the place of ports in ICMP rules.
func (r *rule) icmpWrong() *fault {
	for _, v := range []struct {
		field, attribute string
		value            *int
	}{{"type", "port_range_min", r.PortMin}, {"code", "port_range_max", r.PortMax}} {
		if v.value != nil && (*v.value < 0 || *v.value > 255) {
			return refuse(400, "SecurityGroupInvalidIcmpValue",
				"Invalid value for ICMP %s (%s) %d. It must be 0 to 255.", v.field, v.attribute, *v.value)
		}
	}
	if r.PortMin == nil {
		return refuse(400, "SecurityGroupMissingIcmpType",
			"ICMP code (port-range-max) %d is provided but ICMP type (port-range-min) is missing.", *r.PortMax)
	}
	return nil
}

// key must differ between any two rules of a group (neutron 21.0.0: db/securitygroups_db.py,
// _rule_to_key). The description is ignored, and a prefix of everything equals no prefix.
func (r *rule) key() string {
	protocol := "+"
	if r.Protocol != nil {
		name, number := *r.Protocol, r.protocolNumber()
		if known, ok := protocolNames[name]; ok {
			name = known
		}
		protocol = name + "," + number
	}
	prefix := r.RemotePrefix
	if prefix != nil && (*prefix == "0.0.0.0/0" || *prefix == "::/0") {
		prefix = nil
	}
	key := r.Direction + "_" + r.EtherType + "_" + protocol
	for _, n := range []*int{r.PortMax, r.PortMin} {
		if n == nil {
			key += "_+"
		} else {
			key += "_" + strconv.Itoa(*n)
		}
	}
	for _, s := range []*string{r.RemoteGroup, r.RemoteAddress, prefix} {
		if s == nil {
			key += "_+"
		} else {
			key += "_" + *s
		}
	}
	return key
}

func is(n *int, value int) bool { return n != nil && *n == value }

func pointer[T any](v T) *T { return &v }
