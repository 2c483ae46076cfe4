// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// broken is a cloud in which a part of a load balancer is broken.
type broken struct {
	*world
	id string
}

// brokenWorld creates the load balancer at the first address and breaks it.
func brokenWorld(t *testing.T, provider string, spoil func(*memory.Cloud, *sdn.LoadBalancer)) *broken {
	w := &broken{world: newWorld(t)}
	w.klb.Spec.Provider = provider
	w.klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 53, 1), port("UDP", 53, 1)}
	w.settle()
	w.did = nil
	w.id = w.cloud.LoadBalancers()[0].LoadBalancer.ID
	w.spoil(w.id, spoil)
	return w
}

func (w *broken) spoil(id string, spoil func(*memory.Cloud, *sdn.LoadBalancer)) {
	c := w.cloud
	var kept []func()
	c.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) {
		for i := range lb.Listeners {
			if lb.Listeners[i].Pool == nil {
				continue
			}
			p := *lb.Listeners[i].Pool
			p.Members = slices.Clone(p.Members)
			lb.Listeners[i].Pool = &p
		}
		spoil(nil, lb)
		copied := *lb
		kept = append(kept, func() { spoil(c, &copied) })
	})
	for _, f := range kept {
		f()
	}
}

// steps are those that were carried out, without IDs.
func (w *broken) steps() []string { return withoutIDs(w.did) }

func inError(p *sdn.Provisioning) { *p = sdn.ProvisioningError }

// TestMending: what cannot be mended at its level is mended one level up, in less than a minute
// where no client is served.
func TestMending(t *testing.T) {
	const (
		renew    = "send 1 members of pool shop/web:TCP:53 to the provider again"
		none     = "delete listener (to recreate it)"
		listener = "create listener shop/web:TCP:53"
		failover = "fail over load balancer"
		gone     = "delete load balancer (to recreate it)"
		anew     = "create load balancer shop/web at 10.2.0.10"
	)
	for _, tc := range []struct {
		name, provider string
		spoil          func(c *memory.Cloud, lb *sdn.LoadBalancer) // c: the cloud, or nil to spoil lb
		want           []string
	}{
		{"a member that the provider does not know", "", func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if m := &lb.Listeners[0].Pool.Members[0]; c != nil {
				c.LoseMember(m.ID)
			} else {
				inError(&m.Provisioning)
			}
		}, []string{renew}},
		{"a member whose deletion did not end", "", func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if m := &lb.Listeners[0].Pool.Members[0]; c != nil {
				c.LoseMember(m.ID)
			} else {
				m.Provisioning = "PENDING_DELETE"
			}
		}, []string{renew}},
		{"a member that stays in ERROR", "", func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if m := &lb.Listeners[0].Pool.Members[0]; c != nil {
				c.KeepInError(m.ID)
			} else {
				inError(&m.Provisioning)
			}
		}, []string{renew, none, listener}},
		{"a pool", "", func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if c == nil {
				inError(&lb.Listeners[0].Pool.Provisioning)
			}
		}, []string{none, listener}},
		{"a pool whose change did not end", "", func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if c == nil {
				lb.Listeners[0].Pool.Provisioning = "PENDING_UPDATE"
				lb.Listeners[0].Pool.Members = nil
			}
		}, []string{none, listener}},
		{"a pool that cannot be deleted", "", func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if p := lb.Listeners[0].Pool; c != nil {
				c.KeepInError(p.ID)
			} else {
				inError(&p.Provisioning)
			}
		}, []string{none, listener}},
		{"a listener", "", func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if c == nil {
				inError(&lb.Listeners[0].Provisioning)
			}
		}, []string{none, listener}},
		{"a listener that cannot be deleted", "", func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if l := &lb.Listeners[0]; c != nil {
				c.KeepInError(l.ID)
			} else {
				inError(&l.Provisioning)
			}
		}, []string{none, gone, anew}},
		{"a listener that cannot be deleted, where there is a failover", "amphora", func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if l := &lb.Listeners[0]; c != nil {
				c.KeepInError(l.ID)
			} else {
				inError(&l.Provisioning)
			}
		}, []string{none, failover, gone, anew}},
		{"the load balancer", "", func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if c == nil {
				inError(&lb.Provisioning)
			}
		}, []string{"delete load balancer (to recreate it)", anew}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := brokenWorld(t, tc.provider, tc.spoil)
			began := w.now
			w.settle()
			if diff := cmp.Diff(tc.want, w.steps()); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if took := w.now.Sub(began); took > 45*time.Second {
				t.Errorf("it took %s, want less than 45 s", took)
			}
		})
	}
}

// TestServingIsTouchedLast: where clients are served all the same, nothing is made anew for a
// quarter of an hour. What is broken beside it is mended meanwhile.
func TestServingIsTouchedLast(t *testing.T) {
	w := brokenWorld(t, "", func(*memory.Cloud, *sdn.LoadBalancer) {})
	w.klb.Spec.Listeners[0] = port("TCP", 53, 1, 2)
	w.settle()
	w.spoil(w.id, func(c *memory.Cloud, lb *sdn.LoadBalancer) {
		if c != nil {
			c.KeepInError(lb.Listeners[0].Pool.Members[0].ID)
			return
		}
		inError(&lb.Listeners[0].Pool.Members[0].Provisioning) // of two
		inError(&lb.Listeners[1].Pool.Provisioning)
	})
	w.did = nil
	began, mended := w.now, time.Time{}
	for range 200 {
		_, _, p, err := w.plan()
		if err != nil {
			t.Fatal(err)
		}
		if atRest(&p) {
			break
		}
		w.round(&p)
		if mended.IsZero() && slices.Contains(w.steps(), "create listener shop/web:UDP:53") {
			mended = w.now
		}
		if i := slices.Index(w.steps(), "create listener shop/web:TCP:53"); i >= 0 && w.now.Sub(began) < 15*time.Minute {
			t.Fatalf("a port with an endpoint that is reached was made anew after %s", w.now.Sub(began))
		}
	}
	if took := mended.Sub(began); mended.IsZero() || took > time.Minute {
		t.Errorf("the port without one was made anew after %s, want within a minute: %q", took, w.steps())
	}
	if w.now.Sub(began) > time.Hour || !slices.Contains(w.steps(), "create listener shop/web:TCP:53") {
		t.Errorf("after %s: %q, want both ports made anew", w.now.Sub(began), w.steps())
	}
}

// TestOneAddressAtATime: of two addresses, one load balancer is made anew after the other. The
// second one is only when the first serves again.
func TestOneAddressAtATime(t *testing.T) {
	w := newWorld(t)
	w.klb.Spec.VIPs = append(w.klb.Spec.VIPs, v1.VIPAddress{IP: "fd00:2::10", SubnetID: vips6})
	six := v1.MemberSpec{Name: "shop/web-1", IP: "fd00:2::1:1", Port: 8080, SubnetID: vips6}
	l := port("TCP", 53, 1)
	l.Members = append(l.Members, six)
	w.klb.Spec.Listeners = []v1.ListenerSpec{l}
	w.settle()
	b := &broken{world: w}
	for _, item := range w.cloud.LoadBalancers() {
		b.spoil(item.LoadBalancer.ID, func(c *memory.Cloud, lb *sdn.LoadBalancer) {
			if l := &lb.Listeners[0]; c != nil {
				c.KeepInError(l.ID)
			} else {
				inError(&l.Provisioning)
			}
		})
	}
	w.did = nil
	began := w.now
	for range 100 {
		_, have, p, err := w.plan()
		if err != nil {
			t.Fatal(err)
		}
		if atRest(&p) {
			break
		}
		if len(have) == 0 {
			t.Fatal("there is none at either address")
		}
		deleted := strings.Count(strings.Join(w.did, "\n"), "delete load balancer")
		w.round(&p)
		if now := strings.Count(strings.Join(w.did, "\n"), "delete load balancer"); now > deleted && deleted > 0 {
			i := slices.IndexFunc(have, func(lb sdn.LoadBalancer) bool {
				return lb.Provisioning == sdn.ProvisioningActive && len(lb.Listeners) == 1 && lb.Listeners[0].Pool != nil && len(lb.Listeners[0].Pool.Members) == 1
			})
			if i < 0 {
				t.Errorf("the second one was deleted while the first one did not serve")
			}
		}
	}
	want := []string{"10.2.0.10", "fd00:2::10"}
	var got []string
	for _, s := range w.did {
		if at, is := strings.CutPrefix(s, "create load balancer "); is {
			got = append(got, at[strings.Index(at, " at ")+4:])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("made anew at %v, want %v: %q", got, want, withoutIDs(w.did))
	}
	if took := w.now.Sub(began); took > 2*time.Minute {
		t.Errorf("it took %s", took)
	}
}

// TestFlapping: what breaks again and again is mended at its own level each time, after longer
// and longer pauses. Nothing above it is changed.
func TestFlapping(t *testing.T) {
	w := brokenWorld(t, "", func(*memory.Cloud, *sdn.LoadBalancer) {})
	began := w.now
	for range 50 {
		w.spoil(w.id, func(_ *memory.Cloud, lb *sdn.LoadBalancer) { inError(&lb.Listeners[0].Pool.Members[0].Provisioning) })
		w.settle()
		w.plan() // everything works
	}
	for _, s := range w.did {
		if !strings.HasPrefix(s, "send ") {
			t.Errorf("%s, want members sent again and nothing else", s)
		}
	}
	if took := w.now.Sub(began); took < 24*time.Hour {
		t.Errorf("mended 50 times in %s, want longer and longer pauses", took)
	}
}

// TestNewOneIsMendedFromBelow: below a load balancer that was made anew, mending begins as if
// nothing had been tried, even if the load balancer has never worked.
func TestNewOneIsMendedFromBelow(t *testing.T) {
	w := brokenWorld(t, "", func(_ *memory.Cloud, lb *sdn.LoadBalancer) {
		if lb.Operating = "ONLINE"; lb.ID != "" { // it serves, by its status
			inError(&lb.Provisioning)
		}
	})
	began := w.now
	for range 100 {
		_, _, p, err := w.plan()
		if err != nil {
			t.Fatal(err)
		}
		if w.round(&p); len(w.did) == 2 { // it is created, and breaks before it is read
			break
		}
	}
	w.spoil(w.cloud.LoadBalancers()[0].LoadBalancer.ID, func(_ *memory.Cloud, lb *sdn.LoadBalancer) { inError(&lb.Listeners[0].Pool.Provisioning) })
	w.settle()
	want := []string{
		"delete load balancer (to recreate it)", "create load balancer shop/web at 10.2.0.10",
		"delete listener (to recreate it)", "create listener shop/web:TCP:53",
	}
	if diff := cmp.Diff(want, w.steps()); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if took := w.now.Sub(began); took > 10*time.Second {
		t.Errorf("it took %s, want that the port waits for nothing", took)
	}
}

// TestNewFaultOfANewOne: a load balancer that was made anew and became ACTIVE is mended. Its next ERROR is
// another fault, which does not wait for a quarter of an hour, even if its endpoints had changed
// meanwhile, so that it never served one that is wanted. If that happens again and again, the pauses grow.
func TestNewFaultOfANewOne(t *testing.T) {
	serving := func(_ *memory.Cloud, lb *sdn.LoadBalancer) {
		lb.Operating = "ONLINE"
		inError(&lb.Provisioning)
	}
	w := brokenWorld(t, "", serving)
	var took []time.Duration
	for i := range 8 {
		began := w.now
		for made := len(w.did) + 2; len(w.did) < made; {
			_, _, p, err := w.plan()
			if err != nil {
				t.Fatal(err)
			}
			w.round(&p)
		}
		took = append(took, w.now.Sub(began))
		for j := range w.klb.Spec.Listeners {
			w.klb.Spec.Listeners[j].Members = []v1.MemberSpec{member(i + 2)}
		}
		if _, _, _, err := w.plan(); err != nil { // it is ACTIVE, with the members of before
			t.Fatal(err)
		}
		w.spoil(w.cloud.LoadBalancers()[0].LoadBalancer.ID, serving)
	}
	if took[1] > time.Minute || took[2] > 2*time.Minute {
		t.Errorf("made anew after %s, want the second within a minute, and the third within two", took)
	}
	if took[7] < time.Hour/2 {
		t.Errorf("made anew after %s, want the pauses to grow", took)
	}
}

func poolOfTCPInError(lb *sdn.LoadBalancer) {
	for i := range lb.Listeners {
		if l := &lb.Listeners[i]; l.Protocol == "TCP" && l.Pool != nil {
			inError(&l.Pool.Provisioning)
		}
	}
}

// TestNotYetMended: a load balancer that was made anew and still lacks what it was made anew for is not
// mended: the next attempt waits for a quarter of an hour, as clients are served.
func TestNotYetMended(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault func(*sdn.LoadBalancer) // why it is made anew
		still func(*sdn.LoadBalancer) // what it looks like when it is ACTIVE again
	}{
		{"a load balancer in ERROR, then without one of its ports", func(lb *sdn.LoadBalancer) {
			lb.Operating = "ONLINE"
			inError(&lb.Provisioning)
		}, func(lb *sdn.LoadBalancer) { lb.Listeners = lb.Listeners[:1] }},
		{"a pool in ERROR beside a port that serves, always", poolOfTCPInError, poolOfTCPInError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := brokenWorld(t, "", func(_ *memory.Cloud, lb *sdn.LoadBalancer) { tc.fault(lb) })
			var made []time.Time
			for range 100_000 {
				_, _, p, err := w.plan()
				if err != nil {
					t.Fatal(err)
				}
				w.did = nil
				w.round(&p)
				changed := len(w.did) > 0
				if slices.ContainsFunc(w.steps(), func(s string) bool { return strings.HasPrefix(s, "delete load balancer") }) {
					if made = append(made, w.now); len(made) == 2 {
						break
					}
				}
				if all := w.cloud.LoadBalancers(); changed && len(all) > 0 {
					spoil := func(spoil func(*sdn.LoadBalancer)) {
						w.spoil(all[0].LoadBalancer.ID, func(_ *memory.Cloud, lb *sdn.LoadBalancer) { spoil(lb) })
					}
					spoil(tc.still)
					if _, _, _, err = w.plan(); err != nil {
						t.Fatal(err)
					}
					spoil(tc.fault)
				}
			}
			if len(made) < 2 {
				t.Fatalf("made anew at %s, want it twice", made)
			}
			if again := made[1].Sub(made[0]); again < 15*time.Minute {
				t.Errorf("made anew again after %s, want a quarter of an hour or more", again)
			}
		})
	}
}

// TestMendingIsBounded: what cannot be mended at all costs few steps a day. The status says so,
// with what was tried and when the next attempt is.
func TestMendingIsBounded(t *testing.T) {
	w := brokenWorld(t, "", func(*memory.Cloud, *sdn.LoadBalancer) {})
	f, err := w.sdn.Features(t.Context(), "ovn")
	if err != nil {
		t.Fatal(err)
	}
	w.cloud.SetProvider(memory.Provider{Features: f, Broken: true, Near: true})
	w.cloud.SetError(w.id)
	began := w.now
	var said balancer.Actions
	for w.now.Sub(began) < 24*time.Hour {
		_, _, p, err := w.plan()
		if err != nil {
			t.Fatal(err)
		}
		w.round(&p)
		if p.Spent {
			said = p
		}
	}
	if made := len(w.did) / 2; made < 50 || made > 120 {
		t.Errorf("it was made anew %d times in a day, want about every quarter of an hour", made)
	}
	if !said.Spent || len(said.Tried) != 1 || !contains(said.Tried[0], "did not help") || !contains(said.Tried[0], ". At ") {
		t.Errorf("told is %+v", said.Report)
	}
}

// TestRefusedRemovals: what the cloud does not delete is mended one level up. Endpoints that
// cannot be added are no reason to make anything anew.
func TestRefusedRemovals(t *testing.T) {
	w := brokenWorld(t, "", func(*memory.Cloud, *sdn.LoadBalancer) {})
	w.klb.Spec.Listeners[0].Members = nil
	for i := range 6 {
		_, _, p, err := w.plan()
		if err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			if len(p.Steps) != 1 || len(p.Remedies) > 0 {
				t.Fatalf("plan %d: %v, %v, want one removal", i, p.Steps, p.Remedies)
			}
			w.attempts.Removed(p.Steps[0], w.now, time.Second, "refused")
			continue
		}
		want := balancer.LevelAgain
		if i > 4 {
			want = balancer.LevelPort
		}
		if len(p.Steps) != 0 || len(p.Remedies) != 1 || p.Remedies[0].Level != want || p.Remedies[0].Replaces {
			t.Fatalf("after %d refusals: %v, %+v, want the removal twice again, then the port anew", i, p.Steps, p.Remedies)
		}
		w.attempts.Tried(&p.Remedies[0], w.now, "refused")
		w.now = w.now.Add(5 * time.Second)
	}
	w.klb.Spec.Listeners[0] = port("TCP", 53, 2, 3)
	w.attempts = nil
	_, _, p, _ := w.plan()
	for range 5 {
		w.attempts.Removed(p.Steps[0], w.now, time.Second, "refused")
	}
	if _, _, p, _ = w.plan(); len(p.Remedies) > 0 || len(p.Steps) != 1 {
		t.Errorf("where members are to be added, too: %+v, want no remedy", p)
	}
}

// TestPauses: they grow up to a limit, whatever the number.
func TestPauses(t *testing.T) {
	p := balancer.Pauses{Least: time.Second, Most: time.Minute}
	for times, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 7: time.Minute, 1 << 40: time.Minute} {
		if got := p.After(times); got != want {
			t.Errorf("after %d: %s, want %s", times, got, want)
		}
	}
	var m balancer.Attempts
	now := time.Unix(1800000000, 0)
	if m["a"].Times != 0 || m.Waits("a", now) != 0 {
		t.Error("an empty memory knows something")
	}
	for i := range 3 {
		if n := m.Note("a", now, p, fmt.Sprint(i)); n != i+1 {
			t.Errorf("%d attempts, want %d", n, i+1)
		}
	}
	if m.Waits("a", now) != 4*time.Second || m.Waits("a", now.Add(time.Minute)) != 0 || m["a"].Failed != "2" {
		t.Errorf("attempt %+v", m["a"])
	}
	if m.Forget("b"); m["a"].Times != 3 {
		t.Error("another was forgotten")
	}
	if m.Forget("a"); len(m) != 0 {
		t.Error("it was not forgotten")
	}
}
