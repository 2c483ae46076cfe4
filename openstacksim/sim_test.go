// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// Each kind of fault: what the client sees, and whether the effect is there.
func TestFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		fault   string
		see     func(answer) bool
		effect  bool
		outcome string
	}{
		"status":        {"403", func(a answer) bool { return a.status == 403 && strings.Contains(a.body, `"title":"Forbidden"`) }, false, "403"},
		"with a header": {"{status: 429, retryAfter: 3s}", func(a answer) bool { return a.status == 429 && a.header.Get("Retry-After") == "3" }, false, "429"},
		"reset":         {"reset", func(a answer) bool { return errors.Is(a.err, syscall.ECONNRESET) }, false, "reset"},
		"lost":          {"lost", func(a answer) bool { return errors.Is(a.err, io.EOF) || errors.Is(a.err, io.ErrUnexpectedEOF) }, true, "lost"},
		"too late":      {"{status: 504, effect: true}", func(a answer) bool { return a.status == 504 }, true, "504"},
		"expired":       {"expired-token", func(a answer) bool { return a.status == 401 && a.header.Get("Www-Authenticate") != "" }, false, "401"},
	} {
		t.Run(name, func(t *testing.T) {
			c, k := dialled(t, "identity POST /v3/projects: {times: 1, fault: "+tc.fault+"}")
			if a := k.send(http.MethodPost, projectsPath, newProject("p")); !tc.see(a) {
				t.Errorf("the client saw %+v", a)
			}
			calls := c.Calls()
			if len(calls) != 1 || calls[0].Outcome != tc.outcome || calls[0].Rule == "" || (calls[0].Effect == 201) != tc.effect {
				t.Errorf("the log has %+v", calls)
			}
			if name == "expired" {
				if a := k.send(http.MethodGet, projectsPath, ""); a.status != 401 {
					t.Errorf("the token is still good for something: %d", a.status)
				}
				k = as(t, c, "admin", "admin")
			}
			if got := exists(k, "p"); got != tc.effect {
				t.Errorf("the project exists: %v, want %v", got, tc.effect)
			}
		})
	}
}

func TestHang(t *testing.T) {
	c, k := dialled(t, "identity POST /v3/projects: hang")
	k.http.Timeout = 50 * time.Millisecond
	if a := k.send(http.MethodPost, projectsPath, newProject("p")); a.err == nil {
		t.Errorf("the client saw %+v", a)
	}
	if n := c.Count("POST", "projects", "hang"); n != 1 {
		t.Errorf("%d calls hung, want 1: %+v", n, c.Counts())
	}
}

// Stopping before or after the effect of the n-th call.
func TestStop(t *testing.T) {
	for moment, effect := range map[string]bool{"before": false, "after": true} {
		t.Run(moment, func(t *testing.T) {
			var mu sync.Mutex
			var stopped []string
			c := openstacksim.Start(t, func(o *openstacksim.Options) {
				o.Stop = func(rule string) { mu.Lock(); defer mu.Unlock(); stopped = append(stopped, rule) }
			})
			k := as(t, c, "admin", "admin")
			if err := c.Dial("identity POST /v3/projects: {name: crash, from: 2, times: 1, stop: " + moment + "}"); err != nil {
				t.Fatal(err)
			}
			k.must(201, http.MethodPost, projectsPath, newProject("one"))
			if a := k.send(http.MethodPost, projectsPath, newProject("two")); a.err == nil {
				t.Errorf("the call at which the process ends was answered: %+v", a)
			}
			if got := exists(k, "two"); got != effect {
				t.Errorf("its effect is there: %v, want %v", got, effect)
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(stopped, []string{"crash"}) {
				t.Errorf("stopped by %q, want once by crash", stopped)
			}
		})
	}
}

// A test that steps through a scenario's calls cuts them before or after.
func TestHooks(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	cut := map[string]bool{}
	hook := func(when string) func(openstacksim.Call) error {
		return func(c openstacksim.Call) error {
			mu.Lock()
			defer mu.Unlock()
			if c.Write() {
				seen = append(seen, fmt.Sprintf("%s %s %s %d", when, c.Method, c.Resource, c.Effect))
			}
			if cut[when+" "+c.Method+" "+c.Resource] {
				return errors.New("cut here")
			}
			return nil
		}
	}
	c := openstacksim.Start(t, func(o *openstacksim.Options) { o.Before, o.After = hook("before"), hook("after") })
	k := as(t, c, "admin", "admin")
	k.must(201, http.MethodPost, projectsPath, newProject("a"))
	mu.Lock()
	cut["before POST projects"] = true
	mu.Unlock()
	k.send(http.MethodPost, projectsPath, newProject("b"))
	mu.Lock()
	delete(cut, "before POST projects")
	cut["after POST projects"] = true
	mu.Unlock()
	if a := k.send(http.MethodPost, projectsPath, newProject("c")); a.err == nil {
		t.Errorf("a call cut after its effect was answered: %+v", a)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{"before POST auth/tokens 0", "after POST auth/tokens 201", "before POST projects 0", "after POST projects 201",
		"before POST projects 0", "before POST projects 0", "after POST projects 201"}
	if !slices.Equal(seen, want) {
		t.Errorf("hooks saw\n%s\nwant\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
	if n := c.Count("POST", "projects", "stopped"); n != 2 {
		t.Errorf("%d calls are logged as stopped, want 2", n)
	}
}

// With two workers no more than two calls are worked on at once.
func TestWorkers(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	c := openstacksim.Start(t, func(o *openstacksim.Options) {
		o.Before = func(c openstacksim.Call) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(2 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			running--
			return nil
		}
	})
	k := as(t, c, "admin", "admin")
	if err := c.Dial("workers: {identity: 2}"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() { k.fast(http.MethodGet, projectsPath, "") })
	}
	wg.Wait()
	if most > 2 {
		t.Errorf("%d calls at once, want at most 2", most)
	}
	if n := c.Count("GET", "projects", "200"); n != 12 {
		t.Errorf("%d calls were answered, want 12", n)
	}
}

func TestLog(t *testing.T) {
	c := openstacksim.Start(t, func(o *openstacksim.Options) { o.Keep = 5 })
	k := as(t, c, "admin", "admin")
	c.Reset()
	for range 4 {
		k.must(200, http.MethodGet, projectsPath, "")
	}
	for i := range 3 {
		k.must(201, http.MethodPost, projectsPath, newProject(fmt.Sprint("p", i)))
	}
	k.must(409, http.MethodPost, projectsPath, newProject("p0"))
	if got := [4]int{c.Count("GET", "projects"), c.Count("POST", "projects"), c.Count("POST", "projects", "201"), c.Count("POST", "projects", "409")}; got != [4]int{4, 4, 3, 1} {
		t.Errorf("lists, creates, of them made and refused: got %v, want [4 4 3 1]", got)
	}
	calls := c.Calls()
	if len(calls) != 5 || calls[0].N != 4 || calls[4].N != 8 || calls[4].Outcome != "409" || calls[4].Status != 409 {
		t.Errorf("the last five of eight: got %+v", calls)
	}
	c.Reset()
	if n := len(c.Calls()) + len(c.Counts()); n != 0 {
		t.Errorf("after Reset the log has %d entries", n)
	}
}

func TestAdmin(t *testing.T) {
	c, k := dialled(t)
	if got := k.must(200, http.MethodGet, "/sim/dials", ""); got != "{}\n" {
		t.Errorf("nothing is dialled, got %q", got)
	}
	k.must(204, http.MethodPut, "/sim/dials", "calls: [{on: identity GET /v3/users, fault: 503}]")
	k.must(204, http.MethodPatch, "/sim/dials", `{"calls": [{"on": "identity GET /v3/users", "times": 1, "fault": 500}]}`)
	for _, want := range []int{500, 503, 503} {
		k.must(want, http.MethodGet, "/identity/v3/users", "")
	}
	if got := k.must(400, http.MethodPut, "/sim/dials", "calls: [{on: nowhere}]\nspeed: 1"); !strings.Contains(got, "is no pattern") || !strings.Contains(got, "speed: unknown") {
		t.Errorf("not all faults are told: %s", got)
	}
	k.must(503, http.MethodGet, "/identity/v3/users", "") // as before
	k.must(204, http.MethodDelete, "/sim/dials", "")
	k.must(200, http.MethodGet, "/identity/v3/users", "")

	var r openstacksim.Report
	if err := json.Unmarshal([]byte(k.must(200, http.MethodGet, "/sim/report", "")), &r); err != nil || len(r.Calls) != 1 || r.Calls[0].Outcomes["503"] != 3 {
		t.Errorf("the report is %+v, %v", r, err)
	}
	if got := k.must(200, http.MethodGet, "/sim/clouds.yaml", ""); got != string(c.Clouds()) {
		t.Errorf("clouds.yaml is %s", got)
	}
	port := first(t, k.must(201, http.MethodPost, "/networking/v2.0/ports",
		fmt.Sprintf(`{"port":{"network_id":%q,"binding:host_id":"node1"}}`, makeNetwork(k, "n", "10.0.0.0/24"))))
	for _, plugged := range []bool{false, true} {
		k.must(204, http.MethodPut, "/sim/ports/"+port, fmt.Sprintf(`{"plugged": %v}`, plugged))
		want := map[bool]string{true: "ACTIVE", false: "DOWN"}[plugged]
		if got := field(k.must(200, http.MethodGet, "/networking/v2.0/ports/"+port, ""), "status"); got != want {
			t.Errorf("plugged is %v: the port is %s, want %s", plugged, got, want)
		}
	}
	k.must(400, http.MethodPut, "/sim/ports/"+port, `{}`)
	k.must(404, http.MethodPut, "/sim/ports/none", `{"plugged": true}`)
	k.must(204, http.MethodPut, "/sim/agents/node1", `{"alive": false}`)
	k.must(400, http.MethodPut, "/sim/agents/node1", `{}`)
	k.must(404, http.MethodPut, "/sim/agents/none", `{"alive": true}`)
	k.must(204, http.MethodDelete, "/sim/tokens", "")
	k.must(401, http.MethodGet, "/identity/v3/users", "")
	k.must(204, http.MethodDelete, "/sim/calls", "")
	k.must(404, http.MethodGet, "/sim/else", "")
	k.must(404, http.MethodGet, "/else", "")
}

// The same seed and calls give the same IDs, MACs and addresses, and the same
// faults; another seed gives others.
func TestSeed(t *testing.T) {
	run := func(seed uint64) string {
		c := openstacksim.Start(t, func(o *openstacksim.Options) { o.Seed = seed })
		k := as(t, c, "kuryr", "k8s")
		if err := c.Dial("network POST /v2.0/ports: {probability: 0.5, fault: 503}"); err != nil {
			t.Fatal(err)
		}
		network := makeNetwork(k, "n", "10.0.0.0/24")
		seen := []string{network}
		for range 8 {
			a := k.send(http.MethodPost, "/networking/v2.0/ports", fmt.Sprintf(`{"port":{"network_id":%q}}`, network))
			if a.status == http.StatusCreated {
				seen = append(seen, field(a.body, "id"), field(a.body, "mac_address"), field(a.body, "ip_address"))
			} else {
				seen = append(seen, fmt.Sprint(a.status))
			}
		}
		return strings.Join(seen, " ")
	}
	a, b := run(7), run(7)
	if a != b {
		t.Errorf("the same seed gave\n%s\n%s", a, b)
	}
	if a == run(8) {
		t.Error("two seeds gave the same run")
	}
	if !strings.Contains(a, "503") || !strings.Contains(a, "fa:16:3e") {
		t.Errorf("no fault, or no port, in 8 calls: %s", a)
	}
}

// Ports and load balancers that do not come to rest as they should.
func TestPortsAndBalancers(t *testing.T) {
	c, k := dialled(t, "ports: [{times: 1, active: never}, {times: 1, active: 30ms}]",
		"balancers: [{kind: loadbalancer, times: 1, outcome: ERROR}, {kind: loadbalancer, times: 1, outcome: STUCK}]")
	network := makeNetwork(k, "n", "10.0.0.0/24")
	status := func(path, name string) string { return field(k.must(200, http.MethodGet, path, ""), name) }
	var made []string
	for range 3 {
		made = append(made, "/networking/v2.0/ports/"+first(t, k.must(201, http.MethodPost, "/networking/v2.0/ports",
			fmt.Sprintf(`{"port":{"network_id":%q,"binding:host_id":"node1"}}`, network))))
	}
	if got := status(made[2], "status"); got != "ACTIVE" {
		t.Errorf("a port that nothing is dialled for is %s, want ACTIVE", got)
	}
	for deadline := time.Now().Add(time.Minute); status(made[1], "status") != "ACTIVE"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a port that was to become ACTIVE after 30ms did not within a minute")
		}
	}
	if got := status(made[0], "status"); got != "DOWN" {
		t.Errorf("a port that never becomes ACTIVE is %s", got)
	}
	for _, want := range []string{"ERROR", "PENDING_CREATE", "ACTIVE"} {
		id := first(t, k.must(201, http.MethodPost, "/load-balancer/v2/lbaas/loadbalancers",
			fmt.Sprintf(`{"loadbalancer":{"vip_network_id":%q,"provider":"ovn"}}`, network)))
		if got := status("/load-balancer/v2/lbaas/loadbalancers/"+id, "provisioning_status"); got != want {
			t.Errorf("a load balancer that was to be %s is %s", want, got)
		}
	}
	if n := c.Count("POST", "loadbalancers", "201"); n != 3 {
		t.Errorf("%d load balancers were made, want 3: %+v", n, c.Counts())
	}
}

// Two bulk creates at once on one network: the second loses its addresses.
func TestConflictOfParallelBulks(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	var bulks atomic.Int32
	c := openstacksim.Start(t, func(o *openstacksim.Options) {
		o.Before = func(c openstacksim.Call) error {
			if c.Items > 0 && bulks.Add(1) == 1 {
				close(entered) // the first is in the midst of it
				<-release
			}
			return nil
		}
	})
	k := as(t, c, "kuryr", "k8s")
	network := makeNetwork(k, "n", "10.0.0.0/24")
	if err := c.Dial("network POST /v2.0/ports: {when: [bulk, parallel], fault: ip-conflict}"); err != nil {
		t.Fatal(err)
	}
	bulk := fmt.Sprintf(`{"ports":[{"network_id":%q},{"network_id":%q}]}`, network, network)
	slow := make(chan answer, 1)
	go func() { slow <- k.fast(http.MethodPost, "/networking/v2.0/ports", bulk) }()
	<-entered
	second := k.fast(http.MethodPost, "/networking/v2.0/ports", bulk)
	close(release)
	first := <-slow
	if first.status != 201 || second.status != 409 || !strings.Contains(second.body, `"IpAddressAlreadyAllocated"`) {
		t.Errorf("got %d and %d %s, want 201 and 409", first.status, second.status, second.body)
	}
	if n := c.Objects()["ports"]; n != 2 {
		t.Errorf("%d ports exist, want 2", n)
	}
}

func TestOptions(t *testing.T) {
	if _, err := openstacksim.New(openstacksim.Options{URL: "localhost:5000"}); err == nil {
		t.Error("New took a URL without a scheme")
	}
	if _, err := openstacksim.New(openstacksim.Options{URL: "http://127.0.0.1:5000", Release: "2019.1"}); err == nil || !strings.Contains(err.Error(), "zed, 2025.1") {
		t.Errorf("New of a release that is not known: %v, want a refusal with those that are", err)
	}
	set, err := dial.Parse([]byte("calls: [{on: identity POST /v3/auth/tokens, script: [401]}]"))
	if err != nil {
		t.Fatal(err)
	}
	c := openstacksim.Start(t, func(o *openstacksim.Options) { o.Dials, o.Password = set, "pass" })
	k := &client{t: t, url: c.URL(), http: http.DefaultClient}
	k.must(401, http.MethodPost, "/identity/v3/auth/tokens", "{}")
	k.must(400, http.MethodPost, "/identity/v3/auth/tokens", "{}")
	if !strings.Contains(string(c.Clouds()), `password: "pass"`) {
		t.Errorf("clouds.yaml has another password:\n%s", c.Clouds())
	}
}
