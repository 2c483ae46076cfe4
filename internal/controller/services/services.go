// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package services plans the load balancer of a Service. It writes a KuryrLoadBalancer from the
// Service and its EndpointSlices. It then copies the result into the Service's status. Package
// service decides what the KuryrLoadBalancer contains. Package balancers applies the
// KuryrLoadBalancer to the cloud.
//
// A Service is planned when the Service, one of its EndpointSlices or its KuryrLoadBalancer
// changes. It is planned when a pod gets a port that has the address of an endpoint. It is planned
// when another Service begins or ceases to claim the same external IP and port. All Services are
// planned when the settings change.
//
// One worker at a time plans a given Service. Two things outlive a round: the resource version of
// the last write, and the address ranges of subnets.
package services

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/service"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// workers is how many Services are planned concurrently.
const workers = 8

// Reconciler plans load balancers. It writes a KuryrLoadBalancer from a Service and its
// EndpointSlices. It writes the Service's status from the status of the KuryrLoadBalancer. The
// subnets are all that it reads from the cloud.
//
// The Service gets Kuryr's finalizer before its KuryrLoadBalancer is created. The Service loses the
// finalizer once the KuryrLoadBalancer is gone, also if somebody else deleted it.
type Reconciler struct {
	Options
	client  client.Client
	live    client.Reader                       // reads past the cache
	ranges  sdn.Answers[string, service.Subnet] // see lookAtSubnets
	events  events.EventRecorder
	wake    kube.Queue[ctrl.Request]
	objects *kube.Object[*v1.KuryrLoadBalancer]
}

// networks knows the KuryrNetworks of namespaces.
type networks interface {
	// Of returns the KuryrNetwork of a namespace; nil if it has none. known is false as long as the
	// cache does not have them.
	Of(ctx context.Context, namespace string) (network *v1.KuryrNetwork, known bool, err error)
	Lacking() bool // there are no KuryrNetworks to read
	// Follow has moved called with a namespace after each event of its KuryrNetwork.
	Follow(moved func(namespace string))
}

// Options is what a Reconciler needs beyond the manager.
type Options struct {
	Settings *settings.Live
	Shards   kube.Shards // the namespaces whose Services are planned here
	Subnets  sdn.Subnets
	Networks networks
	Backoff  outcome.Backoff
	Clock    clock.PassiveClock // of the plans
}

// New returns a Reconciler. Setup adds it to mgr once Services are to be served.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	r := &Reconciler{
		Options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorder("kuryr-controller"),
		ranges:  sdn.Answers[string, service.Subnet]{KeepError: o.keepError, Patience: subnetPatience},
		objects: kube.NewObject(mgr.GetClient(), &v1.KuryrLoadBalancer{}, "KuryrLoadBalancer", kube.OwnerService, v1.LoadBalancerFinalizer),
	}
	r.objects.Live = r.live
	return r
}

// Reconcile plans one Service.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	klb, state, err := r.objects.Get(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if state == kube.Gone {
		klb = nil
	}
	svc := &corev1.Service{} // shared with the cache: read-only
	switch err := r.client.Get(ctx, req.NamespacedName, svc, kube.ReadOnly); {
	case apierrors.IsNotFound(err): // Kubernetes' garbage collector deletes a KuryrLoadBalancer without an owner
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading Service %s: %w", req, err)
	case !svc.DeletionTimestamp.IsZero():
		return r.release(ctx, svc, klb)
	}
	// The KuryrLoadBalancer is of an earlier Service of the same name.
	if klb != nil && ownerOf(klb) != "" && ownerOf(klb) != svc.UID {
		return kube.Retry(r.discard(ctx, klb))
	}
	in, again, err := r.input(ctx, svc, klb)
	if err != nil {
		return r.Backoff.Result(outcome.Of(outcome.Subnet, err))
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
	if err == nil && settings.ServesServices(&r.Settings.Load().Services) { // otherwise it stays as it is
		err = r.report(ctx, svc, klb, &o)
	}
	again = cmp.Or(o.Again, again)
	result, err := kube.Retry(err)
	if result.IsZero() && again > 0 && err == nil {
		result.RequeueAfter = again
	}
	return result, err
}

// input gathers what the plan depends on. Part of it may be unknown now: a duration above zero is
// when to plan again.
func (r *Reconciler) input(ctx context.Context, svc *corev1.Service, klb *v1.KuryrLoadBalancer) (service.Input, time.Duration, error) {
	made := klb != nil && (len(klb.Status.LoadBalancers) > 0 || klb.Status.PublicIP != nil)
	in := service.Input{Service: svc, Made: made, Now: r.Clock.Now()}
	if klb != nil {
		in.Previous = &klb.Spec
	}
	if !service.Wanted(svc) {
		return in, 0, nil
	}
	rules := r.Settings.Rules()
	home, err := r.homeOf(ctx, rules, svc.Namespace)
	if err != nil {
		return in, 0, err
	}
	if in.Settings, err = r.planSettings(ctx, rules); err != nil {
		return in, 0, err
	}
	if in.Slices, err = r.slices(ctx, svc); err != nil {
		return in, 0, err
	}
	var again time.Duration
	if len(in.Settings.Lost) > 0 {
		again = r.Backoff.Rejected
	}
	if in.Rivals, err = r.rivals(ctx, svc); err != nil {
		return in, 0, err
	}
	in.Known, home.Foreign, err = r.known(ctx, rules, &home, svc.Namespace, in.Slices)
	in.Namespace = home.Namespace
	return in, again, err
}

// planSettings returns the settings, with the address ranges of the subnets that they name.
func (r *Reconciler) planSettings(ctx context.Context, s *settings.Rules) (service.Settings, error) {
	c := &s.Services
	out := service.Settings{
		ProjectID: c.ProjectID, Projects: projectsOf(s), PodRanges: podRanges(s), Provider: c.Provider, FlavorID: c.FlavorID,
		ExternalNetworkID: c.ExternalNetworkID, ExternalSubnetID: c.ExternalSubnetID,
		Allowed:               service.Allowed(c.Allowed),
		SourceRangesAtMembers: c.SourceRangesBySecurityGroups,
	}
	if !settings.ServesServices(c) {
		return out, nil
	}
	var lost []string
	var err error
	if out.Services, out.Lost, err = r.find(ctx, c.SubnetIDs); err != nil {
		return out, err
	}
	if out.Members, lost, err = r.find(ctx, memberSubnets(s)); err != nil {
		return out, err
	}
	out.Lost = append(out.Lost, lost...)
	return out, nil
}

// memberSubnets returns the subnets of the settings that may have members.
func memberSubnets(s *settings.Rules) []string {
	return slices.Concat(s.Pods.AllSubnetIDs(), s.Services.NodeSubnetIDs)
}

// slices returns the EndpointSlices of a Service. Those of an earlier Service of that name are about
// to be deleted.
func (r *Reconciler) slices(ctx context.Context, svc *corev1.Service) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := r.client.List(ctx, &list, client.InNamespace(svc.Namespace), client.MatchingFields{sliceService: svc.Name}, kube.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("listing EndpointSlices of Service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	var out []*discoveryv1.EndpointSlice
	for i := range list.Items {
		if o := metav1.GetControllerOf(&list.Items[i]); o == nil || o.Kind != "Service" || o.UID == svc.UID {
			out = append(out, &list.Items[i])
		}
	}
	return out, nil
}

// known returns the subnet of each endpoint that is the port of a pod. Those of pods of other
// projects are in foreign.
func (r *Reconciler) known(ctx context.Context, rules *settings.Rules, h *home, namespace string, slices []*discoveryv1.EndpointSlice) (known, foreign map[netip.Addr]string, err error) {
	known, foreign = map[netip.Addr]string{}, map[netip.Addr]string{}
	for _, s := range slices {
		for i := range s.Endpoints {
			ip, ok := addressOf(&s.Endpoints[i])
			if !ok || known[ip] != "" || foreign[ip] != "" {
				continue
			}
			ports, err := kube.PortsAt(ctx, r.client, ip.String())
			if err != nil {
				return nil, nil, err
			}
			port := likeliest(ports, namespace)
			if port == nil {
				continue
			}
			theirs, _, err := r.Networks.Of(ctx, port.Spec.PodRef.Namespace)
			if err != nil {
				return nil, nil, err
			}
			if h.isForeign(rules, port, namespace, theirs) {
				foreign[ip] = subnetOf(port, ip)
			} else {
				known[ip] = subnetOf(port, ip)
			}
		}
	}
	return known, foreign, nil
}

// likeliest returns the port that an endpoint of a namespace's Service most likely is; nil if no
// pod has one. Two ports may have the same address, in networks that are not connected. That of a
// pod of the namespace counts then.
func likeliest(ports []*v1.KuryrPort, namespace string) (likely *v1.KuryrPort) {
	for _, p := range ports {
		switch ref := p.Spec.PodRef; {
		case ref == nil:
		case ref.Namespace == namespace:
			return p
		case likely == nil || p.Name < likely.Name:
			likely = p
		}
	}
	return likely
}

// subnetOf returns the subnet of one address of a port.
func subnetOf(port *v1.KuryrPort, ip netip.Addr) string {
	for _, a := range port.Spec.VIF.Addresses {
		if a.IP == ip.String() {
			return a.SubnetID
		}
	}
	return ""
}

// addressOf returns the address of an endpoint. It returns false if the endpoint has none.
func addressOf(e *discoveryv1.Endpoint) (netip.Addr, bool) {
	if len(e.Addresses) == 0 {
		return netip.Addr{}, false
	}
	ip, err := service.ParseAddr(e.Addresses[0])
	return ip, err == nil
}

// realise creates the KuryrLoadBalancer, or updates it where it differs from the plan.
func (r *Reconciler) realise(ctx context.Context, svc *corev1.Service, klb *v1.KuryrLoadBalancer, spec *v1.KuryrLoadBalancerSpec) error {
	if klb != nil && !klb.DeletionTimestamp.IsZero() {
		// It is created again once it is gone: its deletion sends an event.
		return nil
	}
	if err := r.hold(ctx, svc); err != nil {
		return err
	}
	if klb != nil && ownerOf(klb) == svc.UID && equality.Semantic.DeepEqual(&klb.Spec, spec) {
		return nil
	}
	next := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
	if klb != nil {
		next = klb.DeepCopy()
	}
	next.Spec = *spec
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID}
	if err := r.objects.Apply(ctx, klb, next, spec, owner); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).V(1).Info("planned load balancer", "listeners", len(spec.Listeners), "new", klb == nil)
	return nil
}

// patch changes the metadata and the status of a Service. It writes nothing if both stay the same, or
// if another client has changed the Service meanwhile. It reports whether it has written.
//
// It uses the status subresource, as Kubernetes' own service controller does. A controller with
// rights to that subresource alone cannot change a Service's spec.
func (r *Reconciler) patch(ctx context.Context, svc *corev1.Service, change func(*corev1.Service)) (bool, error) {
	old := &corev1.Service{ObjectMeta: *svc.ObjectMeta.DeepCopy(), Status: *svc.Status.DeepCopy()}
	next := old.DeepCopy()
	change(next)
	if equality.Semantic.DeepEqual(old, next) {
		return false, nil
	}
	err := r.client.Status().Patch(ctx, next, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), kube.OwnerService)
	written := err == nil
	if err = kube.Lost(err); err != nil {
		err = fmt.Errorf("writing metadata and status of Service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	return written, err
}
