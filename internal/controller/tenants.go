// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/tenants"
)

// Tenants returns the projects that have a credential of their own.
func Tenants(projects []config.Project) []tenants.Tenant {
	var out []tenants.Tenant
	for _, p := range projects {
		if p.Cloud != "" {
			out = append(out, tenants.Tenant{ProjectID: p.ProjectID, Cloud: p.Cloud})
		}
	}
	return out
}

// Projects knows the projects of cloud resources that objects name. It reads the cache. A kind that
// is not served is not in the cache, and a read would wait for it forever: none is read before Setup
// serves it.
type Projects struct {
	cache               client.Reader
	networks, balancers atomic.Bool // the kind is served
}

// NewProjects returns Projects that read from a cache.
func NewProjects(cache client.Reader) *Projects { return &Projects{cache: cache} }

// Named returns the project that an object names for a resource; false: no object names it.
func (p *Projects) Named(ctx context.Context, kind tenants.Kind, id string) (projectID string, ok bool) {
	if kind == tenants.Port {
		var kp v1.KuryrPort
		err := p.cache.Get(ctx, client.ObjectKey{Name: id}, &kp, kube.ReadOnly)
		return kp.Spec.ProjectID, err == nil
	}
	all, _ := p.objects(ctx)
	return all.named(id)
}

// object is what an object says about the resources that Kuryr makes for it.
type object struct {
	*corev1.ObjectReference
	project string            // of what is made next
	names   map[string]string // by ID of a resource that it names: the project where that is
}

// projects returns the project of what is made next, and those of what was made before it changed.
func (o object) projects() []string {
	return slices.AppendSeq([]string{o.project}, maps.Values(o.names))
}

// objects are those that resources are made for, by what their resources name as owner.
type objects map[sdn.Owner]object

func (all objects) named(id string) (projectID string, ok bool) {
	for _, o := range all {
		if projectID, ok = o.names[id]; ok {
			break
		}
	}
	return projectID, ok
}

// objects returns all objects of the kinds that are served.
func (p *Projects) objects(ctx context.Context) (objects, error) {
	var pools v1.KuryrPortPoolList
	var networks v1.KuryrNetworkList
	var balancers v1.KuryrLoadBalancerList
	for list, served := range map[client.ObjectList]bool{&pools: true, &networks: p.networks.Load(), &balancers: p.balancers.Load()} {
		if !served {
			continue
		}
		if err := p.cache.List(ctx, list, kube.ReadOnly); err != nil {
			return nil, fmt.Errorf("listing the objects that resources are made for: %w", err)
		}
	}
	out := objects{}
	for i := range pools.Items {
		o := &pools.Items[i]
		out[sdn.Owner{Kind: sdn.KindPool, Name: o.Name}] = object{kube.Reference(o, "KuryrPortPool"), o.Spec.Key.ProjectID, nil}
	}
	for i := range networks.Items {
		o, names := &networks.Items[i], map[string]string{}
		if o.Spec.Mode == v1.NetworkNamespace || o.Spec.Mode == v1.NetworkFlat { // Kuryr has made what it names
			names[o.Status.NetworkID] = o.Spec.ProjectID
			if o.Spec.Router != nil {
				names[o.Status.RouterID] = o.Spec.ProjectID
			}
			for _, s := range o.Status.Subnets {
				names[s.ID] = o.Spec.ProjectID
			}
		}
		out[sdn.Owner{Kind: sdn.KindNetwork, Namespace: o.Namespace, Name: o.Name}] = object{kube.Reference(o, "KuryrNetwork"), o.Spec.ProjectID, names}
	}
	for i := range balancers.Items {
		o, names := &balancers.Items[i], map[string]string{}
		names[o.Status.SecurityGroupID] = o.Spec.ProjectID
		if o.Status.PublicIP != nil {
			names[o.Status.PublicIP.ID] = o.Spec.ProjectID
		}
		for _, lb := range slices.Backward(o.Status.LoadBalancers) {
			names[lb.ID], names[o.Status.SecurityGroupID] = lb.ProjectID, lb.ProjectID
			if o.Status.PublicIP != nil {
				names[o.Status.PublicIP.ID] = lb.ProjectID
			}
		}
		out[sdn.Owner{Kind: sdn.KindLoadBalancer, Namespace: o.Namespace, Name: o.Name}] = object{kube.Reference(o, "KuryrLoadBalancer"), o.Spec.ProjectID, names}
	}
	return out, nil
}
