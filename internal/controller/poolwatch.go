// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

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
	"github.com/kuryr-go/kuryr/internal/pool"
)

// poolWorkers is how many pools are planned at once. Most of a reconcile is
// waiting for the API server; with fewer, pools would wait for each other's.
const poolWorkers = 64

func (r *pools) setup(mgr ctrl.Manager) error {
	c := mgr.GetCache()
	return builder.TypedControllerManagedBy[poolRequest](mgr).Named("pools").
		WithOptions(controller.TypedOptions[poolRequest]{
			MaxConcurrentReconciles: poolWorkers, RateLimiter: limiter[poolRequest](r.Backoff), SkipNameValidation: new(true),
		}).
		WatchesRawSource(source.TypedKind(c, &corev1.Pod{},
			handler.TypedEnqueueRequestsFromMapFunc(r.ofPod), predicate.TypedFuncs[*corev1.Pod]{UpdateFunc: podMoved})).
		WatchesRawSource(source.TypedKind(c, &v1.KuryrPort{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofPort))).
		WatchesRawSource(source.TypedKind(c, &v1.KuryrPortPool{},
			handler.TypedEnqueueRequestsFromMapFunc(ofPool), predicate.TypedGenerationChangedPredicate[*v1.KuryrPortPool]{})).
		WatchesRawSource(source.TypedKind(c, nodeMeta(),
			handler.TypedEnqueueRequestsFromMapFunc(r.ofNode), comesAndGoes)).
		WatchesRawSource(r.wake.source()).
		Complete(r)
}

// comesAndGoes lets pass that an object is there, and that it is not any more.
var comesAndGoes = predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
	UpdateFunc: func(event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool { return false },
}

// podMoved reports whether what a plan looks at has changed. kubelet writes a
// pod's status a dozen times in its life.
func podMoved(e event.TypedUpdateEvent[*corev1.Pod]) bool {
	a, b := e.ObjectOld, e.ObjectNew
	return a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || pool.Finished(a) != pool.Finished(b) ||
		a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero()
}

// ofPod is the pool that the pod's port comes from, and those of its node that
// have a port of it: after a change of settings that may be another.
func (r *pools) ofPod(ctx context.Context, pod *corev1.Pod) []poolRequest {
	key, ok := pool.KeyFor(pod, r.Settings.Load().key())
	if !ok {
		return nil
	}
	out := []poolRequest{{pool.Name(key), pod.Spec.NodeName}}
	if pool.Wants(pod) {
		return out
	}
	var ports v1.KuryrPortList
	if err := r.client.List(ctx, &ports, client.MatchingFields{portNode: pod.Spec.NodeName}, readOnly); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing KuryrPorts of a node", "node", pod.Spec.NodeName)
		return out
	}
	for i := range ports.Items {
		port := &ports.Items[i]
		if ref := port.Spec.PodRef; ref != nil && ref.UID == pod.UID && port.Spec.Pool != out[0].Pool {
			out = append(out, poolRequest{port.Spec.Pool, port.Spec.NodeName})
		}
	}
	return out
}

// ofPort is the port's pool, and the one that its pod would have a port of
// next: with the port gone, the pod waits there.
func (r *pools) ofPort(_ context.Context, port *v1.KuryrPort) []poolRequest {
	out := []poolRequest{{port.Spec.Pool, port.Spec.NodeName}}
	if current := r.onNode(port.Spec.NodeName); current != out[0] {
		out = append(out, current)
	}
	return out
}

func ofPool(_ context.Context, p *v1.KuryrPortPool) []poolRequest {
	return []poolRequest{{p.Name, p.Spec.Key.NodeName}}
}

func (r *pools) ofNode(ctx context.Context, node *metav1.PartialObjectMetadata) []poolRequest {
	out := []poolRequest{r.onNode(node.Name)}
	var list v1.KuryrPortPoolList
	if err := r.client.List(ctx, &list, client.MatchingFields{poolNode: node.Name}, readOnly); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing KuryrPortPools of a node", "node", node.Name)
		return out
	}
	for i := range list.Items {
		if list.Items[i].Name != out[0].Pool {
			out = append(out, poolRequest{list.Items[i].Name, node.Name})
		}
	}
	return out
}

// onNode is the pool that the settings lead pods of a node to.
func (r *pools) onNode(node string) poolRequest {
	return poolRequest{pool.Name(pool.KeyOn(node, r.Settings.Load().key())), node}
}

// follow plans everything anew when the settings change.
func (r *pools) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.Settings.changed:
		}
		r.memory.forgive()
		r.followed()
		if err := r.wakeAll(ctx); err != nil {
			return err
		}
	}
}

func (r *pools) wakeAll(ctx context.Context) error {
	ctrl.LoggerFrom(ctx).Info("settings changed, planning all pools")
	var list v1.KuryrPortPoolList
	if err := r.client.List(ctx, &list, readOnly); err != nil {
		return fmt.Errorf("listing KuryrPortPools: %w", err)
	}
	for i := range list.Items {
		r.wake.add(poolRequest{list.Items[i].Name, list.Items[i].Spec.Key.NodeName})
	}
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := r.client.List(ctx, nodes, readOnly); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		r.wake.add(r.onNode(nodes.Items[i].Name))
	}
	return nil
}
