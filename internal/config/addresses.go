// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
)

// ranges checks prefixes of a list, none of which may overlap with another one.
func (d *decoder) ranges(path string, texts []string) {
	if len(texts) > maxRanges {
		d.fault(path, "want at most %d, got %d", maxRanges, len(texts))
	}
	parsed := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		if parsed[i] = d.prefix(at, text, "10.0.0.0/8 or fd00:10::/48"); !parsed[i].IsValid() {
			continue
		}
		for j, other := range parsed[:i] {
			if other.IsValid() && other.Overlaps(parsed[i]) {
				d.fault(at, "%s overlaps with %s, which is %s[%d]: remove one", text, texts[j], path, j)
				break
			}
		}
	}
}

// prefix returns the prefix that text is the usual form of; zero, with a fault, if of none.
func (d *decoder) prefix(path, text, example string) netip.Prefix {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		d.fault(path, "%q is no prefix: write it as in %s", text, example)
	case p.Masked().String() != text:
		d.fault(path, "%q has bits behind the prefix, or is not its shortest form: write %s", text, p.Masked())
	default:
		return p
	}
	return netip.Prefix{}
}

func (d *decoder) address(path, text, example string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		d.fault(path, "%q is no IP address: write one as in %s", text, example)
		return netip.Addr{}
	}
	return a
}

// addresses checks the IP addresses of DNS servers.
func (d *decoder) addresses(path string, texts []string) {
	if len(texts) > maxDNSServers {
		d.fault(path, "want at most %d, got %d", maxDNSServers, len(texts))
	}
	seen := map[netip.Addr]int{}
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		a := d.address(at, text, "10.96.0.10 or fd00:96::a")
		if first, twice := seen[a]; twice && a.IsValid() {
			d.fault(at, "the same address as %s[%d]: remove one", path, first)
			continue
		}
		seen[a] = i
	}
}

func (d *decoder) routes(path string, routes []Route) {
	if len(routes) > maxRoutes {
		d.fault(path, "want at most %d, got %d", maxRoutes, len(routes))
	}
	for i, r := range routes {
		at := fmt.Sprintf("%s[%d]", path, i)
		to := d.prefix(at+".destination", r.Destination, "192.0.2.0/24")
		by := d.address(at+".gateway", r.Gateway, "10.7.0.254")
		if to.IsValid() && by.IsValid() && to.Addr().Is4() != by.Is4() {
			d.fault(at+".gateway", "%s is not of the IP family of destination %s: write an address of that family", r.Gateway, r.Destination)
		}
	}
}
