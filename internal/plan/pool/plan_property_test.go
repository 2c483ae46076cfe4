// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// judge checks a plan against the state that it was made of.
func (w *world) judge(s pool.State, a pool.Actions) {
	w.t.Helper()
	have, free, ready := map[v1.Claim]bool{}, 0, 0
	for _, p := range s.Ports {
		have[p.Pod] = have[p.Pod] || p.Live && !p.Deleting
		if p.Pod.IsZero() && !p.Deleting && !p.Failed {
			free++
			if p.Ready && !p.Drifted {
				ready++
			}
		}
	}
	waiting := 0
	for _, p := range s.Pods {
		if !have[p.Ref.Claim()] {
			waiting++
		}
	}
	switch floor := w.floorOf(s.Levels); {
	case a.Want != (pool.Demand{}) && w.now.Before(s.Hold):
		w.fail("asks for %+v while told to hold", a.Want)
	case a.Want.Waiting < 0 || a.Want.Spare < 0 || a.Want.Waiting > waiting || a.Want.Spare > floor:
		w.fail("asks for %+v with %d pods waiting and a floor of %d", a.Want, waiting, floor)
	case s.Scarce && a.Want.Spare > 0:
		w.fail("asks for %+v while room is scarce", a.Want)
	case a.Filled && (s.Levels.Fill == 0 || ready-len(a.Bind) < min(s.Levels.Fill, floor)):
		w.fail("is filled with %d ready, %d bound", ready, len(a.Bind))
	case s.NodeGone && a.Want != (pool.Demand{}):
		w.fail("asks for ports for a node that is gone")
	}
	if !s.NodeGone {
		w.judgeFree(s, a, free-len(a.Bind), waiting)
	}
}

// judgeFree checks that a plan deletes no more free ports than it may, and asks
// for no more than are lacking: there were free ones, less those that pods get.
func (w *world) judgeFree(s pool.State, a pool.Actions, free, waiting int) {
	w.t.Helper()
	kept, soon, left := free+len(a.Recycle), 0, waiting-len(a.Bind)
	for _, b := range a.Adopt {
		if b.Pod != nil {
			left--
		} else {
			kept++
			soon++
		}
	}
	for _, p := range s.Ports {
		if p.Pod.IsZero() && slices.Contains(a.Recycle, p.Name) {
			kept-- // it was free before
		}
		switch fit := p.Rested || !w.now.Before(p.Since.Add(s.Levels.Cooldown)); {
		case !p.Pod.IsZero() || p.Failed || p.Deleting:
		case slices.Contains(a.Delete, p.Name):
			kept--
		case fit && (!p.Ready || p.Drifted):
			soon++
		}
	}
	if want := a.Want.Waiting; want > 0 && want+s.InFlight+soon > left {
		w.fail("asks for %d with %d pods left, %d ports in flight and %d about to be fit", want, left, s.InFlight, soon)
	}
	if want := a.Want.Waiting + a.Want.Spare; a.Want.Spare > 0 && want+s.InFlight+kept > left+w.floorOf(s.Levels) {
		w.fail("asks for %+v with %d in flight, %d free, and %d pods left", a.Want, s.InFlight, kept, left)
	}
	if floor := w.floorOf(s.Levels); kept < min(free, floor) || kept != a.Kept {
		w.fail("keeps %d of %d free ports with a floor of %d, says %d", kept, free, floor, a.Kept)
	}
}

// invariants hold after every plan of state s. Of ports that were not as planned
// with, the next plan has to see to it.
func (w *world) invariants(s pool.State, conflicts int) {
	w.t.Helper()
	holders := map[v1.Claim]string{}
	free := 0
	for name, p := range w.ports {
		switch {
		case p.Deleting:
		case p.Pod.IsZero():
			free++
		case holders[p.Pod] != "":
			w.fail("pod %s has %s and %s", p.Pod, holders[p.Pod], name)
		default:
			holders[p.Pod] = name
		}
	}
	waiting := 0
	for _, p := range s.Pods {
		if holders[p.Ref.Claim()] == "" {
			waiting++
		}
	}
	if most := s.Levels.Max; most > 0 && conflicts == 0 && free > max(most, waiting) {
		w.fail("keeps %d ports free with max %d and %d pods waiting", free, most, waiting)
	}
	if w.asked > w.allowed {
		w.fail("has asked for %d ports, where %d were enough", w.asked, w.allowed)
	}
}

// settle lets all that is under way end well until nothing moves.
func (w *world) settle() {
	w.scarce, w.nodeGone = false, false
	quiet := 0
	for range 100_000 {
		w.look()
		a := w.plan()
		moved := a.Writes() || a.Filled || a.Want != (pool.Demand{}) || len(a.Restore)+len(a.Discard) > 0
		w.hold = time.Time{}
		for _, event := range []func() string{w.daemon, w.sends, w.wellAnswered, w.wellApplied, w.deleted, w.wellCollected} {
			did := event()
			w.log = append(w.log, did)
			moved = moved || did != nothing
		}
		if moved {
			quiet = 0
			continue
		}
		if quiet++; quiet > 1 && a.Wake.IsZero() {
			return
		}
		if !a.Wake.IsZero() {
			w.now = a.Wake
		}
	}
	w.fail("never comes to rest")
}

func (w *world) wellAnswered() string {
	if len(w.lookups) > 0 {
		return w.answerLookup()
	}
	if len(w.requests) == 0 {
		return nothing
	}
	n := w.requests[0]
	w.requests = w.requests[1:]
	for range n {
		w.portMade()
	}
	return fmt.Sprintf("made %d", n)
}

func (w *world) wellApplied() string {
	for _, p := range w.ports {
		if !p.settled && !p.Lost && !p.Deleting {
			p.settled, p.Failed, w.inSDN[p.Name] = true, false, p.spec
			p.version++
			return "applied"
		}
	}
	return nothing
}

func (w *world) wellCollected() string {
	did := w.collect(time.Minute)
	if len(w.strays) > 0 {
		w.now = w.now.Add(time.Minute)
	}
	return did
}

// rest checks a world at rest: a port a living pod with its groups, as many free
// ones as there are to be, and the SDN has these and no others.
func (w *world) rest() {
	w.t.Helper()
	w.recall()
	bound, free, lost := 0, 0, 0
	for _, p := range w.ports {
		if p.Lost {
			lost++
		}
		holder := w.pods[p.Pod]
		switch {
		case p.Lost && !p.Attached:
			w.fail("port %s, which the SDN has lost, is kept", p.Name)
		case p.Failed && holder == nil:
			w.fail("failed port %s is kept", p.Name)
		case p.Pod.IsZero():
			free++
		default:
			bound++
		}
		if want := w.target(*p); p.spec != want || w.inSDN[p.Name] != want && !p.Lost {
			w.fail("port %s has groups %q and is to have %q, want %q", p.Name, w.inSDN[p.Name], p.spec, want)
		}
	}
	living := 0
	for _, p := range w.pods {
		if !p.finished {
			living++
		}
	}
	if floor := w.floorOf(w.levels); bound != living || free != floor || w.levels.Fill > 0 {
		w.fail("at rest: %d bound of %d pods, %d free of %d, to be filled to %d", bound, living, free, floor, w.levels.Fill)
	}
	if len(w.inSDN) != len(w.ports)-lost || len(w.unrecorded) > 0 {
		w.fail("at rest: %d ports in the SDN, %d objects, %d unrecorded", len(w.inSDN), len(w.ports), len(w.unrecorded))
	}
	w.silent()
}

// silent checks that a world at rest stays so: what a plan makes no other takes
// away, and nothing wakes it.
func (w *world) silent() {
	w.t.Helper()
	for range 5 {
		a := w.plan()
		a.Levels = pool.Count{}
		if a.Writes() || a.Want != (pool.Demand{}) || len(a.Restore)+len(a.Discard) > 0 || !a.Wake.IsZero() {
			w.fail("at rest: %+v", a)
		}
		w.now = w.now.Add(7 * time.Minute)
	}
}

// TestPlanHoldsItsPromises lets random things happen to a pool and checks
// invariant 1 and the levels after each plan, and the end state.
func TestPlanHoldsItsPromises(t *testing.T) {
	t.Parallel()
	runs := 600
	if testing.Short() {
		runs = 50
	}
	for seed := range runs {
		w := newWorld(t, uint64(seed))
		for range w.r.IntN(300) {
			w.step()
			if w.r.IntN(3) > 0 {
				w.plan()
			}
		}
		w.settle()
		w.rest()
		for len(w.pods) > 0 {
			w.podGoes()
		}
		w.levels.Min = 0
		w.settle()
		w.rest()
	}
}

// TestPlanEmptiesAPoolWithoutNode does the same with a node that goes.
func TestPlanEmptiesAPoolWithoutNode(t *testing.T) {
	t.Parallel()
	for seed := range 100 {
		w := newWorld(t, uint64(seed))
		for range w.r.IntN(200) {
			w.step()
			w.plan()
		}
		w.settle()
		w.nodeGone = true
		for len(w.pods) > 0 {
			w.podGoes()
			w.step()
			w.nodeGone = true
			w.plan()
		}
		for range 1000 {
			w.look()
			w.plan()
			w.deleted()
			w.wellAnswered()
			w.wellCollected()
		}
		if len(w.ports)+len(w.inSDN) > 0 {
			w.fail("%d objects and %d ports outlive their node", len(w.ports), len(w.inSDN))
		}
	}
}

// BenchmarkPlan plans for pools of the usual size and for very large ones.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct{ bound, free, waiting int }{{100, 100, 100}, {0, 5000, 0}, {4000, 1000, 1000}, {2000, 0, 2000}} {
		b.Run(fmt.Sprintf("%d bound, %d free, %d waiting", size.bound, size.free, size.waiting), func(b *testing.B) {
			s := pool.State{Levels: pool.Levels{Min: size.free, Batch: 10, TTL: time.Hour, Cooldown: time.Second}}
			for i := range size.bound {
				uid := claim(fmt.Sprint("bound", i))
				s.Ports = append(s.Ports, pool.Port{Name: fmt.Sprint("port", i), Pod: uid, Live: true, Attached: true})
				s.Pods = append(s.Pods, pool.Pod{Ref: v1.PodReference{Name: fmt.Sprint("pod", i), UID: uid.UID}})
			}
			for i := range size.free {
				s.Ports = append(s.Ports, pool.Port{Name: fmt.Sprint("free", i), Ready: true, Since: noon.Add(-time.Duration(i) * time.Second)})
			}
			for i := range size.waiting {
				s.Pods = append(s.Pods, pool.Pod{Ref: v1.PodReference{Name: fmt.Sprint("new", i), UID: types.UID(fmt.Sprint("new", i))}})
			}
			for b.Loop() {
				pool.Plan(s, noon)
			}
		})
	}
}
