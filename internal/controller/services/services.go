// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package services plans what a Service of type LoadBalancer needs: it writes a
// KuryrLoadBalancer from the Service and its EndpointSlices, and writes what comes of
// it into the Service's status. What is to be in the KuryrLoadBalancer is the decision
// of package service; to bring it into the cloud is others' work.
//
// A Service is planned when it, one of its EndpointSlices or its KuryrLoadBalancer
// changes, when a pod gets a port whose address an EndpointSlice has, when another
// Service begins or ceases to claim the same, and when the settings change. Each
// Service has one worker at a time; the only state that outlives a round is the version
// of the last write and what subnets hold.
package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/service"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services/status,verbs=patch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch
// +kubebuilder:rbac:groups=openstack.org,resources=kuryrloadbalancers,verbs=get;list;watch;create;patch;delete

// workers is how many Services are planned at once.
const workers = 8

// Reconciler plans: from a Service and its EndpointSlices to a KuryrLoadBalancer,
// and from that one's status to the Service's. Of the cloud it knows what subnets
// there are, and nothing else.
//
// The Service has our finalizer before its KuryrLoadBalancer is made, and loses it
// once that is gone, whoever deleted it.
type Reconciler struct {
	client   client.Client
	live     client.Reader // past the cache
	settings *settings.Live
	subnets  *subnetBook
	backoff  outcome.Backoff
	events   events.EventRecorder
	now      func() time.Time
	wake     kube.Queue[ctrl.Request]
	changed  <-chan struct{} // sent to when the settings have changed

	mu      sync.Mutex
	written map[ctrl.Request]string // version of the last own write of a KuryrLoadBalancer
}

// Options is what a Reconciler needs beyond the manager.
type Options struct {
	Settings *settings.Live
	Subnets  sdn.Subnets
	Backoff  outcome.Backoff
	Now      func() time.Time
}

// New returns what is to be added to mgr once Services are to be served.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	return &Reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), settings: o.Settings, backoff: o.Backoff, now: o.Now,
		subnets: &subnetBook{cloud: o.Subnets, again: o.Backoff.Rejected, now: o.Now},
		events:  mgr.GetEventRecorder("kuryr-controller"), written: map[ctrl.Request]string{},
		changed: o.Settings.Follow(),
	}
}

// Reconcile plans one Service.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	svc, klb, err := r.get(ctx, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case svc == nil: // the API server's garbage collector sees to a KuryrLoadBalancer without its owner
		r.forget(req)
		return ctrl.Result{}, nil
	case klb != nil && r.behind(req, klb):
		return ctrl.Result{}, nil // the event that shows the write is on its way
	case !svc.DeletionTimestamp.IsZero():
		return r.release(ctx, svc, klb)
	}
	if klb != nil && ownerOf(klb) != "" && ownerOf(klb) != svc.UID { // of an earlier Service of that name
		return kube.Retry(r.discard(ctx, klb, svc.UID))
	}
	in, again, err := r.input(ctx, svc, klb)
	if err != nil {
		_, res, err := r.backoff.Outcome(err)
		return res, err
	}
	o := service.Plan(in)
	if o.Verdict == service.Remove {
		return r.release(ctx, svc, klb)
	}
	if o.Verdict == service.Realise {
		err = r.realise(ctx, svc, klb, &o.Spec)
	}
	if err == nil {
		err = r.uncover(ctx, svc)
	}
	if err == nil {
		err = r.report(ctx, svc, klb, &o, settings.ServesServices(&r.settings.Load().Services))
	}
	result, err := kube.Retry(err)
	if result.IsZero() && again > 0 && err == nil {
		result.RequeueAfter = again
	}
	return result, err
}

// get returns the Service and the KuryrLoadBalancer of that name, nil if they are
// not there. They are the cache's.
func (r *Reconciler) get(ctx context.Context, req ctrl.Request) (*corev1.Service, *v1.KuryrLoadBalancer, error) {
	svc, klb := &corev1.Service{}, &v1.KuryrLoadBalancer{}
	if err := r.client.Get(ctx, req.NamespacedName, svc, kube.ReadOnly); apierrors.IsNotFound(err) {
		svc = nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("reading Service %s: %w", req, err)
	}
	if err := r.client.Get(ctx, req.NamespacedName, klb, kube.ReadOnly); apierrors.IsNotFound(err) {
		klb = nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("reading KuryrLoadBalancer %s: %w", req, err)
	}
	return svc, klb, nil
}

// input gathers what the plan depends on. After the time that it returns some of it
// may be known that is not now.
func (r *Reconciler) input(ctx context.Context, svc *corev1.Service, klb *v1.KuryrLoadBalancer) (service.Input, time.Duration, error) {
	in := service.Input{Service: svc}
	if klb != nil {
		in.Previous = &klb.Spec
	}
	if !service.Wanted(svc) {
		return in, 0, nil
	}
	var err error
	if in.Settings, err = r.planSettings(ctx); err != nil {
		return in, 0, err
	}
	if in.Slices, err = r.slices(ctx, svc); err != nil {
		return in, 0, err
	}
	var again time.Duration
	if len(in.Settings.Lost) > 0 {
		again = r.backoff.Rejected
	}
	if in.Rivals, err = r.rivals(ctx, svc); err != nil {
		return in, 0, err
	}
	in.Known, err = r.known(ctx, in.Slices)
	return in, again, err
}

// planSettings returns the settings with what the subnets in them hold.
func (r *Reconciler) planSettings(ctx context.Context) (service.Settings, error) {
	s := r.settings.Load()
	c := &s.Services
	out := service.Settings{
		ProjectID: c.ProjectID, Provider: c.Provider, FlavorID: c.FlavorID,
		ExternalNetworkID: c.ExternalNetworkID, ExternalSubnetID: c.ExternalSubnetID,
		Allowed:               service.Allowed(c.Allowed),
		SourceRangesAtMembers: c.SourceRangesBySecurityGroups,
		TimeoutClientData:     int64(c.TimeoutClientData), TimeoutMemberData: int64(c.TimeoutMemberData),
	}
	if !settings.ServesServices(c) {
		return out, nil
	}
	var lost []string
	var err error
	if out.Services, out.Lost, err = r.subnets.find(ctx, c.SubnetIDs); err != nil {
		return out, err
	}
	if out.Members, lost, err = r.subnets.find(ctx, slices.Concat(s.Pods.AllSubnetIDs(), c.NodeSubnetIDs)); err != nil {
		return out, err
	}
	out.Lost = append(out.Lost, lost...)
	return out, nil
}

// slices returns the EndpointSlices of a Service.
func (r *Reconciler) slices(ctx context.Context, svc *corev1.Service) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := r.client.List(ctx, &list, client.InNamespace(svc.Namespace), client.MatchingFields{sliceService: svc.Name}, kube.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("listing EndpointSlices of Service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	out := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// known returns the subnets of the endpoints that are pods' ports.
func (r *Reconciler) known(ctx context.Context, slices []*discoveryv1.EndpointSlice) (map[netip.Addr]string, error) {
	known := map[netip.Addr]string{}
	for _, s := range slices {
		for i := range s.Endpoints {
			ip, ok := addressOf(&s.Endpoints[i])
			if !ok || known[ip] != "" {
				continue
			}
			var list v1.KuryrPortList
			if err := r.client.List(ctx, &list, client.MatchingFields{kube.PortAddress: ip.String()}, kube.ReadOnly); err != nil {
				return nil, fmt.Errorf("looking for the KuryrPort of %s: %w", ip, err)
			}
			for j := range list.Items {
				if id := subnetOf(&list.Items[j], ip); id != "" {
					known[ip] = id
				}
			}
		}
	}
	return known, nil
}

// subnetOf returns the subnet of one of a port's addresses, if a pod has the port:
// addresses may be there twice, in networks that do not meet.
func subnetOf(port *v1.KuryrPort, ip netip.Addr) string {
	if port.Spec.PodRef == nil {
		return ""
	}
	for _, a := range port.Spec.VIF.Addresses {
		if a.IP == ip.String() {
			return a.SubnetID
		}
	}
	return ""
}

// addressOf returns the address of an endpoint; false if it has none.
func addressOf(e *discoveryv1.Endpoint) (netip.Addr, bool) {
	if len(e.Addresses) == 0 {
		return netip.Addr{}, false
	}
	ip, err := service.ParseAddr(e.Addresses[0])
	return ip, err == nil
}

// realise makes the KuryrLoadBalancer what it is to be, if it is not.
func (r *Reconciler) realise(ctx context.Context, svc *corev1.Service, klb *v1.KuryrLoadBalancer, spec *v1.KuryrLoadBalancerSpec) error {
	if klb != nil && !klb.DeletionTimestamp.IsZero() {
		return nil // it is made anew once it is gone, of which there is an event
	}
	if err := r.hold(ctx, svc); err != nil {
		return err
	}
	if klb != nil && ownerOf(klb) == svc.UID && equality.Semantic.DeepEqual(&klb.Spec, spec) {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return fmt.Errorf("writing KuryrLoadBalancer %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	u.SetGroupVersionKind(v1.GroupVersion.WithKind("KuryrLoadBalancer"))
	u.SetNamespace(svc.Namespace)
	u.SetName(svc.Name)
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID}})
	if err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), kube.OwnerService, client.ForceOwnership); err != nil {
		return fmt.Errorf("writing KuryrLoadBalancer %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	r.wrote(requestFor(svc), u.GetResourceVersion())
	if klb != nil && klb.ResourceVersion == u.GetResourceVersion() {
		return r.strip(ctx, klb, spec) // all of ours was there
	}
	ctrl.LoggerFrom(ctx).V(1).Info("planned load balancer", "listeners", len(spec.Listeners), "new", klb == nil)
	return nil
}

// strip takes out of a KuryrLoadBalancer what is not planned: somebody else has
// written that, and an apply takes away its own only.
func (r *Reconciler) strip(ctx context.Context, klb *v1.KuryrLoadBalancer, spec *v1.KuryrLoadBalancerSpec) error {
	old := &v1.KuryrLoadBalancer{ObjectMeta: *klb.ObjectMeta.DeepCopy(), Spec: *klb.Spec.DeepCopy()}
	next := old.DeepCopy()
	next.Spec = *spec
	err := r.client.Patch(ctx, next, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), kube.OwnerService)
	if err = kube.Lost(err); err != nil {
		return fmt.Errorf("taking what is not planned out of KuryrLoadBalancer %s/%s: %w", klb.Namespace, klb.Name, err)
	}
	r.wrote(kube.RequestOf(klb), next.ResourceVersion)
	ctrl.LoggerFrom(ctx).V(1).Info("took out of a KuryrLoadBalancer what somebody had written")
	return nil
}

// patch changes the metadata of a Service, if nobody else has meanwhile. It does so by
// the status subresource, as Kubernetes' own service controller does: who may write that
// alone cannot change a Service's spec.
func (r *Reconciler) patch(ctx context.Context, svc *corev1.Service, change func(client.Object)) error {
	old := &corev1.Service{ObjectMeta: *svc.ObjectMeta.DeepCopy()}
	next := old.DeepCopy()
	change(next)
	err := r.client.Status().Patch(ctx, next, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), kube.OwnerService)
	if err = kube.Lost(err); err != nil {
		return fmt.Errorf("writing metadata of Service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	return nil
}

// behind reports whether the cache does not show the last own write yet.
func (r *Reconciler) behind(req ctrl.Request, klb *v1.KuryrLoadBalancer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	version := r.written[req]
	if version != "" && kube.Older(klb.ResourceVersion, version) {
		return true
	}
	delete(r.written, req)
	return false
}

func (r *Reconciler) forget(req ctrl.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, req)
}

func (r *Reconciler) wrote(req ctrl.Request, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[req] = version
}
