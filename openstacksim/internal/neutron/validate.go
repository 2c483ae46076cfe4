// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// validator checks a value. reason says what is wrong with it, and becomes part of Neutron's
// usual message; "" is valid. f is a complete answer of its own.
type validator func(v, data any) (reason string, f *fault)

// validators check values, by their names in api-*.json (neutron_lib 3.1.0: api/validators). init
// fills it, because the checks of a dictionary are validators themselves.
var validators map[string]validator

func init() {
	validators = map[string]validator{
		"type:string":                           reasoned(checkString),
		"type:string_or_none":                   orNone(checkString),
		"type:not_empty_string":                 reasoned(checkNotEmpty),
		"type:oneline_not_empty_string":         reasoned(checkOneLine),
		"type:oneline_not_empty_string_or_none": orNone(checkOneLine),
		"type:name_not_default":                 checkNotDefault,
		"type:list_of_unique_strings":           reasoned(listOf(checkString)),
		"type:boolean":                          reasoned(checkBoolean),
		"type:non_negative":                     reasoned(checkNonNegative),
		"type:range":                            reasoned(checkRange),
		"type:values":                           reasoned(checkValues),
		"type:uuid":                             reasoned(checkUUID),
		"type:uuid_or_none":                     orNone(checkUUID),
		"type:uuid_list":                        reasoned(listOf(checkUUID)),
		"type:subnetpool_id_or_none":            orNone(checkPoolID),
		"type:mac_address":                      reasoned(checkMAC),
		"type:ip_address":                       reasoned(checkIP),
		"type:ip_address_or_none":               orNone(checkIP),
		"type:subnet":                           reasoned(checkSubnet),
		"type:subnet_or_none":                   orNone(checkSubnet),
		"type:subnet_list":                      reasoned(listOf(checkSubnet)),
		"type:ip_pools":                         reasoned(checkPools),
		"type:fixed_ips":                        reasoned(checkFixedIPs),
		"type:nameservers":                      reasoned(checkNameservers),
		"type:hostroutes":                       reasoned(checkHostRoutes(checkRoute)),
		"type:subports":                         reasoned(checkSubports),
		"type:dict":                             checkDict,
		"type:dict_or_none":                     unless(checkDict, func(v any) bool { return v == nil }),
		"type:dict_or_nodata":                   unless(checkDict, empty),
		"type:list_of_any_key_specs_or_none":    checkAnySpecs,
		"type:allowed_address_pairs":            checkPairs(checkSubnet),
		"type:network_segments":                 checkSegments,
		"type:availability_zone_hint_list":      checkHints,
		"type:list_of_subnet_service_types":     checkServiceTypes,
		"type:dns_host_name":                    reasoned(checkDNS),
		"type:dns_domain_name":                  reasoned(checkDomain),
		"type:fip_dns_host_name":                reasoned(checkRelativeName),
	}
}

// laterValidators differ in neutron_lib 3.18.2. init fills it, too.
var laterValidators map[string]validator

func init() {
	subnet := unrecommended(checkSubnet, "IP subnet")
	laterValidators = map[string]validator{
		"type:subnet":                reasoned(subnet),
		"type:subnet_or_none":        orNone(subnet),
		"type:subnet_list":           reasoned(listOf(subnet)),
		"type:allowed_address_pairs": checkPairs(subnet),
		"type:hostroutes":            reasoned(checkHostRoutes(unrecommended(checkRoute, "CIDR"))),
	}
}

// simple is a validator that returns only a reason.
type simple func(v, data any) string

func reasoned(check simple) validator {
	return func(v, data any) (string, *fault) { return check(v, data), nil }
}

func orNone(check simple) validator {
	return unless(reasoned(check), func(v any) bool { return v == nil })
}

func unless(check validator, fine func(any) bool) validator {
	return func(v, data any) (string, *fault) {
		if fine(v) {
			return "", nil
		}
		return check(v, data)
	}
}

// empty reports whether Python treats the value as false.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case int:
		return v == 0
	case float64:
		return v == 0
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func checkString(v, data any) string {
	s, ok := v.(string)
	if !ok {
		return fmt.Sprintf("'%s' is not a valid string", show(v))
	}
	if max, ok := data.(int); ok && utf8.RuneCountInString(s) > max {
		return fmt.Sprintf("'%s' exceeds maximum length of %d", s, max)
	}
	return ""
}

func checkNotEmpty(v, data any) string {
	if reason := checkString(v, data); reason != "" {
		return reason
	}
	if strings.TrimSpace(v.(string)) == "" {
		return fmt.Sprintf("'%s' Blank strings are not permitted", v)
	}
	return ""
}

func checkOneLine(v, data any) string {
	if reason := checkNotEmpty(v, data); reason != "" {
		return reason
	}
	if strings.ContainsAny(strings.TrimSuffix(v.(string), "\n"), "\n\r\v\f") {
		return fmt.Sprintf("Multi-line string is not allowed: '%s'", v)
	}
	return ""
}

func checkNotDefault(v, data any) (string, *fault) {
	if reason := checkString(v, data); reason != "" {
		return reason, nil
	}
	if strings.EqualFold(v.(string), "default") {
		return "", conflict("SecurityGroupDefaultAlreadyExists", "Default security group already exists.")
	}
	return "", nil
}

// listOf checks each item of a list, and refuses duplicates.
func listOf(check simple) simple {
	return func(v, data any) string {
		list, ok := v.([]any)
		if !ok {
			return fmt.Sprintf("'%s' is not a list", show(v))
		}
		if twice := duplicates(list); len(twice) > 0 {
			return fmt.Sprintf("Duplicate items in the list: '%s'", strings.Join(twice, ", "))
		}
		for _, e := range list {
			if reason := check(e, data); reason != "" {
				return reason
			}
		}
		return ""
	}
}

func duplicates(list []any) []string {
	seen, out := map[string]int{}, []string{}
	for _, e := range list {
		if seen[repr(e)]++; seen[repr(e)] == 2 {
			out = append(out, show(e))
		}
	}
	return out
}

func checkBoolean(v, _ any) string {
	if _, ok := parseBoolean(v); !ok {
		return fmt.Sprintf("'%s' is not a valid boolean value", show(v))
	}
	return ""
}

func checkNonNegative(v, _ any) string {
	n, ok := parseInt(v)
	switch {
	case !ok:
		return fmt.Sprintf("'%s' is not an integer", show(v))
	case n < 0:
		return fmt.Sprintf("'%d' should be non-negative", n)
	}
	return ""
}

func checkRange(v, data any) string {
	n, ok := parseInt(v)
	if !ok {
		return fmt.Sprintf("'%s' is not an integer", show(v))
	}
	limits, _ := data.([]any)
	if low, ok := limits[0].(int); ok && n < low {
		return fmt.Sprintf("'%d' is too small - must be at least '%d'", n, low)
	}
	if high, ok := limits[1].(int); ok && n > high {
		return fmt.Sprintf("'%d' is too large - must be no larger than '%d'", n, high)
	}
	return ""
}

// checkValues names no value in its message, like Neutron (neutron_lib 3.1.0: validate_values).
func checkValues(v, data any) string {
	list, _ := data.([]any)
	for _, e := range list {
		if equal(e, v) {
			return ""
		}
	}
	return fmt.Sprintf("%s is not in valid_values", show(v))
}

func checkUUID(v, _ any) string {
	if !isUUID(v) {
		return fmt.Sprintf("'%s' is not a valid UUID", show(v))
	}
	return ""
}

func checkPoolID(v, data any) string {
	if v == "prefix_delegation" {
		return ""
	}
	return checkUUID(v, data)
}

// parseMAC parses a MAC address in any of netaddr's usual forms.
func parseMAC(v any) (mac string, ok bool) {
	s, _ := v.(string)
	digits := strings.NewReplacer(":", "", "-", "", ".", "").Replace(strings.ToLower(s))
	n, err := strconv.ParseUint(digits, 16, 64)
	if len(digits) != 12 || err != nil {
		return "", false
	}
	if n == 0 || n == 0xffffffffffff {
		return "", false
	}
	var parts []string
	for i := 0; i < 12; i += 2 {
		parts = append(parts, digits[i:i+2])
	}
	return strings.Join(parts, ":"), true
}

func checkMAC(v, _ any) string {
	if _, ok := parseMAC(v); !ok {
		return fmt.Sprintf("'%s' is not a valid MAC address", show(v))
	}
	return ""
}

func checkIP(v, _ any) string {
	s, _ := v.(string)
	a, ok := parseAddress(s)
	if !ok || strings.ContainsAny(s, " \t\r\n") {
		return fmt.Sprintf("'%s' is not a valid IP address", show(v))
	}
	if a.Is4() && a.String() != s {
		return fmt.Sprintf("'%s' is not an accepted IP address, '%s' is recommended", s, a)
	}
	return ""
}

func checkSubnet(v, _ any) string {
	s, _ := v.(string)
	a, bits, ok := parseNetwork(s)
	if !ok {
		return fmt.Sprintf("'%s' is not a valid IP subnet", show(v))
	}
	if !strings.Contains(s, "/") || a.Is4() && fmt.Sprintf("%s/%d", a, bits) != s {
		return fmt.Sprintf("'%s' isn't a recognized IP subnet cidr, '%s' is recommended", s, masked(a, bits))
	}
	return ""
}

// unrecommended is a check of a network that recommends no other form of it, and takes no shortened
// address.
func unrecommended(check simple, what string) simple {
	return func(v, data any) string {
		reason := check(v, data)
		s, _ := v.(string)
		if _, _, ok := parseWholeNetwork(s); ok && !strings.HasSuffix(reason, "is recommended") {
			return reason
		}
		return fmt.Sprintf("'%s' is not a valid %s", show(v), what)
	}
}

func checkRoute(v, _ any) string {
	s, _ := v.(string)
	a, bits, ok := parseNetwork(s)
	switch {
	case !ok:
		return fmt.Sprintf("'%s' is not a valid CIDR", show(v))
	case !strings.Contains(s, "/") || masked(a, bits).Addr() != a:
		return fmt.Sprintf("'%s' is not a recognized CIDR, '%s' is recommended", s, masked(a, bits))
	case a.IsLoopback():
		return fmt.Sprintf("'%s' is not a routable CIDR", s)
	}
	return ""
}

func checkHints(v, _ any) (string, *fault) {
	if reason := listOf(checkString)(v, nil); reason != "" {
		return reason, nil
	}
	if len(repr(v)) > 255 {
		return "", invalid("Too many availability_zone_hints specified")
	}
	return "", nil
}

// serviceTypes are the valid prefixes of a subnet's service type (neutron_lib 3.1.0:
// constants.py, DEVICE_OWNER_PREFIXES).
var serviceTypes = []string{"network:", "neutron:", "baremetal:", "trunk:", "compute:"}

func checkServiceTypes(v, _ any) (string, *fault) {
	if empty(v) {
		return "", nil
	}
	list, ok := v.([]any)
	if !ok {
		return "", badRequest("Subnet service types must be a list.")
	}
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return "", refuse(http.StatusBadRequest, "InvalidInputSubnetServiceType", "Subnet service type %s is not a string.", show(e))
		}
		if !hasPrefix(s, serviceTypes) {
			return "", refuse(http.StatusBadRequest, "InvalidSubnetServiceType", "Subnet service type %s does not correspond to a valid device owner.", s)
		}
	}
	return "", nil
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
