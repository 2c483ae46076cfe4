// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Setup adds the planner to mgr. The cache of mgr must have KuryrNetworks.
//
// It has one worker, and one process plans at a time: two plans at once could choose the same prefix.
func (p *Planner) Setup(mgr ctrl.Manager) error {
	if err := mgr.Add(kube.Runnable(p.Settings.Follow(p.planAll))); err != nil {
		return err
	}
	p.Shards.Follow(nil, p.lose)
	return ctrl.NewControllerManagedBy(mgr).Named("namespaces").
		WithOptions(outcome.Options[ctrl.Request](1, p.Backoff)).
		WatchesMetadata(&corev1.Namespace{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: namespaceMoved})).
		Watches(&v1.KuryrNetwork{}, handler.EnqueueRequestsFromMapFunc(p.changed), builder.WithPredicates(predicate.Funcs{UpdateFunc: networkMoved})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(inside), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return wants(e.Object.(*corev1.Pod)) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return wants(e.ObjectOld.(*corev1.Pod)) != wants(e.ObjectNew.(*corev1.Pod))
			},
		})).
		Watches(&v1.KuryrPort{}, handler.EnqueueRequestsFromMapFunc(ofPod), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: portReturned,
		})).
		Watches(&v1.KuryrPortPool{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			return named(o.(*v1.KuryrPortPool).Spec.Key.Namespace)
		}), builder.WithPredicates(predicate.Funcs{
			DeleteFunc: func(event.DeleteEvent) bool { return false }, UpdateFunc: poolMoved,
		})).
		WatchesRawSource(p.queue.Source()).
		WatchesRawSource(kube.Gained(p.Shards, task, p.all)).
		Complete(kube.Sharded(p.Shards, task, p))
}

// task is the key of all requests, also of those for a namespace that is gone: the memory of another
// process has none, and no worker uses this one's while lose drops it.
func task(context.Context, ctrl.Request) (kube.Key, bool) { return kube.Task("networks"), true }

// lose drops the memory after the task is lost.
func (p *Planner) lose(keys kube.Keys) {
	if !keys(kube.Task("networks")) {
		return
	}
	p.written, p.made, p.told = nil, nil, map[string]string{}
	p.moved.Store(true)
	p.objects.Forget(func(kube.Key) bool { return true })
	p.portUses.Forget(func(string, []sdn.PortUse) bool { return true })
}

// named returns the request for a namespace.
func named(namespace string) []ctrl.Request {
	if namespace == "" {
		return nil
	}
	return []ctrl.Request{itself(namespace)}
}

// itself returns the request for a namespace that exists.
func itself(namespace string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Name: namespace}}
}
func inside(_ context.Context, o client.Object) []ctrl.Request { return named(o.GetNamespace()) }

// changed is inside for a KuryrNetwork. It has the prefixes of all read again.
func (p *Planner) changed(ctx context.Context, o client.Object) []ctrl.Request {
	p.moved.Store(true)
	return inside(ctx, o)
}

// ofPod returns the namespace of a port that had a pod.
func ofPod(_ context.Context, o client.Object) []ctrl.Request {
	if ref := o.(*v1.KuryrPort).Spec.PodRef; ref != nil {
		return named(ref.Namespace)
	}
	return nil
}

func namespaceMoved(e event.UpdateEvent) bool {
	a, b := e.ObjectOld, e.ObjectNew
	return a.GetUID() != b.GetUID() || !maps.Equal(a.GetLabels(), b.GetLabels()) || !maps.Equal(a.GetAnnotations(), b.GetAnnotations()) ||
		a.GetDeletionTimestamp().IsZero() != b.GetDeletionTimestamp().IsZero()
}

// networkMoved reports whether a plan may depend on an update of a KuryrNetwork: the planner itself
// writes only the spec and condition Planned.
func networkMoved(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*v1.KuryrNetwork), e.ObjectNew.(*v1.KuryrNetwork)
	ready := func(kn *v1.KuryrNetwork) bool {
		return meta.IsStatusConditionTrue(kn.Status.Conditions, v1.ConditionReady)
	}
	planned := func(kn *v1.KuryrNetwork) bool {
		return meta.FindStatusCondition(kn.Status.Conditions, v1.ConditionPlanned) != nil
	}
	return a.ResourceVersion == b.ResourceVersion || a.UID != b.UID || a.Generation != b.Generation || ready(a) != ready(b) || planned(a) && !planned(b) ||
		!equality.Semantic.DeepEqual(made(a), made(b))
}

// portReturned reports whether a port has no pod any more. The handler sees both objects, and so
// the pod.
func portReturned(e event.UpdateEvent) bool {
	return e.ObjectOld.(*v1.KuryrPort).Spec.PodRef != nil && e.ObjectNew.(*v1.KuryrPort).Spec.PodRef == nil
}

func poolMoved(e event.UpdateEvent) bool {
	exhausted := func(o client.Object) bool {
		return meta.IsStatusConditionTrue(o.(*v1.KuryrPortPool).Status.Conditions, v1.ConditionSubnetExhausted)
	}
	return !exhausted(e.ObjectOld) && exhausted(e.ObjectNew)
}

// The fields that the cache is indexed by while namespaces have networks. Without the indexes of
// KuryrPorts each plan of a namespace would read the ports of all namespaces.
const (
	networkID     = "status.networkID"      // of KuryrNetworks
	portNetwork   = "spec.networkID"        // of KuryrPorts
	portNamespace = "spec.podRef.namespace" // of KuryrPorts with a pod
)

// Index adds the indexes that the reconcilers need.
func Index(ctx context.Context, mgr ctrl.Manager) error {
	return errors.Join(
		kube.AddIndexBy(ctx, mgr, &v1.KuryrNetwork{}, networkID, func(n *v1.KuryrNetwork) string { return n.Status.NetworkID }),
		kube.AddIndexBy(ctx, mgr, &v1.KuryrPort{}, portNetwork, func(p *v1.KuryrPort) string { return p.Spec.NetworkID }),
		kube.AddIndexBy(ctx, mgr, &v1.KuryrPort{}, portNamespace, func(p *v1.KuryrPort) string {
			if ref := p.Spec.PodRef; ref != nil {
				return ref.Namespace
			}
			return ""
		}),
	)
}

// portsWith returns the KuryrPorts with a value of an indexed field, shared with the cache: those in a
// network, or those of the pods of a namespace.
func portsWith(ctx context.Context, c client.Reader, field, value string) ([]*v1.KuryrPort, error) {
	var list v1.KuryrPortList
	if err := c.List(ctx, &list, client.MatchingFields{field: value}, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrPorts by %s %s: %w", field, value, err)
	}
	all := make([]*v1.KuryrPort, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}
