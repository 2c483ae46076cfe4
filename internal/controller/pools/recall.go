// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// errLate says that the cache did not show an object that is needed, and shows it now.
var errLate = errors.New("the cache was late")

// lostPort returns the port that a pod's annotation names, if that port has no object. An
// annotation that names the object of another pod is ignored. A new owner's cache may have a pod
// before its port: then lostPort waits for the port, and the plan is made anew.
func (r *Reconciler) lostPort(ctx context.Context, req pool.Ref, pod *corev1.Pod) (id string, err error) {
	id = v1.PortNamed(kube.Annotation(pod), pool.Interface)
	if id == "" {
		return "", nil
	}
	var port v1.KuryrPort
	if err := r.client.Get(ctx, client.ObjectKey{Name: id}, &port, kube.ReadOnly); !apierrors.IsNotFound(err) {
		return "", err
	}
	if r.Supply.LookedUp(req, id) {
		return id, nil
	}
	err = r.live.Get(ctx, client.ObjectKey{Name: id}, &port)
	switch {
	case apierrors.IsNotFound(err):
		return id, nil
	case err != nil:
		return "", fmt.Errorf("looking for KuryrPort %s of pod %s/%s: %w", id, pod.Namespace, pod.Name, err)
	case port.Spec.PodRef.Claim() != v1.Claim{UID: pod.UID, Interface: pool.Interface}:
		return "", nil
	}
	return "", errors.Join(errLate, r.await(ctx, req, map[string]write{id: {version: port.ResourceVersion}}))
}

// recall adds the memory of the pool to v, and forgets what does not matter any more.
func (r *Reconciler) recall(ctx context.Context, v *view) error {
	named := map[string]bool{}
	for i := range v.state.Pods {
		named[v.state.Pods[i].Restore] = true
	}
	v.known = r.Supply.Snapshot(v.req, v.key, named)
	for id, a := range v.known.Unrecorded {
		// A port with an object of any pool is recorded: the object decides about it.
		err := r.client.Get(ctx, client.ObjectKey{Name: id}, &v1.KuryrPort{}, kube.ReadOnly)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading KuryrPort %s: %w", id, err)
		}
		if err == nil {
			r.Supply.Recorded(v.req, id)
			delete(v.known.Unrecorded, id)
			continue
		}
		v.state.Unrecorded = append(v.state.Unrecorded, pool.Unrecorded{ID: id, For: a.Pod})
	}
	v.state.InFlight, v.state.Restoring, v.state.Hold = v.known.InFlight, v.known.Restoring, v.known.Hold
	for i := range v.state.Pods {
		if pod := &v.state.Pods[i]; v.known.NotFound[pod.Restore] {
			pod.Restore = ""
		}
	}
	room := &v.known.Room
	v.state.Scarce = room.Scarce != nil || room.Full != nil
	if room.Full != nil && v.state.Hold.Before(room.Until) {
		v.state.Hold = room.Until
	}
	now := time.Now()
	r.memory.with(v.req, func(p *poolMemory) { p.recallPods(v, now) })
	return nil
}

// recallPods notes the pods that wait from now on, and forgets what is known of other pods.
func (p *poolMemory) recallPods(v *view, now time.Time) {
	pods, waiting := map[v1.Claim]*waitingPod{}, map[string]bool{}
	for i := range v.state.Pods {
		ref := &v.state.Pods[i].Ref
		if pods[ref.Claim()] = p.pods[ref.Claim()]; pods[ref.Claim()] == nil {
			pods[ref.Claim()] = &waitingPod{since: now}
		}
		waiting[string(ref.UID)] = true
	}
	for _, pod := range v.refused {
		waiting[string(pod.UID)] = true
	}
	p.pods = pods
	maps.DeleteFunc(p.reported, func(of, _ string) bool { return !waiting[of] && !slices.Contains(reportedKinds, of) })
	bound := map[types.UID]bool{}
	for _, port := range v.ports {
		if port.Spec.PodRef != nil {
			bound[port.Spec.PodRef.UID] = true
		}
	}
	maps.DeleteFunc(p.known, func(uid types.UID, _ bool) bool { return !bound[uid] })
}
