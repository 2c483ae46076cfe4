// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestUnfinished: a load balancer of OVN's provider is ACTIVE before its children. It is left alone
// while these become ACTIVE one after the other, however long all take, and for a pause after
// nothing changes any more. Then it is for repairs, until something changes again.
func TestUnfinished(t *testing.T) {
	const pause = 30 * time.Second
	later := sdn.Features{ChildrenLater: true}
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tree := func(listener, pool sdn.Provisioning, members ...sdn.Provisioning) []sdn.LoadBalancer {
		p := &sdn.Pool{ID: "pool", Provisioning: pool}
		for i, s := range members {
			p.Members = append(p.Members, sdn.Member{ID: string(rune('a' + i)), Provisioning: s})
		}
		return []sdn.LoadBalancer{{ID: "other", Provisioning: sdn.ProvisioningActive}, {
			ID: "web", Provisioning: sdn.ProvisioningActive, Listeners: []sdn.Listener{{ID: "listener", Provisioning: listener, Pool: p}},
		}}
	}
	const active, creating, update = sdn.ProvisioningActive, sdn.ProvisioningCreating, sdn.Provisioning("PENDING_UPDATE")
	busy := tree(active, active, active, creating)
	busy[1].Provisioning = update
	var m balancer.Attempts
	for _, step := range []struct {
		name  string
		at    time.Duration
		have  []sdn.LoadBalancer
		waits bool
		again time.Duration
	}{
		{"nothing is done yet", 0, tree(creating, creating, creating, creating), true, 500 * time.Millisecond},
		{"still so", 2 * time.Second, tree(creating, creating, creating, creating), true, 2 * time.Second},
		{"for long", 29 * time.Second, tree(creating, creating, creating, creating), true, 5 * time.Second},
		{"the listener is done", 29 * time.Second, tree(active, creating, creating, creating), true, 500 * time.Millisecond},
		{"the pool is done", 58 * time.Second, tree(active, active, creating, creating), true, 500 * time.Millisecond},
		{"one member is done", 87 * time.Second, tree(active, active, active, creating), true, 500 * time.Millisecond},
		{"nothing changes any more", 117 * time.Second, tree(active, active, active, creating), false, 0},
		{"others are changed: the load balancer is busy", 118 * time.Second, busy, false, 0},
		{"and then they", 119 * time.Second, tree(update, active, active, creating), true, 500 * time.Millisecond},
		{"they are done", 121 * time.Second, tree(active, active, active, creating), false, 0},
		{"all is done", 122 * time.Second, tree(active, active, active, active), false, 0},
		{"the same member is changed much later", 900 * time.Second, tree(active, active, active, update), true, 500 * time.Millisecond},
	} {
		ids, again := m.Unfinished(step.have, later, begin.Add(step.at), pause)
		if slices.Equal(ids, []string{"web"}) != step.waits || len(ids) > 1 || again != step.again {
			t.Errorf("%s: waits for %v, reads again after %s; want %t, %s", step.name, ids, again, step.waits, step.again)
		}
	}
	if len(m) != 1 {
		t.Errorf("%d notes are kept, want that of the last change", len(m))
	}
	// A dead change (the first one) and a living one: as many objects as before, but others.
	both := func(second, third sdn.Provisioning) []sdn.LoadBalancer { return tree(creating, active, second, third) }
	end := begin.Add(time.Hour)
	m.Unfinished(both(update, active), later, end, pause)
	if ids, _ := m.Unfinished(both(update, active), later, end.Add(pause), pause); len(ids) > 0 {
		t.Errorf("waits for %v, want what is stuck to be for repairs", ids)
	}
	if ids, _ := m.Unfinished(both(active, update), later, end.Add(pause), pause); len(ids) != 1 {
		t.Error("another change is under way, and it is not waited for")
	}
	m = nil
	if ids, _ := m.Unfinished(tree(creating, creating), sdn.Features{}, begin, pause); len(ids) > 0 || len(m) > 0 {
		t.Errorf("a provider that is done when the load balancer is: waits for %v", ids)
	}
}
