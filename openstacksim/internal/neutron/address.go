// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/netip"
	"strconv"
	"strings"
)

// parseAddress parses an IP address. It drops leading zeros of IPv4 as netaddr does, and accepts
// no zones.
func parseAddress(s string) (netip.Addr, bool) {
	if !strings.Contains(s, ":") {
		s = trimZeros(s)
	}
	a, err := netip.ParseAddr(s)
	return a, err == nil && a.Zone() == ""
}

func trimZeros(s string) string {
	parts := strings.Split(s, ".")
	for i, p := range parts {
		if t := strings.TrimLeft(p, "0"); p != "" {
			if parts[i] = t; t == "" {
				parts[i] = "0"
			}
		}
	}
	return strings.Join(parts, ".")
}

// parseNetwork parses an address with a prefix length or a mask, as netaddr's IPNetwork does. An
// IPv4 address may be shortened. Without a prefix length it is one host.
func parseNetwork(s string) (address netip.Addr, bits int, ok bool) {
	if s == "" || strings.ContainsAny(s, " \t\r\n") {
		return address, 0, false
	}
	host, length, given := strings.Cut(s, "/")
	if !strings.Contains(host, ":") && given {
		for strings.Count(host, ".") < 3 {
			host += ".0"
		}
	}
	address, err := netip.ParseAddr(host)
	if err != nil || address.Zone() != "" {
		return address, 0, false
	}
	if !given {
		return address, address.BitLen(), true
	}
	bits, ok = parseLength(length, address.Is6())
	return address, bits, ok && bits <= address.BitLen()
}

// networkParser is parseNetwork or parseWholeNetwork.
type networkParser func(string) (address netip.Addr, bits int, ok bool)

// parseWholeNetwork is parseNetwork without shortened addresses.
func parseWholeNetwork(s string) (address netip.Addr, bits int, ok bool) {
	host, _, _ := strings.Cut(s, "/")
	if _, err := netip.ParseAddr(host); err != nil {
		return address, 0, false
	}
	return parseNetwork(s)
}

func parseLength(s string, six bool) (int, bool) {
	if n, err := strconv.Atoi(s); err == nil {
		return n, n >= 0
	}
	mask, err := netip.ParseAddr(s)
	if err != nil || mask.Is6() != six {
		return 0, false
	}
	ones, wildcard := leadingOnes(mask.AsSlice()), leadingOnes(inverted(mask.AsSlice()))
	switch {
	case ones >= 0:
		return ones, true
	case wildcard >= 0:
		return wildcard, true
	}
	return 0, false
}

func inverted(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = ^b[i]
	}
	return out
}

// leadingOnes returns the number of leading ones, or -1 if a one follows a zero.
func leadingOnes(b []byte) int {
	n, ended := 0, false
	for _, c := range b {
		for bit := 7; bit >= 0; bit-- {
			set := c>>bit&1 == 1
			if set && ended {
				return -1
			}
			if set {
				n++
			} else {
				ended = true
			}
		}
	}
	return n
}

// masked returns the network of an address: its host bits are zero.
func masked(address netip.Addr, bits int) netip.Prefix {
	return netip.PrefixFrom(address, bits).Masked()
}

// isUUID reports whether Neutron takes a value for a UUID (oslo.utils: uuidutils.is_uuid_like).
// Dashes, braces and case are ignored.
func isUUID(v any) bool {
	s, ok := v.(string)
	if !ok {
		return false
	}
	s = strings.ToLower(s)
	s = strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(s, "urn:"), "uuid:"), "-", "")
	s = strings.Trim(s, "{}")
	if len(s) != 32 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}
