// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// keysWrong returns what is wrong with a dictionary that must have these keys. If strict, it may
// have no others.
func keysWrong(want []string, v any, strict bool) string {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprintf("Invalid input. '%s' must be a dictionary with keys: %s", show(v), repr(want))
	}
	wrong := strict && len(m) != len(want)
	for _, k := range want {
		if _, there := m[k]; !there {
			wrong = true
		}
	}
	if !wrong {
		return ""
	}
	return fmt.Sprintf("Validation of dictionary's keys failed. Expected keys: %s Provided keys: %s", set(want), set(sortedKeys(m)))
}

// set formats a Python set of strings. Python itself defines no order.
func set(keys []string) string {
	if len(keys) == 0 {
		return "set()"
	}
	quoted := reprs(keys)
	slices.Sort(quoted)
	return "{" + strings.Join(quoted, ", ") + "}"
}

func checkPools(v, _ any) string {
	list, ok := v.([]any)
	if !ok {
		return fmt.Sprintf("Invalid data format for IP pool: '%s'", show(v))
	}
	keys := []string{"start", "end"}
	for _, e := range list {
		if reason := keysWrong(keys, e, true); reason != "" {
			return reason
		}
		for _, k := range keys {
			if reason := checkIP(e.(map[string]any)[k], nil); reason != "" {
				return reason
			}
		}
	}
	return ""
}

func checkFixedIPs(v, _ any) string {
	list, ok := v.([]any)
	if !ok {
		return fmt.Sprintf("Invalid data format for fixed IP: '%s'", show(v))
	}
	var seen []any
	for _, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return fmt.Sprintf("Invalid data format for fixed IP: '%s'", show(e))
		}
		if ip, given := m["ip_address"]; given {
			if slices.ContainsFunc(seen, func(o any) bool { return equal(o, ip) }) {
				return fmt.Sprintf("Duplicate IP address '%s'", show(ip))
			}
			if reason := checkIP(ip, nil); reason != "" {
				return reason
			}
			seen = append(seen, ip)
		}
		if id, given := m["subnet_id"]; given && !isUUID(id) {
			return checkUUID(id, nil)
		}
	}
	return ""
}

func checkNameservers(v, _ any) string {
	list, ok := v.([]any)
	if !ok {
		return fmt.Sprintf("Invalid data format for nameserver: '%s'", show(v))
	}
	for i, e := range list {
		if reason := checkIP(e, nil); reason != "" {
			return fmt.Sprintf("'%s' is not a valid nameserver. %s", show(e), reason)
		}
		if slices.Contains(list[:i], e) {
			return fmt.Sprintf("Duplicate nameserver '%s'", show(e))
		}
	}
	return ""
}

// checkHostRoutes checks routes. destination checks a route's network.
func checkHostRoutes(destination simple) simple {
	return func(v, _ any) string {
		list, ok := v.([]any)
		if !ok {
			return fmt.Sprintf("Invalid data format for hostroute: '%s'", show(v))
		}
		for i, e := range list {
			if reason := keysWrong([]string{"destination", "nexthop"}, e, true); reason != "" {
				return reason
			}
			m := e.(map[string]any)
			if reason := destination(m["destination"], nil); reason != "" {
				return reason
			}
			if reason := checkIP(m["nexthop"], nil); reason != "" {
				return reason
			}
			if slices.ContainsFunc(list[:i], func(o any) bool { return equal(o, e) }) {
				return fmt.Sprintf("Duplicate hostroute '%s'", show(e))
			}
		}
		return ""
	}
}

// checkSubports stops at the first subport that inherits its segmentation, like Neutron
// (neutron_lib 3.1.0: validate_subports).
func checkSubports(v, _ any) string {
	list, ok := v.([]any)
	if !ok {
		return fmt.Sprintf("Invalid data format for subports: '%s' is not a list", show(v))
	}
	ids, segments := map[any]bool{}, map[string]bool{}
	for _, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return fmt.Sprintf("Invalid data format for subport: '%s' is not a dict", show(e))
		}
		id, given := m["port_id"]
		switch {
		case !given:
			return "A valid port UUID must be specified"
		case !isUUID(id):
			return fmt.Sprintf("Invalid UUID for subport: '%s'", show(id))
		case ids[id]:
			return fmt.Sprintf("Non unique UUID for subport: '%s'", show(id))
		}
		ids[id] = true
		kind, segment := m["segmentation_type"], m["segmentation_id"]
		if kind == "inherit" {
			return ""
		}
		if (empty(kind) || segment == nil) && len(m) > 1 {
			return fmt.Sprintf("Invalid subport details '%s': missing segmentation information. Must specify both segmentation_id and segmentation_type", show(e))
		}
		key := repr(kind) + "/" + repr(segment)
		if segments[key] {
			return fmt.Sprintf("Segmentation ID '%s' for '%s' is not unique", show(segment), show(id))
		}
		segments[key] = segment != nil
	}
	return ""
}

// maxPairs is the test bed's max_allowed_address_pair; the packages' default is 10.
const maxPairs = 50

// checkPairs checks address pairs. subnet checks a pair's network.
func checkPairs(subnet simple) validator {
	return func(v, _ any) (string, *fault) {
		list, ok := v.([]any)
		if !ok {
			return "", badRequest("Allowed address pairs must be a list.")
		}
		if len(list) > maxPairs {
			return "", refuse(400, "AllowedAddressPairExhausted",
				"The number of allowed address pair exceeds the maximum %d.", maxPairs)
		}
		seen := map[string]bool{}
		for _, e := range list {
			m, ok := e.(map[string]any)
			if !ok {
				return fmt.Sprintf("'%s' is not a dictionary", show(e)), nil
			}
			if f := checkPair(m, seen, subnet); f != nil {
				return "", f
			}
		}
		return "", nil
	}
}

func checkPair(m map[string]any, seen map[string]bool, subnet simple) *fault {
	mac, given := m["mac_address"]
	if reason := checkMAC(mac, nil); given && reason != "" {
		return badRequest("%s", reason)
	}
	ip, given := m["ip_address"]
	if !given {
		return refuse(400, "AllowedAddressPairsMissingIP", "AllowedAddressPair must contain ip_address")
	}
	key := repr(mac) + repr(ip)
	if seen[key] {
		return refuse(400, "DuplicateAddressPairInRequest",
			"Request contains duplicate address pair: mac_address %s ip_address %s.", show(mac), show(ip))
	}
	seen[key] = true
	var extra []string
	for _, k := range sortedKeys(m) {
		if k != "mac_address" && k != "ip_address" {
			extra = append(extra, k)
		}
	}
	if len(extra) > 0 {
		return badRequest("Unrecognized attribute(s) '%s'", strings.Join(extra, ", "))
	}
	check := simple(checkIP)
	if strings.Contains(show(ip), "/") {
		check = subnet
	}
	if reason := check(ip, nil); reason != "" {
		return badRequest("%s", reason)
	}
	return nil
}

func checkSegments(v, _ any) (string, *fault) {
	list, ok := v.([]any)
	if !ok {
		return fmt.Sprintf("'%s' is not a list", show(v)), nil
	}
	for _, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return fmt.Sprintf("'%s' is not a dictionary", show(e)), nil
		}
		var extra []string
		for _, k := range sortedKeys(m) {
			if !strings.HasPrefix(k, "provider:") {
				extra = append(extra, k)
			}
		}
		if len(extra) > 0 {
			return "", badRequest("Unrecognized attribute(s) '%s'", strings.Join(extra, ", "))
		}
		if id := m["provider:segmentation_id"]; !empty(id) {
			if _, f := toInt(id); f != nil {
				return "", f
			}
		}
	}
	return "", nil
}

// checkDict checks a dictionary by the rules of its keys. It converts the values in place, like
// Neutron.
func checkDict(v, data any) (string, *fault) {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprintf("'%s' is not a dictionary", show(v)), nil
	}
	specs, _ := data.(map[string]any)
	if len(specs) == 0 {
		return "", nil
	}
	var required, extra []string
	for _, k := range sortedKeys(specs) {
		if spec, _ := specs[k].(map[string]any); spec["required"] == true {
			required = append(required, k)
		}
	}
	if reason := keysWrong(required, m, false); reason != "" {
		return reason, nil
	}
	for _, k := range sortedKeys(m) {
		if specs[k] == nil {
			extra = append(extra, k)
		}
	}
	if len(extra) > 0 {
		return "Unexpected keys supplied: " + strings.Join(extra, ", "), nil
	}
	for _, k := range sortedKeys(m) {
		if reason, f := checkItem(m, k, specs[k].(map[string]any)); reason != "" || f != nil {
			return reason, f
		}
	}
	return "", nil
}

func checkItem(m map[string]any, key string, spec map[string]any) (string, *fault) {
	if conversion, ok := spec["convert_to"].(map[string]any); ok {
		converted, f := converters[conversion["name"].(string)](m[key])
		if f != nil {
			return "", f
		}
		m[key] = converted
	}
	for rule, data := range spec {
		if check := validators[rule]; check != nil {
			return check(m[key], data)
		}
	}
	return "", nil
}

func checkAnySpecs(v, data any) (string, *fault) {
	if v == nil {
		return "", nil
	}
	list, ok := v.([]any)
	if !ok {
		return "", invalid("'%s' is not a list", show(v))
	}
	if twice := duplicates(list); len(twice) > 0 {
		return "", invalid("Duplicate items in the list: '%s'", strings.Join(twice, ", "))
	}
	specs, _ := data.([]any)
	for _, e := range list {
		if !slices.ContainsFunc(specs, func(spec any) bool {
			reason, f := checkDict(e, spec)
			return reason == "" && f == nil
		}) {
			return "", invalid("No valid key specs matched for: %s", show(e))
		}
	}
	return "", nil
}

var label = regexp.MustCompile("^[a-zA-Z0-9-]{1,63}$")
var digits = regexp.MustCompile("^[0-9]+$")

func checkDNS(v, data any) string {
	if empty(v) {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		return fmt.Sprintf("'%s' is not a valid string", show(v))
	}
	if reason := nameWrong(strings.TrimSuffix(s, "."), data); reason != "" {
		return fmt.Sprintf("'%s' not a valid PQDN or FQDN. Reason: %s", s, reason)
	}
	return ""
}

func nameWrong(name string, data any) string {
	if max, ok := data.(int); ok && len(name) > max {
		return fmt.Sprintf("'%s' exceeds the %d character FQDN limit", name, max)
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		switch {
		case l == "":
			return "Encountered an empty component"
		case strings.HasPrefix(l, "-") || strings.HasSuffix(l, "-"):
			return fmt.Sprintf("Name '%s' must not start or end with a hyphen", l)
		case !label.MatchString(l):
			return fmt.Sprintf("Name '%s' must be 1-63 characters long, each of which can only be alphanumeric or a hyphen", l)
		}
	}
	if last := labels[len(labels)-1]; len(labels) > 1 && digits.MatchString(last) {
		return fmt.Sprintf("TLD '%s' must not be all numeric", last)
	}
	return ""
}

func checkDomain(v, data any) string {
	if reason := checkString(v, nil); reason != "" || v == "" {
		return reason
	}
	if !strings.HasSuffix(v.(string), ".") {
		return fmt.Sprintf("'%s' is not a FQDN", v)
	}
	return checkDNS(v, data)
}

func checkRelativeName(v, data any) string {
	if reason := checkString(v, nil); reason != "" || v == "" {
		return reason
	}
	if strings.HasSuffix(v.(string), ".") {
		return fmt.Sprintf("'%s' is a FQDN. It should be a relative domain name", v)
	}
	return checkDNS(v, data)
}
