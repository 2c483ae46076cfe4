// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// world is a dumb model of all that is around a plan: pods, a node's daemon
// that plugs and unplugs late, an SDN that makes ports late or not at all, caches
// that show all this late, and a controller that forgets when it starts anew.
type world struct {
	t      *testing.T
	r      *rand.Rand
	now    time.Time
	levels pool.Levels

	pods  map[v1.Claim]*pod
	ports map[string]*port
	// seenPods and seenPorts are what the caches show of them.
	seenPods  map[v1.Claim]pod
	seenPorts map[string]port

	inSDN      map[string]string // ports of the SDN and their security groups
	demand     pool.Demand
	requests   []int // under way, by size
	unrecorded []pool.Unrecorded
	lookups    map[string]v1.Claim
	strays     map[string]time.Time // seen in the SDN with nobody to know of them
	hold       time.Time
	nodeGone   bool
	scarce     bool
	filled     bool // the filling is forgotten a little late

	last    map[string]v1.Claim    // pod that a port was last of
	died    map[v1.Claim]time.Time // when pods ended
	serial  int
	log     []string
	asked   int // ports, of the SDN
	allowed int // to ask for, at most; see spend
	floor   int // as of the last plan
}

type pod struct {
	name     string
	finished bool
	created  time.Time
	had      string // port whose object was deleted under the pod
	groups   string // "": the pool's
}

// port is a KuryrPort, and what of pool.Port is not to be seen in other fields.
type port struct {
	pool.Port
	spec    string // security groups wanted
	settled bool   // the SDN has them, as far as the object says
	version int
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), now: noon,
		pods: map[v1.Claim]*pod{}, ports: map[string]*port{}, inSDN: map[string]string{}, lookups: map[string]v1.Claim{},
		strays: map[string]time.Time{}, last: map[string]v1.Claim{}, died: map[v1.Claim]time.Time{},
	}
	w.relevel()
	w.look()
	return w
}

func (w *world) id(kind string) string { w.serial++; return fmt.Sprint(kind, w.serial) }

// look brings the caches up to date.
func (w *world) look() {
	w.lookAtPods()
	w.lookAtPorts()
}

func (w *world) lookAtPods() {
	w.seenPods = map[v1.Claim]pod{}
	for uid, p := range w.pods {
		w.seenPods[uid] = *p
	}
}

func (w *world) lookAtPorts() {
	w.seenPorts = map[string]port{}
	for name, p := range w.ports {
		w.seenPorts[name] = *p
	}
}

// state is what the controller makes of what it sees and remembers.
func (w *world) state() pool.State {
	s := pool.State{
		Levels: w.levels, NodeGone: w.nodeGone, Hold: w.hold, Scarce: w.scarce,
		Unrecorded: slices.Clone(w.unrecorded), Restoring: map[string]bool{},
	}
	for uid, p := range w.seenPods {
		if p.finished {
			continue
		}
		seen := pool.Pod{Ref: v1.PodReference{Namespace: "ns", Name: p.name, UID: uid.UID}, Created: p.created, Groups: groups(p.groups)}
		if now := w.pods[uid]; now != nil {
			seen.Restore = now.had
		}
		s.Pods = append(s.Pods, seen)
	}
	for _, p := range w.seenPorts {
		holder, ok := w.seenPods[p.Pod]
		p.Live = ok && !holder.finished
		p.Drifted = p.spec != w.target(p)
		p.Ready = p.Pod.IsZero() && p.settled
		if p.Pod.IsZero() {
			p.Groups = groups(w.target(p))
		}
		s.Ports = append(s.Ports, p.Port)
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

// target is the security groups that a port is to have.
func (w *world) target(p port) string {
	if holder, ok := w.seenPods[p.Pod]; ok && !holder.finished {
		return holder.groups
	}
	if p.Pod.IsZero() && ruled(p.spec) {
		return p.spec
	}
	return ""
}

// ruled reports whether security groups are the pool's or those that some pods are to have.
func ruled(spec string) bool { return spec == "" || spec == "own" || spec == "other" }

// plan makes a plan, checks that it is one of its state and nothing else, and
// carries it out.
func (w *world) plan() pool.Actions {
	s := w.state()
	a := pool.Plan(s, w.now)
	slices.Reverse(s.Pods)
	slices.Reverse(s.Ports)
	slices.Reverse(s.Unrecorded)
	if other := pool.Plan(s, w.now); !reflect.DeepEqual(a, other) {
		w.fail("the plan depends on the order of its input:\n%+v\n%+v", a, other)
	}
	w.judge(s, a)
	conflicts := w.bind(a)
	w.adopt(a)
	conflicts += w.free(a)
	w.discard(a)
	for _, l := range a.Restore {
		w.lookups[l.Port] = l.Pod
	}
	w.demand = a.Want
	w.spend(a, conflicts)
	if a.Filled && (w.filled || w.r.IntN(2) == 0) {
		w.levels.Fill, w.filled = 0, false
	} else {
		w.filled = a.Filled
	}
	if a.Writes() {
		w.lookAtPorts() // the pool waits until it sees what it wrote
	}
	w.invariants(s, conflicts)
	return a
}

// spend adds what a plan may have to be asked for again to what may be asked
// for at all: a higher level to reach. Each write
// that met a newer object than planned with may leave a port too few.
func (w *world) spend(a pool.Actions, conflicts int) {
	floor := w.floorOf(w.levels)
	w.allowed += max(0, floor-w.floor) + conflicts
	w.floor = floor
	if w.nodeGone {
		w.allowed += len(a.Delete) + len(a.Discard)
	}
}

func (w *world) floorOf(l pool.Levels) int {
	if n := max(l.Min, l.Fill); l.Max == 0 || n < l.Max {
		return n
	}
	return l.Max
}

// write returns the port to write to, nil if it is not as it was planned with.
func (w *world) write(name string) *port {
	p := w.ports[name]
	if p == nil || p.version != w.seenPorts[name].version {
		return nil
	}
	p.version++
	return p
}

func (w *world) bind(a pool.Actions) (conflicts int) {
	w.judgeGroups(a)
	for _, b := range a.Bind {
		seen := w.seenPorts[b.Port]
		if !seen.Pod.IsZero() || !seen.settled || !ruled(seen.spec) || seen.Deleting || seen.Failed || seen.Lost {
			w.fail("binds %s, which is not fit: %+v", b.Port, seen)
		}
		if !seen.Rested && w.now.Before(seen.Since.Add(w.levels.Cooldown)) {
			w.fail("binds %s before its cooldown", b.Port)
		}
		if want := groups(w.seenPods[b.Pod.Claim()].groups); !slices.Equal(b.Groups, want) {
			w.fail("binds %s with groups %v, where %s wants %v", b.Port, b.Groups, b.Pod.Claim(), want)
		}
		p := w.write(b.Port)
		if p == nil {
			conflicts++
			continue
		}
		want := w.seenPods[b.Pod.Claim()].groups
		p.Pod, p.Rested, p.spec, p.settled = b.Pod.Claim(), false, want, p.spec == want
		w.reuse(b.Port, b.Pod.Claim())
	}
	return conflicts
}

// judgeGroups checks that no two pods could swap their ports so that fewer groups change.
func (w *world) judgeGroups(a pool.Actions) {
	has := func(b pool.Binding) string { return w.seenPorts[b.Port].spec }
	wants := func(b pool.Binding) string { return w.seenPods[b.Pod.Claim()].groups }
	for _, b := range a.Bind {
		for _, c := range a.Bind {
			if has(b) != wants(b) && has(c) != wants(c) && has(c) == wants(b) {
				w.fail("binds %s to %s, which wants the groups of %s", b.Port, b.Pod.Claim(), c.Port)
			}
		}
	}
}

// reuse checks that nobody has a port's address, or had it a moment ago.
func (w *world) reuse(id string, uid v1.Claim) {
	former := w.last[id]
	w.last[id] = uid
	if former.IsZero() || former == uid {
		return
	}
	if died, ok := w.died[former]; !ok || w.now.Before(died.Add(w.levels.Cooldown)) {
		w.fail("gives %s to %s after %s, which died %v (%v)", id, uid.UID, former.UID, w.now.Sub(died), ok)
	}
}

func (w *world) adopt(a pool.Actions) {
	for _, b := range a.Adopt {
		if w.ports[b.Port] != nil {
			w.fail("makes a second object of %s", b.Port)
		}
		made := w.takeUnrecorded(b.Port, w.r.IntN(8) == 0) // the answer to the write is lost
		p := &port{Port: pool.Port{Name: b.Port, Since: w.now, Rested: true}, spec: w.inSDN[b.Port], settled: w.r.IntN(2) == 0}
		if b.Pod != nil {
			if own := made.For == b.Pod.Claim(); !own && w.seenPods[b.Pod.Claim()].groups != p.spec {
				w.fail("gives %s with groups %q to %s, which wants others", b.Port, p.spec, b.Pod.Claim())
			}
			p.Pod, p.Rested = b.Pod.Claim(), false
			if holder := w.pods[b.Pod.Claim()]; holder != nil {
				holder.had = ""
			}
			w.reuse(b.Port, b.Pod.Claim())
		}
		w.ports[b.Port] = p
	}
}

func (w *world) free(a pool.Actions) (conflicts int) {
	for _, name := range slices.Concat(a.Recycle, a.Delete) {
		if seen := w.seenPorts[name]; seen.Deleting {
			w.fail("deletes %s twice", name)
		}
		p := w.write(name)
		if p == nil {
			conflicts++
			continue
		}
		if !p.Pod.IsZero() {
			w.mayRelease(p)
		}
		if slices.Contains(a.Delete, name) {
			p.Deleting = true
			continue
		}
		if !p.settled || !ruled(p.spec) {
			p.spec, p.settled = "", false
		}
		p.Pod, p.Since, p.Rested = v1.Claim{}, w.now, false
	}
	for _, name := range a.Repair {
		if p := w.write(name); p != nil {
			p.spec, p.settled = w.target(w.seenPorts[name]), false
		}
	}
	return conflicts
}

func (w *world) mayRelease(p *port) {
	holder := w.pods[p.Pod]
	if holder != nil && !holder.finished && !p.Lost {
		w.fail("takes %s from a living pod", p.Name)
	}
	if p.Attached && !w.nodeGone {
		w.fail("takes %s while it is plugged", p.Name)
	}
}

func (w *world) discard(a pool.Actions) {
	for _, id := range a.Discard {
		if w.ports[id] != nil {
			w.fail("discards %s, which has an object: %+v", id, w.ports[id])
		}
		w.takeUnrecorded(id, false)
		delete(w.inSDN, id)
	}
}

func (w *world) takeUnrecorded(id string, leave bool) pool.Unrecorded {
	i := slices.IndexFunc(w.unrecorded, func(a pool.Unrecorded) bool { return a.ID == id })
	if i < 0 {
		w.fail("uses %s, which is not unrecorded", id)
	}
	a := w.unrecorded[i]
	if !leave {
		w.unrecorded = slices.Delete(w.unrecorded, i, i+1)
	}
	return a
}

// arrive is a port made by the SDN, as it comes to the controller.
func (w *world) portMade() {
	id := w.id("port")
	w.inSDN[id] = ""
	w.unrecorded = append(w.unrecorded, pool.Unrecorded{ID: id})
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, l := range w.log {
		if l != nothing {
			w.t.Log(l)
		}
	}
	w.t.Fatalf("%+v: %s", w.levels, fmt.Sprintf(format, args...))
}

// some returns a key of m at random, the zero value of an empty one.
func some[K comparable, V any](r *rand.Rand, m map[K]V) (k K) {
	if len(m) == 0 {
		return k
	}
	byText := func(a, b K) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	return slices.SortedFunc(maps.Keys(m), byText)[r.IntN(len(m))]
}
