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

// memory is what the planner of pools knows beyond the objects: the own writes that the cache
// does not show yet, and the Events that were written. It may be lost. Its methods are safe for
// concurrent use; no other lock is taken while mu is held.
type memory struct {
	mu     sync.Mutex
	pools  map[pool.Ref]*poolMemory
	claims map[v1.Claim]pool.Ref // pods that a write gives a port which the cache does not show yet
}

// poolMemory is what is known of one pool.
type poolMemory struct {
	writes    map[string]write // of KuryrPorts, which the cache does not show yet
	writtenAt time.Time        // the first of these

	pods   map[v1.Claim]*waitingPod
	known  map[types.UID]bool // pods that this process has seen, alive or gone
	idle   time.Time          // since when the pool is not needed; zero: it is needed
	status time.Time          // of the last write of its status
	levels pool.Count         // as last counted into the metrics

	reportedPool map[string]string // content of the last Event on the pool's object, by kind
}

// waitingPod is what is known of a pod that waits for a port.
type waitingPod struct {
	since    time.Time
	reported string      // reason of the last Event on it
	outcome  waitOutcome // how it was counted
}

// pod returns what is known of a waiting pod.
func (p *poolMemory) pod(c v1.Claim) *waitingPod {
	if p.pods[c] == nil {
		p.pods[c] = &waitingPod{}
	}
	return p.pods[c]
}

// waitOutcome is how a pod was counted in the metrics.
type waitOutcome int

const (
	miss waitOutcome = iota + 1 // the pod had to wait
	hit
)

// write is a write that the cache has to show: an object of this version or a later one, or no
// object if the version is empty.
type write struct {
	version string
	claim   v1.Claim
	unsure  bool // it ended with an error: the API server may or may not have done it
}

func newMemory() *memory {
	return &memory{pools: map[pool.Ref]*poolMemory{}, claims: map[v1.Claim]pool.Ref{}}
}

// with runs f on what is known of a pool.
func (m *memory) with(r pool.Ref, f func(*poolMemory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[r]
	if p == nil {
		p = &poolMemory{
			writes: map[string]write{}, pods: map[v1.Claim]*waitingPod{}, known: map[types.UID]bool{}, reportedPool: map[string]string{},
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

// forget drops the memory of a pool that does not exist any more.
func (m *memory) forget(r pool.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pools[r]; p != nil {
		gaugeLevels(p.levels, pool.Count{})
		delete(m.pools, r)
	}
}

// claim reserves a pod for a pool that is about to give it a port. It is false if another pool
// has claimed the pod. Two pools want one pod only after a change of settings.
func (m *memory) claim(c v1.Claim, r pool.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, taken := m.claims[c]; taken && other != r {
		return false
	}
	m.claims[c] = r
	return true
}

// unclaim ends a claim without a write.
func (m *memory) unclaim(c v1.Claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claims, c)
}

// claimed reports whether a pool other than r has claimed the pod.
func (m *memory) claimed(c v1.Claim, r pool.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	other, taken := m.claims[c]
	return taken && other != r
}

// wrote has the pool wait until the cache shows a write of a KuryrPort.
func (m *memory) wrote(r pool.Ref, name string, w write) {
	m.with(r, func(p *poolMemory) {
		if len(p.writes) == 0 {
			p.writtenAt = time.Now()
		}
		p.writes[name] = w
	})
}

// expectUnsure notes a write that ended with an error. The pool is not planned, and keeps
// its claim on the pod, until the API server was asked for the object.
func (m *memory) expectUnsure(r pool.Ref, name string, of v1.Claim) {
	m.wrote(r, name, write{claim: of, unsure: true})
}

// resolved replaces an unsure write by the API server's answer: the version of the object
// (empty if it does not exist), and the pod that has it.
func (m *memory) resolved(r pool.Ref, name, version string, of v1.Claim) write {
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

// pending returns the writes that the cache does not show yet, and the time of the first.
func (m *memory) pending(r pool.Ref) (writes map[string]write, since time.Time) {
	m.with(r, func(p *poolMemory) { writes, since = maps.Clone(p.writes), p.writtenAt })
	return writes, since
}

// shown notes that the cache shows a write.
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

// writing returns the KuryrPorts with writes that the cache may not show yet.
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

// forgetTold lets all Events be written again.
func (m *memory) forgetTold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		for _, pod := range p.pods {
			pod.reported = ""
		}
		clear(p.reportedPool)
	}
}

// staleAfter is how long the cache may take to show a write. After it, the API server is asked
// whether the object still exists.
const staleAfter = 10 * time.Second

// behind returns the longest wait until the cache shows the pool's last writes; zero if it
// shows them. A plan without them would bind or create a port twice. The events that show them
// requeue the pool.
func (r *Reconciler) behind(ctx context.Context, req pool.Ref) (time.Duration, error) {
	writes, since := r.memory.pending(req)
	for name, w := range writes {
		if w.unsure {
			var err error
			if w, err = r.resolve(ctx, req, name); err != nil {
				return 0, err
			}
		}
		shown, err := r.shows(ctx, r.client, name, w)
		if err != nil {
			return 0, err
		}
		if !shown && time.Since(since) >= staleAfter {
			// Written, and then deleted before the cache ever saw it?
			var port v1.KuryrPort
			err := r.live.Get(ctx, client.ObjectKey{Name: name}, &port)
			if client.IgnoreNotFound(err) != nil {
				return 0, fmt.Errorf("checking whether KuryrPort %s still exists: %w", name, err)
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
	return max(staleAfter-time.Since(since), time.Second), nil
}

// resolve asks the API server for a KuryrPort after a write that ended with an error. The write
// may have been done in spite of any error: a conflict or an existing object, too, may come
// from an earlier attempt of the same request.
func (r *Reconciler) resolve(ctx context.Context, req pool.Ref, name string) (write, error) {
	var port v1.KuryrPort
	err := r.live.Get(ctx, client.ObjectKey{Name: name}, &port)
	if client.IgnoreNotFound(err) != nil {
		return write{}, fmt.Errorf("reading KuryrPort %s after a write: %w", name, err)
	}
	holder := port.Spec.PodRef.Claim()
	was, _ := r.memory.pending(req)
	if c := was[name].claim; !c.IsZero() && c == holder {
		r.memory.with(req, func(p *poolMemory) { p.serve(c, time.Now()) })
	}
	w := r.memory.resolved(req, name, port.ResourceVersion, holder)
	if w.version != "" { // without an object the port is unrecorded as before
		r.Supply.Recorded(req, name)
	}
	return w, nil
}

// shows reports whether a reader shows a write.
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
