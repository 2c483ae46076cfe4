// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// sharing is a world whose provider shares affinity, as OVN's of 2025.1 does.
type sharing struct {
	*world
	has   map[string]bool // affinity in OVN, by protocol
	loses bool            // a new pool has no affinity, as with Octavia before 2025.1
}

func newSharing(t *testing.T) *sharing {
	w := newWorld(t)
	f, err := w.sdn.Features(t.Context(), "ovn")
	if err != nil {
		t.Fatal(err)
	}
	f.AffinityShared, f.DisabledBlocks = true, true
	w.cloud.SetProvider(memory.Provider{Features: f, Near: true})
	return &sharing{w, map[string]bool{}, false}
}

// round carries out the first steps of a plan, and no more than that if the process dies.
func (s *sharing) round(most int) (rest bool) {
	s.t.Helper()
	_, _, p, err := s.plan()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, step := range p.Steps[:min(most, len(p.Steps))] {
		if s.loses {
			step = withoutAffinity(step)
		}
		s.provide(step)
		if err := s.do(step); err != nil {
			s.t.Fatalf("%s: %v", step, err)
		}
	}
	return atRest(&p)
}

// withoutAffinity is a step that creates pools, which get none.
func withoutAffinity(step balancer.Step) balancer.Step {
	switch step := step.(type) {
	case balancer.CreateLoadBalancer:
		step.LoadBalancer.Listeners = slices.Clone(step.LoadBalancer.Listeners)
		for i, l := range step.LoadBalancer.Listeners {
			step.LoadBalancer.Listeners[i].Pool = lost(*l.Pool)
		}
		return step
	case balancer.CreateListener:
		step.Listener.Pool = lost(*step.Listener.Pool)
		return step
	case balancer.CreatePool:
		step.Pool = *lost(step.Pool)
		return step
	}
	return step
}

func lost(p sdn.Pool) *sdn.Pool {
	p.AffinitySeconds = nil
	return &p
}

// provide does what the provider does of affinity at a step.
func (s *sharing) provide(step balancer.Step) {
	switch step := step.(type) {
	case balancer.CreateLoadBalancer:
		for _, l := range step.LoadBalancer.Listeners {
			s.has[l.Protocol] = s.has[l.Protocol] || l.Pool.AffinitySeconds != nil
		}
	case balancer.CreateListener:
		s.has[step.Listener.Protocol] = s.has[step.Listener.Protocol] || step.Listener.Pool.AffinitySeconds != nil
	case balancer.CreatePool:
		s.has[step.Pool.Protocol] = s.has[step.Pool.Protocol] || step.Pool.AffinitySeconds != nil
	}
	have, err := s.trees(s.t.Context())
	if err != nil || len(have) == 0 {
		return
	}
	for _, l := range have[0].Listeners {
		switch step := step.(type) {
		case balancer.UpdatePool:
			s.has[l.Protocol] = s.has[l.Protocol] || l.Pool != nil && step.ID == l.Pool.ID && step.Pool.AffinitySeconds != nil
		case balancer.DeletePool:
			s.has[l.Protocol] = s.has[l.Protocol] && (l.Pool == nil || step.ID != l.Pool.ID)
		case balancer.DeleteListener:
			s.has[l.Protocol] = s.has[l.Protocol] && step.ID != l.ID
		}
	}
}

func (s *sharing) become(affinity bool, ports map[int32]string, r *rand.Rand) {
	s.t.Helper()
	s.klb.Spec.Listeners = nil
	for n, protocol := range ports {
		l := port(protocol, n, 1, 2)
		if affinity {
			l.AffinitySeconds = new(int32(10800))
		}
		s.klb.Spec.Listeners = append(s.klb.Spec.Listeners, l)
	}
	for range 50 {
		if s.round(r.IntN(4)) {
			for _, protocol := range ports {
				if s.has[protocol] != affinity {
					s.t.Fatalf("ports %v, affinity %v: the provider has it for %v; steps: %v", ports, affinity, s.has, s.did)
				}
			}
			return
		}
	}
	s.t.Fatalf("it does not come to rest: %v", s.did)
}

// TestSharedAffinity: where the pools of a protocol share affinity, they have it, and lose it, with the
// Service, whatever becomes of the other ports, and wherever a process ends.
func TestSharedAffinity(t *testing.T) {
	for seed := range 100 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s, r := newSharing(t), rand.New(rand.NewPCG(uint64(seed), 7))
			s.loses = seed%2 == 1
			for range 20 {
				ports := map[int32]string{80: "TCP"}
				for n := range int32(4) {
					if r.IntN(2) == 0 {
						ports[443+n] = []string{"TCP", "UDP"}[n%2]
					}
				}
				s.become(r.IntN(3) > 0, ports, r)
			}
		})
	}
}

// TestMembersWaitForDisabled: members are neither changed nor created while a listener or a pool is
// disabled, if that would leave them PENDING.
func TestMembersWaitForDisabled(t *testing.T) {
	for _, what := range []string{"listener", "pool", "member"} {
		s := newSharing(t)
		s.klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80, 1), port("UDP", 53, 1)}
		s.settle()
		have, err := s.trees(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		disable := func(is bool) {
			s.cloud.EditLoadBalancer(have[0].ID, func(lb *sdn.LoadBalancer) {
				switch l := &lb.Listeners[0]; what {
				case "listener":
					l.Disabled = is
				case "pool":
					l.Pool.Disabled = is
				case "member":
					l.Pool.Members[0].Disabled = is
				}
			})
		}
		disable(true)
		s.klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80, 1, 2), port("UDP", 53, 1, 3), port("TCP", 81, 1)}
		_, _, p, err := s.plan()
		if err != nil || (len(p.Steps) == 0) != (what != "member") {
			t.Errorf("while a %s is disabled: %v, %v", what, p.Steps, err)
		}
		disable(false)
		if _, _, p, err = s.plan(); err != nil || len(p.Steps) != 3 {
			t.Errorf("after a %s was disabled: %v, %v", what, p.Steps, err)
		}
	}
}
