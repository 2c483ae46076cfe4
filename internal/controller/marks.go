// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/networks"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/tenants"
)

var foreignMarks = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kuryr_foreign_marks",
	Help: "Resources with this cluster's mark in projects that Kuryr does not use, in the last list of the kind. Kuryr neither uses nor deletes them.",
}, []string{"kind"})

func init() { metrics.Registry.MustRegister(foreignMarks) }

// marks decides which resources with this cluster's mark are Kuryr's. A mark is text: everybody who
// may use the cloud can write it on a resource of their own project, and an administrator's
// credential sees it, as does any credential if that project shares the resource. So what a list
// shows is believed only in the project that Kuryr makes things in for the owner. All lists by which
// other parts find resources come through here. A resource that an object names by its ID is found
// without its mark, so it is believed in any project.
type marks struct {
	*Projects
	own      func(context.Context) (string, error)
	settings *settings.Live
	events   events.EventRecorder
}

// mark is what a list says about a resource.
type mark struct {
	id      string
	owner   *sdn.Owner
	project string
}

// only returns the resources of a list that are Kuryr's.
func only[T any](ctx context.Context, m *marks, kind tenants.Kind, what string, all []T, lacks error, of func(*T) mark) ([]T, error) {
	if lacks != nil && sdn.Partial(lacks) == nil {
		return all, lacks
	}
	used := sync.OnceValues(func() ([]string, error) { return m.used(ctx) })
	out := make([]T, 0, len(all))
	for _, one := range all {
		if ok, err := m.believes(ctx, kind, what, of(&one), used); err != nil {
			return nil, err
		} else if ok {
			out = append(out, one)
		}
	}
	foreignMarks.WithLabelValues(what).Set(float64(len(all) - len(out)))
	return out, lacks
}

// believes reports whether a resource is Kuryr's.
//
// A resource may be in another project that Kuryr uses than its owner: the owner was in that project
// before. No object may use it, and the collector deletes it: it gets an owner that does not exist.
// The security group of a load balancer is in the project of its members, which has no owner here.
func (m *marks) believes(ctx context.Context, kind tenants.Kind, what string, r mark, used func() ([]string, error)) (bool, error) {
	if *r.owner == (sdn.Owner{}) { // a floating IP that Kuryr has not made
		return true, nil
	}
	own, err := m.own(ctx)
	if err != nil {
		return false, err
	}
	ref, projects, err := m.owner(ctx, *r.owner)
	if err != nil {
		return false, err
	}
	is := projectIn(own, r.project)
	if is(projects) {
		return true, nil
	}
	if _, named := m.Named(ctx, kind, r.id); named {
		return true, nil
	}
	all, err := used()
	if err != nil {
		return false, err
	}
	if !is(all) {
		m.report(ctx, ref, what, r)
		return false, nil
	}
	if ref != nil && what != "security group" {
		r.owner.Name += "@" + r.project
	}
	return true, nil
}

// projectIn returns whether a project is among some; empty is the credential's own. A cloud that
// does not tell its credential's project shows no other one's resources.
func projectIn(own, project string) func([]string) bool {
	or := func(id string) string {
		if id == "" {
			return own
		}
		return id
	}
	return func(some []string) bool {
		return slices.ContainsFunc(some, func(id string) bool { return or(id) == "" || sdn.SameID(or(id), or(project)) })
	}
}

// owner returns the object that a resource is for, and the projects that Kuryr makes things in for
// it; nil if it does not exist.
func (m *marks) owner(ctx context.Context, owner sdn.Owner) (ref *corev1.ObjectReference, projects []string, err error) {
	key := kube.OwnerRequest(owner).NamespacedName
	var object client.Object
	var kp v1.KuryrPortPool
	var kn v1.KuryrNetwork
	var klb v1.KuryrLoadBalancer
	kind := ""
	switch {
	case owner.Kind == sdn.KindPool:
		object, kind = &kp, "KuryrPortPool"
	case owner.Kind == sdn.KindNetwork && m.networks.Load():
		object, kind = &kn, "KuryrNetwork"
	case owner.Kind == sdn.KindLoadBalancer && m.balancers.Load():
		object, kind = &klb, "KuryrLoadBalancer"
	default:
		return nil, nil, nil
	}
	if err := m.cache.Get(ctx, key, object, kube.ReadOnly); apierrors.IsNotFound(err) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("reading %s %s: %w", kind, key, err)
	}
	switch object {
	case &kp:
		projects = []string{kp.Spec.Key.ProjectID}
	case &kn:
		projects = []string{kn.Spec.ProjectID}
	case &klb:
		projects = projectsOfBalancer(&klb)
	}
	return kube.Reference(object, kind), projects, nil
}

// projectsOfBalancer returns the project of the spec, and those where load balancers stay that were
// made before it changed.
func projectsOfBalancer(klb *v1.KuryrLoadBalancer) []string {
	projects := []string{klb.Spec.ProjectID}
	for _, lb := range klb.Status.LoadBalancers {
		projects = append(projects, lb.ProjectID)
	}
	return projects
}

// used returns the projects that Kuryr uses: the credential's own, those of the configuration, and
// those that an object names, also if the configuration does not list them any more.
func (m *marks) used(ctx context.Context) ([]string, error) {
	s := m.settings.Load()
	all := []string{"", s.Pods.ProjectID, s.Services.ProjectID}
	for _, p := range s.Projects {
		all = append(all, p.ProjectID)
	}
	var ports v1.KuryrPortList
	if err := m.cache.List(ctx, &ports, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrPorts: %w", err)
	}
	for i := range ports.Items {
		all = append(all, ports.Items[i].Spec.ProjectID)
	}
	if m.networks.Load() {
		var list v1.KuryrNetworkList
		if err := m.cache.List(ctx, &list, kube.ReadOnly); err != nil {
			return nil, fmt.Errorf("listing KuryrNetworks: %w", err)
		}
		for i := range list.Items {
			all = append(all, list.Items[i].Spec.ProjectID)
		}
	}
	if m.balancers.Load() {
		list, err := kube.LoadBalancers(ctx, m.cache)
		if err != nil {
			return nil, err
		}
		for _, klb := range list {
			all = append(all, projectsOfBalancer(klb)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// report tells the owner of a resource in a project that Kuryr does not use. Events of one reason
// are one Event.
func (m *marks) report(ctx context.Context, ref *corev1.ObjectReference, what string, r mark) {
	ctrl.LoggerFrom(ctx).V(1).Info("ignored a resource with this cluster's mark in a project that Kuryr does not use", "kind", what, "id", r.id, "project", r.project, "owner", r.owner.String())
	if ref != nil {
		m.events.Eventf(ref, nil, corev1.EventTypeWarning, v1.ReasonForeignMark, "FindByMark",
			"Kuryr neither uses nor deletes %s %s of project %s: it has Kuryr's mark for this object, but Kuryr makes nothing in that project. "+
				"Ask its owner to delete it. If Kuryr made it, list the project in `projects` of Kuryr's configuration: then Kuryr deletes it", what, r.id, r.project)
	}
}

// marked returns o with lists that show only what is Kuryr's.
func (o Options) marked(m *marks) Options {
	o.Ports = markedPorts{o.Ports, m}
	if o.LoadBalancers != nil {
		o.LoadBalancers = markedBalancers{o.LoadBalancers, m}
	}
	if o.FloatingIPs != nil {
		o.FloatingIPs = markedAddresses{o.FloatingIPs, m}
	}
	if o.SecurityGroups != nil {
		o.SecurityGroups = markedGroups{o.SecurityGroups, m}
	}
	if o.Networks != nil {
		o.Networks = markedNetworks{o.Networks, m}
	}
	return o
}

type markedPorts struct {
	sdn.Ports
	*marks
}

func (c markedPorts) ListPorts(ctx context.Context) ([]sdn.PortSummary, error) {
	all, err := c.Ports.ListPorts(ctx)
	return only(ctx, c.marks, tenants.Port, "port", all, err, func(p *sdn.PortSummary) mark { return mark{p.ID, &p.Owner, p.ProjectID} })
}

// Port returns ErrNotFound for a port that is not in the project of its pool: the annotation of a pod
// may name any.
func (c markedPorts) Port(ctx context.Context, id string) (sdn.Port, error) {
	p, err := c.Ports.Port(ctx, id)
	if err != nil {
		return p, err
	}
	r := mark{id, new(p.Owner), p.ProjectID}
	ok, err := c.believes(ctx, tenants.Port, "port", r, func() ([]string, error) { return c.used(ctx) })
	if err == nil && (!ok || *r.owner != p.Owner) {
		err = fmt.Errorf("port %s is in project %s, and not in that of its pool: %w", id, p.ProjectID, sdn.ErrNotFound)
	}
	return p, err
}

type markedBalancers struct {
	sdn.LoadBalancers
	*marks
}

func (c markedBalancers) ListLoadBalancers(ctx context.Context) ([]sdn.LoadBalancerSummary, error) {
	all, err := c.LoadBalancers.ListLoadBalancers(ctx)
	return only(ctx, c.marks, tenants.Balancer, "load balancer", all, err, func(lb *sdn.LoadBalancerSummary) mark { return mark{lb.ID, &lb.Owner, lb.ProjectID} })
}

type markedAddresses struct {
	sdn.FloatingIPs
	*marks
}

func (c markedAddresses) ListFloatingIPs(ctx context.Context, projectID string) ([]sdn.FloatingIP, error) {
	all, err := c.FloatingIPs.ListFloatingIPs(ctx, projectID)
	return only(ctx, c.marks, tenants.Balancer, "floating IP", all, err, func(f *sdn.FloatingIP) mark { return mark{f.ID, &f.Owner, f.ProjectID} })
}

type markedGroups struct {
	sdn.SecurityGroups
	*marks
}

func (c markedGroups) ListSecurityGroups(ctx context.Context) ([]sdn.SecurityGroup, error) {
	all, err := c.SecurityGroups.ListSecurityGroups(ctx)
	return only(ctx, c.marks, tenants.Balancer, "security group", all, err, func(g *sdn.SecurityGroup) mark { return mark{g.ID, &g.Owner, g.ProjectID} })
}

type markedNetworks struct {
	networks.Cloud
	*marks
}

func (c markedNetworks) ListNetworks(ctx context.Context) ([]sdn.NetworkSummary, error) {
	all, err := c.Cloud.ListNetworks(ctx)
	return only(ctx, c.marks, tenants.Network, "network", all, err, func(n *sdn.NetworkSummary) mark { return mark{n.ID, &n.Owner, n.ProjectID} })
}

func (c markedNetworks) ListRouters(ctx context.Context) ([]sdn.RouterSummary, error) {
	all, err := c.Cloud.ListRouters(ctx)
	return only(ctx, c.marks, tenants.Network, "router", all, err, func(r *sdn.RouterSummary) mark { return mark{r.ID, &r.Owner, r.ProjectID} })
}
