// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Panel applies a Set to calls as they come. It may be used by many goroutines.
type Panel struct {
	seed uint64

	mu       sync.Mutex
	set      *Set
	calls    []counter // beside set.Calls
	ports    []counter
	balances []counter
}

// counter counts the calls of a rule, and those in progress that match it.
type counter struct{ asked, applied, running int }

// NewPanel returns a Panel with nothing dialled.
func NewPanel(seed uint64) *Panel {
	p := &Panel{seed: seed}
	p.Set(&Set{})
	return p
}

// Set replaces the dials by s and resets all counters.
func (p *Panel) Set(s *Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = s
	p.calls = make([]counter, len(s.Calls))
	p.ports = make([]counter, len(s.Ports))
	p.balances = make([]counter, len(s.Balances))
}

// Current returns the current dials.
func (p *Panel) Current() *Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set
}

// Turn is the effect of the dials on one call.
type Turn struct {
	Wait  time.Duration // before its effect, the items of a bulk create included
	Row   Delay         // after it, for each row of a list
	Rows  bool          // whether Row is given
	Fault *Fault        // nil: none
	Rule  string        // the name of the rule that Fault or Stop is of
	Stop  Moment

	panel *Panel
	set   *Set
	mine  []int // rules that count the call as running
	draw  *rand.Rand
}

// Begin returns the effect on c. Call Turn.End when the call is over.
func (p *Panel) Begin(c Call) *Turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &Turn{panel: p, set: p.set}
	slow := false
	for i := range p.set.Calls {
		r := &p.set.Calls[i]
		if !r.On.Fits(c) || !r.allows(c, p.calls[i].running > 0) {
			if r.On.Fits(c) && r.is(c) {
				t.run(i)
			}
			continue
		}
		t.run(i)
		draw := p.draw(1, i, p.calls[i].asked)
		if !p.calls[i].due(r.Times, draw) {
			continue
		}
		if !slow && (r.Latency != nil || r.PerItem != nil) {
			slow = true
			t.slow(r, c, draw)
		}
		if t.Fault == nil {
			t.fail(r, p.calls[i].applied-1)
		}
		if t.Stop == "" && r.Stop != "" {
			t.Stop, t.Rule = r.Stop, r.Name
		}
	}
	return t
}

func (t *Turn) run(rule int) {
	t.panel.calls[rule].running++
	t.mine = append(t.mine, rule)
}

// allows reports whether r's conditions hold.
func (r *Rule) allows(c Call, busy bool) bool {
	return r.is(c) && (busy || !slices.Contains(r.When, Parallel))
}

// is reports whether the conditions on the call itself hold.
func (r *Rule) is(c Call) bool {
	for _, w := range r.When {
		switch w {
		case Bulk:
			if c.Items == 0 {
				return false
			}
		case Single:
			if c.Items > 0 {
				return false
			}
		case Bound:
			if !c.Bound {
				return false
			}
		case Unbound:
			if c.Bound {
				return false
			}
		case Parallel: // not the call's own: see allows
		}
	}
	return true
}

// due counts one more and reports whether the rule applies to it.
func (c *counter) due(t Times, draw *rand.Rand) bool {
	c.asked++
	n := c.asked - max(t.From, 1)
	switch {
	case n < 0, n%max(t.Every, 1) != 0, t.Times > 0 && c.applied >= t.Times:
		return false
	case t.Probability > 0 && t.Probability < 1 && draw.Float64() >= t.Probability:
		return false
	}
	c.applied++
	return true
}

func (t *Turn) slow(r *Rule, c Call, draw *rand.Rand) {
	if r.Latency != nil {
		t.Wait = r.Latency.Sample(draw)
	}
	if r.PerItem == nil {
		return
	}
	if c.Method == http.MethodGet {
		t.Row, t.Rows, t.draw = *r.PerItem, true, draw
		return
	}
	for range min(max(c.Items, 1), 10000) {
		t.Wait = min(t.Wait+r.PerItem.Sample(draw), longest)
	}
}

// After is how long to wait after the effect, for an answer of so many rows.
func (t *Turn) After(rows int) time.Duration {
	if !t.Rows || rows <= 0 {
		return 0
	}
	// One draw for all: a list of 100,000 is not worth as many.
	return min(time.Duration(rows)*t.Row.Sample(t.draw), longest)
}

// fail takes the step of r's script for the n-th call. It uses the step even if another rule's
// fault is shown: the effect of a rule depends only on its own calls, not on other dials.
func (t *Turn) fail(r *Rule, n int) {
	if len(r.Script) == 0 || n >= len(r.Script) && !r.Repeat {
		return
	}
	if step := &r.Script[n%len(r.Script)]; !step.OK {
		t.Fault, t.Rule = &step.Fault, r.Name
	}
}

// End records that the call is over.
func (t *Turn) End() {
	t.panel.mu.Lock()
	defer t.panel.mu.Unlock()
	if t.panel.set != t.set { // the dials were replaced meanwhile
		return
	}
	for _, i := range t.mine {
		t.panel.calls[i].running--
	}
}

// Active returns how long a bound port takes to become ACTIVE; false: never.
func (p *Panel) Active() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.set.Ports {
		draw := p.draw(2, i, p.ports[i].asked)
		if p.ports[i].due(r.Times, draw) {
			return r.After.Sample(draw), !r.Never
		}
	}
	return 0, true
}

// Settle returns how long a change of a load balancer's part takes, and its result.
func (p *Panel) Settle(kind, action string) (time.Duration, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.set.Balances {
		if r.Kind != "" && r.Kind != kind || r.Action != "" && r.Action != action {
			continue
		}
		draw := p.draw(3, i, p.balances[i].asked)
		if p.balances[i].due(r.Times, draw) {
			return r.Delay.Sample(draw), r.Outcome
		}
	}
	return 0, ""
}

// draw is the random source for the n-th call of a rule. Each rule has its own, so that other rules
// do not change it.
func (p *Panel) draw(table, rule, n int) *rand.Rand {
	return rand.New(rand.NewPCG(p.seed, uint64(table)<<60|uint64(rule)<<40|uint64(n)))
}

// Idle reports whether there is no dial for calls, so that the caller need not examine them.
func (p *Panel) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.set.Calls) == 0
}
