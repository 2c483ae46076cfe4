// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// LoadBalancer implements sdn.LoadBalancers. It sends three requests, one for each monitor, and
// one for the members of each pool.
func (b *Octavia) LoadBalancer(ctx context.Context, id string) (sdn.LoadBalancer, error) {
	w, err := b.readBalancer(ctx, id)
	if err != nil {
		return sdn.LoadBalancer{}, err
	}
	lb, err := b.tree(ctx, id, w)
	if errors.Is(err, sdn.ErrNotFound) { // a child was deleted since it was listed
		err = fmt.Errorf("%w: %s", sdn.ErrUnavailable, err.Error())
	}
	return lb, err
}

// tree reads everything below a load balancer.
func (b *Octavia) tree(ctx context.Context, id string, w wireBalancer) (sdn.LoadBalancer, error) {
	a, err := b.balancerAPI(ctx)
	if err != nil {
		return sdn.LoadBalancer{}, err
	}
	lb := balancerOf(w)
	lb.Unmarked = a.has(withTags) && !w.isTagged()
	if len(w.Listeners) == 0 {
		return lb, nil
	}
	match := url.Values{"loadbalancer_id": {id}}
	listeners, err := listBalancing[wireListener](ctx, b, match, "listeners")
	if err != nil {
		return sdn.LoadBalancer{}, fmt.Errorf("cannot list its listeners: %w", err)
	}
	pools, err := b.poolsOf(ctx, listeners, match)
	if err != nil {
		return sdn.LoadBalancer{}, err
	}
	for _, one := range listeners {
		l := listenerOf(one)
		if p, ok := pools[one.PoolID]; ok {
			l.Pool = &p
		}
		lb.Listeners = append(lb.Listeners, l)
	}
	if b.dialect.statesApart {
		err = b.addStates(ctx, &lb)
	}
	b.balancers.show(lb)
	return lb, err
}

// poolsOf reads the pools of a load balancer's listeners, by ID. An early LBaaS v2 cannot
// filter pools by load balancer, and lists all.
func (b *Octavia) poolsOf(ctx context.Context, listeners []wireListener, match url.Values) (map[string]sdn.Pool, error) {
	used := map[string]bool{}
	for _, l := range listeners {
		used[l.PoolID] = l.PoolID != ""
	}
	pools := map[string]sdn.Pool{}
	if len(used) == 0 || len(used) == 1 && !used[listeners[0].PoolID] {
		return pools, nil
	}
	all, err := listBalancing[wirePool](ctx, b, match, "pools")
	if err != nil {
		return nil, fmt.Errorf("cannot list its pools: %w", err)
	}
	for _, one := range all {
		if !used[one.ID] {
			continue
		}
		if pools[one.ID], err = b.completePool(ctx, one); err != nil {
			return nil, err
		}
	}
	return pools, nil
}

// completePool reads what is below a pool.
func (b *Octavia) completePool(ctx context.Context, w wirePool) (sdn.Pool, error) {
	p := poolOf(w)
	if len(w.Members) > 0 {
		all, err := b.readMembers(ctx, w.ID)
		if err != nil {
			return p, fmt.Errorf("cannot list the members of pool %s: %w", w.ID, err)
		}
		for _, m := range all {
			p.Members = append(p.Members, memberOf(m))
		}
	}
	slices.SortFunc(p.Members, func(x, y sdn.Member) int {
		return cmp.Or(strings.Compare(x.IP, y.IP), cmp.Compare(x.Port, y.Port))
	})
	if w.MonitorID != "" {
		m, err := ask[wireMonitor](ctx, b, http.MethodGet, w.MonitorID, nil, "healthmonitors", w.MonitorID)
		if err != nil {
			return p, fmt.Errorf("cannot read health monitor %s: %w", w.MonitorID, err)
		}
		p.Monitor, p.MonitorBroken = monitorOf(m), m.Provisioning == string(sdn.ProvisioningError)
	}
	return p, nil
}

func (b *Octavia) readMembers(ctx context.Context, poolID string) ([]wireMember, error) {
	return listBalancing[wireMember](ctx, b, url.Values{}, "pools", poolID, "members")
}

// listBalancing reads a list of the load-balancing API. match is not nil.
func listBalancing[T session.Listable](ctx context.Context, b *Octavia, match url.Values, path ...string) ([]T, error) {
	r := session.Request{To: b.dialect.service, Path: append([]string{"lbaas"}, path...), Query: match}
	if len(path) > 1 {
		r.Subject = path[1]
	}
	return session.ReadAll[T](ctx, b.Client, r, nil)
}
