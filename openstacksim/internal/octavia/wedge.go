// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// This file simulates differences between Octavia's database and its provider. All of it was
// observed on octavia 11.0.0 with ovn-octavia-provider 3.0.0. There a thread of the API's process
// makes the provider's part of a change of members, before the new status is written.

// Death is how the API's process is killed during a change.
type Death string

// The deaths. After both, nothing ends a PENDING status, not even a restart.
const (
	// Killed: the database has the change, but the provider has not received it. All objects that
	// the change holds stay PENDING forever.
	Killed Death = "killed"
	// RolledBack: the provider has made the change, but the database has lost it. Members that
	// the change deletes still exist and are ACTIVE, but the provider no longer knows them. A new
	// load balancer leaves the port of its VIP. Other changes leave no trace.
	RolledBack Death = "rolled-back"
)

type deathKey struct{}

// WithDeath makes a request with this context die so.
func WithDeath(ctx context.Context, d Death) context.Context {
	return context.WithValue(ctx, deathKey{}, d)
}

func deathOf(ctx context.Context) Death {
	d, _ := ctx.Value(deathKey{}).(Death)
	return d
}

// LoseMember makes the provider forget a member. It reports whether the member exists.
func (s *Service) LoseMember(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.members.Get(id)
	if ok {
		m.lost = true
	}
	return ok
}

// SetProvisioning sets the provisioning_status of one object of that collection, as an operator
// does in Octavia's database. It reports whether the object exists.
func (s *Service) SetProvisioning(collection, id, status string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b *base
	switch collection {
	case "loadbalancers":
		if r, ok := s.loadBalancers.Get(id); ok {
			b = &r.base
		}
	case "listeners":
		if r, ok := s.listeners.Get(id); ok {
			b = &r.base
		}
	case "pools":
		if r, ok := s.pools.Get(id); ok {
			b = &r.base
		}
	case "members":
		if r, ok := s.members.Get(id); ok {
			b = &r.base
		}
	}
	if b != nil {
		b.ProvisioningStatus = status
	}
	return b != nil
}

// leavesTrace reports whether the provider may keep a trace of the request after the database has
// lost it: lost members, or the port of a new load balancer's VIP.
func (c *call) leavesTrace() bool {
	parts := strings.Split(strings.Trim(c.r.URL.Path, "/"), "/") // v2/lbaas/pools/ID/members[/ID]
	switch members := slices.Index(parts, "members"); {
	case members < 0:
		return c.r.Method == http.MethodPost && parts[len(parts)-1] == "loadbalancers"
	case members == len(parts)-1:
		return c.r.Method == http.MethodPut
	}
	return c.r.Method == http.MethodDelete
}

// isLost reports whether the provider of p does not know the member. A worker of amphorae writes
// their configuration from the database at each change, so they lose no member.
func (s *Service) isLost(p *pool, m *member) bool {
	lb, ok := s.loadBalancers.Get(p.LoadBalancerID)
	return m.lost && ok && lb.Provider == ovnName
}

// rollBack applies what a batch leaves if the process died after the provider had made it.
func (s *Service) rollBack(b *batch) {
	if b.additive {
		return
	}
	for _, m := range b.gone {
		m.lost = true
	}
}

// noticed reports whether the provider finds anything to do in a batch. It checks its own members
// and those that it receives. If it finds nothing, no change ends, and all objects that the batch
// holds stay PENDING.
func (s *Service) noticed(b *batch) bool {
	if len(b.made)+len(b.changed) > 0 {
		return true
	}
	for _, m := range b.gone {
		if !s.isLost(b.pool, m) {
			return true
		}
	}
	return false
}
