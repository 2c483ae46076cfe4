// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// CreateLoadBalancer implements sdn.LoadBalancers: one POST with everything below the load
// balancer, if the provider is known to accept that.
func (b *Octavia) CreateLoadBalancer(ctx context.Context, owner sdn.Owner, lb sdn.LoadBalancer) (sdn.LoadBalancer, error) {
	f, err := b.features(ctx, lb.Provider, lb.FlavorID)
	if err != nil {
		return sdn.LoadBalancer{}, err
	}
	if f.Unsure { // its children depend on the provider that it gets
		lb.Listeners = nil
	}
	// A provider that refuses a child may leave the VIP's port behind (OVN's does), so Kuryr
	// does not request what is known to be refused.
	for _, l := range lb.Listeners {
		err := f.CheckListener(l)
		if err != nil && lb.Provider == "" && lb.FlavorID != "" {
			lb.Listeners = nil // they are for a provider without this flavor
			break
		}
		if err != nil {
			return sdn.LoadBalancer{}, err
		}
	}
	a, err := b.balancerAPI(ctx)
	if err != nil {
		return sdn.LoadBalancer{}, err
	}
	body, err := b.newBalancer(owner, lb, a)
	if err != nil {
		return sdn.LoadBalancer{}, err
	}
	w, err := b.postWhole(ctx, lb, body, f, a)
	if err != nil {
		return sdn.LoadBalancer{}, err
	}
	b.balancers.made(lb, w)
	return madeOf(w, lb), nil
}

// postWhole requests a load balancer with everything below it, or an empty one if the provider
// does not accept all of it.
func (b *Octavia) postWhole(ctx context.Context, lb sdn.LoadBalancer, body object, f sdn.Features, a api) (wireBalancer, error) {
	members := 0
	full := populatable(lb) && a.populates(f.Provider)
	if full {
		body["listeners"], members = newListeners(lb.Listeners, f, a, b.members(f.Provider))
	}
	began := time.Now()
	w, err := b.postBalancer(ctx, body, members)
	if errors.Is(err, sdn.ErrConflict) {
		var again bool
		if again, err = b.afterConflict(ctx, lb.VIP, lb.ProjectID, err); again {
			began = time.Now()
			w, err = b.postBalancer(ctx, body, members)
		}
	}
	// It was refused for good: nothing of it is under way any more.
	refused := errors.Is(err, sdn.ErrQuota) || errors.Is(err, sdn.ErrUnsupported) || errors.Is(err, sdn.ErrInvalid) || errors.Is(err, sdn.ErrForbidden)
	if full && refused {
		b.afterRefusal(ctx, lb.VIP, lb.ProjectID, began)
	}
	if !full || !errors.Is(err, sdn.ErrUnsupported) {
		return w, err
	}
	delete(body, "listeners")
	return b.postBalancer(ctx, body, 0)
}

// made notes a new load balancer.
func (l *balancers) made(asked sdn.LoadBalancer, w wireBalancer) {
	l.note(w)
	l.mu.Lock()
	defer l.mu.Unlock()
	if asked.Provider == "" {
		l.usual[asked.FlavorID] = w.Provider
	}
}

func (b *Octavia) newBalancer(owner sdn.Owner, lb sdn.LoadBalancer, a api) (object, error) {
	if lb.FlavorID != "" && a.versioned && !a.has(withFlavors) || lb.AvailabilityZone != "" && !a.has(withZones) {
		return nil, fmt.Errorf("flavor %q and availability zone %q are %w: this version of Octavia's API is too old", lb.FlavorID, lb.AvailabilityZone, sdn.ErrUnsupported)
	}
	m := session.Mark{Cluster: b.Config.ClusterID, Owner: owner}
	description, err := m.Description()
	if err != nil {
		return nil, err
	}
	out := object{"name": lb.Name, "description": description, "vip_subnet_id": lb.VIP.SubnetID, "admin_state_up": true}
	if a.has(withTags) {
		out["tags"] = m.Tags()
	}
	session.Set(out, map[string]string{
		"vip_address": lb.VIP.IP, a.project: lb.ProjectID, "provider": lb.Provider, "flavor_id": lb.FlavorID, "availability_zone": lb.AvailabilityZone,
	})
	return out, nil
}

// populatable reports whether lb has children that one request can create. Octavia requires
// unique names of the pools for that.
func populatable(lb sdn.LoadBalancer) bool {
	names := map[string]bool{"": true}
	for _, l := range lb.Listeners {
		if l.Pool == nil {
			continue
		}
		if names[l.Pool.Name] {
			return false
		}
		names[l.Pool.Name] = true
	}
	return len(lb.Listeners) > 0
}

// newListeners returns the children of a new load balancer. Their pools have as many members as
// shares allows; ChangeMembers adds the rest. Monitors are left out for OVN: its driver never
// gets them, and they would stay PENDING_CREATE for ever.
func newListeners(all []sdn.Listener, f sdn.Features, a api, most int) (out []object, members int) {
	out = make([]object, len(all))
	wanted := make([]int, len(all))
	for i, l := range all {
		if l.Pool != nil {
			wanted[i] = len(l.Pool.Members)
		}
	}
	of := shares(wanted, most)
	for i, l := range all {
		out[i] = newListener(l, f, a)
		if l.Pool == nil {
			continue
		}
		pool := created(*l.Pool, a)
		pool.Protocol = cmp.Or(pool.Protocol, l.Protocol)
		p := newPool(pool, f)
		members += of[i]
		p["members"] = newMembers(l.Pool.Members[:of[i]])
		if m := l.Pool.Monitor; m != nil && f.Provider != providerOVN {
			p["healthmonitor"] = newMonitor(*m)
		}
		out[i]["default_pool"] = p
	}
	return out, members
}

// firstMembers is how many members a pool gets at once if it cannot get all. Its port already
// answers while the rest is added, which takes a minute with OVN.
const firstMembers = 5

// shares returns how many members each pool gets at once, given how many it should have. Most
// of them complete whole pools, so that few requests are needed: OVN's driver takes longer to
// change a pool that has some members already. A pool that is too large for any request gets a
// part. The other pools get their first members, from an extra tenth of most.
func shares(wanted []int, most int) []int {
	out := make([]int, len(wanted))
	left, beyond := most, most/10
	for i, n := range wanted {
		if n <= left || left == most {
			out[i] = min(n, left)
			left -= out[i]
		} else {
			out[i] = min(n, firstMembers, beyond)
			beyond -= out[i]
		}
	}
	return out
}

func (b *Octavia) postBalancer(ctx context.Context, body object, members int) (wireBalancer, error) {
	var out map[string]wireBalancer
	err := b.Do(ctx, session.Request{
		To: b.dialect.service, Method: http.MethodPost, Path: []string{"lbaas", "loadbalancers"}, Body: object{"loadbalancer": body}, Out: &out, Creates: true, Members: members,
	})
	return out["loadbalancer"], err
}

// madeOf returns what the answer to a POST shows, which is everything but the monitors.
func madeOf(w wireBalancer, asked sdn.LoadBalancer) sdn.LoadBalancer {
	lb := balancerOf(w)
	pools := map[string]sdn.Pool{}
	for _, one := range w.Pools {
		p := poolOf(one)
		for _, m := range one.Members {
			p.Members = append(p.Members, memberOf(m))
		}
		for _, l := range asked.Listeners {
			if l.Pool != nil && l.Pool.Name == p.Name && w.Provider != providerOVN {
				p.Monitor = l.Pool.Monitor
			}
		}
		pools[one.ID] = p
	}
	for _, one := range w.Listeners {
		l := listenerOf(one)
		if p, ok := pools[one.PoolID]; ok {
			l.Pool = &p
		}
		lb.Listeners = append(lb.Listeners, l)
	}
	return lb
}
