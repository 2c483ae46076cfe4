// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/balancers"
	"github.com/kuryr-go/kuryr/internal/controller/clusterips"
	"github.com/kuryr-go/kuryr/internal/controller/collector"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/membergroups"
	"github.com/kuryr-go/kuryr/internal/controller/services"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

var servicesBlocked = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "kuryr_services_blocked",
	Help: "1 while Services are to be served and the API server lacks a kind for it, or the controller a permission.",
})

func init() { metrics.Registry.MustRegister(servicesBlocked) }

// reconciler is a part that is added to the manager once Services are to be served.
type reconciler interface{ Setup(ctrl.Manager) error }

// setupServices adds what serves Services once they are to be served. It also adds what deletes
// security groups that are left over when Services are not served any more.
func setupServices(mgr ctrl.Manager, o Options, grants *membergroups.Groups, networks *kube.Networks) error {
	making := &kube.Owners{}
	groups := collector.GroupOptions{Cloud: o.SecurityGroups, Settings: o.Settings, Members: grants, Making: making}
	reconcilers := []reconciler{grants}
	if o.LoadBalancers != nil {
		holder := clusterips.New(mgr, clusterips.Options{
			List: o.LoadBalancers.ListLoadBalancers, Get: o.LoadBalancers.LoadBalancer, Namespace: o.Namespace, Backoff: o.Backoff,
		})
		applier := balancers.New(mgr, balancers.Options{
			Cloud:   balancers.Cloud{LoadBalancers: o.LoadBalancers, FloatingIPs: o.FloatingIPs, SecurityGroups: o.SecurityGroups},
			Subnets: o.Subnets, Members: grants, Making: making,
			Settings: o.Settings, Backoff: o.Backoff, Mend: o.Mend, Stuck: o.Stuck, Holder: holder, Now: time.Now,
		})
		groups.Applier = applier
		reconcilers = append(reconcilers, holder, applier, collector.LoadBalancers(mgr, collector.LoadBalancerOptions{
			Cloud: o.LoadBalancers, FloatingIPs: o.FloatingIPs, Settings: o.Settings, Applier: applier,
		}))
	}
	if o.Subnets != nil {
		reconcilers = append(reconcilers, services.New(mgr, services.Options{
			Settings: o.Settings, Subnets: o.Subnets, Networks: networks, Backoff: o.Backoff, Clock: o.Clock,
		}))
	}
	if o.LoadBalancers != nil || o.Subnets != nil {
		if err := servicesFeature(mgr, o, reconcilers).AddTo(mgr); err != nil {
			return err
		}
	}
	if o.SecurityGroups == nil {
		return nil
	}
	return collector.SecurityGroups(mgr, groups).Setup(mgr)
}

// servicesFeature returns the feature that serves Services. It is also on while something of
// Services is left: otherwise the deletion of a Service could wait forever.
func servicesFeature(mgr ctrl.Manager, o Options, reconcilers []reconciler) *kube.Feature {
	return &kube.Feature{
		Wanted:  o.Settings.Serving,
		Still:   func() bool { return settings.ServesServices(&o.Settings.Load().Services) },
		Left:    func(ctx context.Context) (bool, error) { return servicesLeft(ctx, mgr.GetAPIReader()) },
		Needs:   servicesNeed,
		Kinds:   []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &v1.KuryrLoadBalancer{}},
		Without: "Services are not served, only pods are", Tell: o.Tell, Blocked: servicesBlocked, Retry: o.Backoff.Rejected,
		Add: func(ctx context.Context, mgr ctrl.Manager) error {
			if err := addServices(ctx, mgr, o.Projects, reconcilers); err != nil {
				return fmt.Errorf("setting up the reconcilers of Services: %w", err)
			}
			ctrl.LoggerFrom(ctx).Info("serving Services")
			return nil
		},
	}
}

// servicesNeed are the permissions that serving Services needs beyond those for pods.
var servicesNeed = []kube.Need{
	{Resource: "services", Verbs: []string{"get", "list", "watch"}},
	{Resource: "services", Subresource: "status", Verbs: []string{"patch"}},
	{Group: discoveryv1.GroupName, Resource: "endpointslices", Verbs: []string{"list", "watch"}},
	{Group: v1.GroupVersion.Group, Resource: "kuryrloadbalancers", Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
	{Group: v1.GroupVersion.Group, Resource: "kuryrloadbalancers", Subresource: "status", Verbs: []string{"patch"}},
}

func addServices(ctx context.Context, mgr ctrl.Manager, projects *Projects, reconcilers []reconciler) error {
	for _, index := range []func(context.Context, ctrl.Manager) error{services.Index, kube.AddPortAddressIndex, membergroups.Index} {
		if err := index(ctx, mgr); err != nil {
			return err
		}
	}
	projects.balancers.Store(true) // the parts below may ask
	for _, r := range reconcilers {
		if err := r.Setup(mgr); err != nil {
			return err
		}
	}
	return nil
}

// servicesLeft reports whether the cluster has a KuryrLoadBalancer, a Service with Kuryr's
// finalizer, or a Service that holds a cluster IP. A controller without the permission to list them
// has created none.
func servicesLeft(ctx context.Context, live client.Reader) (bool, error) {
	balancers := metaList(v1.GroupVersion.WithKind("KuryrLoadBalancerList"))
	err := live.List(ctx, balancers, client.Limit(1))
	if kube.NotServed(err) {
		return false, nil
	}
	if err != nil || len(balancers.Items) > 0 {
		return err == nil, err
	}
	for next := ""; ; {
		page := metaList(corev1.SchemeGroupVersion.WithKind("ServiceList"))
		if err := live.List(ctx, page, client.Limit(500), client.Continue(next)); kube.NotServed(err) {
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
