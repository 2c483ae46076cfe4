// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"context"
	"errors"
	"sync"
	"time"
)

var (
	errStopped = errors.New("the process is stopped")
	errLost    = errors.New("connection lost: no answer")
)

// lateness is how long a view is late.
const lateness = 200 * time.Millisecond

// process is a controller from its start to its end. All that it does to
// Kubernetes and to the cloud comes through begin.
type process struct {
	number int // the first is 1
	fate   Fate
	at     int // the number of the write that the fate befalls; 0 is none
	trail  *trail
	cancel context.CancelFunc
	ended  chan error    // brings what Start returned
	over   chan struct{} // closed when the process is stopped

	mu       sync.Mutex
	stopped  bool
	writes   map[string]int // by call
	counted  int
	hit      *Call
	inFlight int           // writes
	asked    []Call        // of the cloud
	late     chan struct{} // closed when the view is late no more; nil: it is not late
}

type processKey struct{}

// processOf returns the process that ctx is of; nil if it is nobody's.
func processOf(ctx context.Context) *process {
	p, _ := ctx.Value(processKey{}).(*process)
	return p
}

// passage is a call between its beginning and its end.
type passage struct {
	p    *process
	call Call
	hit  bool
}

// begin lets a call through, or returns why not. What is let through has to end.
func (p *process) begin(c Call) (*passage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, errStopped
	}
	if c.To == TheCloud {
		p.asked = append(p.asked, c)
	}
	x := &passage{p: p, call: c}
	if !c.Write {
		return x, nil
	}
	p.writes[c.String()]++
	if p.fate.counts(c) {
		p.counted++
		x.hit = p.counted == p.at
	}
	if !x.hit {
		p.inFlight++
		p.trail.add(p, c.String())
		return x, nil
	}
	p.hit = &c
	p.trail.add(p, c.String()+" <- "+p.fate.Name)
	if !p.fate.Effect {
		return nil, p.fail()
	}
	p.fallBehind()
	p.inFlight++
	return x, nil
}

// end returns why the answer to a call cannot be told, nil if it can.
func (x *passage) end() error {
	p := x.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if x.call.Write {
		p.inFlight--
	}
	if x.hit {
		return p.fail()
	}
	if p.stopped {
		return errStopped
	}
	return nil
}

// What follows is called with the lock held.

func (p *process) fail() error {
	if !p.fate.Stops {
		return errLost
	}
	p.stopped = true
	close(p.over)
	p.cancel()
	return errStopped
}

func (p *process) fallBehind() {
	if !p.fate.Late {
		return
	}
	late := make(chan struct{})
	p.late = late
	time.AfterFunc(lateness, func() { close(late) })
}

// What follows takes it.

// isStopped reports whether the process was stopped by its fate.
func (p *process) isStopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

// idle reports whether no write is under way.
func (p *process) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlight == 0
}

// behind returns what is closed when the view is late no more; nil if it is not late.
func (p *process) behind() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// inventories returns what of the cloud's inventory was asked for up to now.
func (p *process) inventories() (calls []Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.asked {
		if c.Inventory {
			calls = append(calls, c)
		}
	}
	return calls
}
