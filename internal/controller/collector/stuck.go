// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// stuckPods requests a comparison of the ports when a pod that has a port does not start: the SDN
// may have lost the port. It requests one comparison per such port. It reads only the cache, once a
// grace period.
type stuckPods struct {
	client   client.Reader
	settings *settings.Live
	shards   kube.Shards
	look     kube.Signal

	asked map[string]bool // late ports that already had a comparison
}

func (r *stuckPods) grace() time.Duration { return r.settings.Load().Orphans.Grace.Duration }

func (r *stuckPods) once(ctx context.Context) error {
	late, err := r.ports(ctx)
	if err != nil {
		return err
	}
	asked := map[string]bool{}
	for _, name := range late {
		if asked[name] = true; !r.asked[name] {
			r.look.Send()
		}
	}
	r.asked = asked
	return nil
}

// ports returns the ports that pods without an address have had for two grace periods. kubelet
// reports the addresses once the pod's network is set up.
func (r *stuckPods) ports(ctx context.Context) ([]string, error) {
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
		bound, _ := time.Parse(time.RFC3339Nano, port.Annotations[v1.BoundAnnotation]) // absent: an earlier version bound it
		if time.Since(bound) < 2*r.grace() {
			continue
		}
		if !r.shards.Owns(kube.OnNode(port.Spec.NodeName)) {
			continue
		}
		if ref := port.Spec.PodRef; ref != nil && waits[string(ref.UID)] && port.DeletionTimestamp.IsZero() && !port.Lost() {
			late = append(late, port.Name)
		}
	}
	return late, nil
}
