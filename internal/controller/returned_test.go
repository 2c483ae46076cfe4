// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// meddle changes the security groups of a port without the controller.
func (b *bed) meddle(port string, groups ...string) {
	b.t.Helper()
	if err := b.cloud.Backend("cluster").UpdatePort(b.t.Context(), port, sdn.PortUpdate{SecurityGroupIDs: &groups}); err != nil {
		b.t.Fatal(err)
	}
}

// groupsIn returns the security groups of a port in the cloud.
func (b *bed) groupsIn(port string) []string {
	for _, item := range b.cloud.Inventory() {
		if item.Port.ID == port {
			return item.Port.SecurityGroupIDs
		}
	}
	return nil
}

func (b *bed) phaseOf(name string) v1.PortPhase {
	var port v1.KuryrPort
	if err := b.client.Get(b.t.Context(), client.ObjectKey{Name: name}, &port); err != nil {
		return ""
	}
	return port.Status.Phase
}

// keeping is an idle bed whose pools keep the ports of deleted pods.
func keeping(t *testing.T) *bed {
	b := idleBed(t)
	b.set(func(s *settings.Settings) { s.Pools.TTL.Duration, s.Pools.Max = time.Hour, 20 })
	b.set(func(s *settings.Settings) {
		s.Orphans.Interval.Duration, s.Orphans.Grace.Duration = 0, 10*time.Millisecond
	})
	return b
}

// TestGroupsThatSomebodyChangedAreNotPassedOn: a port is free for the next pod once it has its own
// groups again. A port that the cloud has lost meanwhile is not free.
func TestGroupsThatSomebodyChangedAreNotPassedOn(t *testing.T) {
	b := keeping(t)
	b.start()
	first, second := b.pod("first"), b.pod("second")
	port, lost := b.bound(first), b.bound(second)
	b.meddle(port.Name, "wide-open")
	b.cloud.RemovePort(lost.Name)
	b.delete(first)
	b.delete(second)
	b.eventually("the port is free", func() bool { return b.phaseOf(port.Name) == v1.PortAvailable })
	if got := b.groupsIn(port.Name); !slices.Equal(got, []string{group}) {
		t.Errorf("the free port has groups %q, want %q", got, group)
	}
	b.eventually("the lost port is gone", func() bool {
		if b.phaseOf(lost.Name) == v1.PortAvailable {
			t.Fatal("a port is free that the cloud has lost")
		}
		return b.phaseOf(lost.Name) == ""
	})
}

// TestPortsThatComeBackCostOneRequest: all ports that come back at once cost one request.
func TestPortsThatComeBackCostOneRequest(t *testing.T) {
	b := keeping(t)
	b.gap = time.Second // as in production
	b.start()
	const n = 12
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, b.pod(fmt.Sprint("web-", i)))
	}
	for _, pod := range pods {
		b.bound(pod)
	}
	for _, pod := range pods {
		b.delete(pod)
	}
	b.eventually("all ports are free", func() bool {
		ports := b.ports()
		return len(ports) == n && !slices.ContainsFunc(ports, func(p v1.KuryrPort) bool { return p.Status.Phase != v1.PortAvailable })
	})
	if asked, written := b.cloud.Calls(memory.States), b.cloud.Calls(memory.UpdatePort); asked > 4 || written != 0 {
		t.Errorf("%d requests for the states of %d ports, and %d to change one; want a few and none", asked, n, written)
	}
}

// TestOutageKeepsNoPortFromTheNextPod: during an outage a returned port serves the next pod. Its
// groups are checked and repaired later, also if it has a pod by then.
func TestOutageKeepsNoPortFromTheNextPod(t *testing.T) {
	for name, away := range map[string]func(*bed) (back func()){
		"it answers 503": func(b *bed) func() {
			b.fail(memory.States, sdn.ErrUnavailable)
			return func() { b.fail("", nil) }
		},
		"it does not answer": func(b *bed) func() { return b.block(memory.States) },
	} {
		t.Run(name, func(t *testing.T) {
			b := keeping(t)
			b.cloud.SetQuota(1) // so that the next pod gets no other port
			b.start()
			first := b.pod("first")
			port := b.bound(first)
			b.meddle(port.Name, "wide-open")
			back := away(b)
			defer back()
			b.delete(first)
			next := b.pod("next")
			if got := b.bound(next); got.Name != port.Name {
				t.Fatalf("the next pod has port %s, want %s: this test is about that one", got.Name, port.Name)
			}
			back()
			b.eventually("the port has its groups again", func() bool { return slices.Equal(b.groupsIn(port.Name), []string{group}) })
		})
	}
}
