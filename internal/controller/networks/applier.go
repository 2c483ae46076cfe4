// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// workers is the number of KuryrNetworks that are applied at once. The backend limits its own
// requests.
const workers = 16

// Applier makes the networks of KuryrNetworks, keeps them, and deletes them. It writes their
// finalizer and their status.
//
// A KuryrNetwork that is ready costs no request to the cloud. Its network is read when the spec or
// the status changes, and when a check is requested.
type Applier struct {
	ApplierOptions
	client  client.Client
	live    client.Reader // reads past the cache
	events  events.EventRecorder
	queue   kube.Queue[ctrl.Request]
	others  kube.Queue[ctrl.Request] // see verify
	objects *kube.Object[*v1.KuryrNetwork]
	routers sdn.Answers[string, []netip.Addr] // addresses of routers
	// lists are those of networks and of routers that are on their way. Visits that list at the same
	// time share one answer: of many new namespaces each would get the networks of all. Whoever has
	// made a resource forgets the list.
	lists sdn.Answers[string, []sdn.NetworkSummary]

	memories sync.Map // by request of a KuryrNetwork: its *memory
	checked  int      // how many were checked in turn
}

// memory is what the process remembers of a KuryrNetwork. One worker at a time uses it, except for
// check.
type memory struct {
	uid types.UID
	// fresh is true from the finalizer until the first request to make something, if the status named
	// nothing. A network that the cloud does not list is believed not to be there then. One that it
	// lists counts: people remove finalizers and objects.
	fresh bool
	own   string      // network in deletion that was seen to be the object's
	check atomic.Bool // the cloud is to be read, whatever the status says

	// refused is why the cloud refused a change of the router's gateway for a spec, and when the
	// change is tried again. Each try takes away what serves, for a moment.
	refused struct {
		generation int64
		err        error
		until      time.Time
	}
}

// statuses are those that were compared with the cloud: kube.Networks. No port is made in a network
// that another one names.
type statuses interface {
	MarkVerified(kn *v1.KuryrNetwork, status *v1.KuryrNetworkStatus)
	IsVerified(kn *v1.KuryrNetwork) bool
	ForgetVerified()
}

// Cloud is what the SDN does for an Applier.
type Cloud interface {
	sdn.Networks
	sdn.Routers
}

// ApplierOptions are the parts that an Applier needs beyond the manager. All must be given.
type ApplierOptions struct {
	Cloud      Cloud
	Subnets    sdn.Subnets
	Visibility sdn.Visibility
	Statuses   statuses     // of kube.Networks
	Making     *kube.Owners // held while something of a KuryrNetwork is made and named
	Settings   *settings.Live
	Shards     kube.Shards // the namespaces whose networks are applied here
	Backoff    outcome.Backoff
	Slow       time.Duration // a deletion that takes longer is reported
	Late       time.Duration // after neutron.requestTimeout no request of a crashed process takes effect any more
}

// NewApplier returns an Applier. Setup adds it to mgr.
func NewApplier(mgr ctrl.Manager, o ApplierOptions) *Applier {
	return &Applier{
		ApplierOptions: o, client: mgr.GetClient(), live: mgr.GetAPIReader(),
		events:  mgr.GetEventRecorder("kuryr-controller"),
		objects: kube.NewObject(mgr.GetClient(), &v1.KuryrNetwork{}, kind, kube.OwnerNetwork, v1.NetworkFinalizer),
	}
}

// kind is the kind of the objects.
const kind = "KuryrNetwork"

// Setup adds the reconciler, and the loop that checks networks in turn. The cache of mgr must have
// KuryrNetworks.
func (r *Applier) Setup(mgr ctrl.Manager) error {
	if err := errors.Join(mgr.Add(kube.Every("networks", r.period, r.checkSome, nil)), r.setupOthers(mgr)); err != nil {
		return err
	}
	key := kube.ByObject(r.client, &v1.KuryrNetwork{})
	r.Shards.Follow(nil, r.lose)
	late := func() time.Duration { return r.Settings.Load().Neutron.RequestTimeout.Duration + r.Late }
	kube.CheckLater(r.Shards, r.client, &v1.KuryrNetworkList{}, late, done, r.RequestCheck)
	return ctrl.NewControllerManagedBy(mgr).Named("networks").
		WithOptions(outcome.Options[ctrl.Request](workers, r.Backoff)).
		For(&v1.KuryrNetwork{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: beyondWords})).
		Watches(&v1.KuryrPort{}, handler.EnqueueRequestsFromMapFunc(r.leaving), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool { // a network in deletion serves pods while it has ports of pods
				return (e.ObjectOld.(*v1.KuryrPort).Spec.PodRef == nil) != (e.ObjectNew.(*v1.KuryrPort).Spec.PodRef == nil)
			},
		})).
		WatchesRawSource(r.queue.Source()).
		WatchesRawSource(kube.Gained(r.Shards, key, kube.AllOf(r.client, &v1.KuryrNetworkList{}))).
		Complete(kube.Sharded(r.Shards, key, r))
}

// lose drops the memory of lost namespaces, and what the cloud has answered: another process may change
// that before a namespace returns.
func (r *Applier) lose(keys kube.Keys) {
	r.memories.Range(func(req, _ any) bool {
		if keys(kube.InNamespace(req.(ctrl.Request).Namespace)) {
			r.memories.Delete(req)
			r.others.Add(req.(ctrl.Request)) // a change that was seen before the loss was not verified
		}
		return true
	})
	r.objects.Forget(keys)
	if r.Shards.Share() == 0 { // no status is verified here then
		r.Statuses.ForgetVerified()
	}
	r.lists.Forget(func(string, []sdn.NetworkSummary) bool { return true })
	r.routers.Forget(func(string, []netip.Addr) bool { return true })
}

// done reports whether the status says that all is done.
func done(kn *v1.KuryrNetwork) bool {
	return atRest(kn) && meta.IsStatusConditionFalse(kn.Status.Conditions, v1.ConditionProgressing)
}

// beyondWords reports whether an update has changed more than what the applier itself writes. Its
// own event would repeat a failed request at once, without backoff.
func beyondWords(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*v1.KuryrNetwork), e.ObjectNew.(*v1.KuryrNetwork)
	ready := func(kn *v1.KuryrNetwork) bool {
		return meta.FindStatusCondition(kn.Status.Conditions, v1.ConditionReady) != nil
	}
	return before.ResourceVersion == now.ResourceVersion || // the cache has read all objects anew
		before.Generation != now.Generation ||
		before.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() ||
		!slices.Equal(before.Finalizers, now.Finalizers) ||
		!ready(now) || // another writer has emptied the status
		ready(before) && !equality.Semantic.DeepEqual(made(before), made(now))
}

// made returns the part of a status that names resources.
func made(kn *v1.KuryrNetwork) v1.KuryrNetworkStatus {
	s := kn.Status
	s.Conditions = nil
	return s
}

// leaving returns the KuryrNetwork in deletion that a port is or was in.
func (r *Applier) leaving(ctx context.Context, o client.Object) []ctrl.Request {
	port := o.(*v1.KuryrPort)
	var list v1.KuryrNetworkList
	if err := r.client.List(ctx, &list, client.MatchingFields{networkID: port.Spec.NetworkID}, kube.ReadOnly); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the KuryrNetwork that waits for a port", "port", port.Name)
		return nil
	}
	var all []ctrl.Request
	for i := range list.Items {
		if !list.Items[i].DeletionTimestamp.IsZero() {
			all = append(all, kube.RequestOf(&list.Items[i]))
		}
	}
	return all
}

// stale is the time until an object that is behind the last own write is read again: beyondWords
// filters the event of that write out.
const stale = 20 * time.Millisecond

// Reconcile applies one KuryrNetwork.
func (r *Applier) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	kn, state, err := r.objects.Get(ctx, req.NamespacedName)
	switch {
	case err != nil, state == kube.Leaving:
		return ctrl.Result{}, err
	case state == kube.Gone:
		r.memories.Delete(req)
		return ctrl.Result{}, nil
	}
	v := &reconciliation{Applier: r, req: req, kn: kn, memory: r.memoryOf(req, kn.UID)}
	v.checking = v.memory.check.Swap(false)
	release, err := r.Making.Take(ctx, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer release()
	if !kn.DeletionTimestamp.IsZero() {
		return v.release(ctx)
	}
	return v.apply(ctx)
}

// reconciliation is one Reconcile of one KuryrNetwork.
type reconciliation struct {
	*Applier
	req      ctrl.Request
	kn       *v1.KuryrNetwork
	memory   *memory
	checking bool
}

func (r *Applier) memoryOf(req ctrl.Request, uid types.UID) *memory {
	if m, ok := r.memories.Load(req); ok && m.(*memory).uid == uid {
		return m.(*memory)
	}
	m := &memory{uid: uid}
	r.memories.Store(req, m)
	return m
}

// RequestCheck has the network of a KuryrNetwork compared with the cloud, soon. It does not wait,
// and is safe for concurrent use.
func (r *Applier) RequestCheck(req ctrl.Request) {
	if m, ok := r.memories.Load(req); ok {
		m.(*memory).check.Store(true)
	}
	r.queue.Add(req)
}

func (r *Applier) period() time.Duration {
	return settings.CheckInterval(r.Settings.Load().Services.CheckInterval.Duration)
}

// inTurn is how many networks are checked in one period. Each costs up to three requests.
const inTurn = 50

// checkSome requests checks of some own networks, each time of others. The collector compares all
// networks with one list, which does not show subnets and interfaces of routers.
func (r *Applier) checkSome(ctx context.Context) error {
	var list v1.KuryrNetworkList
	if err := r.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(kn v1.KuryrNetwork) bool { return !r.Shards.Owns(kube.InNamespace(kn.Namespace)) })
	slices.SortFunc(list.Items, func(a, b v1.KuryrNetwork) int { return strings.Compare(a.Namespace, b.Namespace) })
	for n := range min(inTurn, len(list.Items)) {
		r.RequestCheck(kube.RequestOf(&list.Items[(r.checked+n)%len(list.Items)]))
	}
	r.checked += inTurn
	return nil
}

// conditions returns the conditions of the applier: those of a status without the planner's.
func conditions(status *v1.KuryrNetworkStatus) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool { return c.Type == v1.ConditionPlanned })
}

// atRest reports whether a KuryrNetwork is ready as its spec wants it.
func atRest(kn *v1.KuryrNetwork) bool {
	ready := meta.FindStatusCondition(kn.Status.Conditions, v1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == kn.Generation && network.Complete(&kn.Spec, &kn.Status)
}

// setupOthers adds what verifies the statuses that other processes write: this process makes ports in
// the networks that they name. It runs outside of planning, and asks once for each changed status.
func (r *Applier) setupOthers(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("networkstatuses").
		WithOptions(outcome.Options[ctrl.Request](workers, r.Backoff)).
		For(&v1.KuryrNetwork{}).
		WatchesRawSource(r.others.Source()).
		Complete(reconcile.Func(r.verify))
}

// verify compares the status of a KuryrNetwork that another process applies with the cloud. A process
// that owns nothing makes no ports, and asks nothing.
func (r *Applier) verify(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if r.Shards.Owns(kube.InNamespace(req.Namespace)) || r.Shards.Share() == 0 {
		return ctrl.Result{}, nil
	}
	kn := &v1.KuryrNetwork{}
	if err := r.client.Get(ctx, req.NamespacedName, kn); err != nil {
		return kube.Retry(kube.Lost(err))
	}
	if r.Statuses.IsVerified(kn) {
		return ctrl.Result{}, nil
	}
	v := &reconciliation{Applier: r, req: req, kn: kn, memory: &memory{}}
	is, err := v.seen(ctx)
	if err != nil {
		return r.Backoff.Result(outcome.Of(outcome.Network, err))
	}
	if !agrees(&kn.Status, &is) { // as a rule its process corrects it: an event follows
		return ctrl.Result{RequeueAfter: r.Backoff.Rejected}, nil
	}
	r.Statuses.MarkVerified(kn, &kn.Status)
	return ctrl.Result{}, nil
}

// seen returns what the cloud has of the network and of the subnets that the status names.
func (v *reconciliation) seen(ctx context.Context) (v1.KuryrNetworkStatus, error) {
	if !network.Makes(&v.kn.Spec) {
		return v.given(ctx)
	}
	if v.kn.Status.NetworkID == "" { // it names no network to make ports in
		return made(v.kn), nil
	}
	is, err := v.Cloud.Network(ctx, v.kn.Status.NetworkID)
	if err == nil && !v.owns(is.Owner, is.Name) {
		err = errForeign
	}
	var spec v1.KuryrNetworkSpec
	for _, s := range v.kn.Status.Subnets {
		spec.SubnetIDs = append(spec.SubnetIDs, s.ID)
	}
	return network.GivenStatus(&spec, is), err
}

// agrees reports whether a status names the network and the subnets that the cloud has. The router does
// not count: it decides nothing about where a port is made.
func agrees(status, is *v1.KuryrNetworkStatus) bool {
	return status.NetworkID == is.NetworkID && status.MTU == is.MTU && slices.EqualFunc(status.Subnets, is.Subnets, func(a, b v1.NetworkSubnetStatus) bool {
		a.Routed, b.Routed = false, false
		return a == b
	})
}
