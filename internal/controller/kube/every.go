// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"math"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Runnable is what runs as long as the process, and waits for the checks of a first start.
type Runnable = manager.RunnableFunc

// Everywhere is a Runnable that does not wait for the checks of a first start: it only reads, and requeues.
type Everywhere func(context.Context) error

// Start implements manager.Runnable.
func (e Everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection is false: see Everywhere.
func (Everywhere) NeedLeaderElection() bool { return false }

// Never is the period of a task that runs only on request.
const Never = time.Duration(math.MaxInt64)

// noticed is how soon a wait follows a changed period.
const noticed = 2 * time.Second

// Every returns a Runnable that runs task once a period, until its context ends. The
// first run is a period after the start. Each other run is a period after the end of the run
// before.
//
// A run is earlier if early is sent; early may be nil. If the period changes during a wait, the
// wait changes with it. One goroutine calls period and task. An error of task is logged under the
// name, and task runs again as usual.
func Every(name string, period func() time.Duration, task func(context.Context) error, early <-chan struct{}) Runnable {
	return func(ctx context.Context) error {
		log := ctrl.LoggerFrom(ctx).WithName(name)
		ctx = ctrl.LoggerInto(ctx, log)
		for await(ctx, period, early) {
			if err := task(ctx); err != nil && ctx.Err() == nil {
				log.Info("a periodic task failed; it runs again after its period", "error", err.Error())
			}
		}
		return nil
	}
}

// await waits for a period, or until early is sent. It returns false if ctx ends.
func await(ctx context.Context, period func() time.Duration, early <-chan struct{}) bool {
	for began := time.Now(); ctx.Err() == nil; {
		left := period() - time.Since(began)
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(min(left, noticed))
		select {
		case <-ctx.Done():
		case <-early:
			timer.Stop()
			return ctx.Err() == nil
		case <-timer.C:
		}
		timer.Stop()
	}
	return false
}

// Pause waits for d. It returns false if ctx ends first.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Signal wakes a waiting goroutine. A signal that is not received yet is kept, once.
type Signal chan struct{}

// NewSignal returns a Signal that was not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send sends the signal, and does not wait.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // already sent
	}
}

// Queue adds requests to a controller's queue from outside. Requests that are added before the
// controller has started are dropped: at its start it reconciles every object.
type Queue[request comparable] struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[request]
}

// Source returns the source that a controller must watch. A Queue serves one controller.
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
