// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// trunkRemovals are subports about to leave their trunks. Those of one trunk that are
// deleted at about the same time leave with one request: each makes Neutron and its
// driver write the whole trunk.
type trunkRemovals struct {
	look sdn.Answers[struct{}, map[string]trunkPlace] // for the trunks of ports

	mu sync.Mutex
	at map[string]*trunkRemoval // by trunk: what may still be joined
}

// trunkRemoval is one request. Its errors are set when done is closed.
type trunkRemoval struct {
	ids  []string
	done chan struct{}
	errs map[string]error // by port
}

const (
	// gather is how long a subport waits for others of its trunk.
	gather = 100 * time.Millisecond
	// maxDepartures is how many leave with one request at most.
	maxDepartures = 50
)

// join has a port leave with the others of its trunk, and reports whether it is the first.
func (d *trunkRemovals) join(trunkID, portID string) (with *trunkRemoval, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	with = d.at[trunkID]
	if with == nil {
		with, first = &trunkRemoval{done: make(chan struct{})}, true
		if d.at == nil {
			d.at = map[string]*trunkRemoval{}
		}
		d.at[trunkID] = with
	}
	if with.ids = append(with.ids, portID); len(with.ids) == maxDepartures {
		delete(d.at, trunkID)
	}
	return with, first
}

// close lets no more join.
func (d *trunkRemovals) close(trunkID string, with *trunkRemoval) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at[trunkID] == with {
		delete(d.at, trunkID)
	}
}

// leave takes a port off its trunk, together with others.
func (b *Neutron) leave(ctx context.Context, portID, trunkID string) error {
	with, first := b.leaving.join(trunkID, portID)
	if first {
		// It is the others' too, so it does not end with this context; its requests
		// are bounded by themselves.
		go b.depart(context.WithoutCancel(ctx), trunkID, with)
	}
	select {
	case <-with.done:
		return with.errs[portID]
	case <-ctx.Done():
		return session.Unanswered(ctx, ctx.Err())
	}
}

func (b *Neutron) depart(ctx context.Context, trunkID string, with *trunkRemoval) {
	time.Sleep(gather)
	b.leaving.close(trunkID, with)
	with.errs = map[string]error{}
	err := b.removeSubports(ctx, trunkID, with.ids)
	for _, id := range with.ids {
		if with.errs[id] = err; errors.Is(err, sdn.ErrNotFound) && len(with.ids) > 1 {
			// One is not on the trunk, so that Neutron removes none: it does not say which.
			with.errs[id] = b.removeSubports(ctx, trunkID, []string{id})
		}
	}
	close(with.done)
}

// removeSubports takes all of these ports off a trunk, or none: ErrNotFound if one is
// not on it.
func (b *Neutron) removeSubports(ctx context.Context, trunkID string, ids []string) error {
	subports := make([]wireSubport, len(ids))
	for i, id := range ids {
		subports[i].PortID = id
	}
	err := b.Do(ctx, session.Request{
		Method: http.MethodPut, Path: []string{"trunks", trunkID, "remove_subports"},
		Body: object{"sub_ports": subports}, Subject: "SubPortNotFound",
	})
	if err != nil {
		return fmt.Errorf("removing it from trunk %s: %w", trunkID, err)
	}
	return nil
}
