// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package recorded_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/openstacksim/internal/recorded"
)

// replay runs a scenario on a service that f implements.
func replay(t *testing.T, text string, f http.HandlerFunc) []recorded.Result {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	s, err := recorded.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	target := recorded.Target{
		Endpoints: map[string]string{"network": server.URL}, Client: server.Client(), Patience: time.Minute,
		Vars: map[string]string{"project": "5d3c0f7a9b5e4a0c8d7e6f5a4b3c2d1e", "host": "node1"},
	}
	return target.Run(t.Context(), s)
}

const (
	idA = "0a1b2c3d-0000-4000-8000-00000000000a"
	idB = "0a1b2c3d-0000-4000-8000-00000000000b"
)

// Random parts of an answer get a name or a form. Parts that people wrote stay.
func TestAnswersInNormalForm(t *testing.T) {
	tests := []struct{ name, request, answer, want string }{
		{
			"IDs by their variables, else numbered", "save a = port.id",
			`{"port": {"id": "` + idA + `", "network_id": "` + idB + `", "subnet": "` + idB + `", "x": "` + idA + `"}}`,
			`{"port": {"id": "$a", "network_id": "<id1>", "subnet": "<id1>", "x": "$a"}}`,
		},
		{"IDs that were asked for", `{"port": {"id": "` + idA + `"}}`, `{"m": "Port ` + idA + ` is gone."}`, `{"m": "Port ` + idA + ` is gone."}`},
		{"projects", "", `{"project_id": "5d3c0f7a9b5e4a0c8d7e6f5a4b3c2d1e"}`, `{"project_id": "$project"}`},
		{"projects' names", "", `{"p": {"id": "5d3c0f7a9b5e4a0c8d7e6f5a4b3c2d1e", "name": "k8s"}}`, `{"p": {"id": "$project", "name": "<name of $project>"}}`},
		{"short words only as a whole", "", `{"h": "node1", "m": "on node1"}`, `{"h": "$host", "m": "on node1"}`},
		{"times in their form", "", `{"a": "2026-11-21T13:06:20Z", "b": "2026-11-21T13:06:20", "c": "2026-11-21T13:06:20.123456Z"}`,
			`{"a": "0000-00-00T00:00:00Z", "b": "0000-00-00T00:00:00", "c": "0000-00-00T00:00:00.000000Z"}`},
		{"MACs", `{"mac": "fa:16:3e:00:00:01"}`, `{"a": "fa:16:3e:00:00:01", "b": "fa:16:3e:12:34:56"}`, `{"a": "fa:16:3e:00:00:01", "b": "<mac>"}`},
		{"addresses that the cloud chose", `{"x": "10.0.0.50"}`,
			`{"a": {"ip_address": "10.0.0.5"}, "b": {"ip_address": "10.0.0.50"}, "c": {"ip_address": "fd00::5"}, "gateway_ip": "10.0.0.1"}`,
			`{"a": {"ip_address": "<ipv4>"}, "b": {"ip_address": "10.0.0.50"}, "c": {"ip_address": "<ipv6>"}, "gateway_ip": "10.0.0.1"}`},
		{"names made of addresses", `{"x": "10.0.0.50"}`, `{"a": "host-10-0-0-5.local.", "b": "host-10-0-0-50", "c": "host-name"}`,
			`{"a": "host-<ip>.local.", "b": "host-10-0-0-50", "c": "host-name"}`},
		{"lists in one order", "", `{"l": [{"id": "` + idA + `", "n": "b"}, {"id": "` + idB + `", "n": "a"}]}`,
			`{"l": [{"id": "<id1>", "n": "a"}, {"id": "<id2>", "n": "b"}]}`},
		{"lists of what is alike by what is elsewhere", "", `{"a": [{"id": "` + idB + `", "n": "a"}, {"id": "` + idA + `", "n": "b"}], "b": ["` + idA + `", "` + idB + `"]}`,
			`{"a": [{"id": "<id1>", "n": "a"}, {"id": "<id2>", "n": "b"}], "b": ["<id1>", "<id2>"]}`},
		{"lists as they are", "ordered", `{"l": ["b", "a"]}`, `{"l": ["b", "a"]}`},
		{"ignored keys", "ignore a.n: random", `{"a": {"n": 5}, "n": 6}`, `{"a": {"n": "<ignored>"}, "n": 6}`},
		{"IDs in messages, in one order", "", `{"m": "used by ` + idB + `,` + idA + `."}`, `{"m": "used by <id>,<id>."}`},
		{"sets in messages, in one order", "", `{"m": "Expected keys: {'b', 'a'}", "n": "one of: TCP, HTTP", "o": "(rule:b:c and rule:b)"}`,
			`{"m": "Expected keys: {'a', 'b'}", "n": "one of: HTTP, TCP", "o": "(rule:b and rule:b:c)"}`},
		{"numbers in their form", "", `{"n": 1.50, "big": 18446744073709551615}`, `{"big": 18446744073709551615, "n": 1.50}`},
		{"what is no JSON", "", `<h1>req-` + idA + ` failed</h1>`, `<h1>req-<id> failed</h1>`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text := "=== step\nPOST network /x as nobody\n" + test.request
			r := replay(t, text, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, test.answer) })[0]
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			got := strings.Join(strings.Fields(r.Got), "")
			if want := strings.Join(strings.Fields(test.want), ""); !strings.HasSuffix(got, want) {
				t.Errorf("got\n%s\nwant at the end\n%s", got, want)
			}
		})
	}
}

func TestHeadersAreCompared(t *testing.T) {
	r := replay(t, "=== step\nGET network /x as nobody", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "http://"+r.Host+"/y")
		w.Header().Set("X-Openstack-Request-Id", "req-"+idA)
		w.Header().Set("Server", "changes too often")
		w.WriteHeader(http.StatusConflict)
	})[0]
	want := "409\nContent-Type: application/json\nLocation: <network>/y\nX-Openstack-Request-Id: req-<id>"
	if diff := gocmp.Diff(want, r.Got); diff != "" {
		t.Errorf("answer (-want +got)\n%s", diff)
	}
}

func TestVariablesReachLaterSteps(t *testing.T) {
	results := replay(t, `=== first
POST network /x as nobody
save a = list.1.id
quiet
{"name": "x"}
---
200

=== second
PUT network /x/$a as nobody
X-More: $a
{"id": "$a"}

=== third
GET network /x/$b as nobody`, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, `{"list": [{}, {"id": "abc"}]}`)
			return
		}
		_, _ = fmt.Fprintf(w, "%s %s %s", r.URL.Path, r.Header.Get("X-More"), body)
	})
	if results[0].Got != "200" || results[0].Step.Want != "200" {
		t.Errorf("quiet step: got %q, recorded %q", results[0].Got, results[0].Step.Want)
	}
	if !strings.HasSuffix(results[1].Got, `/x/abc abc {"id": "abc"}`) {
		t.Errorf("second step: %q, want the variable in path, header and body", results[1].Got)
	}
	if results[2].Err == nil || !strings.Contains(results[2].Err.Error(), "$b") {
		t.Errorf("a variable that nobody saved: %v, want an error that names it", results[2].Err)
	}
}

// A step's fault comes before its request. A cloud that supports no faults returns an error.
func TestFaultComesFirst(t *testing.T) {
	s, err := recorded.Parse(`=== make
GET network /x as nobody
save a = id
---
200

=== break
GET network /y as nobody
fault lose-member $a pool`)
	if err != nil || !s.Faulty() {
		t.Fatalf("Parse: %v, faulty %t", err, s.Faulty())
	}
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.Path)
		_, _ = io.WriteString(w, `{"id": "abc"}`)
	}))
	defer server.Close()
	target := recorded.Target{Endpoints: map[string]string{"network": server.URL}, Client: server.Client()}
	if r := target.Run(t.Context(), s); r[1].Err == nil {
		t.Error("a cloud that cannot be given faults ran the step")
	}
	seen, target.Fault = nil, func(_ context.Context, words []string) error {
		seen = append(seen, strings.Join(words, " "))
		return nil
	}
	target.Run(t.Context(), s)
	if diff := gocmp.Diff([]string{"/x", "lose-member abc pool", "/y"}, seen); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestUntilAsksAgain(t *testing.T) {
	var n atomic.Int32
	r := replay(t, "=== step\nGET network /x as nobody\nuntil p.status = ACTIVE", func(w http.ResponseWriter, _ *http.Request) {
		status := "PENDING"
		if n.Add(1) == 3 {
			status = "ACTIVE"
		}
		_, _ = fmt.Fprintf(w, `{"p": {"status": %q}}`, status)
	})[0]
	if !strings.Contains(r.Got, "ACTIVE") || n.Load() != 3 {
		t.Errorf("after %d requests %q, want the third answer", n.Load(), r.Got)
	}
}

func TestRaceKeepsRefusalsOnce(t *testing.T) {
	var n atomic.Int32
	r := replay(t, "=== step\nPOST network /x/$i as nobody\nrace 5", func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) > 2 {
			w.WriteHeader(http.StatusConflict)
		}
	})[0]
	if r.Got != "409" || n.Load() != 5 {
		t.Errorf("%d requests, refused as %q, %v; want 5, and 409 once", n.Load(), r.Got, r.Err)
	}
}

// A race fits if it has some of the recorded answers and no others.
func TestRaceFits(t *testing.T) {
	const pool, balancer = "409\nX: y\n{\n \"of\": \"pool\"\n}", "409\nX: y\n{\n \"of\": \"balancer\"\n}"
	both := recorded.Step{Race: 6, Want: balancer + "\n" + pool}
	for got, want := range map[string]bool{pool: true, balancer: true, both.Want: true, "": false, "409": false, pool + "\n500": false} {
		if both.Fits(got) != want {
			t.Errorf("a race fits %q: %t, want %t", got, !want, want)
		}
	}
	if one := (recorded.Step{Want: both.Want}); one.Fits(pool) || !one.Fits(both.Want) {
		t.Error("one request fits a part of its answer, or not all of it")
	}
}

// A recording changes only the answers.
func TestStringKeepsWhatPeopleWrote(t *testing.T) {
	text := `# About.
#
ignore x: reason

=== one
POST network /v2.0/ports as tenant
If-Match: revision_number=1
save a = port.id
{"port":
 {}}
---
201
{}

=== two
GET network /
---
200
`
	s, err := recorded.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(text, s.String()); diff != "" {
		t.Errorf("(-file +again)\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"words", "=== step", "=== step\nFETCH network /x", "=== step\nGET volume /x", "=== step\nGET network"} {
		if _, err := recorded.Parse(text); err == nil {
			t.Errorf("Parse(%q) succeeded", text)
		}
	}
}
