// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/networks"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/tenants"
)

// marks is the cloud with lists that show only what is Kuryr's. A mark is text: everybody who may
// use the cloud can write it on a resource of their own project, and an administrator's credential
// sees it, as does any credential if that project shares the resource. So a mark counts only in the
// project that Kuryr makes things in for the owner; without the owner, in each project that Kuryr
// uses. A resource that an object names by its ID is Kuryr's in any project.
type marks struct {
	sdn.Ports
	sdn.LoadBalancers
	sdn.FloatingIPs
	sdn.SecurityGroups
	networks.Cloud
	o      Options
	events events.EventRecorder
}

// marked returns o with the lists of marks.
func (o Options) marked(events events.EventRecorder) Options {
	m := marks{o.Ports, o.LoadBalancers, o.FloatingIPs, o.SecurityGroups, o.Networks, o, events}
	o.Ports = m
	if o.LoadBalancers != nil {
		o.LoadBalancers = m
	}
	if o.FloatingIPs != nil {
		o.FloatingIPs = m
	}
	if o.SecurityGroups != nil {
		o.SecurityGroups = m
	}
	if o.Networks != nil {
		o.Networks = m
	}
	return o
}

// mark is what a list says about a resource.
type mark struct {
	id      string
	owner   sdn.Owner
	project string
}

// only returns the resources of a list that are Kuryr's.
func only[T any](ctx context.Context, m marks, what string, all []T, lacks error, of func(T) mark) ([]T, error) {
	if lacks != nil && sdn.Partial(lacks) == nil {
		return all, lacks
	}
	own, err := m.o.Visibility.OwnProject(ctx)
	if err != nil || own == "" { // a cloud that does not tell shows no other project's resources
		return all, cmp.Or(err, lacks)
	}
	objects, err := m.o.Projects.objects(ctx)
	if err != nil {
		return nil, err
	}
	used := m.used(objects)
	return slices.DeleteFunc(all, func(one T) bool {
		r, projects := of(one), used
		owner, exists := objects[r.owner]
		if exists {
			projects = owner.projects()
		}
		if slices.ContainsFunc(projects, func(id string) bool { return sdn.SameID(cmp.Or(id, own), cmp.Or(r.project, own)) }) {
			return false
		}
		if _, named := objects.named(r.id); named {
			return false
		}
		if _, bound := m.o.Projects.Named(ctx, tenants.Port, r.id); bound {
			return false
		}
		if exists { // Events of one reason are one Event
			m.events.Eventf(owner.ObjectReference, nil, corev1.EventTypeWarning, v1.ReasonForeignMark, "FindByMark",
				"Kuryr does not use %s %s of project %s: it has Kuryr's mark for this object, but Kuryr makes things for this object in another project. "+
					"If somebody else made it, ask its owner to delete it. If Kuryr made it, Kuryr deletes it after this object, if its project is in use or in `projects` of the configuration", what, r.id, r.project)
		}
		return true
	}), lacks
}

// used returns the projects that Kuryr uses: the credential's own, those of the configuration, and
// those that an object names, also if the configuration does not list them any more.
func (m marks) used(all objects) []string {
	s := m.o.Settings.Load()
	used := []string{"", s.Pods.ProjectID, s.Services.ProjectID}
	for _, p := range s.Projects {
		used = append(used, p.ProjectID)
	}
	for _, o := range all {
		used = append(used, o.projects()...)
	}
	return used
}

func (m marks) ListPorts(ctx context.Context) ([]sdn.PortSummary, error) {
	all, err := m.Ports.ListPorts(ctx)
	return only(ctx, m, "port", all, err, func(p sdn.PortSummary) mark { return mark{p.ID, p.Owner, p.ProjectID} })
}

// Port has to check, too: the annotation of a pod may name any port.
func (m marks) Port(ctx context.Context, id string) (sdn.Port, error) {
	p, err := m.Ports.Port(ctx, id)
	all, err := only(ctx, m, "port", []sdn.Port{p}, err, func(p sdn.Port) mark { return mark{p.ID, p.Owner, p.ProjectID} })
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("port %s is not in the project of its pool: %w", id, sdn.ErrNotFound)
	}
	return p, err
}

func (m marks) ListLoadBalancers(ctx context.Context) ([]sdn.LoadBalancerSummary, error) {
	all, err := m.LoadBalancers.ListLoadBalancers(ctx)
	return only(ctx, m, "load balancer", all, err, func(lb sdn.LoadBalancerSummary) mark { return mark{lb.ID, lb.Owner, lb.ProjectID} })
}

// ListFloatingIPs keeps those without a mark: the caller asks for those of a project that Kuryr uses.
func (m marks) ListFloatingIPs(ctx context.Context, projectID string) ([]sdn.FloatingIP, error) {
	all, err := m.FloatingIPs.ListFloatingIPs(ctx, projectID)
	return only(ctx, m, "floating IP", all, err, func(f sdn.FloatingIP) mark { return mark{f.ID, f.Owner, f.ProjectID} })
}

// ListSecurityGroups asks for no owner: a group is in the project of the members of a load balancer.
func (m marks) ListSecurityGroups(ctx context.Context) ([]sdn.SecurityGroup, error) {
	all, err := m.SecurityGroups.ListSecurityGroups(ctx)
	return only(ctx, m, "security group", all, err, func(g sdn.SecurityGroup) mark { return mark{id: g.ID, project: g.ProjectID} })
}

func (m marks) ListNetworks(ctx context.Context) ([]sdn.NetworkSummary, error) {
	all, err := m.Cloud.ListNetworks(ctx)
	return only(ctx, m, "network", all, err, func(n sdn.NetworkSummary) mark { return mark{n.ID, n.Owner, n.ProjectID} })
}

func (m marks) ListRouters(ctx context.Context) ([]sdn.RouterSummary, error) {
	all, err := m.Cloud.ListRouters(ctx)
	return only(ctx, m, "router", all, err, func(r sdn.RouterSummary) mark { return mark{r.ID, r.Owner, r.ProjectID} })
}
