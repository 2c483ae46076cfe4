// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package lbaasv2

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

type object = map[string]any

// row is an object of any kind.
type row struct {
	id, kind string
	balancer string // the load balancer at the root; a load balancer's own ID
	above    string // a pool's listener, or the pool of a member or monitor
	shown    object // the requested attributes, with defaults
	// provisioning is shown only for load balancers, and in their status tree.
	provisioning, operating string
}

const (
	active        = "ACTIVE"
	pendingCreate = "PENDING_CREATE"
	pendingUpdate = "PENDING_UPDATE"
	pendingDelete = "PENDING_DELETE"
	failed        = "ERROR"
	online        = "ONLINE"
	offline       = "OFFLINE"
)

// below returns the objects of a kind directly below another one, ordered by ID.
func (s *Service) below(kind, id string) []*row {
	var out []*row
	for _, r := range s.rows {
		if r.kind == kind && (r.above == id || r.above == "" && r.balancer == id) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *row) int { return strings.Compare(a.id, b.id) })
	return out
}

// poolsOf returns all pools of a load balancer.
func (s *Service) poolsOf(balancer string) []*row {
	var out []*row
	for _, r := range s.rows {
		if r.kind == "pools" && r.balancer == balancer {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *row) int { return strings.Compare(a.id, b.id) })
	return out
}

func ids(rows []*row) []object {
	out := []object{}
	for _, r := range rows {
		out = append(out, object{"id": r.id})
	}
	return out
}

func firstID(rows []*row) any {
	if len(rows) == 0 {
		return nil
	}
	return rows[0].id
}

// view returns what a GET shows.
func (c *call) view(r *row) object {
	out := maps.Clone(r.shown)
	out["id"] = r.id
	switch r.kind {
	case "loadbalancers":
		out["provisioning_status"], out["operating_status"] = r.provisioning, r.operating
		out["listeners"], out["pools"] = ids(c.below("listeners", r.id)), ids(c.poolsOf(r.id))
	case "listeners":
		out["loadbalancers"], out["default_pool_id"] = []object{{"id": r.balancer}}, firstID(c.below("pools", r.id))
	case "pools":
		out["loadbalancers"], out["members"] = []object{{"id": r.balancer}}, ids(c.below("members", r.id))
		out["listeners"], out["healthmonitor_id"] = []object{}, firstID(c.below("healthmonitors", r.id))
		if r.above != "" {
			out["listeners"] = []object{{"id": r.above}}
		}
	case "healthmonitors":
		out["pools"] = []object{{"id": r.above}}
	}
	return out
}

// statuses returns the status tree of a load balancer.
func (c *call) statuses(id string) (int, object, *RefusedError) {
	lb, bad := c.find("loadbalancers", id)
	if bad != nil {
		return 0, nil, bad
	}
	status := func(r *row) object {
		return object{"id": r.id, "name": r.shown["name"], "provisioning_status": r.provisioning, "operating_status": r.operating}
	}
	pools := func(rows []*row) []object {
		out := []object{}
		for _, p := range rows {
			o, members := status(p), []object{}
			for _, m := range c.below("members", p.id) {
				members = append(members, status(m))
			}
			o["members"] = members
			for _, m := range c.below("healthmonitors", p.id) {
				o["healthmonitor"] = status(m)
			}
			out = append(out, o)
		}
		return out
	}
	tree, listeners := status(lb), []object{}
	for _, l := range c.below("listeners", id) {
		o := status(l)
		o["pools"] = pools(c.below("pools", l.id))
		listeners = append(listeners, o)
	}
	tree["listeners"], tree["pools"] = listeners, pools(c.poolsOf(id))
	return http.StatusOK, object{"statuses": object{"loadbalancer": tree}}, nil
}

// lock refuses a change during another one, and otherwise begins it. A load balancer in ERROR may
// be changed.
func (c *call) lock(balancer string) *RefusedError {
	lb := c.rows[balancer]
	if strings.HasPrefix(lb.provisioning, "PENDING_") {
		return refuse(http.StatusConflict, "StateInvalid", "Invalid state %s of loadbalancer resource %s", lb.provisioning, lb.id)
	}
	lb.provisioning = pendingUpdate
	return nil
}

// work starts the provider's work on a change of r. The load balancer is already locked.
func (c *call) work(r *row, action string, pending string, done func()) {
	r.provisioning = pending
	s := c.Service
	delay, outcome := s.o.Delay(singular(r.kind), r.id, action)
	if outcome == "STUCK" {
		return
	}
	c.later = append(c.later, change{delay, func() {
		lb := s.rows[r.balancer]
		lb.provisioning, lb.operating = active, online
		r.provisioning, r.operating = active, online
		if outcome == "ERROR" {
			r.provisioning, r.operating = failed, offline
			return
		}
		if done != nil {
			done()
		}
	}})
}
