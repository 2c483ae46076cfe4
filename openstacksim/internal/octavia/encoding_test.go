// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"net/http"
	"testing"
)

// TestBrokenEncoding expects the messages of Python 3.11's bytes.decode.
func TestBrokenEncoding(t *testing.T) {
	for body, want := range map[string]string{
		"\xff":             "byte 0xff in position 0: invalid start byte",
		"ab\x80":           "byte 0x80 in position 2: invalid start byte",
		"\xc1\xbf":         "byte 0xc1 in position 0: invalid start byte",
		"\xf5\x80":         "byte 0xf5 in position 0: invalid start byte",
		"é\xe2":            "byte 0xe2 in position 2: unexpected end of data",
		"\xe2\x82":         "bytes in position 0-1: unexpected end of data",
		"\xf0\x9f\x98":     "bytes in position 0-2: unexpected end of data",
		"\xc3(":            "byte 0xc3 in position 0: invalid continuation byte",
		"\xe2\x82(":        "bytes in position 0-1: invalid continuation byte",
		"\xf0\x9f\x98(":    "bytes in position 0-2: invalid continuation byte",
		"\xe0\x80\x80":     "byte 0xe0 in position 0: invalid continuation byte",
		"\xed\xa0\x80":     "byte 0xed in position 0: invalid continuation byte",
		"\xf0\x8f\xbf\xbf": "byte 0xf0 in position 0: invalid continuation byte",
		"\xf4\x90":         "byte 0xf4 in position 0: invalid continuation byte",
		"�\xff":            "byte 0xff in position 3: invalid start byte",
	} {
		w := newWorld(t, nil)
		code, out := w.do(tenant, http.MethodPost, "/loadbalancers", body)
		want = "'utf-8' codec can't decode " + want
		if code != http.StatusInternalServerError || out["faultstring"] != want {
			t.Errorf("%q: %d %v, want %s", body, code, out["faultstring"], want)
		}
	}
}
