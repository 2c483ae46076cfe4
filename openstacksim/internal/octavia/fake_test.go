// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
	"github.com/kuryr-go/kuryr/openstacksim/internal/octavia"
)

const (
	subnetID  = "11111111-1111-4111-8111-111111111111"
	secondID  = "11111111-1111-4111-8111-111111111112" // for an additional VIP
	networkID = "22222222-2222-4222-8222-222222222222"
	project   = "p1"
)

var (
	tenant   = keystone.Caller{ProjectID: project, Roles: []string{"member", "load-balancer_member"}}
	stranger = keystone.Caller{ProjectID: "p2", Roles: []string{"member", "load-balancer_member"}}
	operator = keystone.Caller{ProjectID: "p3", Roles: []string{"admin"}}
)

// networks is a Neutron with one network and one subnet.
type networks struct {
	mu    sync.Mutex
	ports map[string]octavia.VIPPort
	brief map[string]octavia.Port // brought by users
	next  int
}

func newNetworks() *networks {
	return &networks{ports: map[string]octavia.VIPPort{}, brief: map[string]octavia.Port{}, next: 4}
}

func seesAll(who keystone.Caller) bool { return who.ProjectID == project || who.Admin() }

func (n *networks) Subnet(who keystone.Caller, id string) (string, netip.Prefix, bool) {
	return networkID, netip.MustParsePrefix("10.0.0.0/16"), (id == subnetID || id == secondID) && seesAll(who)
}

func (n *networks) NetworkSubnets(who keystone.Caller, id string) []string {
	if id != networkID || !seesAll(who) {
		return nil
	}
	return []string{subnetID}
}

func (n *networks) MakePort(p octavia.VIPPort) (string, netip.Addr, string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.Address.IsValid() {
		n.next++
		p.Address = netip.AddrFrom4([4]byte{10, 0, byte(n.next >> 8), byte(n.next)})
	}
	for _, other := range n.ports {
		if other.Address == p.Address {
			return "", netip.Addr{}, "", fmt.Errorf("IP address %s already allocated in subnet %s", p.Address, p.SubnetID)
		}
	}
	for _, other := range n.brief {
		if slices.ContainsFunc(other.Addresses, func(a octavia.PortAddress) bool { return a.Address == p.Address }) {
			return "", netip.Addr{}, "", fmt.Errorf("IP address %s already allocated in subnet %s", p.Address, p.SubnetID)
		}
	}
	id := fmt.Sprintf("00000000-0000-4000-9000-%012d", len(n.ports)+n.next*1000)
	n.ports[id] = p
	return id, p.Address, subnetID, nil
}

func (n *networks) Port(who keystone.Caller, id string) (octavia.Port, bool) {
	p, ok := n.brief[id]
	return p, ok && seesAll(who)
}

func (n *networks) RemovePort(id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.ports[id]; !ok {
		return errors.New("no such port")
	}
	delete(n.ports, id)
	return nil
}

// world is a service whose clock the test moves. Delayed work runs when the test says so.
type world struct {
	*octavia.Service
	t     testing.TB
	nets  *networks
	later []func()
	delay func(kind, id, action string) (time.Duration, string)
	ids   int
}

func newWorld(t testing.TB, change func(*octavia.Options)) *world {
	w := &world{t: t, nets: newNetworks()}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := octavia.Options{
		URL: "http://lb.test", Networks: w.nets, Amphora: true,
		NewID: func() string { w.ids++; return fmt.Sprintf("00000000-0000-4000-8000-%012d", w.ids) },
		Now:   func() time.Time { now = now.Add(time.Second); return now },
		After: func(_ time.Duration, f func()) { w.later = append(w.later, f) },
		Delay: func(kind, id, action string) (time.Duration, string) {
			if w.delay == nil {
				return 0, ""
			}
			return w.delay(kind, id, action)
		},
	}
	if change != nil {
		change(&o)
	}
	w.Service = octavia.New(o)
	return w
}

// settle runs all of the providers' pending work.
func (w *world) settle() {
	for len(w.later) > 0 {
		f := w.later[0]
		w.later = w.later[1:]
		f()
	}
}

type object = map[string]any

func (w *world) do(who keystone.Caller, method, path, body string) (int, object) {
	w.t.Helper()
	if strings.HasPrefix(path, "/") {
		path = "/v2/lbaas" + path
	} else {
		path = path[1:]
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Accept", "application/json")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	rec := httptest.NewRecorder()
	w.Handle(rec, r, who)
	var out object
	if rec.Body.Len() > 0 && rec.Body.Bytes()[0] == '{' {
		if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
			w.t.Fatalf("%s %s: %v: %s", method, path, err, rec.Body)
		}
	}
	return rec.Code, out
}

// make creates one object, waits until it is ready, and returns its ID.
func (w *world) make(path, body string) string {
	w.t.Helper()
	code, out := w.do(tenant, http.MethodPost, path, body)
	if code != http.StatusCreated {
		w.t.Fatalf("POST %s %s: %d %v", path, body, code, out)
	}
	w.settle()
	for _, v := range out {
		return v.(object)["id"].(string)
	}
	return ""
}

// at returns the value at a path: "loadbalancer.listeners.0.id".
func at(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case object:
			v = in[name]
		case []any:
			i := int(name[0] - '0')
			if i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

func (w *world) get(path, field string) any {
	w.t.Helper()
	code, out := w.do(tenant, http.MethodGet, path, "")
	if code != http.StatusOK {
		w.t.Fatalf("GET %s: %d %v", path, code, out)
	}
	return at(out, field)
}

func (w *world) balancer(provider string) string {
	w.t.Helper()
	return w.make("/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"`+subnetID+`","provider":"`+provider+`"}}`)
}
