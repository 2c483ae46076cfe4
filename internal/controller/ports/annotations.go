// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// annotations writes on each pod the KuryrPort that it has. Only one thing waits for that: the
// deletion of a KuryrPort by a person.
type annotations struct {
	client  client.Client
	backoff outcome.Backoff
	shards  kube.Shards
}

func (r *annotations) setup(mgr ctrl.Manager) error {
	key := kube.ByObject(r.client, &corev1.Pod{})
	return ctrl.NewControllerManagedBy(mgr).Named("annotations").
		WithOptions(outcome.Options[ctrl.Request](4, r.backoff)).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.Funcs{
			// The cache of a new owner may have a port before its pod, or before the pod is
			// scheduled.
			CreateFunc: func(e event.CreateEvent) bool { return nodeOf(e.Object) != "" },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return kube.Annotation(e.ObjectOld) != kube.Annotation(e.ObjectNew) || nodeOf(e.ObjectOld) != nodeOf(e.ObjectNew)
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&v1.KuryrPort{}, handler.EnqueueRequestsFromMapFunc(holderOf), builder.WithPredicates(predicate.Funcs{
			// Only the spec says which pod has the port. An update of the status would write
			// the same annotation again while the cache is late.
			UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() },
		})).
		WatchesRawSource(kube.Gained(r.shards, key, kube.AllOf(r.client, &corev1.PodList{}))).
		Complete(kube.Sharded(r.shards, key, r))
}

func nodeOf(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }

func holderOf(_ context.Context, o client.Object) []reconcile.Request {
	ref := o.(*v1.KuryrPort).Spec.PodRef
	if ref == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}}}
}

// Reconcile writes the annotation of one pod if it differs. The annotation of a pod without a
// KuryrPort stays: it may name a port that gets its object again.
func (r *annotations) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := r.client.Get(ctx, req.NamespacedName, &pod, kube.ReadOnly); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pool.Finished(&pod) || pod.Spec.NodeName == "" {
		return ctrl.Result{}, nil
	}
	list, err := kube.PortsOn(ctx, r.client, pod.Spec.NodeName)
	if err != nil {
		return ctrl.Result{}, err
	}
	ports := map[string]string{}
	for i := range list {
		if ref := list[i].Spec.PodRef; ref != nil && ref.UID == pod.UID {
			ports[ref.Interface] = list[i].Name
		}
	}
	want := v1.FormatVIFs(ports)
	if len(ports) == 0 || kube.Annotation(&pod) == want {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.apply(ctx, &pod, want)
}

// apply writes by the status subresource, so the controller needs no right to change the spec
// of pods. With that right its token could run any image on any node.
func (r *annotations) apply(ctx context.Context, pod *corev1.Pod, want string) error {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	u.SetNamespace(pod.Namespace)
	u.SetName(pod.Name)
	u.SetUID(pod.UID) // not another pod of that name, nor a new one
	u.SetAnnotations(map[string]string{v1.VIFAnnotation: want})
	err := r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), kube.OwnerAnnotation, client.ForceOwnership)
	// A conflict means another UID: the pod is gone.
	if err = kube.Lost(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("annotating pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
