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

// memory is what the process knows of the ports that pools get, beyond the objects.
// All of it may be lost. Its methods are safe for concurrent use.
type memory struct {
	backoff outcome.Backoff
	now     func() time.Time
	freed   func(pool.Ref) // wakes a pool that may try again

	capacity *capacity

	mu      sync.Mutex
	pools   map[pool.Ref]*poolMemory
	leaving map[string]bool // ports without object that are about to be deleted
}

// poolMemory is what is known of one pool.
type poolMemory struct {
	arrived   map[string]Arrival
	inFlight  int
	asked     int // ports asked for, ever
	restoring map[string]bool
	vain      map[string]bool // ports looked up that are not there for whom asked

	failure  error // of the last request, nil after a success
	failures int   // in a row
	episode  int   // how often a failure has ended
	hold     time.Time
	refilled time.Time

	key      *v1.PoolKey // as last planned with; nil: not yet, or nothing says it
	free     int         // ports that are free and fit, as last planned
	lacking  int         // pods that wait and that nothing is under way for
	squeeze  int         // free ports to give up
	squeezed sdn.Scope   // for pods that lack room there
}

// Arrival is a port that the SDN has made or shown and that is no object yet.
type Arrival struct {
	Port sdn.Port
	Pod  v1.Claim // that it was looked up for; zero if it was made
}

func newMemory(o Options) *memory {
	return &memory{
		backoff: o.Backoff, now: o.Now, freed: o.Requeue, capacity: newCapacity(o),
		pools: map[pool.Ref]*poolMemory{}, leaving: map[string]bool{},
	}
}

// with runs f on what is known of a pool.
func (m *memory) with(r pool.Ref, f func(*poolMemory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[r]
	if p == nil {
		p = &poolMemory{arrived: map[string]Arrival{}, restoring: map[string]bool{}, vain: map[string]bool{}}
		m.pools[r] = p
	}
	f(p)
}

// forget drops what is known of a pool that is no more, unless something is
// still under way for it, and reports whether it is dropped.
func (m *memory) forget(r pool.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[r]
	if p != nil && (p.inFlight > 0 || len(p.arrived)+len(p.restoring) > 0) {
		return false
	}
	delete(m.pools, r)
	return true
}

// begun counts ports asked for.
func (m *memory) begun(r pool.Ref, n int) {
	m.with(r, func(p *poolMemory) { p.inFlight, p.asked = p.inFlight+n, p.asked+n })
	creationsInFlight.Add(float64(n))
}

// askedSince returns how many ports the pool was asked for since it had been
// asked for so many, ever.
func (m *memory) askedSince(r pool.Ref, asked int) (n int) {
	m.with(r, func(p *poolMemory) { n = p.asked - asked })
	return n
}

// admit returns for how many ports of n a request may be sent now, and takes
// room for them; 0 if the pool is to leave the SDN alone for a while.
func (m *memory) admit(r pool.Ref, key *v1.PoolKey, n int) (admitted int) {
	m.with(r, func(p *poolMemory) {
		if !m.now().Before(p.hold) {
			admitted = m.capacity.admit(key, n)
		}
	})
	return admitted
}

// unasked takes back that n ports were asked for.
func (m *memory) unasked(r pool.Ref, n int) {
	m.with(r, func(p *poolMemory) { p.inFlight -= n })
	creationsInFlight.Add(-float64(n))
}

// ended keeps what a request for n ports has brought, port and error alike.
func (m *memory) ended(r pool.Ref, n int, made []sdn.Port, err error) {
	creationsInFlight.Add(-float64(n))
	m.with(r, func(p *poolMemory) {
		p.inFlight -= n
		for _, port := range made {
			p.arrived[port.ID] = Arrival{Port: port}
		}
		if len(made) > 0 {
			p.refilled, p.failures = m.now(), 0
		}
		m.result(p, err)
	})
}

// result notes how a call to the SDN for p went.
func (m *memory) result(p *poolMemory, err error) {
	if err == nil {
		p.failure, p.failures, p.hold = nil, 0, time.Time{}
		p.episode++
		return
	}
	p.failures++
	p.failure = err
	p.hold = m.now().Add(m.backoff.Delay(err, p.failures))
}

// found ends the looking up of a port that a pod had: nil if it is not there.
func (m *memory) found(r pool.Ref, id string, of v1.Claim, port *sdn.Port, err error) {
	m.with(r, func(p *poolMemory) {
		delete(p.restoring, id)
		switch {
		case err != nil:
			m.result(p, err)
		case port == nil || m.holdsArrived(id):
			p.vain[id] = true
		default:
			p.arrived[id] = Arrival{Port: *port, Pod: of}
		}
	})
}

// lookedUp reports whether a port is being looked up for the pool, or has been.
func (m *memory) lookedUp(r pool.Ref, id string) (is bool) {
	m.with(r, func(p *poolMemory) {
		_, found := p.arrived[id]
		is = found || p.restoring[id] || p.vain[id]
	})
	return is
}

func (m *memory) holdsArrived(id string) bool {
	for _, p := range m.pools {
		if _, ok := p.arrived[id]; ok {
			return true
		}
	}
	return false
}

// discard takes arrived ports out, to be deleted.
func (m *memory) discard(r pool.Ref, ids []string) {
	m.with(r, func(p *poolMemory) {
		for _, id := range ids {
			delete(p.arrived, id)
		}
	})
}

// leave notes that ports are about to be deleted: they are not to be had.
func (m *memory) leave(ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.leaving[id] = true
	}
}

// left ends that, however it went.
func (m *memory) left(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leaving, id)
}

// knows reports which ports are somebody's although no object says so, and
// which pools have requests under way that may have made some.
func (m *memory) knows() (ports map[string]bool, busy map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ports, busy = maps.Clone(m.leaving), map[string]bool{}
	for r, p := range m.pools {
		for id := range p.arrived {
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

// forgive lets all pools ask at once, whatever went wrong before.
func (m *memory) forgive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity.forgive()
	for _, p := range m.pools {
		p.failures, p.hold = 0, time.Time{}
	}
}

// portFreed notes that a port of a pool is gone (of one that is not known if r
// is zero), and lets the pool that has lacked room longest try again, if it may
// be the room that it lacks: room for one port lets one in, not all.
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
		if lacksRoom(p.failure, key) && m.now().Before(p.hold) && (chosen == nil || p.hold.Before(chosen.hold)) {
			next, chosen = r, p
		}
	}
	if chosen != nil {
		chosen.hold = time.Time{}
	}
	m.mu.Unlock()
	if chosen != nil {
		m.freed(next)
	}
}

// lacksRoom reports whether what a port of this key has freed, or any port if it
// is nil, may be what err lacks.
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
			n += p.lacking
		}
	}
	return n
}

// takes reports whether the pool's ports take room of one of these scopes.
func (p *poolMemory) takes(in []sdn.Scope) bool {
	return p.key != nil && slices.ContainsFunc(scopes(p.key), func(s sdn.Scope) bool { return slices.Contains(in, s) })
}

// squeeze has pools without waiting pods give up free ports, as many as pods
// wait for in a full scope, and returns these pools. Those with most give first.
func (m *memory) squeeze(s sdn.Scope) (idle []pool.Ref) {
	in := []sdn.Scope{s}
	n := m.capacity.missing(s, m.waiting(in))
	if n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, p := range m.pools {
		if p.takes(in) && p.lacking == 0 && p.free > p.squeeze {
			idle = append(idle, r)
		}
	}
	slices.SortFunc(idle, func(a, b pool.Ref) int {
		return cmp.Or(cmp.Compare(m.pools[b].free, m.pools[a].free), a.Compare(b))
	})
	for i, r := range idle {
		p := m.pools[r]
		part := min(n, p.free-p.squeeze)
		p.squeeze, p.squeezed, n = p.squeeze+part, s, n-part
		m.capacity.expect(s, part)
		if n == 0 {
			return idle[:i+1]
		}
	}
	return idle
}
