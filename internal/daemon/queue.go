// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
)

const queueWorkers = 2

// portQueue has the names of ports whose wanted state is to be compared with the actual one.
type portQueue struct {
	workqueue.TypedRateLimitingInterface[string]
}

// newPortQueue returns a queue that repeats a failed port after a delay, which doubles up to a limit.
func newPortQueue(delay, limit time.Duration) portQueue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](delay, limit)
	return portQueue{workqueue.NewTypedRateLimitingQueue(limiter)}
}

// run calls reconcile with each queued port until ctx ends. doing says in the log what that does.
func (q portQueue) run(ctx context.Context, doing string, reconcile func(ctx context.Context, name string) error) {
	var workers sync.WaitGroup
	for range queueWorkers {
		workers.Go(func() {
			for q.next(ctx, doing, reconcile) {
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	workers.Wait()
}

func (q portQueue) next(ctx context.Context, doing string, reconcile func(ctx context.Context, name string) error) bool {
	name, shutdown := q.Get()
	if shutdown {
		return false
	}
	defer q.Done(name)
	if ctx.Err() != nil {
		return true // it is found after the restart
	}
	if err := reconcile(ctx, name); err != nil {
		// One log line in many tries is enough: the API server or the switch may be away for long.
		if tries := q.NumRequeues(name); tries == 0 || tries%16 == 0 {
			logr.FromContextOrDiscard(ctx).Error(err, doing+", will try again", "port", name)
		}
		q.AddRateLimited(name)
		return true
	}
	q.Forget(name)
	return true
}
