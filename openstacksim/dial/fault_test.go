// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial_test

import (
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

func TestContradictions(t *testing.T) {
	for text, want := range map[string]string{
		`network POST /v2.0/ports: {fault: {name: reset, status: 503}}`:              "reset is no answer at all: leave out status",
		`network POST /v2.0/ports: {fault: {name: lost, message: gone}}`:             "lost is no answer at all",
		`network POST /v2.0/ports: {fault: {name: hang, retryAfter: 2s}}`:            "hang is no answer at all",
		`network POST /v2.0/ports: {fault: {name: reset, effect: true}}`:             "reset has no effect: write lost",
		`network POST /v2.0/ports: [ok, {name: lost, effect: false}]`:                "lost has its effect: write reset",
		`network PUT /v2.0/ports/*: immutable`:                                       "immutable is what Octavia says",
		`load-balancer POST /v2/lbaas/listeners: [ok, immutable]`:                    "immutable is what Octavia says",
		`load-balancer * /v2/lbaas/**: immutable`:                                    "immutable is what Octavia says",
		`"* PUT /**": immutable`:                                                     "immutable is what Octavia says",
		`load-balancer PUT|DELETE /v2/lbaas/**: immutable`:                           "",
		`load-balancer * /v2/lbaas/**: killed`:                                       "deaths of Octavia's API in a change",
		`network PUT /v2.0/ports/*: rolled-back`:                                     "deaths of Octavia's API in a change",
		`load-balancer PUT /v2/lbaas/**: {fault: {name: killed, effect: false}}`:     "killed has its effect: write reset",
		`load-balancer POST|PUT|DELETE /v2/lbaas/**: [killed, rolled-back]`:          "",
		`network POST /v2.0/ports: {fault: {name: reset, effect: false}}`:            "",
		`network POST /v2.0/ports: {fault: {name: hang, effect: true}}`:              "",
		`network POST /v2.0/ports: {fault: {name: over-quota, retryAfter: 2s}}`:      "",
		`network POST /v2.0/ports: {fault: {status: 503, message: x, effect: true}}`: "",
	} {
		_, err := (&dial.Set{}).Add(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// A step of a script is used up by a call that it is for, even if that has the
// fault of a rule before.
func TestScriptBehindAnother(t *testing.T) {
	p := dial.NewPanel(1)
	p.Set(parse(t, `calls: [{on: "* * *", times: 2, fault: 500}, {on: "* * *", script: [401, 409, 429, 503]}]`))
	if got, want := run(p, post, 5), "500 500 429 503 ok"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Octavia answers below /v2 and below /v2.0 alike, and so do rules for either.
func TestVersionsOfOctavia(t *testing.T) {
	for _, rule := range []string{"/v2/lbaas/pools/*", "/v2.0/lbaas/pools/*"} {
		p, err := dial.ParsePattern("load-balancer PUT " + rule)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]bool{"/v2/lbaas/pools/a": true, "/v2.0/lbaas/pools/a": true, "/v2.1/lbaas/pools/a": false} {
			if got := p.Fits(dial.Call{Service: dial.LoadBalancer, Method: "PUT", Path: path}); got != want {
				t.Errorf("%s fits %s: %t, want %t", rule, path, got, want)
			}
		}
	}
}
