// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"net/http"
	"strings"
)

// controller answers for one path. A nil function means that the method is not allowed.
type controller struct {
	get    func() (answer, *fault)
	post   *bodied
	put    *bodied
	remove func() (answer, *fault)
	// extra means that a GET takes any parameter. names are the parameters of a DELETE or PUT.
	extra bool
	names []string
}

// bodied is a handler of an object of type root, which errors call argument.
type bodied struct {
	argument, root string
	do             func(in values) (answer, *fault)
	need           string // the missing argument of the path, if any
	optional       bool   // the body may be missing
}

// serve finds the handler and calls it.
func (c *call) serve() (answer, *fault) {
	parts := strings.FieldsFunc(c.r.URL.Path, func(r rune) bool { return r == '/' })
	if len(parts) == 0 {
		return answer{200, c.versions()}, nil
	}
	if parts[0] != "v2" && parts[0] != "v2.0" {
		bad := misrouted(404, "")
		bad.rootless = true
		return answer{}, bad
	}
	parts = parts[1:]
	if len(parts) > 0 && (parts[0] == "lbaas" || parts[0] == "octavia") {
		parts = parts[1:]
	}
	if len(parts) == 0 {
		return answer{200, "v2"}, nil
	}
	found, bad := c.route(parts[0], parts[1:])
	if bad != nil {
		return answer{}, bad
	}
	if found == nil {
		return answer{}, misrouted(404, "")
	}
	return c.dispatch(found)
}

func (c *call) dispatch(to *controller) (answer, *fault) {
	switch {
	case (c.r.Method == http.MethodGet || c.r.Method == http.MethodHead) && to.get != nil:
		if bad := c.readPage(); bad != nil {
			return answer{}, bad
		}
		if bad := c.known(to); bad != nil && !to.extra {
			return answer{}, bad
		}
		return to.get()
	case c.r.Method == http.MethodPost && to.post != nil:
		return c.withBody(to, to.post)
	case c.r.Method == http.MethodPut && to.put != nil:
		return c.withBody(to, to.put)
	case c.r.Method == http.MethodDelete && to.remove != nil:
		if bad := c.known(to); bad != nil {
			return answer{}, bad
		}
		return to.remove()
	}
	return answer{}, misrouted(405, to.methods())
}

func (to *controller) methods() string {
	var out []string
	for _, m := range []struct {
		name string
		can  bool
	}{{"DELETE", to.remove != nil}, {"GET", to.get != nil}, {"POST", to.post != nil}, {"PUT", to.put != nil}} {
		if m.can {
			out = append(out, m.name)
		}
	}
	return strings.Join(out, ", ")
}

// known refuses parameters that the handler does not know: wsme 0.11, rest/args.py.
func (c *call) known(to *controller) *fault {
	var unknown []string
	for name := range c.r.URL.Query() {
		if !contains(to.names, name) {
			unknown = append(unknown, name)
		}
	}
	if unknown == nil {
		return nil
	}
	return refuse(400, "Unknown argument: \"%s\"", strings.Join(sorted(unknown), ", "))
}

func (c *call) withBody(to *controller, b *bodied) (answer, *fault) {
	if bad := c.known(to); bad != nil {
		return answer{}, bad
	}
	in, bad := c.input(b)
	if bad != nil {
		return answer{}, bad
	}
	return b.do(in)
}

func (c *call) input(b *bodied) (values, *fault) {
	if b.root == "" {
		return nil, nil
	}
	if len(c.body) > 0 {
		mime, _, _ := strings.Cut(c.r.Header.Get("Content-Type"), ";")
		switch mime = strings.TrimSpace(mime); mime {
		case "application/json", "text/javascript", "application/javascript":
		default:
			return nil, refuse(415, "Unknown mimetype: %s", mime)
		}
		in, bad := c.api.parse(c.body, b.argument, b.root)
		if bad != nil || b.need == "" {
			return in, bad
		}
	}
	switch {
	case b.need != "":
		return nil, refuse(400, "Missing argument: \"%s\"", b.need)
	case len(c.body) == 0 && b.optional:
		return nil, crash("'NoneType' object has no attribute '%s'", c.api[b.root][0].Name)
	}
	return nil, refuse(400, "Missing argument: \"%s\"", b.argument)
}

// below returns the single object of a body. If it is missing, Octavia fails at the first
// attribute that it reads.
func below(in values, name, wants string) (values, *fault) {
	if out := in.object(name); out != nil {
		return out, nil
	}
	if in.given(name) {
		return nil, crash("'NoneType' object has no attribute '%s'", wants)
	}
	return nil, crash("'UnsetType' object has no attribute '%s'", wants)
}

// misplaced handles a POST to one object: WSME takes the ID for the body.
func misplaced(argument, root, id string) *bodied {
	return &bodied{do: func(values) (answer, *fault) {
		return answer{}, refuse(400, "Invalid input for field/attribute %s. Value: '%s'. unable to convert to %s. "+
			"Error: Base.__init__() takes 1 positional argument but 2 were given", argument, id, root)
	}}
}

// lacking handles a DELETE or PUT of the whole collection.
func lacking(name string) func() (answer, *fault) {
	return func() (answer, *fault) {
		return answer{}, refuse(400, "Missing argument: \"%s\"", name)
	}
}

func (c *call) route(kind string, rest []string) (*controller, *fault) {
	if len(rest) == 0 {
		rest = nil
	}
	switch kind {
	case "loadbalancers":
		return c.routeLoadBalancers(rest), nil
	case "listeners":
		return c.routeListeners(rest), nil
	case "pools":
		return c.routePools(rest)
	case "healthmonitors":
		return c.routeMonitors(rest), nil
	case "l7policies":
		return c.routePolicies(rest)
	case "quotas":
		return c.routeQuotas(rest), nil
	case "providers":
		return c.routeProviders(rest), nil
	case "amphorae":
		return c.routeAmphorae(rest), nil
	}
	return c.routeAdmin(kind, rest), nil
}

// versions is version discovery: octavia 11.0.0 and 16.0.0, api/root_controller.py.
func (c *call) versions() record {
	out := []record{}
	times := versionTimes
	if !c.o.Later {
		times = times[:27]
	}
	for i, updated := range times {
		status := "SUPPORTED"
		if i == len(times)-1 {
			status = "CURRENT"
		}
		out = append(out, record{
			"id": "v2." + itoa(i), "status": status, "updated": updated,
			"links": []record{{"href": strings.TrimSuffix(c.o.URL, "/") + "/v2", "rel": "self"}},
		})
	}
	return record{"versions": out}
}

var versionTimes = []string{
	"2016-12-11T00:00:00Z", "2018-04-20T00:00:00Z", "2018-07-31T00:00:00Z", "2018-12-18T00:00:00Z",
	"2018-12-19T00:00:00Z", "2019-01-21T00:00:00Z", "2019-01-25T00:00:00Z", "2018-01-25T12:00:00Z",
	"2019-02-12T00:00:00Z", "2019-03-04T00:00:00Z", "2019-03-05T00:00:00Z", "2019-06-24T00:00:00Z",
	"2019-09-11T00:00:00Z", "2019-09-13T00:00:00Z", "2019-11-10T00:00:00Z", "2020-03-10T00:00:00Z",
	"2020-03-15T00:00:00Z", "2020-04-29T00:00:00Z", "2020-04-29T01:00:00Z", "2020-05-12T00:00:00Z",
	"2020-08-02T00:00:00Z", "2020-09-03T00:00:00Z", "2020-09-04T00:00:00Z", "2020-09-07T00:00:00Z",
	"2020-10-15T00:00:00Z", "2021-10-02T00:00:00Z", "2022-08-29T00:00:00Z", "2023-05-05T00:00:00Z",
	"2023-11-08T00:00:00Z", "2024-10-15T00:00:00Z", "2025-02-26T00:00:00Z",
}
