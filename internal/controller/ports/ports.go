// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package ports applies KuryrPorts: security groups, names and deletion in the SDN, and status,
// label and finalizer of the object. Package supply creates the ports, and package pools
// decides which pod gets which port.
//
// Package ports reads the pod of a deleted KuryrPort: if the pod lives, a person has deleted
// the object. It also annotates each pod with its port.
//
// A KuryrPort is reconciled when another writer changes it, and when the collector does not
// find its port in the SDN. It is also reconciled when the SDN begins to pass its traffic, and
// when the SDN has reported the security groups of a returned port.
package ports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// portWorkers is the number of KuryrPorts that are applied at once. The backend limits its own
// requests.
const portWorkers = 32

// roomKeeper learns of each deleted port of a pool: a pod may wait for the room.
type roomKeeper interface{ Freed(pool.Ref) }

// podFinder finds the pod to which a port of a pool is bound; nil if the pod does not exist any more.
type podFinder interface {
	Holder(ctx context.Context, r pool.Ref, ref *v1.PodReference) (*corev1.Pod, error)
}

// Reconciler applies KuryrPorts: it brings the port of the SDN in line with the spec, and
// writes the status.
type Reconciler struct {
	Options
	client  client.Client
	memory  *portMemory
	events  events.EventRecorder
	queue   *kube.Queue[ctrl.Request]
	objects *kube.Object[*v1.KuryrPort]
	checks  kube.Signal // returned ports have to be checked
}

// Options are the parts that the reconciler of KuryrPorts needs. All must be given.
type Options struct {
	Shards     kube.Shards
	Ports      sdn.Ports
	Visibility sdn.Visibility
	Settings   *settings.Live
	Room       roomKeeper
	Pods       podFinder
	CheckPorts kube.Signal // has the collector search for ports that no object names
	Backoff    outcome.Backoff
	StatusGap  time.Duration // until a bound port's status is written
}

// New returns a Reconciler. Setup adds it to mgr.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	r := &Reconciler{
		Options: o, client: mgr.GetClient(), memory: newPortMemory(),
		events: mgr.GetEventRecorder("kuryr-controller"), queue: &kube.Queue[ctrl.Request]{}, checks: kube.NewSignal(),
		objects: kube.NewObject(mgr.GetClient(), &v1.KuryrPort{}, "KuryrPort", kube.OwnerPort, v1.PortFinalizer),
	}
	// A process that has lost the node may send its last write late, after the next owner has given the
	// port to another pod.
	r.objects.Versioned = true
	o.Shards.Follow(nil, r.memory.lost)
	return r
}

// Lost has the reconciler ask the SDN whether it has lost a port.
func (r *Reconciler) Lost(name string) {
	r.memory.setGone(name, true)
	r.queue.Add(named(name))
}

// Regroup has the reconciler write the security groups of a port once more: the SDN has others.
func (r *Reconciler) Regroup(name string) {
	r.memory.change(name, func(n *portNote) { n.check.state = groupsChanged })
	r.queue.Add(named(name))
}

// named returns the request for a KuryrPort.
func named(port string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Name: port}}
}

// Setup adds the reconciler, the loops that ask the SDN about activity and returned ports, and
// the reconciler that annotates pods.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	key := kube.ByObject(r.client, &v1.KuryrPort{})
	activity := kube.Every("activity", func() time.Duration { return activityTick }, r.askActive, nil)
	annotator := &annotations{client: r.client, backoff: r.Backoff, shards: r.Shards}
	if err := errors.Join(mgr.Add(activity), mgr.Add(kube.Runnable(r.runChecks)), annotator.setup(mgr)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("ports").
		WithOptions(outcome.Options[ctrl.Request](portWorkers, r.Backoff)).
		For(&v1.KuryrPort{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: othersWrite, DeleteFunc: r.deleted})).
		WatchesRawSource(r.queue.Source()).
		WatchesRawSource(kube.Gained(r.Shards, key, kube.AllOf(r.client, &v1.KuryrPortList{}))).
		Complete(kube.Sharded(r.Shards, key, r))
}

// deleted tells of the room of a port that another process has deleted, for which a pod on an own node may
// wait. That process does not know the pod. It passes all deletions: the port is forgotten.
func (r *Reconciler) deleted(e event.DeleteEvent) bool {
	port := e.Object.(*v1.KuryrPort)
	if port.Status.Phase == v1.PortDeleting && !r.Shards.Owns(kube.OnNode(port.Spec.NodeName)) {
		r.Room.Freed(pool.Ref{Pool: port.Spec.Pool, Node: port.Spec.NodeName})
	}
	return true
}

// othersWrite reports whether an update may come from another writer, or may leave something to
// do. The status that this reconciler writes does neither: its event would repeat a failed
// request at once, without backoff.
func othersWrite(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*v1.KuryrPort), e.ObjectNew.(*v1.KuryrPort)
	label := now.Labels[v1.PortStatusLabel]
	return before.ResourceVersion == now.ResourceVersion || // the cache has read all objects anew
		before.Generation != now.Generation ||
		before.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() ||
		!slices.Equal(before.Finalizers, now.Finalizers) ||
		label != before.Labels[v1.PortStatusLabel] && label != string(now.Status.Phase) ||
		len(now.Status.Conditions) == 0 || // another writer has emptied the status
		!equality.Semantic.DeepEqual(before.Status.Attachment, now.Status.Attachment)
}

// Reconcile applies one KuryrPort.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	port, state, err := r.objects.Get(ctx, req.NamespacedName)
	switch {
	case err != nil, state == kube.Leaving:
		return ctrl.Result{}, err
	case state == kube.Gone:
		r.memory.forget(req.Name)
		return ctrl.Result{}, nil
	case !port.DeletionTimestamp.IsZero():
		return r.release(ctx, port)
	case !r.objects.Held(port):
		return kube.Retry(r.objects.Hold(ctx, port)) // its event leads here again
	}
	// It was just given back, and has the groups of its spec by its status.
	if port.Spec.PodRef == nil && port.Status.Phase == v1.PortBound && port.Grouped() && !r.Settings.Load().Pods.PortDebug {
		if wait := r.awaitCheck(port); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	return r.report(ctx, port, r.apply(ctx, port))
}

// apply brings the port of the SDN in line with its spec. A new port already is, by the request
// that created it, and costs no request.
func (r *Reconciler) apply(ctx context.Context, port *v1.KuryrPort) error {
	ready := meta.FindStatusCondition(port.Status.Conditions, v1.ConditionReady)
	if r.memory.of(port.Name).gone || ready != nil && ready.Reason == v1.ReasonPortMissing { // it may be lost
		if _, err := r.Ports.Port(ctx, port.Name); err != nil {
			return fmt.Errorf("looking for port %s: %w", port.Name, r.confirmed(ctx, port, err))
		}
		r.memory.setGone(port.Name, false)
	}
	update, needed := r.update(port)
	if !needed {
		return nil
	}
	if err := r.Ports.UpdatePort(ctx, port.Name, update); err != nil {
		return fmt.Errorf("updating port %s: %w", port.Name, r.confirmed(ctx, port, err))
	}
	if update.SecurityGroupIDs != nil {
		r.memory.grouped(port.Name)
	}
	ctrl.LoggerFrom(ctx).Info("updated port", "port", port.Name)
	return nil
}

// confirmed returns err. If err says that the port does not exist, but the SDN would not show
// the port to this credential, it returns that error instead. Otherwise a pod would get an
// Event that it has lost its network, and a free port would be left in the SDN.
func (r *Reconciler) confirmed(ctx context.Context, port *v1.KuryrPort, err error) error {
	if !errors.Is(err, sdn.ErrNotFound) {
		return err
	}
	if unseen := r.Visibility.Sees(ctx, port.Spec.ProjectID, port.Spec.NetworkID); unseen != nil {
		return unseen
	}
	return err
}

// update returns what has to change in the SDN.
func (r *Reconciler) update(port *v1.KuryrPort) (u sdn.PortUpdate, needed bool) {
	first := port.Status.Phase == ""
	if !port.Grouped() || r.memory.of(port.Name).check.state == groupsChanged {
		groups := slices.Clone(port.Spec.SecurityGroupIDs)
		u.SecurityGroupIDs, needed = &groups, true
	}
	ref := port.Spec.PodRef
	// The phase says whether the port was named for a pod, if that request succeeded.
	named := (ref != nil) == (port.Status.Phase == v1.PortBound) && meta.IsStatusConditionTrue(port.Status.Conditions, v1.ConditionReady)
	if r.Settings.Load().Pods.PortDebug && !named && (ref != nil || !first) {
		name, device := sdn.FreePortName, ""
		if ref != nil {
			name, device = ref.Namespace+"/"+ref.Name, string(ref.UID)
		} else { // the groups are written as well, instead of being asked for
			groups := slices.Clone(port.Spec.SecurityGroupIDs)
			u.SecurityGroupIDs = &groups
		}
		u.Name, u.DeviceID, needed = &name, &device, true
	}
	return u, needed
}

// report writes the status after an attempt to apply the spec, and Events about a loss or a
// refusal.
func (r *Reconciler) report(ctx context.Context, port *v1.KuryrPort, failed error) (ctrl.Result, error) {
	outcome := outcome.Of(outcome.Port, failed)
	reason := outcome.Reason
	status := r.status(port, reason, failed)
	if wait := r.delay(port, failed); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if reason == v1.ReasonPortMissing && port.Status.Phase != v1.PortFailed {
		r.tellLoss(port)
	}
	if reason == v1.ReasonRejected {
		r.tellRefusal(port, failed)
	}
	if err := r.write(ctx, port, status); err != nil {
		return kube.Retry(err)
	}
	return r.Backoff.Result(outcome)
}

// delay returns how long the write of a bound port's status may wait. It would say no more than
// the spec does. Once the daemon has reported that the port is plugged, one write says both.
func (r *Reconciler) delay(port *v1.KuryrPort, failed error) time.Duration {
	given := port.Spec.PodRef != nil && port.Status.Phase == v1.PortAvailable && port.Status.Attachment == nil
	changed := r.Settings.Load().Pods.PortDebug || !port.Grouped() // the SDN was asked for a change
	bound, err := time.Parse(time.RFC3339Nano, port.Annotations[v1.BoundAnnotation])
	if ago := time.Since(bound); failed == nil && given && !changed && err == nil && ago >= 0 { // another process' clock may be ahead
		return r.StatusGap - ago
	}
	return 0
}

// write writes the status, and then the label that mirrors it, if they change. It returns a conflict if
// another writer was faster, mostly the daemon, which reports an attachment: the port is applied again
// then, a moment later.
func (r *Reconciler) write(ctx context.Context, port *v1.KuryrPort, status v1.KuryrPortStatus) error {
	is := port.Status
	is.Attachment = nil // the daemon writes it
	there, err := r.objects.Report(ctx, port, &is, &status)
	if !there || err != nil || status.Phase == "" || port.Labels[v1.PortStatusLabel] == string(status.Phase) {
		return err
	}
	return r.objects.Patch(ctx, port, func(p *v1.KuryrPort) { kube.Label(p, status.Phase) })
}

// status returns the status of a port after an attempt to apply its spec, which may have failed.
func (r *Reconciler) status(port *v1.KuryrPort, reason string, failed error) v1.KuryrPortStatus {
	s := v1.KuryrPortStatus{
		Phase:                   phase(port, reason),
		AppliedSecurityGroupIDs: port.Status.AppliedSecurityGroupIDs,
		Active:                  r.isActive(port),
		Conditions:              slices.Clone(port.Status.Conditions),
	}
	put := func(kind string, is bool, reason, message string) {
		kube.SetCondition(&s.Conditions, kind, is, reason, message, port.Generation, time.Now())
	}
	if s.Active && port.Spec.VIF.ByAgent() {
		s.ActiveFor = port.Status.Attachment.ContainerID
	}
	if failed == nil {
		s.AppliedSecurityGroupIDs = slices.Sorted(slices.Values(port.Spec.SecurityGroupIDs))
		put(v1.ConditionReady, true, v1.ReasonReady, "The port matches its spec.")
		put(v1.ConditionProgressing, false, "Settled", "No action needed.")
		return s
	}
	if port.InDoubt() || !port.Told() {
		s.AppliedSecurityGroupIDs = nil // the groups are not known any more
	}
	put(v1.ConditionReady, false, reason, explain(failed, port))
	put(v1.ConditionProgressing, s.Phase != v1.PortFailed, "Working", "Kuryr tries again.")
	return s
}

// explain describes an error of the SDN for a reader of the port.
func explain(err error, port *v1.KuryrPort) string {
	return outcome.Of(outcome.Port, err).Explain("{node}", port.Spec.NodeName)
}

// tellLoss writes an Event: the SDN has lost the port. If the port is not plugged, package
// pools deletes its object and gives its pod another port.
func (r *Reconciler) tellLoss(port *v1.KuryrPort) {
	note := "The cloud no longer has port %s. Somebody has probably deleted it there. "
	if port.Status.Attachment == nil {
		note += "The port is replaced"
	} else {
		note += "The pod has lost its network. Delete the pod so that it gets another port"
	}
	r.events.Eventf(kube.Reference(port, "KuryrPort"), nil, corev1.EventTypeWarning, v1.ReasonPortMissing, "CheckPort", note, port.Name)
	if ref := port.Spec.PodRef; ref != nil {
		r.events.Eventf(kube.Reference(kube.PodOf(ref), "Pod"), nil, corev1.EventTypeWarning, v1.ReasonPortMissing, "CheckPort", note, port.Name)
	}
}

// tellRefusal writes an Event on the pod: the SDN refuses the spec of its port, most likely the
// security groups of a rule of the configuration. It does so once for each spec.
func (r *Reconciler) tellRefusal(port *v1.KuryrPort, failed error) {
	ready := meta.FindStatusCondition(port.Status.Conditions, v1.ConditionReady)
	reported := ready != nil && ready.Reason == v1.ReasonRejected && ready.ObservedGeneration == port.Generation
	ref := port.Spec.PodRef
	if reported || ref == nil {
		return
	}
	note := "The pod waits for its network: %s"
	if port.Status.Attachment != nil {
		note = "The pod keeps its current security groups: %s"
	}
	r.events.Eventf(kube.Reference(kube.PodOf(ref), "Pod"), nil, corev1.EventTypeWarning, v1.ReasonRejected, "UpdatePort", note, outcome.Cut(explain(failed, port)))
}

// errDeleting is the reason in the status until the SDN has answered.
var errDeleting = &sdn.PendingError{What: "the SDN to delete the port"}
