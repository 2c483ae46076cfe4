// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package membergroups knows what security groups the ports of pods have as members of
// load balancers, beyond those of their pods. It makes no group and writes no object:
// who applies a KuryrLoadBalancer makes its group and names it in the status, who plans
// ports puts it on them, and the collector deletes those that nobody names.
//
// It is woken by KuryrLoadBalancers that come and go, and by those whose group, or whose
// members while they have one, change. It has those pools planned whose ports that is
// about, and, once it leads, those of all ports that have such a group. It can be asked
// at any time and from any goroutine; before Setup it leaves every port what it has.
package membergroups

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/plan/group"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// grantIndex indexes the KuryrLoadBalancers that give a security group to their
// members, by the addresses of these.
const grantIndex = "grants"

// Groups knows what security groups ports have besides those of their pods, as members
// of load balancers. Pods are served without it: as long as Services are not, what a
// port has stays.
type Groups struct {
	client   client.Reader
	settings *settings.Live
	wake     func(pool.Ref)
	known    atomic.Bool // the cache has all KuryrLoadBalancers, and the indexes are there

	mu      sync.Mutex
	last    map[ctrl.Request]grant
	without map[ctrl.Request]types.UID // need no group: that they name none is no loss
}

// grant is what a KuryrLoadBalancer gave, and at what addresses.
type grant struct {
	group string
	ips   []string
}

// Options is what Groups needs.
type Options struct {
	Client   client.Reader // the cache
	Settings *settings.Live
	Wake     func(pool.Ref) // has a pool planned
}

// New returns Groups that gives none before Setup.
func New(o Options) *Groups {
	return &Groups{client: o.Client, settings: o.Settings, wake: o.Wake, last: map[ctrl.Request]grant{}, without: map[ctrl.Request]types.UID{}}
}

// Known reports whether the cache has all KuryrLoadBalancers.
func (g *Groups) Known() bool { return g.known.Load() }

// Of returns the groups that a port is to have besides those of its pod, sorted. A
// cluster that does not use them pays nothing for it.
func (g *Groups) Of(ctx context.Context, port *v1.KuryrPort) ([]string, error) {
	has := group.MemberGroups(port)
	if !g.known.Load() || len(has) == 0 && !g.settings.Load().Services.SourceRangesBySecurityGroups {
		return has, nil
	}
	var groups []string
	for _, ip := range kube.AddressesOfPort(port) {
		klbs, err := g.Granting(ctx, port, ip)
		if err != nil {
			return nil, err
		}
		for _, klb := range klbs {
			if g.Lost(klb) {
				groups = append(groups, has...)
			} else {
				groups = append(groups, balancer.Granted(klb))
			}
		}
	}
	return slices.DeleteFunc(v1.GroupSet(groups), func(id string) bool { return id == "" }), nil
}

// Lost reports whether a KuryrLoadBalancer may have a group that its status does not
// name, as after somebody has emptied that, or not yet: its members keep what they have.
func (g *Groups) Lost(klb *v1.KuryrLoadBalancer) bool {
	if !balancer.Grantor(klb) || klb.Status.SecurityGroupID != "" {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.without[kube.RequestOf(klb)] != klb.UID
}

// Need notes whether a KuryrLoadBalancer needs a group, and has the ports planned that
// have kept what they had as long as nobody knew.
func (g *Groups) Need(ctx context.Context, klb *v1.KuryrLoadBalancer, needs bool) error {
	req := kube.RequestOf(klb)
	g.mu.Lock()
	known := g.without[req] == klb.UID
	if needs {
		delete(g.without, req)
	} else {
		g.without[req] = klb.UID
	}
	g.mu.Unlock()
	if needs || known || !balancer.Grantor(klb) {
		return nil
	}
	for _, ip := range balancer.Members(klb) {
		ports, err := kube.PortsAt(ctx, g.client, ip)
		if err != nil {
			return err
		}
		for _, p := range ports {
			if p.Annotations[v1.MemberGroupsAnnotation] != "" {
				g.wake(pool.Ref{Pool: p.Spec.Pool, Node: p.Spec.NodeName})
			}
		}
	}
	return nil
}

// Granting returns the KuryrLoadBalancers that give a port a group for an address, once
// they have one.
func (g *Groups) Granting(ctx context.Context, port *v1.KuryrPort, ip string) ([]*v1.KuryrLoadBalancer, error) {
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

// addressesOfGrants is what grantIndex indexes.
func addressesOfGrants(o client.Object) []string {
	klb := o.(*v1.KuryrLoadBalancer)
	if !balancer.Grantor(klb) {
		return nil
	}
	return balancer.Members(klb)
}

// Index makes the index that Groups needs besides that of KuryrPorts by address.
func Index(ctx context.Context, mgr ctrl.Manager) error {
	return kube.AddIndex(ctx, mgr, &v1.KuryrLoadBalancer{}, grantIndex, addressesOfGrants)
}

// Setup has pools planned whose ports are given other groups. The caches are filled.
func (g *Groups) Setup(mgr ctrl.Manager) error {
	g.known.Store(true)
	if err := mgr.Add(kube.Leading(g.begin)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("grants").
		WithOptions(controller.Options{SkipNameValidation: new(true)}).
		For(&v1.KuryrLoadBalancer{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: grantMoved})).
		Complete(g)
}

// begin plans the pools of ports that have such groups: what has changed while nobody
// looked has no event.
func (g *Groups) begin(ctx context.Context) error {
	var list v1.KuryrPortList
	if err := g.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return fmt.Errorf("listing KuryrPorts: %w", err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Annotations[v1.MemberGroupsAnnotation] != "" {
			g.wake(pool.Ref{Pool: p.Spec.Pool, Node: p.Spec.NodeName})
		}
	}
	return nil
}

// grantMoved lets pass what may change the groups of ports.
func grantMoved(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*v1.KuryrLoadBalancer), e.ObjectNew.(*v1.KuryrLoadBalancer)
	return balancer.Granted(a) != balancer.Granted(b) || balancer.Granted(b) != "" && a.Generation != b.Generation
}

// Reconcile plans the pools of the ports that a KuryrLoadBalancer gives its group now,
// or gave it before.
func (g *Groups) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var klb v1.KuryrLoadBalancer
	if err := g.client.Get(ctx, req.NamespacedName, &klb, kube.ReadOnly); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading KuryrLoadBalancer %s: %w", req, err)
	}
	if g.Lost(&klb) {
		return ctrl.Result{}, nil // nothing moves, and what was given is remembered
	}
	now := grant{group: balancer.Granted(&klb)}
	if now.group != "" {
		now.ips = balancer.Members(&klb)
	}
	pools := map[pool.Ref]bool{}
	for _, ip := range g.moved(req, now) {
		ports, err := kube.PortsAt(ctx, g.client, ip)
		if err != nil {
			return ctrl.Result{}, err
		}
		for _, p := range ports {
			pools[pool.Ref{Pool: p.Spec.Pool, Node: p.Spec.NodeName}] = true
		}
	}
	for _, pool := range slices.SortedFunc(maps.Keys(pools), pool.Ref.Compare) {
		g.wake(pool)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last[req] = now; now.group == "" {
		delete(g.last, req)
	}
	if klb.UID == "" { // it is gone
		delete(g.without, req)
	}
	return ctrl.Result{}, nil
}

// moved returns the addresses at which not the same is given any more.
func (g *Groups) moved(req ctrl.Request, now grant) []string {
	g.mu.Lock()
	before := g.last[req]
	g.mu.Unlock()
	if before.group != now.group {
		return v1.GroupSet(slices.Concat(before.ips, now.ips))
	}
	var moved []string
	for _, ip := range slices.Concat(before.ips, now.ips) {
		if _, was := slices.BinarySearch(before.ips, ip); !was {
			moved = append(moved, ip)
		} else if _, is := slices.BinarySearch(now.ips, ip); !is {
			moved = append(moved, ip)
		}
	}
	return moved
}
