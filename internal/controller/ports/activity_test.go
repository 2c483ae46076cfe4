// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// waits is an SDN that only answers which ports are active.
type waits struct {
	sdn.Ports
	mu     sync.Mutex
	active []string
	calls  int
	named  []string // ports asked about
}

func (w *waits) States(_ context.Context, ids []string) (map[string]sdn.PortState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	w.named = append(w.named, ids...)
	states := map[string]sdn.PortState{}
	for _, id := range ids {
		states[id] = sdn.PortState{Active: slices.Contains(w.active, id)}
	}
	return states, nil
}

// set makes ports active, and returns the ports that were asked about before.
func (w *waits) set(active ...string) (calls int, named []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls, named = w.calls, w.named
	w.calls, w.named, w.active = 0, nil, active
	return calls, named
}

// TestActivityIsAskedForLessAndLess: a port that never becomes active costs a request now and
// then, also while other ports come and go. It does not make the next port wait.
func TestActivityIsAskedForLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cloud := &waits{}
		requeued := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer requeued.ShutDown()
		a := &Reconciler{Options: Options{Ports: cloud}, memory: newPortMemory(), queue: &kube.Queue[ctrl.Request]{}}
		if err := a.queue.Source().Start(ctx, requeued); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = kube.Every("activity", func() time.Duration { return activityTick }, a.askActive, nil)(ctx)
		}()
		pass := func(d time.Duration) (calls int, named []string) {
			time.Sleep(d)
			synctest.Wait()
			return cloud.set()
		}
		if n, _ := pass(time.Minute); n != 0 {
			t.Errorf("%d requests in a minute in which no port waits, want none", n)
		}
		a.memory.awaitActive(portNamed("stuck"), "")
		if n, _ := pass(10 * time.Second); n < 3 {
			t.Errorf("%d requests in the first 10 s, want 3 at least", n)
		}
		pass(time.Minute)
		if n, _ := pass(10 * time.Minute); n > 21 {
			t.Errorf("%d requests in 10 minutes for a port that stays inactive, want one each 30 s", n)
		}
		a.memory.awaitActive(portNamed("next"), "")
		cloud.set("next")
		if pass(3 * time.Second); requeued.Len() != 1 {
			t.Fatalf("%d ports seen active within 3 s, want the next port", requeued.Len())
		}
		if seen, _ := requeued.Get(); seen.Name != "next" {
			t.Errorf("seen active within 3 s: %q, want the next port", seen.Name)
		}
		stuck := 0
		for i := range 100 {
			name := fmt.Sprint("pod-", i)
			a.memory.awaitActive(portNamed(name), "")
			cloud.set(name)
			_, named := pass(3 * time.Second)
			for _, n := range named {
				if n == "stuck" {
					stuck++
				} else if n != name {
					t.Errorf("asked about %s, which does not wait any more", n)
				}
			}
		}
		if stuck > 11 {
			t.Errorf("asked %d times in five minutes about a port that stays inactive while others come and go", stuck)
		}
	})
}
