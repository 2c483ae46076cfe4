// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package supply requests the ports that pools lack from the SDN, and looks up and deletes
// single ports. It keeps the results until the planner records them: ports without an object,
// failures, and the room of quotas and subnets.
//
// It runs in its own goroutines, for which the planner never waits. Each plan replaces the demand
// of its pool (RecordPlan). A result has the pool planned again (Options.Queue). The package writes no
// Kubernetes object, and reads one only to learn that a port has none before it deletes the port.
// Its memory may be lost at any time, and is dropped when another process gets the node. No request to
// the SDN begins without its node (kube.Shards.Enter). The node is left when a plan has recorded the
// result. So a node is given away with no port that only this process knows.
//
// The order of locks is Supply.mu (pools), capacity.mu (rooms). No lock is held during a request to
// the SDN or to the API server.
package supply

import (
	"context"
	"maps"
	"sync"
	"time"

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
	Shards     kube.Shards
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
	Options
	capacity *capacity
	wished   kube.Signal // a request for ports may have to be sent
	called   kube.Signal // there are calls to make

	mu       sync.Mutex
	pools    map[pool.Ref]*poolMemory
	others   map[pool.Ref]elsewhere // pools of other processes whose pods wait for room
	leaving  map[string]bool        // ports without an object that are about to be deleted
	queue    []pool.Ref             // pools with a demand; the one longest without a request is first
	inFlight []*order
	calls    []lookup
	most     int // ports of one request, while the SDN answers too late; 0: no limit but the pool's
}

// New returns a Supply that does nothing before Run.
func New(o Options) *Supply {
	s := &Supply{
		Options: o, capacity: newCapacity(o), wished: kube.NewSignal(), called: kube.NewSignal(),
		pools: map[pool.Ref]*poolMemory{}, others: map[pool.Ref]elsewhere{}, leaving: map[string]bool{},
	}
	o.Shards.Follow(s.gained, s.lost)
	return s
}

// Run sends requests until ctx ends, and returns when the last one has ended. The collector
// finds a port that the SDN creates for a request which was cut off.
func (s *Supply) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { s.create(ctx) })
	both.Go(func() { s.lookUp(ctx) })
	both.Wait()
	return nil
}

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
	Room     Standing
	Keep     int // free ports to keep at most, as pods of other pools lack room; negative: no limit
}

// Snapshot returns what is known of a pool with this key (nil: unknown). It forgets failed lookups
// of ports that no pod names any more.
func (s *Supply) Snapshot(r pool.Ref, key *v1.PoolKey, named map[string]bool) (out Snapshot) {
	room := s.capacity.standing(key)
	s.with(r, func(p *poolMemory) {
		maps.DeleteFunc(p.notFound, func(id string, _ bool) bool { return !named[id] })
		if room.Scarce == nil {
			p.keep = -1
		}
		out = Snapshot{
			Unrecorded: maps.Clone(p.unrecorded), Restoring: maps.Clone(p.restoring), NotFound: maps.Clone(p.notFound),
			InFlight: p.inFlight, Asked: p.asked, Failure: p.failure, Hold: p.hold, Refilled: p.refilled,
			Room: room, Keep: p.keep,
		}
	})
	return out
}

// Planned is what a plan has decided about a pool.
type Planned struct {
	Key   *v1.PoolKey // nil: the pool gets no ports
	Free  int         // free ports that stay
	Lacks int         // pods without a port, and without one in flight
	Want  pool.Demand
	Batch int // ports of one request at most
	Asked int // Snapshot.Asked of the plan: ports requested since then are subtracted from Want
}

// RecordPlan notes a plan, on which other pools' plans depend, and replaces the pool's demand. It returns
// the failure that keeps the pool from ports now, or nil. If pods lack room, other pools give up free
// ports for those that did not lack it before.
func (s *Supply) RecordPlan(r pool.Ref, a Planned) (failure error) {
	now, room, more := time.Now(), s.capacity.standing(a.Key), 0
	s.with(r, func(p *poolMemory) {
		lacks := max(0, a.Lacks)
		more = lacks - p.waiting
		p.key, p.free, p.waiting = a.Key, a.Free, lacks
		if p.waiting > 0 && room.Full != nil && (p.failure == nil || p.hold.Before(room.Until)) {
			p.failure, p.hold = room.Full, room.Until
		}
		// No pod waits any more, so the failure does not matter now.
		if p.failure != nil && p.waiting == 0 && p.inFlight == 0 && a.Want == (pool.Demand{}) && !now.Before(p.hold) {
			p.failure, p.failures = nil, 0
		}
		failure = p.failure
		s.demand(r, p, a)
	})
	if room.Full != nil && more > 0 {
		s.reclaim(room.Full.Scope, more)
	}
	return failure
}
