// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// facts are the prefixes of the configured subnets and the IP families of the subnet pools. These
// never change, so the SDN is asked once for each. It is safe for concurrent use.
type facts struct {
	subnets sdn.Subnets
	pools   sdn.SubnetPools
	now     func() time.Time
	again   time.Duration // how long the SDN is not asked again for a subnet that it does not have

	mu       sync.Mutex // not held during calls
	prefixes map[string]netip.Prefix
	families map[string]int32
	lost     map[string]time.Time // when the SDN had no such subnet
}

// forgive lets the SDN be asked again for subnets that it did not have.
func (f *facts) forgive() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = nil
}

// reserved returns the prefixes of pods, nodes and Services that the configuration names. With ask
// it asks the SDN for those that are not known, and fails without an answer. A subnet that does not
// exist has no prefix; the preflight checks report it.
func (f *facts) reserved(ctx context.Context, s *settings.Settings, ask bool) (all []network.Taken, err error) {
	type subnet struct{ id, field string }
	var ids []subnet
	add := func(field string, of []string) {
		for _, id := range of {
			ids = append(ids, subnet{id, field})
		}
	}
	add("pods.subnetIDs", s.Pods.AllSubnetIDs())
	for _, n := range s.Nodes {
		add("nodes[].subnetIDs", n.SubnetIDs)
		add("nodes[].parentSubnetIDs", n.ParentSubnetIDs)
	}
	add("services.subnetIDs", s.Services.SubnetIDs)
	add("services.nodeSubnetIDs", s.Services.NodeSubnetIDs)
	for _, g := range s.Networks.Given {
		add("networks.given", g.SubnetIDs)
	}
	for _, one := range ids {
		p, known := f.prefix(one.id)
		if !known && ask {
			if p, err = f.ask(ctx, one.id); err != nil {
				return nil, err
			}
		}
		if p.IsValid() {
			all = append(all, network.Taken{Prefix: p, By: "subnet " + one.id + " of " + one.field})
		}
	}
	return all, nil
}

// prefix returns the prefix of a subnet. It is zero for one that does not exist.
func (f *facts) prefix(id string) (p netip.Prefix, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, lost := f.lost[id]; lost && f.now().Sub(at) < f.again {
		return p, true
	}
	p, known = f.prefixes[id]
	return p, known
}

func (f *facts) ask(ctx context.Context, id string) (netip.Prefix, error) {
	got, err := f.subnets.Subnet(ctx, id)
	var p netip.Prefix
	if err == nil {
		p, err = netip.ParsePrefix(got.CIDR)
	}
	missing := errors.Is(err, sdn.ErrNotFound)
	if err != nil && !missing {
		return p, fmt.Errorf("reading subnet %s: %w", id, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if missing {
		ctrl.LoggerFrom(ctx).Error(err, "a subnet of the configuration does not exist; networks of namespaces may overlap with it", "subnet", id)
		f.lost = with(f.lost, id, f.now())
		return p, nil
	}
	f.prefixes = with(f.prefixes, id, p.Masked())
	return p.Masked(), nil
}

// poolsOf returns the subnet pools of these IDs with their IP families.
func (f *facts) poolsOf(ctx context.Context, ids []string) (all []network.SubnetPool, err error) {
	for _, id := range ids {
		f.mu.Lock()
		version, known := f.families[id]
		f.mu.Unlock()
		if !known {
			pool, err := f.pools.SubnetPool(ctx, id)
			if err != nil {
				return nil, fmt.Errorf("reading subnet pool %s: %w", id, err)
			}
			version = int32(pool.IPVersion)
			f.mu.Lock()
			f.families = with(f.families, id, version)
			f.mu.Unlock()
		}
		all = append(all, network.SubnetPool{ID: id, IPVersion: version})
	}
	return all, nil
}

func with[V any](m map[string]V, key string, value V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}
