// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
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
		p.turnedAway(v, given)
	})
	if s.full != nil {
		for _, idle := range r.memory.squeeze(s.full.Scope) {
			r.wake.Add(idle)
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

// turnedAway counts pods that a plan has no port for, each once.
func (p *poolMemory) turnedAway(v *view, given map[types.UID]bool) {
	waiting := map[types.UID]bool{}
	for i := range v.state.Pods {
		uid := v.state.Pods[i].Ref.UID
		waiting[uid] = true
		if p.lot[uid] == 0 && !given[uid] {
			poolMisses.Inc()
			p.lot[uid] = missed
		}
	}
	keep(p.lot, func(uid types.UID) bool { return waiting[uid] })
}

// serve counts a pod that has got its port.
func (p *poolMemory) serve(uid types.UID, now time.Time) {
	switch p.lot[uid] {
	case missed:
		poolWaitSeconds.Observe(now.Sub(p.seen[uid]).Seconds())
	case served:
	default:
		poolHits.Inc()
	}
	p.lot[uid] = served
}

// score counts the pods that were given a port by a plan that has been carried
// out, as far as that is known. Of others it is when the API server was asked.
func (r *pools) score(v *view, a *pool.Actions) {
	now := r.Now()
	r.memory.with(v.req, func(p *poolMemory) {
		for _, b := range slices.Concat(a.Bind, a.Adopt) {
			if w, written := p.writes[b.Port]; b.Pod != nil && written && !w.unsure && w.pod == b.Pod.UID {
				p.serve(b.Pod.UID, now)
			}
		}
	})
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
		at = outcome.Earlier(at, v.state.Hold)
	}
	return at
}

// portFreed notes that a port of a pool is gone (of one that is not known if r
// is zero), and lets the pool that has lacked room longest try again, if it may
// be the room that it lacks: room for one port lets one in, not all.
func (m *memory) portFreed(r pool.Ref) {
	m.mu.Lock()
	var key *v1.PoolKey
	if p := m.pools[r]; p != nil {
		key = p.key
	}
	m.capacity.freed(key)
	var next pool.Ref
	var chosen *poolMemory
	for _, r := range slices.SortedFunc(maps.Keys(m.pools), pool.Ref.Compare) {
		p := m.pools[r]
		if lacksRoom(p.failure, key) && m.now().Before(p.hold) && (chosen == nil || p.hold.Before(chosen.hold)) {
			next, chosen = r, p
		}
	}
	if chosen != nil {
		chosen.hold = time.Time{}
	}
	m.mu.Unlock()
	if chosen != nil {
		m.freed(next)
	}
}

// lacksRoom reports whether what a port of this key has freed, or any port if it
// is nil, may be what err lacks.
func lacksRoom(err error, key *v1.PoolKey) bool {
	if !errors.Is(err, sdn.ErrQuota) {
		return false
	}
	var full *sdn.QuotaError
	return key == nil || !errors.As(err, &full) || slices.Contains(scopes(key), full.Scope)
}

// waiting counts the pods of all pools that wait for room in one of these scopes.
func (m *memory) waiting(in []sdn.Scope) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		if p.takes(in) {
			n += p.lacking
		}
	}
	return n
}

// takes reports whether the pool's ports take room of one of these scopes.
func (p *poolMemory) takes(in []sdn.Scope) bool {
	return p.key != nil && slices.ContainsFunc(scopes(p.key), func(s sdn.Scope) bool { return slices.Contains(in, s) })
}

// squeeze has pools without waiting pods give up free ports, as many as pods
// wait for in a full scope, and returns these pools. Those with most give first.
func (m *memory) squeeze(s sdn.Scope) (idle []pool.Ref) {
	in := []sdn.Scope{s}
	n := m.capacity.missing(s, m.waiting(in))
	if n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, p := range m.pools {
		if p.takes(in) && p.lacking == 0 && p.free > p.squeeze {
			idle = append(idle, r)
		}
	}
	slices.SortFunc(idle, func(a, b pool.Ref) int {
		return cmp.Or(cmp.Compare(m.pools[b].free, m.pools[a].free), a.Compare(b))
	})
	for i, r := range idle {
		p := m.pools[r]
		part := min(n, p.free-p.squeeze)
		p.squeeze, p.squeezed, n = p.squeeze+part, s, n-part
		m.capacity.expect(s, part)
		if n == 0 {
			return idle[:i+1]
		}
	}
	return idle
}
