// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"net/netip"
	"slices"
)

// Taken is a prefix that a namespace's network must not overlap with.
type Taken struct {
	Prefix netip.Prefix
	By     string // what has it, as a person reads it
}

// Free returns the first prefix of a length within a range that overlaps with no taken one. It
// returns false if there is none, or if the range is shorter than the length.
func Free(within netip.Prefix, length int, taken []Taken) (netip.Prefix, bool) {
	within = within.Masked()
	if length < within.Bits() || length > within.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	used := make([]netip.Prefix, 0, len(taken))
	for _, t := range taken {
		if t.Prefix.Overlaps(within) {
			used = append(used, t.Prefix.Masked())
		}
	}
	slices.SortFunc(used, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	free := netip.PrefixFrom(within.Addr(), length)
	for _, u := range used {
		if !u.Overlaps(free) {
			continue
		}
		behind := free
		if u.Bits() < length {
			behind = u
		}
		next := Last(behind).Next() // invalid behind the last address of all
		if !within.Contains(next) {
			return netip.Prefix{}, false
		}
		free = netip.PrefixFrom(next, length)
	}
	return free, true
}

// Last returns the last address of a prefix.
func Last(p netip.Prefix) netip.Addr {
	p = p.Masked()
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes) // as long as before
	return last
}

// overlap returns the first taken prefix that one of these overlaps with.
func overlap(prefixes []netip.Prefix, taken []Taken) (netip.Prefix, Taken, bool) {
	for _, p := range prefixes {
		for _, t := range taken {
			if p.Overlaps(t.Prefix) {
				return p, t, true
			}
		}
	}
	return netip.Prefix{}, Taken{}, false
}

// family returns 4 or 6.
func family(a netip.Addr) int32 {
	if a.Is4() {
		return 4
	}
	return 6
}
