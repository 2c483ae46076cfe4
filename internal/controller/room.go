// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr-go/kuryr/internal/pool"
)

// survey tells the plan of v what is known of the room that there is.
func (r *pools) survey(v *view) standing {
	if v.key == nil {
		return standing{}
	}
	s := r.memory.capacity.standing(v.key)
	v.state.Scarce = s.scarce != nil || s.full != nil
	if s.full != nil && v.state.Hold.Before(s.until) {
		v.state.Hold = s.until
	}
	r.memory.with(v.req, func(p *poolMemory) { v.state.Squeeze = p.squeeze })
	return s
}

// note remembers of a plan what other pools and the metrics want to know, and
// what pods wait for if that is room, whoever was told that there is none.
func (r *pools) note(v *view, a *pool.Actions, s standing) {
	now := r.Now()
	given := givenTo(a)
	r.memory.with(v.req, func(p *poolMemory) {
		p.key = v.key
		p.free = max(0, a.Levels.Available-len(a.Bind)-a.Squeezed)
		p.lacking = max(0, len(v.state.Pods)-len(given)-v.state.InFlight)
		if p.lacking > 0 && s.full != nil && (p.failure == nil || p.hold.Before(s.until)) {
			p.failure, p.hold = s.full, s.until
		}
		// Nobody asks any more: what went wrong is no matter now.
		if p.failure != nil && p.lacking == 0 && p.inFlight == 0 && a.Want == (pool.Wish{}) && !now.Before(p.hold) {
			p.failure, p.failures = nil, 0
			delete(p.toldPool, toldFailure)
		}
		v.failure = p.failure
		p.cast(v, given, now)
	})
	if s.full != nil {
		for _, idle := range r.memory.squeeze(s.full.scope) {
			r.wake.add(idle)
		}
	}
}

// givenTo returns the pods that get a port by a plan.
func givenTo(a *pool.Actions) map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, list := range [][]pool.Binding{a.Bind, a.Adopt} {
		for _, b := range list {
			if b.Pod != nil {
				out[b.Pod.UID] = true
			}
		}
	}
	return out
}

// cast counts pods that find a port and pods that do not, each once.
func (p *poolMemory) cast(v *view, given map[types.UID]bool, now time.Time) {
	waiting := map[types.UID]bool{}
	for i := range v.state.Pods {
		uid := v.state.Pods[i].Ref.UID
		waiting[uid] = true
		was := p.lot[uid]
		switch {
		case was == served:
		case was == missed && given[uid]:
			poolWaitSeconds.Observe(now.Sub(p.seen[uid]).Seconds())
			p.lot[uid] = served
		case was == missed:
		case given[uid]:
			poolHits.Inc()
			p.lot[uid] = served
		default:
			poolMisses.Inc()
			p.lot[uid] = missed
		}
	}
	keep(p.lot, func(uid types.UID) bool { return waiting[uid] })
}

// squeezed notes that a plan has given up what others asked for, as far as there
// was any.
func (r *pools) squeezed(v *view, a *pool.Actions) {
	if v.state.Squeeze == 0 {
		return
	}
	r.memory.with(v.req, func(p *poolMemory) {
		p.squeeze = max(0, p.squeeze-v.state.Squeeze)
		r.memory.capacity.expect(p.squeezed, a.Squeezed-v.state.Squeeze)
	})
}

// next returns when to plan again for the sake of room, zero for never: when it
// is to be looked for anew, and when what went wrong may be forgotten.
func (s *standing) next(v *view, now time.Time) time.Time {
	var at time.Time
	if s.scarce != nil {
		at = s.again
	}
	if v.failure != nil && v.state.Hold.After(now) {
		at = earlier(at, v.state.Hold)
	}
	return at
}
