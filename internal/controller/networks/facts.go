// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// facts are what plans need of the SDN: the prefixes of the configured subnets and the IP families of
// the subnet pools, which never change, and the ports in networks that are to be replaced.
type facts struct {
	PlannerOptions
	prefixes answers[netip.Prefix] // of subnets; zero for one that does not exist
	families answers[int32]        // of subnet pools
	uses     answers[[]sdn.PortUse]
}

// newFacts returns facts that are asked for by way of via. queue has namespaces planned.
func newFacts(o PlannerOptions, via *asker, queue *kube.Queue[ctrl.Request]) *facts {
	return &facts{
		PlannerOptions: o,
		prefixes:       answers[netip.Prefix]{asker: via, backoff: o.Backoff, queue: queue},
		families:       answers[int32]{asker: via, backoff: o.Backoff, queue: queue},
		uses:           answers[[]sdn.PortUse]{asker: via, backoff: o.Backoff, queue: queue},
	}
}

// usesOf reads the ports in a network.
func (f *facts) usesOf(ctx context.Context, id string) ([]sdn.PortUse, time.Duration, error) {
	used, err := f.Uses.InUse(ctx, id)
	if err != nil {
		return nil, 0, fmt.Errorf("listing the ports in network %s: %w", id, err)
	}
	return used, f.Backoff.Max, nil
}

// familyOf reads the IP family of a subnet pool.
func (f *facts) familyOf(ctx context.Context, id string) (int32, time.Duration, error) {
	pool, err := f.Pools.SubnetPool(ctx, id)
	if err != nil {
		return 0, 0, fmt.Errorf("reading subnet pool %s: %w", id, err)
	}
	return int32(pool.IPVersion), 0, nil
}

// prefixOf reads the prefix of a subnet.
func (f *facts) prefixOf(ctx context.Context, id string) (p netip.Prefix, good time.Duration, err error) {
	got, err := f.Subnets.Subnet(ctx, id)
	if errors.Is(err, sdn.ErrNotFound) {
		ctrl.LoggerFrom(ctx).Error(err, "a subnet of the configuration does not exist; networks of namespaces may overlap with it", "subnet", id)
		return p, f.Backoff.Rejected, nil
	}
	if err == nil {
		p, err = netip.ParsePrefix(got.CIDR)
	}
	if err != nil {
		return p, 0, fmt.Errorf("reading subnet %s: %w", id, err)
	}
	return p.Masked(), 0, nil
}

// forgive lets the SDN be asked again for what it did not have.
func (f *facts) forgive() {
	f.prefixes.forgive()
	f.families.forgive()
}

// reserved returns the prefixes of pods, nodes and Services that the configuration names. With ask
// it asks the SDN for those that are not known, and fails without an answer: see answers.of. A
// subnet that does not exist has no prefix; the preflight checks report it.
func (f *facts) reserved(s *settings.Settings, ask bool, req ctrl.Request) (all []network.Taken, err error) {
	for _, one := range subnetsOf(s) {
		p := f.prefixes.last(one.id)
		if ask {
			var failed error
			p, failed = f.prefixes.of(one.id, req, f.prefixOf)
			err = worse(err, failed)
		}
		if p.IsValid() {
			all = append(all, network.Taken{Prefix: p, By: "subnet " + one.id + " of " + one.field})
		}
	}
	return all, err
}

// worse returns the error that decides: what the SDN has refused, before what it has not answered.
func worse(a, b error) error {
	if a == nil || errors.Is(a, errAsked) && b != nil {
		return b
	}
	return a
}

// configuredSubnet is a subnet that the configuration names, and the field that does.
type configuredSubnet struct{ id, field string }

// subnetsOf returns the subnets that the configuration names.
func subnetsOf(s *settings.Settings) (all []configuredSubnet) {
	add := func(field string, of []string) {
		for _, id := range of {
			all = append(all, configuredSubnet{id, field})
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
	return all
}

// poolsOf returns the subnet pools of these IDs with their IP families. It fails without an answer
// of the SDN: see answers.of.
func (f *facts) poolsOf(ids []string, req ctrl.Request) (all []network.SubnetPool, err error) {
	for _, id := range ids {
		version, failed := f.families.of(id, req, f.familyOf)
		err = worse(err, failed)
		all = append(all, network.SubnetPool{ID: id, IPVersion: version})
	}
	return all, err
}
