// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue puts requests into a controller's queue from outside. What is added
// before the controller has started is dropped: at its start it sees everything.
type Queue[request comparable] struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[request]
}

// Source is to be watched by the controller whose queue it is: one only.
func (w *Queue[request]) Source() source.TypedSource[request] {
	return source.TypedFunc[request](func(_ context.Context, q workqueue.TypedRateLimitingInterface[request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = q
		return nil
	})
}

// Add requests a reconcile. It does not wait, and is safe for concurrent use.
func (w *Queue[request]) Add(r request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.queue.Add(r)
	}
}

// Pause waits, and reports whether ctx lasts.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Await waits for a span that may become another while it waits, and reports whether
// ctx lasts.
func Await(ctx context.Context, span func() time.Duration) bool {
	const notice = 2 * time.Second // from a change of the configuration
	for began := time.Now(); ; {
		left := span() - time.Since(began)
		if left <= 0 {
			return ctx.Err() == nil
		}
		if !Pause(ctx, min(left, notice)) {
			return false
		}
	}
}

// Leading is a runnable of the leader alone.
type Leading func(ctx context.Context) error

// Start runs it, until ctx ends.
func (l Leading) Start(ctx context.Context) error { return l(ctx) }

// NeedLeaderElection is true.
func (Leading) NeedLeaderElection() bool { return true }

// Runnable returns what adds run to a manager, to run while this process leads.
func Runnable(run func(ctx context.Context) error) func(ctrl.Manager) error {
	return func(mgr ctrl.Manager) error { return mgr.Add(Leading(run)) }
}

// Signal is sent to those who wait for it. One that nobody waits for yet is kept, once.
type Signal chan struct{}

// NewSignal returns a Signal that was not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send sends it, and does not wait.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // it is sent already
	}
}
