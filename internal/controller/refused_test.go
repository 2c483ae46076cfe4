// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubelet sets the Ready condition and the number of pods of a node, as kubelet or the node
// controller does.
func (b *bed) kubelet(name string, ready corev1.ConditionStatus, pods int) {
	b.t.Helper()
	text := fmt.Sprintf(`{"status":{"allocatable":{"pods":"%d"},"conditions":[{"type":"Ready","status":%q}]}}`, pods, ready)
	if err := b.client.Status().Patch(b.t.Context(), nodeNamed(name), client.RawPatch("application/merge-patch+json", []byte(text))); err != nil {
		b.t.Fatal(err)
	}
}

// TestPodsThatCannotRun: pods beyond the number that kubelet runs get no ports, nor do pods of a
// node whose kubelet is away. It does not matter who has put them on the node. Pods that have ports
// keep them.
func TestPodsThatCannotRun(t *testing.T) {
	b := idleBed(t)
	b.kubelet(node, corev1.ConditionTrue, 3)
	b.pod("of-the-host", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	b.start()
	first := b.pod("first")
	b.bound(first)
	second := b.pod("second")
	b.bound(second)
	third := b.pod("third")
	b.mentions("the Event", b.eventOn("third", "NodeTakesNoMore"), node, "3 pods")
	b.never("a port for a pod beyond what the node runs", func() bool { return b.cloud.Ports() != 2 })
	b.delete(second)
	b.bound(third)
	b.kubelet(node, corev1.ConditionUnknown, 3)
	b.delete(first)
	fourth := b.pod("fourth")
	b.mentions("the Event", b.eventOn("fourth", "NodeTakesNoMore"), "kubelet")
	if b.portOf(third) == nil {
		t.Error("a pod has lost its port with its node's kubelet")
	}
	b.kubelet(node, corev1.ConditionFalse, 3)
	b.bound(fourth)
}

// TestNodeThatIsNew: a new node is not ready before its network plugin is.
func TestNodeThatIsNew(t *testing.T) {
	b := idleBed(t)
	b.kubelet(node, corev1.ConditionFalse, 110)
	b.start()
	b.bound(b.pod("of-a-daemonset"))
}
