// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue puts requests into a controller's queue from outside. What is added
// before the controller has started is dropped: at its start it sees everything.
type Queue[request comparable] struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[request]
}

func (w *Queue[request]) Source() source.TypedSource[request] {
	return source.TypedFunc[request](func(_ context.Context, q workqueue.TypedRateLimitingInterface[request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = q
		return nil
	})
}

func (w *Queue[request]) Add(r request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.queue.Add(r)
	}
}
