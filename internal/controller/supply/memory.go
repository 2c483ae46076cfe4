// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// memory is what the process knows of pools beyond the objects. It may be lost. Its methods are
// safe for concurrent use.
type memory struct {
	backoff outcome.Backoff
	queue   planQueue

	capacity *capacity

	mu      sync.Mutex
	pools   map[pool.Ref]*poolMemory
	leaving map[string]bool // ports without an object that are about to be deleted
}

// poolMemory is what is known of one pool.
type poolMemory struct {
	unrecorded map[string]Unrecorded
	inFlight   int
	asked      int // ports of all requests ever
	restoring  map[string]bool
	notFound   map[string]bool // ports that a lookup has not found, or not for this pod

	failure  error // of the last request, nil after a success
	failures int   // in a row
	episode  int   // how often a failure has ended
	hold     time.Time
	refilled time.Time

	key        *v1.PoolKey // of the last plan; nil: none, or unknown
	free       int         // free ports that fit, by the last plan
	waiting    int         // pods without a port, and without one in flight
	reclaim    int         // free ports to give up
	reclaimFor sdn.Scope   // where pods of other pools lack room
}

// Unrecorded is a port without an object yet: the SDN has created it, or a lookup has found it.
type Unrecorded struct {
	Port sdn.Port
	Pod  v1.Claim // the pod of the lookup; zero if the port was created
}

func newMemory(o Options) *memory {
	return &memory{
		backoff: o.Backoff, queue: o.Queue, capacity: newCapacity(o),
		pools: map[pool.Ref]*poolMemory{}, leaving: map[string]bool{},
	}
}

// with runs f on what is known of a pool.
func (m *memory) with(r pool.Ref, f func(*poolMemory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[r]
	if p == nil {
		p = &poolMemory{unrecorded: map[string]Unrecorded{}, restoring: map[string]bool{}, notFound: map[string]bool{}}
		m.pools[r] = p
	}
	f(p)
}

// forget drops the memory of a deleted pool, unless a request for it is in flight. It reports
// whether it did.
func (m *memory) forget(r pool.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[r]
	if p != nil && (p.inFlight > 0 || len(p.unrecorded)+len(p.restoring) > 0) {
		return false
	}
	delete(m.pools, r)
	return true
}

// begun counts the ports of a request.
func (m *memory) begun(r pool.Ref, n int) {
	m.with(r, func(p *poolMemory) { p.inFlight, p.asked = p.inFlight+n, p.asked+n })
	creationsInFlight.Add(float64(n))
}

// askedSince returns how many ports were requested for the pool since their number was asked.
func (m *memory) askedSince(r pool.Ref, asked int) (n int) {
	m.with(r, func(p *poolMemory) { n = p.asked - asked })
	return n
}

// admit returns for how many of n ports a request may be sent now, and takes room for them. It
// returns 0 during the pool's backoff.
func (m *memory) admit(r pool.Ref, key *v1.PoolKey, n int) (admitted int) {
	m.with(r, func(p *poolMemory) {
		if !time.Now().Before(p.hold) {
			admitted = m.capacity.admit(key, n)
		}
	})
	return admitted
}

// unasked subtracts n ports from a request that was counted.
func (m *memory) unasked(r pool.Ref, n int) {
	m.with(r, func(p *poolMemory) { p.inFlight -= n })
	creationsInFlight.Add(-float64(n))
}

// ended keeps the result of a request for n ports: ports and error.
func (m *memory) ended(r pool.Ref, n int, made []sdn.Port, err error) {
	creationsInFlight.Add(-float64(n))
	m.with(r, func(p *poolMemory) {
		p.inFlight -= n
		for _, port := range made {
			p.unrecorded[port.ID] = Unrecorded{Port: port}
		}
		if len(made) > 0 {
			p.refilled, p.failures = time.Now(), 0
		}
		m.result(p, err)
	})
}

// result notes the result of a request for p.
func (m *memory) result(p *poolMemory, err error) {
	if err == nil {
		p.failure, p.failures, p.hold = nil, 0, time.Time{}
		p.episode++
		return
	}
	p.failures++
	p.failure = err
	p.hold = time.Now().Add(m.backoff.Delay(err, p.failures))
}

// found ends the lookup of a port that a pod had. port is nil if it does not exist.
func (m *memory) found(r pool.Ref, id string, of v1.Claim, port *sdn.Port, err error) {
	m.with(r, func(p *poolMemory) {
		delete(p.restoring, id)
		switch {
		case err != nil:
			m.result(p, err)
		case port == nil || m.holdsUnrecorded(id):
			p.notFound[id] = true
		default:
			p.unrecorded[id] = Unrecorded{Port: *port, Pod: of}
		}
	})
}

// lookedUp reports whether the lookup of a port for the pool has begun or has ended.
func (m *memory) lookedUp(r pool.Ref, id string) (is bool) {
	m.with(r, func(p *poolMemory) {
		_, found := p.unrecorded[id]
		is = found || p.restoring[id] || p.notFound[id]
	})
	return is
}

func (m *memory) holdsUnrecorded(id string) bool {
	for _, p := range m.pools {
		if _, ok := p.unrecorded[id]; ok {
			return true
		}
	}
	return false
}

// discard forgets unrecorded ports.
func (m *memory) discard(r pool.Ref, ids []string) {
	m.with(r, func(p *poolMemory) {
		for _, id := range ids {
			delete(p.unrecorded, id)
		}
	})
}

// leave notes that ports are about to be deleted: no pool gets them.
func (m *memory) leave(ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.leaving[id] = true
	}
}

// left notes the end of a deletion, with or without success.
func (m *memory) left(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leaving, id)
}

// knows returns the ports that are in use without an object, and the pools with requests in
// flight, which may have created ports.
func (m *memory) knows() (ports map[string]bool, busy map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ports, busy = maps.Clone(m.leaving), map[string]bool{}
	for r, p := range m.pools {
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

// resetBackoff lets all pools send requests at once, whatever has failed before.
func (m *memory) resetBackoff() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity.resetBackoff()
	for _, p := range m.pools {
		p.failures, p.hold = 0, time.Time{}
	}
}

// portFreed notes the deletion of a port of a pool (of an unknown one if r is zero). The room
// for one port lets one pool try again. It is the one that has lacked room longest, of those
// that may lack exactly this room.
func (m *memory) portFreed(r pool.Ref) {
	m.mu.Lock()
	var key *v1.PoolKey
	if p := m.pools[r]; p != nil {
		key = p.key
	}
	m.capacity.freed(key)
	var next pool.Ref
	var chosen *poolMemory
	for _, r := range slices.SortedFunc(maps.Keys(m.pools), pool.Ref.Compare) {
		p := m.pools[r]
		if lacksRoom(p.failure, key) && time.Now().Before(p.hold) && (chosen == nil || p.hold.Before(chosen.hold)) {
			next, chosen = r, p
		}
	}
	if chosen != nil {
		chosen.hold = time.Time{}
	}
	m.mu.Unlock()
	if chosen != nil {
		m.queue.Add(next)
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

// waiting counts the pods of all pools that wait for room in one of these scopes.
func (m *memory) waiting(in []sdn.Scope) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		if p.takes(in) {
			n += p.waiting
		}
	}
	return n
}

// takes reports whether the pool's ports take room of one of these scopes.
func (p *poolMemory) takes(in []sdn.Scope) bool {
	return p.key != nil && slices.ContainsFunc(scopes(p.key), func(s sdn.Scope) bool { return slices.Contains(in, s) })
}

// reclaim has pools without waiting pods give up free ports: as many as pods wait for in a full
// scope. It returns these pools. The pools with the most free ports come first.
func (m *memory) reclaim(s sdn.Scope) (idle []pool.Ref) {
	in := []sdn.Scope{s}
	n := m.capacity.missing(s, m.waiting(in))
	if n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, p := range m.pools {
		if p.takes(in) && p.waiting == 0 && p.free > p.reclaim {
			idle = append(idle, r)
		}
	}
	slices.SortFunc(idle, func(a, b pool.Ref) int {
		return cmp.Or(cmp.Compare(m.pools[b].free, m.pools[a].free), a.Compare(b))
	})
	for i, r := range idle {
		p := m.pools[r]
		part := min(n, p.free-p.reclaim)
		p.reclaim, p.reclaimFor, n = p.reclaim+part, s, n-part
		m.capacity.expect(s, part)
		if n == 0 {
			return idle[:i+1]
		}
	}
	return idle
}
