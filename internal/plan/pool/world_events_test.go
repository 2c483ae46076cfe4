// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// nothing is what an event says that did not happen.
const nothing = "nothing"

// step lets one thing happen.
func (w *world) step() {
	events := []func() string{
		w.podComes, w.podComes, w.podGoes, w.podFinishes, w.podReplaced, w.daemon, w.daemon,
		w.sends, w.sends, w.sdnAnswers, w.sdnAnswers, w.sdnRefuses, w.applied, w.applied, w.deleted, w.time,
		w.deletedByHand, w.recall, w.lost, w.ahead, w.regroup, w.edited, w.seesPods, w.seesPorts, w.collects,
	}
	rare := []func() string{w.restarts, w.relevel, w.refill, w.isScarce, w.nodeFlips}
	if w.r.IntN(8) == 0 {
		events = rare
	}
	w.log = append(w.log, events[w.r.IntN(len(events))]())
}

func (w *world) podComes() string {
	uid := claim(w.id("uid"))
	w.pods[uid] = &pod{name: w.id("pod"), created: w.now}
	if w.r.IntN(3) == 0 {
		w.pods[uid].groups = "own"
	}
	w.allowed += 2 // one for it, and one in the place of that it took
	return "comes " + string(uid.UID)
}

func (w *world) podGoes() string {
	uid := some(w.r, w.pods)
	w.end(uid)
	delete(w.pods, uid)
	return "goes " + string(uid.UID)
}

func (w *world) end(uid v1.Claim) {
	if p := w.pods[uid]; p != nil && !p.finished {
		w.died[uid] = w.now
	}
}

func (w *world) podFinishes() string {
	uid := some(w.r, w.pods)
	w.end(uid)
	if !uid.IsZero() {
		w.pods[uid].finished = true
	}
	return "finishes " + string(uid.UID)
}

func (w *world) podReplaced() string { // same name, other UID
	uid := some(w.r, w.pods)
	if uid.IsZero() {
		return nothing
	}
	next := claim(w.id("uid"))
	w.pods[next] = &pod{name: w.pods[uid].name, created: w.now}
	w.end(uid)
	delete(w.pods, uid)
	w.allowed += 2
	return fmt.Sprintf("replaced %s by %s", uid.UID, next.UID)
}

func (w *world) regroup() string { // the pod's labels change
	uid := some(w.r, w.pods)
	if uid.IsZero() {
		return nothing
	}
	w.pods[uid].groups = []string{"", "own", "other"}[w.r.IntN(3)]
	return fmt.Sprintf("regrouped %s: %q", uid.UID, w.pods[uid].groups)
}

func (w *world) edited() string { // somebody writes other groups into an object
	name := some(w.r, w.ports)
	if name == "" {
		return nothing
	}
	p := w.ports[name]
	p.spec, p.settled = "edited", false
	p.version++
	return "edited " + name
}

func (w *world) seesPods() string  { w.lookAtPods(); return "sees pods" }
func (w *world) seesPorts() string { w.lookAtPorts(); return "sees ports" }

func (w *world) daemon() string { // plugs for the living, unplugs for the others
	for _, name := range slices.Sorted(maps.Keys(w.ports)) {
		p := w.ports[name]
		holder := w.pods[p.Pod]
		live := holder != nil && !holder.finished
		if !p.Pod.IsZero() && p.Attached != live {
			p.Attached = live
			p.version++
			return fmt.Sprintf("plugged %s: %v", name, live)
		}
	}
	return nothing
}

func (w *world) sends() string { // a request of the demand goes to the SDN
	n := min(w.demand.Waiting, 1+w.r.IntN(w.levels.Batch))
	w.demand.Waiting -= n
	if n == 0 {
		n = min(w.demand.Spare, w.levels.Batch)
		w.demand.Spare -= n
	}
	if n == 0 || w.now.Before(w.hold) {
		return nothing
	}
	w.requests = append(w.requests, n)
	w.asked += n
	return fmt.Sprintf("asks for %d", n)
}

func (w *world) sdnAnswers() string {
	if len(w.lookups) > 0 {
		return w.answerLookup()
	}
	if len(w.requests) == 0 {
		return nothing
	}
	n := w.requests[0]
	w.requests = w.requests[1:]
	got := n
	if w.r.IntN(4) == 0 { // in part
		got = w.r.IntN(n + 1)
		w.hold = w.now.Add(time.Duration(w.r.IntN(30)) * time.Second)
		w.allowed += n - got
	}
	for range got {
		w.portMade()
	}
	return fmt.Sprintf("made %d of %d", got, n)
}

func (w *world) answerLookup() string {
	id := some(w.r, w.lookups)
	uid := w.lookups[id]
	delete(w.lookups, id)
	if _, ok := w.inSDN[id]; ok {
		w.unrecorded = append(w.unrecorded, pool.Unrecorded{ID: id, For: uid})
		return "found " + id
	}
	if p := w.pods[uid]; p != nil {
		p.had = ""
	}
	w.allowed++
	return "not found " + id
}

func (w *world) sdnRefuses() string {
	if len(w.requests) == 0 {
		return nothing
	}
	w.allowed += w.requests[0]
	w.requests = w.requests[1:]
	w.hold = w.now.Add(time.Duration(w.r.IntN(60)) * time.Second)
	return "refused"
}

func (w *world) applied() string { // the port reconciler
	for _, name := range slices.Sorted(maps.Keys(w.ports)) {
		p := w.ports[name]
		if p.settled || p.Failed || p.Deleting {
			continue
		}
		p.version++
		if p.Failed = w.r.IntN(10) == 0; p.Failed {
			w.allowed++
			return "not applied " + name
		}
		p.settled, w.inSDN[name] = true, p.spec
		return "applied " + name
	}
	return nothing
}

func (w *world) deleted() string { // the port reconciler, too
	for _, name := range slices.Sorted(maps.Keys(w.ports)) {
		p := w.ports[name]
		if !p.Deleting {
			continue
		}
		w.recall()
		delete(w.ports, name)
		if holder := w.pods[p.Pod]; holder != nil && !holder.finished {
			holder.had = name // stays in the SDN, to be put back
		} else {
			delete(w.inSDN, name)
		}
		return "deleted " + name
	}
	return nothing
}

func (w *world) deletedByHand() string {
	name := some(w.r, w.ports)
	if name == "" || w.ports[name].Deleting {
		return nothing
	}
	w.ports[name].Deleting = true
	w.ports[name].version++
	w.allowed++
	return "deleted by hand " + name
}

func (w *world) lost() string { // removed in the SDN behind everybody's back
	name := some(w.r, w.ports)
	if _, ok := w.inSDN[name]; !ok {
		return nothing
	}
	delete(w.inSDN, name)
	w.ports[name].Failed, w.ports[name].Lost = true, true
	w.ports[name].version++
	w.allowed++
	return "lost " + name
}

func (w *world) ahead() string { // a free port was given back by a clock that is ahead
	name := some(w.r, w.ports)
	if p := w.ports[name]; p == nil || !p.Pod.IsZero() || p.Rested {
		return nothing
	}
	w.ports[name].Since = w.now.Add(time.Hour)
	w.ports[name].version++
	return "given back in an hour: " + name
}

func (w *world) time() string {
	w.now = w.now.Add(time.Duration(w.r.IntN(40)) * time.Second)
	return "time"
}

// recall forgets ports that arrived and have an object, as the caller does
// once it has noticed.
func (w *world) recall() string {
	w.unrecorded = slices.DeleteFunc(w.unrecorded, func(a pool.Unrecorded) bool { return w.ports[a.ID] != nil })
	return "recalled"
}

// restarts ends the controller and begins another: requests may be carried out,
// and nobody remembers them.
func (w *world) restarts() string {
	for _, n := range w.requests {
		for range w.r.IntN(n + 1) {
			w.inSDN[w.id("port")] = ""
		}
		w.allowed += n
	}
	w.allowed += len(w.unrecorded)
	w.requests, w.unrecorded, w.demand, w.hold = nil, nil, pool.Demand{}, time.Time{}
	clear(w.lookups)
	clear(w.strays)
	w.look()
	return "restarts"
}

// collects finds ports that nobody knows of, and gives to the pool what it has
// found before.
func (w *world) collects() string { return w.collect(time.Minute) }

func (w *world) collect(grace time.Duration) string {
	known := map[string]bool{}
	for _, a := range w.unrecorded {
		known[a.ID] = true
	}
	for _, p := range w.pods {
		known[p.had] = known[p.had] || !p.finished
	}
	strays, did := map[string]time.Time{}, nothing
	for _, id := range slices.Sorted(maps.Keys(w.inSDN)) {
		since, found := w.strays[id]
		switch _, asked := w.lookups[id]; {
		case w.ports[id] != nil || known[id] || asked:
		case !found:
			strays[id] = w.now
			did = "found a stray"
		case w.now.Before(since.Add(grace)):
			strays[id] = since
		case w.inSDN[id] != "": // not the pool's groups
			delete(w.inSDN, id)
			did = "collected " + id
		default:
			w.unrecorded = append(w.unrecorded, pool.Unrecorded{ID: id})
			did = "gave back " + id
		}
	}
	w.strays = strays
	return did
}

func (w *world) relevel() string { // somebody edits the settings
	w.levels = pool.Levels{
		Min: w.r.IntN(4), Fill: w.levels.Fill, Batch: 1 + w.r.IntN(5),
		TTL: time.Duration(w.r.IntN(3)) * time.Minute, Cooldown: time.Duration(w.r.IntN(3)) * 10 * time.Second,
	}
	if w.r.IntN(2) == 0 {
		w.levels.Max = max(1, w.levels.Min-1+w.r.IntN(4))
	}
	return fmt.Sprintf("levels %+v", w.levels)
}

func (w *world) refill() string {
	w.levels.Fill, w.filled = w.r.IntN(6), false
	return fmt.Sprintf("fill %d", w.levels.Fill)
}

func (w *world) isScarce() string {
	w.scarce = !w.scarce
	return fmt.Sprintf("scarce: %v", w.scarce)
}

func (w *world) nodeFlips() string {
	if w.r.IntN(4) > 0 {
		return nothing
	}
	w.nodeGone = !w.nodeGone
	return fmt.Sprintf("node gone: %v", w.nodeGone)
}
