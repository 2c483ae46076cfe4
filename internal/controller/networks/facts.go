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

// facts are what plans need of the SDN. One request serves all namespaces that need its answer, also if
// it fails.
type facts struct {
	PlannerOptions
	queue    *kube.Queue[ctrl.Request]          // of namespaces to be planned
	prefixes sdn.Answers[string, netip.Prefix]  // of subnets, which never change
	families sdn.Answers[string, int32]         // of subnet pools, which never change
	uses     sdn.Answers[string, []sdn.PortUse] // of networks that are to be replaced
}

func newFacts(o PlannerOptions, queue *kube.Queue[ctrl.Request]) *facts {
	pause := func(err error, failures int) time.Duration {
		if errors.Is(err, sdn.ErrNotFound) {
			return o.Backoff.Rejected
		}
		return o.Backoff.Delay(err, failures)
	}
	return &facts{
		PlannerOptions: o, queue: queue,
		prefixes: sdn.Answers[string, netip.Prefix]{KeepError: pause},
		families: sdn.Answers[string, int32]{KeepError: pause},
		uses:     sdn.Answers[string, []sdn.PortUse]{KeepError: pause},
	}
}

// errAsked: the SDN has been asked and has not answered yet. Then the namespace is planned again.
var errAsked = errors.New("the cloud has not answered yet")

// askFor returns the answer about a resource, and does not wait: a slow answer holds up the namespaces
// whose plan needs it, and no others. It returns errAsked if there is none yet: then the namespace of
// req is planned again with the answer.
func askFor[V any](
	ctx context.Context, f *facts, of *sdn.Answers[string, V], id string, req ctrl.Request, age time.Duration, ask func(context.Context, string) (V, error),
) (V, error) {
	value, known, err := of.Fresh(id)
	if known {
		return value, err
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		_, _ = of.Get(ctx, id, age, func(ctx context.Context) (V, error) { return ask(ctx, id) })
		f.queue.Add(req)
	}()
	return value, errAsked
}

func (f *facts) prefix(ctx context.Context, id string) (p netip.Prefix, err error) {
	got, err := f.Subnets.Subnet(ctx, id)
	if err == nil {
		p, err = netip.ParsePrefix(got.CIDR)
	}
	if errors.Is(err, sdn.ErrNotFound) {
		ctrl.LoggerFrom(ctx).Error(err, "a subnet of the configuration does not exist; networks of namespaces may overlap with it", "subnet", id)
	}
	if err != nil {
		return p, fmt.Errorf("reading subnet %s: %w", id, err)
	}
	return p.Masked(), nil
}

func (f *facts) family(ctx context.Context, id string) (int32, error) {
	pool, err := f.Pools.SubnetPool(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("reading subnet pool %s: %w", id, err)
	}
	return int32(pool.IPVersion), nil
}

// usesOf returns the ports in a network.
func (f *facts) usesOf(ctx context.Context, id string, req ctrl.Request) ([]sdn.PortUse, error) {
	return askFor(ctx, f, &f.uses, id, req, f.Backoff.Max, func(ctx context.Context, id string) ([]sdn.PortUse, error) {
		used, err := f.Uses.InUse(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("listing the ports in network %s: %w", id, err)
		}
		return used, nil
	})
}

// forgive lets the SDN be asked again for what it did not have.
func (f *facts) forgive() {
	f.prefixes.ForgetErrors()
	f.families.ForgetErrors()
}

// reserved returns the prefixes of pods, nodes and Services that the configuration names. With ask
// it asks the SDN for those that are not known, and fails without an answer: see askFor. A
// subnet that does not exist has no prefix; the preflight checks report it.
func (f *facts) reserved(ctx context.Context, s *settings.Settings, ask bool, req ctrl.Request) (all []network.Taken, err error) {
	for _, one := range subnetsOf(s) {
		p, _, _ := f.prefixes.Fresh(one.id)
		if ask {
			var failed error
			if p, failed = askFor(ctx, f, &f.prefixes, one.id, req, sdn.Always, f.prefix); !errors.Is(failed, sdn.ErrNotFound) {
				err = worse(err, failed)
			}
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
// of the SDN: see askFor.
func (f *facts) poolsOf(ctx context.Context, ids []string, req ctrl.Request) (all []network.SubnetPool, err error) {
	for _, id := range ids {
		version, failed := askFor(ctx, f, &f.families, id, req, sdn.Always, f.family)
		err = worse(err, failed)
		all = append(all, network.SubnetPool{ID: id, IPVersion: version})
	}
	return all, err
}
