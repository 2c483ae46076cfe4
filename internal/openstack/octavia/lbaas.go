// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// dialect is the difference between the services that serve load balancers. Their paths, and
// most of their fields, are the same.
type dialect struct {
	service string // for requests and messages

	versioned        bool   // it lists its API versions; else it has no feature that came with one
	whole            bool   // one POST creates a load balancer with everything below it
	flavors          bool   // it accepts flavors whatever its version
	project          string // the field of a load balancer's project
	unlimited        any    // connection_limit of a listener without a limit
	poolsOfBalancers bool   // a new pool names its load balancer as well as its listener
	single           bool   // one request changes one member
	memberSubnets    bool   // a member must name its subnet, even the VIP's
	// statesApart says that the objects below a load balancer do not show their state. The tree
	// of states does, but without the addresses of members.
	statesApart bool

	// features returns the features of a provider that has refused nothing yet.
	features func(provider string, a api) sdn.Features
	// providers lists the providers, and the default one if the service names it.
	providers func(b *Octavia, ctx context.Context) (names []string, usual string, err error)
	// remove deletes a load balancer of this cluster and everything below it.
	remove func(b *Octavia, ctx context.Context, id string) error
	// freePool deletes what keeps a pool from being deleted.
	freePool func(b *Octavia, ctx context.Context, id string) error
}

// octavia is the dialect of Octavia itself.
var octavia = dialect{
	service: session.Octavia, versioned: true, whole: true, project: "project_id", poolsOfBalancers: true,
	features: featuresOf, providers: (*Octavia).askProvidersOfOctavia, remove: (*Octavia).cascade,
	freePool: func(*Octavia, context.Context, string) error { return nil },
}

// lbaas is the dialect of Neutron's LBaaS v2. It creates load balancers without children,
// changes one member at a time, and deletes only what is not used.
var lbaas = dialect{
	service: session.LBaaS, flavors: true, project: "tenant_id", unlimited: -1, single: true, memberSubnets: true, statesApart: true,
	features: featuresOfLBaaS, providers: (*Octavia).askServiceProviders, remove: (*Octavia).emptyAndDelete, freePool: (*Octavia).deleteMonitorOf,
}

// featuresOfLBaaS returns the features that the API of LBaaS v2 has fields for.
func featuresOfLBaaS(name string, _ api) sdn.Features {
	return sdn.Features{
		Provider: name, Protocols: []string{"TCP"}, Monitors: []string{"TCP", "HTTP"}, Algorithms: algorithms(),
		Affinity: true, ConnectionLimit: true, FarMembers: true,
	}
}

func (b *Octavia) askServiceProviders(ctx context.Context) (names []string, usual string, err error) {
	var body struct {
		Providers []struct {
			Name    string
			Default bool
		} `json:"service_providers"`
	}
	err = b.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"service-providers"}, Query: url.Values{"service_type": {"LOADBALANCERV2"}}, Out: &body,
	})
	for _, p := range body.Providers {
		names = append(names, p.Name)
		if p.Default {
			usual = p.Name
		}
	}
	return names, usual, err
}

// emptyAndDelete deletes a load balancer, which has to be empty for that.
func (b *Octavia) emptyAndDelete(ctx context.Context, id string) error {
	if err := b.emptyBalancer(ctx, id); err != nil {
		return err
	}
	return b.lb(ctx, http.MethodDelete, id, nil, nil, "loadbalancers", id)
}

// emptyBalancer deletes everything below a load balancer.
func (b *Octavia) emptyBalancer(ctx context.Context, id string) error {
	w, err := b.readBalancer(ctx, id)
	if err != nil {
		return err
	}
	for _, l := range w.Listeners {
		if err := b.deleteListener(ctx, id, l.ID); err != nil && !errors.Is(err, sdn.ErrNotFound) {
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
	var body poolBody
	err := b.lb(ctx, http.MethodGet, poolID, nil, &body, "pools", poolID)
	if monitor := body.Pool.MonitorID; err == nil && monitor != "" {
		err = b.lb(ctx, http.MethodDelete, monitor, nil, nil, "healthmonitors", monitor)
	}
	return err
}

// addStates reads the states of the objects below a load balancer.
func (b *Octavia) addStates(ctx context.Context, lb *sdn.LoadBalancer) error {
	tree, err := b.readStates(ctx, lb.ID)
	if err != nil {
		return err
	}
	states := map[string]wireState{}
	tree.collect(states)
	for i := range lb.Listeners {
		l := &lb.Listeners[i]
		l.Provisioning, l.Operating = states[l.ID].pair()
		if l.Pool == nil {
			continue
		}
		l.Pool.Provisioning, l.Pool.Operating = states[l.Pool.ID].pair()
		for j := range l.Pool.Members {
			m := &l.Pool.Members[j]
			m.Provisioning, m.Operating = states[m.ID].pair()
		}
	}
	return nil
}

func (w wireState) pair() (sdn.Provisioning, string) {
	return sdn.Provisioning(w.Provisioning), w.Operating
}

func (s wireStates) collect(into map[string]wireState) {
	into[s.ID] = s.wireState
	for _, some := range [][]wireStates{s.Listeners, s.Pools, s.Members} {
		for _, one := range some {
			one.collect(into)
		}
	}
}
