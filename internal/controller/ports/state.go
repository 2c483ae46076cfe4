// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// What is known of a port beyond its own object: whether the SDN has lost it, whether it passes
// traffic, and whether a living pod has it.

// portMemory is what is known of single ports beyond their objects. It may be lost. Its methods
// are safe for concurrent use.
type portMemory struct{ ports *xsync.Map[string, portNote] }

// portNote is what is known of one port.
type portNote struct {
	node   string  // empty while only gone is known
	gone   bool    // the SDN has lost it
	active waiting // for the SDN to pass its traffic
	check  check   // of a returned port's security groups
}

// waiting is the wait of a port for the SDN to pass its traffic.
type waiting struct {
	since   time.Time // zero: it does not wait
	sandbox string    // for which; empty: an earlier answer of the SDN counts, too
	seen    bool      // whether the SDN passes it
	ask     time.Time // when the SDN is asked next
}

func newPortMemory() *portMemory { return &portMemory{xsync.NewMap[string, portNote]()} }

// change runs f on what is known of a port.
func (m *portMemory) change(name string, f func(*portNote)) {
	m.ports.Compute(name, func(n portNote, _ bool) (portNote, xsync.ComputeOp) {
		if f(&n); n == (portNote{node: n.node}) {
			return n, xsync.DeleteOp
		}
		return n, xsync.UpdateOp
	})
}

// lost drops what is known of the ports of lost nodes. What the collector alone knows of a port stays:
// then the SDN is asked before anything is written.
func (m *portMemory) lost(keys kube.Keys) {
	m.ports.DeleteMatching(func(_ string, n portNote) (gone, stop bool) { return n.node != "" && keys(kube.OnNode(n.node)), false })
}

// setGone notes whether the SDN has lost a port.
func (m *portMemory) setGone(name string, gone bool) {
	m.change(name, func(n *portNote) { n.gone = gone })
}

// of returns what is known of a port.
func (m *portMemory) of(name string) portNote {
	n, _ := m.ports.Load(name)
	return n
}

// forget drops what is known of a port whose object was deleted.
func (m *portMemory) forget(name string) { m.change(name, func(n *portNote) { *n = portNote{} }) }

// awaitActive notes that a port waits for the SDN to pass its traffic, for this sandbox, and returns
// whether the SDN was seen to pass it since it does.
func (m *portMemory) awaitActive(port *v1.KuryrPort, sandbox string) (seen bool) {
	m.change(port.Name, func(n *portNote) {
		n.node = port.Spec.NodeName
		if n.active.since.IsZero() || n.active.sandbox != sandbox {
			n.active = waiting{since: time.Now(), sandbox: sandbox}
		}
		seen = n.active.seen
	})
	return seen
}

// awaitNothing notes that a port does not wait for the SDN.
func (m *portMemory) awaitNothing(name string) {
	m.change(name, func(n *portNote) { n.active = waiting{} })
}

// isActive notes that the SDN passes a port's traffic, as it was asked for this sandbox, and returns
// whether the port was waiting for that.
func (m *portMemory) isActive(name, sandbox string) (waited bool) {
	m.change(name, func(n *portNote) {
		if waited = !n.active.since.IsZero() && n.active.sandbox == sandbox && !n.active.seen; waited {
			n.active.seen = true
		}
	})
	return waited
}

// grouped ends the check of a port: its groups were written, or it was deleted.
func (m *portMemory) grouped(name string) { m.change(name, func(n *portNote) { n.check = check{} }) }

// unchecked returns the returned ports that have to be checked, each with its generation.
func (m *portMemory) unchecked() map[string]int64 {
	names := map[string]int64{}
	for name, n := range m.ports.All() {
		if n.check.state == checkAwaited || n.check.state == checkOverdue {
			names[name] = n.check.generation
		}
	}
	return names
}

// askedNow returns the ports about whose traffic the SDN is to be asked now, each with the sandbox
// that waits. A port is asked about again after a quarter of the time that it has waited, so that a
// pod waits at most that much longer. A burst of pods, for which neutron-openvswitch-agent needs half
// a minute, costs few requests, and so does a port of a host that is down for days.
func (m *portMemory) askedNow() map[string]string {
	now, names := time.Now(), map[string]string{}
	for name, n := range m.ports.All() {
		if n.active.since.IsZero() || n.active.seen || now.Before(n.active.ask) {
			continue
		}
		latest := activityLatest
		if n.active.sandbox != "" {
			latest = activitySandbox
		}
		names[name] = n.active.sandbox
		m.change(name, func(n *portNote) { n.active.ask = now.Add(min(latest, max(activityTick, now.Sub(n.active.since)/4))) })
	}
	return names
}

const (
	activityTick    = time.Second
	activityLatest  = 30 * time.Second
	activitySandbox = 4 * time.Second // the kubelet waits
)

// askActive asks the SDN which ports pass traffic, for VIF types with which the node cannot see
// it. One request is for all ports that are due; none is sent while no port waits.
func (r *Reconciler) askActive(ctx context.Context) error {
	due := r.memory.askedNow() // before the request: a later sandbox needs a later answer
	if len(due) == 0 {
		return nil
	}
	states, err := r.Ports.States(ctx, slices.Sorted(maps.Keys(due)))
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("cannot read which ports are active", "error", err.Error())
		return nil
	}
	for name, state := range states {
		if state.Active && r.memory.isActive(name, due[name]) {
			r.queue.Add(named(name))
		}
	}
	return nil
}

// livingPod returns the living pod that needs this deleted KuryrPort: a person has deleted the
// object. It returns nil without such a pod.
func (r *Reconciler) livingPod(ctx context.Context, port *v1.KuryrPort) (*corev1.Pod, error) {
	ref := port.Spec.PodRef
	if ref == nil {
		return nil, nil
	}
	pod, err := r.Pods.Holder(ctx, pool.Ref{Pool: port.Spec.Pool, Node: port.Spec.NodeName}, ref)
	if err != nil || pod == nil || pool.Finished(pod) {
		return nil, err
	}
	list, err := kube.PortsOn(ctx, r.client, port.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	for i := range list {
		other := &list[i]
		if other.Name != port.Name && other.DeletionTimestamp.IsZero() && other.Spec.PodRef.Claim() == ref.Claim() {
			return nil, nil // the pod has another port: this one was superfluous
		}
	}
	return pod, nil
}

// reattach lets the API server delete the object, and keeps the port, which serves the pod.
// Package pools then finds the port by the pod's annotation and creates the object again. So
// the annotation must be written first: else a crash in between would cost the pod its port.
func (r *Reconciler) reattach(ctx context.Context, port *v1.KuryrPort, pod *corev1.Pod) (ctrl.Result, error) {
	if v1.PortNamed(kube.Annotation(pod), port.Spec.PodRef.Interface) != port.Name {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil // annotations will write it
	}
	const note = "KuryrPort %s was deleted while pod %s/%s uses it, and Kuryr has put back the KuryrPort. Delete the pod to free the port"
	for _, on := range []*corev1.ObjectReference{kube.Reference(pod, "Pod"), kube.Reference(port, "KuryrPort")} {
		r.events.Eventf(on, nil, corev1.EventTypeWarning, "KuryrPortDeleted", "PutBack", note, port.Name, pod.Namespace, pod.Name)
	}
	ctrl.LoggerFrom(ctx).Info("restoring a KuryrPort that was deleted while a pod uses it",
		"port", port.Name, "namespace", pod.Namespace, "pod", pod.Name)
	// If the pod is deleted before the port has its object again, only the collector finds the
	// port. The collector is triggered later: a process that has just started serves pods
	// first.
	time.AfterFunc(r.Settings.Load().Orphans.Grace.Duration, r.CheckPorts.Send)
	return kube.Retry(r.objects.Drop(ctx, port))
}

// phase returns the phase of a port after an attempt to apply it.
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

// isActive reports whether the port's traffic passes. For VIF types that the daemon itself
// waits for, an attachment says so; for others the SDN is asked, see askActive. A subport is
// active as soon as it is on its trunk, plugged or not.
func (r *Reconciler) isActive(port *v1.KuryrPort) bool {
	t := port.Spec.VIF.Type
	if port.Spec.VIF.ByAgent() {
		return r.isActiveByAgent(port)
	}
	if port.Status.Attachment == nil && t != "vlan" {
		r.memory.awaitNothing(port.Name)
		return false
	}
	if t == "ovs" || t == "bridge" || t == "macvlan" || port.Status.Active {
		return true
	}
	return r.memory.awaitActive(port, "")
}

// isActiveByAgent reports whether the SDN said, since neutron-openvswitch-agent tagged the port for
// its sandbox, that the traffic passes. Before, the SDN may not know yet that the port was unplugged
// from an earlier sandbox. After the tag, the agent sets the flows of the security groups, and then
// the SDN is ACTIVE.
func (r *Reconciler) isActiveByAgent(port *v1.KuryrPort) bool {
	a := port.Status.Attachment
	if a == nil || !a.Tagged {
		r.memory.awaitNothing(port.Name)
		return false
	}
	if port.Status.Active && port.Status.ActiveFor == a.ContainerID {
		return true
	}
	return r.memory.awaitActive(port, a.ContainerID)
}
