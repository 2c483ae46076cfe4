// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// dialect is the difference between the services that serve load balancers. Their paths, and
// most of their fields, are the same.
type dialect struct {
	service   string          // for requests and messages
	providers session.Request // of the list of providers
	quotas    []string        // path of the quotas, which the project follows
	deletion  url.Values      // query of the deletion of a load balancer
	project   string          // the field of a load balancer's project
	unlimited any             // connection_limit of a listener without a limit

	versioned        bool // it lists its API versions; else it has no feature that came with one
	single           bool // one request creates, changes or deletes one object only
	poolsOfBalancers bool // a new pool names its load balancer as well as its listener
	memberSubnets    bool // a member must name its subnet, even the VIP's
	// statesApart says that the objects below a load balancer do not show their state. The tree
	// of states does, but without the addresses of members.
	statesApart bool
}

// octavia is the dialect of Octavia itself.
var octavia = dialect{
	service: session.Octavia, providers: session.Request{To: session.Octavia, Path: []string{"lbaas", "providers"}},
	quotas: []string{"lbaas", "quotas"}, deletion: url.Values{"cascade": {"true"}}, project: "project_id",
	versioned: true, poolsOfBalancers: true,
}

// lbaas is the dialect of Neutron's LBaaS v2.
var lbaas = dialect{
	service:   session.LBaaS,
	providers: session.Request{Path: []string{"service-providers"}, Query: url.Values{"service_type": {"LOADBALANCERV2"}}},
	quotas:    []string{"quotas"}, project: "tenant_id", unlimited: -1,
	single: true, memberSubnets: true, statesApart: true,
}

// emptyBalancer deletes everything below a load balancer.
func (b *Octavia) emptyBalancer(ctx context.Context, id string) error {
	w, err := b.readBalancer(ctx, id)
	if err != nil {
		return err
	}
	for _, l := range w.Listeners {
		if err := b.DeleteListener(ctx, id, l.ID); err != nil {
			return err
		}
	}
	w, err = b.readBalancer(ctx, id) // the remaining pools have no listener
	for _, p := range w.Pools {
		if err == nil {
			err = b.deletePool(ctx, p.ID)
		}
	}
	return err
}

// deleteMonitorOf deletes the monitor of a pool, which would keep the pool from being deleted.
func (b *Octavia) deleteMonitorOf(ctx context.Context, poolID string) error {
	w, err := ask[wirePool](ctx, b, http.MethodGet, poolID, nil, "pools", poolID)
	if err == nil && w.MonitorID != "" {
		err = b.lb(ctx, http.MethodDelete, w.MonitorID, nil, nil, "healthmonitors", w.MonitorID)
	}
	return err
}

// wireStates is a node of the tree of states. LBaaS v2 shows the states below a load balancer
// nowhere else.
type wireStates struct {
	wireState
	ID        string       `json:"id"`
	Listeners []wireStates `json:"listeners"`
	Pools     []wireStates `json:"pools"`
	Members   []wireStates `json:"members"`
}

// addStates reads the states of the objects below a load balancer.
func (b *Octavia) addStates(ctx context.Context, lb *sdn.LoadBalancer) error {
	var tree struct {
		Statuses struct {
			LoadBalancer wireStates `json:"loadbalancer"`
		}
	}
	if err := b.lb(ctx, http.MethodGet, lb.ID, nil, &tree, "loadbalancers", lb.ID, "statuses"); err != nil {
		return fmt.Errorf("cannot read its status tree: %w", err)
	}
	states := map[string]wireState{}
	tree.Statuses.LoadBalancer.collect(states)
	set := func(id string, provisioning *sdn.Provisioning, operating *string) {
		*provisioning, *operating = sdn.Provisioning(states[id].Provisioning), states[id].Operating
	}
	for i := range lb.Listeners {
		l := &lb.Listeners[i]
		set(l.ID, &l.Provisioning, &l.Operating)
		if l.Pool == nil {
			continue
		}
		set(l.Pool.ID, &l.Pool.Provisioning, &l.Pool.Operating)
		for j := range l.Pool.Members {
			m := &l.Pool.Members[j]
			set(m.ID, &m.Provisioning, &m.Operating)
		}
	}
	return nil
}

func (s wireStates) collect(into map[string]wireState) {
	into[s.ID] = s.wireState
	for _, some := range [][]wireStates{s.Listeners, s.Pools, s.Members} {
		for _, one := range some {
			one.collect(into)
		}
	}
}
