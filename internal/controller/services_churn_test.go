// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// turns records the requested changes of members. The endpoints of the test never come back, so no
// member may be added or removed twice.
type turns struct {
	sdn.LoadBalancers

	mu     sync.Mutex
	gone   map[string]bool // by pool, address and port
	there  map[string]bool
	faults []string
	calls  int // accepted calls
}

func (c *turns) ChangeMembers(ctx context.Context, id, poolID string, add, remove []sdn.Member) error {
	err := c.LoadBalancers.ChangeMembers(ctx, id, poolID, add, remove)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	note := func(to map[string]bool, what string, m sdn.Member) {
		key := fmt.Sprintf("%s:%d of pool %s", m.IP, m.Port, poolID)
		if to[key] || what == "added" && c.gone[key] {
			c.faults = append(c.faults, fmt.Sprintf("%s is %s again", key, what))
		}
		to[key] = true
	}
	for _, m := range add {
		note(c.there, "added", m)
	}
	for _, m := range remove {
		note(c.gone, "removed", m)
	}
	return nil
}

// forget restarts the counts, but keeps the known members.
func (c *turns) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = 0
}

// soFar returns the number of accepted calls, and the members that were added or removed twice.
func (c *turns) soFar() (calls int, faults []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls, slices.Clone(c.faults)
}

// TestServicesUnderChurn: endpoints of many Services change while their load balancers are busy
// with earlier changes. In the end each port has its members. No member was added or removed twice.
// No pool was changed more often than its endpoints. No load balancer was created or deleted.
func TestServicesUnderChurn(t *testing.T) {
	t.Parallel()
	services, width, endpoints, rounds := 100, 5, 20, 5
	if testing.Short() {
		services, rounds = 10, 3
	}
	for _, provider := range []string{"ovn", "amphora"} {
		t.Run(provider, func(t *testing.T) {
			apart(t)
			churn(t, provider, services, width, endpoints, rounds)
		})
	}
}

func churn(t *testing.T, provider string, services, width, endpoints, rounds int) {
	b := newSimBed(t)
	seen := &turns{gone: map[string]bool{}, there: map[string]bool{}}
	b.around = func(l sdn.LoadBalancers) sdn.LoadBalancers { seen.LoadBalancers = l; return seen }
	if provider == "amphora" { // OVN's driver is done when it answers
		b.slow("{balancers: [{delay: 20ms}]}")
	}
	b.launch(10_000)
	state, slicesOf := make([][]string, services), make([]*discoveryv1.EndpointSlice, services)
	name := func(i int) string { return fmt.Sprint("churn-", i) }
	for i := range services {
		b.service(name(i), ports(width), by(provider))
		state[i] = addresses(i*250, endpoints)
		slicesOf[i] = b.sliceWith(width, name(i), state[i])
	}
	rest := func() bool {
		for i := range services {
			if !b.atRest(name(i), width, state[i]) {
				time.Sleep(50 * time.Millisecond)
				return false
			}
		}
		return true
	}
	b.eventuallyIn(5*time.Minute, "all are in the cloud", rest)
	b.eventually("default/kubernetes is, too", func() bool { return b.atRest("kubernetes", 1, nil) })
	b.api.Reset()
	seen.forget()
	var all sync.WaitGroup
	for i, s := range slicesOf {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for round := range rounds {
				state[i] = slices.Clone(state[i])
				state[i][r.IntN(endpoints)] = addresses(i*250+100+round, 1)[0]
				s.Endpoints = endpointsAt(state[i]...)
				if err := b.client.Update(t.Context(), s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.eventuallyIn(5*time.Minute, "all members are said to be right", rest)
	b.quiet()
	changed, refused, looked := b.asked()
	calls, faults := seen.soFar()
	t.Logf("%d Services with %d ports and %d endpoints, %d changes of endpoints: %d calls for members; requests %v, refused %v, looked %v",
		services, width, endpoints, services*rounds, calls, changed, refused, looked)
	have := b.membersOf()
	for i := range services {
		if diff := cmp.Diff(wanted(width, state[i]), have[name(i)]); diff != "" {
			t.Errorf("members of %s (-want +got):\n%s", name(i), diff)
		}
	}
	for _, f := range faults {
		t.Error(f)
	}
	if most := services * width * rounds; calls > most {
		t.Errorf("%d calls for members, want at most %d", calls, most)
	}
	for what := range changed {
		if !slices.Contains([]string{"PUT pools/{id}/members", "POST pools/{id}/members", "DELETE pools/{id}/members/{id}"}, what) {
			t.Errorf("%d requests %s, want none", changed[what], what)
		}
	}
}

// mostBytes is the largest allowed size of an object: etcd takes 1.5 MiB.
const mostBytes = 1_450_000

// TestThousandEndpoints: a Service with three ports and a thousand endpoints is complete in the
// cloud. Its KuryrLoadBalancer fits into etcd, with all that the API server adds. With the longest
// possible names the last endpoints are left out.
func TestThousandEndpoints(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]bool{"shop-checkout-frontend": false, strings.Repeat("long-", 12) + "web": true} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("SKIPPED: it takes a quarter of a minute, and runs with 'make long'")
			}
			apart(t)
			b := newWholeBed(t)
			b.launch()
			ips := addresses(250, 1000)
			b.thousand(name, ips)
			var klb *v1.KuryrLoadBalancer
			b.eventuallyIn(2*time.Minute, "the cloud has the members, and the status says so", func() bool {
				klb = b.balancerOf(name)
				return klb != nil && len(klb.Status.Members) > 2500 && len(klb.Status.Members) == 3*len(klb.Spec.Listeners[0].Members) &&
					(left || cmp.Equal(b.serving(name), wanted(3, ips)))
			})
			content, err := json.Marshal(klb)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("a KuryrLoadBalancer with %d ports and %d members has %d bytes", len(klb.Spec.Listeners), len(klb.Status.Members), len(content))
			if len(content) > mostBytes {
				t.Errorf("a KuryrLoadBalancer has %d bytes, want at most %d", len(content), mostBytes)
			}
			if left {
				b.mentions("Event", b.eventOn(name, "EndpointsLeftOut"), "more endpoints than fit into a KuryrLoadBalancer")
			}
		})
	}
}

// thousand creates a Service with three ports and pods, in slices as large as Kubernetes makes
// them.
func (b *serviceBed) thousand(name string, ips []string) {
	b.t.Helper()
	b.service(name, ports(3))
	for i := range len(ips) / 100 {
		s := newSlice(name, fmt.Sprint("slice-", i), ips[i*100:i*100+100]...)
		s.Ports = portsOf(3)
		for j := range s.Endpoints {
			s.Endpoints[j].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("%s-5d4f8c7b9d-%05d", name, i*100+j)}
		}
		b.create(s)
	}
}
