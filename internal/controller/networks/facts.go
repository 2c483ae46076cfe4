// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// keepError returns how long an error of the SDN counts as its answer.
func (p *Planner) keepError(err error, failures int) time.Duration {
	if errors.Is(err, sdn.ErrNotFound) {
		return p.Backoff.Rejected
	}
	return p.Backoff.Delay(err, failures)
}

// errAsked: the SDN has been asked and has not answered yet. Then the namespace is planned again.
var errAsked = errors.New("the cloud has not answered yet")

// askFor returns the answer about a resource, and does not wait: a slow answer holds up the namespaces
// whose plan needs it, and no others. It returns errAsked if there is none yet: then the namespace of
// req is planned again with the answer.
func askFor[V any](
	ctx context.Context, p *Planner, of *sdn.Answers[string, V], id string, req ctrl.Request, age time.Duration, ask func(context.Context, string) (V, error),
) (V, error) {
	value, known, err := of.Fresh(id)
	if known {
		return value, err
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		_, _ = of.Get(ctx, id, age, func(ctx context.Context) (V, error) { return ask(ctx, id) })
		p.queue.Add(req)
	}()
	return value, errAsked
}

func (p *Planner) prefix(ctx context.Context, id string) (prefix netip.Prefix, err error) {
	got, err := p.Subnets.Subnet(ctx, id)
	if err == nil {
		prefix, err = netip.ParsePrefix(got.CIDR)
	}
	if errors.Is(err, sdn.ErrNotFound) {
		ctrl.LoggerFrom(ctx).Error(err, "a subnet of the configuration does not exist; networks of namespaces may overlap with it", "subnet", id)
	}
	if err != nil {
		return prefix, fmt.Errorf("reading subnet %s: %w", id, err)
	}
	return prefix.Masked(), nil
}

func (p *Planner) family(ctx context.Context, id string) (int32, error) {
	pool, err := p.Pools.SubnetPool(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("reading subnet pool %s: %w", id, err)
	}
	return int32(pool.IPVersion), nil
}

// usesOf returns the ports in a network.
func (p *Planner) usesOf(ctx context.Context, id string, req ctrl.Request) ([]sdn.PortUse, error) {
	return askFor(ctx, p, &p.portUses, id, req, p.Backoff.Max, func(ctx context.Context, id string) ([]sdn.PortUse, error) {
		used, err := p.Uses.InUse(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("listing the ports in network %s: %w", id, err)
		}
		return used, nil
	})
}

// reserved returns the prefixes of pods, nodes and Services that the configuration names. With ask
// it asks the SDN for those that are not known, and fails without an answer: see askFor. A
// subnet that does not exist has no prefix; the preflight checks report it.
func (p *Planner) reserved(ctx context.Context, s *settings.Settings, ask bool, req ctrl.Request) (all []network.Taken, err error) {
	for _, one := range subnetsOf(s) {
		prefix, _, _ := p.subnets.Fresh(one.id)
		if ask {
			var failed error
			if prefix, failed = askFor(ctx, p, &p.subnets, one.id, req, sdn.Always, p.prefix); !errors.Is(failed, sdn.ErrNotFound) {
				err = worse(err, failed)
			}
		}
		if prefix.IsValid() {
			all = append(all, network.Taken{Prefix: prefix, By: "subnet " + one.id + " of " + one.field})
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
func (p *Planner) poolsOf(ctx context.Context, ids []string, req ctrl.Request) (all []network.SubnetPool, err error) {
	for _, id := range ids {
		version, failed := askFor(ctx, p, &p.families, id, req, sdn.Always, p.family)
		err = worse(err, failed)
		all = append(all, network.SubnetPool{ID: id, IPVersion: version})
	}
	return all, err
}

// taken returns the prefixes that the network of a namespace must not overlap with. With choosing,
// it fails if the SDN has not told all of them. Otherwise it asks for none.
func (p *Planner) taken(ctx context.Context, namespace string, choosing bool) ([]network.Taken, error) {
	all, err := p.reserved(ctx, p.Settings.Load(), choosing, itself(namespace))
	if err != nil {
		return nil, err
	}
	made, err := p.prefixes(ctx, choosing)
	if err != nil {
		return nil, err
	}
	for _, t := range made {
		if t.By != networkOf(namespace) {
			all = append(all, t)
		}
	}
	var nodes corev1.NodeList
	if err := p.client.List(ctx, &nodes, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, text := range kube.NodeAddresses(&nodes.Items[i]) {
			if a, err := netip.ParseAddr(text); err == nil {
				all = append(all, network.Taken{Prefix: netip.PrefixFrom(a, a.BitLen()), By: "node " + nodes.Items[i].Name})
			}
		}
	}
	return all, nil
}

// prefixes returns the prefixes of the networks of all namespaces. It reads all KuryrNetworks, with
// the own writes, if a prefix is to be chosen. A plan that only reports overlaps gets what was read
// after the last change of a KuryrNetwork: 1000 plans for 1000 namespaces took two seconds.
func (p *Planner) prefixes(ctx context.Context, choosing bool) ([]network.Taken, error) {
	if moved := p.moved.Swap(false); !moved && !choosing {
		return p.made, nil
	}
	var list v1.KuryrNetworkList
	if err := p.client.List(ctx, &list, kube.ReadOnly); err != nil {
		p.moved.Store(true)
		return nil, fmt.Errorf("listing KuryrNetworks: %w", err)
	}
	p.made = nil
	for i := range list.Items {
		kn := &list.Items[i]
		p.made = append(p.made, prefixesOf(kn)...)
		if last := p.written[kn.Namespace]; last != nil && last.UID == kn.UID && !kube.Older(kn.ResourceVersion, last.ResourceVersion) {
			delete(p.written, kn.Namespace) // the cache shows it
		}
	}
	for _, kn := range p.written {
		p.made = append(p.made, prefixesOf(kn)...)
	}
	return p.made, nil
}

// prefixesOf returns the prefixes that a network that Kuryr makes has, or is to have.
func prefixesOf(kn *v1.KuryrNetwork) (all []network.Taken) {
	if !network.Makes(&kn.Spec) {
		return nil
	}
	prefixes := network.Prefixes(&kn.Spec)
	for _, s := range kn.Status.Subnets {
		if prefix, err := netip.ParsePrefix(s.CIDR); err == nil && !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	for _, prefix := range prefixes {
		all = append(all, network.Taken{Prefix: prefix, By: networkOf(kn.Namespace)})
	}
	return all
}

// networkOf says which network has a prefix.
func networkOf(namespace string) string { return "the network of namespace " + namespace }
