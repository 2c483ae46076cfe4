// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
)

// decode reads a request's JSON as Neutron does. It returns an error for invalid JSON.
func decode(body []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errTrailing
	}
	return plainNumbers(out), nil
}

// plainNumbers converts whole numbers to int and other numbers to float64, as Python
// distinguishes them.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return int(n)
		}
		f, _ := v.Float64()
		return f
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int(v)
		}
	case map[string]any:
		for k, e := range v {
			v[k] = plainNumbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = plainNumbers(e)
		}
	}
	return v
}

// raw is the content of a request's body.
type raw struct {
	object map[string]any   // the body
	items  []map[string]any // the resources in the body; nil if it names none
	bulk   bool
}

// parse reads the body of a POST or PUT (neutron 21.0.0: pecan_wsgi/hooks/body_validation.py,
// api/v2/base.py prepare_request_body).
func parse(body []byte, one, many string) (raw, *fault) {
	if len(body) == 0 {
		return raw{}, nil
	}
	v, err := decode(body)
	object, ok := v.(map[string]any)
	if err != nil || !ok {
		return raw{}, badRequest("Body contains invalid data")
	}
	r := raw{object: object}
	list, bulk := object[many]
	if !bulk {
		item, ok := object[one]
		if !ok {
			return r, nil
		}
		m, f := resourceOf(item, one)
		r.items = []map[string]any{m}
		return r, f
	}
	r.bulk = true
	items, f := bulkItems(list, one)
	r.items = items
	return r, f
}

// bulkItems returns the resources of a bulk POST. It iterates over other values than lists as
// Python does: a dictionary or a string yields strings.
func bulkItems(v any, one string) ([]map[string]any, *fault) {
	if empty(v) {
		return nil, badRequest("Resources required")
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{show(v)}
		switch v.(type) {
		case int, float64, bool:
			return nil, badRequest("Body contains invalid data")
		}
	}
	var items []map[string]any
	for _, e := range list {
		item, f := bulkItem(e, one)
		if f != nil {
			return nil, f
		}
		items = append(items, item)
	}
	return items, nil
}

func bulkItem(e any, one string) (map[string]any, *fault) {
	switch e := e.(type) {
	case map[string]any:
		if inner, wrapped := e[one]; wrapped {
			return resourceOf(inner, one)
		}
		return e, nil
	case string, []any:
		return nil, badRequest("Object '%s' contains invalid data", one)
	}
	return nil, badRequest("Body contains invalid data")
}

func resourceOf(v any, one string) (map[string]any, *fault) {
	if v == nil {
		return nil, badRequest("Unable to find '%s' in request body", one)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, badRequest("Object '%s' contains invalid data", one)
	}
	return m, nil
}

// prepare converts a resource of a request to values, or returns the error that Neutron finds
// first.
func (c *call) prepare(attrs *attributeList, item map[string]any, create bool) (values, *fault) {
	in := values(item)
	named := make(map[string]bool, len(item)+1)
	if f := c.project(in, create); f != nil {
		return nil, f
	}
	if f := recognised(attrs, in); f != nil {
		return nil, f
	}
	for name := range in {
		named[name] = true
	}
	var f *fault
	if create {
		f = in.fill(attrs)
	} else {
		f = in.changeable(attrs)
	}
	if f != nil {
		return nil, f
	}
	if f := in.convert(c.api, attrs); f != nil {
		return nil, f
	}
	in[inRequest] = named
	return in, nil
}

// project sets project_id and tenant_id to the same value. The default is the caller's project
// (neutron_lib 3.1.0: api/attributes.py).
func (c *call) project(in values, create bool) *fault {
	p, hasP := in["project_id"]
	t, hasT := in["tenant_id"]
	switch {
	case hasP && !hasT:
		in["tenant_id"] = p
	case hasT && !hasP:
		in["project_id"] = t
	case hasP && hasT && !equal(p, t):
		return badRequest("'project_id' and 'tenant_id' do not match")
	}
	own, there := in["project_id"]
	if there && own != any(c.who.ProjectID) && !c.admin() && !c.who.Has("advsvc") {
		return badRequest("Specifying 'project_id' or 'tenant_id' other than the authenticated project in request requires admin or advsvc privileges")
	}
	if create && !there {
		in["project_id"], in["tenant_id"] = c.who.ProjectID, c.who.ProjectID
	}
	return nil
}

func recognised(attrs *attributeList, in values) *fault {
	var extra []string
	for name := range in {
		if attrs.byName[name] == nil {
			extra = append(extra, name)
		}
	}
	if len(extra) == 0 {
		return nil
	}
	slices.Sort(extra) // Neutron has the order of a Python set
	return badRequest("Unrecognized attribute(s) '%s'", strings.Join(extra, ", "))
}

func (v values) fill(attrs *attributeList) *fault {
	for _, a := range attrs.all {
		_, there := v[a.Name]
		if !a.AllowPost {
			if there {
				return badRequest("Attribute '%s' not allowed in POST", a.Name)
			}
			continue
		}
		if there {
			continue
		}
		value, filled, ok := a.optional()
		if !ok {
			return badRequest("Failed to parse request. Required attribute '%s' not specified", a.Name)
		}
		if filled {
			v[a.Name] = value
		}
	}
	return nil
}

func (v values) changeable(attrs *attributeList) *fault {
	for _, a := range attrs.all {
		if _, there := v[a.Name]; there && !a.AllowPut {
			return badRequest("Cannot update read-only attribute %s", a.Name)
		}
	}
	return nil
}

func (v values) convert(a *api, attrs *attributeList) *fault {
	for _, attr := range attrs.all {
		value, there := v[attr.Name]
		if !there {
			continue
		}
		if attr.ConvertTo != nil {
			converted, f := a.converters[attr.ConvertTo.Name](value)
			if f != nil {
				return f
			}
			value, v[attr.Name] = converted, converted
		}
		for _, rule := range attr.Validate {
			reason, f := a.validators[rule.Rule](value, rule.Data)
			if f != nil {
				return f
			}
			if reason != "" {
				return badRequest("Invalid input for %s. Reason: %s.", attr.Name, reason)
			}
		}
	}
	return nil
}
