// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

func parse(t *testing.T, text string) *dial.Set {
	t.Helper()
	s, err := dial.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return s
}

var post = dial.Call{Service: dial.Network, Method: "POST", Path: "/v2.0/ports"}

// run is what happens to n calls, one after the other.
func run(p *dial.Panel, c dial.Call, n int) string {
	var said []string
	for range n {
		turn := p.Begin(c)
		turn.End()
		switch f := turn.Fault; {
		case turn.Stop != "":
			said = append(said, "stop "+string(turn.Stop))
		case f == nil:
			said = append(said, "ok")
		case f.Name != "":
			said = append(said, f.Name)
		default:
			said = append(said, fmt.Sprint(f.Status))
		}
	}
	return strings.Join(said, " ")
}

func TestScript(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":             {``, "ok ok ok ok ok ok"},
		"one fault":           {`calls: [{on: network POST /v2.0/ports, fault: 503}]`, "503 503 503 503 503 503"},
		"a script once":       {`calls: [{on: network POST /v2.0/ports, script: [ok, 409, lost]}]`, "ok 409 lost ok ok ok"},
		"again and again":     {`calls: [{on: network POST /v2.0/ports, script: [ok, reset], repeat: true}]`, "ok reset ok reset ok reset"},
		"from the third":      {`calls: [{on: network POST /v2.0/ports, from: 3, fault: 500}]`, "ok ok 500 500 500 500"},
		"the third only":      {`calls: [{on: network POST /v2.0/ports, from: 3, times: 1, fault: 500}]`, "ok ok 500 ok ok ok"},
		"each second":         {`calls: [{on: network POST /v2.0/ports, every: 2, fault: 500}]`, "500 ok 500 ok 500 ok"},
		"each second twice":   {`calls: [{on: network POST /v2.0/ports, every: 2, times: 2, fault: 500}]`, "500 ok 500 ok ok ok"},
		"another path":        {`calls: [{on: network POST /v2.0/networks, fault: 500}]`, "ok ok ok ok ok ok"},
		"another method":      {`calls: [{on: network GET|PUT /v2.0/ports, fault: 500}]`, "ok ok ok ok ok ok"},
		"any":                 {`calls: [{on: "* * *", fault: hang}]`, "hang hang hang hang hang hang"},
		"all below":           {`calls: [{on: "network * /v2.0/**", times: 1, fault: 401}]`, "401 ok ok ok ok ok"},
		"the first rule wins": {`calls: [{on: "* * *", times: 2, fault: 500}, {on: "* * *", fault: 503}]`, "500 500 503 503 503 503"},
		"stop":                {`calls: [{on: "* * *", from: 2, times: 1, stop: after}]`, "ok stop after ok ok ok ok"},
		"no bulk":             {`calls: [{on: "* * *", when: bulk, fault: 409}]`, "ok ok ok ok ok ok"},
		"single unbound":      {`calls: [{on: "* * *", when: [single, unbound], times: 1, fault: 409}]`, "409 ok ok ok ok ok"},
		"never alone":         {`calls: [{on: "* * *", when: parallel, fault: ip-conflict}]`, "ok ok ok ok ok ok"},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial.NewPanel(1)
			p.Set(parse(t, tc.text))
			if got := run(p, post, 6); got != tc.want {
				t.Errorf("six calls with %s\ngot  %s\nwant %s", tc.text, got, tc.want)
			}
		})
	}
}

func TestParallel(t *testing.T) {
	p := dial.NewPanel(1)
	p.Set(parse(t, `calls: [{on: network POST /v2.0/ports, when: [bulk, parallel], fault: ip-conflict}]`))
	bulk := post
	bulk.Items = 3
	first, second := p.Begin(bulk), p.Begin(bulk)
	third := p.Begin(post)
	if first.Fault != nil || second.Fault == nil || third.Fault != nil {
		t.Errorf("the first, the one beside it, a single one beside both: got %v, %v, %v, want only the second to fail", first.Fault, second.Fault, third.Fault)
	}
	for _, turn := range []*dial.Turn{first, second, third} {
		turn.End()
	}
	if alone := p.Begin(bulk); alone.Fault != nil {
		t.Errorf("a call after all others: got %v, want no fault", alone.Fault)
	}
}

// The same seed gives the same run, another one does not; and what a rule says
// does not depend on how often others were asked.
func TestSeed(t *testing.T) {
	text := `calls: [{on: network POST /v2.0/ports, probability: 0.3, fault: 500}, {on: network GET /**, probability: 0.5, fault: 503}]`
	play := func(seed uint64, between int) string {
		p := dial.NewPanel(seed)
		p.Set(parse(t, text))
		var said []string
		for range 40 {
			said = append(said, run(p, post, 1))
			run(p, dial.Call{Service: dial.Network, Method: "GET", Path: "/v2.0/ports"}, between)
		}
		return strings.Join(said, " ")
	}
	if a, b := play(7, 0), play(7, 3); a != b {
		t.Errorf("the same seed with other calls in between:\n%s\n%s", a, b)
	}
	if play(7, 0) == play(8, 0) {
		t.Error("two seeds gave the same 40 calls")
	}
	if n := strings.Count(play(7, 0), "500"); n < 4 || n > 22 {
		t.Errorf("%d of 40 calls failed, want about 12", n)
	}
}

func TestDelays(t *testing.T) {
	const n = 4000
	for text, want := range map[string][3]time.Duration{ // least, middle, most
		`20ms`:                                    {20 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond},
		`{fixed: 1s}`:                             {time.Second, time.Second, time.Second},
		`{uniform: [10ms, 30ms]}`:                 {10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond},
		`{normal: {mean: 50ms, deviation: 5ms}}`:  {20 * time.Millisecond, 50 * time.Millisecond, 80 * time.Millisecond},
		`{lognormal: {median: 50ms, p99: 100ms}}`: {10 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond},
	} {
		p := dial.NewPanel(3)
		p.Set(parse(t, `calls: [{on: "* * *", latency: `+text+`}]`))
		below, above := 0, 0
		for range n {
			turn := p.Begin(post)
			turn.End()
			if turn.Wait < want[0] || turn.Wait > want[2] {
				t.Fatalf("%s: got %v, want %v to %v", text, turn.Wait, want[0], want[2])
			}
			if turn.Wait < want[1] {
				below++
			}
			if turn.Wait > 100*time.Millisecond {
				above++
			}
		}
		if want[0] != want[2] && (below < n*45/100 || below > n*55/100) {
			t.Errorf("%s: %d of %d below %v, want half", text, below, n, want[1])
		}
		if strings.Contains(text, "p99") && (above < n/200 || above > n/50) {
			t.Errorf("%s: %d of %d above the 99th percentile", text, above, n)
		}
	}
}

func TestPerItem(t *testing.T) {
	p := dial.NewPanel(1)
	p.Set(parse(t, `calls: [{on: network POST|GET /v2.0/ports, latency: 1s, perItem: 100ms}]`))
	bulk, get := post, post
	bulk.Items, get.Method = 5, "GET"
	if got := p.Begin(bulk).Wait; got != 1500*time.Millisecond {
		t.Errorf("a create of 5: got %v, want 1.5s", got)
	}
	turn := p.Begin(get)
	if got := [2]time.Duration{turn.Wait, turn.After(7)}; got != [2]time.Duration{time.Second, 700 * time.Millisecond} {
		t.Errorf("a list of 7: got %v before and after, want 1s and 700ms", got)
	}
}

func TestPortsAndBalancers(t *testing.T) {
	p := dial.NewPanel(1)
	p.Set(parse(t, `
ports:
- {from: 2, times: 1, active: never}
- {active: 300ms}
balancers:
- {kind: member, action: create, times: 1, outcome: ERROR}
- {kind: loadbalancer, outcome: STUCK}
- {delay: 2s}`))
	for i, want := range []string{"300ms true", "0s false", "300ms true"} {
		d, ok := p.Active()
		if got := fmt.Sprint(d, ok); got != want {
			t.Errorf("port %d: got %s, want %s", i+1, got, want)
		}
	}
	for _, tc := range [][3]string{{"member", "create", "0s ERROR"}, {"member", "create", "2s "}, {"member", "delete", "2s "}, {"loadbalancer", "update", "0s STUCK"}} {
		d, outcome := p.Settle(tc[0], tc[1])
		if got := fmt.Sprint(d, " ", outcome); got != tc[2] {
			t.Errorf("Settle(%s, %s): got %q, want %q", tc[0], tc[1], got, tc[2])
		}
	}
}

// All faults of a file are told at once, each with its place.
func TestFaults(t *testing.T) {
	_, err := dial.Parse([]byte(`
preset: imagined
seed: 4
workers: {network: 0, storage: 2}
calls:
- on: netzwerk POST|FETCH ports
  latency: 3
  probability: 2
- fault: 200
- {on: network GET /**, when: [bulk, single], script: [ok, lots], stop: now}
- {on: network GET /**/x}
- {on: network GET /, on: network GET /, latency: {uniform: [2s, 1s]}, perItem: {lognormal: {median: 0s, p99: 1s}}}
ports:
- {times: -1}
balancers:
- {kind: balancer}
- 7
`))
	var faults dial.FaultsError
	if !errors.As(err, &faults) {
		t.Fatalf("got %v, want FaultsError", err)
	}
	for _, want := range []string{
		`line 2: preset: "imagined" is none of measured`,
		`line 3: seed: unknown: write one of balancers, calls, ports, preset, workers`,
		`line 4: workers.network: want a number from 1 to 10000, got "0"`,
		`line 4: workers.storage: unknown`,
		`line 6: calls[0].on: "netzwerk" is no service`, `"FETCH" is no method`, `"ports" is no path`,
		`line 7: calls[0].latency: want a time from 0s to 1h0m0s with its unit, as in 250ms, got "3"`,
		`line 8: calls[0].probability: want more than 0 and at most 1, got "2"`,
		`line 9: calls[1].fault: "200" is no fault`, `line 9: calls[1]: on is missing`,
		`line 10: calls[2].when: no call is both`, `line 10: calls[2].script[1]: "lots" is no fault`, `line 10: calls[2].stop: "now" is none of before, after`,
		`line 11: calls[3].on: "/**/x" has something after **`, `line 11: calls[3]: does nothing`,
		`line 12: calls[4].on: written twice`, `line 12: calls[4].latency.uniform: want the least and the most`,
		`line 12: calls[4].perItem.lognormal: want a median above 0s`,
		`line 14: ports[0].times: want a number`, `line 14: ports[0]: active is missing`,
		`line 16: balancers[0].kind: "balancer" is none of`, `line 16: balancers[0]: does nothing`,
		`line 17: balancers[1]: want a mapping, got "7"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not told: %s", want)
		}
	}
	if len(faults) != 22 {
		t.Errorf("got %d faults, want 22:\n%v", len(faults), err)
	}
}

func TestAdd(t *testing.T) {
	s := parse(t, "calls:\n- {on: network GET /v2.0/ports, fault: 500}\n")
	for _, line := range []string{
		`network POST /v2.0/ports: 503`, `network POST /v2.0/ports: [ok, lost]`,
		`network POST /v2.0/ports: {latency: 1s, times: 3}`, `workers: {network: 2}`,
	} {
		var err error
		if s, err = s.Add(line); err != nil {
			t.Fatalf("Add(%q): %v", line, err)
		}
	}
	want := "calls:\n    - {on: network POST /v2.0/ports, latency: 1s, times: 3}\n    - {on: network POST /v2.0/ports, script: [ok, lost]}\n" +
		"    - {on: network POST /v2.0/ports, fault: 503}\n    - {on: network GET /v2.0/ports, fault: 500}\nworkers: {network: 2}\n"
	if diff := cmp.Diff(normal(t, want), normal(t, string(s.YAML()))); diff != "" {
		t.Errorf("after four lines (-want +got):\n%s", diff)
	}
	for _, line := range []string{"", "ports", "[1]", "a: 1", "network POST /v2.0/ports: maybe", "network POST /v2.0/ports:"} {
		if _, err := s.Add(line); err == nil {
			t.Errorf("Add(%q) succeeded", line)
		}
	}
}

// normal is text without what YAML leaves to taste.
func normal(t *testing.T, text string) string {
	t.Helper()
	return strings.NewReplacer(" ", "", "{", "", "}", "", "\n", "", ",", "", "-", "").Replace(string(parse(t, text).YAML()))
}

func TestMeasured(t *testing.T) {
	p := dial.NewPanel(1)
	p.Set(parse(t, `preset: measured`))
	bound := post
	bound.Bound, bound.Items = true, 0
	var sum time.Duration
	for range 400 {
		turn := p.Begin(bound)
		turn.End()
		sum += turn.Wait
	}
	if mean := sum / 400; mean < 440*time.Millisecond || mean > 560*time.Millisecond {
		t.Errorf("a bound port takes %v, measured were 470ms", mean)
	}
	bound.Items = 10
	if got := p.Begin(bound).Wait; got < 3*time.Second || got > 6*time.Second {
		t.Errorf("ten ports at once take %v, measured were 3.6s", got)
	}
	for _, tc := range []struct {
		method, path string
		items        int
		want         time.Duration
	}{
		{"POST", "loadbalancers", 0, 780 * time.Millisecond},
		{"DELETE", "loadbalancers/LB", 0, 580 * time.Millisecond},
		{"POST", "listeners", 0, 390 * time.Millisecond},
		{"POST", "pools", 0, 690 * time.Millisecond},
		{"POST", "pools/P/members", 0, 1130 * time.Millisecond},
		{"PUT", "pools/P/members", 20, 8900 * time.Millisecond},
	} {
		sum = 0
		for range 100 {
			turn := p.Begin(dial.Call{Service: dial.LoadBalancer, Method: tc.method, Path: "/v2/lbaas/" + tc.path, Items: tc.items})
			turn.End()
			sum += turn.Wait
		}
		if mean := sum / 100; mean < tc.want*9/10 || mean > tc.want*13/10 {
			t.Errorf("%s %s takes %v, measured were %v", tc.method, tc.path, mean, tc.want)
		}
	}
	if got := p.Current().Workers[dial.Network]; got != 2 {
		t.Errorf("Neutron has %d workers, want 2", got)
	}
}

func TestAnswers(t *testing.T) {
	balancer := dial.Call{Service: dial.LoadBalancer, Method: "PUT", Path: "/v2/lbaas/loadbalancers/LB1"}
	port := dial.Call{Service: dial.Network, Method: "GET", Path: "/v2.0/ports/P1"}
	group := dial.Call{Service: dial.Network, Method: "POST", Path: "/v2.0/security-groups"}
	token := dial.Call{Service: dial.Identity, Method: "POST", Path: "/v3/auth/tokens"}
	for name, tc := range map[string]struct {
		call   dial.Call
		fault  string
		status int
		body   string
	}{
		"neutron 404":   {port, "404", 404, `{"NeutronError":{"detail":"","message":"Port P1 could not be found.","type":"PortNotFound"}}`},
		"neutron 403":   {group, "403", 403, `{"NeutronError":{"detail":"","message":"rule:create_security_group is disallowed by policy","type":"PolicyNotAuthorized"}}`},
		"neutron quota": {post, "over-quota", 409, `{"NeutronError":{"detail":"","message":"Quota exceeded for resources: ['port'].","type":"OverQuota"}}`},
		"neutron ipam":  {post, "no-addresses", 409, `{"NeutronError":{"detail":"","message":"No more IP addresses available on network N1.","type":"IpAddressGenerationFailure"}}`},
		"neutron 500":   {post, "500", 500, `{"NeutronError":{"detail":"","message":"Request Failed: internal server error while processing your request.","type":"HTTPInternalServerError"}}`},
		"neutron 401":   {post, "expired-token", 401, `{"error":{"code":401,"message":"The request you have made requires authentication.","title":"Unauthorized"}}`},
		"neutron own":   {post, "{status: 409, type: MacAddressInUse, message: 'on {network}'}", 409, `{"NeutronError":{"detail":"","message":"on N1","type":"MacAddressInUse"}}`},
		"octavia 409":   {balancer, "409", 409, `{"debuginfo":null,"faultcode":"Client","faultstring":"Load Balancer LB1 is immutable and cannot be updated."}`},
		"octavia quota": {balancer, "over-quota", 403, `{"debuginfo":null,"faultcode":"Client","faultstring":"Quota has been met for resources: Load Balancer"}`},
		"octavia 500":   {balancer, "500", 500, `{"debuginfo":null,"faultcode":"Server","faultstring":"An unknown exception occurred."}`},
		"keystone 403":  {token, "403", 403, `{"error":{"code":403,"message":"You are not authorized to perform the requested action.","title":"Forbidden"}}`},
		"any 503":       {post, "503", 503, "<html><body><h1>503 Service Unavailable</h1>\nNo server is available to handle this request.\n</body></html>\n"},
		"any 429":       {balancer, "{status: 429, retryAfter: 1500ms}", 429, "<html><body><h1>429 Too Many Requests</h1>\nYou have sent too many requests in a given amount of time.\n</body></html>\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial.NewPanel(1)
			p.Set(parse(t, `calls: [{on: "* * *", fault: `+tc.fault+`}]`))
			a := p.Begin(tc.call).Fault.Answer(tc.call, dial.Facts{Network: "N1", AuthURL: "http://x"})
			if a.Status != tc.status || string(a.Body) != tc.body {
				t.Errorf("got %d %s\nwant %d %s", a.Status, a.Body, tc.status, tc.body)
			}
			if got := a.Header.Get("Retry-After"); tc.status == 429 && got != "2" {
				t.Errorf("Retry-After is %q, want 2", got)
			}
		})
	}
}

// Whatever is written: Parse does not panic, and what it takes it takes again
// as it writes it.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "preset: measured", "calls: [{on: \"* * *\", script: [ok, 401, {status: 429, retryAfter: 1s}], repeat: true}]",
		"ports: [{active: never}]", "balancers: [{delay: {uniform: [1s, 2s]}, outcome: STUCK}]", "workers: {network: 2}",
		"a: &a [*a]", "calls: [{on: network GET /v2.0/*/tags/**, when: [bulk], latency: {normal: {mean: 1s, deviation: 1s}}}]", "--- 1\n--- 2",
	} {
		f.Add(seed, "/v2.0/ports/x", 3)
	}
	f.Fuzz(func(t *testing.T, text, path string, n int) {
		s, err := dial.Parse([]byte(text))
		if err != nil {
			return
		}
		again, err := dial.Parse(s.YAML())
		if err != nil || len(again.Calls) != len(s.Calls) || len(again.Ports) != len(s.Ports) || len(again.Balances) != len(s.Balances) {
			t.Fatalf("%q was taken, and not as it is written: %v\n%s", text, err, s.YAML())
		}
		p := dial.NewPanel(1)
		p.Set(s)
		for _, service := range []string{dial.Identity, dial.Network, dial.LoadBalancer} {
			c := dial.Call{Service: service, Method: "POST", Path: path, Items: n}
			turn := p.Begin(c)
			if turn.Wait < 0 || turn.Wait > time.Hour || turn.After(n) < 0 {
				t.Errorf("%q: waits %v", text, turn.Wait)
			}
			if turn.Fault != nil {
				turn.Fault.Answer(c, dial.Facts{})
			}
			turn.End()
		}
		p.Active()
		p.Settle("member", "create")
	})
}
