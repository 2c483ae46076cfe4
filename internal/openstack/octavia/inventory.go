// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// ListLoadBalancers implements sdn.LoadBalancers. Where Octavia has tags, it filters the list
// by the cluster's tag.
//
// Tags are lost when another user of the cloud replaces them, and load balancers that were made
// before Octavia had tags have none. So the first list is of all load balancers. So is the next
// one when a list lacks load balancers that existed before. A few load balancers without tags
// are read one by one from then on.
func (b *Octavia) ListLoadBalancers(ctx context.Context) ([]sdn.LoadBalancerSummary, error) {
	all, err := b.listBalancers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]sdn.LoadBalancerSummary, 0, len(all))
	for _, w := range all {
		out = append(out, sdn.LoadBalancerSummary{ID: w.ID, Owner: w.mark().Owner, ProjectID: cmp.Or(w.ProjectID, w.TenantID), VIPPortID: w.VIPPortID, Provisioning: sdn.Provisioning(w.Provisioning)})
	}
	return out, nil
}

func (b *Octavia) listBalancers(ctx context.Context) (map[string]wireBalancer, error) {
	a, err := b.balancerAPI(ctx)
	if err != nil {
		return nil, err
	}
	before, untagged, narrow := b.balancers.known()
	if narrow && a.has(withTags) {
		all, err := b.listOwn(ctx, url.Values{"tags": {session.ClusterMark + b.config.ClusterID}}, a)
		if err != nil {
			return all, b.noteListed(all, before, err)
		}
		// A load balancer that cannot be read here is found by the list of all.
		if err := b.addUntagged(ctx, all, untagged); err == nil && b.balancers.shows(all, before) {
			return all, b.noteListed(all, before, nil)
		}
	}
	all, err := b.listOwn(ctx, url.Values{}, a)
	return all, b.noteListed(all, before, err)
}

// fewUntagged is how many load balancers without tags are read one by one. They may lack their
// tags for long: a load balancer that is busy or in ERROR accepts no tags.
const fewUntagged = 10

// addUntagged adds the load balancers without tags, which a list by tag does not show.
func (b *Octavia) addUntagged(ctx context.Context, all map[string]wireBalancer, untagged []string) error {
	for _, id := range untagged {
		if _, is := all[id]; is {
			continue
		}
		w, err := b.readBalancer(ctx, id)
		switch {
		case err == nil:
			all[id] = w
		case !errors.Is(err, sdn.ErrNotFound):
			return fmt.Errorf("reading load balancer %s, which has lost its tags: %w", id, err)
		}
	}
	return nil
}

// listOwn lists the matching load balancers of this cluster, by ID.
func (b *Octavia) listOwn(ctx context.Context, match url.Values, a api) (map[string]wireBalancer, error) {
	if a.has(withTags) {
		match["fields"] = []string{"id", "description", "tags", "vip_port_id", "provisioning_status", a.project}
	}
	all, err := listBalancing[wireBalancer](ctx, b, match, "loadbalancers")
	if err != nil {
		return nil, err
	}
	own := map[string]wireBalancer{}
	for _, w := range all {
		if w.mark().Cluster == b.config.ClusterID && w.Provisioning != string(sdn.ProvisioningDeleted) {
			own[w.ID] = w
		}
	}
	return own, nil
}

// known returns the load balancers that should exist, including those in deletion, and those of
// them without tags. narrow says that the untagged ones are all known, and few.
func (l *balancers) known() (ids map[string]bool, untagged []string, narrow bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids = map[string]bool{}
	for id, parent := range l.below {
		if id == parent {
			ids[id] = true
		}
	}
	return ids, slices.Sorted(maps.Keys(l.untagged)), l.whole && len(l.untagged) <= fewUntagged
}

// shows reports whether a list has all load balancers of before, except those in deletion.
func (l *balancers) shows(all map[string]wireBalancer, before map[string]bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range before {
		if _, ok := all[id]; !ok && !l.going[id] {
			return false
		}
	}
	return true
}

// noteListed notes the result of a successful list. It forgets the load balancers that existed
// before the list and are not in it.
func (b *Octavia) noteListed(all map[string]wireBalancer, before map[string]bool, err error) error {
	if err != nil {
		return err
	}
	l, tag, gone := b.balancers, session.ClusterMark+b.config.ClusterID, map[string]bool{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = true
	for id, w := range all {
		l.below[id] = id
		l.tag(id, slices.Contains(w.Tags, tag))
	}
	for id := range before {
		if _, is := all[id]; !is {
			gone[id] = true
		}
	}
	l.forget(gone)
	return nil
}

// tag notes, with the lock held, whether a load balancer can be found by its tag.
func (l *balancers) tag(id string, is bool) {
	if is {
		delete(l.untagged, id)
	} else {
		l.untagged[id] = true
	}
}

// forget removes, with the lock held, what is known of load balancers or of objects below them.
func (l *balancers) forget(gone map[string]bool) {
	if len(gone) == 0 {
		return
	}
	for child, parent := range l.below {
		if gone[parent] || gone[child] {
			delete(l.below, child)
			delete(l.subnets, child)
		}
	}
	for id := range gone {
		delete(l.about, id)
		delete(l.going, id)
		delete(l.untagged, id)
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
	m := session.Mark{Cluster: b.config.ClusterID, Owner: owner}
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

// goes notes that Octavia deletes a load balancer.
func (l *balancers) goes(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.going[id] = true
}
