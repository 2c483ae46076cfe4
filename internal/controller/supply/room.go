// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

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
