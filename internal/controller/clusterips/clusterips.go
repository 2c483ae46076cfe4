// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package clusterips holds the cluster IPs of Services that are deleted while Octavia fails to
// delete their load balancers. Such a load balancer still answers at its VIP. Its members'
// addresses may belong to other pods by then. So no other Service is to get the cluster IP. A
// Service in Kuryr's own namespace, the holder, takes the cluster IP and serves nothing. Package
// clusterips does not delete the load balancer.
//
// A holder is created before the deleted Service loses its finalizers. It is of type ExternalName,
// which takes no cluster IP. Once the deleted Service is gone, the holder gets type ClusterIP and
// that cluster IP. The holder is deleted once the cloud has none of the load balancers any more.
// The holder's labels and annotations contain all that the package knows.
package clusterips

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Reconciler reconciles the holders. Hold creates them.
type Reconciler struct {
	Options
	client client.Client
	live   client.Reader // reads past the cache
	events events.EventRecorder

	young  sync.Map // UID of a KuryrLoadBalancer → when this process first saw its holders
	listed sdn.Answers[struct{}, []sdn.LoadBalancerSummary]
}

// Options is what a Reconciler needs beyond the manager. All fields are required.
type Options struct {
	Cloud     loadBalancers
	Namespace string // the namespace of the controller
	Shards    kube.Shards
	Backoff   outcome.Backoff
}

// loadBalancers is the part of sdn.LoadBalancers that reads them.
type loadBalancers interface {
	ListLoadBalancers(ctx context.Context) ([]sdn.LoadBalancerSummary, error)
	LoadBalancer(ctx context.Context, id string) (sdn.LoadBalancer, error)
}

// New returns a Reconciler. Setup adds it to mgr once Services are to be served.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	keep := func(error, int) time.Duration { return listAge(o.Backoff) }
	return &Reconciler{
		Options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorder("kuryr-controller"),
		listed: sdn.Answers[struct{}, []sdn.LoadBalancerSummary]{KeepError: keep, Patience: soon},
	}
}

// ripe is how long a holder exists before it may get its cluster IP. The API server (1.35) deletes
// the reservation of a cluster IP if it cannot see yet that a Service has it. It keeps such a
// reservation only if that is younger than the Service by a second. Times are kept in whole
// seconds.
const ripe = 2 * time.Second

// Hold creates the holders of a KuryrLoadBalancer's cluster IPs. They last until the load balancers
// with these IDs, and those that the status names, are gone.
//
// Hold must be repeated after the time that it returns. Zero means that the cluster IPs will be
// held, so that the KuryrLoadBalancer may be deleted.
//
// Hold creates no holder if the Service of the KuryrLoadBalancer is not being deleted: then the
// Service keeps its cluster IPs.
func (r *Reconciler) Hold(ctx context.Context, klb *v1.KuryrLoadBalancer, loadBalancers []string) (again time.Duration, err error) {
	svc, gone, err := r.going(ctx, klb)
	if !gone || err != nil {
		return r.Backoff.Quota, err
	}
	if err := r.hold(ctx, klb, &svc, loadBalancers); err != nil {
		return 0, err
	}
	seen, _ := r.young.LoadOrStore(klb.UID, time.Now())
	if again = time.Until(seen.(time.Time).Add(ripe)); again > 0 {
		return again, nil
	}
	r.young.Delete(klb.UID)
	return 0, nil
}

func (r *Reconciler) hold(ctx context.Context, klb *v1.KuryrLoadBalancer, svc *corev1.ObjectReference, loadBalancers []string) error {
	for _, vip := range klb.Spec.VIPs {
		address, err := netip.ParseAddr(vip.IP)
		if err != nil {
			return fmt.Errorf("holding cluster IP %q of KuryrLoadBalancer %s/%s: %w", vip.IP, klb.Namespace, klb.Name, err)
		}
		ids := at(klb, vip.IP, loadBalancers)
		if len(ids) == 0 {
			continue
		}
		made, err := r.make(ctx, newHolder(r.Namespace, klb, svc.UID, address, ids))
		if err != nil {
			return err
		}
		if !made {
			continue
		}
		r.events.Eventf(svc, nil, corev1.EventTypeWarning, v1.ReasonClusterIPHeld, "ReleaseService",
			"Octavia does not delete load balancer %s. Kuryr deletes the Service nevertheless, and holds its cluster IP %s until Octavia has deleted the load balancer: "+
				"see docs/services.md, \"A deletion that Octavia does not end\"", strings.Join(ids, ", "), vip.IP)
	}
	return nil
}

// going returns a reference to the Service of a KuryrLoadBalancer, without the UID if that is not
// known. It reports whether the Service is gone or being deleted.
func (r *Reconciler) going(ctx context.Context, klb *v1.KuryrLoadBalancer) (of corev1.ObjectReference, gone bool, err error) {
	of = *kube.Reference(klb, "Service")
	of.UID = ""
	for _, o := range klb.OwnerReferences {
		if o.Kind == "Service" && o.APIVersion == "v1" {
			of.UID = o.UID
		}
	}
	var svc corev1.Service
	err = r.live.Get(ctx, client.ObjectKeyFromObject(klb), &svc)
	if apierrors.IsNotFound(err) {
		return of, true, nil
	}
	if err != nil {
		return of, false, fmt.Errorf("reading Service %s/%s: %w", klb.Namespace, klb.Name, err)
	}
	return of, svc.UID != of.UID || !svc.DeletionTimestamp.IsZero(), nil
}

// at returns the load balancers that answer at an address, and those whose address is not known.
func at(klb *v1.KuryrLoadBalancer, ip string, all []string) []string {
	ids := slices.Clone(all)
	for _, lb := range klb.Status.LoadBalancers {
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == lb.ID })
		if lb.IP == ip && lb.ID != "" {
			ids = append(ids, lb.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// make creates a holder. A holder that an earlier try has created gets the annotations of this one.
func (r *Reconciler) make(ctx context.Context, holder *corev1.Service) (made bool, err error) {
	err = r.client.Create(ctx, holder.DeepCopy(), kube.OwnerService)
	if made = err == nil; apierrors.IsAlreadyExists(err) {
		there := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: holder.Namespace, Name: holder.Name}}
		next := there.DeepCopy()
		next.Annotations = holder.Annotations
		err = r.client.Patch(ctx, next, client.MergeFrom(there), kube.OwnerService)
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		err = fmt.Errorf("%w: %w", outcome.ErrNotPermitted, err)
	}
	if err != nil {
		return false, fmt.Errorf("holding cluster IP %s by Service %s/%s: %w", holder.Annotations[v1.HeldClusterIPAnnotation], holder.Namespace, holder.Name, err)
	}
	return made, nil
}

// again is the time between two checks whether the cloud has deleted the load balancers of a
// holder. soon is the time between two checks whether the deleted Service is gone; as a rule its
// event comes first.
const (
	again = 30 * time.Second
	soon  = time.Second
)

// Reconcile reconciles one holder.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	holder := &corev1.Service{}
	if err := r.client.Get(ctx, req.NamespacedName, holder); apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.count(ctx)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading Service %s: %w", req, err)
	}
	if !isHolder(holder) || !holder.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if err := r.count(ctx); err != nil {
		return ctrl.Result{}, err
	}
	// The cluster IP is held before the cloud is asked, which may not answer for long.
	wait, taker, refused := r.take(ctx, holder)
	if wait == 0 && !apierrors.IsInvalid(refused) {
		return kube.Retry(refused) // the event of the write leads here again
	}
	needless, failed := r.needless(ctx, holder)
	var pending *sdn.PendingError
	switch {
	case needless:
		return kube.Retry(r.drop(ctx, holder))
	case errors.As(failed, &pending): // other holders may need this worker meanwhile
		return ctrl.Result{RequeueAfter: pending.Retry}, nil
	case failed != nil:
		ctrl.LoggerFrom(ctx).Info("cannot read whether Octavia has deleted the load balancer of a held cluster IP", "holder", req.String(), "error", failed.Error())
	}
	if taker != nil {
		if err := r.tell(ctx, holder, taker); err != nil {
			return kube.Retry(err)
		}
	}
	return ctrl.Result{RequeueAfter: wait}, refused
}

// take gives the holder its cluster IP, if no other Service has it. It returns when to check again,
// and the Service that has the cluster IP instead. The time is zero after a write, and with an error.
// The API server refuses a cluster IP as invalid as long as it belongs to a Service that the cache does
// not show, or does not show any more, and if no ServiceCIDR contains it.
func (r *Reconciler) take(ctx context.Context, holder *corev1.Service) (wait time.Duration, taker *corev1.Service, err error) {
	wait = min(again, r.Backoff.Quota)
	if holder.Spec.Type == corev1.ServiceTypeClusterIP {
		return wait, nil, nil
	}
	ip := holder.Annotations[v1.HeldClusterIPAnnotation]
	has, err := r.holderOf(ctx, ip)
	switch {
	case err != nil:
		return 0, nil, err
	case has != nil && string(has.UID) == holder.Annotations[v1.HeldForAnnotation]: // it still exists
		return soon, nil, nil
	case has != nil:
		return wait, has, nil
	}
	next := holder.DeepCopy()
	occupy(next, ip)
	err = r.client.Patch(ctx, next, client.MergeFromWithOptions(holder, client.MergeFromWithOptimisticLock{}), kube.OwnerService)
	if err = kube.Lost(err); err != nil {
		return 0, nil, fmt.Errorf("holding cluster IP %s by Service %s/%s: %w", ip, holder.Namespace, holder.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("holding the cluster IP of a deleted Service, as Octavia does not delete its load balancer",
		"clusterIP", ip, "loadBalancers", holder.Annotations[v1.HeldLoadBalancersAnnotation])
	return 0, nil, nil
}

// holderOf returns the Service that has a cluster IP, as the cache shows it; nil: none.
func (r *Reconciler) holderOf(ctx context.Context, ip string) (*corev1.Service, error) {
	var list corev1.ServiceList
	if err := r.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing Services: %w", err)
	}
	for i := range list.Items {
		if slices.Contains(list.Items[i].Spec.ClusterIPs, ip) {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// tell sends an Event on a Service that has got the cluster IP before the holder. It says what
// still answers there. It is sent once: an annotation of the holder records the Service.
func (r *Reconciler) tell(ctx context.Context, holder, taker *corev1.Service) error {
	if holder.Annotations[v1.ClusterIPTakenAnnotation] == string(taker.UID) {
		return nil
	}
	old := holder.DeepCopy()
	holder.Annotations[v1.ClusterIPTakenAnnotation] = string(taker.UID)
	err := r.client.Patch(ctx, holder, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), kube.OwnerService)
	if err = kube.Lost(err); err != nil {
		return fmt.Errorf("writing who has taken a cluster IP to Service %s/%s: %w", holder.Namespace, holder.Name, err)
	}
	about := kube.Reference(taker, "Service")
	about.ResourceVersion = taker.ResourceVersion
	r.events.Eventf(about, nil, corev1.EventTypeWarning, v1.ReasonClusterIPInUse, "HoldClusterIP",
		"Load balancer %s of a deleted Service still answers at cluster IP %s, as Octavia does not delete it. Create this Service again to get another cluster IP, or have the load balancer deleted in Octavia",
		holder.Annotations[v1.HeldLoadBalancersAnnotation], holder.Annotations[v1.HeldClusterIPAnnotation])
	return nil
}

// drop deletes a holder.
func (r *Reconciler) drop(ctx context.Context, holder *corev1.Service) error {
	err := r.client.Delete(ctx, holder, client.Preconditions{UID: &holder.UID})
	if err = kube.Lost(err); err != nil {
		return fmt.Errorf("deleting Service %s/%s: %w", holder.Namespace, holder.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("released a held cluster IP, as Octavia has deleted the load balancer", "clusterIP", holder.Annotations[v1.HeldClusterIPAnnotation])
	return nil
}

// count sets the metric of held cluster IPs.
func (r *Reconciler) count(ctx context.Context) error {
	all, err := r.holders(ctx)
	if err == nil {
		heldClusterIPs.Set(float64(len(all)))
	}
	return err
}

// holders returns all holders. They are shared with the cache: read-only.
func (r *Reconciler) holders(ctx context.Context) ([]corev1.Service, error) {
	var list corev1.ServiceList
	if err := r.client.List(ctx, &list, client.InNamespace(r.Namespace), client.HasLabels{v1.ClusterIPHolderLabel}, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing Services that hold cluster IPs: %w", err)
	}
	return list.Items, nil
}

func isHolder(o client.Object) bool {
	_, is := o.GetLabels()[v1.ClusterIPHolderLabel]
	return is
}

// newHolder returns the holder of one cluster IP. The holder does not take the cluster IP yet.
func newHolder(namespace string, klb *v1.KuryrLoadBalancer, of types.UID, ip netip.Addr, loadBalancers []string) *corev1.Service {
	family := 4
	if ip.Is6() {
		family = 6
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("cluster-ip-%s-%d", klb.UID, family),
			Labels: map[string]string{
				v1.ClusterIPHolderLabel: "",
				v1.LeaveAloneLabel:      "", // Kuryr does not serve the holder
				proxyName:               "kuryr.openstack.org-none",
			},
			Annotations: map[string]string{
				v1.HeldForAnnotation:           string(of),
				v1.HeldClusterIPAnnotation:     ip.String(),
				v1.HeldLoadBalancersAnnotation: strings.Join(loadBalancers, ","),
				"description":                  "Holds a cluster IP of " + klb.Namespace + "/" + klb.Name + ", which is deleted, until Octavia has deleted the load balancer there. Kuryr deletes it then.",
			},
		},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "held.invalid"},
	}
}

// proxyName is the label of Services that kube-proxy and similar programs ignore.
const proxyName = "service.kubernetes.io/service-proxy-name"

// occupy makes a holder a Service with a cluster IP. The Service has no selector, so it gets no
// endpoints. The API server requires a port.
func occupy(holder *corev1.Service, ip string) {
	family := corev1.IPv4Protocol
	if strings.Contains(ip, ":") {
		family = corev1.IPv6Protocol
	}
	holder.Spec.Type, holder.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
	holder.Spec.ClusterIP, holder.Spec.ClusterIPs = ip, []string{ip}
	holder.Spec.IPFamilyPolicy, holder.Spec.IPFamilies = new(corev1.IPFamilyPolicySingleStack), []corev1.IPFamily{family}
	holder.Spec.Ports = []corev1.ServicePort{{Name: "none", Protocol: corev1.ProtocolTCP, Port: 1}}
}
