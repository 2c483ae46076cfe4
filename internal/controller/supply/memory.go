// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// poolMemory is what the process knows of one pool beyond the objects. It may be lost.
type poolMemory struct {
	unrecorded map[string]Unrecorded
	inFlight   int
	asked      int // ports of all requests ever
	restoring  map[string]bool
	notFound   map[string]bool // ports that a lookup has not found, or not for this pod

	failure  error // of the last request, nil after a success
	failures int   // in a row
	hold     time.Time
	refilled time.Time

	demand pool.Demand // of the last plan, without what was requested since; zero: none
	batch  int         // ports of one request at most

	key     *v1.PoolKey // of the last plan; nil: none, or unknown
	free    int         // free ports that stay, by the last plan
	waiting int         // pods without a port, and without one in flight
	keep    int         // free ports to keep at most, as pods of other pools lack room; negative: no limit

	leave []func() // leave the node, once nothing is unrecorded
}

// Unrecorded is a port without an object yet: the SDN has created it, or a lookup has found it.
type Unrecorded struct {
	Port sdn.Port
	Pod  v1.Claim // the pod of the lookup; zero if the port was created
}

// with runs f on what is known of a pool.
func (s *Supply) with(r pool.Ref, f func(*poolMemory)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[r]
	if p == nil {
		p = &poolMemory{unrecorded: map[string]Unrecorded{}, restoring: map[string]bool{}, notFound: map[string]bool{}, keep: -1}
		s.pools[r] = p
	}
	f(p)
}

// Forget drops the memory of a deleted pool, unless a request for it is in flight. It reports
// whether it did.
func (s *Supply) Forget(r pool.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[r]
	if p != nil && (p.inFlight > 0 || len(p.unrecorded)+len(p.restoring) > 0) {
		return false
	}
	if p != nil {
		s.withdraw(r, p)
	}
	delete(s.pools, r)
	return true
}

// lost forgets the pools of nodes that this process does not own any more. No request for them is in
// flight.
func (s *Supply) lost(keys kube.Keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := func(r pool.Ref) bool { return keys(kube.OnNode(r.Node)) }
	maps.DeleteFunc(s.pools, func(r pool.Ref, _ *poolMemory) bool { return of(r) })
	s.queue = slices.DeleteFunc(s.queue, of)
}

// recordWithin is how long a plan may take to record the result of a request. Another process gets
// the node then, and its collector finds what is not recorded.
const recordWithin = 2 * time.Second

// keepNode leaves a pool's node once all results are recorded. s.mu is held.
func (p *poolMemory) keepNode(leave func()) {
	leave = sync.OnceFunc(leave)
	p.leave = append(p.leave, leave)
	if p.leaveRecorded(); len(p.leave) > 0 {
		time.AfterFunc(recordWithin, leave)
	}
}

// leaveRecorded leaves the pool's node if nothing is unrecorded. s.mu is held.
func (p *poolMemory) leaveRecorded() {
	if len(p.unrecorded) > 0 {
		return
	}
	for _, leave := range p.leave {
		leave()
	}
	p.leave = nil
}

// Unfinished reports whether requests for a pool are in flight, or are not recorded.
func (s *Supply) Unfinished(r pool.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[r]
	return p != nil && (p.inFlight > 0 || len(p.unrecorded)+len(p.restoring) > 0)
}

// askAgain is when a plan may demand again what was dropped, because this process may not begin work
// on the node now.
const askAgain = time.Second

// requested counts the ports of a request; n is negative for those that it ceases to ask for.
func (p *poolMemory) requested(n int) {
	p.inFlight, p.asked = p.inFlight+n, p.asked+max(0, n)
	creationsInFlight.Add(float64(n))
}

// Failed notes a failure after the SDN has created a port, such as an object that cannot be
// written.
func (s *Supply) Failed(r pool.Ref, err error) {
	s.with(r, func(p *poolMemory) { s.result(p, err) })
}

// result notes the result of a request for p.
func (s *Supply) result(p *poolMemory, err error) {
	if err == nil {
		p.failure, p.failures, p.hold = nil, 0, time.Time{}
		return
	}
	p.failures++
	p.failure = err
	p.hold = time.Now().Add(s.Backoff.Delay(err, p.failures))
}

// found ends the lookup of a port that a pod had, and leaves the pool's node once that is recorded.
// port is nil if it does not exist.
func (s *Supply) found(r pool.Ref, id string, of v1.Claim, port *sdn.Port, err error, leave func()) {
	s.with(r, func(p *poolMemory) {
		delete(p.restoring, id)
		switch {
		case err != nil:
			s.result(p, err)
		case port == nil || s.holdsUnrecorded(id):
			p.notFound[id] = true
		default:
			p.unrecorded[id] = Unrecorded{Port: *port, Pod: of}
		}
		p.keepNode(leave)
	})
}

// LookedUp reports whether the lookup of a port for the pool has begun or has ended.
func (s *Supply) LookedUp(r pool.Ref, id string) (is bool) {
	s.with(r, func(p *poolMemory) {
		_, found := p.unrecorded[id]
		is = found || p.restoring[id] || p.notFound[id]
	})
	return is
}

// holdsUnrecorded reports whether any pool has this unrecorded port. s.mu is held.
func (s *Supply) holdsUnrecorded(id string) bool {
	for _, p := range s.pools {
		if _, ok := p.unrecorded[id]; ok {
			return true
		}
	}
	return false
}

// Recorded forgets unrecorded ports: they have their objects now.
func (s *Supply) Recorded(r pool.Ref, ids ...string) {
	s.with(r, func(p *poolMemory) {
		for _, id := range ids {
			delete(p.unrecorded, id)
		}
		p.leaveRecorded()
	})
}

// Adopt gives a port to a pool, as if it had just been created.
func (s *Supply) Adopt(r pool.Ref, port sdn.Port) {
	s.with(r, func(p *poolMemory) { p.unrecorded[port.ID] = Unrecorded{Port: port} })
}

// Knows returns the ports that are in use without an object, and the pools with requests in
// flight, which may have created ports.
func (s *Supply) Knows() (ports, busy map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports, busy = maps.Clone(s.leaving), map[string]bool{}
	for r, p := range s.pools {
		for id := range p.unrecorded {
			ports[id] = true
		}
		for id := range p.restoring {
			ports[id] = true
		}
		if p.inFlight > 0 {
			busy[r.Pool] = true
		}
	}
	return ports, busy
}

// ResetBackoff lets all pools send requests at once, whatever has failed before.
func (s *Supply) ResetBackoff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capacity.resetBackoff()
	for _, p := range s.pools {
		p.failures, p.hold, p.keep = 0, time.Time{}, -1
	}
}

// Freed notes the deletion of a port of a pool (of an unknown one if r is zero). The room
// for one port lets one pool try again. It is the one that has lacked room longest, of those
// that may lack exactly this room.
func (s *Supply) Freed(r pool.Ref) {
	s.mu.Lock()
	var key *v1.PoolKey
	if p := s.pools[r]; p != nil {
		key = p.key
	}
	s.capacity.freed(key)
	var next pool.Ref
	var chosen *poolMemory
	for _, r := range slices.SortedFunc(maps.Keys(s.pools), pool.Ref.Compare) {
		p := s.pools[r]
		if lacksRoom(p.failure, key) && time.Now().Before(p.hold) && (chosen == nil || p.hold.Before(chosen.hold)) {
			next, chosen = r, p
		}
	}
	if chosen != nil {
		chosen.hold = time.Time{}
	}
	s.mu.Unlock()
	if chosen != nil {
		s.Queue.Add(next)
	}
}

// lacksRoom reports whether err may be a lack of the room that a port of this key has freed. A
// nil key stands for any port.
func lacksRoom(err error, key *v1.PoolKey) bool {
	if !errors.Is(err, sdn.ErrQuota) {
		return false
	}
	var full *sdn.QuotaError
	return key == nil || !errors.As(err, &full) || slices.Contains(scopes(key), full.Scope)
}

// waiting counts the pods of all pools, those of other processes included, that wait for room in one of these scopes.
func (s *Supply) waiting(in ...sdn.Scope) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pools {
		if p.takes(in) {
			n += p.waiting
		}
	}
	for _, o := range s.others {
		if takes(o.key, in) {
			n += o.waiting
		}
	}
	return n
}

// elsewhere is a pool of another process whose pods wait for room.
type elsewhere struct {
	key     *v1.PoolKey
	waiting int
}

// WaitElsewhere notes how many pods wait for room of a full scope, by the status of a pool that another
// process plans; none if the pool is gone or is an own one. Own pools give up free ports for pods that
// did not wait before, and leave room to them all.
func (s *Supply) WaitElsewhere(r pool.Ref, key *v1.PoolKey, full sdn.Scope, pods int) {
	s.mu.Lock()
	more := pods - s.others[r].waiting
	if s.others[r] = (elsewhere{key, pods}); pods == 0 {
		delete(s.others, r)
	}
	s.mu.Unlock()
	if more > 0 {
		s.capacity.keepFree(full)
		s.reclaim(full, more)
	}
}

// gained forgets what the last owner of nodes has said of their pools.
func (s *Supply) gained(_ context.Context, keys kube.Keys, _ bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.others, func(r pool.Ref, _ elsewhere) bool { return keys(kube.OnNode(r.Node)) })
}

// takes reports whether the pool's ports take room of one of these scopes.
func (p *poolMemory) takes(in []sdn.Scope) bool { return p.key != nil && takes(p.key, in) }

func takes(key *v1.PoolKey, in []sdn.Scope) bool {
	return slices.ContainsFunc(scopes(key), func(s sdn.Scope) bool { return slices.Contains(in, s) })
}

// reclaim has pools without waiting pods give up n free ports of a full scope. The pools with the
// most free ports come first.
func (s *Supply) reclaim(of sdn.Scope, n int) {
	for _, r := range s.giveUp(of, n) {
		s.Queue.Add(r)
	}
}

// giveUp limits the free ports of pools, and returns these pools.
func (s *Supply) giveUp(of sdn.Scope, n int) (idle []pool.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, p := range s.pools {
		if p.keep >= 0 { // the last plan may be older
			p.free = min(p.free, p.keep)
		}
		if p.takes([]sdn.Scope{of}) && p.waiting == 0 && p.free > 0 {
			idle = append(idle, r)
		}
	}
	slices.SortFunc(idle, func(a, b pool.Ref) int {
		return cmp.Or(cmp.Compare(s.pools[b].free, s.pools[a].free), a.Compare(b))
	})
	for i, r := range idle {
		if n <= 0 {
			return idle[:i]
		}
		p := s.pools[r]
		part := min(n, p.free)
		p.keep, n = p.free-part, n-part
	}
	return idle
}
