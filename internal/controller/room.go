// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/supply"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// survey tells the plan of v what is known of the room that there is.
func (r *pools) survey(v *view) supply.Standing {
	if v.key == nil {
		return supply.Standing{}
	}
	s, squeeze := r.supply.Survey(v.req, v.key)
	v.state.Scarce = s.Scarce != nil || s.Full != nil
	if s.Full != nil && v.state.Hold.Before(s.Until) {
		v.state.Hold = s.Until
	}
	v.state.Squeeze = squeeze
	return s
}

// note remembers of a plan what other pools and the metrics want to know, and
// what pods wait for if that is room, whoever was told that there is none.
func (r *pools) note(v *view, a *pool.Actions, s supply.Standing) {
	given := givenTo(a)
	v.failure, v.episode = r.supply.Settle(v.req, supply.Planned{
		Key: v.key, Free: max(0, a.Levels.Available-len(a.Bind)-a.Squeezed),
		Lacks: len(v.state.Pods) - len(given) - v.state.InFlight, Wishes: a.Want != (pool.Wish{}), Room: s,
	})
	r.memory.with(v.req, func(p *poolMemory) { p.turnedAway(v, given) })
	if s.Full != nil {
		for _, idle := range r.supply.Squeeze(s.Full.Scope) {
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
	if v.state.Squeeze > 0 {
		r.supply.GaveUp(v.req, v.state.Squeeze, a.Squeezed)
	}
}

// nextLook returns when to plan again for the sake of room, zero for never: when it
// is to be looked for anew, and when what went wrong may be forgotten.
func nextLook(s supply.Standing, v *view, now time.Time) time.Time {
	var at time.Time
	if s.Scarce != nil {
		at = s.Again
	}
	if v.failure != nil && v.state.Hold.After(now) {
		at = outcome.Earlier(at, v.state.Hold)
	}
	return at
}
