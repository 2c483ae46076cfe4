// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/netip"
	"slices"
)

// window is the number of free addresses among which Neutron draws one (neutron 21.0.0:
// ipam/drivers/neutrondb_ipam/driver.py, MAX_WIN).
const window = 1000

// span is an allocation pool.
type span struct{ first, last netip.Addr }

func (s span) has(a netip.Addr) bool { return s.first.Compare(a) <= 0 && a.Compare(s.last) <= 0 }

// addresses are the addresses of a subnet. Drawing, taking and releasing cost the same, however
// many addresses exist and are taken.
type addresses struct {
	pools []span
	taken map[netip.Addr]struct{}

	// free holds addresses of the pools that were free when look found them. It has at least
	// window of them, unless the pool has fewer. pool and next are where look continues.
	free []netip.Addr
	pool int
	next netip.Addr
}

func newAddresses(pools []span) *addresses {
	a := &addresses{taken: map[netip.Addr]struct{}{}}
	a.reset(pools)
	return a
}

// reset replaces the pools. Taken addresses stay taken.
func (a *addresses) reset(pools []span) {
	a.pools, a.free, a.pool, a.next = slices.Clone(pools), nil, 0, netip.Addr{}
	slices.SortFunc(a.pools, func(x, y span) int { return x.first.Compare(y.first) })
	if len(a.pools) > 0 {
		a.next = a.pools[0].first
	}
}

// take takes the address, and reports whether it was free.
func (a *addresses) take(addr netip.Addr) bool {
	if _, taken := a.taken[addr]; taken {
		return false
	}
	a.taken[addr] = struct{}{}
	return true
}

// draw takes one of the free addresses, chosen by the number.
func (a *addresses) draw(number uint64) (netip.Addr, bool) {
	for {
		a.look()
		if len(a.free) == 0 {
			return netip.Addr{}, false
		}
		i := int(number % uint64(len(a.free)))
		addr := a.free[i]
		a.free[i] = a.free[len(a.free)-1]
		a.free = a.free[:len(a.free)-1]
		if a.take(addr) { // otherwise a request has taken it by name since
			return addr, true
		}
	}
}

// lowest takes the first free address of the pools.
func (a *addresses) lowest() (netip.Addr, bool) {
	for _, pool := range a.pools {
		for addr := pool.first; pool.has(addr); addr = addr.Next() {
			if a.take(addr) {
				return addr, true
			}
		}
	}
	return netip.Addr{}, false
}

// release makes an address free again.
func (a *addresses) release(addr netip.Addr) {
	if _, taken := a.taken[addr]; !taken {
		return
	}
	delete(a.taken, addr)
	if a.seen(addr) {
		a.free = append(a.free, addr)
	}
}

// look fills the window. It exhausts a pool before it begins the next one.
func (a *addresses) look() {
	for len(a.free) < window && a.pool < len(a.pools) {
		if !a.pools[a.pool].has(a.next) {
			if len(a.free) > 0 || a.pool+1 == len(a.pools) {
				return
			}
			a.pool++
			a.next = a.pools[a.pool].first
			continue
		}
		if _, taken := a.taken[a.next]; !taken {
			a.free = append(a.free, a.next)
		}
		a.next = a.next.Next()
	}
}

// seen reports whether look has already passed the address.
func (a *addresses) seen(addr netip.Addr) bool {
	for i, pool := range a.pools {
		if pool.has(addr) {
			return i < a.pool || i == a.pool && addr.Less(a.next) || !a.next.IsValid()
		}
	}
	return false
}
