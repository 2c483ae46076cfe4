// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"net/netip"
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// nowhere is a source range that no client is in.
var nowhere = map[string]string{"ipv4": "0.0.0.0/32", "ipv6": "::/128"}

// Wider reports whether the source ranges have admit clients that want does not; no ranges
// admit every client. A range that cannot be parsed counts as wider. Wanted ranges that are
// still missing keep clients out, which is no danger.
func Wider(have, want []string) bool {
	switch {
	case len(want) == 0:
		return false
	case len(have) == 0: // of a load balancer, whose ranges are of one family
		return !slices.ContainsFunc(want, isEverybody)
	}
	return slices.ContainsFunc(have, func(r string) bool {
		return r != nowhere["ipv4"] && r != nowhere["ipv6"] && !within(r, want)
	})
}

// isEverybody reports whether a range holds all addresses of a family.
func isEverybody(r string) bool {
	p, err := netip.ParsePrefix(r)
	return err == nil && p.Bits() == 0
}

// limited reports whether source ranges keep any client of a family out.
func limited(ranges []string, of string) bool {
	return len(ranges) > 0 && !slices.ContainsFunc(ranges, func(r string) bool {
		p, err := netip.ParsePrefix(r)
		return err == nil && p.Bits() == 0 && family(p.Addr().String()) == of
	})
}

// within reports whether one of all holds a prefix.
func within(prefix string, all []string) bool {
	in, err := netip.ParsePrefix(prefix)
	return err == nil && slices.ContainsFunc(all, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Bits() <= in.Bits() && p.Contains(in.Addr())
	})
}

// AdmitsOthers reports whether the load balancer at the first VIP still admits clients outside
// the wanted source ranges. A port that is not wanted any more counts, too, but not where every
// client may come in.
func AdmitsOthers(want, have []sdn.LoadBalancer, keep []string) bool {
	if len(want) == 0 {
		return false
	}
	lb := Serving(want[0].VIP, have, keep)
	return lb != nil && slices.ContainsFunc(lb.Listeners, func(h sdn.Listener) bool {
		return Wider(h.SourceRanges, rangesOf(want[0].Listeners))
	})
}

// rangesOf returns the source ranges of the ports of one load balancer, which are the same for
// all of them. Without ports it returns ranges that admit no client.
func rangesOf(want []sdn.Listener) []string {
	if len(want) == 0 {
		return []string{nowhere["ipv4"], nowhere["ipv6"]}
	}
	return want[0].SourceRanges
}
