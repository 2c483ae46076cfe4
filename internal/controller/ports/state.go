// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// What is asked about a port beyond its own object: whether the SDN has lost it,
// whether it passes traffic, and whether a living pod has it.

// portMemory is what is remembered of single ports, beyond their objects. It may be
// lost: everything is seen again. Its methods are safe for concurrent use.
type portMemory struct {
	mu     sync.Mutex
	gone   map[string]bool // ports that the SDN has lost
	active map[string]bool // ports that wait for the SDN to pass their traffic: whether it does
}

func newPortMemory() *portMemory {
	return &portMemory{gone: map[string]bool{}, active: map[string]bool{}}
}

// setGone notes that the SDN has lost a port, or that it has it after all.
func (m *portMemory) setGone(name string, gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if gone {
		m.gone[name] = true
	} else {
		delete(m.gone, name)
	}
}

func (m *portMemory) isGone(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone[name]
}

// portGone forgets a port whose object is gone.
func (m *portMemory) portGone(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.gone, name)
	delete(m.active, name)
}

// awaitActive notes whether a port waits for the SDN to pass its traffic, and
// returns whether it has been seen to.
func (m *portMemory) awaitActive(name string, waits bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !waits {
		delete(m.active, name)
		return false
	}
	seen := m.active[name]
	m.active[name] = seen
	return seen
}

// isActive notes that the SDN passes a port's traffic, and returns whether it
// is one that waited for it.
func (m *portMemory) isActive(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, waits := m.active[name]
	if !waits || seen {
		return false
	}
	m.active[name] = true
	return true
}

// awaitActives returns the ports that still wait for the SDN to pass their
// traffic, sorted.
func (m *portMemory) awaitActives() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name, seen := range m.active {
		if !seen {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// activity asks the SDN whether ports pass traffic, for types whose node cannot
// see it: all ports whose turn it is with one call, and none while none waits.
type activity struct {
	cloud  sdn.Ports
	memory *portMemory
	seen   func(ctrl.Request) // wakes the port reconciler
}

// How long it is between two questions about a port: twice as long after each, as one
// whose host is down may wait for days. Whether another port waits is looked at every
// activitySoonest.
const (
	activitySoonest = 2 * time.Second
	activityLatest  = 30 * time.Second
)

// question is when a port is asked about next, and how long after the last time that is.
type question struct{ at, gap time.Duration }

func (r *activity) run(ctx context.Context) error {
	tick := time.NewTicker(activitySoonest)
	defer tick.Stop()
	questions := map[string]question{}
	for now := activitySoonest; ; now += activitySoonest {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if due := dueNow(questions, r.memory.awaitActives(), now); len(due) > 0 {
			r.look(ctx, due)
		}
	}
}

// dueNow returns those of the waiting ports that are to be asked about, and notes when
// they are again. Those that wait no more are forgotten.
func dueNow(questions map[string]question, waiting []string, now time.Duration) (due []string) {
	maps.DeleteFunc(questions, func(name string, _ question) bool {
		_, waits := slices.BinarySearch(waiting, name)
		return !waits
	})
	for _, name := range waiting {
		q := questions[name]
		if now < q.at {
			continue
		}
		due = append(due, name)
		q.gap = min(activityLatest, max(activitySoonest, 2*q.gap))
		q.at = now + q.gap
		questions[name] = q
	}
	return due
}

func (r *activity) look(ctx context.Context, names []string) {
	states, err := r.cloud.States(ctx, names)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("could not ask which ports are active", "error", err.Error())
		return
	}
	for name, state := range states {
		if state.Active && r.memory.isActive(name) {
			r.seen(ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
	}
}

// orphaned returns the living pod that would be left without a port if this
// KuryrPort went: somebody has deleted it by hand. Nil if there is none.
func (r *Reconciler) orphaned(ctx context.Context, port *v1.KuryrPort) (*corev1.Pod, error) {
	ref := port.Spec.PodRef
	if ref == nil {
		return nil, nil
	}
	pod, err := r.holder(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("reading pod %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	if pod == nil || pool.Finished(pod) {
		return nil, nil
	}
	list, err := kube.PortsOn(ctx, r.client, port.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	for i := range list {
		other := &list[i]
		if other.Name != port.Name && other.DeletionTimestamp.IsZero() && other.Spec.PodRef.Claim() == ref.Claim() {
			return nil, nil // it has another, and this one was too many
		}
	}
	return pod, nil
}

// holder returns the pod that a port is bound to, nil if it is gone. Of one that
// this process never saw the cache may be too old to know, after a start.
func (r *Reconciler) holder(ctx context.Context, port *v1.KuryrPort) (*corev1.Pod, error) {
	ref := port.Spec.PodRef
	readers := []client.Reader{r.client, r.live}
	if r.pods.Saw(pool.Ref{Pool: port.Spec.Pool, Node: port.Spec.NodeName}, ref.UID) {
		readers = readers[:1]
	}
	for _, reader := range readers {
		var pod corev1.Pod
		err := reader.Get(ctx, kube.PodKey(ref), &pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && pod.UID == ref.UID {
			return &pod, nil
		}
	}
	return nil, nil
}

// handBack lets the object go and leaves the port in the SDN, where it serves
// the pod. The planner then finds it by the pod's annotation and makes the
// object again; so the annotation has to be there first, or a crash in between
// would cost the pod its port.
func (r *Reconciler) handBack(ctx context.Context, port *v1.KuryrPort, pod *corev1.Pod) (ctrl.Result, error) {
	if v1.PortNamed(kube.Annotation(pod), port.Spec.PodRef.Interface) != port.Name {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil // the annotator is about to write it
	}
	const note = "KuryrPort %s was deleted while pod %s/%s uses it: it is put back. To free it delete the pod"
	for _, on := range []*corev1.ObjectReference{kube.Reference(pod, "Pod"), kube.Reference(port, "KuryrPort")} {
		r.events.Eventf(on, nil, corev1.EventTypeWarning, "KuryrPortDeleted", "PutBack", note, port.Name, pod.Namespace, pod.Name)
	}
	ctrl.LoggerFrom(ctx).Info("putting back KuryrPort that was deleted under a living pod",
		"port", port.Name, "namespace", pod.Namespace, "pod", pod.Name)
	// Should the pod go before the port has its object again, nobody else knows of it.
	// That is not looked for at once: a process that has just started serves pods first.
	time.AfterFunc(r.settings.Load().Orphans.Grace.Duration, r.doubtful)
	return kube.Retry(r.drop(ctx, port))
}

// suspect reports whether the SDN is said to have lost the port.
func (r *Reconciler) suspect(port *v1.KuryrPort) bool {
	ready := meta.FindStatusCondition(port.Status.Conditions, v1.ConditionReady)
	return r.memory.isGone(port.Name) || ready != nil && ready.Reason == v1.ReasonPortMissing
}

// phase sums up a port, given how applying it went.
func phase(port *v1.KuryrPort, reason string) v1.PortPhase {
	switch {
	case !port.DeletionTimestamp.IsZero():
		return v1.PortDeleting
	case reason == v1.ReasonPortMissing, reason == v1.ReasonRejected:
		return v1.PortFailed
	case port.Spec.PodRef != nil:
		return v1.PortBound
	case reason != v1.ReasonReady:
		return v1.PortRecycling
	}
	return v1.PortAvailable
}

// isActive reports whether the port's traffic passes. Of types that a node
// waits for itself its word is taken; of others the SDN is asked, see activity.
// A subport is active as soon as it is on its trunk, plugged or not.
func (r *Reconciler) isActive(port *v1.KuryrPort) bool {
	t := port.Spec.VIF.Type
	if port.Status.Attachment == nil && t != "vlan" {
		r.memory.awaitActive(port.Name, false)
		return false
	}
	if t == "ovs" || t == "bridge" || t == "macvlan" || port.Status.Active {
		return true
	}
	return r.memory.awaitActive(port.Name, true)
}
