// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
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
	switch {
	case kind == tenants.Port:
		var kp v1.KuryrPort
		err := p.cache.Get(ctx, client.ObjectKey{Name: id}, &kp, kube.ReadOnly)
		return kp.Spec.ProjectID, err == nil
	case kind == tenants.Network && p.networks.Load():
		return projectOfNetwork(ctx, p.cache, id)
	case kind == tenants.Balancer && p.balancers.Load():
		return projectOfBalancer(ctx, p.cache, id)
	}
	return "", false
}

// projectOfNetwork finds a network that Kuryr made, or one of its subnets, or its own router.
func projectOfNetwork(ctx context.Context, cache client.Reader, id string) (string, bool) {
	var list v1.KuryrNetworkList
	if err := cache.List(ctx, &list, kube.ReadOnly); err != nil {
		return "", false
	}
	for i := range list.Items {
		kn := &list.Items[i]
		if kn.Spec.Mode != v1.NetworkNamespace && kn.Spec.Mode != v1.NetworkFlat {
			continue
		}
		if kn.Status.NetworkID == id || kn.Spec.Router != nil && kn.Status.RouterID == id || slices.ContainsFunc(kn.Status.Subnets, func(s v1.NetworkSubnetStatus) bool { return s.ID == id }) {
			return kn.Spec.ProjectID, true
		}
	}
	return "", false
}

// projectOfBalancer finds a load balancer, its floating IP or its security group.
func projectOfBalancer(ctx context.Context, cache client.Reader, id string) (string, bool) {
	var list v1.KuryrLoadBalancerList
	if err := cache.List(ctx, &list, kube.ReadOnly); err != nil {
		return "", false
	}
	for i := range list.Items {
		klb := &list.Items[i]
		for _, lb := range klb.Status.LoadBalancers {
			if lb.ID == id || klb.Status.SecurityGroupID == id || klb.Status.PublicIP != nil && klb.Status.PublicIP.ID == id {
				return lb.ProjectID, true
			}
		}
	}
	return "", false
}
