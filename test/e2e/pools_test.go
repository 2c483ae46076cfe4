// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// pools has the pools kept at levels for the rest of the test.
func (f *fixture) pools(t testing.TB, levels map[string]any) {
	t.Helper()
	f.change(t, func(document map[string]any) { document["pools"] = levels })
}

// free returns the ports of a node that wait for a pod, by name.
func (f *fixture) free(t testing.TB, node string) []string {
	t.Helper()
	var list v1.KuryrPortList
	if err := f.Client.List(t.Context(), &list, client.MatchingFields{"spec.nodeName": node}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range list.Items {
		if p.Spec.PodRef == nil && p.DeletionTimestamp == nil && p.Status.Phase == v1.PortAvailable {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// keeps waits until a node has n free ports.
func (f *fixture) keeps(t testing.TB, node string, n int) []string {
	t.Helper()
	var names []string
	eventually(t, func() error {
		if names = f.free(t, node); len(names) != n {
			return fmt.Errorf("%s has %d free ports, want %d", node, len(names), n)
		}
		return nil
	})
	return names
}

// has fails the test unless pod has one of ports.
func (f *fixture) has(t testing.TB, pod *corev1.Pod, ports []string) {
	t.Helper()
	if kp := must(f.KuryrPortOf(t.Context(), pod))(t); !slices.Contains(ports, kp.Name) {
		t.Errorf("pod %s has port %s, want one of those that were free: %q", pod.Name, kp.Name, ports)
	}
}

// on makes a pod on a node and waits until it runs.
func (f *fixture) on(t testing.TB, node, name string) *corev1.Pod {
	t.Helper()
	must(f.Pod(t.Context(), f.namespace, name, node))(t)
	return f.running(t, name)
}

// A node's first pod has its pool filled; the pods after it take what is there,
// also from a controller that has just started and asks Neutron for nothing.
func TestPoolServesPods(t *testing.T) {
	f := onBed(t)
	f.pools(t, map[string]any{"min": 3, "batch": 3, "ttl": "1h"})
	first := f.on(t, "n1", "first")
	free := f.keeps(t, "n1", 3)

	second := f.on(t, "n1", "second")
	f.has(t, second, free)
	f.reaches(t, first, second)
	f.keeps(t, "n1", 3)
	f.delete(t, second) // its port is one more than have to be
	free = f.keeps(t, "n1", 4)

	before := must(f.ownPorts(t.Context()))(t)
	f.kill(t, f.controller(t).Spec.NodeName, "controller")
	began := time.Now()
	third := f.on(t, "n1", "third")
	t.Logf("a pod made as the controller was killed runs after %.1f s", time.Since(began).Seconds())
	f.has(t, third, free)
	f.reaches(t, first, third)
	if after := must(f.ownPorts(t.Context()))(t); !slices.Equal(before, after) {
		t.Errorf("the restart has changed the ports from %q to %q", before, after)
	}
	calls := f.cloudCalls(t)
	if n := calls["POST ports"] + calls["PUT ports"] + calls["DELETE ports"]; n != 0 {
		t.Errorf("the controller that has just started has changed ports by %d calls, want none: %v", n, calls)
	}
}

// Levels are taken up while the controller runs: more are made, and what is too
// much is deleted. Without pools each pod has a port of its own, which goes with
// it; and then there are pools again.
func TestPoolLevelsChange(t *testing.T) {
	f := onBed(t)
	f.unbroken(t)
	f.pools(t, map[string]any{"min": 1, "batch": 2, "ttl": "1h"})
	f.on(t, "n1", "first")
	f.keeps(t, "n1", 1)
	f.pools(t, map[string]any{"min": 4, "batch": 2, "ttl": "1h"})
	f.keeps(t, "n1", 4)
	f.pools(t, map[string]any{"min": 1, "max": 2, "batch": 2, "ttl": "1h"})
	f.keeps(t, "n1", 2)
	f.pools(t, map[string]any{"min": 1, "max": 0, "batch": 2, "ttl": "2s"})
	f.keeps(t, "n1", 1)
	f.pools(t, map[string]any{"min": 0, "batch": 1, "ttl": "0s"})
	f.keeps(t, "n1", 0)

	before := must(f.ownPorts(t.Context()))(t)
	alone := f.on(t, "n1", "alone")
	own := must(f.KuryrPortOf(t.Context(), alone))(t).Name
	if slices.Contains(before, own) {
		t.Errorf("without pools pod %s has port %s, which was there before it", alone.Name, own)
	}
	f.keeps(t, "n1", 0)
	f.delete(t, alone)
	eventually(t, func() error {
		left, err := f.ownPorts(t.Context())
		if err == nil && slices.Contains(left, own) {
			err = fmt.Errorf("port %s outlives its pod", own)
		}
		return err
	})

	f.pools(t, map[string]any{"min": 2, "batch": 2, "ttl": "1h"})
	free := f.keeps(t, "n1", 2)
	f.has(t, f.on(t, "n1", "warm"), free)
	f.keeps(t, "n1", 2)
}

// Kuryr's own pods are killed without grace; a pod made at once runs, and answers
// one that is older. In the end others are in their places.
func TestKuryrPodsDeleted(t *testing.T) {
	f := onBed(t)
	f.pools(t, map[string]any{"min": 1, "batch": 1, "ttl": "1h"})
	old := f.on(t, "n2", "old")
	before := slices.DeleteFunc(f.kuryrPods(t.Context(), t), func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	for i, own := range before {
		if err := f.Client.Delete(t.Context(), &own, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		pod := f.on(t, "n1", fmt.Sprintf("new-%d", i))
		f.reaches(t, old, pod)
	}
	eventually(t, func() error { return f.replaced(t, before) })
}

// replaced says what lacks until as many pods of Kuryr's run and are ready as
// there were before, all of them others.
func (f *fixture) replaced(t testing.TB, before []corev1.Pod) error {
	t.Helper()
	after := f.kuryrPods(t.Context(), t)
	for _, pod := range after {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if pod.Status.Phase != corev1.PodRunning || !ready {
			return fmt.Errorf("pod %s of Kuryr's is %s, ready: %t", pod.Name, pod.Status.Phase, ready)
		}
		if slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == pod.UID }) {
			return fmt.Errorf("pod %s of Kuryr's was there before", pod.Name)
		}
	}
	if len(after) != len(before) {
		return fmt.Errorf("there are %d pods of Kuryr's, before %d", len(after), len(before))
	}
	return nil
}

// Pods of one name come and go: each is another pod, with a network that works.
func TestPoolServesSameName(t *testing.T) {
	f := onBed(t)
	f.pools(t, map[string]any{"min": 1, "max": 2, "batch": 1, "ttl": "1h", "cooldown": "1s"})
	peer := f.on(t, "n2", "peer")
	for range 4 {
		pod := f.on(t, "n1", "same")
		f.reaches(t, peer, pod)
		if err := f.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
}

// A pod with security groups of its own gets a port of the pool, which has them
// before the pod has its network; the next pod has the pool's again.
func TestPoolPortGetsPodsGroups(t *testing.T) {
	f := onBed(t)
	group := f.closedGroup(t)
	levels := map[string]any{"min": 1, "max": 1, "batch": 1, "ttl": "1h"}
	f.change(t, func(document map[string]any) {
		document["pools"] = levels
		document["pods"].(map[string]any)["securityGroups"] = []any{map[string]any{
			"podSelector":      map[string]any{"matchLabels": map[string]any{"app": "closed"}},
			"securityGroupIDs": []string{group},
		}}
	})
	peer := f.on(t, "n2", "peer")
	f.on(t, "n1", "open")
	free := f.keeps(t, "n1", 1)
	closed := f.on(t, "n1", "closed")
	f.has(t, closed, free)
	if port := must(f.portOf(t, closed))(t); !slices.Equal(port.SecurityGroups, []string{group}) {
		t.Errorf("the pod's port has groups %q, want %s", port.SecurityGroups, group)
	}
	ask := []string{"curl", "-sS", "-m2", "http://" + closed.Status.PodIP + ":8080/hostname"}
	if got, err := f.Exec(t.Context(), f.namespace, peer.Name, ask...); err == nil {
		t.Errorf("a pod without an ingress rule answers %q", got)
	}
	f.opens(t, group)
	eventually(t, func() error {
		_, err := f.Exec(t.Context(), f.namespace, peer.Name, ask...)
		return err
	})
	f.delete(t, closed)
	eventually(t, func() error { // until no free port has the group: else it cannot be deleted
		var list v1.KuryrPortList
		if err := f.Client.List(t.Context(), &list); err != nil {
			return err
		}
		for _, p := range list.Items {
			if slices.Contains(p.Status.AppliedSecurityGroupIDs, group) {
				return fmt.Errorf("port %s still has group %s", p.Name, group)
			}
		}
		return nil
	})
	again := f.on(t, "n1", "again")
	f.reaches(t, peer, again)
}
