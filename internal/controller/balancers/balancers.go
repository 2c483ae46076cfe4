// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package balancers brings KuryrLoadBalancers into the cloud: load balancers, floating IPs, and
// the security groups that keep the source ranges where the provider cannot. Package
// plan/balancer decides what is to be done. This package reads the cloud, carries out the
// steps, counts attempts and writes the status.
//
// Three jobs are done elsewhere: package services plans the KuryrLoadBalancers, package
// membergroups decides which ports get such a security group, and package collector deletes
// what no object names.
//
// A KuryrLoadBalancer is applied when the object changes and when the security groups of a
// member's port have changed. It is also applied when its busy load balancer is done, when
// another part of Kuryr suspects that the cloud differs, and once an interval to find drift.
//
// One worker at a time has an object and its memory. What workers share has a lock of its own.
// All memory may be lost at any time. It is dropped with the namespace: another process changes then what
// it is about.
package balancers

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// workers is how many KuryrLoadBalancers are applied at once. The backend limits its own
// requests.
const workers = 32

// Reconciler brings load balancers and floating IPs in line with KuryrLoadBalancers and reports
// in their status. Of other objects it reads the members' KuryrPorts, for the security group
// that keeps the source ranges. Each round reads the cloud, has package balancer plan, and
// carries out the plan. The next round begins when the cloud is done: no worker waits for that.
//
// A KuryrLoadBalancer whose status says that its generation is in the cloud costs no request,
// not even after a restart.
type Reconciler struct {
	Options
	client   client.Client
	objects  *kube.Object[*v1.KuryrLoadBalancer]
	events   events.EventRecorder
	wake     kube.Queue[ctrl.Request]
	memories memories
	shared
}

// shared is what the reconciliations of all objects share of the cloud.
type shared struct {
	wait      waiter
	back      kube.Signal // the cloud is back: see retryUnready
	checks    checks
	lists     sharedList[sdn.LoadBalancerSummary]
	addresses sharedList[sdn.FloatingIP]
	quotas    quotas
	turns     sync.Map // by project: the request of the KuryrLoadBalancer that is being replaced while it serves
}

// clusterIPHolder holds the cluster IPs of a deleted Service while its load balancers still use
// them.
type clusterIPHolder interface {
	// Hold holds the cluster IPs until these load balancers are deleted. The caller asks again
	// after the returned time. Zero: the KuryrLoadBalancer may be deleted.
	Hold(ctx context.Context, klb *v1.KuryrLoadBalancer, loadBalancers []string) (again time.Duration, err error)
}

// memberGroups knows which security groups the members of load balancers have.
type memberGroups interface {
	// LoadBalancersOf returns the KuryrLoadBalancers that give a port a security group for an address.
	LoadBalancersOf(ctx context.Context, port *v1.KuryrPort, ip string) ([]*v1.KuryrLoadBalancer, error)
}

// Options are the parts that a Reconciler needs beyond the manager.
type Options struct {
	Cloud    Cloud
	Members  memberGroups
	Making   *kube.Owners // taken to create and name a security group, or to delete one
	Settings *settings.Live
	Shards   kube.Shards // the namespaces whose KuryrLoadBalancers are applied here
	Backoff  outcome.Backoff
	Mend     time.Duration // pause after the first attempt to get something out of ERROR
	Stuck    time.Duration // a load balancer that is busy for longer is reported
	Late     time.Duration // after neutron.requestTimeout no request of a crashed process takes effect any more
	Holder   clusterIPHolder
	Now      func() time.Time
}

// Cloud is the part of the backend that changes load balancers, floating IPs and security
// groups.
type Cloud struct {
	LoadBalancers  sdn.LoadBalancers
	FloatingIPs    sdn.FloatingIPs
	SecurityGroups sdn.SecurityGroups // nil: no security group keeps the source ranges
}

// New returns the Reconciler. Setup adds it to mgr once Services are to be served.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	r := &Reconciler{Options: o, client: mgr.GetClient(), events: mgr.GetEventRecorder("kuryr-controller")}
	r.back, r.wait.added, r.wait.busy = kube.NewSignal(), kube.NewSignal(), map[string]waiting{}
	r.objects = kube.NewObject(r.client, &v1.KuryrLoadBalancer{}, "KuryrLoadBalancer", kube.OwnerBalancer, v1.LoadBalancerFinalizer)
	return r
}

// Setup adds the reconciler to mgr. It also adds the loops that wait for busy load balancers,
// and retry after an outage. The cache of mgr must have KuryrLoadBalancers and the index
// of KuryrPorts by address.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	key := kube.ByObject(r.client, &v1.KuryrLoadBalancer{})
	r.Shards.Follow(nil, r.lose)
	late := func() time.Duration { return r.Settings.Load().Neutron.RequestTimeout.Duration + r.Late }
	kube.CheckLater(r.Shards, r.client, &v1.KuryrLoadBalancerList{}, late, done, func(req ctrl.Request) { r.RequestCheck(req, true) })
	err := ctrl.NewControllerManagedBy(mgr).Named("loadbalancers").
		WithOptions(outcome.Options[ctrl.Request](workers, r.Backoff)).
		For(&v1.KuryrLoadBalancer{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: beyondWords})).
		Watches(&v1.KuryrPort{}, handler.Funcs{UpdateFunc: r.followGroups}).
		WatchesRawSource(r.wake.Source()).
		WatchesRawSource(kube.Gained(r.Shards, key, kube.AllOf(r.client, &v1.KuryrLoadBalancerList{}))).
		Complete(kube.Sharded(r.Shards, key, r))
	if err != nil {
		return err
	}
	busy := kube.Every("loadbalancers", r.wait.period, r.listBusy, r.wait.added)
	drift := kube.Every("checks", func() time.Duration { return r.checks.pause(r.Settings.Load()) }, r.checkNext, nil)
	retry := kube.Every("retry", func() time.Duration { return kube.Never }, r.retryUnready, r.back)
	follow := r.Settings.Follow(func(ctx context.Context) error { // those in deletion may have another time to wait
		r.wakeAll(ctx, func(*v1.KuryrLoadBalancer) bool { return true })
		return nil
	})
	return errors.Join(mgr.Add(busy), mgr.Add(drift), mgr.Add(kube.Runnable(follow)), mgr.Add(retry))
}

// done reports whether the status says that all is done.
func done(klb *v1.KuryrLoadBalancer) bool {
	return balancer.IsReady(klb) && meta.IsStatusConditionFalse(klb.Status.Conditions, v1.ConditionProgressing)
}

// beyondWords reports whether an update has changed more than the words of conditions. Only this
// reconciler writes them, and each reconciliation says itself when the next one is due. Without this, an
// error that reads differently each time would be written each time, and the event of that write
// would repeat the failed request at once.
func beyondWords(e event.UpdateEvent) bool {
	beyond := func(o client.Object) *v1.KuryrLoadBalancer {
		klb := o.DeepCopyObject().(*v1.KuryrLoadBalancer)
		klb.ResourceVersion, klb.ManagedFields = "", nil
		for i, c := range klb.Status.Conditions { // a person may have edited the rest
			klb.Status.Conditions[i] = metav1.Condition{Type: c.Type, Status: c.Status}
		}
		return klb
	}
	return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion() || // the cache has read all objects anew
		!equality.Semantic.DeepEqual(beyond(e.ObjectOld), beyond(e.ObjectNew))
}

// retryGap is the time between two rounds of retryUnready. A service that is slow now and then would
// otherwise make all repairs begin anew with each of its slow answers.
const retryGap = time.Minute

// retryUnready forgets the attempts to get load balancers out of ERROR, and applies the
// KuryrLoadBalancers that are not ready, after each time that the cloud is back. Attempts while a part
// of the cloud was away prove nothing, and their pauses would be long. The reason of the condition does
// not matter: a load balancer in ERROR that was read meanwhile reports Unavailable.
func (r *Reconciler) retryUnready(ctx context.Context) error {
	r.wakeAll(ctx, func(klb *v1.KuryrLoadBalancer) bool {
		if balancer.IsReady(klb) {
			return false
		}
		r.memories.ask(kube.RequestOf(klb), checkRequest{retry: true})
		return true
	})
	kube.Pause(ctx, retryGap)
	return nil
}

// owns reports whether this process applies a KuryrLoadBalancer.
func (r *Reconciler) owns(req ctrl.Request) bool {
	return r.Shards.Owns(kube.InNamespace(req.Namespace))
}

// lose drops the memory of lost namespaces. What is known of the projects' quotas and of cluster IPs that
// are taken is not kept by namespace: it is dropped, too, and a request that is refused brings it back.
func (r *Reconciler) lose(keys kube.Keys) {
	lost := func(req ctrl.Request) bool { return keys(kube.InNamespace(req.Namespace)) }
	r.memories.lose(lost)
	r.wait.lose(lost)
	r.quotas.lose()
	r.turns.Range(func(project, who any) bool {
		if lost(who.(ctrl.Request)) {
			r.turns.Delete(project)
		}
		return true
	})
	r.objects.Forget(keys)
}

// wakeAll requeues the own KuryrLoadBalancers for which is returns true.
func (r *Reconciler) wakeAll(ctx context.Context, is func(*v1.KuryrLoadBalancer) bool) {
	all, err := kube.LoadBalancers(ctx, r.client)
	if err != nil { // they retry after their pauses
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the load balancers that could be applied again")
	}
	for req, klb := range all {
		if r.owns(req) && is(klb) {
			r.wake.Add(req)
		}
	}
}

// RequestCheck has the cloud read for a KuryrLoadBalancer. With statusIncomplete, the round also
// looks for load balancers that the status does not name. It does nothing if another process applies the
// KuryrLoadBalancer.
func (r *Reconciler) RequestCheck(req ctrl.Request, statusIncomplete bool) {
	if !r.owns(req) {
		return
	}
	r.memories.ask(req, checkRequest{check: true, statusIncomplete: statusIncomplete})
	r.wake.Add(req)
}

// Reconcile applies one KuryrLoadBalancer.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	klb, state, err := r.objects.Get(ctx, req.NamespacedName)
	switch {
	case err != nil, state == kube.Leaving:
		return ctrl.Result{}, err
	case state == kube.Gone:
		known := r.memories.forget(req)
		r.wait.lose(func(other ctrl.Request) bool { return other == req })
		if known || !r.owns(req) { // else a check was requested of an object that is long gone
			r.retryRefused(ctx)
		}
		r.replaced(req)
		return ctrl.Result{}, nil
	}
	v := &reconciliation{Reconciler: r, req: req, klb: klb, memory: r.memories.of(klb)}
	return v.apply(ctx)
}
