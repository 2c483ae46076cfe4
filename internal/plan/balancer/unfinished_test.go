// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestUnfinished: a load balancer of OVN's provider is ACTIVE before its children. It is left alone
// while these become ACTIVE one after the other, however long all take, and for a pause after
// nothing changes any more. What is left is for repairs then, until it changes itself.
func TestUnfinished(t *testing.T) {
	const pause = 30 * time.Second
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
		ids, again := m.Unfinished(step.have, begin.Add(step.at), pause)
		if slices.Equal(ids, []string{"web"}) != step.waits || len(ids) > 1 || again != step.again {
			t.Errorf("%s: waits for %v, reads again after %s; want %t, %s", step.name, ids, again, step.waits, step.again)
		}
	}
	if len(m) != 1 {
		t.Errorf("%d notes are kept, want that of the last change", len(m))
	}
}

// TestUnfinishedBesideOthers: each object has its own time.
func TestUnfinishedBesideOthers(t *testing.T) {
	const pause = 30 * time.Second
	const active, creating, update = sdn.ProvisioningActive, sdn.ProvisioningCreating, sdn.Provisioning("PENDING_UPDATE")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	lb := func(id string, listener, one, two sdn.Provisioning) sdn.LoadBalancer {
		p := &sdn.Pool{ID: id + "-pool", Provisioning: active, Members: []sdn.Member{{ID: id + "-1", Provisioning: one}, {ID: id + "-2", Provisioning: two}}}
		return sdn.LoadBalancer{ID: id, Provisioning: active, VIP: v1.VIPAddress{IP: "10.2.0.1"}, Listeners: []sdn.Listener{{ID: id + "-l", Protocol: "TCP", Port: 80, Provisioning: listener, Pool: p}}}
	}
	inError := lb("web", creating, active, active)
	inError.Provisioning = sdn.ProvisioningError
	repaired := func(m *balancer.Attempts) {
		m.Tried(&balancer.Fault{LoadBalancerID: "web"}, now, "")
	}
	type look struct {
		after time.Duration
		have  []sdn.LoadBalancer
		want  string // the load balancers that are waited for
	}
	for _, tc := range []struct {
		name   string
		first  []sdn.LoadBalancer // looked at when it begins
		before func(*balancer.Attempts)
		looks  []look
	}{
		{"as many as before, but others", []sdn.LoadBalancer{lb("web", creating, update, active)}, nil, []look{
			{pause, []sdn.LoadBalancer{lb("web", creating, update, active)}, ""},
			{0, []sdn.LoadBalancer{lb("web", creating, active, update)}, "web"},
			{time.Second, []sdn.LoadBalancer{lb("web", creating, active, active)}, ""},
		}},
		{"one is done in a time in which nobody looked", []sdn.LoadBalancer{lb("web", active, update, update)}, nil, []look{
			{pause + time.Second, []sdn.LoadBalancer{lb("web", active, active, update)}, "web"},
		}},
		{"a stuck one that is done renews nothing", []sdn.LoadBalancer{lb("web", creating, active, active)}, nil, []look{
			{pause, []sdn.LoadBalancer{lb("web", creating, active, active)}, ""},
			{0, []sdn.LoadBalancer{lb("web", creating, update, active)}, "web"},
			{20 * time.Second, []sdn.LoadBalancer{lb("web", active, update, active)}, "web"},
			{10 * time.Second, []sdn.LoadBalancer{lb("web", active, update, active)}, ""},
		}},
		{"a stuck one is changed", []sdn.LoadBalancer{lb("web", active, creating, active)}, nil, []look{
			{pause, []sdn.LoadBalancer{lb("web", active, creating, active)}, ""},
			{0, []sdn.LoadBalancer{lb("web", active, update, active)}, "web"},
		}},
		{"stuck members are sent again", []sdn.LoadBalancer{lb("web", active, update, update)}, repaired, []look{
			{pause, []sdn.LoadBalancer{lb("web", active, update, update)}, "web"},
			{pause, []sdn.LoadBalancer{lb("web", active, update, update)}, ""},
		}},
		{"another load balancer's is done", []sdn.LoadBalancer{lb("web", active, update, update), lb("api", active, update, update)}, nil, []look{
			{20 * time.Second, []sdn.LoadBalancer{lb("web", active, update, update), lb("api", active, active, update)}, "web api"},
			{10 * time.Second, []sdn.LoadBalancer{lb("web", active, update, update), lb("api", active, active, update)}, "api"},
		}},
		{"in ERROR: nothing is under way", []sdn.LoadBalancer{inError}, nil, []look{{0, []sdn.LoadBalancer{inError}, ""}}},
	} {
		m, at := balancer.Attempts{}, now
		m.Note("another attempt", at, balancer.Pauses{}, "")
		m.Unfinished(tc.first, at, pause)
		if tc.before != nil {
			tc.before(&m)
		}
		for i, l := range tc.looks {
			at = at.Add(l.after)
			if ids, _ := m.Unfinished(l.have, at, pause); strings.Join(ids, " ") != l.want {
				t.Errorf("%s: look %d waits for %v, want %q", tc.name, i, ids, l.want)
			}
		}
		if m["another attempt"].Times != 1 {
			t.Errorf("%s: another attempt is forgotten", tc.name)
		}
	}
}
