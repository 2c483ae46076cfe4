// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// watch asks for a look when a pod does not get to run although it has a port:
// maybe the SDN has lost that. It asks once for each such port. Only the cache is
// read for it, every grace.
func (r *orphans) watch(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("orphans")
	for {
		grace := r.Settings.Load().Orphans.Grace.Duration
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(grace, time.Second/10)):
		}
		late, err := r.late(ctx)
		if err != nil {
			log.Error(err, "looking for pods that do not get to run")
			continue
		}
		asked := map[string]bool{}
		for _, name := range r.stuck.Observe(late, r.Now(), grace) {
			if asked[name] = true; !r.asked[name] {
				r.Look.Send()
			}
		}
		r.asked = asked
	}
}

// late returns the ports of pods that have none of their addresses yet: kubelet
// says these once the pod's network is there.
func (r *orphans) late(ctx context.Context) ([]string, error) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	waits := map[string]bool{}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pool.Wants(pod) && len(pod.Status.PodIPs) == 0 {
			waits[string(pod.UID)] = true
		}
	}
	if len(waits) == 0 {
		return nil, nil
	}
	var ports v1.KuryrPortList
	if err := r.client.List(ctx, &ports, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrPorts: %w", err)
	}
	var late []string
	for i := range ports.Items {
		port := &ports.Items[i]
		if ref := port.Spec.PodRef; ref != nil && waits[string(ref.UID)] && port.DeletionTimestamp.IsZero() && !port.Lost() {
			late = append(late, port.Name)
		}
	}
	return late, nil
}
