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
	if c := meta.FindStatusCondition(b.klb("web-0").Status.Conditions, v1.ConditionProgressing); c.Reason == v1.ReasonReplacing {
		t.Error("web-0 still says that it is being replaced")
	}
}
