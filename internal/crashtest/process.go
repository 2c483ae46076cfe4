// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	errStopped = errors.New("the process is stopped")
	errLost    = errors.New("connection lost: no answer")
)

// answeredError is an answer with this HTTP status in place of the real one.
type answeredError int

// Error implements error.
func (e answeredError) Error() string { return fmt.Sprintf("answered with status %d", int(e)) }

// lateness is by how much watches are delayed, and how long the API server is away.
const lateness = 200 * time.Millisecond

// process is a controller from its start to its end. All its requests to Kubernetes and to the
// cloud pass begin.
type process struct {
	number int    // the first process is 1
	name   string // of one of several controllers; empty: it is alone
	aim    *aim
	trail  *trail
	terms  *terms // nil if it is alone
	cancel context.CancelFunc
	ended  chan error    // delivers the result of Start
	over   chan struct{} // closed when the process is stopped

	mu       sync.Mutex
	stopped  bool
	writes   map[string]int // by call
	hit      *Call
	inFlight int           // writes in progress
	asked    []Call        // calls to the cloud
	late     chan struct{} // closed when the watches are no longer late; nil: they are not late
	paused   chan struct{} // closed when the process goes on; nil: it was never paused
	back     time.Time     // when the API server is there again; zero: it was never away
	away     chan struct{} // closed when the API server goes away; nil: it has been away
}

type processKey struct{}

// processOf returns the process of ctx, nil if ctx belongs to none.
func processOf(ctx context.Context) *process {
	p, _ := ctx.Value(processKey{}).(*process)
	return p
}

// passage is a call between begin and end.
type passage struct {
	p    *process
	call Call
	hit  bool
}

// NameOf returns the name of the controller that ctx belongs to, if it is one of several; empty if it is alone.
func NameOf(ctx context.Context) string {
	if p := processOf(ctx); p != nil {
		return p.name
	}
	return ""
}

// begin admits a call, or returns why not. The caller must end an admitted call.
func (p *process) begin(c Call) (*passage, error) {
	p.wait()
	x, err := p.admit(c)
	if err == nil && x.hit && p.aim.fate.Pauses {
		p.wait()
	}
	return x, err
}

func (p *process) admit(c Call) (*passage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, errStopped
	}
	if c.To == TheCloud {
		p.asked = append(p.asked, c)
	}
	if c.To == Kubernetes && time.Now().Before(p.back) {
		return nil, errLost
	}
	x := &passage{p: p, call: c}
	if !c.Write {
		return x, nil
	}
	p.writes[c.String()]++
	if x.hit = p.aim.hits(c); !x.hit {
		p.inFlight++
		p.trail.add(p, c.String())
		return x, nil
	}
	p.hit = &c
	p.trail.add(p, c.String()+" <- "+p.aim.fate.Name)
	if !p.aim.fate.Effect {
		return nil, p.fail()
	}
	p.fallBehind()
	p.inFlight++
	return x, nil
}

// end returns why the answer to a call must not be delivered, nil if it may be.
func (x *passage) end() error {
	p := x.p
	p.wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if x.call.Write {
		p.inFlight--
	}
	if x.hit && p.aim.fate.Away {
		p.back = time.Now().Add(lateness)
		close(p.away)
		p.away = nil // later connections last
	} else if x.hit && !p.aim.fate.Pauses {
		return p.fail()
	}
	if p.stopped {
		return errStopped
	}
	return nil
}

// The caller of the functions below holds the lock.

func (p *process) fail() error {
	if p.aim.fate.Status != 0 {
		return answeredError(p.aim.fate.Status)
	}
	if !p.aim.fate.Stops {
		return errLost
	}
	p.stopped = true
	close(p.over)
	p.cancel()
	return errStopped
}

func (p *process) fallBehind() {
	if !p.aim.fate.Late && !p.aim.fate.Pauses {
		return
	}
	late, after := make(chan struct{}), lateness
	if p.late = late; p.aim.fate.Pauses {
		p.paused, after = late, pause
	}
	time.AfterFunc(after, func() {
		if p.aim.fate.Pauses {
			p.trail.add(p, "goes on")
		}
		close(late)
	})
}

// The functions below take the lock.

// wait waits while the process is paused.
func (p *process) wait() {
	p.mu.Lock()
	paused := p.paused
	p.mu.Unlock()
	if paused != nil {
		<-paused
	}
}

// hasPaused reports whether the process was paused.
func (p *process) hasPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused != nil
}

// isStopped reports whether the fate has stopped the process.
func (p *process) isStopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

// idle reports whether no write is in progress.
func (p *process) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlight == 0
}

// behind returns a channel that closes when the watches are no longer late, nil if they are not
// late.
func (p *process) behind() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// leaving returns a channel that is closed when the API server goes away, nil if it has been away.
func (p *process) leaving() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away
}

// inventories returns the calls so far that asked for all resources of the cloud.
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
