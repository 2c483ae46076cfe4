// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// fairness records the order in which the members of several pools change in parts.
type fairness struct {
	sdn.LoadBalancers

	mu     sync.Mutex
	filled []string // pools that had members from the start
	calls  []string // the pool of each call
}

func (f *fairness) CreateLoadBalancer(ctx context.Context, owner sdn.Owner, lb sdn.LoadBalancer) (sdn.LoadBalancer, error) {
	made, err := f.LoadBalancers.CreateLoadBalancer(ctx, owner, lb)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range made.Listeners {
		if l.Pool != nil && len(l.Pool.Members) > 0 {
			f.filled = append(f.filled, l.Pool.ID)
		}
	}
	return made, err
}

func (f *fairness) ChangeMembers(ctx context.Context, id, poolID string, add, remove []sdn.Member) error {
	err := f.LoadBalancers.ChangeMembers(ctx, id, poolID, add, remove)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, poolID)
	return err
}

// begin clears the record.
func (f *fairness) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.filled = nil, nil
}

// soFar returns the pools that had members from the start, and the pool of each call.
func (f *fairness) soFar() (filled, calls []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.filled), slices.Clone(f.calls)
}

// TestLargeServiceOnOVN: a Service with several ports has more endpoints than OVN's driver takes in
// one request. Each port has its first endpoints from the start. A change of many endpoints
// proceeds at all ports at once.
func TestLargeServiceOnOVN(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it takes a quarter of a minute, and runs with 'make long'")
	}
	apart(t)
	b := newSimBed(t)
	seen := &fairness{}
	b.around = func(l sdn.LoadBalancers) sdn.LoadBalancers { seen.LoadBalancers = l; return seen }
	b.launch(1000)
	b.eventually("default/kubernetes is in the cloud", func() bool { return b.atRest("kubernetes", 1, nil) })
	seen.begin()
	ips := addresses(0, 300)
	b.service("web", ports(3), by("ovn"))
	s := b.sliceWith(3, "web", ips)
	b.eventuallyIn(2*time.Minute, "it is in the cloud", func() bool { return b.atRest("web", 3, ips) })
	filled, calls := seen.soFar()
	if len(filled) != 3 || len(calls) < 3 {
		t.Fatalf("%d pools had members from the first, and %d calls filled them; want three, and more", len(filled), len(calls))
	}
	inTurns(t, "to fill the pools", calls)

	b.stop()
	b.launch(1000)
	seen.begin()
	copy(ips, addresses(1000, 75))
	s.Endpoints = endpointsAt(ips...)
	if err := b.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.eventuallyIn(2*time.Minute, "a quarter is replaced, one by one", func() bool { return b.atRest("web", 3, ips) })
	_, calls = seen.soFar()
	inTurns(t, "to replace a quarter", calls)
	if rounds := len(calls) / 3; rounds < 7 {
		t.Errorf("a quarter was replaced in %d rounds, want more: nothing is shown by that", rounds)
	}
	if diff := cmp.Diff(wanted(3, ips), b.membersOf()["web"]); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// inTurns fails if a pool was changed twice while another one waited.
func inTurns(t *testing.T, what string, calls []string) {
	t.Helper()
	turns := map[string]int{}
	for _, pool := range calls {
		turns[pool]++
	}
	t.Logf("%s: calls by pool: %v", what, turns)
	if len(turns) != 3 {
		t.Errorf("%s: %d pools were changed, want 3", what, len(turns))
	}
	so := map[string]int{}
	for _, pool := range calls {
		so[pool]++
		for other := range turns {
			if so[other] < turns[other] && so[pool] > so[other]+1 {
				t.Fatalf("%s: pool %s had %d turns when %s had %d of %d", what, pool, so[pool], other, so[other], turns[other])
			}
		}
	}
}
