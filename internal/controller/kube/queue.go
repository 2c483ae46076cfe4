// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

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
