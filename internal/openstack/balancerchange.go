// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// DeleteLoadBalancer implements sdn.LoadBalancers. Octavia removes all with one
// request, and the VIP's port too.
func (b *Backend) DeleteLoadBalancer(ctx context.Context, id string) error {
	err := b.ownBalancer(ctx, id)
	if err == nil {
		err = b.deleteBalancer(ctx, id)
	}
	switch {
	case errors.Is(err, sdn.ErrNotFound):
		b.balancers.drop(id)
		return nil
	case err != nil:
		return fmt.Errorf("deleting load balancer %s: %w", id, err)
	}
	b.balancers.goes(id)
	return &sdn.PendingError{What: "load balancer " + id + " to go", Retry: busyRetry}
}

func (b *Backend) deleteBalancer(ctx context.Context, id string) error {
	if b.balancing() == lbaas {
		if err := b.emptyBalancer(ctx, id); err != nil {
			return err
		}
		return b.lb(ctx, http.MethodDelete, id, nil, nil, "loadbalancers", id)
	}
	return b.do(ctx, request{
		to: octavia, method: http.MethodDelete, path: []string{"lbaas", "loadbalancers", id}, query: url.Values{"cascade": {"true"}}, subject: id,
	})
}

// emptyBalancer removes what is below a load balancer of LBaaS v2.
func (b *Backend) emptyBalancer(ctx context.Context, id string) error {
	w, err := b.readBalancer(ctx, id)
	if err != nil {
		return err
	}
	for _, l := range w.Listeners {
		if err := b.deleteListener(ctx, id, l.ID); err != nil && !errors.Is(err, sdn.ErrNotFound) {
			return err
		}
	}
	w, err = b.readBalancer(ctx, id) // the pools that are left belong to no listener
	for _, p := range w.Pools {
		if err == nil {
			err = b.deletePool(ctx, p.ID)
		}
	}
	return err
}

// deletePool removes a pool. An LBaaS v2 does not as long as it has a monitor.
func (b *Backend) deletePool(ctx context.Context, id string) error {
	if b.balancing() == lbaas {
		var body poolBody
		err := b.lb(ctx, http.MethodGet, id, nil, &body, "pools", id)
		if monitor := body.Pool.MonitorID; err == nil && monitor != "" {
			err = b.lb(ctx, http.MethodDelete, monitor, nil, nil, "healthmonitors", monitor)
		}
		if err != nil && !errors.Is(err, sdn.ErrNotFound) {
			return err
		}
	}
	if err := b.lb(ctx, http.MethodDelete, id, nil, nil, "pools", id); err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return err
	}
	b.balancers.drop(id)
	return nil
}

// FailOver implements sdn.LoadBalancers.
func (b *Backend) FailOver(ctx context.Context, id string) error {
	err := b.failOver(ctx, id)
	if err != nil {
		return fmt.Errorf("failing over load balancer %s: %w", id, err)
	}
	return nil
}

func (b *Backend) failOver(ctx context.Context, id string) error {
	w, err := b.readBalancer(ctx, id)
	if err != nil {
		return err
	}
	f, err := b.features(ctx, w.Provider, "")
	if err != nil {
		return err
	}
	if !f.FailOver {
		return fmt.Errorf("failover: %w %s", sdn.ErrUnsupported, f.Provider)
	}
	err = b.lb(ctx, http.MethodPut, id, nil, nil, "loadbalancers", id, "failover")
	if errors.Is(err, sdn.ErrForbidden) { // it takes an admin, by Octavia's own policy
		err = fmt.Errorf("failover: %w for this credential (%s)", sdn.ErrUnsupported, err.Error())
	}
	if errors.Is(err, sdn.ErrUnsupported) {
		b.balancers.learn(w.Provider, failing, 1)
	}
	return err
}

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
func (b *Backend) at(ctx context.Context, loadBalancerID string) (at, error) {
	out := at{id: loadBalancerID}
	var err error
	if out.api, err = b.balancerAPI(ctx); err != nil {
		return out, err
	}
	known, ok := b.balancers.aboutOf(loadBalancerID)
	if !ok {
		w, err := b.readBalancer(ctx, loadBalancerID)
		if err != nil {
			return out, err
		}
		known = about{w.Provider, w.VIPSubnetID}
	}
	out.subnet = known.subnet
	out.features, err = b.features(ctx, known.provider, "")
	return out, err
}

// CreateListener implements sdn.LoadBalancers: a POST each for the listener, its
// pool and its monitor, and one for all members.
func (b *Backend) CreateListener(ctx context.Context, loadBalancerID string, l sdn.Listener) (sdn.Listener, error) {
	made, err := b.createListener(ctx, loadBalancerID, l)
	if err != nil {
		return made, fmt.Errorf("creating listener %q of load balancer %s: %w", l.Name, loadBalancerID, err)
	}
	return made, nil
}

func (b *Backend) createListener(ctx context.Context, loadBalancerID string, l sdn.Listener) (sdn.Listener, error) {
	lb, err := b.at(ctx, loadBalancerID)
	if err != nil {
		return sdn.Listener{}, err
	}
	if err := lb.features.CheckListener(l); err != nil {
		return sdn.Listener{}, err
	}
	body := newListener(l, lb.features, lb.api)
	body["loadbalancer_id"] = loadBalancerID
	var out listenerBody
	err = b.lb(ctx, http.MethodPost, loadBalancerID, object{"listener": body}, &out, "listeners")
	if errors.Is(err, sdn.ErrUnsupported) {
		b.learnListener(lb.features.Provider, l)
	}
	if err != nil {
		return sdn.Listener{}, err
	}
	b.balancers.add(loadBalancerID, out.Listener.ID)
	made := listenerOf(out.Listener)
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
func (b *Backend) UpdateListener(ctx context.Context, id string, l sdn.Listener) error {
	if err := b.updateListener(ctx, id, l); err != nil {
		return fmt.Errorf("updating listener %s: %w", id, err)
	}
	return nil
}

func (b *Backend) updateListener(ctx context.Context, id string, l sdn.Listener) error {
	lb, err := b.above(ctx, "listeners", id)
	if err != nil {
		return err
	}
	l.Pool = nil
	if err := lb.features.CheckListener(l); err != nil {
		return err
	}
	err = b.lb(ctx, http.MethodPut, id, object{"listener": listenerChange(l, lb.features, lb.api)}, nil, "listeners", id)
	return b.gone(id, err)
}

// above is at, for the load balancer of a listener or pool.
func (b *Backend) above(ctx context.Context, kind, id string) (at, error) {
	parent, err := b.balancerOf(ctx, kind, id)
	if err != nil {
		return at{}, err
	}
	return b.at(ctx, parent)
}

// gone forgets what an answer says is not there.
func (b *Backend) gone(id string, err error) error {
	if errors.Is(err, sdn.ErrNotFound) {
		b.balancers.drop(id)
	}
	return err
}

// DeleteListener implements sdn.LoadBalancers. The pool goes first: without its
// listener nothing would lead to it any more.
func (b *Backend) DeleteListener(ctx context.Context, loadBalancerID, id string) error {
	if err := b.deleteListener(ctx, loadBalancerID, id); err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return fmt.Errorf("deleting listener %s of load balancer %s: %w", id, loadBalancerID, err)
	}
	return nil
}

func (b *Backend) deleteListener(ctx context.Context, loadBalancerID, id string) error {
	parent, err := b.balancerOf(ctx, "listeners", id)
	if err != nil || parent != loadBalancerID {
		return err
	}
	var body listenerBody
	if err := b.lb(ctx, http.MethodGet, id, nil, &body, "listeners", id); err != nil {
		return b.gone(id, err)
	}
	if pool := body.Listener.PoolID; pool != "" {
		if err := b.deletePool(ctx, pool); err != nil {
			return err
		}
	}
	if err := b.lb(ctx, http.MethodDelete, id, nil, nil, "listeners", id); err != nil {
		return b.gone(id, err)
	}
	b.balancers.drop(id)
	return nil
}

// CreatePool implements sdn.LoadBalancers.
func (b *Backend) CreatePool(ctx context.Context, listenerID string, p sdn.Pool) (sdn.Pool, error) {
	lb, err := b.above(ctx, "listeners", listenerID)
	var listener listenerBody
	if err == nil {
		err = b.gone(listenerID, b.lb(ctx, http.MethodGet, listenerID, nil, &listener, "listeners", listenerID))
	}
	var made sdn.Pool
	if err == nil {
		made, err = b.createPool(ctx, lb, listenerID, listener.Listener.Protocol, p)
	}
	if err != nil {
		return made, fmt.Errorf("creating pool %q of listener %s: %w", p.Name, listenerID, err)
	}
	return made, nil
}

// createPool makes a pool, which may succeed in part: the answer has an ID then.
func (b *Backend) createPool(ctx context.Context, lb at, listenerID, protocol string, p sdn.Pool) (sdn.Pool, error) {
	p.Protocol = cmp.Or(p.Protocol, protocol)
	if err := lb.features.CheckPool(p); err != nil {
		return sdn.Pool{}, err
	}
	body := newPool(p, lb.features)
	body["listener_id"] = listenerID
	if !lb.api.old {
		body["loadbalancer_id"] = lb.id // without it Octavia stumbles over a listener that is gone
	}
	var out poolBody
	err := b.lb(ctx, http.MethodPost, listenerID, object{"pool": body}, &out, "pools")
	if errors.Is(err, sdn.ErrUnsupported) {
		b.learnPool(lb.features, p, true)
	}
	if err != nil {
		return sdn.Pool{}, err
	}
	b.balancers.add(lb.id, out.Pool.ID)
	made := poolOf(out.Pool)
	if made.Members, err = b.fillPool(ctx, lb, made.ID, p.Members); err != nil {
		if errors.Is(err, sdn.ErrUnsupported) {
			b.learnMembers(lb, p.Members)
		}
		return made, err
	}
	if p.Monitor != nil {
		if err := b.createMonitor(ctx, lb, made.ID, *p.Monitor); err != nil {
			return made, err
		}
		made.Monitor = p.Monitor
	}
	return made, nil
}

// UpdatePool implements sdn.LoadBalancers: a GET, and a PUT for the pool, one for the
// monitor, or both.
func (b *Backend) UpdatePool(ctx context.Context, id string, p sdn.Pool) error {
	if err := b.updatePool(ctx, id, p); err != nil {
		return fmt.Errorf("updating pool %s: %w", id, err)
	}
	return nil
}

func (b *Backend) updatePool(ctx context.Context, id string, p sdn.Pool) error {
	lb, err := b.above(ctx, "pools", id)
	if err != nil {
		return err
	}
	var body poolBody
	if err := b.lb(ctx, http.MethodGet, id, nil, &body, "pools", id); err != nil {
		return b.gone(id, err)
	}
	now := poolOf(body.Pool)
	p.Protocol, p.Algorithm = now.Protocol, cmp.Or(p.Algorithm, now.Algorithm)
	if err := lb.features.CheckPool(p); err != nil {
		return err
	}
	if now.Name != p.Name || now.Algorithm != p.Algorithm || !equal(now.AffinitySeconds, p.AffinitySeconds) {
		change := poolChange(p)
		if now.Algorithm == p.Algorithm {
			delete(change, "lb_algorithm")
		}
		if err := b.lb(ctx, http.MethodPut, id, object{"pool": change}, nil, "pools", id); err != nil {
			if errors.Is(err, sdn.ErrUnsupported) {
				b.learnPool(lb.features, p, false)
			}
			return b.gone(id, err)
		}
	}
	return b.setMonitor(ctx, lb, id, body.Pool.MonitorID, p.Monitor)
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// setMonitor gives a pool, which has the monitor of that ID, the one wanted.
func (b *Backend) setMonitor(ctx context.Context, lb at, poolID, id string, want *v1.MonitorSpec) error {
	if id != "" {
		now, err := b.readMonitor(ctx, id)
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

func (b *Backend) createMonitor(ctx context.Context, lb at, poolID string, m v1.MonitorSpec) error {
	body := newMonitor(m)
	body["pool_id"] = poolID
	err := b.lb(ctx, http.MethodPost, poolID, object{"healthmonitor": body}, nil, "healthmonitors")
	if errors.Is(err, sdn.ErrUnsupported) {
		b.balancers.learn(lb.features.Provider, monitor+m.Type, 1)
	}
	if err != nil {
		return fmt.Errorf("creating the health monitor of pool %s, of type %s: %w", poolID, m.Type, err)
	}
	return nil
}
