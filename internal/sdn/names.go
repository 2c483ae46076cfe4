// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import "strings"

// SameProvider reports whether two names are those of one load-balancing provider:
// that of amphorae has two.
func SameProvider(a, b string) bool {
	amphorae := func(s string) bool { return strings.EqualFold(s, "amphora") || strings.EqualFold(s, "octavia") }
	return strings.EqualFold(a, b) || amphorae(a) && amphorae(b)
}

// SameID reports whether two IDs are those of one thing: people may write a UUID in
// capitals, or without hyphens, and clouds take that and answer in their own form.
func SameID(a, b string) bool { return a == b || canonicalID(a) == canonicalID(b) }

// canonicalID is a UUID in lower case, without hyphens. What is none may be something
// in which capitals count.
func canonicalID(id string) string {
	digits := strings.ToLower(strings.ReplaceAll(id, "-", ""))
	if len(digits) == 32 && strings.Trim(digits, "0123456789abcdef") == "" {
		return digits
	}
	return id
}
