// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package membergroups knows which security groups the ports of pods have as members of load
// balancers, besides the groups of their pods. It creates no group and writes no object. Package
// balancers creates the group of a KuryrLoadBalancer and names it in the status. Package pools puts
// the group on the ports. The collector deletes groups that no status names.
//
// Groups requests a plan of the pools of members' ports when a KuryrLoadBalancer is created or deleted,
// when its group changes, and when its members change while it has a group. At its start it requests
// a plan for all ports that have such a group. It does so in each controller process, from the cache: what
// another process is to plan, it drops.
//
// Its methods may be called at any time and from any goroutine. Before Setup every port keeps the
// groups that it has.
package membergroups

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/plan/group"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// grantIndex indexes the KuryrLoadBalancers that give a security group to their members. Its keys
// are the addresses of the members.
const grantIndex = "grants"

// Groups knows which security groups ports have as members of load balancers, besides the groups of
// their pods. While Services are not served, each port keeps the groups that it has.
type Groups struct {
	client   client.Reader
	settings *settings.Live
	queue    *kube.Queue[pool.Ref]
	known    atomic.Bool // the cache has all KuryrLoadBalancers, and the indexes exist
}

// New returns Groups, which read the cache, and add pools to plan to a queue. Before Setup, ports keep
// the groups that they have.
func New(cache client.Reader, live *settings.Live, queue *kube.Queue[pool.Ref]) *Groups {
	return &Groups{client: cache, settings: live, queue: queue}
}

// Known reports whether the cache has all KuryrLoadBalancers.
func (g *Groups) Known() bool { return g.known.Load() }

// Of returns the sorted groups that a port is to have besides those of its pod. It reads nothing in
// a cluster that does not use such groups.
func (g *Groups) Of(ctx context.Context, port *v1.KuryrPort) ([]string, error) {
	has := group.MemberGroups(port)
	if !g.known.Load() || len(has) == 0 && !g.settings.Load().Services.SourceRangesBySecurityGroups {
		return has, nil
	}
	var groups []string
	for _, ip := range kube.AddressesOfPort(port) {
		klbs, err := g.LoadBalancersOf(ctx, port, ip)
		if err != nil {
			return nil, err
		}
		for _, klb := range klbs {
			if g.Lost(klb) {
				groups = append(groups, has...)
			} else {
				groups = append(groups, balancer.MemberGroup(klb))
			}
		}
	}
	return slices.DeleteFunc(v1.GroupSet(groups), func(id string) bool { return id == "" }), nil
}

// Lost reports whether a KuryrLoadBalancer may have a group that its status does not name. The
// status may not name it yet, or somebody may have emptied the status. The members keep the groups
// that they have.
func (g *Groups) Lost(klb *v1.KuryrLoadBalancer) bool {
	return balancer.GivesMemberGroup(klb) && klb.Status.SecurityGroupID == "" && klb.Status.SecurityGroupState != v1.SecurityGroupNone
}

// LoadBalancersOf returns the KuryrLoadBalancers that give a port a group for an address. Those without a
// group yet are included.
func (g *Groups) LoadBalancersOf(ctx context.Context, port *v1.KuryrPort, ip string) ([]*v1.KuryrLoadBalancer, error) {
	if port.Spec.PodRef == nil {
		return nil, nil
	}
	var list v1.KuryrLoadBalancerList
	err := g.client.List(ctx, &list, client.InNamespace(port.Spec.PodRef.Namespace), client.MatchingFields{grantIndex: ip}, kube.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("looking for load balancers with member %s: %w", ip, err)
	}
	var out []*v1.KuryrLoadBalancer
	for i := range list.Items {
		if balancer.Reaches(&list.Items[i], port) {
			out = append(out, &list.Items[i])
		}
	}
	return out, nil
}

// addressesOfGrants returns the keys of grantIndex.
func addressesOfGrants(o client.Object) []string {
	klb := o.(*v1.KuryrLoadBalancer)
	if !balancer.GivesMemberGroup(klb) {
		return nil
	}
	return balancer.Members(klb)
}

// Index adds the index that Groups needs, except that of KuryrPorts by address.
func Index(ctx context.Context, mgr ctrl.Manager) error {
	return kube.AddIndex(ctx, mgr, &v1.KuryrLoadBalancer{}, grantIndex, addressesOfGrants)
}

// Setup requests plans when the groups of ports change. The caches must be filled.
func (g *Groups) Setup(mgr ctrl.Manager) error {
	g.known.Store(true)
	return mgr.Add(kube.Everywhere(func(ctx context.Context) error {
		informer, err := mgr.GetCache().GetInformer(ctx, &v1.KuryrLoadBalancer{})
		if err != nil {
			return fmt.Errorf("watching KuryrLoadBalancers: %w", err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(is any) { g.moved(ctx, &v1.KuryrLoadBalancer{}, is) },
			UpdateFunc: func(was, is any) { g.moved(ctx, was, is) },
			DeleteFunc: func(was any) {
				if last, ok := was.(toolscache.DeletedFinalStateUnknown); ok {
					was = last.Obj
				}
				g.moved(ctx, was, &v1.KuryrLoadBalancer{})
			},
		})
		if err != nil {
			return fmt.Errorf("watching KuryrLoadBalancers: %w", err)
		}
		return g.begin(ctx)
	}))
}

// begin requests a plan of the pools of all ports that have such groups. Before the caches were filled
// these kept their groups, and a KuryrLoadBalancer that was deleted by then sends no event. Pools that are
// gained later are planned anyway.
func (g *Groups) begin(ctx context.Context) error {
	var list v1.KuryrPortList
	if err := g.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return fmt.Errorf("listing KuryrPorts: %w", err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Annotations[v1.MemberGroupsAnnotation] != "" {
			g.queue.Add(poolOf(p))
		}
	}
	return nil
}

// moved requests a plan of the pools whose ports have other groups after a change of a
// KuryrLoadBalancer. An empty one stands for one that does not exist.
func (g *Groups) moved(ctx context.Context, was, is any) {
	before, now := g.given(was.(*v1.KuryrLoadBalancer)), g.given(is.(*v1.KuryrLoadBalancer))
	for _, ip := range v1.GroupSet(slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(now))) {
		if now[ip] == before[ip] || now[ip] == unknown { // the port keeps the group that it has
			continue
		}
		ports, err := kube.PortsAt(ctx, g.client, ip)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot find the port of a member", "ip", ip)
		}
		for _, p := range ports {
			g.queue.Add(poolOf(p))
		}
	}
}

// poolOf returns the pool that plans a port.
func poolOf(p *v1.KuryrPort) pool.Ref { return pool.Ref{Pool: p.Spec.Pool, Node: p.Spec.NodeName} }

// unknown stands for a group of a member that is not known.
const unknown = "?"

// given returns the group of each member of a KuryrLoadBalancer that has one, or keeps one.
func (g *Groups) given(klb *v1.KuryrLoadBalancer) map[string]string {
	group := balancer.MemberGroup(klb)
	if g.Lost(klb) {
		group = unknown
	}
	all := map[string]string{}
	if group != "" {
		for _, ip := range balancer.Members(klb) {
			all[ip] = group
		}
	}
	return all
}
