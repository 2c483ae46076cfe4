// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package lbaasv2

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// attribute is one attribute of a request.
type attribute struct {
	name     string
	put      bool // a PUT may change it
	required bool
	value    any                // default; nil: answers show null
	check    func(v any) string // returns what is wrong with the value; nil: any value is valid
}

// attributes are the attributes of neutron-lbaas 13: extensions/loadbalancerv2.py,
// sharedpools.py, hm_max_retries_down.py.
var attributes = map[string][]attribute{
	"loadbalancers": append(common(),
		attribute{name: "vip_subnet_id", required: true, check: uuid}, attribute{name: "vip_address", check: address},
		attribute{name: "provider"}, attribute{name: "flavor_id"}),
	"listeners": append(common(),
		attribute{name: "loadbalancer_id", check: uuid}, attribute{name: "default_pool_id", put: true, check: uuid},
		attribute{name: "connection_limit", put: true, value: -1.0, check: number(-1, 1<<31)},
		attribute{name: "protocol", required: true, check: one("TCP", "HTTP", "HTTPS", "TERMINATED_HTTPS")},
		attribute{name: "protocol_port", required: true, check: number(0, 65535)}),
	"pools": append(common(),
		attribute{name: "listener_id", check: uuid}, attribute{name: "loadbalancer_id", check: uuid},
		attribute{name: "protocol", required: true, check: one("TCP", "HTTP", "HTTPS")},
		attribute{name: "lb_algorithm", put: true, required: true, check: one("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP")},
		attribute{name: "session_persistence", put: true, check: persistence}),
	"members": append(common(),
		attribute{name: "address", required: true, check: address}, attribute{name: "protocol_port", required: true, check: number(0, 65535)},
		attribute{name: "subnet_id", required: true, check: uuid}, attribute{name: "weight", put: true, value: 1.0, check: number(0, 256)}),
	"healthmonitors": append(common(),
		attribute{name: "pool_id", required: true, check: uuid},
		attribute{name: "type", required: true, check: one("PING", "TCP", "HTTP", "HTTPS")},
		attribute{name: "delay", put: true, required: true, check: number(0, 1<<31)},
		attribute{name: "timeout", put: true, required: true, check: number(0, 1<<31)},
		attribute{name: "max_retries", put: true, required: true, check: number(1, 10)},
		attribute{name: "max_retries_down", put: true, value: 3.0, check: number(1, 10)}),
}

func common() []attribute {
	return []attribute{
		{name: "name", put: true, value: ""}, {name: "description", put: true, value: ""}, {name: "tenant_id"}, {name: "project_id"},
		{name: "admin_state_up", put: true, value: true},
	}
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func uuid(v any) string {
	if !uuidForm.MatchString(text(v)) {
		return fmt.Sprintf("'%v' is not a valid UUID.", v)
	}
	return ""
}

func address(v any) string {
	if _, err := netip.ParseAddr(text(v)); err != nil {
		return fmt.Sprintf("'%v' is not a valid IP address.", v)
	}
	return ""
}

func number(low, high float64) func(any) string {
	return func(v any) string {
		if n, ok := v.(float64); !ok || n < low || n > high {
			return fmt.Sprintf("'%v' is not in range %v through %v.", v, low, high)
		}
		return ""
	}
}

func one(of ...string) func(any) string {
	return func(v any) string {
		if !slices.Contains(of, text(v)) {
			return fmt.Sprintf("'%v' is not in ['%s'].", v, strings.Join(of, "', '"))
		}
		return ""
	}
}

func persistence(v any) string {
	in, _ := v.(object)
	for name := range in {
		if name != "type" && name != "cookie_name" {
			return fmt.Sprintf("Unexpected keys supplied: %s.", name)
		}
	}
	return one("SOURCE_IP", "HTTP_COOKIE", "APP_COOKIE")(in["type"])
}

func badRequest(format string, args ...any) *RefusedError {
	return refuse(http.StatusBadRequest, "HTTPBadRequest", format, args...)
}

// input reads and checks the body of a POST or a PUT, and fills in defaults.
func (c *call) input(kind string, post bool) (object, *RefusedError) {
	var body map[string]object
	if json.Unmarshal(c.body, &body) != nil || body[singular(kind)] == nil {
		return nil, badRequest("Invalid input for operation: Resource body required.")
	}
	in := body[singular(kind)]
	for name, v := range in {
		i := slices.IndexFunc(attributes[kind], func(a attribute) bool { return a.name == name })
		switch {
		case i < 0:
			return nil, badRequest("Unrecognized attribute(s) '%s'", name)
		case !post && !attributes[kind][i].put:
			return nil, badRequest("Cannot update read-only attribute %s", name)
		}
		if a := attributes[kind][i]; a.check != nil && (v != nil || a.value != nil) {
			if wrong := a.check(v); wrong != "" {
				return nil, badRequest("Invalid input for %s. Reason: %s", name, wrong)
			}
		}
	}
	if !post {
		return in, nil
	}
	for _, a := range attributes[kind] {
		_, given := in[a.name]
		switch {
		case given:
		case a.required:
			return nil, badRequest("Failed to parse request. Required attribute '%s' not specified", a.name)
		default:
			in[a.name] = a.value
		}
	}
	if in["tenant_id"] == nil {
		in["tenant_id"] = in["project_id"]
	}
	return in, nil
}
