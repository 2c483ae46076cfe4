// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package supply requests the ports that pools wish for from the SDN, and looks up and deletes
// single ports. It keeps the results until the planner records them: ports without an object,
// failures, and the room of quotas and subnets.
//
// It runs in its own goroutines, for which the planner never waits. Each plan replaces the wish
// of its pool (Wish). A result has the pool planned again (Options.Queue). The package writes no
// Kubernetes object, and reads one only to learn that a port has none before it deletes the port.
// Its memory may be lost at any time. The key of that memory is the pool with its node: a shard of
// the controller that owns a node shares it with no other shard.
//
// The order of locks is creations.mu (wishes and places), memory.mu (pools), capacity.mu
// (rooms). lookups.mu is taken alone. No lock is held during a request to the SDN or to the API
// server.
package supply

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Options are the parts that a Supply needs. All but Capacity must be given.
type Options struct {
	Ports      sdn.Ports
	Visibility sdn.Visibility
	Capacity   sdn.Capacity // nil: unknown room
	Settings   *settings.Live
	Subnets    subnetLists
	Backoff    outcome.Backoff
	Queue      planQueue
	Live       client.Reader // reads past the cache
	// CheckPorts has the collector compare the SDN's ports with the objects: the SDN may have a
	// port that no object and no process knows.
	CheckPorts kube.Signal
}

// subnetLists knows the lists of subnets of which a port gets one address.
type subnetLists interface {
	// More returns, by some of these subnets, others that the address may be of instead.
	More(ctx context.Context, subnetIDs []string) (map[string][]string, error)
}

// planQueue is the queue of pools to plan.
type planQueue interface{ Add(pool.Ref) }

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

// Run sends requests until ctx ends, and returns when the last one has ended. The collector
// finds a port that the SDN creates for a request which was cut off.
func (s *Supply) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { s.creations.run(ctx) })
	both.Go(func() { s.lookups.run(ctx) })
	both.Wait()
	return nil
}

// Wish replaces the wish of a pool. asked is Snapshot.Asked of the plan: ports requested since
// then are subtracted from the wish.
func (s *Supply) Wish(r pool.Ref, key v1.PoolKey, w pool.Wish, batch, asked int) {
	s.creations.wish(r, key, w, batch, asked)
}

// Restore looks up a port that a pod's annotation names. parent is the parent port of a node
// that is a virtual machine, else empty. A port that is found becomes an unrecorded port.
func (s *Supply) Restore(r pool.Ref, parent, id string, of v1.Claim, ips []corev1.PodIP) {
	s.lookups.restore(r, parent, id, of, ips)
}

// Discard deletes unrecorded ports that no pod needs. A deletion that fails is left to the
// collector.
func (s *Supply) Discard(r pool.Ref, ids []string) { s.lookups.discard(r, ids) }

// Recorded forgets unrecorded ports: they have their objects now.
func (s *Supply) Recorded(r pool.Ref, ids ...string) { s.memory.discard(r, ids) }

// Unrecorded returns the known ports of a pool that have no object yet.
func (s *Supply) Unrecorded(r pool.Ref) (ids []string) {
	s.memory.with(r, func(p *poolMemory) {
		for id := range p.unrecorded {
			ids = append(ids, id)
		}
	})
	return ids
}

// LookedUp reports whether the lookup of a port for the pool has begun or has ended.
func (s *Supply) LookedUp(r pool.Ref, id string) bool { return s.memory.lookedUp(r, id) }

// Snapshot is what is known of a pool at one moment.
type Snapshot struct {
	Unrecorded map[string]Unrecorded
	Restoring  map[string]bool // ports that are being looked up
	NotFound   map[string]bool // ports that were looked up and do not exist
	InFlight   int             // ports requested and not answered
	Asked      int             // ports requested, ever

	Failure  error     // of the last request; nil after a success
	Hold     time.Time // no request is sent before
	Refilled time.Time // when ports were created last
}

// Snapshot returns what is known of a pool. It forgets failed lookups of ports that no pod
// names any more.
func (s *Supply) Snapshot(r pool.Ref, named func(id string) bool) (out Snapshot) {
	s.memory.with(r, func(p *poolMemory) {
		for id := range p.notFound {
			if !named(id) {
				delete(p.notFound, id)
			}
		}
		out = Snapshot{
			Unrecorded: maps.Clone(p.unrecorded), Restoring: maps.Clone(p.restoring), NotFound: maps.Clone(p.notFound),
			InFlight: p.inFlight, Asked: p.asked, Failure: p.failure, Hold: p.hold, Refilled: p.refilled,
		}
	})
	return out
}

// Survey returns the room of a pool, and how many free ports the pool has to give up for pods
// of other pools.
func (s *Supply) Survey(r pool.Ref, key *v1.PoolKey) (room Standing, reclaim int) {
	room = s.memory.capacity.standing(key)
	s.memory.with(r, func(p *poolMemory) { reclaim = p.reclaim })
	return room, reclaim
}

// Scarce returns why no port is created without a waiting pod; nil if it may be.
func (s *Supply) Scarce(key *v1.PoolKey) *sdn.QuotaError {
	return s.memory.capacity.standing(key).Scarce
}

// Planned is what a plan has decided about a pool.
type Planned struct {
	Key    *v1.PoolKey
	Free   int  // ports that will be free
	Lacks  int  // pods without a port, and without one in flight
	Wishes bool // it wishes for ports
	Room   Standing
}

// Settle notes a plan, on which other pools' plans depend. It returns the number of the pool's
// failure: a failure after a success has another number. It also returns the failure that keeps
// the pool from ports now, or nil. It holds one lock throughout, so that no request ends in
// between.
func (s *Supply) Settle(r pool.Ref, a Planned) (episode int, failure error) {
	now := time.Now()
	s.memory.with(r, func(p *poolMemory) {
		p.key, p.free, p.waiting = a.Key, a.Free, max(0, a.Lacks)
		if p.waiting > 0 && a.Room.Full != nil && (p.failure == nil || p.hold.Before(a.Room.Until)) {
			p.failure, p.hold = a.Room.Full, a.Room.Until
		}
		// No pod waits any more, so the failure does not matter now.
		if p.failure != nil && p.waiting == 0 && p.inFlight == 0 && !a.Wishes && !now.Before(p.hold) {
			p.failure, p.failures = nil, 0
			p.episode++
		}
		failure, episode = p.failure, p.episode
	})
	return episode, failure
}

// Reclaim has pools without waiting pods give up free ports: as many as pods wait for in a full
// scope. It returns these pools.
func (s *Supply) Reclaim(of sdn.Scope) []pool.Ref { return s.memory.reclaim(of) }

// GaveUp notes how many of the asked ports the plan gives up.
func (s *Supply) GaveUp(r pool.Ref, asked, given int) {
	s.memory.with(r, func(p *poolMemory) {
		p.reclaim = max(0, p.reclaim-asked)
		s.memory.capacity.expect(p.reclaimFor, given-asked)
	})
}

// Failed notes a failure after the SDN has created a port, such as an object that cannot be
// written.
func (s *Supply) Failed(r pool.Ref, err error) {
	s.memory.with(r, func(p *poolMemory) { s.memory.result(p, err) })
}

// Forget drops the memory of a deleted pool, unless a request for it is in flight. It reports
// whether it did.
func (s *Supply) Forget(r pool.Ref) bool { return s.memory.forget(r) }

// ResetBackoff lets all pools send requests at once, whatever has failed before.
func (s *Supply) ResetBackoff() { s.memory.resetBackoff() }

// Freed notes the deletion of a port of a pool (of an unknown one if r is zero), and lets the
// pool that has lacked room longest try again.
func (s *Supply) Freed(r pool.Ref) { s.memory.portFreed(r) }

// Knows returns the ports that are in use without an object, and the pools with requests in
// flight, which may have created ports.
func (s *Supply) Knows() (ports, busy map[string]bool) { return s.memory.knows() }

// Adopt gives a port to a pool, as if it had just been created.
func (s *Supply) Adopt(r pool.Ref, port sdn.Port) {
	s.memory.with(r, func(p *poolMemory) { p.unrecorded[port.ID] = Unrecorded{Port: port} })
}
