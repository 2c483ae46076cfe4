// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// orphaned returns the living pod that would be left without a port if this
// KuryrPort went: somebody has deleted it by hand. Nil if there is none.
func (r *ports) orphaned(ctx context.Context, port *v1.KuryrPort) (*corev1.Pod, error) {
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
		if other.Name != port.Name && other.DeletionTimestamp.IsZero() && other.Spec.PodRef != nil && other.Spec.PodRef.UID == ref.UID {
			return nil, nil // it has another, and this one was too many
		}
	}
	return pod, nil
}

// holder returns the pod that a port is bound to, nil if it is gone. Of one that
// this process never saw the cache may be too old to know, after a start.
func (r *ports) holder(ctx context.Context, port *v1.KuryrPort) (*corev1.Pod, error) {
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
func (r *ports) handBack(ctx context.Context, port *v1.KuryrPort, pod *corev1.Pod) (ctrl.Result, error) {
	if kube.PortNamed(pod, port.Spec.PodRef.Interface) != port.Name {
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
