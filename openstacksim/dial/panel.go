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

// counter is how often a rule was asked, and how many calls that it fits are in
// progress.
type counter struct{ asked, applied, running int }

// NewPanel returns a Panel with nothing dialled.
func NewPanel(seed uint64) *Panel {
	p := &Panel{seed: seed}
	p.Set(&Set{})
	return p
}

// Set dials s instead of what there was; counting begins anew.
func (p *Panel) Set(s *Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = s
	p.calls = make([]counter, len(s.Calls))
	p.ports = make([]counter, len(s.Ports))
	p.balances = make([]counter, len(s.Balances))
}

// Current is what is dialled.
func (p *Panel) Current() *Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set
}

// Turn is what happens to one call.
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

// Begin says what happens to c. Turn.End is to be called when the call is over.
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

// allows says whether r's conditions hold.
func (r *Rule) allows(c Call, busy bool) bool {
	return r.is(c) && (busy || !slices.Contains(r.When, Parallel))
}

// is says whether the conditions hold that are the call's own.
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

// due counts one more and says whether the rule applies to it.
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

// fail takes the step of r's script that is the n-th call's. A step is used up
// even if another rule's fault is shown: what a rule does follows from the calls
// that it is for, whatever else is dialled.
func (t *Turn) fail(r *Rule, n int) {
	if len(r.Script) == 0 || n >= len(r.Script) && !r.Repeat {
		return
	}
	if step := &r.Script[n%len(r.Script)]; !step.OK {
		t.Fault, t.Rule = &step.Fault, r.Name
	}
}

// End says that the call is over.
func (t *Turn) End() {
	t.panel.mu.Lock()
	defer t.panel.mu.Unlock()
	if t.panel.set != t.set { // dialled anew meanwhile
		return
	}
	for _, i := range t.mine {
		t.panel.calls[i].running--
	}
}

// Active says how long a bound port takes to become ACTIVE; false: never.
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

// Settle says how long a change of a load balancer's part takes, and how it ends.
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

// draw is the randomness of the n-th time that a rule is asked. It is the rule's
// own, so that what other rules do in between does not change it.
func (p *Panel) draw(table, rule, n int) *rand.Rand {
	return rand.New(rand.NewPCG(p.seed, uint64(table)<<60|uint64(rule)<<40|uint64(n)))
}

// Idle says whether nothing at all is dialled for calls, so that a caller may
// spare itself looking at them.
func (p *Panel) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.set.Calls) == 0
}
