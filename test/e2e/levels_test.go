// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// A node that joins has free ports before its first pod, as many as its labels
// say; nodes with other labels have none. The ports go with the node.
func TestWarmUpOfNode(t *testing.T) {
	f := onBed(t)
	f.atRest(t)
	size := func(size string, n int) map[string]any {
		return map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"e2e-size": size}}, "min": n}
	}
	f.pools(t, map[string]any{
		"min": 0, "batch": 3, "ttl": "1h", "warmUp": true, "overrides": []any{size("large", 2), size("larger", 3)},
	})
	node := f.joins(t, "gateway", map[string]string{"e2e-size": "large"})
	f.keeps(t, node.Name, 2)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"e2e-size": "larger"}}}`))
	if err := f.Client.Patch(t.Context(), node, patch); err != nil {
		t.Fatal(err)
	}
	for _, id := range f.keeps(t, node.Name, 3) {
		if port := must(f.Port(t.Context(), id))(t); port.HostID != node.Name || port.Name != "available-port" {
			t.Errorf("free port %s is %q on host %q, want available-port on %s", id, port.Name, port.HostID, node.Name)
		}
	}
	for _, other := range nodes {
		if free := f.free(t, other); len(free) > 0 {
			t.Errorf("node %s has free ports %q, want none: its labels say nothing", other, free)
		}
	}
	if err := f.Client.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	f.atRest(t)
}

// joins has a chassis of the bed be a node of Kubernetes that is ready, though no
// kubelet is behind it.
func (f *fixture) joins(t testing.TB, name string, labels map[string]string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if err := f.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(f.Client.Delete(context.Background(), node)); err != nil {
			t.Error(err)
		}
	})
	// Without a new time Kubernetes takes it for what it saw of an older node of that
	// name, which it has not heard of for long.
	ready := client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
		`{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": %q}]}}`,
		time.Now().UTC().Format(time.RFC3339)))
	if err := f.Client.Status().Patch(t.Context(), node, ready); err != nil {
		t.Fatal(err)
	}
	return node
}

// The pods of a namespace that its labels give pools of its own have ports of these; other pods
// do not.
func TestPoolOfNamespace(t *testing.T) {
	f := onBed(t)
	f.atRest(t)
	f.pools(t, map[string]any{
		"min": 0, "batch": 1, "ttl": "1h",
		"overrides": []any{map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"e2e-team": "a"}}, "min": 1,
		}},
	})
	own := &fixture{Cluster: f.Cluster, namespace: f.namespace + "-own"}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own.namespace, Labels: map[string]string{"e2e-team": "a"}}}
	if err := f.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.clean(t) })

	other := f.on(t, "n1", "other")
	pod := own.on(t, "n1", "own")
	f.reaches(t, other, pod)
	f.keeps(t, "n1", 1)
	kp := must(f.KuryrPortOf(t.Context(), pod))(t)
	var pool v1.KuryrPortPool
	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: kp.Spec.Pool}, &pool); err != nil {
		t.Fatal(err)
	}
	if pool.Spec.Key.Namespace != own.namespace || pool.Spec.Min != 1 {
		t.Errorf("pool %s is of namespace %q with min %d, want %s and 1", pool.Name, pool.Spec.Key.Namespace, pool.Spec.Min, own.namespace)
	}
	if kp := must(f.KuryrPortOf(t.Context(), other))(t); kp.Spec.Pool == pool.Name {
		t.Errorf("pod %s/%s has a port of the pool of %s", other.Namespace, other.Name, own.namespace)
	}

	own.clean(t) // and the namespace's ports go with it
	eventually(t, func() error {
		for _, node := range nodes {
			if free := f.free(t, node); len(free) > 0 {
				return fmt.Errorf("node %s keeps %q for a namespace that is gone", node, free)
			}
		}
		return nil
	})
}
