// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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

func newReporter(a api, j *journal, p *ports) *reporter {
	return &reporter{api: a, journal: j, ports: p, queue: newPortQueue(200*time.Millisecond, 30*time.Second)}
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
	r.queue.run(ctx, "reporting an attachment", r.sync)
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
