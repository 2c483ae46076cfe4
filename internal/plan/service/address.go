// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"strings"
)

// ParseAddr parses an address of a Service or an endpoint as Kubernetes does. The numbers of an
// IPv4 address may have leading zeros, which old API servers have accepted, and are decimal. An
// IPv4-mapped IPv6 address becomes an IPv4 address.
func ParseAddr(text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		ip, err = netip.ParseAddr(trimZeros(text))
	}
	return ip.Unmap().WithZone(""), err
}

// parsePrefix is ParseAddr for a prefix.
func parsePrefix(text string) (netip.Prefix, error) {
	text = strings.TrimSpace(text)
	ip, bits, slash := strings.Cut(text, "/")
	if slash && !strings.Contains(ip, ":") {
		text = trimZeros(ip) + "/" + bits
	}
	return netip.ParsePrefix(text)
}

func trimZeros(text string) string {
	parts := strings.Split(text, ".")
	for i, p := range parts {
		if parts[i] = strings.TrimLeft(p, "0"); parts[i] == "" && p != "" {
			parts[i] = "0"
		}
	}
	return strings.Join(parts, ".")
}
