// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package ports applies KuryrPorts: security groups, names and deletion in the SDN,
// status, label and finalizer of the object. It makes no port (supply does), and decides
// nothing about pods (pools does); it looks at a pod only to tell a KuryrPort that a
// person deleted from one whose time has come. It also names a pod's port on the pod.
//
// An object is reconciled when it changes by another hand than this package's, when the
// collector misses its port in the SDN, when the SDN is seen to pass its traffic, and when
// the SDN has said which security groups a port has that a pod gave back.
package ports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// portWorkers is how many KuryrPorts are applied at once; the backend bounds
// its own calls.
const portWorkers = 32

// roomKeeper is told that a port of a pool is gone: another pod may have waited for it.
type roomKeeper interface{ Freed(pool.Ref) }

// podWitness says whether this process has seen the pod of a pool's port, alive or gone.
type podWitness interface {
	Saw(r pool.Ref, uid types.UID) bool
}

// Reconciler applies: it brings a port of the SDN in line with its KuryrPort and
// reports. It decides nothing about pods; it looks at one only to tell a
// KuryrPort that somebody deleted by hand from one whose time has come.
type Reconciler struct {
	client   client.Client
	live     client.Reader // past the cache
	cloud    sdn.Ports
	sees     func(ctx context.Context, projectID, networkID string) error
	settings *settings.Live
	memory   *portMemory
	returns  *returns
	supply   roomKeeper
	pods     podWitness
	doubtful func() // is told that there may be a port that no object knows of
	backoff  outcome.Backoff
	events   events.EventRecorder
	now      func() time.Time
	wake     kube.Queue[ctrl.Request]

	mu      sync.Mutex
	written map[string]string    // version of the last own write, until the cache shows it
	dropped map[string]types.UID // objects without our finalizer, until the cache shows it
	held    map[string]hold      // statuses that wait
	gap     time.Duration        // for how long
}

// Options is what the reconciler of KuryrPorts needs. All have to be given.
type Options struct {
	Ports sdn.Ports
	// Sees is that of sdn.Visibility.
	Sees      func(ctx context.Context, projectID, networkID string) error
	Settings  *settings.Live
	Room      roomKeeper
	Pods      podWitness
	Doubtful  func() // is told that there may be a port that no object knows of; does not wait
	Backoff   outcome.Backoff
	StatusGap time.Duration // until a bound port's status is written
	Now       func() time.Time
}

// New returns a Reconciler that is to be added to mgr with Setup.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	r := &Reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), cloud: o.Ports, sees: o.Sees, settings: o.Settings, memory: newPortMemory(), returns: newReturns(o), backoff: o.Backoff,
		supply: o.Room, pods: o.Pods, doubtful: o.Doubtful, events: mgr.GetEventRecorder("kuryr-controller"), now: o.Now,
		written: map[string]string{}, dropped: map[string]types.UID{}, held: map[string]hold{}, gap: o.StatusGap,
	}
	r.returns.seen, r.returns.lost = r.wake.Add, r.Lost
	return r
}

// Lost has the reconciler see for itself whether the SDN has lost a port.
func (r *Reconciler) Lost(name string) {
	r.memory.setGone(name, true)
	r.wake.Add(ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
}

// Setup adds the reconciler, what asks for the activity of ports, and what annotates
// pods.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	activity := &activity{cloud: r.cloud, memory: r.memory, seen: r.wake.Add}
	for _, run := range []kube.Leading{activity.run, r.returns.run} {
		if err := mgr.Add(run); err != nil {
			return err
		}
	}
	if err := (&annotations{client: r.client, backoff: r.backoff}).setup(mgr); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("ports").
		WithOptions(controller.Options{
			MaxConcurrentReconciles: portWorkers, RateLimiter: outcome.Limiter[ctrl.Request](r.backoff), SkipNameValidation: new(true),
		}).
		For(&v1.KuryrPort{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: othersWrite})).
		WatchesRawSource(r.wake.Source()).
		Complete(r)
}

// othersWrite reports whether an update may be somebody else's, or one that leaves
// something to do. The status that this reconciler writes is neither: its event would
// have a port whose request failed tried again at once, without any backoff.
func othersWrite(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*v1.KuryrPort), e.ObjectNew.(*v1.KuryrPort)
	label := now.Labels[v1.PortStatusLabel]
	return before.ResourceVersion == now.ResourceVersion || // the cache has read all anew
		before.Generation != now.Generation ||
		before.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() ||
		!slices.Equal(before.Finalizers, now.Finalizers) ||
		label != before.Labels[v1.PortStatusLabel] && label != string(now.Status.Phase) ||
		len(now.Status.Conditions) == 0 || // somebody has emptied it
		!equality.Semantic.DeepEqual(before.Status.Attachment, now.Status.Attachment)
}

// stale is when to look at an object again whose last own write the cache does not
// show yet: the event of that write is none that is waited for.
const stale = 20 * time.Millisecond

// Reconcile applies one KuryrPort.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	port, again, err := r.get(ctx, req)
	if port == nil || err != nil {
		return ctrl.Result{RequeueAfter: again}, err
	}
	if !port.DeletionTimestamp.IsZero() {
		return r.release(ctx, port)
	}
	if !controllerutil.ContainsFinalizer(port, v1.PortFinalizer) {
		return kube.Retry(r.patch(ctx, port, func(p *v1.KuryrPort) { controllerutil.AddFinalizer(p, v1.PortFinalizer) }))
	}
	if r.returned(port) {
		if wait := r.returns.waits(port); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	res, err := r.report(ctx, port, r.apply(ctx, port))
	r.returns.done(port.Name)
	return res, err
}

// get returns the KuryrPort as a copy; nil if it is gone, or if the cache does
// not show the last own write yet: then it says when to look again.
func (r *Reconciler) get(ctx context.Context, req ctrl.Request) (port *v1.KuryrPort, again time.Duration, err error) {
	port = &v1.KuryrPort{}
	err = r.client.Get(ctx, req.NamespacedName, port)
	r.mu.Lock()
	defer r.mu.Unlock()
	if apierrors.IsNotFound(err) {
		delete(r.written, req.Name)
		delete(r.dropped, req.Name)
		delete(r.held, req.Name)
		r.memory.portGone(req.Name)
		r.returns.grouped(req.Name)
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("reading KuryrPort %s: %w", req.Name, err)
	}
	if r.dropped[req.Name] == port.UID {
		return nil, 0, nil
	}
	if version, ok := r.written[req.Name]; ok {
		if kube.Older(port.ResourceVersion, version) {
			return nil, stale, nil
		}
		delete(r.written, req.Name)
	}
	return port, 0, nil
}

func (r *Reconciler) wrote(name, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version != "" {
		r.written[name] = version
	}
}

// apply makes the port in the SDN what its spec says. A port that has just been
// made is so already, by the request that made it: it costs no call.
func (r *Reconciler) apply(ctx context.Context, port *v1.KuryrPort) error {
	if r.suspect(port) {
		if _, err := r.cloud.Port(ctx, port.Name); err != nil {
			return fmt.Errorf("looking for port %s: %w", port.Name, r.believed(ctx, port, err))
		}
		r.memory.setGone(port.Name, false)
	}
	update, needed := r.update(port)
	if !needed {
		return nil
	}
	if err := r.cloud.UpdatePort(ctx, port.Name, update); err != nil {
		return fmt.Errorf("updating port %s: %w", port.Name, r.believed(ctx, port, err))
	}
	if update.SecurityGroupIDs != nil {
		r.returns.grouped(port.Name)
	}
	ctrl.LoggerFrom(ctx).Info("updated port", "port", port.Name)
	return nil
}

// believed returns err, which may say that the SDN has lost the port, or why that is
// not to be believed: a pod would be told that it has lost its network, and a free port
// be left behind.
func (r *Reconciler) believed(ctx context.Context, port *v1.KuryrPort, err error) error {
	if !errors.Is(err, sdn.ErrNotFound) {
		return err
	}
	if unseen := r.sees(ctx, port.Spec.ProjectID, port.Spec.NetworkID); unseen != nil {
		return unseen
	}
	return err
}

// update returns what is to change in the SDN.
func (r *Reconciler) update(port *v1.KuryrPort) (u sdn.PortUpdate, needed bool) {
	first := port.Status.Phase == ""
	if !port.Grouped() || r.returns.changed(port.Name) {
		groups := slices.Clone(port.Spec.SecurityGroupIDs)
		u.SecurityGroupIDs, needed = &groups, true
	}
	ref := port.Spec.PodRef
	// The phase says what the port was named for, if the request for that succeeded.
	named := (ref != nil) == (port.Status.Phase == v1.PortBound) && meta.IsStatusConditionTrue(port.Status.Conditions, v1.ConditionReady)
	if r.settings.Load().Pods.PortDebug && !named && (ref != nil || !first) {
		name, device := sdn.FreePortName, ""
		if ref != nil {
			name, device = ref.Namespace+"/"+ref.Name, string(ref.UID)
		} else { // instead of a look at those that it has
			groups := slices.Clone(port.Spec.SecurityGroupIDs)
			u.SecurityGroupIDs = &groups
		}
		u.Name, u.DeviceID, needed = &name, &device, true
	}
	return u, needed
}

// report writes the status, if it has changed, and the label that mirrors it.
func (r *Reconciler) report(ctx context.Context, port *v1.KuryrPort, failed error) (ctrl.Result, error) {
	reason, res, ret := r.backoff.Outcome(failed)
	status := r.status(port, reason, failed)
	if wait := r.hold(port, failed); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if reason == v1.ReasonPortMissing && port.Status.Phase != v1.PortFailed {
		r.missing(port)
	}
	if reason == v1.ReasonRejected {
		r.refused(port, failed)
	}
	if err := r.write(ctx, port, status); err != nil {
		return kube.Retry(err)
	}
	return res, ret
}

// hold is a status that waits to be written.
type hold struct {
	generation int64
	until      time.Time
}

// hold returns how long the status of a port that a pod has just been given may
// wait. It would say no more than the spec does, and nobody waits for it, while
// the daemon is about to say that the port is plugged: one write then tells both.
func (r *Reconciler) hold(port *v1.KuryrPort, failed error) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	given := port.Spec.PodRef != nil && port.Status.Phase == v1.PortAvailable && port.Status.Attachment == nil
	changed := r.settings.Load().Pods.PortDebug || !port.Grouped() // the SDN has been asked
	if failed != nil || !given || changed {
		delete(r.held, port.Name)
		return 0
	}
	h, ok := r.held[port.Name]
	if !ok || h.generation != port.Generation {
		h = hold{port.Generation, r.now().Add(r.gap)}
		r.held[port.Name] = h
	}
	return h.until.Sub(r.now())
}

func (r *Reconciler) write(ctx context.Context, port *v1.KuryrPort, status v1.KuryrPortStatus) error {
	old := port.Status
	old.Attachment = nil
	if !equality.Semantic.DeepEqual(status, old) {
		version, err := kube.ApplyStatus(ctx, r.client, port, "KuryrPort", &status, kube.OwnerPort)
		if err != nil {
			return err
		}
		if version == "" {
			return nil // gone
		}
		r.wrote(port.Name, version)
		port.ResourceVersion = version
	}
	if status.Phase == "" || port.Labels[v1.PortStatusLabel] == string(status.Phase) {
		return nil
	}
	return r.patch(ctx, port, func(p *v1.KuryrPort) { kube.Label(p, status.Phase) })
}

// patch changes the metadata of a KuryrPort, if nobody else has meanwhile.
func (r *Reconciler) patch(ctx context.Context, port *v1.KuryrPort, change func(*v1.KuryrPort)) error {
	next := &v1.KuryrPort{ObjectMeta: *port.ObjectMeta.DeepCopy()}
	err := kube.PatchMetadata(ctx, r.client, next, "KuryrPort", kube.OwnerPort, func(o client.Object) { change(o.(*v1.KuryrPort)) })
	if err != nil {
		return err
	}
	r.wrote(port.Name, next.ResourceVersion)
	port.ObjectMeta = next.ObjectMeta
	return nil
}

func (r *Reconciler) status(port *v1.KuryrPort, reason string, failed error) v1.KuryrPortStatus {
	s := v1.KuryrPortStatus{
		Phase:                   phase(port, reason),
		AppliedSecurityGroupIDs: port.Status.AppliedSecurityGroupIDs,
		Active:                  r.isActive(port),
		Conditions:              slices.Clone(port.Status.Conditions),
	}
	put := func(kind string, is bool, reason, message string) {
		kube.SetCondition(&s.Conditions, kind, is, reason, message, port.Generation, r.now())
	}
	if failed == nil {
		s.AppliedSecurityGroupIDs = slices.Sorted(slices.Values(port.Spec.SecurityGroupIDs))
		put(v1.ConditionReady, true, v1.ReasonReady, "The port is in the SDN as wanted.")
		put(v1.ConditionProgressing, false, "Settled", "Nothing is to be done.")
		return s
	}
	if port.InDoubt() || !port.Told() {
		s.AppliedSecurityGroupIDs = nil // nobody knows any more
	}
	put(v1.ConditionReady, false, reason, outcome.Explain(failed, port.Spec.NodeName))
	put(v1.ConditionProgressing, s.Phase != v1.PortFailed, "Working", "The SDN is asked again.")
	return s
}

// missing says that the SDN has lost a port. One that is not plugged the planner
// deletes; its pod, if it has one, gets another.
func (r *Reconciler) missing(port *v1.KuryrPort) {
	note := "The SDN no longer has port %s, most likely as somebody deleted it there: "
	if port.Status.Attachment == nil {
		note += "it is replaced"
	} else {
		note += "the pod has lost its network. Delete the pod to get it another"
	}
	r.events.Eventf(kube.Reference(port, "KuryrPort"), nil, corev1.EventTypeWarning, v1.ReasonPortMissing, "CheckPort", note, port.Name)
	if ref := port.Spec.PodRef; ref != nil {
		r.events.Eventf(kube.Reference(kube.PodOf(ref), "Pod"), nil, corev1.EventTypeWarning, v1.ReasonPortMissing, "CheckPort", note, port.Name)
	}
}

// refused tells a pod that the SDN does not take what its port is to be, once
// for each spec: most likely its security groups, by a rule of the configuration.
func (r *Reconciler) refused(port *v1.KuryrPort, failed error) {
	ready := meta.FindStatusCondition(port.Status.Conditions, v1.ConditionReady)
	told := ready != nil && ready.Reason == v1.ReasonRejected && ready.ObservedGeneration == port.Generation
	ref := port.Spec.PodRef
	if told || ref == nil {
		return
	}
	note := "The pod waits for its network: %s"
	if port.Status.Attachment != nil {
		note = "The pod keeps the security groups that it has: %s"
	}
	r.events.Eventf(kube.Reference(kube.PodOf(ref), "Pod"), nil, corev1.EventTypeWarning, v1.ReasonRejected, "UpdatePort", note, outcome.Cut(outcome.Explain(failed, port.Spec.NodeName)))
}

// errDeleting is what a status says until the SDN has answered.
var errDeleting = &sdn.PendingError{What: "the SDN to delete the port"}
