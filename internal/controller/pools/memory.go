// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// memory is what the planner of pools knows beyond the objects: how long pods wait, and the Events
// that were written. It may be lost. Its methods are safe for concurrent use; no other lock is taken
// while mu is held.
type memory struct {
	mu    sync.Mutex
	pools map[pool.Ref]*poolMemory
}

// poolMemory is what is known of one pool.
type poolMemory struct {
	pods   map[v1.Claim]*waitingPod
	known  map[types.UID]bool // pods that this process has seen, alive or gone
	idle   time.Time          // since when the pool is not needed; zero: it is needed
	status time.Time          // of the last write of its status
	levels pool.Count         // as last counted into the metrics
	event  kube.Signal        // the cache shows a change of one of its KuryrPorts

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

func newMemory() *memory {
	return &memory{pools: map[pool.Ref]*poolMemory{}}
}

// with runs f on what is known of a pool.
func (m *memory) with(r pool.Ref, f func(*poolMemory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[r]
	if p == nil {
		p = &poolMemory{
			pods: map[v1.Claim]*waitingPod{}, known: map[types.UID]bool{}, reported: map[string]string{}, event: kube.NewSignal(),
		}
		m.pools[r] = p
	}
	f(p)
}

// forget drops the memory of a pool that does not exist any more.
func (m *memory) forget(r pool.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pools[r]; p != nil {
		p.gauge(pool.Count{})
		delete(m.pools, r)
	}
}

// lost drops the memory of the pools of lost nodes, which another process counts from now on.
func (m *memory) lost(keys kube.Keys) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, p := range m.pools {
		if keys(kube.OnNode(r.Node)) {
			p.gauge(pool.Count{})
			delete(m.pools, r)
		}
	}
}

// changed notes that the cache shows a change of a KuryrPort of a pool. It creates no memory: the pool may
// be lost.
func (m *memory) changed(r pool.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pools[r]; p != nil {
		p.event.Send()
	}
}

// forgetTold lets all Events be written again.
func (m *memory) forgetTold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		clear(p.reported)
	}
}
