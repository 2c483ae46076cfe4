// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// reporter makes status.attachment of the KuryrPorts equal to the journal. It is level-based: after
// any change, by a call, an event or a restart, it compares the two for one port. No CNI call waits
// for it.
type reporter struct {
	api     api
	journal *journal
	ports   *ports
	queue   workqueue.TypedRateLimitingInterface[string]

	mu       sync.Mutex
	reported map[string]report // the last write by port
}

// report is the last written value, and the resourceVersion after the write. The cache may be
// older for a moment.
type report struct {
	attachment *v1.Attachment
	version    string
}

const reportWorkers = 2

// plugTime is the usual duration of an ADD after it has a port; docs/performance.md.
const plugTime = 20 * time.Millisecond

func newReporter(a api, j *journal, p *ports) *reporter {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 30*time.Second)
	return &reporter{
		api: a, journal: j, ports: p, reported: map[string]report{},
		queue: workqueue.NewTypedRateLimitingQueue(limit),
	}
}

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

// gone takes the name of a port that was deleted in the API, for sync to forget. If gone itself
// forgot the port, a report in progress could still store it afterwards.
func (r *reporter) gone(port string) { r.queue.Add(port) }

// want returns the attachment that the port should have.
func (r *reporter) want(port string) *v1.Attachment {
	for _, e := range r.journal.ofPort(port) {
		if !e.FromArgs {
			return e.attachment()
		}
	}
	return nil
}

func (r *reporter) run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range reportWorkers {
		workers.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	workers.Wait()
	return nil
}

func (r *reporter) next(ctx context.Context) bool {
	name, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(name)
	if ctx.Err() != nil {
		return true // it is reported after the restart
	}
	if err := r.sync(ctx, name); err != nil {
		// One log line in many tries is enough: the API server may be unavailable for long.
		if tries := r.queue.NumRequeues(name); tries == 0 || tries%16 == 0 {
			logr.FromContextOrDiscard(ctx).Error(err, "reporting an attachment, will try again", "port", name)
		}
		r.queue.AddRateLimited(name)
		return true
	}
	r.queue.Forget(name)
	return true
}

// sync writes the attachment of one port if it differs from the journal.
func (r *reporter) sync(ctx context.Context, name string) error {
	want := r.want(name)
	cached := r.ports.port(name)
	if cached == nil && r.ports.synced() && want == nil {
		r.forget(name)
		return nil // nothing is plugged, and the status is empty
	}
	if cached != nil && same(r.known(cached), want) {
		return nil
	}
	written, err := r.api.Report(ctx, name, want)
	if apierrors.IsNotFound(err) {
		r.forget(name)
		return nil // if the object is created again, observe sees it
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported[name] = report{attachment: want, version: written.ResourceVersion}
	return nil
}

// known returns the newest known value of the port's attachment: the cache's, unless that is
// older than the last write.
func (r *reporter) known(cached *v1.KuryrPort) *v1.Attachment {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.reported[cached.Name]
	if !ok {
		return cached.Status.Attachment
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, last.version)
	if err == nil && order < 0 {
		return last.attachment
	}
	return cached.Status.Attachment
}

func (r *reporter) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reported, name)
}

// same compares without the time: a repeated ADD starts no new attachment, and the API drops
// fractions of seconds.
func same(a, b *v1.Attachment) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ContainerID == b.ContainerID && a.Interface == b.Interface && a.Tagged == b.Tagged
}
