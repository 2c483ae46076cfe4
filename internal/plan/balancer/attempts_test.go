// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestRefusedAsBusy: a step that gets further with each refusal, such as members that are added
// one by one, does not count as refused for ever.
func TestRefusedAsBusy(t *testing.T) {
	var m balancer.Attempts
	now := time.Unix(1800000000, 0)
	members := func(n int) balancer.Step { return balancer.ChangeMembers{PoolID: "p", Pool: fmt.Sprint(n)} }
	for i := range 3 * balancer.RefusedAsBusyAfter {
		if m.RefusedAsBusy(members(100-i), now) {
			t.Fatalf("after %d refusals that got further each", i+1)
		}
	}
	last := members(0)
	for i := range balancer.RefusedAsBusyAfter {
		if m.RefusedAsBusy(last, now) {
			t.Fatalf("after %d refusals, want %d", i+1, balancer.RefusedAsBusyAfter+1)
		}
	}
	if !m.RefusedAsBusy(last, now) {
		t.Errorf("not after %d refusals", balancer.RefusedAsBusyAfter+1)
	}
	if m.Settled(); m.RefusedAsBusy(last, now) {
		t.Error("at the first refusal after all was well")
	}
	if m.NotBusy(); len(m) != 0 {
		t.Errorf("%v is left of one that is not busy any more", m)
	}
}

// TestIneffective: a step that the cloud accepts and does not carry out is tried again after
// longer and longer pauses. An update that may differ is left as it is.
func TestIneffective(t *testing.T) {
	w := newWorld(t)
	w.klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80, 1), port("UDP", 53, 1)}
	w.settle()
	w.cloud.EditLoadBalancer(w.cloud.LoadBalancers()[0].LoadBalancer.ID, func(lb *sdn.LoadBalancer) {
		lb.Unmarked, lb.Listeners[0].ConnectionLimit = true, new(int32(7))
	})
	w.klb.Spec.Listeners = w.klb.Spec.Listeners[:1]
	next := func() balancer.Actions {
		t.Helper()
		_, _, a, err := w.plan()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := next()
	if len(first.Steps) != 3 || first.Wake != 0 || len(first.AcceptedAsIs)+len(first.NotApplied) > 0 {
		t.Fatalf("at first %v, %+v, want three steps", first.Steps, first.Report)
	}
	for _, s := range first.Steps {
		if _, is := s.(balancer.MarkLoadBalancer); is {
			w.attempts.Did(s, w.now, time.Second, "forbidden")
		} else {
			w.attempts.Did(s, w.now, time.Second, "")
			w.attempts.Did(s, w.now, time.Second, "")
		}
		if _, is := s.(balancer.MarkLoadBalancer); w.attempts.HasFailed(s) != is {
			t.Errorf("HasFailed(%s) = %v", s, !is)
		}
	}
	if a := next(); len(a.Steps) != 0 || len(a.AcceptedAsIs) != 1 || len(a.NotApplied) != 1 || a.Wake != 4*time.Second || len(a.Failed) != 1 {
		t.Errorf("after two times: %v, %+v", a.Steps, a.Report)
	}
	w.now = w.now.Add(2 * time.Second) // when the mark's first pause ends
	if a := next(); len(a.Steps) != 1 || len(a.Failed) != 0 || len(a.NotApplied) != 1 || a.Wake != 2*time.Second {
		t.Errorf("after the pause of the mark: %v, %+v", a.Steps, a.Report)
	}
	w.now = w.now.Add(2 * time.Second)
	if a := next(); len(a.Steps) != 2 || len(a.AcceptedAsIs) != 1 || len(a.NotApplied) != 0 {
		t.Errorf("after the pauses: %v, %+v", a.Steps, a.Report)
	}
	w.cloud.EditLoadBalancer(w.cloud.LoadBalancers()[0].LoadBalancer.ID, func(lb *sdn.LoadBalancer) {
		lb.Unmarked, lb.Listeners, lb.Listeners[0].ConnectionLimit = false, lb.Listeners[:1], nil
	})
	if a := next(); len(a.Attempts) > 0 {
		t.Errorf("%v is left of steps that are not needed any more", a.Attempts)
	}
}

// TestComplete: load balancers are complete if nothing is in ERROR and nothing is missing.
func TestComplete(t *testing.T) {
	w := newWorld(t)
	w.klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80, 1)}
	w.settle()
	id := w.cloud.LoadBalancers()[0].LoadBalancer.ID
	complete := func() bool {
		t.Helper()
		_, _, a, err := w.plan()
		if err != nil {
			t.Fatal(err)
		}
		return a.Complete
	}
	if !complete() {
		t.Error("a settled one is not complete")
	}
	w.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Listeners[0].Provisioning = sdn.ProvisioningError })
	if complete() {
		t.Error("complete with a listener in ERROR")
	}
	w.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Listeners[0].Provisioning = sdn.ProvisioningActive })
	w.klb.Spec.Listeners = append(w.klb.Spec.Listeners, port("TCP", 443, 1))
	if complete() {
		t.Error("complete without a port")
	}
}

// TestBegin: a repair begins once, until it was tried.
func TestBegin(t *testing.T) {
	var m balancer.Attempts
	one, other := &balancer.Fault{Step: balancer.FailOver{ID: "one"}}, &balancer.Fault{Step: balancer.FailOver{ID: "other"}}
	for i, tc := range []struct {
		fault *balancer.Fault
		want  bool
	}{{one, false}, {one, true}, {other, false}, {one, true}} {
		if got := m.Begin(tc.fault, time.Unix(1800000000, 0)); got != tc.want {
			t.Errorf("%d: Begin = %t", i, got)
		}
	}
}

// TestPausesOfDeletions: deletions that make room at one address share their pauses, as each load
// balancer that is created anew has another ID. Other deletions do not.
func TestPausesOfDeletions(t *testing.T) {
	now := time.Unix(1800000000, 0)
	for instead, want := range map[string]time.Duration{"10.96.0.10": 4 * time.Second, "": 0} {
		var m balancer.Attempts
		for _, id := range []string{"one", "two"} {
			m.Did(balancer.DeleteLoadBalancer{ID: id, Instead: instead, Because: "of its network"}, now, time.Second, "")
		}
		if got := m.Rests(balancer.DeleteLoadBalancer{ID: "three", Instead: instead, Because: "of its network"}, now); got != want {
			t.Errorf("the third one waits %s with address %q, want %s", got, instead, want)
		}
	}
}

// TestUnfit: a floating IP that the cloud refused is not tried for a while, unless the spec
// changes.
func TestUnfit(t *testing.T) {
	now := time.Unix(1800000000, 0)
	var m balancer.Attempts
	one, two, other := balancer.Associate{ID: "one", PortID: "p"}, balancer.Associate{ID: "two", PortID: "p"}, balancer.Associate{ID: "one", PortID: "q"}
	m.Unfit(one, 3, now, time.Minute, "no router")
	for _, tc := range []struct {
		step       balancer.Associate
		generation int64
		after      time.Duration
		want       string
	}{{one, 3, 0, "no router"}, {one, 3, time.Minute, ""}, {one, 4, 0, ""}, {two, 3, 0, ""}, {other, 3, 0, ""}} {
		if got := m.WhyUnfit([]balancer.Step{tc.step}, tc.generation, now.Add(tc.after)); got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
	if m.Unfit(two, 3, now, time.Minute, "no router"); m.WhyUnfit([]balancer.Step{one}, 3, now) != "" {
		t.Error("more than the last is remembered")
	}
}

// TestAttemptsAreForgotten: the memory of a KuryrLoadBalancer never grows with time, and no
// pause is longer than six hours.
func TestAttemptsAreForgotten(t *testing.T) {
	for seed := range 50 {
		r := &random{world: newWorld(t), Rand: rand.New(rand.NewPCG(uint64(seed), 7))}
		for step := range 200 {
			r.event()
			for _, item := range r.cloud.LoadBalancers() {
				r.cloud.EditLoadBalancer(item.LoadBalancer.ID, r.spoil)
				if lb := item.LoadBalancer; len(lb.Listeners) > 0 && r.IntN(3) == 0 {
					r.cloud.KeepInError(lb.Listeners[0].ID)
				}
			}
			_, _, p, err := r.plan()
			if err != nil {
				t.Fatal(err)
			}
			r.round(&p)
			for key, a := range r.attempts {
				if wait := a.Next.Sub(r.now); wait > 6*time.Hour+time.Minute {
					t.Fatalf("seed %d, step %d: %s waits for %s", seed, step, key, wait)
				}
			}
		}
		for r.klb.Spec.Listeners = nil; ; r.now = r.now.Add(24 * time.Hour) {
			_, _, p, err := r.plan()
			if err != nil {
				t.Fatal(err)
			}
			if atRest(&p) {
				break
			}
			r.round(&p)
		}
		_, _, p, err := r.plan()
		if err != nil || !atRest(&p) {
			t.Fatalf("seed %d: plan %+v, %v", seed, p, err)
		}
		r.now = r.now.Add(48 * time.Hour) // what works is known from here on
		if _, _, _, err = r.plan(); err != nil || len(r.attempts) > 0 {
			t.Errorf("seed %d: %v are left", seed, r.attempts)
		}
	}
}
