// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"unicode/utf8"
)

// undecodable returns Python 3.11's error about the first bytes of text that are not UTF-8. It
// returns "" if all are UTF-8.
func undecodable(text []byte) string {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			n, reason := misencoded(text[at:])
			where := fmt.Sprintf("byte 0x%02x in position %d", text[at], at)
			if n > 1 {
				where = fmt.Sprintf("bytes in position %d-%d", at, at+n-1)
			}
			return fmt.Sprintf("'utf-8' codec can't decode %s: %s", where, reason)
		}
		at += size
	}
	return ""
}

// misencoded returns how many bytes at the beginning of text form an incomplete character, and
// the reason.
func misencoded(text []byte) (n int, reason string) {
	need, low, high := sequence(text[0])
	if need == 0 {
		return 1, "invalid start byte"
	}
	for n = 1; n < need; n++ {
		if n == len(text) {
			return n, "unexpected end of data"
		}
		if text[n] < low || text[n] > high {
			break
		}
		low, high = 0x80, 0xbf
	}
	return n, "invalid continuation byte"
}

// sequence returns the length of a character that begins with first, and the range of its second
// byte (RFC 3629, section 4). The length is 0 if no character begins so.
func sequence(first byte) (n int, low, high byte) {
	low, high = 0x80, 0xbf
	switch first {
	case 0xe0:
		low = 0xa0
	case 0xed:
		high = 0x9f
	case 0xf0:
		low = 0x90
	case 0xf4:
		high = 0x8f
	}
	switch {
	case first >= 0xc2 && first <= 0xdf:
		n = 2
	case first >= 0xe0 && first <= 0xef:
		n = 3
	case first >= 0xf0 && first <= 0xf4:
		n = 4
	}
	return n, low, high
}
