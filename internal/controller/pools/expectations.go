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
	claims map[v1.Claim]pool.Ref // pods that a plan may give a port which the cache does not show yet
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

	// content of the last Event, by its kind or by the UID of a waiting pod
	reported map[string]string
}

// waitingPod is a pod of the last plan without a port.
type waitingPod struct {
	since  time.Time
	missed bool // a plan had no port for it
}

// served counts a pod that got its port, and returns how long it has waited.
func (p *poolMemory) served(c v1.Claim) (took time.Duration) {
	pod := p.pods[c]
	if pod == nil {
		return 0
	}
	delete(p.pods, c)
	took = time.Since(pod.since)
	if !pod.missed {
		poolHits.Inc()
		return took
	}
	poolMisses.Inc()
	poolWaitSeconds.Observe(took.Seconds())
	return took
}

// write is a write that the cache has to show: an object of this version or a later one, or no
// object if the version is empty.
type write struct {
	version string
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
			writes: map[string]write{}, pods: map[v1.Claim]*waitingPod{}, known: map[types.UID]bool{}, reported: map[string]string{},
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

// forget drops the memory of a pool that does not exist any more.
func (m *memory) forget(r pool.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pools[r]; p != nil {
		gaugeLevels(p.levels, pool.Count{})
		delete(m.pools, r)
	}
}

// claim claims the waiting pods of a pool, and no others, until release. It returns those that
// another pool has claimed. Two pools want one pod only after a change of settings.
func (m *memory) claim(r pool.Ref, pods []pool.Pod) (theirs map[v1.Claim]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(r)
	theirs = map[v1.Claim]bool{}
	for i := range pods {
		c := pods[i].Ref.Claim()
		if _, taken := m.claims[c]; taken {
			theirs[c] = true
		} else {
			m.claims[c] = r
		}
	}
	return theirs
}

// release ends the claims of a pool, unless its writes are not shown yet: then its next plan does.
func (m *memory) release(r pool.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pools[r]; p == nil || len(p.writes) == 0 {
		m.drop(r)
	}
}

// drop ends all claims of a pool. m.mu is held.
func (m *memory) drop(r pool.Ref) {
	maps.DeleteFunc(m.claims, func(_ v1.Claim, other pool.Ref) bool { return other == r })
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
// its claims, until the API server was asked for the object.
func (m *memory) expectUnsure(r pool.Ref, name string) { m.wrote(r, name, write{unsure: true}) }

// pending returns the writes that the cache does not show yet, and the time of the first.
func (m *memory) pending(r pool.Ref) (writes map[string]write, since time.Time) {
	m.with(r, func(p *poolMemory) { writes, since = maps.Clone(p.writes), p.writtenAt })
	return writes, since
}

// shown notes that the cache shows a write.
func (m *memory) shown(r pool.Ref, name string) {
	m.with(r, func(p *poolMemory) { delete(p.writes, name) })
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
		clear(p.reported)
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
		// Was the object written, and then deleted before the cache ever saw it?
		if w.unsure || time.Since(since) >= staleAfter {
			var err error
			if w, err = r.resolve(ctx, req, name); err != nil {
				return 0, err
			}
		}
		shown, err := r.shows(ctx, r.client, name, w)
		if err != nil {
			return 0, err
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

// resolve asks the API server for a KuryrPort after a write that ended with an error, or that the
// cache does not show. The write may have been done in spite of any error: a conflict or an existing
// object, too, may come from an earlier attempt of the same request.
func (r *Reconciler) resolve(ctx context.Context, req pool.Ref, name string) (write, error) {
	var port v1.KuryrPort
	err := r.live.Get(ctx, client.ObjectKey{Name: name}, &port)
	if client.IgnoreNotFound(err) != nil {
		return write{}, fmt.Errorf("reading KuryrPort %s after a write: %w", name, err)
	}
	w := write{version: port.ResourceVersion} // empty without an object
	r.memory.with(req, func(p *poolMemory) {
		p.writes[name] = w
		p.served(port.Spec.PodRef.Claim())
	})
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
