// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// dark counts the VIPs that have lost their load balancer.
type dark struct {
	b   *bed
	all []string // names of the Services

	mu   sync.Mutex
	most int
}

// watchDark begins to count after each call to the cloud.
func (b *bed) watchDark(names ...string) *dark {
	d := &dark{b: b, all: names}
	b.onAfter(func(context.Context, string, int) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.most = max(d.most, len(d.now()))
		return nil
	})
	return d
}

// now returns the Services without a load balancer at their VIP. A trial is at another address.
func (d *dark) now() []string {
	left := slices.Clone(d.all)
	for _, item := range d.b.cloud.LoadBalancers() {
		if lb := item.LoadBalancer; !strings.HasSuffix(lb.Name, "/trial") {
			left = slices.DeleteFunc(left, func(name string) bool { return name == lb.Owner.Name })
		}
	}
	return left
}

func (d *dark) atMost() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

// manyOfOVN makes n load balancers of OVN, web-0 to web-(n-1), which Kuryr looks at all the time.
func (b *bed) manyOfOVN(n int, change ...func(i int, s *v1.KuryrLoadBalancerSpec)) (names []string) {
	b.t.Helper()
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	for i := range n {
		names = append(names, fmt.Sprint("web-", i))
		b.balancer(names[i], func(s *v1.KuryrLoadBalancerSpec) {
			s.Provider, s.VIPs[0].IP = "ovn", fmt.Sprint("10.96.16.", 1+i)
			for _, f := range change {
				f(i, s)
			}
		})
	}
	for _, name := range names {
		b.realised(name)
	}
	return names
}

// breakServing puts all load balancers into ERROR while they serve, as after a hiccup of the provider or
// the operator's own SQL.
func (b *bed) breakServing() {
	for _, item := range b.cloud.LoadBalancers() {
		b.cloud.EditLoadBalancer(item.LoadBalancer.ID, func(lb *sdn.LoadBalancer) {
			lb.Provisioning, lb.Operating = sdn.ProvisioningError, "ONLINE"
		})
	}
}

// TestServingStaysWhileNothingCanBeCreated: load balancers in ERROR that serve stay while the cloud can
// create none. The status says why. Afterwards they are replaced one at a time.
func TestServingStaysWhileNothingCanBeCreated(t *testing.T) {
	const n = 5
	for _, tc := range []struct {
		name, reason string
		refusal      error // nil: a creation is accepted and ends in ERROR
	}{
		{"the quota is full", v1.ReasonOverQuota, sdn.ErrQuota},
		{"a creation is answered by 500", v1.ReasonUnavailable, sdn.ErrUnavailable},
		{"Octavia reports a conflict", v1.ReasonLoadBalancerInError, sdn.ErrConflict},
		{"a creation ends in ERROR", v1.ReasonLoadBalancerInError, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := balancerBed(t)
			b.start()
			names := b.manyOfOVN(n)
			d := b.watchDark(names...)
			ovn, err := b.cloud.Backend("cluster").Features(t.Context(), "ovn")
			if err != nil {
				t.Fatal(err)
			}
			if tc.refusal == nil {
				b.cloud.SetProvider(memory.Provider{Features: ovn, Busy: memory.UntilSettled})
			}
			var refuses atomic.Bool
			refuses.Store(true)
			var tries atomic.Int32
			b.onBefore(func(_ context.Context, call string, _ int) error {
				switch {
				case call == memory.CreateLoadBalancer && refuses.Load():
					tries.Add(1)
					return tc.refusal
				case refuses.Load() && tc.refusal == nil:
					for _, item := range b.cloud.LoadBalancers() {
						if lb := item.LoadBalancer; strings.HasSuffix(lb.Name, "/trial") && lb.Provisioning == sdn.ProvisioningCreating {
							b.cloud.SetError(lb.ID)
						}
					}
				}
				return nil
			})
			b.breakServing()
			b.eventually("a creation is tried, and one Service says why it is not repaired", func() bool {
				return tries.Load() > 0 && slices.ContainsFunc(names, func(name string) bool {
					reason, _ := b.reasonOf(name)
					return reason == tc.reason
				})
			})
			b.never("a load balancer that serves is deleted", func() bool { return len(d.now()) > 0 })
			b.cloud.SetProvider(memory.Provider{Features: ovn})
			refuses.Store(false)
			for _, name := range names {
				b.eventually(name+" is repaired", func() bool {
					for _, item := range b.cloud.LoadBalancers() { // what began before
						b.cloud.Settle(item.LoadBalancer.ID)
					}
					lb := b.tree(name)
					return lb != nil && lb.Provisioning == sdn.ProvisioningActive
				})
				b.realised(name)
			}
			if got := d.atMost(); got != 1 {
				t.Errorf("%d load balancers were missing at one time, want 1", got)
			}
		})
	}
}

// TestRestartKeepsTheBrake: one load balancer has been deleted, and the cloud does not create it again.
// A new process deletes no other one.
func TestRestartKeepsTheBrake(t *testing.T) {
	b := balancerBed(t)
	b.start()
	names := b.manyOfOVN(4)
	d := b.watchDark(names...)
	var deleted atomic.Bool
	b.onBefore(func(_ context.Context, call string, _ int) error {
		if call == memory.DeleteLoadBalancer {
			deleted.Store(true)
		}
		if call == memory.CreateLoadBalancer && deleted.Load() {
			return sdn.ErrUnavailable
		}
		return nil
	})
	b.breakServing()
	b.eventually("one is deleted", func() bool { return len(d.now()) == 1 })
	b.stop()
	b.start()
	b.eventually("another one says which one is replaced", func() bool {
		return slices.ContainsFunc(names, func(name string) bool {
			_, message := b.reasonOf(name)
			return name != d.now()[0] && hasWords(message, "default/"+d.now()[0])
		})
	})
	b.never("a second one is deleted", func() bool { return len(d.now()) > 1 })
	b.onBefore(nil)
	for _, name := range names {
		b.realised(name)
	}
	if got := d.atMost(); got != 1 {
		t.Errorf("%d load balancers were missing at one time, want 1", got)
	}
}

// TestProjectsBrakeApart: a full quota of one project is no reason to leave another project's load
// balancers in ERROR.
func TestProjectsBrakeApart(t *testing.T) {
	b := balancerBed(t)
	b.start()
	names := b.manyOfOVN(4, func(i int, s *v1.KuryrLoadBalancerSpec) { s.ProjectID = []string{"red", "blue"}[i%2] })
	d := b.watchDark(names...)
	b.cloud.SetLoadBalancerQuota(3) // of each project; blue has two, and red will have three and wants four
	for _, name := range []string{"full", "fuller"} {
		b.balancer(name, func(s *v1.KuryrLoadBalancerSpec) {
			s.ProjectID, s.VIPs[0].IP = "red", "10.96.17."+fmt.Sprint(len(name))
		})
	}
	b.eventually("the quota of project red is full", func() bool {
		one, _ := b.reasonOf("full")
		two, _ := b.reasonOf("fuller")
		return one == v1.ReasonOverQuota || two == v1.ReasonOverQuota
	})
	b.breakServing()
	for _, name := range []string{"web-1", "web-3"} {
		b.eventually(name+" of project blue is repaired", func() bool { lb := b.tree(name); return lb != nil && lb.Provisioning == sdn.ProvisioningActive })
	}
	b.never("one of project red is deleted", func() bool {
		return slices.ContainsFunc(d.now(), func(name string) bool { return name == "web-0" || name == "web-2" })
	})
}

// TestNewProviderThatCreatesNothing: the configuration names another provider, which creates nothing.
// The load balancers of the old one stay.
func TestNewProviderThatCreatesNothing(t *testing.T) {
	b := balancerBed(t)
	b.start()
	names := b.manyOfOVN(3)
	d := b.watchDark(names...)
	var refuses atomic.Bool
	refuses.Store(true)
	b.onBefore(func(_ context.Context, call string, _ int) error {
		if call == memory.CreateLoadBalancer && refuses.Load() {
			return sdn.ErrQuota
		}
		return nil
	})
	for _, name := range names {
		b.respec(name, func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
	}
	b.eventually("the quota is reported", func() bool {
		return slices.ContainsFunc(names, func(name string) bool { reason, _ := b.reasonOf(name); return reason == v1.ReasonOverQuota })
	})
	b.never("a load balancer that serves is deleted", func() bool { return len(d.now()) > 0 })
	refuses.Store(false)
	for _, name := range names {
		b.eventually(name+" has the other provider", func() bool { lb := b.tree(name); return lb != nil && lb.Provider == "amphora" })
		b.realised(name)
	}
	if got := d.atMost(); got != 1 {
		t.Errorf("%d load balancers were missing at one time, want 1", got)
	}
}

// TestOwnTroubleBrakesNobody: a load balancer that serves cannot be created again for a reason of its own.
// The others of its project are repaired.
func TestOwnTroubleBrakesNobody(t *testing.T) {
	b := balancerBed(t)
	b.start()
	names := b.manyOfOVN(3, func(i int, s *v1.KuryrLoadBalancerSpec) {
		if i == 0 {
			s.FlavorID = "gone"
		}
	})
	b.cloud.AddFlavors("other")
	b.breakServing()
	for _, name := range names[1:] {
		b.eventually(name+" is repaired", func() bool { lb := b.tree(name); return lb != nil && lb.Provisioning == sdn.ProvisioningActive })
	}
	b.eventually("the one with the flavor says that it is refused", func() bool { reason, _ := b.reasonOf("web-0"); return reason == v1.ReasonRejected })
	if lb := b.tree("web-0"); lb == nil || lb.FlavorID != "gone" {
		t.Errorf("web-0 has load balancer %+v, want the one of before", lb)
	}
	// Each new try says so for as long as its request takes.
	b.eventually("web-0 does not say that it is being replaced", func() bool {
		return meta.FindStatusCondition(b.klb("web-0").Status.Conditions, v1.ConditionProgressing).Reason != v1.ReasonReplacing
	})
}

// trialOf returns the trial of a Service; nil if there is none.
func (b *bed) trialOf(name string) *sdn.LoadBalancer {
	for _, item := range b.cloud.LoadBalancers() {
		if lb := item.LoadBalancer; lb.Owner.Name == name && strings.HasSuffix(lb.Name, "/trial") {
			return &lb
		}
	}
	return nil
}

// breakOne puts the load balancer of a Service into ERROR while it serves.
func (b *bed) breakOne(name string) {
	for _, item := range b.cloud.LoadBalancers() {
		if item.LoadBalancer.Owner.Name == name {
			b.cloud.EditLoadBalancer(item.LoadBalancer.ID, func(lb *sdn.LoadBalancer) {
				lb.Provisioning, lb.Operating = sdn.ProvisioningError, "ONLINE"
			})
		}
	}
}

// slowOVN has load balancers of OVN change only when the test settles them.
func (b *bed) slowOVN() {
	b.t.Helper()
	ovn, err := b.cloud.Backend("cluster").Features(b.t.Context(), "ovn")
	if err != nil {
		b.t.Fatal(err)
	}
	b.cloud.SetProvider(memory.Provider{Features: ovn, Busy: memory.UntilSettled})
}

func (b *bed) isReplaced(name string) bool {
	c := meta.FindStatusCondition(b.klb(name).Status.Conditions, v1.ConditionProgressing)
	return c != nil && c.Reason == v1.ReasonReplacing
}

// TestTrialGivesItsRoomUp: after the deletion somebody else takes the room that became free. The load
// balancer gets that of its trial.
func TestTrialGivesItsRoomUp(t *testing.T) {
	b := balancerBed(t)
	b.start()
	names := b.manyOfOVN(1)
	d := b.watchDark(names...)
	b.cloud.SetLoadBalancerQuota(2)
	var taken atomic.Bool
	b.onBefore(func(_ context.Context, call string, _ int) error {
		if call == memory.CreateLoadBalancer && len(d.now()) > 0 && !taken.Swap(true) {
			b.cloud.SetLoadBalancerQuota(1)
		}
		return nil
	})
	b.breakServing()
	b.eventually("the load balancer is there again, and no trial", func() bool { return taken.Load() && len(d.now()) == 0 && b.trialOf("web-0") == nil })
	b.realised("web-0")
}

// TestOwnTrialInErrorBrakesNobody: the trials of one load balancer end in ERROR, those of others do not.
func TestOwnTrialInErrorBrakesNobody(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.manyOfOVN(2)
	b.slowOVN()
	b.onBefore(func(context.Context, string, int) error {
		for _, item := range b.cloud.LoadBalancers() {
			if lb := item.LoadBalancer; lb.Owner.Name == "web-0" && strings.HasSuffix(lb.Name, "/trial") && lb.Provisioning == sdn.ProvisioningCreating {
				b.cloud.SetError(lb.ID)
			} else {
				b.cloud.Settle(lb.ID)
			}
		}
		return nil
	})
	b.breakOne("web-0")
	b.eventually("web-0 has the turn", func() bool { return b.isReplaced("web-0") })
	b.breakOne("web-1")
	b.eventually("web-1 is repaired", func() bool { lb := b.tree("web-1"); return lb != nil && lb.Provisioning == sdn.ProvisioningActive })
}

// TestDeletedServiceKeepsNoTurn: a Service whose load balancer is being replaced is deleted, and Octavia
// does not end the deletion. The next one has its turn.
func TestDeletedServiceKeepsNoTurn(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.manyOfOVN(2)
	b.slowOVN()
	b.breakOne("web-0")
	b.eventually("web-0 has a trial", func() bool { return b.trialOf("web-0") != nil })
	b.delete(b.klb("web-0"))
	b.breakOne("web-1")
	b.eventually("web-1 has a trial", func() bool { return b.trialOf("web-1") != nil })
}

// TestTwoTurnsInOneProject: a change of projects brings two together that are both being replaced.
func TestTwoTurnsInOneProject(t *testing.T) {
	b := balancerBed(t)
	b.start()
	names := b.manyOfOVN(2, func(i int, s *v1.KuryrLoadBalancerSpec) { s.ProjectID = []string{"red", "blue"}[i] })
	var refuses atomic.Bool
	refuses.Store(true)
	b.onBefore(func(_ context.Context, call string, _ int) error {
		if call == memory.CreateLoadBalancer && refuses.Load() {
			return sdn.ErrQuota
		}
		return nil
	})
	b.breakServing()
	for _, name := range names {
		b.eventually(name+" has the turn of its project", func() bool { return b.isReplaced(name) })
	}
	b.respec("web-1", func(s *v1.KuryrLoadBalancerSpec) { s.ProjectID = "red" })
	refuses.Store(false)
	for _, name := range names {
		b.eventually(name+" is repaired", func() bool { lb := b.tree(name); return lb != nil && lb.Provisioning == sdn.ProvisioningActive })
	}
}

// TestTrialOfAnotherProvider: a trial of OVN is under way, and the spec gets another provider, which
// creates nothing.
func TestTrialOfAnotherProvider(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.manyOfOVN(1)
	serving := b.tree("web-0").ID
	b.slowOVN()
	b.breakServing()
	b.eventually("there is a trial of OVN", func() bool { return b.trialOf("web-0") != nil })
	trial := b.trialOf("web-0").ID
	b.onBefore(func(_ context.Context, call string, _ int) error {
		if call == memory.CreateLoadBalancer {
			return sdn.ErrUnavailable
		}
		return nil
	})
	b.respec("web-0", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
	b.eventually("the planner's provider is seen", func() bool { return b.klb("web-0").Spec.Provider == "amphora" })
	b.eventually("amphora creates nothing", func() bool {
		b.cloud.Settle(trial) // its creation, then its deletion
		reason, _ := b.reasonOf("web-0")
		return reason == v1.ReasonUnavailable
	})
	b.never("the deletion of OVN's is requested", func() bool {
		return !slices.ContainsFunc(b.cloud.LoadBalancers(), func(item memory.BalancerItem) bool {
			return item.LoadBalancer.ID == serving && item.LoadBalancer.Provisioning == sdn.ProvisioningError
		})
	})
}

// TestNewProviderOfTwoFamilies: a Service with two VIPs changes its provider with one trial for each.
func TestNewProviderOfTwoFamilies(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.Provider = "ovn"
		s.VIPs = append(s.VIPs, v1.VIPAddress{IP: "fd00:96::10", SubnetID: service6Subnet})
	})
	b.realised("web")
	b.cloud.SetLoadBalancerQuota(3)
	before := b.cloud.Calls(memory.DeleteLoadBalancer)
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
	b.eventually("the quota lacks room for the second trial", func() bool { reason, _ := b.reasonOf("web"); return reason == v1.ReasonOverQuota })
	b.never("anything is deleted, a trial included", func() bool { return b.cloud.Calls(memory.DeleteLoadBalancer) > before })
	b.cloud.SetLoadBalancerQuota(4)
	b.eventually("both have the other provider, and no trial is left", func() bool {
		all := b.cloud.LoadBalancers()
		return len(all) == 2 && all[0].LoadBalancer.Provider == "amphora" && all[1].LoadBalancer.Provider == "amphora"
	})
	b.realised("web")
	if n := b.cloud.Calls(memory.DeleteLoadBalancer) - before; n > 8 { // two load balancers, two trials, each perhaps asked for twice
		t.Errorf("%d deletions", n)
	}
}

// TestFloatingIPOfAFormerProject: the project of a Service changes, and its floating IP stays. It stays
// also while the Service has no load balancer.
func TestFloatingIPOfAFormerProject(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	b.start()
	b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.ProjectID = "red" })
	was := b.realised("web").Status.PublicIP
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.ProjectID = "blue" })
	b.realised("web")
	b.cloud.SetLoadBalancerQuota(0)
	b.cloud.RemoveLoadBalancer(b.tree("web").ID)
	b.eventually("the quota is full, and the status has no load balancer", func() bool {
		reason, _ := b.reasonOf("web")
		return reason == v1.ReasonOverQuota && len(b.klb("web").Status.LoadBalancers) == 0
	})
	b.cloud.SetLoadBalancerQuota(-1)
	if is := b.realised("web").Status.PublicIP; is == nil || is.ID != was.ID {
		t.Errorf("the floating IP was %+v, and is %+v", was, is)
	}
}
