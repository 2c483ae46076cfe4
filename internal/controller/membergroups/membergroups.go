// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package membergroups knows which security groups the ports of pods have as members of load
// balancers, besides the groups of their pods. It creates no group and writes no object. Package
// balancers creates the group of a KuryrLoadBalancer and names it in the status. Package pools puts
// the group on the ports. The collector deletes groups that no status names.
//
// Groups reconciles KuryrLoadBalancers that are created or deleted. It reconciles those whose group
// changes, and those whose members change while they have a group. It requests a plan of the pools
// of these members' ports. Once it leads it requests a plan for all ports that have such a group.
//
// Its methods may be called at any time and from any goroutine. Before Setup every port keeps the
// groups that it has.
package membergroups

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

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

	mu   sync.Mutex
	last map[ctrl.Request]grant
}

// grant is the security group that a KuryrLoadBalancer gave, and its members' addresses.
type grant struct {
	group string
	ips   []string
}

// Options is what Groups needs.
type Options struct {
	Client   client.Reader // reads the cache
	Settings *settings.Live
	Queue    *kube.Queue[pool.Ref] // of pools to plan
}

// New returns Groups. Before Setup, ports keep the groups that they have.
func New(o Options) *Groups {
	return &Groups{client: o.Client, settings: o.Settings, queue: o.Queue, last: map[ctrl.Request]grant{}}
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

// Lost reports whether a KuryrLoadBalancer may have a group that its status does not name. The
// status may not name it yet, or somebody may have emptied the status. The members keep the groups
// that they have.
func (g *Groups) Lost(klb *v1.KuryrLoadBalancer) bool {
	return balancer.Grantor(klb) && klb.Status.SecurityGroupID == "" && klb.Status.SecurityGroupState != v1.SecurityGroupNone
}

// Granting returns the KuryrLoadBalancers that give a port a group for an address. Those without a
// group yet are included.
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

// addressesOfGrants returns the keys of grantIndex.
func addressesOfGrants(o client.Object) []string {
	klb := o.(*v1.KuryrLoadBalancer)
	if !balancer.Grantor(klb) {
		return nil
	}
	return balancer.Members(klb)
}

// Index adds the index that Groups needs, except that of KuryrPorts by address.
func Index(ctx context.Context, mgr ctrl.Manager) error {
	return kube.AddIndex(ctx, mgr, &v1.KuryrLoadBalancer{}, grantIndex, addressesOfGrants)
}

// Setup adds the controller that requests plans when the groups of ports change. The caches must be
// filled.
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

// begin requests a plan of the pools of all ports that have such groups. A change before this
// process led sends no event.
func (g *Groups) begin(ctx context.Context) error {
	var list v1.KuryrPortList
	if err := g.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return fmt.Errorf("listing KuryrPorts: %w", err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Annotations[v1.MemberGroupsAnnotation] != "" {
			g.queue.Add(pool.Ref{Pool: p.Spec.Pool, Node: p.Spec.NodeName})
		}
	}
	return nil
}

// grantMoved passes updates that may change the groups of ports.
func grantMoved(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*v1.KuryrLoadBalancer), e.ObjectNew.(*v1.KuryrLoadBalancer)
	return balancer.Granted(a) != balancer.Granted(b) || a.Status.SecurityGroupState != b.Status.SecurityGroupState || balancer.Granted(b) != "" && a.Generation != b.Generation
}

// Reconcile requests a plan of the pools whose ports get a KuryrLoadBalancer's group now, or got it
// before.
func (g *Groups) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var klb v1.KuryrLoadBalancer
	if err := g.client.Get(ctx, req.NamespacedName, &klb, kube.ReadOnly); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading KuryrLoadBalancer %s: %w", req, err)
	}
	if g.Lost(&klb) {
		return ctrl.Result{}, nil // no port changes, and the last grant stays recorded
	}
	now := grant{group: balancer.Granted(&klb)}
	if now.group != "" {
		now.ips = balancer.Members(&klb)
	}
	pools := map[pool.Ref]bool{}
	moved := g.moved(req, now)
	// Ports kept their groups as long as the state was unknown.
	kept := klb.Status.SecurityGroupState == v1.SecurityGroupNone
	if kept {
		moved = v1.GroupSet(slices.Concat(moved, balancer.Members(&klb)))
	}
	for _, ip := range moved {
		ports, err := kube.PortsAt(ctx, g.client, ip)
		if err != nil {
			return ctrl.Result{}, err
		}
		for _, p := range ports {
			if !kept || p.Annotations[v1.MemberGroupsAnnotation] != "" {
				pools[pool.Ref{Pool: p.Spec.Pool, Node: p.Spec.NodeName}] = true
			}
		}
	}
	for _, pool := range slices.SortedFunc(maps.Keys(pools), pool.Ref.Compare) {
		g.queue.Add(pool)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last[req] = now; now.group == "" {
		delete(g.last, req)
	}
	return ctrl.Result{}, nil
}

// moved returns the addresses whose group has changed.
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
