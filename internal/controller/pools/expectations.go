// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// memory is what the planner of pools expects and has told, beyond the objects. All of
// it may be lost: everything is seen again. Its methods are safe for concurrent use; no
// other lock is taken while mu is held.
type memory struct {
	now func() time.Time

	mu     sync.Mutex
	pools  map[pool.Ref]*poolMemory
	claims map[v1.Claim]pool.Ref // pods given a port that the cache does not show yet
}

// poolMemory is what is known of one pool.
type poolMemory struct {
	writes    map[string]write // of KuryrPorts, that the cache has not shown yet
	writtenAt time.Time        // the first of these

	seen   map[v1.Claim]time.Time // pods that wait, since when
	known  map[types.UID]bool     // pods that this process has seen alive
	told   map[v1.Claim]string    // reason that a waiting pod was told
	idle   time.Time              // since when nobody needs the pool
	status time.Time              // of the last write of its status
	levels pool.Count             // as last counted into the metrics

	lot      map[v1.Claim]lot  // pods that wait: how they have been counted
	toldPool map[string]string // what the pool's object was told, by kind
}

// lot is how a waiting pod has been counted in the metrics.
type lot int

const (
	missed lot = iota + 1 // it found no port
	served
)

// write is a write that the cache is to show: the object at this version or a
// later one, or, if it is empty, no object.
type write struct {
	version string
	claim   v1.Claim
	unsure  bool // it was not answered, or with an error: it may have been carried out or not
}

func newMemory(now func() time.Time) *memory {
	return &memory{now: now, pools: map[pool.Ref]*poolMemory{}, claims: map[v1.Claim]pool.Ref{}}
}

// with runs f on what is known of a pool.
func (m *memory) with(r pool.Ref, f func(*poolMemory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[r]
	if p == nil {
		p = &poolMemory{
			writes: map[string]write{}, seen: map[v1.Claim]time.Time{}, known: map[types.UID]bool{}, told: map[v1.Claim]string{},
			lot: map[v1.Claim]lot{}, toldPool: map[string]string{},
		}
		m.pools[r] = p
	}
	f(p)
}

// awaits reports whether the cache has yet to show writes of the pool.
func (m *memory) awaits(r pool.Ref) (is bool) {
	m.with(r, func(p *poolMemory) { is = len(p.writes) > 0 })
	return is
}

// knows reports whether the pool has been planned, and is not forgotten.
func (m *memory) knows(r pool.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools[r] != nil
}

// forget drops what is known of a pool that is no more.
func (m *memory) forget(r pool.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pools[r]; p != nil {
		gaugeLevels(p.levels, pool.Count{})
		delete(m.pools, r)
	}
}

// claim reserves a pod for a pool that is about to give it a port; false if
// another pool has done so. Only a change of settings lets two pools want one pod.
func (m *memory) claim(c v1.Claim, r pool.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, taken := m.claims[c]; taken && other != r {
		return false
	}
	m.claims[c] = r
	return true
}

// unclaim is claim undone: nothing was written.
func (m *memory) unclaim(c v1.Claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claims, c)
}

// claimed reports whether a pool other than r gives the pod a port.
func (m *memory) claimed(c v1.Claim, r pool.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	other, taken := m.claims[c]
	return taken && other != r
}

// wrote expects the cache to show a write of a KuryrPort.
func (m *memory) wrote(r pool.Ref, name string, w write) {
	m.with(r, func(p *poolMemory) {
		if len(p.writes) == 0 {
			p.writtenAt = m.now()
		}
		p.writes[name] = w
	})
}

// doubts expects a write for pod that ended with an error to be looked after:
// nothing is planned in the pool, and the claim on the pod holds, until the API
// server has said what there is.
func (m *memory) doubts(r pool.Ref, name string, of v1.Claim) {
	m.with(r, func(p *poolMemory) {
		if len(p.writes) == 0 {
			p.writtenAt = m.now()
		}
		p.writes[name] = write{claim: of, unsure: true}
	})
}

// settled ends a doubt: the API server has the object at this version and bound
// to this pod or to none, or, if version is empty, it has none.
func (m *memory) settled(r pool.Ref, name, version string, of v1.Claim) write {
	w := write{version: version, claim: of}
	m.with(r, func(p *poolMemory) {
		if was := p.writes[name].claim; !was.IsZero() && was != of && m.claims[was] == r {
			delete(m.claims, was)
		}
		if _, taken := m.claims[of]; !of.IsZero() && !taken {
			m.claims[of] = r
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
		if c := p.writes[name].claim; !c.IsZero() && m.claims[c] == r {
			delete(m.claims, c)
		}
		delete(p.writes, name)
	})
}

// saw reports whether this process has seen the pod of a pool's port, alive or gone.
func (m *memory) saw(r pool.Ref, uid types.UID) (is bool) {
	m.with(r, func(p *poolMemory) { is = p.known[uid] })
	return is
}

// writing returns the KuryrPorts that are written and that the cache may not show yet.
func (m *memory) writing() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		for name := range p.writes {
			names = append(names, name)
		}
	}
	return names
}

// forgive lets everything be told again.
func (m *memory) forgive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		clear(p.told)
		clear(p.toldPool)
	}
}

// staleAfter is how long the cache may take to show a write before the API
// server is asked whether there is still something to wait for.
const staleAfter = 10 * time.Second

// behind returns how long to wait at most for the cache to show the pool's own
// last writes: planned without them, a port would be bound or made twice. The
// events that show them come here, so nothing is lost by waiting.
func (r *Reconciler) behind(ctx context.Context, req pool.Ref) (time.Duration, error) {
	writes, since := r.memory.pending(req)
	for name, w := range writes {
		if w.unsure {
			var err error
			if w, err = r.settle(ctx, req, name); err != nil {
				return 0, err
			}
		}
		shown, err := r.shows(ctx, r.client, name, w)
		if err != nil {
			return 0, err
		}
		if !shown && r.Now().Sub(since) >= staleAfter {
			// Written, and then deleted before the cache ever saw it?
			var port v1.KuryrPort
			err := r.live.Get(ctx, client.ObjectKey{Name: name}, &port)
			if client.IgnoreNotFound(err) != nil {
				return 0, fmt.Errorf("looking whether KuryrPort %s is still there: %w", name, err)
			}
			shown = apierrors.IsNotFound(err)
		}
		if shown {
			r.memory.shown(req, name)
			delete(writes, name)
		}
	}
	if len(writes) == 0 {
		return 0, nil
	}
	return max(staleAfter-r.Now().Sub(since), time.Second), nil
}

// settle asks the API server what there is of a KuryrPort after a write that
// ended with an error. Any error may hide a write that was carried out: also a
// conflict or an object that exists already may be that of an earlier try.
func (r *Reconciler) settle(ctx context.Context, req pool.Ref, name string) (write, error) {
	var port v1.KuryrPort
	err := r.live.Get(ctx, client.ObjectKey{Name: name}, &port)
	if client.IgnoreNotFound(err) != nil {
		return write{}, fmt.Errorf("looking what became of KuryrPort %s: %w", name, err)
	}
	holder := port.Spec.PodRef.Claim()
	was, _ := r.memory.pending(req)
	if c := was[name].claim; !c.IsZero() && c == holder {
		r.memory.with(req, func(p *poolMemory) { p.serve(c, r.Now()) })
	}
	w := r.memory.settled(req, name, port.ResourceVersion, holder)
	if w.version != "" { // else the port that it was to be the object of has still arrived
		r.Supply.Recorded(req, name)
	}
	return w, nil
}

// shows reports whether a write is to be seen in what reader reads.
func (r *Reconciler) shows(ctx context.Context, reader client.Reader, name string, w write) (bool, error) {
	var port v1.KuryrPort
	err := reader.Get(ctx, client.ObjectKey{Name: name}, &port, kube.ReadOnly)
	switch {
	case apierrors.IsNotFound(err):
		return w.version == "", nil
	case err != nil:
		return false, fmt.Errorf("reading KuryrPort %s: %w", name, err)
	case w.version == "":
		return !port.DeletionTimestamp.IsZero(), nil
	}
	return !kube.Older(port.ResourceVersion, w.version), nil
}
