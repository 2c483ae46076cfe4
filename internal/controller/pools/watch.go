// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/sites"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// poolWorkers is the number of pools that are planned at once. A reconcile mostly waits for the API
// server and the cache; with fewer workers pools would wait for each other. A plan whose writes the
// cache does not show keeps its worker, so there are more than can work at once.
const poolWorkers = 512

// Setup adds the reconciler, the search for the ports of virtual machines, the reports to pods that
// wait for a network, and the loops that follow the settings and the pods' subnets.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	c := mgr.GetCache()
	lookPeriod := func() time.Duration { return r.Look }
	if err := errors.Join(r.sites.ParentPorts.Setup(mgr), r.sites.Waiting.Setup(mgr),
		mgr.Add(kube.Runnable(r.Settings.Follow(r.planAll))), mgr.Add(kube.Every("subnets", lookPeriod, r.lookAtSubnets, nil))); err != nil {
		return err
	}
	return builder.TypedControllerManagedBy[pool.Ref](mgr).Named("pools").
		WithOptions(outcome.Options[pool.Ref](poolWorkers, r.Backoff)).
		WatchesRawSource(source.TypedKind(c, &corev1.Pod{},
			handler.TypedEnqueueRequestsFromMapFunc(r.ofPod), predicate.TypedFuncs[*corev1.Pod]{UpdateFunc: r.podMoved})).
		WatchesRawSource(source.TypedKind(c, &v1.KuryrPort{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofPort))).
		WatchesRawSource(source.TypedKind(c, &v1.KuryrPortPool{},
			handler.TypedEnqueueRequestsFromMapFunc(ofPool), r.noteWaiting(), poolChanged)).
		WatchesRawSource(source.TypedKind(c, &corev1.Node{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, node *corev1.Node) []pool.Ref { return r.onNode(ctx, node.Name) }),
			predicate.TypedFuncs[*corev1.Node]{UpdateFunc: sites.NodeMoved})).
		WatchesRawSource(source.TypedKind(c, kube.NamespaceMeta(),
			handler.TypedEnqueueRequestsFromMapFunc(r.ofNamespace), relabelled)).
		WatchesRawSource(r.Queue.Source()).
		WatchesRawSource(kube.Gained(r.Shards, keyOf, r.all)).
		Complete(kube.Sharded(r.Shards, keyOf, r))
}

// keyOf returns the key of a pool: its node.
func keyOf(_ context.Context, req pool.Ref) (kube.Key, bool) { return kube.OnNode(req.Node), true }

// owns reports whether this process plans the pools of a node. Events of other nodes are dropped here
// already: their sites would be read for nothing, and remembered. A node that is gained is read anew.
func (r *Reconciler) owns(node string) bool { return r.Shards.Owns(kube.OnNode(node)) }

// all returns the pools of all own nodes, as the events of a start do, also those of deleted nodes.
func (r *Reconciler) all(ctx context.Context) (found []pool.Ref, err error) {
	var ports v1.KuryrPortList
	var list v1.KuryrPortPoolList
	var nodes corev1.NodeList
	if err := errors.Join(r.client.List(ctx, &ports, kube.ReadOnly), r.client.List(ctx, &list, kube.ReadOnly), r.client.List(ctx, &nodes, kube.ReadOnly)); err != nil {
		return nil, fmt.Errorf("listing nodes, KuryrPorts and KuryrPortPools: %w", err)
	}
	for i := range nodes.Items {
		found = append(found, r.onNode(ctx, nodes.Items[i].Name)...)
	}
	for i := range list.Items {
		found = append(found, ofPool(ctx, &list.Items[i])...)
	}
	for i := range ports.Items {
		found = append(found, pool.Ref{Pool: ports.Items[i].Spec.Pool, Node: ports.Items[i].Spec.NodeName})
	}
	return found, nil
}

// relabelled passes creations, deletions and changes of labels and of the annotations that choose a
// network: the cache has no others.
var relabelled = predicate.Or[*metav1.PartialObjectMetadata](
	predicate.TypedLabelChangedPredicate[*metav1.PartialObjectMetadata]{}, predicate.TypedAnnotationChangedPredicate[*metav1.PartialObjectMetadata]{},
)

// poolChanged passes changes of a pool's object that a plan depends on, but not its status.
var poolChanged = predicate.Or[*v1.KuryrPortPool](
	predicate.TypedGenerationChangedPredicate[*v1.KuryrPortPool]{}, predicate.TypedAnnotationChangedPredicate[*v1.KuryrPortPool]{},
)

// noteWaiting passes all events. It tells supply of pods that wait for room in pools of other processes.
func (r *Reconciler) noteWaiting() predicate.TypedFuncs[*v1.KuryrPortPool] {
	return predicate.TypedFuncs[*v1.KuryrPortPool]{
		CreateFunc: func(e event.TypedCreateEvent[*v1.KuryrPortPool]) bool { return r.waitsElsewhere(e.Object, true) },
		UpdateFunc: func(e event.TypedUpdateEvent[*v1.KuryrPortPool]) bool { return r.waitsElsewhere(e.ObjectNew, true) },
		DeleteFunc: func(e event.TypedDeleteEvent[*v1.KuryrPortPool]) bool { return r.waitsElsewhere(e.Object, false) },
	}
}

func (r *Reconciler) waitsElsewhere(p *v1.KuryrPortPool, exists bool) (pass bool) {
	pods, full := 0, sdn.Scope{ID: p.Spec.Key.ProjectID}
	ready := meta.FindStatusCondition(p.Status.Conditions, v1.ConditionReady)
	if exists && ready != nil && !r.owns(p.Spec.Key.NodeName) {
		switch ready.Reason {
		case v1.ReasonSubnetExhausted: // of several subnets the status does not say which
			pods, full = int(p.Status.WaitingPods), sdn.Scope{Subnet: true, ID: p.Spec.Key.SubnetIDs[0]}
		case v1.ReasonOverQuota:
			pods = int(p.Status.WaitingPods)
		}
	}
	r.Supply.WaitElsewhere(pool.Ref{Pool: p.Name, Node: p.Spec.Key.NodeName}, &p.Spec.Key, full, pods)
	return true
}

// podMoved reports whether a change of a pod matters to a plan. kubelet writes a pod's
// status a dozen times in its life.
func (r *Reconciler) podMoved(e event.TypedUpdateEvent[*corev1.Pod]) bool {
	a, b := e.ObjectOld, e.ObjectNew
	return a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || pool.Finished(a) != pool.Finished(b) ||
		a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() ||
		r.Settings.Rules().ByPod && !maps.Equal(a.Labels, b.Labels)
}

// ofPod returns the pool that the pod's port comes from, and the pools of its node that have a
// port of the pod. After a change of settings or labels these differ.
func (r *Reconciler) ofPod(ctx context.Context, pod *corev1.Pod) []pool.Ref {
	if pod.Spec.HostNetwork || pod.Spec.NodeName == "" || !r.owns(pod.Spec.NodeName) {
		return nil
	}
	s, err := r.sites.On(ctx, pod.Spec.NodeName)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the pool of a pod", "namespace", pod.Namespace, "pod", pod.Name)
		return nil
	}
	// The event of a pod that was deleted at once does not say that the pod is gone.
	out := r.home(ctx, s, pod.Namespace)
	ports, err := kube.PortsOn(ctx, r.client, pod.Spec.NodeName)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the port of a pod", "namespace", pod.Namespace, "pod", pod.Name)
	}
	for i := range ports {
		if ref := ports[i].Spec.PodRef; ref != nil && ref.UID == pod.UID {
			out = append(out, pool.Ref{Pool: ports[i].Spec.Pool, Node: pod.Spec.NodeName})
		}
	}
	return out
}

// home returns the pool on s for the pods of a namespace. If the parent port of the node is not
// known, it starts a search, which requeues the pool. If the namespace's network gives no ports, it
// has the pods told; a change of the network requeues the pool.
func (r *Reconciler) home(ctx context.Context, s *sites.Site, namespace string) []pool.Ref {
	if s.ParentUnknown {
		r.sites.ParentPorts.Find(s.Name)
		return nil
	}
	req, ok, err := s.Pool(ctx, namespace)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the pools of pods", "node", s.Name, "namespace", namespace)
	}
	if s.Waits(namespace) {
		r.sites.Waiting.Tell(namespace)
	}
	if err != nil || !ok {
		return nil
	}
	return []pool.Ref{req}
}

// ofPort returns the port's pool, and the pool in which the pod would wait without the port.
func (r *Reconciler) ofPort(ctx context.Context, port *v1.KuryrPort) []pool.Ref {
	out := []pool.Ref{{Pool: port.Spec.Pool, Node: port.Spec.NodeName}}
	if !r.owns(port.Spec.NodeName) {
		return nil
	}
	r.memory.changed(out[0])
	s, err := r.sites.On(ctx, port.Spec.NodeName)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the pool of a pod", "node", port.Spec.NodeName)
		return out
	}
	if ref := port.Spec.PodRef; ref != nil {
		return append(out, r.home(ctx, s, ref.Namespace)...)
	}
	if key, ok := s.Key(""); ok {
		return append(out, pool.Ref{Pool: pool.Name(key), Node: s.Name})
	}
	return out
}

func ofPool(_ context.Context, p *v1.KuryrPortPool) []pool.Ref {
	return []pool.Ref{{Pool: p.Name, Node: p.Spec.Key.NodeName}}
}

// ofNamespace returns the pools that a namespace's labels, annotations and network may concern.
func (r *Reconciler) ofNamespace(ctx context.Context, ns *metav1.PartialObjectMetadata) []pool.Ref {
	out, err := r.poolsFor(ctx, ns.Name)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find all pools of a namespace", "namespace", ns.Name)
	}
	return out
}

// poolsFor returns the pools of a namespace: its own ones that have an object, and the current and
// the wanted pools of its pods on each node. It leaves out other namespaces: each has an event of
// its own, also at the start. With an error it returns those that it has found.
func (r *Reconciler) poolsFor(ctx context.Context, namespace string) (found []pool.Ref, failed error) {
	list, failed := kube.PoolsOf(ctx, r.client, namespace)
	for i := range list {
		found = append(found, ofPool(ctx, &list[i])...)
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(namespace), kube.ReadOnly); err != nil {
		failed = errors.Join(failed, fmt.Errorf("listing pods of namespace %s: %w", namespace, err))
	}
	nodes := map[string]bool{"": true}
	for i := range pods.Items {
		if node := pods.Items[i].Spec.NodeName; !nodes[node] {
			nodes[node] = true
			more, err := r.usedOn(ctx, node, namespace)
			found, failed = append(found, more...), errors.Join(failed, err)
		}
	}
	return found, failed
}

// RequeueNamespace plans the pools of a namespace after a change of its network. Without a name it
// plans those of all: before KuryrNetworks were read, no namespace had a pool.
func (r *Reconciler) RequeueNamespace(ctx context.Context, namespace string) error {
	if namespace == "" {
		return r.requeueAll(ctx)
	}
	list, err := r.poolsFor(ctx, namespace)
	for _, req := range list {
		r.Queue.Add(req)
	}
	return err
}

// onNode returns all pools of an own node. These are the pools with an object, and those of usedOn.
func (r *Reconciler) onNode(ctx context.Context, node string) []pool.Ref {
	if !r.owns(node) {
		return nil
	}
	found, used := r.usedOn(ctx, node, "")
	list, err := kube.PoolsOn(ctx, r.client, node)
	for i := range list {
		found = append(found, ofPool(ctx, &list[i])...)
	}
	if err := errors.Join(err, used); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find all pools of a node", "node", node)
	}
	return found
}

// usedOn returns the pools of a node's ports, the node's own pool, and those from which its pods get
// ports. With a namespace only its pods and their ports count. A pool may be there several times. Of a
// node that another process owns it returns none.
func (r *Reconciler) usedOn(ctx context.Context, node, namespace string) (found []pool.Ref, err error) {
	if !r.owns(node) {
		return nil, nil
	}
	ports, err := kube.PortsOn(ctx, r.client, node)
	if err != nil {
		return found, err
	}
	for i := range ports {
		if ref := ports[i].Spec.PodRef; namespace == "" || ref != nil && ref.Namespace == namespace {
			found = append(found, pool.Ref{Pool: ports[i].Spec.Pool, Node: node})
		}
	}
	s, err := r.sites.On(ctx, node)
	if err != nil {
		return found, err
	}
	if s.Node == nil {
		r.sites.ParentPorts.Gone(node)
		return found, nil
	}
	pods, err := kube.PodsOn(ctx, r.client, node)
	if err != nil {
		return found, err
	}
	names := map[string]bool{}
	for i := range pods {
		if pod := &pods[i]; pool.Wants(pod) && (namespace == "" || pod.Namespace == namespace) {
			names[pod.Namespace] = true
		}
	}
	if s.ParentUnknown && s.Warm("") {
		r.sites.ParentPorts.Find(node)
	}
	if key, ok := s.Key(""); ok {
		found = append(found, pool.Ref{Pool: pool.Name(key), Node: node})
	}
	for name := range names {
		found = append(found, r.home(ctx, s, name)...)
	}
	return found, nil
}

// RequeueNode plans all pools of a node.
func (r *Reconciler) RequeueNode(ctx context.Context, node string) {
	for _, req := range r.onNode(ctx, node) {
		r.Queue.Add(req)
	}
}

// planAll plans all pools anew after the settings have changed.
func (r *Reconciler) planAll(ctx context.Context) error {
	r.Supply.ResetBackoff()
	r.memory.forgetTold()
	r.sites.ParentPorts.ResetBackoff()
	r.sites.Waiting.Again()
	r.CheckPorts.Send()
	ctrl.LoggerFrom(ctx).Info("settings changed, planning all pools")
	return r.requeueAll(ctx)
}

// requeueAll plans the pools of all nodes. The pools of a deleted node end by themselves.
func (r *Reconciler) requeueAll(ctx context.Context) error {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range list.Items {
		r.RequeueNode(ctx, list.Items[i].Name)
	}
	return nil
}
