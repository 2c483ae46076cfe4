// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package supply asks the SDN for the ports that pools wish for, looks up and deletes
// single ports, and keeps what has come of it until the planner writes it down: ports
// made, failures, and how much room there is in quotas and subnets.
//
// It has clocks of its own, which the planner never waits for: what a pool wishes is
// replaced by each plan (Wish), and a pool is planned again (Options.Requeue) when
// something has come of it. It reads and writes no Kubernetes object; what it remembers may be
// lost at any time. The key of all of it is the pool with its node: a shard of the
// controller that owns a node has all that is here of it to itself.
//
// Three locks are taken in this order and never in another: creations.mu (wishes and
// places), memory.mu (what is known of pools), capacity.mu (rooms). lookups.mu is taken alone. None is held while
// the SDN or the API server is asked.
package supply

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Options is what a Supply needs. All but Capacity have to be given.
type Options struct {
	Ports    sdn.Ports
	Capacity sdn.Capacity // nil: it cannot be asked
	Settings *settings.Live
	Backoff  outcome.Backoff
	Now      func() time.Time
	// Requeue has a pool planned again.
	Requeue func(pool.Ref)
	// Doubtful is told that the SDN may have a port that no object and no process
	// knows of. It does not wait.
	Doubtful func()
	// NoObject returns an error unless the API server says that there is no KuryrPort
	// of that name.
	NoObject func(ctx context.Context, name string) error
}

// Supply gets ports for pools. Its methods are safe for concurrent use.
type Supply struct {
	memory    *memory
	creations *creations
	lookups   *lookups
}

// New returns a Supply that does nothing before Run.
func New(o Options) *Supply {
	m := newMemory(o)
	return &Supply{memory: m, creations: newCreations(o, m), lookups: newLookups(o, m)}
}

// Run sends requests until ctx ends, and returns when the last one has ended. A port
// that a request cut off has made is found by the orphan collector.
func (s *Supply) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { s.creations.run(ctx) })
	both.Go(func() { s.lookups.run(ctx) })
	both.Wait()
	return nil
}

// Wish replaces what a pool wishes for. It was planned when the pool had been asked
// for so many ports, ever (Snapshot.Asked).
func (s *Supply) Wish(r pool.Ref, key v1.PoolKey, w pool.Wish, batch, asked int) {
	s.creations.wish(r, key, w, batch, asked)
}

// Restore looks up a port that a pod says it had; parent is the port of the machine
// that the node is, empty if it is none. What is found arrives.
func (s *Supply) Restore(r pool.Ref, parent, id string, of v1.Claim, ips []corev1.PodIP) {
	s.lookups.restore(r, parent, id, of, ips)
}

// Discard deletes ports that arrived and that no pod needs. What fails is left to the
// orphan collector.
func (s *Supply) Discard(r pool.Ref, ids []string) { s.lookups.discard(r, ids) }

// Recorded forgets ports that arrived: their objects say from now on what becomes of
// them.
func (s *Supply) Recorded(r pool.Ref, ids ...string) { s.memory.discard(r, ids) }

// Arrived returns the ports of a pool that have no object yet, as far as is known.
func (s *Supply) Arrived(r pool.Ref) (ids []string) {
	s.memory.with(r, func(p *poolMemory) {
		for id := range p.arrived {
			ids = append(ids, id)
		}
	})
	return ids
}

// LookedUp reports whether a port is being looked up for the pool, or has been.
func (s *Supply) LookedUp(r pool.Ref, id string) bool { return s.memory.lookedUp(r, id) }

// Snapshot is what is known of a pool at one moment.
type Snapshot struct {
	Arrived   map[string]Arrival
	Restoring map[string]bool // ports that are being looked up
	NotFound  map[string]bool // ports that were looked up and are not there
	InFlight  int             // ports asked for and not answered
	Asked     int             // ports asked for, ever

	Failure  error     // of the last request; nil after a success
	Hold     time.Time // the SDN is left alone up to then
	Refilled time.Time // when ports were made last
}

// Look returns what is known of a pool. What was found not to be there is forgotten
// of ports that nobody names any more.
func (s *Supply) Look(r pool.Ref, named func(id string) bool) (out Snapshot) {
	s.memory.with(r, func(p *poolMemory) {
		for id := range p.vain {
			if !named(id) {
				delete(p.vain, id)
			}
		}
		out = Snapshot{
			Arrived: maps.Clone(p.arrived), Restoring: maps.Clone(p.restoring), NotFound: maps.Clone(p.vain),
			InFlight: p.inFlight, Asked: p.asked, Failure: p.failure, Hold: p.hold, Refilled: p.refilled,
		}
	})
	return out
}

// Survey returns how a pool stands with the room that there is, and how many free
// ports it is to give up for others.
func (s *Supply) Survey(r pool.Ref, key *v1.PoolKey) (room Standing, squeeze int) {
	room = s.memory.capacity.standing(key)
	s.memory.with(r, func(p *poolMemory) { squeeze = p.squeeze })
	return room, squeeze
}

// Scarce returns why nothing is to be made that no pod waits for; nil: it may.
func (s *Supply) Scarce(key *v1.PoolKey) *sdn.QuotaError {
	return s.memory.capacity.standing(key).Scarce
}

// Planned is what a plan has decided about a pool.
type Planned struct {
	Key    *v1.PoolKey
	Free   int  // ports that will be free
	Lacks  int  // pods that got no port by it and that nothing in flight is for
	Wishes bool // it asks for ports
	Room   Standing
}

// Settle notes a plan, for what other pools want to know. It returns how often a failure
// of the pool has been over, as one after a success is another one, and what keeps the
// pool from ports now, nil if nothing does. One lock is held for all of it, so no request ends
// in between.
func (s *Supply) Settle(r pool.Ref, a Planned) (episode int, failure error) {
	now := s.memory.now()
	s.memory.with(r, func(p *poolMemory) {
		p.key, p.free, p.lacking = a.Key, a.Free, max(0, a.Lacks)
		if p.lacking > 0 && a.Room.Full != nil && (p.failure == nil || p.hold.Before(a.Room.Until)) {
			p.failure, p.hold = a.Room.Full, a.Room.Until
		}
		// No pod asks any more: what went wrong is no matter now.
		if p.failure != nil && p.lacking == 0 && p.inFlight == 0 && !a.Wishes && !now.Before(p.hold) {
			p.failure, p.failures = nil, 0
			p.episode++
		}
		failure, episode = p.failure, p.episode
	})
	return episode, failure
}

// Squeeze has pools without waiting pods give up free ports, as many as pods wait for
// in a full scope, and returns these pools.
func (s *Supply) Squeeze(of sdn.Scope) []pool.Ref { return s.memory.squeeze(of) }

// GaveUp notes that a plan has given up so many ports of those that others asked for.
func (s *Supply) GaveUp(r pool.Ref, asked, given int) {
	s.memory.with(r, func(p *poolMemory) {
		p.squeeze = max(0, p.squeeze-asked)
		s.memory.capacity.expect(p.squeezed, given-asked)
	})
}

// Failed notes that a port cannot be had although the SDN made it.
func (s *Supply) Failed(r pool.Ref, err error) {
	s.memory.with(r, func(p *poolMemory) { s.memory.result(p, err) })
}

// Forget drops what is known of a pool that is no more, and reports whether it could:
// not while something is under way for it.
func (s *Supply) Forget(r pool.Ref) bool { return s.memory.forget(r) }

// Forgive lets all pools ask at once, whatever went wrong before.
func (s *Supply) Forgive() { s.memory.forgive() }

// Freed notes that a port of a pool is gone (of one that is not known if r is zero),
// and lets the pool that has lacked room longest try again.
func (s *Supply) Freed(r pool.Ref) { s.memory.portFreed(r) }

// Knows returns the ports that are somebody's although no object says so, and the
// pools that have requests under way, which may have made some.
func (s *Supply) Knows() (ports, busy map[string]bool) { return s.memory.knows() }

// Adopt gives a port to a pool that has none of it yet, as if it had just been made.
func (s *Supply) Adopt(r pool.Ref, port sdn.Port) {
	s.memory.with(r, func(p *poolMemory) { p.arrived[port.ID] = Arrival{Port: port} })
}
