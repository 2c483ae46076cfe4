// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestNeutronCallsOfChurn: a hundred pods that come and go through a pool cost a tenth of a writing
// request each, as they reuse ports. Checking the groups in between costs one read for all ports
// that come back at once.
func TestNeutronCallsOfChurn(t *testing.T) {
	apart(t)
	const lives, atOnce = 100, 4
	b := doubtfulBed(t)
	b.current.Pools.Min, b.current.Pools.Batch = 5, 10
	b.current.Pools.TTL.Duration, b.current.Pools.Cooldown.Duration = 10*time.Minute, 100*time.Millisecond
	b.set(func(*settings.Settings) {})
	b.start()
	for i := range lives / atOnce {
		pods := make([]*corev1.Pod, atOnce)
		for j := range pods {
			pods[j] = b.pod(fmt.Sprintf("life-%d-%d", i, j))
		}
		for _, pod := range pods {
			port := b.bound(pod)
			b.attach(port, true)
			b.runs(pod, port)
		}
		for _, pod := range pods {
			port := b.portOf(pod)
			b.delete(pod)
			b.attach(port, false)
		}
		b.eventually("the pool is at rest", func() bool {
			free := 0
			for _, port := range b.ports() {
				if port.Spec.PodRef == nil && port.Status.Phase == v1.PortAvailable {
					free++
				}
			}
			return free >= 5 && free == len(b.ports())
		})
	}
	calls := b.cloud.Calls(memory.CreatePorts) + b.cloud.Calls(memory.UpdatePort) + b.cloud.Calls(memory.DeletePort)
	if calls > lives/10 {
		t.Errorf("%d requests that change something for %d pods, want %d at most", calls, lives, lives/10)
	}
	b.logCalls("in all")
}
