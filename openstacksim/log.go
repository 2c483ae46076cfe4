// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Call is one request to one of the services.
type Call struct {
	N        int           `json:"n"` // counted from 1, in the order in which calls ended
	At       time.Time     `json:"at"`
	Service  string        `json:"service"` // identity, network, load-balancer, or the type of one of Options.Services
	Method   string        `json:"method"`
	Path     string        `json:"path"` // as the service sees it: /v2.0/ports
	Query    string        `json:"query,omitempty"`
	Resource string        `json:"resource"`        // ports, ports/{id}, routers/{id}/add_router_interface
	Items    int           `json:"items,omitempty"` // of a bulk create
	Project  string        `json:"project,omitempty"`
	User     string        `json:"user,omitempty"`
	Status   int           `json:"status,omitempty"` // the client's status; 0: no answer
	Effect   int           `json:"effect,omitempty"` // the service's status; 0: it was not called
	Outcome  string        `json:"outcome"`          // the status, or lost, reset, hang, stopped, gone
	Rule     string        `json:"rule,omitempty"`   // the dial that made it so
	Took     time.Duration `json:"took"`             // ns
}

// Write reports whether the call may change something.
func (c Call) Write() bool { return c.Method != http.MethodGet && c.Method != http.MethodHead }

// Count has the outcomes of all calls of one verb to one resource.
type Count struct {
	Service  string         `json:"service"`
	Method   string         `json:"method"`
	Resource string         `json:"resource"`
	Calls    int            `json:"calls"`
	Items    int            `json:"items,omitempty"` // of bulk creates
	Outcomes map[string]int `json:"outcomes"`
	P50      time.Duration  `json:"p50"`
	P99      time.Duration  `json:"p99"`
}

// log counts calls, and keeps the last of them.
type log struct {
	keep int

	mu     sync.Mutex
	n      int
	last   []Call // a ring once it is full
	counts map[key]*tally
}

type key struct{ service, method, resource string }

type tally struct {
	calls, items int
	outcomes     map[string]int
	took         [buckets]uint32
}

// Times are counted in buckets, each a twentieth wider than the one before.
const buckets = 400

var growth = math.Log(1.05)

func bucket(d time.Duration) int {
	us := float64(d) / float64(time.Microsecond)
	if us < 1 {
		return 0
	}
	return min(int(math.Log(us)/growth), buckets-1)
}

func (t *tally) quantile(q float64) time.Duration {
	rank, seen := uint32(math.Ceil(q*float64(t.calls))), uint32(0)
	for i, n := range t.took {
		if seen += n; seen >= rank && n > 0 {
			return time.Duration(math.Exp((float64(i)+0.5)*growth) * float64(time.Microsecond)).Round(time.Microsecond)
		}
	}
	return 0
}

func newLog(keep int) *log { return &log{keep: keep, counts: map[key]*tally{}} }

func (l *log) add(c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	c.N = l.n
	if len(l.last) < l.keep {
		l.last = append(l.last, c)
	} else if l.keep > 0 {
		l.last[(l.n-1)%l.keep] = c
	}
	k := key{c.Service, c.Method, c.Resource}
	t := l.counts[k]
	if t == nil {
		// Invalid requests of a client must not fill the memory.
		if len(l.counts) >= 2000 {
			k.resource = "…"
		}
		if t = l.counts[k]; t == nil {
			t = &tally{outcomes: map[string]int{}}
			l.counts[k] = t
		}
	}
	t.calls++
	t.items += c.Items
	t.outcomes[c.Outcome]++
	t.took[bucket(c.Took)]++
}

// Calls returns the last calls, the oldest first; Options.Keep is the number.
func (c *Cloud) Calls() []Call {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := slices.Clone(l.last)
	slices.SortFunc(calls, func(a, b Call) int { return cmp.Compare(a.N, b.N) })
	return calls
}

// Counts are all calls since the start or Reset, by service, resource and method.
func (c *Cloud) Counts() []Count {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	all := []Count{}
	for k, t := range l.counts {
		outcomes := map[string]int{}
		for o, n := range t.outcomes {
			outcomes[o] = n
		}
		all = append(all, Count{k.service, k.method, k.resource, t.calls, t.items, outcomes, t.quantile(0.5), t.quantile(0.99)})
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Method, b.Method))
	})
	return all
}

// Count is how many calls of that method there were to that resource, as in
// Count("POST", "ports"), with one of the outcomes if any are named. Resources of the
// Cloud's own services have different names; of services that have the same the calls
// are added up, and Counts has them apart.
func (c *Cloud) Count(method, resource string, outcomes ...string) int {
	n := 0
	for _, t := range c.Counts() {
		if t.Method != method || t.Resource != resource {
			continue
		}
		for o, k := range t.Outcomes {
			if len(outcomes) == 0 || slices.Contains(outcomes, o) {
				n += k
			}
		}
	}
	return n
}

// Reset clears the log. Resources stay.
func (c *Cloud) Reset() {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n, l.last, l.counts = 0, nil, map[key]*tally{}
}

// resource is a path with {id} in place of names: ports/{id}/tags/{id}.
func resource(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 2 {
		return "versions"
	}
	parts = slices.Clone(parts[1:])
	start := 0
	if len(parts) > 1 && slices.Contains([]string{"lbaas", "octavia", "qos", "auth"}, parts[0]) {
		start = 1
	}
	for i := start + 1; i < len(parts); i += 2 {
		parts[i] = "{id}"
	}
	if start == 1 && parts[0] != "auth" && parts[0] != "qos" {
		parts = parts[1:]
	}
	return strings.Join(parts, "/")
}
