// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

func spanOf(first, last string) span {
	return span{netip.MustParseAddr(first), netip.MustParseAddr(last)}
}

func TestAddressesComeOnceAndPoolByPool(t *testing.T) {
	a := newAddresses([]span{spanOf("10.0.0.20", "10.0.0.29"), spanOf("10.0.0.2", "10.0.0.11")})
	seen := map[netip.Addr]bool{}
	for i := range 20 {
		addr, ok := a.draw(uint64(i) * 7919)
		if !ok || seen[addr] {
			t.Fatalf("draw %d = %s, %t; want one that was not there before", i, addr, ok)
		}
		seen[addr] = true
		if first := a.pools[0].has(addr); first != (i < 10) {
			t.Errorf("draw %d = %s: the second pool came before the first was used up", i, addr)
		}
	}
	if addr, ok := a.draw(1); ok {
		t.Errorf("draw of the empty pools = %s, want none", addr)
	}
	a.release(netip.MustParseAddr("10.0.0.5"))
	if addr, ok := a.draw(1); !ok || addr.String() != "10.0.0.5" {
		t.Errorf("draw after a release = %s, %t; want 10.0.0.5", addr, ok)
	}
}

func TestAddressesTakenByNameAreNotDrawn(t *testing.T) {
	a := newAddresses([]span{spanOf("10.0.0.2", "10.0.0.4")})
	a.draw(0) // fills the window with all of them
	named := netip.MustParseAddr("10.0.0.3")
	if !a.take(named) || a.take(named) {
		t.Fatal("an address can be taken just once")
	}
	if addr, _ := a.draw(0); addr == named {
		t.Errorf("draw gave %s, which was taken by name", addr)
	}
	if addr, ok := a.draw(0); ok {
		t.Errorf("draw = %s, want none: there were three", addr)
	}
	gateway := netip.MustParseAddr("10.0.0.1")
	a.take(gateway)
	a.release(gateway)
	if addr, ok := a.draw(0); ok {
		t.Errorf("draw = %s, which is in no pool", addr)
	}
}

func TestAddressesOfTheWholeRange(t *testing.T) {
	a := newAddresses([]span{spanOf("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")})
	for i := range 16 {
		if _, ok := a.draw(uint64(i)); !ok {
			t.Fatalf("draw %d of 16 gave none", i)
		}
	}
	last := netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	a.release(last)
	if addr, ok := a.draw(3); !ok || addr != last {
		t.Errorf("draw after the last address came back = %s, %t", addr, ok)
	}
	if addr, ok := newAddresses([]span{spanOf("10.0.0.2", "10.0.0.9")}).lowest(); !ok || addr.String() != "10.0.0.2" {
		t.Errorf("lowest = %s, %t; want 10.0.0.2", addr, ok)
	}
}

// TestAddressesAtRandom compares with a set. A drawn address was free and is in a pool. Drawing
// fails only if no address is free.
func TestAddressesAtRandom(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		pools := []span{spanOf("10.0.0.2", "10.0.0.99"), spanOf("10.0.1.0", "10.0.1.49")}
		a, taken := newAddresses(pools), map[netip.Addr]bool{}
		for range 500 {
			addr := netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(r.IntN(120))})
			switch r.IntN(6) {
			case 0:
				if a.take(addr) == taken[addr] {
					t.Fatalf("seed %d: take of %s, taken = %t", seed, addr, taken[addr])
				}
				taken[addr] = true
			case 1, 2:
				a.release(addr)
				delete(taken, addr)
			case 3:
				if r.IntN(10) == 0 {
					pools[0].last = netip.AddrFrom4([4]byte{10, 0, 0, byte(90 + r.IntN(20))})
					a.reset(pools)
				}
			default:
				got, ok := a.draw(r.Uint64())
				if !ok && free(pools, taken) > 0 || ok && (taken[got] || !pools[0].has(got) && !pools[1].has(got)) {
					t.Fatalf("seed %d: draw = %s, %t; %d are free", seed, got, ok, free(pools, taken))
				}
				taken[got] = true
			}
		}
	}
}

func free(pools []span, taken map[netip.Addr]bool) (n int) {
	for _, p := range pools {
		for a := p.first; p.has(a); a = a.Next() {
			if !taken[a] {
				n++
			}
		}
	}
	return n
}
