// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"
	"strconv"
	"strings"
)

// handle answers a request for a kind. rest is an ID, or empty.
func (k *kind[T]) handle(c *call, rest []string, body []byte) (int, any, *fault) {
	rest = k.routed(c.request.Method, rest)
	switch {
	case len(rest) == 0 && c.request.Method == http.MethodGet:
		answer, f := k.list(c)
		return http.StatusOK, answer, f
	case len(rest) == 0 && c.request.Method == http.MethodPost && k.create != nil:
		answer, f := k.post(c, body)
		return http.StatusCreated, answer, f
	case len(rest) == 1 && c.request.Method == http.MethodGet:
		row, f := k.find(c, rest[0])
		if f != nil {
			return 0, nil, f
		}
		return http.StatusOK, map[string]any{k.one: k.answer(c, row, c.fields())}, nil
	case len(rest) == 1 && c.request.Method == http.MethodPut && k.update != nil:
		answer, f := k.change(c, rest[0], body)
		return http.StatusOK, answer, f
	case len(rest) == 1 && c.request.Method == http.MethodDelete && k.remove != nil:
		return http.StatusNoContent, nil, k.discard(c, rest[0], body)
	case len(rest) > 1:
		return 0, nil, noSuchPath()
	}
	return 0, nil, notAllowed()
}

// routed returns the path that Neutron uses for a method that the given path does not support. A
// POST to a resource becomes one to its collection. A PUT or DELETE of a collection becomes one
// of a resource named None (observed on Neutron 21.0.0).
func (k *kind[T]) routed(method string, rest []string) []string {
	switch {
	case len(rest) == 1 && method == http.MethodPost:
		return nil
	case len(rest) == 0 && (method == http.MethodPut || method == http.MethodDelete):
		return []string{"None"}
	}
	return rest
}

// post makes one or several resources. The checks run in the order of Neutron's hooks: body,
// owner of the network, quota, access rules.
func (k *kind[T]) post(c *call, body []byte) (any, *fault) {
	r, f := parse(body, k.one, k.many)
	if f != nil {
		return nil, f
	}
	if r.items == nil {
		return nil, badRequest("Unable to find '%s' in request body", k.one)
	}
	items := make([]values, len(r.items))
	for i, item := range r.items {
		if items[i], f = c.prepare(k.attrs, item, true); f != nil {
			return nil, f
		}
	}
	if f := k.admit(c, items); f != nil {
		return nil, f
	}
	if r.bulk && k.batch != nil {
		if f := k.batch(c, items); f != nil {
			return nil, f
		}
	}
	c.bulk = r.bulk
	rows := make([]*T, len(items))
	for i, in := range items {
		if rows[i], f = k.make(c, in); f != nil {
			if c.bulk && f.kind == noAddress {
				c.kept = append(c.kept, c.taken...)
			}
			return nil, f
		}
	}
	if r.bulk {
		return &page[T]{k, c, k.views(c, rows), nil}, nil
	}
	return map[string]any{k.one: k.answer(c, rows[0], c.fields())}, nil
}

// admit runs the checks of the hooks that follow the body's.
func (k *kind[T]) admit(c *call, items []values) *fault {
	if k.many == "ports" || k.many == "subnets" {
		for _, in := range items {
			if f := c.ownsNetwork(k.one, in); f != nil {
				return f
			}
		}
	}
	wanted := map[string]int{}
	for _, in := range items {
		wanted[in.text("project_id")]++
	}
	for _, project := range sortedKeys(wanted) {
		if f := c.reserve(k.one, project, k.count(project), wanted[project]); f != nil {
			return f
		}
	}
	for _, in := range items {
		if f := c.enforce("create_"+k.one, k.attrs, in, false, k.target(nil, in)); f != nil {
			return f
		}
	}
	return nil
}

// make makes one row from the values of a request.
func (k *kind[T]) make(c *call, in values) (*T, *fault) {
	row := new(T)
	*commonOf(row) = c.newStandard(in.text("project_id"))
	k.set(row, in)
	if f := k.create(c, row, in); f != nil {
		return nil, f
	}
	if f := noPolicy(in); f != nil {
		return nil, f
	}
	k.put(c, row)
	return k.settle(c, row, k.created)
}

// settle runs then after a row was stored, and returns the row afterwards.
func (k *kind[T]) settle(c *call, row *T, then func(*call, *T) *fault) (*T, *fault) {
	if then != nil {
		if f := then(c, row); f != nil {
			return nil, f
		}
	}
	if now, ok := k.rows.Get(commonOf(row).ID); ok {
		return now, nil
	}
	return row, nil
}

// change handles a PUT.
func (k *kind[T]) change(c *call, id string, body []byte) (any, *fault) {
	in, f := k.changes(c, body)
	if f != nil {
		return nil, f
	}
	old, f := k.permitted(c, "update_", id, in)
	if f != nil {
		return nil, f
	}
	if in == nil {
		return nil, badRequest("Unable to find '%s' in request body", k.one)
	}
	if f := c.matches(commonOf(old)); f != nil {
		return nil, f
	}
	row, f := k.apply(c, old, in)
	if f != nil {
		return nil, f
	}
	if k.changed != nil {
		return map[string]any{k.one: k.changed(row)}, nil
	}
	return map[string]any{k.one: k.answer(c, row, c.fields())}, nil
}

// changes returns the values of a PUT's body, nil if it names no resource.
func (k *kind[T]) changes(c *call, body []byte) (values, *fault) {
	r, f := parse(body, k.one, k.many)
	switch {
	case f != nil:
		return nil, f
	case r.bulk:
		return nil, badRequest("Bulk operation not supported")
	case r.items == nil:
		return nil, nil
	}
	return c.prepare(k.attrs, r.items[0], false)
}

// apply stores a changed copy of a row, and returns the row afterwards.
func (k *kind[T]) apply(c *call, old *T, in values) (*T, *fault) {
	row := new(T)
	*row = *old
	k.set(row, in)
	if f := k.update(c, row, old, in); f != nil {
		return nil, f
	}
	if f := noPolicy(in); f != nil {
		return nil, f
	}
	r := commonOf(row)
	// update has stored a row of its own.
	if now, ok := k.rows.Get(r.ID); ok && now != old {
		r.RevisionNumber = max(r.RevisionNumber, commonOf(now).RevisionNumber)
	}
	// Naming an attribute counts as a change, even if its value stays the same (observed on
	// Neutron 21.0.0; SQLAlchemy's session.dirty is that coarse). Neutron 26.0.3 asks SQLAlchemy
	// whether a value is another (services/revisions/revision_plugin.py).
	if len(in) > 1 && !c.Later || !equal(row, old) {
		r.touch(c)
		k.put(c, row)
	}
	return k.settle(c, row, k.updated)
}

// aside takes back that apply counts a change if all of it is in tables whose changes do not count
// for the row. In Neutron 21 naming the attribute counts.
func (c *call) aside(row, old resource, all bool) {
	if c.Later && all && !equal(row, old) {
		row.common().RevisionNumber--
	}
}

// permitted returns the row if the caller may change it. A caller that may not see the row gets
// "not found".
func (k *kind[T]) permitted(c *call, verb, id string, in values) (*T, *fault) {
	row, f := k.find(c, id)
	if f != nil {
		return nil, f
	}
	t := k.target(row, in)
	f = c.enforce(verb+k.one, k.attrs, in, true, t)
	if f != nil && !ruleRef("get_"+k.one).allows(c, t) {
		return nil, noSuchPath()
	}
	return row, f
}

// discard handles a DELETE.
func (k *kind[T]) discard(c *call, id string, body []byte) *fault {
	row, f := k.permitted(c, "delete_", id, nil)
	if f != nil {
		return f
	}
	if len(body) > 0 {
		return badRequest("Request body is not supported in DELETE.")
	}
	if f := c.matches(commonOf(row)); f != nil {
		return f
	}
	if f := k.remove(c, row); f != nil {
		return f
	}
	k.drop(c, id)
	return nil
}

// matches enforces If-Match: revision_number=N (neutron 21.0.0:
// services/revisions/revision_plugin.py, api/api_common.py).
func (c *call) matches(row *standard) *fault {
	want, f := c.constraint()
	if f != nil || want < 0 || want == row.RevisionNumber {
		return f
	}
	return refuse(http.StatusPreconditionFailed, "RevisionNumberConstraintFailed",
		"Constrained to %d, but current revision is %d", want, row.RevisionNumber)
}

// constraint returns the revision that the request requires, -1 if none.
func (c *call) constraint() (int, *fault) {
	want, found := -1, false
	if c.request == nil {
		return want, nil
	}
	for tag := range strings.SplitSeq(c.request.Header.Get("If-Match"), ",") {
		value, ok := strings.CutPrefix(strings.Trim(strings.TrimSpace(tag), "\""), "revision_number=")
		if !ok {
			continue
		}
		if found {
			return 0, refuse(400, "BadRequest", "Bad if-match request: Multiple revision_number etags are not supported..")
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return 0, refuse(400, "BadRequest", "Bad if-match request: Revision number etag must be in the format of revision_number=<int>.")
		}
		want, found = n, true
	}
	return want, nil
}

// ownsNetwork checks the network of a new port or subnet. Without administrator rights it must be
// the caller's own or shared (neutron 21.0.0: pecan_wsgi/hooks/ownership_validation.py).
func (c *call) ownsNetwork(one string, in values) *fault {
	if c.admin() || c.who.Has("advsvc") {
		return nil
	}
	n, f := c.networks.find(c, in.text("network_id"))
	if f != nil {
		return f
	}
	if n.Shared || n.TenantID == in.text("tenant_id") {
		return nil
	}
	return refuse(http.StatusForbidden, "HTTPForbidden", "Tenant %s not allowed to create %s on this network", in.text("tenant_id"), one)
}
