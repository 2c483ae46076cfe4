// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// memory is what the process knows beyond the objects. All of it may be lost:
// see the package comment. Its methods are safe for concurrent use.
type memory struct {
	backoff outcome.Backoff
	now     func() time.Time
	freed   func(pool.Ref) // wakes a pool that may try again
	// doubtful is told that there may be a port that nobody knows of.
	doubtful func()

	capacity *capacity

	mu      sync.Mutex
	pools   map[pool.Ref]*poolMemory
	claims  map[types.UID]pool.Ref // pods given a port that the cache does not show yet
	gone    map[string]bool        // ports that the SDN has lost
	leaving map[string]bool        // ports without object that are about to be deleted
	active  map[string]bool        // ports that wait for the SDN to pass their traffic: whether it does
}

// poolMemory is what is known of one pool.
type poolMemory struct {
	arrived   map[string]arrival
	inFlight  int
	asked     int // ports asked for, ever
	restoring map[string]bool
	vain      map[string]bool // ports looked up that are not there for whom asked

	failure  error // of the last request, nil after a success
	failures int   // in a row
	hold     time.Time
	refilled time.Time

	writes    map[string]write // of KuryrPorts, that the cache has not shown yet
	writtenAt time.Time        // the first of these

	seen   map[types.UID]time.Time // pods that wait, since when
	known  map[types.UID]bool      // pods that this process has seen alive
	told   map[types.UID]string    // reason that a waiting pod was told
	idle   time.Time               // since when nobody needs the pool
	status time.Time               // of the last write of its status
	levels pool.Count              // as last counted into the metrics

	key      *v1.PoolKey       // as last planned with; nil: not yet, or nothing says it
	free     int               // ports that are free and fit, as last planned
	lacking  int               // pods that wait and that nothing is under way for
	lot      map[types.UID]lot // pods that wait: how they have been counted
	squeeze  int               // free ports to give up
	squeezed sdn.Scope         // for pods that lack room there
	toldPool map[string]string // what the pool's object was told, by kind
}

// lot is how a waiting pod has been counted in the metrics.
type lot int

const (
	missed lot = iota + 1 // it found no port
	served
)

type arrival struct {
	port sdn.Port
	pod  types.UID
}

// write is a write that the cache is to show: the object at this version or a
// later one, or, if it is empty, no object.
type write struct {
	version string
	pod     types.UID
	unsure  bool // it was not answered, or with an error: it may have been carried out or not
}

func newMemory(o Options) *memory {
	return &memory{
		backoff: o.Backoff, now: o.Now, capacity: newCapacity(o), doubtful: func() {},
		pools: map[pool.Ref]*poolMemory{}, claims: map[types.UID]pool.Ref{},
		gone: map[string]bool{}, leaving: map[string]bool{}, active: map[string]bool{},
	}
}

// with runs f on what is known of a pool.
func (m *memory) with(r pool.Ref, f func(*poolMemory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[r]
	if p == nil {
		p = &poolMemory{
			arrived: map[string]arrival{}, restoring: map[string]bool{}, vain: map[string]bool{},
			writes: map[string]write{}, seen: map[types.UID]time.Time{}, known: map[types.UID]bool{}, told: map[types.UID]string{},
			lot: map[types.UID]lot{}, toldPool: map[string]string{},
		}
		m.pools[r] = p
	}
	f(p)
}

// forget drops what is known of a pool that is no more, unless something is
// still under way for it.
func (m *memory) forget(r pool.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[r]
	if p != nil && p.inFlight == 0 && len(p.arrived)+len(p.restoring)+len(p.writes) == 0 {
		gaugeLevels(p.levels, pool.Count{})
		delete(m.pools, r)
	}
}

// claim reserves a pod for a pool that is about to give it a port; false if
// another pool has done so. Only a change of settings lets two pools want one pod.
func (m *memory) claim(uid types.UID, r pool.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, taken := m.claims[uid]; taken && other != r {
		return false
	}
	m.claims[uid] = r
	return true
}

// unclaim is claim undone: nothing was written.
func (m *memory) unclaim(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claims, uid)
}

// claimed reports whether a pool other than r gives the pod a port.
func (m *memory) claimed(uid types.UID, r pool.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	other, taken := m.claims[uid]
	return taken && other != r
}

// wrote expects the cache to show a write of a KuryrPort.
func (m *memory) wrote(r pool.Ref, name string, w write) {
	m.with(r, func(p *poolMemory) {
		if len(p.writes) == 0 {
			p.writtenAt = m.now()
		}
		p.writes[name] = w
		delete(p.arrived, name)
	})
}

// doubts expects a write for pod that ended with an error to be looked after:
// nothing is planned in the pool, and the claim on the pod holds, until the API
// server has said what there is.
func (m *memory) doubts(r pool.Ref, name string, pod types.UID) {
	m.with(r, func(p *poolMemory) {
		if len(p.writes) == 0 {
			p.writtenAt = m.now()
		}
		p.writes[name] = write{pod: pod, unsure: true}
	})
}

// settled ends a doubt: the API server has the object at this version and bound
// to this pod or to none, or, if version is empty, it has none. Then the port
// that it was to be the object of is still one that has arrived.
func (m *memory) settled(r pool.Ref, name, version string, pod types.UID) write {
	w := write{version: version, pod: pod}
	m.with(r, func(p *poolMemory) {
		if was := p.writes[name].pod; was != "" && was != pod && m.claims[was] == r {
			delete(m.claims, was)
		}
		if _, taken := m.claims[pod]; pod != "" && !taken {
			m.claims[pod] = r
		}
		if version != "" {
			delete(p.arrived, name)
		}
		p.writes[name] = w
	})
	return w
}

// pending returns the writes that the cache has yet to show, and since when.
func (m *memory) pending(r pool.Ref) (writes map[string]write, since time.Time) {
	m.with(r, func(p *poolMemory) { writes, since = maps.Clone(p.writes), p.writtenAt })
	return writes, since
}

// shown ends the waiting for a write.
func (m *memory) shown(r pool.Ref, name string) {
	m.with(r, func(p *poolMemory) {
		if uid := p.writes[name].pod; uid != "" && m.claims[uid] == r {
			delete(m.claims, uid)
		}
		delete(p.writes, name)
	})
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
			p.arrived[port.ID] = arrival{port: port}
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
		delete(p.toldPool, toldFailure)
		return
	}
	p.failures++
	p.failure = err
	p.hold = m.now().Add(m.backoff.Delay(err, p.failures))
}

// found ends the looking up of a port that a pod had: nil if it is not there.
func (m *memory) found(r pool.Ref, id string, uid types.UID, port *sdn.Port, err error) {
	m.with(r, func(p *poolMemory) {
		delete(p.restoring, id)
		switch {
		case err != nil:
			m.result(p, err)
		case port == nil || m.holdsArrived(id):
			p.vain[id] = true
		default:
			p.arrived[id] = arrival{port: *port, pod: uid}
		}
	})
}

// saw reports whether this process has seen the pod of a pool's port, alive or gone.
func (m *memory) saw(r pool.Ref, uid types.UID) (is bool) {
	m.with(r, func(p *poolMemory) { is = p.known[uid] })
	return is
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
		for id := range p.writes {
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
		clear(p.told)
		clear(p.toldPool)
	}
}
