// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// named are the faults that have a name.
var named = map[string]Fault{
	"reset":         {Cut: true},
	"lost":          {Cut: true, Effect: true},
	"hang":          {Hang: true},
	"killed":        {Cut: true, Effect: true, Death: "killed"},
	"rolled-back":   {Cut: true, Effect: true, Death: "rolled-back"},
	"expired-token": {Status: http.StatusUnauthorized, Expire: true},
	// neutron 21.0.0: quota exceeded is a Conflict; octavia 11.0.0 has 403 for it.
	"over-quota": {Status: http.StatusConflict, Type: "OverQuota", Message: "Quota exceeded for resources: ['{kind}']."},
	// neutron 21.0.0: ipam/exceptions.py; two requests took the same address.
	"ip-conflict": {Status: http.StatusConflict, Type: "IpAddressAlreadyAllocated", Message: "IP address {address} already allocated in subnet {subnet}"},
	// neutron_lib 3.1.0: exceptions; the answer after retries did not help.
	"no-addresses": {Status: http.StatusConflict, Type: "IpAddressGenerationFailure", Message: "No more IP addresses available on network {network}."},
	// octavia 11.0.0: common/exceptions.py
	"immutable": {Status: http.StatusConflict, Message: "{title} {id} is immutable and cannot be updated."},
}

// Answer is the service's answer because of a fault.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Facts are the values that a fault's message may contain.
type Facts struct {
	Network, Subnet, Address string // of a port that was to be made
	AuthURL                  string // where to authenticate, for 401
}

// Answer writes the fault as the service of the call does, or as a proxy in front
// of it: OpenStack's services themselves answer neither 413, 429, 502, 503 nor 504
// to a well-formed request, HAProxy does. A service that was added is taken to answer
// errors in Keystone's form: {"error": {"code": …, "title": …, "message": …}}.
func (f Fault) Answer(c Call, facts Facts) Answer {
	status := f.Status
	if f.Name == "over-quota" && c.Service == LoadBalancer {
		status = http.StatusForbidden
	}
	a := Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}}
	if f.RetryAfter > 0 {
		a.Header.Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
	}
	if page, has := proxy[status]; has && f.Message == "" && f.Type == "" {
		a.Header.Set("Content-Type", "text/html")
		a.Header.Set("Cache-Control", "no-cache")
		a.Body = []byte("<html><body><h1>" + page[0] + "</h1>\n" + page[1] + "\n</body></html>\n")
		return a
	}
	if status == http.StatusUnauthorized {
		a.Header.Set("WWW-Authenticate", fmt.Sprintf("Keystone uri=%q", facts.AuthURL))
		a.Body = keystone(status, f.say(c, facts, "The request you have made requires authentication."))
		return a
	}
	switch c.Service {
	case Network:
		a.Body = f.neutron(c, facts)
	case LoadBalancer:
		a.Body = f.octavia(c, facts, status)
	default:
		a.Body = keystone(status, f.say(c, facts, keystoneWords[status]))
	}
	return a
}

// proxy has HAProxy's pages: src/http.c, http_err_msgs.
var proxy = map[int][2]string{
	http.StatusRequestEntityTooLarge: {"413 Payload Too Large", "The request entity exceeds the maximum allowed."},
	http.StatusTooManyRequests:       {"429 Too Many Requests", "You have sent too many requests in a given amount of time."},
	http.StatusBadGateway:            {"502 Bad Gateway", "The server returned an invalid or incomplete response."},
	http.StatusServiceUnavailable:    {"503 Service Unavailable", "No server is available to handle this request."},
	http.StatusGatewayTimeout:        {"504 Gateway Time-out", "The server didn't respond in time."},
}

// keystoneWords are the messages of keystone 22.0.2: exception.py
var keystoneWords = map[int]string{
	http.StatusForbidden:           "You are not authorized to perform the requested action.",
	http.StatusNotFound:            "The resource could not be found.",
	http.StatusInternalServerError: "An unexpected error prevented the server from fulfilling your request.",
}

func keystone(status int, message string) []byte {
	return encode(map[string]any{"error": map[string]any{"code": status, "message": message, "title": http.StatusText(status)}})
}

// neutron 21.0.0: api/api_common.py, and neutron_lib 3.1.0: exceptions
func (f Fault) neutron(c Call, facts Facts) []byte {
	kind, words := "HTTP"+strings.ReplaceAll(http.StatusText(f.Status), " ", ""), ""
	one := c.kind()
	switch f.Status {
	case http.StatusBadRequest:
		kind, words = "HTTPBadRequest", "The server could not comply with the request since it is either malformed or otherwise incorrect."
	case http.StatusForbidden:
		kind, words = "PolicyNotAuthorized", "rule:"+verbs[c.Method]+"_"+one+" is disallowed by policy"
	case http.StatusNotFound:
		kind, words = "HTTPNotFound", "The resource could not be found."
		if id := c.id(); id != "" {
			kind = strings.ReplaceAll(c.title(), " ", "") + "NotFound"
			words = c.title() + " " + id + " could not be found."
		}
	case http.StatusConflict:
		kind, words = "Conflict", "A conflict occurred while processing the request."
	case http.StatusInternalServerError:
		kind, words = "HTTPInternalServerError", "Request Failed: internal server error while processing your request."
	}
	if f.Type != "" {
		kind = f.Type
	}
	return encode(map[string]any{"NeutronError": map[string]string{"type": kind, "message": f.say(c, facts, words), "detail": ""}})
}

// octavia 11.0.0: common/exceptions.py, in the form of WSME
func (f Fault) octavia(c Call, facts Facts, status int) []byte {
	words := map[int]string{
		http.StatusForbidden:           "Policy does not allow this request to be performed.",
		http.StatusNotFound:            "{title} {id} not found.",
		http.StatusConflict:            "{title} {id} is immutable and cannot be updated.",
		http.StatusInternalServerError: "An unknown exception occurred.",
	}[status]
	if f.Name == "over-quota" {
		words, f.Message = "Quota has been met for resources: {title}", ""
	}
	side := "Client"
	if status >= http.StatusInternalServerError {
		side = "Server"
	}
	return encode(map[string]any{"faultcode": side, "faultstring": f.say(c, facts, words), "debuginfo": nil})
}

// say fills the placeholders of the message.
func (f Fault) say(c Call, facts Facts, words string) string {
	if f.Message != "" {
		words = f.Message
	}
	if words == "" {
		words = http.StatusText(f.Status)
	}
	return strings.NewReplacer("{network}", facts.Network, "{subnet}", facts.Subnet, "{address}", facts.Address,
		"{kind}", c.kind(), "{title}", c.title(), "{id}", c.id()).Replace(words)
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // strings and numbers only
		return []byte("{}")
	}
	return b
}

var verbs = map[string]string{"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}

// parts are the path's segments after the version and the grouping of collections.
func (c Call) parts() []string {
	parts := strings.Split(strings.Trim(c.Path, "/"), "/")
	if len(parts) > 0 {
		parts = parts[1:]
	}
	if len(parts) > 1 && (parts[0] == "lbaas" || parts[0] == "octavia" || parts[0] == "qos" || parts[0] == "auth") {
		parts = parts[1:]
	}
	return parts
}

// kind is the singular of the collection: port, security_group.
func (c Call) kind() string {
	parts := c.parts()
	if len(parts) == 0 {
		return "resource"
	}
	many := strings.ReplaceAll(parts[0], "-", "_")
	for _, plural := range []struct{ end, with string }{{"ies", "y"}, {"sses", "ss"}, {"s", ""}} {
		if stem, cut := strings.CutSuffix(many, plural.end); cut {
			return stem + plural.with
		}
	}
	return many
}

// title is the kind for a person: Port, Security Group, Load Balancer.
func (c Call) title() string {
	kind := c.kind()
	if kind == "loadbalancer" {
		kind = "load balancer"
	}
	words := strings.Fields(strings.ReplaceAll(kind, "_", " "))
	for i, w := range words {
		words[i] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, " ")
}

func (c Call) id() string {
	if parts := c.parts(); len(parts) > 1 {
		return parts[1]
	}
	return ""
}
