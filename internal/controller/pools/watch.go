// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/sites"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// poolWorkers is how many pools are planned at once. Most of a reconcile is
// waiting for the API server; with fewer, pools would wait for each other's.
const poolWorkers = 64

// Setup adds the reconciler, what finds the ports of virtual machines, and what follows
// the settings and the pods' subnets.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	c := mgr.GetCache()
	if err := r.sites.Parents.Setup(mgr); err != nil {
		return err
	}
	for _, run := range []func(context.Context) error{r.follow, r.subnets.run} {
		if err := mgr.Add(kube.Leading(run)); err != nil {
			return err
		}
	}
	return builder.TypedControllerManagedBy[pool.Ref](mgr).Named("pools").
		WithOptions(controller.TypedOptions[pool.Ref]{
			MaxConcurrentReconciles: poolWorkers, RateLimiter: outcome.Limiter[pool.Ref](r.Backoff), SkipNameValidation: new(true),
		}).
		WatchesRawSource(source.TypedKind(c, &corev1.Pod{},
			handler.TypedEnqueueRequestsFromMapFunc(r.ofPod), predicate.TypedFuncs[*corev1.Pod]{UpdateFunc: r.podMoved})).
		WatchesRawSource(source.TypedKind(c, &v1.KuryrPort{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofPort))).
		WatchesRawSource(source.TypedKind(c, &v1.KuryrPortPool{},
			handler.TypedEnqueueRequestsFromMapFunc(ofPool), poolChanged)).
		WatchesRawSource(source.TypedKind(c, &corev1.Node{},
			handler.TypedEnqueueRequestsFromMapFunc(r.ofNode), predicate.TypedFuncs[*corev1.Node]{UpdateFunc: sites.NodeMoved})).
		WatchesRawSource(source.TypedKind(c, kube.NamespaceMeta(),
			handler.TypedEnqueueRequestsFromMapFunc(r.ofNamespace), relabelled)).
		WatchesRawSource(r.Queue.Source()).
		Complete(r)
}

// relabelled lets pass that an object is there with these labels, and that it is
// not any more.
var relabelled = predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
	UpdateFunc: func(e event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool {
		return !maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels)
	},
}

// podMoved reports whether what a plan looks at has changed. kubelet writes a
// pod's status a dozen times in its life.
func (r *Reconciler) podMoved(e event.TypedUpdateEvent[*corev1.Pod]) bool {
	a, b := e.ObjectOld, e.ObjectNew
	return a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || pool.Finished(a) != pool.Finished(b) ||
		a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() ||
		r.Settings.Rules().ByPod && !maps.Equal(a.Labels, b.Labels)
}

// ofPod is the pool that the pod's port comes from, and those of its node that
// have a port of it: after a change of settings or labels that may be another.
func (r *Reconciler) ofPod(ctx context.Context, pod *corev1.Pod) []pool.Ref {
	if pod.Spec.HostNetwork || pod.Spec.NodeName == "" {
		return nil
	}
	s, err := r.sites.On(ctx, pod.Spec.NodeName)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking where the port of a pod comes from", "namespace", pod.Namespace, "pod", pod.Name)
		return nil
	}
	// Of a pod that was deleted at once the event does not say that it is gone.
	out := r.wanted(ctx, s, pod)
	ports, err := kube.PortsOn(ctx, r.client, pod.Spec.NodeName)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking for the port of a pod", "namespace", pod.Namespace, "pod", pod.Name)
	}
	for i := range ports {
		if ref := ports[i].Spec.PodRef; ref != nil && ref.UID == pod.UID {
			out = with(out, pool.Ref{Pool: ports[i].Spec.Pool, Node: pod.Spec.NodeName})
		}
	}
	return out
}

// wanted is the pool that the pod's port is to come from. If the machine that
// its node is is not known, that is looked for, and what it says plans the pool.
func (r *Reconciler) wanted(ctx context.Context, s *sites.Site, pod *corev1.Pod) []pool.Ref {
	if s.Blind {
		if pool.Wants(pod) {
			r.sites.Parents.Want(s.Name)
		}
		return nil
	}
	return r.home(ctx, s, pod.Namespace)
}

// home is the pool on s that the pods of a namespace have their ports of.
func (r *Reconciler) home(ctx context.Context, s *sites.Site, namespace string) []pool.Ref {
	req, ok, err := s.Request(ctx, namespace)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking where the ports of pods come from", "node", s.Name, "namespace", namespace)
	}
	if err != nil || !ok {
		return nil
	}
	if own, _, _ := s.Own(ctx, namespace); own != "" {
		r.sites.Note(req, own)
	}
	return []pool.Ref{req}
}

func with(list []pool.Ref, more ...pool.Ref) []pool.Ref {
	for _, req := range more {
		if !slices.Contains(list, req) {
			list = append(list, req)
		}
	}
	return list
}

// ofPort is the port's pool, and the one that its pod would have a port of
// next: with the port gone, the pod waits there.
func (r *Reconciler) ofPort(ctx context.Context, port *v1.KuryrPort) []pool.Ref {
	out := []pool.Ref{{Pool: port.Spec.Pool, Node: port.Spec.NodeName}}
	s, err := r.sites.On(ctx, port.Spec.NodeName)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking where the port of a pod comes from", "node", port.Spec.NodeName)
		return out
	}
	if ref := port.Spec.PodRef; ref != nil {
		return with(out, r.home(ctx, s, ref.Namespace)...)
	}
	if key, ok := s.Key(""); ok {
		return with(out, pool.Ref{Pool: pool.Name(key), Node: s.Name})
	}
	return out
}

func ofPool(_ context.Context, p *v1.KuryrPortPool) []pool.Ref {
	return []pool.Ref{{Pool: p.Name, Node: p.Spec.Key.NodeName}}
}

func (r *Reconciler) ofNode(ctx context.Context, node *corev1.Node) []pool.Ref {
	out, err := r.onNode(ctx, node.Name)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking for the pools of a node", "node", node.Name)
	}
	return out
}

// ofNamespace is the pools that a namespace's labels may matter to: on each node with pods
// of it those that these have their ports of, or are to, and where it has a pool of its
// own, or is to have one before its first pod. It does not look at other namespaces:
// there is an event for each, and for each of them at the start.
func (r *Reconciler) ofNamespace(ctx context.Context, ns *metav1.PartialObjectMetadata) []pool.Ref {
	if !r.Settings.Rules().ByNamespace {
		return nil
	}
	used, err := r.nodesWith(ctx, ns.Name)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking for the nodes of a namespace", "namespace", ns.Name)
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking for the nodes of a namespace", "namespace", ns.Name)
	}
	found := map[pool.Ref]bool{}
	for _, node := range nodes {
		if err := r.ofNamespaceOn(ctx, ns.Name, node, used[node], found); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "looking for the pools of a namespace", "namespace", ns.Name, "node", node)
		}
	}
	return slices.SortedFunc(maps.Keys(found), pool.Ref.Compare)
}

// ofNamespaceOn is ofNamespace of one node; used is that there are pods of it.
func (r *Reconciler) ofNamespaceOn(ctx context.Context, namespace, node string, used bool, found map[pool.Ref]bool) error {
	s, err := r.sites.On(ctx, node)
	if err != nil {
		return err
	}
	own, _, err := s.Own(ctx, namespace)
	if err != nil {
		return err
	}
	warm := own != "" && s.Warm(own)
	if s.Blind && (used || warm) {
		r.sites.Parents.Want(node)
	}
	if key, ok := s.Key(namespace); ok {
		req := pool.Ref{Pool: pool.Name(key), Node: node}
		if used && own != "" || warm || r.memory.knows(req) {
			r.sites.Note(req, namespace)
			found[req] = true
		}
	}
	if !used {
		return nil
	}
	if key, ok := s.Key(""); ok {
		found[pool.Ref{Pool: pool.Name(key), Node: node}] = true
	}
	ports, err := kube.PortsOn(ctx, r.client, node)
	for i := range ports {
		if ref := ports[i].Spec.PodRef; ref != nil && ref.Namespace == namespace {
			found[pool.Ref{Pool: ports[i].Spec.Pool, Node: node}] = true
		}
	}
	return err
}

// nodesWith returns the nodes with pods of a namespace.
func (r *Reconciler) nodesWith(ctx context.Context, namespace string) (map[string]bool, error) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(namespace), kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing pods of namespace %s: %w", namespace, err)
	}
	found := map[string]bool{}
	for i := range pods.Items {
		if node := pods.Items[i].Spec.NodeName; node != "" {
			found[node] = true
		}
	}
	return found, nil
}

func (r *Reconciler) nodes(ctx context.Context) ([]string, error) {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names, nil
}

// onNode is all pools of a node: those that are, those of its ports, that of the
// node itself, those that its pods are to have ports of, and those to be warmed up.
func (r *Reconciler) onNode(ctx context.Context, node string) ([]pool.Ref, error) {
	found := map[pool.Ref]bool{}
	list, err := kube.PoolsOn(ctx, r.client, node)
	if err != nil {
		return nil, err
	}
	for i := range list {
		found[pool.Ref{Pool: list[i].Name, Node: node}] = true
	}
	ports, err := kube.PortsOn(ctx, r.client, node)
	if err != nil {
		return nil, err
	}
	for i := range ports {
		found[pool.Ref{Pool: ports[i].Spec.Pool, Node: node}] = true
	}
	s, err := r.sites.On(ctx, node)
	if err != nil {
		return nil, err
	}
	if s.Node == nil {
		r.sites.Parents.Gone(node)
	} else if err := r.toBe(ctx, s, found); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Keys(found), pool.Ref.Compare), nil
}

// toBe adds the pools on s that there is a reason for.
func (r *Reconciler) toBe(ctx context.Context, s *sites.Site, found map[pool.Ref]bool) error {
	pods, err := kube.PodsOn(ctx, r.client, s.Name)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for i := range pods {
		if pool.Wants(&pods[i]) {
			names[pods[i].Namespace] = true
		}
	}
	warm := s.Rules.ByNamespace && s.Rules.Pools.WarmUp.Namespaces && kube.NodeJoined(s.Node)
	if warm {
		all, err := r.namespaces(ctx)
		if err != nil {
			return err
		}
		for _, name := range all {
			names[name] = true
		}
	}
	if s.Blind && (len(names) > 0 || s.Warm("")) {
		r.sites.Parents.Want(s.Name)
	}
	if key, ok := s.Key(""); ok {
		found[pool.Ref{Pool: pool.Name(key), Node: s.Name}] = true
	}
	for name := range names {
		for _, req := range r.home(ctx, s, name) {
			found[req] = true
		}
	}
	return nil
}

// wakeNode plans all pools of a node.
func (r *Reconciler) wakeNode(ctx context.Context, node string) {
	list, err := r.onNode(ctx, node)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking for the pools of a node", "node", node)
	}
	for _, req := range list {
		r.Queue.Add(req)
	}
}

// follow plans everything anew when the settings change.
func (r *Reconciler) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		}
		r.Supply.Forgive()
		r.memory.forgive()
		r.sites.Parents.Forgive()
		r.Followed()
		ctrl.LoggerFrom(ctx).Info("settings changed, planning all pools")
		if err := r.wakeAll(ctx); err != nil {
			return err
		}
	}
}

func (r *Reconciler) wakeAll(ctx context.Context) error {
	var list v1.KuryrPortPoolList
	if err := r.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return fmt.Errorf("listing KuryrPortPools: %w", err)
	}
	for i := range list.Items {
		r.Queue.Add(pool.Ref{Pool: list.Items[i].Name, Node: list.Items[i].Spec.Key.NodeName})
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		r.wakeNode(ctx, node)
	}
	return nil
}
