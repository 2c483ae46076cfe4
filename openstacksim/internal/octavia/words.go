// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

func checkWord(k *kind, v any) (any, string) {
	s, _ := v.(string)
	switch k.Kind {
	case "uuid":
		if id, ok := canonical(s); ok {
			return id, ""
		}
		return nil, "Value should be UUID format"
	case "address":
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			return s, ""
		}
		return nil, "Value should be IPv4 or IPv6 format"
	case "cidr":
		return checkCIDR(s)
	case "alpn":
		if slices.Contains([]string{"h2", "http/1.1", "http/1.0"}, s) {
			return s, ""
		}
		return nil, "Value should be a valid ALPN protocol ID"
	case "url":
		if validURL(s) {
			return s, ""
		}
		return nil, "Value must be a valid URL string"
	}
	if validPath(s) {
		return s, ""
	}
	return nil, "Value must be a valid URL Path string"
}

func checkCIDR(s string) (any, string) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked().String(), ""
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()).String(), ""
	}
	return nil, "Value should be IPv4 or IPv6 CIDR format"
}

func validURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		!strings.ContainsFunc(s, func(r rune) bool { return r <= 0x20 || r >= 0x7f && r <= 0x9f })
}

func validPath(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && strings.HasPrefix(u.Path, "/") &&
		!strings.ContainsAny(s, " \t\r\n\f\v")
}

// canonical returns a UUID in its canonical form. Like Python's parser, it accepts hyphens
// anywhere.
func canonical(s string) (string, bool) {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "urn:", ""), "uuid:", "")
	s = strings.ToLower(strings.ReplaceAll(strings.Trim(s, "{}"), "-", ""))
	if len(s) != 32 || strings.Trim(s, "0123456789abcdef") != "" {
		return "", false
	}
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:], true
}
