// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/balancers"
	"github.com/kuryr-go/kuryr/internal/controller/clusterips"
	"github.com/kuryr-go/kuryr/internal/controller/collector"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/membergroups"
	"github.com/kuryr-go/kuryr/internal/controller/services"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

var servicesBlocked = kube.Gauge("kuryr_services_blocked", "1 if a CRD or a permission of the controller that Services need is missing.")

// reconciler is a part that is added to the manager once Services are to be served.
type reconciler interface{ Setup(ctrl.Manager) error }

func addAll(mgr ctrl.Manager, parts []reconciler) error {
	for _, part := range parts {
		if err := part.Setup(mgr); err != nil {
			return err
		}
	}
	return nil
}

// setupServices adds what serves Services once they are to be served. It also adds what deletes
// security groups that are left over when Services are not served any more.
func setupServices(mgr ctrl.Manager, o Options, grants *membergroups.Groups, networks *kube.Networks) error {
	making := &kube.Owners{}
	parts := []reconciler{grants}
	groups := collector.GroupOptions{Cloud: o.SecurityGroups, Settings: o.Settings, Shards: o.Shards, Members: grants, Making: making}
	if o.LoadBalancers != nil {
		holder := clusterips.New(mgr, clusterips.Options{
			Cloud: o.LoadBalancers, Namespace: o.Namespace, Shards: o.Shards, Backoff: o.Backoff,
		})
		applier := balancers.New(mgr, balancers.Options{
			Cloud:   balancers.Cloud{LoadBalancers: o.LoadBalancers, FloatingIPs: o.FloatingIPs, SecurityGroups: o.SecurityGroups},
			Members: grants, Making: making,
			Settings: o.Settings, Shards: o.Shards, Backoff: o.Backoff, Mend: o.Mend, Stuck: o.Stuck, Late: o.Late, Holder: holder, Now: time.Now,
		})
		groups.Applier = applier
		parts = append(parts, holder, applier, collector.LoadBalancers(mgr, collector.LoadBalancerOptions{
			Cloud: o.LoadBalancers, FloatingIPs: o.FloatingIPs, Settings: o.Settings, Shards: o.Shards, Applier: applier,
		}))
	}
	if o.Subnets != nil {
		parts = append(parts, services.New(mgr, services.Options{
			Settings: o.Settings, Shards: o.Shards, Subnets: o.Subnets, Networks: networks, Backoff: o.Backoff, Clock: o.Clock,
		}))
	}
	if o.LoadBalancers != nil || o.Subnets != nil {
		feature := &kube.Feature{
			Parts:   servicesParts{o.Settings, o.Shards, mgr.GetAPIReader(), o.Projects, parts},
			Wanted:  o.Settings.Serving,
			Needs:   permissionsForServices,
			Kinds:   []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &v1.KuryrLoadBalancer{}},
			Without: "Services are not served, only pods are", Tell: o.Tell, Blocked: servicesBlocked, Retry: o.Backoff.Rejected, Shards: o.Shards,
		}
		if err := feature.AddTo(mgr); err != nil {
			return err
		}
	}
	if o.SecurityGroups == nil {
		return nil
	}
	return collector.SecurityGroups(mgr, groups).Setup(mgr)
}

// servicesParts are what serves Services. It is also added while something of Services is left:
// otherwise the deletion of a Service could wait forever.
type servicesParts struct {
	settings *settings.Live
	shards   kube.Shards
	live     client.Reader // reads past the cache
	projects *Projects
	parts    []reconciler
}

// Wanted implements kube.Parts.
func (s servicesParts) Wanted() bool { return settings.ServesServices(&s.settings.Load().Services) }

// Lacks implements kube.Parts. No other part has to know.
func (s servicesParts) Lacks() {}

// Add implements kube.Parts.
func (s servicesParts) Add(ctx context.Context, mgr ctrl.Manager) error {
	s.shards.Cached(&v1.KuryrLoadBalancerList{})
	err := errors.Join(services.Index(ctx, mgr), kube.AddPortAddressIndex(ctx, mgr), membergroups.Index(ctx, mgr))
	if err == nil {
		s.projects.balancers.Store(true) // the parts may ask
		err = addAll(mgr, s.parts)
	}
	if err != nil {
		return fmt.Errorf("setting up the reconcilers of Services: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("serving Services")
	return nil
}

// Left reports whether the cluster has a KuryrLoadBalancer, a Service with Kuryr's
// finalizer, or a Service that holds a cluster IP. A controller without the permission to list them
// has created none.
func (s servicesParts) Left(ctx context.Context) (bool, error) {
	first := metaList(v1.GroupVersion.WithKind("KuryrLoadBalancerList"))
	err := s.live.List(ctx, first, client.Limit(1))
	if kube.NotServed(err) {
		return false, nil
	}
	if err != nil || len(first.Items) > 0 {
		return err == nil, err
	}
	for next := ""; ; {
		page := metaList(corev1.SchemeGroupVersion.WithKind("ServiceList"))
		if err := s.live.List(ctx, page, client.Limit(500), client.Continue(next)); kube.NotServed(err) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		for i := range page.Items {
			_, holds := page.Items[i].Labels[v1.ClusterIPHolderLabel]
			if holds || slices.Contains(page.Items[i].Finalizers, v1.ServiceFinalizer) {
				return true, nil
			}
		}
		if next = page.Continue; next == "" {
			return false, nil
		}
	}
}

func metaList(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	return list
}
