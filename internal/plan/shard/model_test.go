// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"container/heap"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	schedules = flag.Int("schedules", 300, "how many schedules TestModel runs")
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	trace     = flag.Bool("say", false, "print what happens; of one schedule")
)

// rule is a rule of the protocol that a schedule leaves out.
type rule string

const (
	allRules     rule = ""
	ownDeadline  rule = "no work begins after the own deadline"
	breakVersion rule = "a Lease is broken with its version"
	tableVersion rule = "the table is written with its version"
	drainFirst   rule = "running work ends before a bucket is given"
	watchFirst   rule = "who was refused waits for the watch"
	healthyFirst rule = "only who renews in time thinks others dead"
	goneFirst    rule = "an owner without Lease is waited for"
	toldFirst    rule = "who leaves says so first"
	endsAlone    rule = "who has lost its Lease ends"
	watchLives   rule = "a renewal counts when the watch has shown it"
	tableWait    rule = "a table that is gone is waited for"
)

// disturbance is what happens in a schedule.
type disturbance int

const (
	everything disturbance = iota
	storms                 // messages are late, members come and go
	outage                 // the API server is away, and nothing else
	oneCrash
	oneLeaves
	people // delete the table or all Leases, while watches hang
)

// event is something that happens at a time.
type event struct {
	at time.Duration
	n  int
	do func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].n < a[j].n
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(e any)   { *a = append(*a, e.(event)) }
func (a *agenda) Pop() any {
	e := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return e
}

// world is an API server and the replicas, in simulated time.
type world struct {
	*rand.Rand
	without rule
	quiet   bool // nothing is disturbed any more
	only    disturbance

	now    time.Duration
	events agenda
	n      int

	revision uint64
	leases   map[string]Member // by name
	table    Table
	awayTill time.Duration

	replicas []*replica
	active   int
	term     [Buckets]uint64 // the newest version of the table under which work was begun
	fault    string
	requests int
	began    time.Duration   // of the one disturbance
	waiting  Set             // the buckets that no replica has opened since
	moved    []time.Duration // how long that took
}

// replica is one process.
type replica struct {
	w    *world
	name string
	rate float64
	zero time.Duration

	v        *View
	uid      string
	born     time.Duration
	dead     bool
	leaving  bool
	paused   time.Duration // until then
	late     []func()      // what came meanwhile
	shownAt  time.Duration // the last event of the watch: they come in order
	broken   bool          // the watch shows nothing, and does not know it
	lastSeen time.Duration // local
	gate     Set
	gave     Set    // what it has given away since it leaves
	refused  uint64 // the version with which its last writes were refused, and how often
	times    int
	term     [Buckets]uint64
	work     [Buckets]int
}

func (w *world) at(after time.Duration, do func()) {
	w.n++
	heap.Push(&w.events, event{w.now + max(0, after), w.n, do})
}

func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf("at %s: ", w.now) + fmt.Sprintf(format, args...)
	}
}

func (w *world) say(format string, args ...any) {
	if *trace {
		fmt.Printf("%10.4f %s\n", w.now.Seconds(), fmt.Sprintf(format, args...))
	}
}

func (w *world) within(least, most time.Duration) time.Duration {
	return least + time.Duration(w.Int64N(int64(most-least)+1))
}

// delay is how long a message takes.
func (w *world) delay() time.Duration {
	x := w.Float64()
	switch {
	case w.quiet || w.only >= outage && w.only < people || x < .95 && w.only != storms || x < .7:
		return w.within(time.Millisecond, 20*time.Millisecond)
	case x < .99:
		return w.within(20*time.Millisecond, time.Second)
	default:
		return w.within(time.Second, 6*time.Second)
	}
}

func (w *world) lost(chance float64) bool {
	return !w.quiet && (w.only < outage || w.only == people) && w.Float64() < chance
}

// clock is the replica's time.
func (r *replica) clock() time.Duration {
	return r.zero + time.Duration(r.rate*float64(r.w.now))
}

// after runs something in the process, after a time of its clock, and not while it is paused.
func (r *replica) after(local time.Duration, do func()) {
	r.w.at(time.Duration(float64(local)/r.rate), func() { r.unpaused(do) })
}

func (r *replica) unpaused(do func()) {
	switch {
	case r.dead:
	case r.w.now < r.paused || len(r.late) > 0:
		r.late = append(r.late, do)
	default:
		do()
	}
}

// pause stops the process for a time. What comes meanwhile happens afterwards, in order.
func (r *replica) pause(d time.Duration) {
	r.paused = max(r.paused, r.w.now+d)
	r.w.at(r.paused-r.w.now, func() {
		if r.w.now >= r.paused {
			r.resume()
		}
	})
}

func (r *replica) resume() {
	r.paused = r.w.now
	for late := r.late; len(late) > 0 && !r.dead; late = r.late {
		r.late = nil
		for _, do := range late {
			if !r.dead {
				do()
			}
		}
	}
}

// call sends a request. Its effect, and its answer, may be lost or late; after Try it counts as without an answer.
func call[T any](r *replica, effect func() T, answer func(T), none func()) {
	w, done := r.w, false
	w.requests++
	r.after(Try, func() {
		if !done {
			done = true
			none()
		}
	})
	w.at(w.delay(), func() {
		if w.now < w.awayTill || w.lost(.003) {
			return
		}
		result := effect()
		if w.lost(.003) {
			return
		}
		w.at(w.delay(), func() {
			r.unpaused(func() {
				if !done {
					done = true
					answer(result)
				}
			})
		})
	})
}

func (w *world) snapshot() ([]Member, Table) {
	t := w.table
	t.Owners = maps.Clone(t.Owners)
	return slices.Collect(maps.Values(w.leases)), t
}

// changed shows a change of the API server to all watches.
func (w *world) changed() {
	for _, r := range w.replicas {
		if r.dead || r.broken {
			continue
		}
		if w.lost(.002) {
			r.broken = true
			continue
		}
		r.show(false)
	}
}

func (r *replica) show(relisted bool) {
	w := r.w
	members, table := w.snapshot()
	r.shownAt = max(r.shownAt+1, w.now+w.delay())
	w.at(r.shownAt-w.now, func() {
		r.unpaused(func() {
			if w.now < w.awayTill {
				r.broken = true
				return
			}
			if relisted {
				r.broken = false
			}
			if r.broken {
				return
			}
			r.lastSeen = r.clock()
			r.v.Saw(members, table, relisted, r.clock())
			r.step()
		})
	})
}

func (w *world) start(name string) {
	r := &replica{w: w, name: name, rate: .9 + .2*w.Float64(), zero: w.within(0, time.Hour), v: New(w.active), born: w.now}
	w.replicas = slices.DeleteFunc(w.replicas, func(o *replica) bool { return o.dead && o.name == name })
	w.replicas = append(w.replicas, r)
	r.join()
	r.tick()
}

func (r *replica) join() {
	w, sent := r.w, r.clock()
	var former string
	call(r, func() string {
		if old, is := w.leases[r.name]; is {
			former = old.UID
			delete(w.leases, r.name)
		}
		w.revision++
		uid := "u" + strconv.FormatUint(w.revision, 10)
		w.leases[r.name] = Member{UID: uid, Name: r.name, Created: int64(w.now / time.Second), Version: strconv.FormatUint(w.revision, 10)}
		w.changed()
		return uid
	}, func(uid string) {
		w.say("%s joined as %s, former %s", r.name, uid, former)
		r.uid = uid
		r.v.Joined(uid, former, sent)
		r.show(true)
		r.step()
	}, func() { r.after(time.Second, r.join) })
}

func (r *replica) tick() {
	if r.uid != "" && r.clock()-r.lastSeen > 2*Period {
		r.lastSeen = r.clock()
		if r.w.now >= r.w.awayTill {
			r.show(true)
		}
	}
	r.step()
	r.begin()
	r.after(100*time.Millisecond, r.tick)
}

// cut leaves a rule out.
func (r *replica) cut() {
	v := r.v
	switch r.w.without {
	case watchFirst:
		v.need = 0
	case healthyFirst:
		v.healthy = 0
	case goneFirst:
		for uid := range v.gone {
			v.gone[uid] = -Others
		}
	case watchLives:
		if n := len(v.answered); n > 0 {
			v.deadline = v.answered[n-1].sent + Own
		}
	case tableWait:
		if v.table.Version == 0 {
			v.changed, v.healthy = -Others, -Others
		}
	case toldFirst:
		v.told = v.told || v.leaving
	case endsAlone:
		if v.why != left {
			v.why = ""
		}
	default:
	}
}

func (r *replica) busy() (busy Set) {
	for b, n := range r.work {
		if n > 0 && r.w.without != drainFirst {
			busy = busy.With(b)
		}
	}
	return busy
}

// step does what Next says.
func (r *replica) step() {
	if r.dead || r.uid == "" {
		return
	}
	w := r.w
	r.cut()
	s := r.v.Next(r.busy(), r.clock())
	if s.End != "" {
		r.end(s.End)
		return
	}
	r.gate = r.gate.Minus(s.Close)
	if s.Renew {
		call(r, func() string {
			l, is := w.leases[r.name]
			if !is || l.UID != r.uid {
				return ""
			}
			w.revision++
			l.Version, l.Leaving = strconv.FormatUint(w.revision, 10), l.Leaving || s.Leaving
			w.leases[r.name] = l
			w.changed()
			return l.Version
		}, func(version string) {
			if version != "" {
				r.v.Renewed(version, r.clock(), s.Leaving)
			} else {
				r.v.NotRenewed(true)
			}
			r.step()
		}, func() { r.v.NotRenewed(false) })
	}
	for _, m := range s.Break {
		call(r, func() bool {
			l, is := w.leases[m.Name]
			if !is || l.UID != m.UID || l.Version != m.Version && w.without != breakVersion {
				return false
			}
			w.say("%s breaks %s", r.name, m.UID)
			delete(w.leases, m.Name)
			w.changed()
			return true
		}, func(ok bool) {
			r.v.Broke(m.UID, ok, r.clock())
			r.step()
		}, func() { r.v.Broke(m.UID, false, r.clock()) })
	}
	if s.Lose != (Set{}) {
		r.after(w.within(0, 20*time.Millisecond), func() { r.v.Lost(s.Lose); r.step() })
	}
	if s.Open != (Set{}) {
		r.after(w.delay(), func() {
			begin, _ := r.v.Passed(s.Open)
			r.gate = r.gate.Or(begin)
			w.passed(begin)
			for b := range Buckets {
				if begin.Has(b) {
					r.term[b] = r.v.table.Version
				}
			}
			r.step()
		})
	}
	if s.Write != nil {
		next := *s.Write
		call(r, func() uint64 {
			if w.table.Version != next.Version && (w.without != tableVersion || w.table.Version == 0 || next.Version == 0) {
				return 0
			}
			w.revision++
			next.Version = w.revision
			for _, o := range w.replicas {
				if back := next.Owners[o.uid].And(o.gave); o.leaving && back.Len() > 0 {
					w.fail("%s gives %d buckets back to %s, which leaves", r.name, back.Len(), o.name)
				}
			}
			if r.leaving && r.v.told {
				r.gave = r.gave.Or(w.table.Owners[r.uid].Minus(next.Owners[r.uid]))
			}
			if w.only == outage && w.now > 30*time.Second {
				w.fail("%s changes the table after an outage", r.name)
			}
			w.table = next
			w.say("%s writes %v", r.name, next)
			w.changed()
			return next.Version
		}, func(version uint64) {
			if version > 0 {
				r.v.Wrote(version, r.clock())
			} else {
				if r.times++; r.refused != next.Version {
					r.refused, r.times = next.Version, 1
				}
				if r.times > 3 {
					w.fail("%s has written over version %d %d times in vain", r.name, r.refused, r.times)
				}
				r.v.NotWritten(true)
			}
			r.step()
		}, func() { r.v.NotWritten(false) })
	}
	if s.Remove {
		call(r, func() bool {
			if l := w.leases[r.name]; l.UID == r.uid {
				delete(w.leases, r.name)
				w.changed()
			}
			return true
		}, func(ok bool) { r.v.Removed(ok); r.step() }, func() { r.v.Removed(false) })
	}
}

func (r *replica) end(why string) {
	r.w.say("%s (%s) ends: %s", r.name, r.uid, why)
	r.dead = true
	if r.w.only == outage {
		r.w.fail("%s ended in an outage of the API server: %s", r.name, why)
	}
	if why != left || !r.w.quiet {
		r.w.at(r.w.within(time.Second, 5*time.Second), func() { r.w.start(r.name) })
	}
}

// begin begins work on some buckets, as the gate admits it.
func (r *replica) begin() {
	w := r.w
	for range 6 {
		b := w.IntN(Buckets)
		if !r.gate.Has(b) || r.clock() >= r.v.Deadline() && w.without != ownDeadline {
			continue
		}
		if r.term[b] < w.term[b] {
			w.fail("%s begins work on bucket %d of version %d; another owner has begun at version %d", r.name, b, r.term[b], w.term[b])
		}
		for _, o := range w.replicas {
			if l, is := w.leases[o.name]; o != r && !o.dead && o.work[b] > 0 && is && l.UID == o.uid && o.clock() < o.v.Deadline() {
				w.fail("%s begins work on bucket %d while that of %s, which is alive, has not ended", r.name, b, o.name)
			}
		}
		w.term[b] = r.term[b]
		r.work[b]++
		r.request(b, w.IntN(3))
	}
}

// request sends a request of running work, and then more.
func (r *replica) request(b, more int) {
	w, sent, term := r.w, r.w.now, r.term[b]
	took := w.delay()
	w.at(took, func() {
		if term < w.term[b] && w.now-sent < 90*time.Millisecond {
			w.fail("a request of %s for bucket %d has an effect after another owner has begun, and took %s only", r.name, b, w.now-sent)
		}
	})
	r.after(took, func() {
		if more > 0 && (r.clock() < r.v.Deadline() || w.without == ownDeadline) {
			r.request(b, more-1)
			return
		}
		r.work[b]--
	})
}

func (w *world) some() *replica {
	var alive []*replica
	for _, r := range w.replicas {
		if !r.dead {
			alive = append(alive, r)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return alive[w.IntN(len(alive))]
}

// disturb does one thing to the world, and plans the next.
func (w *world) disturb() {
	if w.quiet {
		return
	}
	pause := 8 * time.Second
	if w.only == storms {
		pause = time.Second
	}
	w.at(w.within(100*time.Millisecond, pause), w.disturb)
	r := w.some()
	if r == nil {
		return
	}
	x := w.IntN(21)
	if w.only == storms {
		x = []int{9, 9, 10, 15, 18, 18}[w.IntN(6)]
	}
	switch {
	case w.only == outage:
		if w.awayTill == 0 {
			w.awayTill = w.now + w.within(0, 40*time.Second)
			w.say("the API server is away until %s", w.awayTill)
		}
	case w.only == people:
		w.vandalise(r)
	case w.only == oneCrash || w.only == oneLeaves:
		w.one(r)
	case x < 3:
		w.say("%s is killed", r.name)
		r.dead = true
		back := w.within(time.Second, 5*time.Second)
		if w.IntN(3) == 0 {
			back += 20 * time.Second
		}
		w.at(back, func() { w.start(r.name) })
	case x < 9:
		r.pause(w.within(0, 10*time.Second))
		w.say("%s is paused until %s", r.name, r.paused)
	case x < 12:
		w.say("%s is to leave", r.name)
		r.leaving = true
		r.unpaused(func() { r.v.Leave(r.clock()); r.step() })
	case x < 14:
		w.awayTill = w.now + w.within(0, 8*time.Second)
		w.say("the API server is away until %s", w.awayTill)
	case x < 15:
		w.awayTill = w.now + w.within(0, time.Minute)
	case x < 17:
		if l, is := w.leases[r.name]; is {
			w.say("somebody deletes the Lease of %s", r.name)
			delete(w.leases, l.Name)
			w.changed()
		}
	case x < 18:
		w.active = w.IntN(3)
		for _, r := range w.replicas {
			r.v.SetActive(w.active)
		}
	case x < 19:
		if len(w.replicas) < 5 {
			w.start("r" + strconv.Itoa(w.n))
		}
	case x < 20 && w.IntN(4) == 0:
		w.say("somebody deletes the table")
		w.table = Table{}
		w.changed()
	default:
		r.broken = true
	}
}

// one disturbs a world that is at rest once, and measures how long no work may begin on a bucket.
func (w *world) one(r *replica) {
	if w.began != 0 {
		return
	}
	w.began, w.waiting = w.now, r.gate
	if w.only == oneLeaves {
		r.leaving = true
		r.v.Leave(r.clock())
		r.step()
		return
	}
	r.dead = true
	w.at(w.within(time.Second, 5*time.Second), func() { w.start(r.name) })
}

// vandalise deletes Leases, the table among them, has a watch hang for a while, or starts a replica.
func (w *world) vandalise(r *replica) {
	switch w.IntN(4) {
	case 0:
		r.broken, r.lastSeen = true, r.clock()+w.within(0, 10*time.Second)
	case 1:
		clear(w.leases)
		fallthrough
	case 2:
		w.table = Table{}
		w.changed()
	default:
		if len(w.replicas) < 5 {
			w.start("r" + strconv.Itoa(w.n))
		}
	}
}

// passed measures the buckets on which work may begin again.
func (w *world) passed(opened Set) {
	if came := w.waiting.And(opened); w.began != 0 && came.Len() > 0 {
		w.waiting = w.waiting.Minus(came)
		w.moved = append(w.moved, w.now-w.began)
	}
}

func newWorld(seed uint64, without rule) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0)), without: without, leases: map[string]Member{}}
	w.only = []disturbance{everything, everything, everything, storms, storms, outage, oneCrash, oneLeaves, people}[seed%9]
	w.active = []int{0, 0, 1, 2}[w.IntN(4)]
	for i := range 2 + w.IntN(3) {
		w.at(w.within(0, 10*time.Second), func() { w.start("r" + strconv.Itoa(i)) })
	}
	return w
}

func (w *world) until(end time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= end && w.fault == "" {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
}

// settled fails unless each bucket is open at its owner, and at no other replica.
func (w *world) settled() {
	var all Set
	for _, r := range w.replicas {
		if r.dead {
			continue
		}
		if both := all.And(r.gate); both.Len() > 0 {
			w.fail("%d buckets are open at two replicas at rest", both.Len())
		}
		all = all.Or(r.gate)
	}
	if all != All() && w.some() != nil {
		w.fail("%d buckets are open at no replica at rest; members %v, table %v", Buckets-all.Len(), w.leases, w.table)
	}
}

// run runs one schedule, and returns what is wrong; empty: nothing.
func run(seed uint64, without rule) *world {
	w := newWorld(seed, without)
	w.at(25*time.Second+w.within(0, 3*time.Second), w.disturb)
	w.until(75 * time.Second)
	w.quiet, w.awayTill = true, w.now
	for _, r := range w.replicas {
		r.resume()
	}
	w.until(125 * time.Second)
	w.settled()
	bound := map[disturbance]time.Duration{oneCrash: 8 * time.Second, oneLeaves: time.Second}[w.only]
	if bound > 0 && len(w.moved) > 0 && slices.Max(w.moved) > bound {
		w.fail("after a crash or a leave no work may begin on a bucket for %s", slices.Max(w.moved))
	}
	return w
}

// search runs schedules on all cores until one fails, and returns its seed.
func search(first uint64, n int, without rule) (seed uint64, fault string, requests int) {
	var next atomic.Uint64
	var mu sync.Mutex
	next.Store(first)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for {
				s := next.Add(1) - 1
				if s >= first+uint64(n) {
					return
				}
				w := run(s, without)
				mu.Lock()
				if requests += w.requests; w.fault != "" && (fault == "" || s < seed) {
					seed, fault = s, w.fault
				}
				stop := fault != ""
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	group.Wait()
	return seed, fault, requests
}

// TestModel runs replicas with the real Next through schedules of crashes, pauses, lost and late messages, wrong
// clocks, outages and people.
func TestModel(t *testing.T) {
	began := time.Now()
	seed, fault, requests := search(*firstSeed, *schedules, allRules)
	if fault != "" {
		t.Errorf("seed %d: %s\nrepeat it: go test ./internal/plan/shard -run TestModel -schedules 1 -seed %d -say", seed, fault, seed)
	}
	t.Logf("%d schedules from seed %d, %d requests, %s", *schedules, *firstSeed, requests, time.Since(began).Round(time.Second))
}

// TestModelWithoutARule shows that each rule is needed: without it a schedule fails. One rule is too seldom the last
// thing between a schedule and a fault: see TestWriteWithoutAnAnswer.
func TestModelWithoutARule(t *testing.T) {
	for _, r := range []rule{
		ownDeadline, breakVersion, tableVersion, drainFirst, watchFirst, healthyFirst, goneFirst, toldFirst, endsAlone, watchLives, tableWait,
	} {
		t.Run(strings.ReplaceAll(string(r), " ", "_"), func(t *testing.T) {
			seed, fault, _ := search(*firstSeed, 1000, r)
			if fault == "" {
				t.Errorf("without the rule %q nothing fails in 1000 schedules", r)
			}
			t.Logf("seed %d: %s", seed, fault)
		})
	}
}
