// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// fewLost is how many load balancers that a list by tag lacks are read one by one.
const fewLost = 10

// ListLoadBalancers implements sdn.LoadBalancers. Where Octavia has tags, it filters the list
// by the cluster's tag.
//
// Tags are lost when another user of the cloud replaces them, and load balancers that were made
// before Octavia had tags have none. So the first list is of all load balancers. Later, those that
// are known and not in the list are read one by one, or all are listed if they are many.
func (b *Octavia) ListLoadBalancers(ctx context.Context) ([]sdn.LoadBalancerSummary, error) {
	a, err := b.balancerAPI(ctx)
	if err != nil {
		return nil, err
	}
	before, whole := b.balancers.known()
	var all map[string]wireBalancer
	if whole && a.has(withTags) {
		all, err = b.listOwn(ctx, url.Values{"tags": {session.ClusterMark + b.Config.ClusterID}}, a)
		if err != nil {
			return nil, err
		}
		whole = b.addLost(ctx, all, before)
	}
	if !whole || !a.has(withTags) {
		if all, err = b.listOwn(ctx, url.Values{}, a); err != nil {
			return nil, err
		}
	}
	b.balancers.listed(before, all)
	out := make([]sdn.LoadBalancerSummary, 0, len(all))
	for _, w := range all {
		out = append(out, sdn.LoadBalancerSummary{
			ID: w.ID, Name: w.Name, Owner: w.mark().Owner, ProjectID: cmp.Or(w.ProjectID, w.TenantID), Created: w.created(), VIPPortID: w.VIPPortID, Provisioning: sdn.Provisioning(w.Provisioning),
		})
	}
	return out, nil
}

// addLost adds the load balancers of before that a list lacks and that still exist. It reports
// whether the list has all of them then.
func (b *Octavia) addLost(ctx context.Context, list map[string]wireBalancer, before map[string]bool) bool {
	lost := slices.DeleteFunc(slices.Collect(maps.Keys(before)), func(id string) bool { _, is := list[id]; return is })
	if len(lost) > fewLost {
		return false
	}
	for _, id := range lost {
		w, err := b.readBalancer(ctx, id)
		if err == nil {
			list[id] = w
		} else if !errors.Is(err, sdn.ErrNotFound) {
			return false
		}
	}
	return true
}

// listOwn lists the matching load balancers of this cluster, by ID.
func (b *Octavia) listOwn(ctx context.Context, match url.Values, a api) (map[string]wireBalancer, error) {
	if a.has(withTags) {
		match["fields"] = []string{"id", "name", "created_at", "description", "tags", "provider", "vip_subnet_id", "vip_port_id", "provisioning_status", a.project}
	}
	all, err := listBalancing[wireBalancer](ctx, b, match, "loadbalancers")
	if err != nil {
		return nil, err
	}
	own := map[string]wireBalancer{}
	for _, w := range all {
		if w.mark().Cluster == b.Config.ClusterID && w.Provisioning != string(sdn.ProvisioningDeleted) {
			own[w.ID] = w
		}
	}
	return own, nil
}

// known returns the load balancers that should exist, including those in deletion. whole says that
// a list of all has succeeded.
func (l *balancers) known() (ids map[string]bool, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids = map[string]bool{}
	for id := range l.own {
		ids[id] = true
	}
	return ids, l.whole
}

// listed notes a list. It forgets the load balancers that existed before the list and are not in it.
func (l *balancers) listed(before map[string]bool, all map[string]wireBalancer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = true
	for id := range before {
		delete(l.own, id)
	}
	for id, w := range all {
		l.own[id] = fixed{w.Provider, w.VIPSubnetID}
	}
}

// MarkLoadBalancer implements sdn.LoadBalancers. The tags are the mark. Without tags the
// description is the mark, and a load balancer without it is not found at all.
func (b *Octavia) MarkLoadBalancer(ctx context.Context, id string, owner sdn.Owner) error {
	a, err := b.balancerAPI(ctx)
	if err != nil {
		return err
	}
	w, err := b.readBalancer(ctx, id)
	if err != nil {
		return err
	}
	m := session.Mark{Cluster: b.Config.ClusterID, Owner: owner}
	if _, err := m.Description(); err != nil {
		return err
	}
	tags := slices.DeleteFunc(slices.Clone(w.Tags), func(tag string) bool {
		return strings.HasPrefix(tag, session.ClusterMark) || strings.HasPrefix(tag, session.OwnerMark)
	})
	if !a.has(withTags) || w.isTagged() && w.mark().Owner == owner {
		return nil
	}
	change := object{"loadbalancer": object{"tags": append(tags, m.Tags()...)}}
	return b.lb(ctx, http.MethodPut, id, change, nil, "loadbalancers", id)
}
