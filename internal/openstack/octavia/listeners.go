// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"net/http"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// at is what a change of a load balancer needs to know about it.
type at struct {
	id       string
	subnet   string // of the VIP
	api      api
	features sdn.Features
}

// isFar reports whether a member is in a subnet other than the VIP's.
func (lb at) isFar(m sdn.Member) bool { return m.SubnetID != "" && m.SubnetID != lb.subnet }

// at looks up the features of a load balancer's provider.
func (b *Octavia) at(ctx context.Context, loadBalancerID string) (at, error) {
	out := at{id: loadBalancerID}
	var err error
	if out.api, err = b.balancerAPI(ctx); err != nil {
		return out, err
	}
	known, err := b.ownBalancer(ctx, loadBalancerID)
	if err != nil {
		return out, err
	}
	out.subnet = known.subnet
	out.features, err = b.features(ctx, known.provider, "")
	return out, err
}

// CreateListener implements sdn.LoadBalancers: one POST for each of the listener, its pool and
// its monitor, and one for all members.
func (b *Octavia) CreateListener(ctx context.Context, loadBalancerID string, l sdn.Listener) (sdn.Listener, error) {
	lb, err := b.at(ctx, loadBalancerID)
	if err != nil {
		return sdn.Listener{}, err
	}
	if err := lb.features.CheckListener(l); err != nil {
		return sdn.Listener{}, err
	}
	body := newListener(l, lb.features, lb.api)
	body["loadbalancer_id"] = loadBalancerID
	w, err := ask[wireListener](ctx, b, http.MethodPost, loadBalancerID, object{"listener": body}, "listeners")
	hasOptions := len(l.SourceRanges) > 0 || l.ConnectionLimit != nil || l.TimeoutClientData != nil || l.TimeoutMemberData != nil ||
		l.TimeoutMemberConnect != nil || l.TimeoutTCPInspect != nil // these may have been the reason
	if !hasOptions && l.Protocol != "TCP" {
		b.balancers.learn(err, lb.features.Provider, protocol+l.Protocol)
	}
	if err != nil {
		return sdn.Listener{}, err
	}
	made := listenerOf(w)
	if l.Pool == nil {
		return made, nil
	}
	p, err := b.createPool(ctx, lb, made.ID, l.Protocol, *l.Pool)
	if p.ID != "" {
		made.Pool = &p
	}
	return made, err
}

// UpdateListener implements sdn.LoadBalancers.
func (b *Octavia) UpdateListener(ctx context.Context, loadBalancerID, id string, l sdn.Listener) error {
	lb, err := b.at(ctx, loadBalancerID)
	if err != nil {
		return err
	}
	l.Pool = nil
	if err := lb.features.CheckListener(l); err != nil {
		return err
	}
	return b.lb(ctx, http.MethodPut, id, object{"listener": listenerChange(l, lb.features, lb.api)}, nil, "listeners", id)
}

// DeleteListener implements sdn.LoadBalancers. It deletes the pool first: without its listener
// the pool could not be found any more.
func (b *Octavia) DeleteListener(ctx context.Context, loadBalancerID, id string) error {
	_, err := b.ownBalancer(ctx, loadBalancerID)
	var w wireListener
	if err == nil {
		w, err = ask[wireListener](ctx, b, http.MethodGet, id, nil, "listeners", id)
	}
	if err == nil && w.PoolID != "" {
		err = b.deletePool(ctx, w.PoolID)
	}
	if err == nil {
		err = b.lb(ctx, http.MethodDelete, id, nil, nil, "listeners", id)
	}
	return session.IgnoreNotFound(err)
}
