// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
)

// worker records what it reconciles. "gone" has no key.
type worker struct {
	did        []string
	unfinished bool
}

func (w *worker) Reconcile(_ context.Context, req string) (ctrl.Result, error) {
	w.did = append(w.did, req)
	return ctrl.Result{}, nil
}

func (w *worker) Unfinished(string) bool { return w.unfinished }

func (w *worker) keyOf(_ context.Context, req string) (kube.Key, bool) {
	return kube.OnNode(req), req != "gone"
}

// bucketOf returns the set with the bucket of a node.
func bucketOf(node string) shard.Set {
	return shard.Set{}.With(shard.Bucket("node", node))
}

func TestOnlyOwnKeysAreReconciled(t *testing.T) {
	ctx := t.Context()
	w, now := &worker{}, time.Duration(0)
	gate := shards.NewGate(func() time.Duration { return now })
	gate.Renew(time.Second, 1)
	r := kube.Sharded[string](gate, w.keyOf, w)
	do := func(req string, want bool, again time.Duration) {
		t.Helper()
		w.did = nil
		if result, err := r.Reconcile(ctx, req); err != nil || (len(w.did) == 1) != want || result.RequeueAfter != again {
			t.Errorf("%s: reconciled %v, again after %s, %v; want %v, %s", req, w.did, result.RequeueAfter, err, want, again)
		}
	}
	do("mine", false, 0)
	do("gone", true, 0)
	gate.Open(ctx, bucketOf("mine"), false)
	do("mine", true, 0)
	do("other", false, 0)
	now = time.Second
	do("mine", false, time.Second) // it is owned; another may think that this process is dead
	gate.Renew(2*time.Second, 1)
	do("mine", true, 0)

	leave, ok := gate.Enter(kube.OnNode("mine"))
	if !ok {
		t.Fatal("own key refused")
	}
	gate.Close(bucketOf("mine"))
	do("mine", false, time.Second)
	w.unfinished = true
	do("mine", true, 0)
	if gate.Busy() != bucketOf("mine") {
		t.Errorf("busy: %v", gate.Busy())
	}
	leave()
	do("mine", false, time.Second) // nothing is under way that could be completed
	if gate.Busy().Len() != 0 {
		t.Errorf("busy after the last work has ended: %v", gate.Busy())
	}
	gate.Lose(bucketOf("mine"))
	do("mine", false, 0)
}

func TestGainedKeysAreRequeued(t *testing.T) {
	ctx := t.Context()
	gate, w := shards.NewGate(nil), &worker{}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	all := func(context.Context) ([]string, error) { return []string{"a", "b", "gone"}, nil }
	if err := kube.Gained(gate, w.keyOf, all).Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	gate.Open(ctx, bucketOf("b"), true)
	if n := queue.Len(); n != 1 {
		t.Fatalf("%d requests, want one", n)
	}
	if req, _ := queue.Get(); req != "b" {
		t.Errorf("requeued %s", req)
	}
	var _ reconcile.TypedReconciler[string] = w
}
