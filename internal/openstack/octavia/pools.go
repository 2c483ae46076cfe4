// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// CreatePool implements sdn.LoadBalancers.
func (b *Octavia) CreatePool(ctx context.Context, loadBalancerID, listenerID string, p sdn.Pool) (sdn.Pool, error) {
	lb, err := b.at(ctx, loadBalancerID)
	if err != nil {
		return sdn.Pool{}, err
	}
	l, err := ask[wireListener](ctx, b, http.MethodGet, listenerID, nil, "listeners", listenerID)
	if err != nil {
		return sdn.Pool{}, err
	}
	return b.createPool(ctx, lb, listenerID, l.Protocol, p)
}

// createPool creates a pool. It may succeed in part: then the returned pool has an ID.
func (b *Octavia) createPool(ctx context.Context, lb at, listenerID, protocol string, p sdn.Pool) (sdn.Pool, error) {
	p = created(p, lb.api)
	p.Protocol = cmp.Or(p.Protocol, protocol)
	if err := lb.features.CheckPool(p); err != nil {
		return sdn.Pool{}, err
	}
	body := newPool(p, lb.features)
	body["listener_id"] = listenerID
	if lb.api.poolsOfBalancers {
		body["loadbalancer_id"] = lb.id // else Octavia fails if the listener is gone
	}
	w, err := ask[wirePool](ctx, b, http.MethodPost, listenerID, object{"pool": body}, "pools")
	if err != nil {
		p.Algorithm = cmp.Or(p.Algorithm, lb.features.Algorithm)
		b.balancers.learn(err, lb.features.Provider, usedBy(p)...)
		return sdn.Pool{}, err
	}
	made := poolOf(w)
	if err = b.fits(lb, p.Members); err == nil {
		err = b.applyChange(ctx, lb, made.ID, changeOf(nil, p.Members, nil))
	}
	if err != nil {
		b.learnMembers(err, lb, p.Members)
		return made, err
	}
	made.Members = slices.Clone(p.Members) // the answer to a batch does not show the result
	if p.Monitor != nil {
		if err := b.createMonitor(ctx, lb, made.ID, *p.Monitor); err != nil {
			return made, err
		}
		made.Monitor = p.Monitor
	}
	return made, nil
}

// UpdatePool implements sdn.LoadBalancers: a GET, and a PUT for the pool, one for the monitor,
// or both.
func (b *Octavia) UpdatePool(ctx context.Context, loadBalancerID, id string, p sdn.Pool) error {
	lb, err := b.at(ctx, loadBalancerID)
	if err != nil {
		return err
	}
	w, err := ask[wirePool](ctx, b, http.MethodGet, id, nil, "pools", id)
	if err != nil {
		return err
	}
	now := poolOf(w)
	p.Protocol, p.Algorithm = now.Protocol, cmp.Or(p.Algorithm, now.Algorithm)
	if err := lb.features.CheckPool(p); err != nil {
		return err
	}
	if now.Name != p.Name || now.Algorithm != p.Algorithm || !equal(now.AffinitySeconds, p.AffinitySeconds) {
		change := poolChange(p)
		if now.Algorithm == p.Algorithm {
			delete(change, "lb_algorithm")
			p.Algorithm = ""
		}
		if lb.features.AffinityShared { // OVN's provider 8.0.0 puts the pool into ERROR without it
			change["admin_state_up"] = !now.Disabled
		}
		if err := b.lb(ctx, http.MethodPut, id, object{"pool": change}, nil, "pools", id); err != nil {
			b.balancers.learn(err, lb.features.Provider, usedBy(p)...)
			return err
		}
	}
	return b.setMonitor(ctx, lb, id, w.MonitorID, p.Monitor)
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// setMonitor gives a pool the wanted monitor; id is the monitor that it has.
func (b *Octavia) setMonitor(ctx context.Context, lb at, poolID, id string, want *v1.MonitorSpec) error {
	if id != "" {
		now, err := ask[wireMonitor](ctx, b, http.MethodGet, id, nil, "healthmonitors", id)
		switch {
		case err != nil && !errors.Is(err, sdn.ErrNotFound):
			return err
		case err == nil && equal(monitorOf(now), want):
			return nil
		case err == nil && want != nil && now.Type == want.Type:
			return b.lb(ctx, http.MethodPut, id, object{"healthmonitor": monitorChange(*want)}, nil, "healthmonitors", id)
		case err == nil:
			if err := b.lb(ctx, http.MethodDelete, id, nil, nil, "healthmonitors", id); err != nil && !errors.Is(err, sdn.ErrNotFound) {
				return err
			}
		}
	}
	if want == nil {
		return nil
	}
	return b.createMonitor(ctx, lb, poolID, *want)
}

func (b *Octavia) createMonitor(ctx context.Context, lb at, poolID string, m v1.MonitorSpec) error {
	body := newMonitor(m)
	body["pool_id"] = poolID
	err := b.lb(ctx, http.MethodPost, poolID, object{"healthmonitor": body}, nil, "healthmonitors")
	if err != nil {
		b.balancers.learn(err, lb.features.Provider, monitor+m.Type)
		return fmt.Errorf("cannot create the health monitor of pool %s, of type %s: %w", poolID, m.Type, err)
	}
	return nil
}

// DeletePool implements sdn.LoadBalancers.
func (b *Octavia) DeletePool(ctx context.Context, loadBalancerID, id string) error {
	_, err := b.ownBalancer(ctx, loadBalancerID)
	if err == nil {
		err = b.deletePool(ctx, id)
	}
	return session.IgnoreNotFound(err)
}

// deletePool deletes a pool and what keeps it from being deleted. It succeeds if there is none.
func (b *Octavia) deletePool(ctx context.Context, id string) error {
	if b.dialect.single {
		if err := session.IgnoreNotFound(b.deleteMonitorOf(ctx, id)); err != nil {
			return err
		}
	}
	return session.IgnoreNotFound(b.lb(ctx, http.MethodDelete, id, nil, nil, "pools", id))
}
