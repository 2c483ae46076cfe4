// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/pool"
)

// world is a dumb model of all that is around a plan: pods, a node's daemon
// that plugs and unplugs late, an SDN that makes ports late or not at all.
type world struct {
	t      *testing.T
	r      *rand.Rand
	now    time.Time
	levels pool.Levels

	pods  map[types.UID]*pod
	ports map[string]*pool.Port
	// arrived ports, requests under way by size, ports of the SDN in all.
	arrived  []pool.Arrival
	requests []int
	inSDN    map[string]bool
	dropped  map[string]bool // left in the SDN as their object was deleted by hand under a living pod
	lookups  map[string]types.UID
	hold     time.Time
	nodeGone bool
	serial   int
	log      []string
}

type pod struct {
	name     string
	finished bool
	had      string
}

func (w *world) id(kind string) string { w.serial++; return fmt.Sprint(kind, w.serial) }

func (w *world) state() pool.State {
	s := pool.State{Levels: w.levels, NodeGone: w.nodeGone, Hold: w.hold, Arrived: slices.Clone(w.arrived), Restoring: map[string]bool{}}
	for uid, p := range w.pods {
		if !p.finished {
			s.Pods = append(s.Pods, pool.Pod{Ref: v1.PodReference{Namespace: "ns", Name: p.name, UID: uid}, Restore: p.had})
		}
	}
	for _, port := range w.ports {
		p := *port
		holder := w.pods[p.Pod]
		p.Live = holder != nil && !holder.finished
		s.Ports = append(s.Ports, p)
	}
	for _, n := range w.requests {
		s.InFlight += n
	}
	for id := range w.lookups {
		s.Restoring[id] = true
	}
	w.r.Shuffle(len(s.Pods), func(i, j int) { s.Pods[i], s.Pods[j] = s.Pods[j], s.Pods[i] })
	w.r.Shuffle(len(s.Ports), func(i, j int) { s.Ports[i], s.Ports[j] = s.Ports[j], s.Ports[i] })
	return s
}

// plan makes a plan, checks that it is one of its state and nothing else, and
// carries it out.
func (w *world) plan() pool.Actions {
	s := w.state()
	a := pool.Plan(s, w.now)
	slices.Reverse(s.Pods)
	slices.Reverse(s.Ports)
	slices.Reverse(s.Arrived)
	if diff := cmp.Diff(a, pool.Plan(s, w.now)); diff != "" {
		w.t.Fatalf("the plan depends on the order of its input:\n%s", diff)
	}
	w.bind(a)
	w.free(a)
	for _, l := range a.Restore {
		w.lookups[l.Port] = l.Pod
	}
	if a.Want != (pool.Wish{}) && w.now.Before(w.hold) {
		w.fail("asks for ports while told to hold")
	}
	if a.Want.Waiting < 0 || a.Want.Spare < 0 {
		w.fail("asks for %+v", a.Want)
	}
	for n := a.Want.Waiting + a.Want.Spare; n > 0; n -= max(1, w.levels.Batch) {
		w.requests = append(w.requests, min(n, max(1, w.levels.Batch)))
	}
	w.invariants()
	return a
}

func (w *world) bind(a pool.Actions) {
	for _, b := range a.Bind {
		port := w.ports[b.Port]
		if port == nil || port.Pod != "" || !port.Ready || port.Deleting || port.Failed || port.Lost {
			w.fail("binds %s, which is not fit: %+v", b.Port, port)
		}
		if !port.Rested && w.now.Before(port.Since.Add(w.levels.Cooldown)) {
			w.fail("binds %s before its cooldown", b.Port)
		}
		port.Pod, port.Rested = b.Pod.UID, false
	}
	for _, b := range a.Adopt {
		if w.ports[b.Port] != nil {
			w.fail("makes a second object of %s", b.Port)
		}
		if w.r.IntN(8) > 0 { // otherwise the answer to the write is lost
			w.takeArrived(b.Port)
		}
		port := &pool.Port{Name: b.Port, Ready: true, Since: w.now, Rested: true}
		if b.Pod != nil {
			port.Pod, port.Rested = b.Pod.UID, false
			w.pods[b.Pod.UID].had = ""
		}
		w.ports[b.Port] = port
	}
}

func (w *world) free(a pool.Actions) {
	for _, name := range a.Recycle {
		port := w.ports[name]
		w.mayRelease(port)
		port.Pod, port.Ready, port.Since = "", false, w.now
	}
	for _, name := range a.Delete {
		port := w.ports[name]
		if port.Pod != "" {
			w.mayRelease(port)
		}
		if port.Deleting {
			w.fail("deletes %s twice", name)
		}
		port.Deleting = true
	}
	for _, id := range a.Discard {
		if w.ports[id] != nil {
			w.fail("discards %s, which has an object: %+v", id, w.ports[id])
		}
		w.takeArrived(id)
		delete(w.inSDN, id)
	}
}

func (w *world) mayRelease(port *pool.Port) {
	holder := w.pods[port.Pod]
	if holder != nil && !holder.finished && !port.Lost {
		w.fail("takes %s from a living pod", port.Name)
	}
	if port.Attached && !w.nodeGone {
		w.fail("takes %s while it is plugged", port.Name)
	}
}

func (w *world) takeArrived(id string) {
	i := slices.IndexFunc(w.arrived, func(a pool.Arrival) bool { return a.ID == id })
	if i < 0 {
		w.fail("uses %s, which has not arrived", id)
	}
	w.arrived = slices.Delete(w.arrived, i, i+1)
}

// recall forgets ports that arrived and have an object, as the caller does
// once it has noticed.
func (w *world) recall() string {
	w.arrived = slices.DeleteFunc(w.arrived, func(a pool.Arrival) bool { return w.ports[a.ID] != nil })
	return "recalled"
}

// invariants hold after every plan.
func (w *world) invariants() {
	holders := map[types.UID]string{}
	free := 0
	for name, p := range w.ports {
		if p.Deleting {
			continue
		}
		if p.Pod == "" {
			free++
		} else if other := holders[p.Pod]; other != "" {
			w.fail("pod %s has %s and %s", p.Pod, other, name)
		}
		holders[p.Pod] = name
	}
	waiting := 0
	for uid, p := range w.pods {
		if !p.finished && holders[uid] == "" {
			waiting++
		}
	}
	if w.levels.Max > 0 && free > max(w.levels.Max, waiting) {
		w.fail("keeps %d ports free with max %d and %d pods waiting", free, w.levels.Max, waiting)
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, l := range w.log {
		if l != "nothing" {
			w.t.Log(l)
		}
	}
	w.t.Fatalf(format, args...)
}

// step lets one thing happen.
func (w *world) step() {
	events := []func() string{w.podComes, w.podComes, w.podGoes, w.podFinishes, w.podReplaced, w.daemon, w.daemon,
		w.sdnAnswers, w.sdnAnswers, w.sdnRefuses, w.applied, w.applied, w.deleted, w.time, w.deletedByHand, w.recall, w.lost}
	w.log = append(w.log, events[w.r.IntN(len(events))]())
}

func (w *world) podComes() string {
	uid := types.UID(w.id("uid"))
	w.pods[uid] = &pod{name: w.id("pod")}
	return "comes " + string(uid)
}

func (w *world) somePod() types.UID {
	for uid := range w.pods {
		return uid
	}
	return ""
}

func (w *world) podGoes() string {
	uid := w.somePod()
	delete(w.pods, uid)
	return "goes " + string(uid)
}

func (w *world) podFinishes() string {
	uid := w.somePod()
	if uid != "" {
		w.pods[uid].finished = true
	}
	return "finishes " + string(uid)
}

func (w *world) podReplaced() string { // same name, other UID
	uid := w.somePod()
	if uid == "" {
		return "nothing"
	}
	next := types.UID(w.id("uid"))
	w.pods[next] = &pod{name: w.pods[uid].name}
	delete(w.pods, uid)
	return fmt.Sprintf("replaced %s by %s", uid, next)
}

func (w *world) daemon() string { // plugs for the living, unplugs for the others
	for name, p := range w.ports {
		holder := w.pods[p.Pod]
		live := holder != nil && !holder.finished
		if p.Pod != "" && p.Attached != live {
			p.Attached = live
			return fmt.Sprintf("plugged %s: %v", name, live)
		}
	}
	return "nothing"
}

func (w *world) sdnAnswers() string {
	for id, uid := range w.lookups {
		delete(w.lookups, id)
		if w.inSDN[id] {
			w.arrived = append(w.arrived, pool.Arrival{ID: id, For: uid})
			return "found " + id
		}
		if p := w.pods[uid]; p != nil {
			p.had = ""
		}
		return "not found " + id
	}
	if len(w.requests) == 0 {
		return "nothing"
	}
	n := w.requests[0]
	w.requests = w.requests[1:]
	got := n
	if w.r.IntN(4) == 0 { // in part
		got = w.r.IntN(n + 1)
		w.hold = w.now.Add(time.Duration(w.r.IntN(30)) * time.Second)
	}
	for range got {
		id := w.id("port")
		w.inSDN[id] = true
		w.arrived = append(w.arrived, pool.Arrival{ID: id})
	}
	return fmt.Sprintf("made %d of %d", got, n)
}

func (w *world) sdnRefuses() string {
	if len(w.requests) == 0 {
		return "nothing"
	}
	w.requests = w.requests[1:]
	w.hold = w.now.Add(time.Duration(w.r.IntN(60)) * time.Second)
	return "refused"
}

func (w *world) applied() string { // the port reconciler
	for name, p := range w.ports {
		if !p.Ready && !p.Failed {
			p.Ready, p.Failed = true, w.r.IntN(10) == 0
			return "applied " + name
		}
	}
	return "nothing"
}

func (w *world) deleted() string { // the port reconciler, too
	for name, p := range w.ports {
		if !p.Deleting {
			continue
		}
		w.recall()
		delete(w.ports, name)
		if holder := w.pods[p.Pod]; holder != nil && !holder.finished {
			holder.had = name // stays in the SDN, to be put back
			w.dropped[name] = true
		} else {
			delete(w.inSDN, name)
		}
		return "deleted " + name
	}
	return "nothing"
}

func (w *world) deletedByHand() string {
	for name, p := range w.ports {
		if w.r.IntN(4) == 0 {
			p.Deleting = true
			return "deleted by hand " + name
		}
	}
	return "nothing"
}

func (w *world) lost() string { // removed in the SDN behind everybody's back
	for name, p := range w.ports {
		if w.r.IntN(4) == 0 && w.inSDN[name] {
			delete(w.inSDN, name)
			p.Failed, p.Lost = true, true
			return "lost " + name
		}
	}
	return "nothing"
}

func (w *world) time() string {
	w.now = w.now.Add(time.Duration(w.r.IntN(40)) * time.Second)
	return "time"
}

// settle lets all that is under way end well until nothing moves.
func (w *world) settle() {
	quiet := 0
	for range 100_000 {
		a := w.plan()
		moved := a.Writes() || a.Want != (pool.Wish{}) || len(a.Restore)+len(a.Discard) > 0
		for _, event := range []func() string{w.daemon, w.wellAnswered, w.wellApplied, w.deleted} {
			moved = event() != "nothing" || moved
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
	w.hold = time.Time{}
	if len(w.lookups) > 0 {
		return w.sdnAnswers()
	}
	if len(w.requests) == 0 {
		return "nothing"
	}
	for range w.requests[0] {
		id := w.id("port")
		w.inSDN[id] = true
		w.arrived = append(w.arrived, pool.Arrival{ID: id})
	}
	w.requests = w.requests[1:]
	return "made"
}

func (w *world) wellApplied() string {
	for _, p := range w.ports {
		if !p.Ready && !p.Lost {
			p.Ready, p.Failed = true, false
			return "applied"
		}
	}
	return "nothing"
}

// collect is the orphan collector: a port to be put back whose pod went before
// it was looked up is its to find, and no other.
func (w *world) collect() {
	for id := range w.dropped {
		if w.ports[id] == nil {
			delete(w.inSDN, id)
		}
	}
}

// rest checks a world at rest: a port a living pod, min free ones, and the SDN
// has these and no others.
func (w *world) rest() {
	w.collect()
	w.recall()
	bound, free, lost := 0, 0, 0
	for _, p := range w.ports {
		if p.Lost {
			lost++
		}
		switch {
		case p.Lost && !p.Attached:
			w.fail("port %s, which the SDN has lost, is kept", p.Name)
		case p.Failed && w.pods[p.Pod] == nil:
			w.fail("failed port %s is kept", p.Name)
		case p.Pod == "":
			free++
		default:
			bound++
		}
	}
	living := 0
	for _, p := range w.pods {
		if !p.finished {
			living++
		}
	}
	if bound != living || free != w.levels.Min {
		w.fail("at rest: %d bound of %d pods, %d free, min %d", bound, living, free, w.levels.Min)
	}
	if len(w.inSDN) != len(w.ports)-lost || len(w.arrived) > 0 {
		w.fail("at rest: %d ports in the SDN, %d objects, %d arrived", len(w.inSDN), len(w.ports), len(w.arrived))
	}
}

// TestPlanHoldsItsPromises lets random things happen to a pool and checks
// invariant 1 and the levels after each plan, and the end state.
func TestPlanHoldsItsPromises(t *testing.T) {
	t.Parallel()
	runs := 400
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
		clear(w.pods)
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
		w.nodeGone = true
		for range w.r.IntN(50) {
			w.step()
			w.plan()
		}
		clear(w.pods)
		w.settle()
		w.collect()
		if len(w.ports)+len(w.inSDN) > 0 {
			w.fail("%d objects and %d ports outlive their node", len(w.ports), len(w.inSDN))
		}
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		t: t, r: r, now: noon,
		pods: map[types.UID]*pod{}, ports: map[string]*pool.Port{}, inSDN: map[string]bool{}, dropped: map[string]bool{}, lookups: map[string]types.UID{},
	}
	w.levels = pool.Levels{
		Min: r.IntN(4), Batch: 1 + r.IntN(5),
		TTL: time.Duration(r.IntN(3)) * time.Minute, Cooldown: time.Duration(r.IntN(3)) * 10 * time.Second,
	}
	if r.IntN(2) == 0 {
		w.levels.Max = max(1, w.levels.Min+r.IntN(3))
	}
	return w
}

// BenchmarkPlan plans for a pool with 2000 bound ports and 2000 waiting pods.
func BenchmarkPlan(b *testing.B) {
	s := pool.State{Levels: pool.Levels{Batch: 10}}
	for i := range 2000 {
		uid := types.UID(fmt.Sprint("bound", i))
		s.Ports = append(s.Ports, pool.Port{Name: fmt.Sprint("port", i), Pod: uid, Live: true, Attached: true})
		s.Pods = append(s.Pods, pool.Pod{Ref: v1.PodReference{Name: fmt.Sprint("pod", i), UID: uid}},
			pool.Pod{Ref: v1.PodReference{Name: fmt.Sprint("new", i), UID: types.UID(fmt.Sprint("new", i))}})
	}
	for b.Loop() {
		pool.Plan(s, noon)
	}
}
