// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// refusing is a world in which one removal is needed that the cloud refuses.
func refusing(t *testing.T, change func(*v1.KuryrLoadBalancerSpec)) *broken {
	w := brokenWorld(t, "", func(*memory.Cloud, *sdn.LoadBalancer) {})
	w.klb.Spec.Listeners[0] = port("TCP", 53, 1, 2)
	w.settle()
	change(&w.klb.Spec)
	return w
}

// refused carries out a plan in which each removal is refused, and returns what is tried
// to mend that.
func (w *broken) refused() (p balancer.Actions) {
	w.t.Helper()
	_, _, p, err := w.plan()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range p.Steps {
		w.attempts.Removed(s, w.now, time.Second, "refused")
	}
	_, _, after, err := w.plan()
	if err != nil {
		w.t.Fatal(err)
	}
	p.Wake = after.Wake
	return p
}

// TestWhatResistsIsToldAgain: what the cloud does not delete is told, with what is next and
// when, also where a plan is looked at a second time.
func TestWhatResistsIsToldAgain(t *testing.T) {
	w := refusing(t, func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0].Members = nil })
	for range 4 {
		m := w.refused()
		for i := range m.Remedies {
			w.attempts.Tried(&m.Remedies[i], w.now, "refused")
		}
	}
	_, _, p, err := w.plan()
	if err != nil {
		t.Fatal(err)
	}
	_, _, second, err := w.plan()
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Tried) != 1 || !cmp.Equal(p.Tried, second.Tried) || p.Wake != second.Wake {
		t.Errorf("first told is %+v, and then %+v", p, second)
	}
}

// TestRemovalsSpareWhatServes: what serves is not made anew for a quarter of an hour as
// something of it is not deleted. The removal is tried meanwhile, after growing pauses.
func TestRemovalsSpareWhatServes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.KuryrLoadBalancerSpec)
		level  balancer.Level
	}{
		"a listener": {func(s *v1.KuryrLoadBalancerSpec) { s.Listeners = s.Listeners[:1] }, balancer.LevelLoadBalancer},
		"a member":   {func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = port("TCP", 53, 1) }, balancer.LevelPort},
	} {
		t.Run(name, func(t *testing.T) {
			w := refusing(t, tc.change)
			began, tries := w.now, 0
			for range 100 {
				m := w.refused()
				tries += len(m.Steps)
				for i := range m.Remedies {
					r := &m.Remedies[i]
					if r.Level == balancer.LevelAgain {
						tries++
						w.attempts.Tried(r, w.now, "refused")
						continue
					}
					if took := w.now.Sub(began); took < 15*time.Minute || took > 20*time.Minute || r.Level != tc.level || !r.Replaces {
						t.Errorf("after %s: %s, want that later than a quarter of an hour, and only after a trial", took, r.Tell())
					}
					if tries < 8 || tries > 15 {
						t.Errorf("it was tried %d times to delete it, want about ten", tries)
					}
					return
				}
				w.now = w.now.Add(max(m.Wake, 20*time.Millisecond))
			}
			t.Errorf("nothing is made anew in %s", w.now.Sub(began))
		})
	}
}

// TestComingMembersDoNotWait: members that come are added although others of the pool cannot
// be removed; if nobody is served there the port is soon made anew.
func TestComingMembersDoNotWait(t *testing.T) {
	for _, tc := range []struct {
		members []int
		anew    bool
	}{{[]int{1, 3}, false}, {[]int{3}, true}} {
		w := refusing(t, func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = port("TCP", 53, tc.members...) })
		_, _, p, _ := w.plan()
		alone := p.Steps[0].(balancer.ChangeMembers)
		alone.Add = nil
		for range 3 {
			w.attempts.Removed(alone, w.now, time.Second, "refused")
		}
		anew := false
		for range 10 {
			_, _, p, _ = w.plan()
			c, is := p.Steps[0].(balancer.ChangeMembers)
			if !is || len(p.Steps) != 1 || len(c.Remove) > 0 || len(c.Add) != 1 {
				t.Fatalf("%v: %v, want member 3 added", tc.members, p.Steps)
			}
			for i := range p.Remedies {
				anew = anew || p.Remedies[i].Level == balancer.LevelPort
				w.attempts.Tried(&p.Remedies[i], w.now, "refused")
			}
			w.now = w.now.Add(5 * time.Second)
		}
		if anew != tc.anew {
			t.Errorf("%v: the port is made anew: %v", tc.members, anew)
		}
	}
}

// TestDisabledIsNotRecreated: a person has disabled a load balancer, a listener or a pool, and something
// of it does not work. It is not recreated before it is enabled again: a new one would be enabled.
func TestDisabledIsNotRecreated(t *testing.T) {
	for name, disable := range map[string]func(lb *sdn.LoadBalancer, is bool){
		"load balancer": func(lb *sdn.LoadBalancer, is bool) { lb.Disabled = is },
		"listener":      func(lb *sdn.LoadBalancer, is bool) { lb.Listeners[0].Disabled = is },
		"pool":          func(lb *sdn.LoadBalancer, is bool) { lb.Listeners[0].Pool.Disabled = is },
	} {
		for part, spoil := range map[string]func(lb *sdn.LoadBalancer){
			"load balancer": func(lb *sdn.LoadBalancer) { lb.Provisioning, lb.Operating = sdn.ProvisioningError, "ERROR" },
			"listener":      func(lb *sdn.LoadBalancer) { lb.Listeners[0].Provisioning = sdn.ProvisioningError },
			"pool":          func(lb *sdn.LoadBalancer) { lb.Listeners[0].Pool.Provisioning = sdn.ProvisioningError },
			"member":        func(lb *sdn.LoadBalancer) { lb.Listeners[0].Pool.Members[0].Provisioning = sdn.ProvisioningError },
		} {
			w := brokenWorld(t, "", func(_ *memory.Cloud, lb *sdn.LoadBalancer) {
				spoil(lb)
				disable(lb, true)
			})
			for range 5 { // as often as a level is tried
				_, _, p, err := w.plan()
				if err != nil || len(p.Remedies)+len(p.Steps) > 0 || len(p.Disabled) != 1 {
					t.Errorf("%s is disabled, %s in ERROR: remedies %+v, steps %v, disabled %v, error %v", name, part, p.Remedies, p.Steps, p.Disabled, err)
				}
				w.now = w.now.Add(time.Minute)
			}
			w.spoil(w.id, func(_ *memory.Cloud, lb *sdn.LoadBalancer) { disable(lb, false) })
			if _, _, p, err := w.plan(); err != nil || len(p.Remedies) != 1 {
				t.Errorf("%s is enabled again, %s in ERROR: remedies %+v, error %v; want one", name, part, p.Remedies, err)
			}
		}
	}
}
