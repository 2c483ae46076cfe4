// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// converter converts a value to the one that Neutron stores.
type converter func(any) (any, *fault)

// converters are named in api-*.json (neutron_lib 3.1.0: api/converters.py; neutron 21.0.0:
// extensions/securitygroup.py).
var converters = map[string]converter{
	"convert_to_boolean":                    toBoolean,
	"convert_to_int":                        toInt,
	"convert_none_to_empty_list":            noneToList,
	"convert_ip_to_canonical_format":        canonicalIP,
	"convert_cidr_to_canonical_format":      canonicalCIDR(parseNetwork),
	"convert_string_to_case_insensitive":    lower,
	"convert_to_mac_if_none":                func(v any) (any, *fault) { return v, nil }, // createPort draws it
	"convert_protocol":                      toProtocol(anyProtocol, "[None, %s]"),
	"convert_ethertype_to_case_insensitive": toEtherType,
	"convert_validate_port_value":           toPortNumber,
	"convert_ip_prefix_to_cidr":             prefixToCIDR(parseNetwork),
}

// laterConverters are new or differ in neutron_lib 3.18.2 and neutron 26.0.3. netaddr 1.3.0 refuses
// a shortened address.
var laterConverters = map[string]converter{
	"convert_to_boolean_if_not_none":               booleanOrNone,
	"convert_allocation_pools_to_canonical_format": canonicalPools,
	"convert_cidr_to_canonical_format":             canonicalCIDR(parseWholeNetwork),
	"convert_ip_prefix_to_cidr":                    prefixToCIDR(parseWholeNetwork),
	"convert_protocol":                             toProtocol(anyProtocolLater, "(None, 'any', %s)"),
}

// parseBoolean reads a boolean strictly (oslo.utils: bool_from_string).
func parseBoolean(v any) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(show(v))) {
	case "1", "t", "true", "on", "y", "yes":
		return true, true
	case "0", "f", "false", "off", "n", "no":
		return false, true
	}
	return false, false
}

func toBoolean(v any) (any, *fault) {
	if b, ok := v.(bool); ok {
		return b, nil
	}
	b, ok := parseBoolean(v)
	if !ok {
		return nil, invalid("'%s' cannot be converted to boolean", show(v))
	}
	return b, nil
}

// parseInt is Python's int().
func parseInt(v any) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case float64:
		return int(v), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case string:
		n, err := strconv.Atoi(strings.TrimSpace(v))
		return n, err == nil
	}
	return 0, false
}

func toInt(v any) (any, *fault) {
	n, ok := parseInt(v)
	if !ok {
		return nil, invalid("'%s' is not an integer", show(v))
	}
	return n, nil
}

func noneToList(v any) (any, *fault) {
	if v == nil {
		return []any{}, nil
	}
	return v, nil
}

func canonicalIP(v any) (any, *fault) {
	s, ok := v.(string)
	if !ok {
		return v, nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is6() && a.Zone() == "" {
		return a.String(), nil
	}
	return v, nil
}

func canonicalCIDR(parse networkParser) converter {
	return func(v any) (any, *fault) {
		s, _ := v.(string)
		address, bits, ok := parse(s)
		if !ok {
			return nil, invalid("%s is not in a CIDR format", show(v))
		}
		return address.String() + "/" + strconv.Itoa(bits), nil
	}
}

func booleanOrNone(v any) (any, *fault) {
	if v == nil {
		return nil, nil
	}
	return toBoolean(v)
}

// canonicalPools converts the ends of allocation pools, whatever their keys.
func canonicalPools(v any) (any, *fault) {
	list, ok := v.([]any)
	if !ok && v != nil {
		return nil, invalid("Invalid data format for allocation pools")
	}
	out := make([]any, len(list))
	for i, e := range list {
		pool, ok := e.(map[string]any)
		if !ok {
			return nil, invalid("Invalid data format for allocation pools")
		}
		whole := make(map[string]any, len(pool))
		for k, end := range pool {
			whole[k], _ = canonicalIP(end)
		}
		out[i] = whole
	}
	return out, nil
}

func lower(v any) (any, *fault) {
	s, ok := v.(string)
	if !ok {
		return nil, invalid("Input value %s must be string type", show(v))
	}
	return strings.ToLower(s), nil
}

// protocols are the protocol names that a rule may have, in their order (neutron_lib 3.1.0:
// constants.py, IP_PROTOCOL_MAP).
var protocols = []string{
	"ah", "dccp", "egp", "esp", "gre", "hopopt", "icmp", "igmp", "ip", "ipip", "ipv6-encap", "ipv6-frag", "ipv6-icmp", "icmpv6", "ipv6-nonxt",
	"ipv6-opts", "ipv6-route", "ospf", "pgm", "rsvp", "sctp", "tcp", "udp", "udplite", "vrrp",
}

// anyProtocol are the values for a rule of all protocols.
var (
	anyProtocol      = []any{nil}
	anyProtocolLater = []any{nil, "any"}
)

// toProtocol also converts the values of all protocols to null. The message lists all valid values.
func toProtocol(all []any, values string) converter {
	return func(v any) (any, *fault) {
		if slices.Contains(all, v) {
			return nil, nil
		}
		s := strings.ToLower(show(v))
		if n, ok := parseInt(v); ok {
			if n >= 0 && n <= 255 {
				return show(v), nil
			}
		} else if slices.Contains(protocols, s) {
			return s, nil
		}
		return nil, refuse(400, "SecurityGroupRuleInvalidProtocol",
			"Security group rule protocol %s not supported. Only protocol values %s and integer representations [0 to 255] are supported.",
			show(v), fmt.Sprintf(values, strings.Join(reprs(protocols), ", ")))
	}
}

func toEtherType(v any) (any, *fault) {
	for _, t := range []string{"IPv4", "IPv6"} {
		if s, ok := v.(string); ok && strings.EqualFold(s, t) {
			return t, nil
		}
	}
	return nil, refuse(400, "SecurityGroupRuleInvalidEtherType",
		"Security group rule for ethertype '%s' not supported. Allowed values are ['IPv4', 'IPv6'].", show(v))
}

func toPortNumber(v any) (any, *fault) {
	if v == nil {
		return nil, nil
	}
	if n, ok := parseInt(v); ok && n >= 0 && n <= 65535 {
		return n, nil
	}
	return nil, refuse(400, "SecurityGroupInvalidPortValue", "Invalid value for port %s", show(v))
}

func prefixToCIDR(parse networkParser) converter {
	return func(v any) (any, *fault) {
		switch v {
		case nil, "", false, 0:
			return nil, nil
		}
		s, _ := v.(string)
		address, bits, ok := parse(s)
		if !ok {
			return nil, refuse(400, "InvalidCIDR", "Invalid CIDR %s given as IP prefix.", show(v))
		}
		return address.String() + "/" + strconv.Itoa(bits), nil
	}
}
