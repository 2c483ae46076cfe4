// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/service"
)

// The fields that the cache is indexed by.
const (
	serviceClaim = "spec.externalIPs,ports" // service.Claims
	sliceService = "service"                // name of the Service that owns an EndpointSlice
	sliceAddress = "endpoints.addresses"    // the addresses that members are made of
)

// Index adds the indexes that a Reconciler needs, except that of KuryrPorts by address.
func Index(ctx context.Context, mgr ctrl.Manager) error {
	return errors.Join(
		kube.AddIndex(ctx, mgr, &corev1.Service{}, serviceClaim, claimsOf),
		kube.AddIndex(ctx, mgr, &discoveryv1.EndpointSlice{}, sliceService, serviceOfSlice),
		kube.AddIndex(ctx, mgr, &discoveryv1.EndpointSlice{}, sliceAddress, addressesOfSlice),
	)
}

// Setup adds the reconciler to mgr. The caches of mgr must have the kinds and the indexes.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	period := func() time.Duration { return settings.CheckInterval(r.Settings.Load().Services.CheckInterval.Duration) }
	follow, look := kube.Runnable(r.Settings.Follow(r.reload)), kube.Every("subnets", period, r.lookAtSubnets, nil)
	if err := errors.Join(mgr.Add(follow), mgr.Add(look)); err != nil {
		return err
	}
	key := kube.ByObject(r.client, &corev1.Service{})
	r.Shards.Follow(nil, r.objects.Forget) // the prefixes of subnets are those of all
	return ctrl.NewControllerManagedBy(mgr).Named("services").
		WithOptions(outcome.Options[ctrl.Request](workers, r.Backoff)).
		For(&corev1.Service{}).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(planOf)).
		Watches(&v1.KuryrLoadBalancer{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: balancerMoved})).
		Watches(&v1.KuryrPort{}, handler.EnqueueRequestsFromMapFunc(r.servedBy), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: portGiven, DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.rivalsOf), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool { return !slices.Equal(claimsOf(e.ObjectOld), claimsOf(e.ObjectNew)) },
		})).
		Watches(kube.NamespaceMeta(), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, ns client.Object) []reconcile.Request {
			return r.servicesIn(ctx, ns.GetName())
		}), builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(r.wake.Source()).
		WatchesRawSource(source.Func(r.followNetworks)).
		WatchesRawSource(kube.Gained(r.Shards, key, kube.AllOf(r.client, &corev1.ServiceList{}))).
		Complete(kube.Sharded(r.Shards, key, r))
}

func serviceOfSlice(o client.Object) []string {
	if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
		return []string{name}
	}
	return nil
}

func addressesOfSlice(o client.Object) []string {
	s := o.(*discoveryv1.EndpointSlice)
	var ips []string
	for i := range s.Endpoints {
		if ip, ok := addressOf(&s.Endpoints[i]); ok {
			ips = append(ips, ip.String())
		}
	}
	slices.Sort(ips)
	return slices.Compact(ips)
}

// planOf returns the Service that an EndpointSlice belongs to.
func planOf(_ context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range serviceOfSlice(o) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
	}
	return requests
}

// servedBy returns the Services that have an address of a port among their endpoints. The
// EndpointSlice may have arrived before the KuryrPort.
func (r *Reconciler) servedBy(ctx context.Context, o client.Object) []reconcile.Request {
	if o.(*v1.KuryrPort).Spec.PodRef == nil {
		return nil
	}
	var requests []reconcile.Request
	for _, ip := range kube.AddressesOfPort(o) {
		var list discoveryv1.EndpointSliceList
		if err := r.client.List(ctx, &list, client.MatchingFields{sliceAddress: ip}, kube.ReadOnly); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot find the Services that have an address", "ip", ip)
			continue
		}
		for i := range list.Items {
			requests = append(requests, planOf(ctx, &list.Items[i])...)
		}
	}
	return requests
}

// portGiven reports whether a pod has got a port that was free.
func portGiven(e event.UpdateEvent) bool {
	return e.ObjectOld.(*v1.KuryrPort).Spec.PodRef == nil && e.ObjectNew.(*v1.KuryrPort).Spec.PodRef != nil
}

// balancerMoved reports whether a KuryrLoadBalancer has changed in a way that its Service depends
// on. Most updates are about members, which the Service's status does not show.
func balancerMoved(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*v1.KuryrLoadBalancer), e.ObjectNew.(*v1.KuryrLoadBalancer)
	return a.Generation != b.Generation || ownerOf(a) != ownerOf(b) || a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() ||
		publicIP(a) != publicIP(b) || service.HasServed(&a.Status) != service.HasServed(&b.Status) ||
		service.Refused(&a.Status) != service.Refused(&b.Status) || !slices.EqualFunc(a.Status.LoadBalancers, b.Status.LoadBalancers, func(x, y v1.LoadBalancerStatus) bool { return x.IP == y.IP })
}

func publicIP(klb *v1.KuryrLoadBalancer) string {
	if klb.Status.PublicIP == nil {
		return ""
	}
	return klb.Status.PublicIP.IP
}

// claimsOf returns the ports of external IPs that a Service claims.
func claimsOf(o client.Object) []string {
	var claims []string
	for _, c := range service.Claims(o.(*corev1.Service)) {
		claims = append(claims, c.String())
	}
	return claims
}

// rivals returns the other Services that claim the same as a Service. The index returns only real
// conflicts, whatever the number of Services.
func (r *Reconciler) rivals(ctx context.Context, svc *corev1.Service) ([]*corev1.Service, error) {
	var rivals []*corev1.Service
	for _, claim := range claimsOf(svc) {
		var list corev1.ServiceList
		if err := r.client.List(ctx, &list, client.MatchingFields{serviceClaim: claim}, kube.ReadOnly); err != nil {
			return nil, fmt.Errorf("listing Services with external IP %s: %w", claim, err)
		}
		for i := range list.Items {
			if list.Items[i].UID != svc.UID {
				rivals = append(rivals, &list.Items[i])
			}
		}
	}
	return rivals, nil
}

// rivalsOf requeues the Services that a change of a Service's claims concerns.
func (r *Reconciler) rivalsOf(ctx context.Context, o client.Object) []reconcile.Request {
	rivals, err := r.rivals(ctx, o.(*corev1.Service))
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the Services that claim the same address and port", "service", client.ObjectKeyFromObject(o))
	}
	var requests []reconcile.Request
	for _, svc := range rivals {
		requests = append(requests, kube.RequestOf(svc))
	}
	return requests
}

// reload plans all Services again after the settings have changed.
func (r *Reconciler) reload(ctx context.Context) error {
	r.ranges.ForgetErrors()
	r.planAll(ctx)
	return r.lookAtSubnets(ctx)
}

// planAll requeues all Services.
func (r *Reconciler) planAll(ctx context.Context) {
	for _, req := range r.servicesIn(ctx, "") {
		r.wake.Add(req)
	}
}
