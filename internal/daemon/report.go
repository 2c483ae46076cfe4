// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// reporter makes status.attachment of the KuryrPorts equal to the journal. It is level-based: after
// any change, by a call, an event or a restart, it compares the two for one port. A cache that is
// behind a write does no harm: the event of that write is compared, too. No CNI call waits for it.
type reporter struct {
	api     api
	journal *journal
	ports   *ports
	queue   portQueue
}

// plugTime is the usual duration of an ADD after it has a port; docs/performance.md.
const plugTime = 20 * time.Millisecond

// report queues the report of e's port.
func (r *reporter) report(e entry) {
	if !e.FromArgs {
		r.queue.Add(e.Port.ID)
	}
}

// plugging queues the report a little later than report does. The runtime waits for the ADD, and
// the request would take processor time from it.
func (r *reporter) plugging(e entry) {
	if !e.FromArgs {
		r.queue.AddAfter(e.Port.ID, plugTime)
	}
}

// observe takes a port's state in the API.
func (r *reporter) observe(port *v1.KuryrPort) {
	if !same(port.Status.Attachment, r.want(port.Name)) {
		r.queue.Add(port.Name)
	}
}

// want returns the attachment that the port should have.
func (r *reporter) want(port string) *v1.Attachment {
	for _, e := range r.journal.ofPort(port) {
		if !e.FromArgs {
			return e.attachment()
		}
	}
	return nil
}

// sync writes the attachment of one port if it differs from the journal.
func (r *reporter) sync(ctx context.Context, name string) error {
	want := r.want(name)
	cached := r.ports.port(name)
	if cached == nil && r.ports.synced() && want == nil {
		return nil // nothing is plugged, and the status is empty
	}
	if cached != nil && same(cached.Status.Attachment, want) {
		return nil
	}
	err := r.api.Report(ctx, name, want)
	if apierrors.IsNotFound(err) {
		return nil // if the object is created again, observe sees it
	}
	return err
}

// same compares without the time: a repeated ADD starts no new attachment, and the API drops
// fractions of seconds.
func same(a, b *v1.Attachment) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ContainerID == b.ContainerID && a.Interface == b.Interface && a.Tagged == b.Tagged
}

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
