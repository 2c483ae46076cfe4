// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// overQuota counts the KuryrLoadBalancers that report an exhausted quota.
func (b *bed) overQuota(n int) (full int) {
	for i := range n {
		ready := meta.FindStatusCondition(b.klb(fmt.Sprint("web-", i)).Status.Conditions, v1.ConditionReady)
		if ready != nil && ready.Reason == v1.ReasonOverQuota {
			full++
		}
	}
	return full
}

// TestManyOverQuota: of many Services over a quota, one asks for all, and no other one lists the
// load balancers. All of them report the quota, and all are served when there is room.
func TestManyOverQuota(t *testing.T) {
	const n, pauses = 60, 10
	for name, tc := range map[string]struct {
		asks, lists string // names of calls
		fill, free  func(*bed)
	}{
		"load balancers": {
			asks: memory.CreateLoadBalancer, lists: memory.ListLoadBalancers,
			fill: func(b *bed) { b.cloud.SetLoadBalancerQuota(0) },
			free: func(b *bed) { b.cloud.SetLoadBalancerQuota(-1) },
		},
		"floating IPs": {
			asks: memory.CreateFloatingIP, lists: memory.ListFloatingIPs,
			fill: func(b *bed) { b.fail(memory.CreateFloatingIP, fmt.Errorf("quota of floating IPs: %w", sdn.ErrQuota)) },
			free: func(b *bed) { b.fail("", nil) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := balancerBed(t)
			tc.fill(b)
			b.start()
			b.manyBalancers(n, public)
			b.eventually("all say so", func() bool { return b.overQuota(n) == n })
			asks, lists := b.cloud.Calls(tc.asks), b.cloud.Calls(tc.lists)
			time.Sleep(pauses * hurried.Quota)
			asks, lists = b.cloud.Calls(tc.asks)-asks, b.cloud.Calls(tc.lists)-lists
			if asks < 2 || asks > 2*pauses || lists > 4*pauses {
				t.Errorf("in %d pauses there were %d requests and %d lists for %d Services, want about one a pause", pauses, asks, lists, n)
			}
			tc.free(b)
			for i := range n {
				b.realised(fmt.Sprint("web-", i))
			}
		})
	}
}

// TestOverQuotaMakesRoom: a deleted Service makes room for a waiting one.
func TestOverQuotaMakesRoom(t *testing.T) {
	b := balancerBed(t)
	b.unhurried = true // it does not wait for its turn
	b.start()
	web := b.balancer("web")
	b.realised("web")
	b.cloud.SetLoadBalancerQuota(len(b.cloud.LoadBalancers()))
	b.balancer("other", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.66" })
	b.eventOn("other", "OverQuota")
	b.delete(web)
	b.realised("other")
}

// TestMembersOverQuota: without room for more members, new endpoints replace those that have gone,
// at each port.
func TestMembersOverQuota(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web")
	b.realised("web")
	b.cloud.SetMemberQuota(4)
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.Listeners = []v1.ListenerSpec{balancerPort(80, 3, 4, 5), balancerPort(443, 3, 4, 5)}
	})
	two := []string{"TCP:443>10.1.0.3", "TCP:443>10.1.0.4", "TCP:80>10.1.0.3", "TCP:80>10.1.0.4"}
	b.eventually("two have the places of two at each port", func() bool { return cmp.Equal(b.serves("web"), two) })
	b.mentions("Event", b.eventOn("web", "OverQuota"), "Raise the quota")
	b.cloud.SetMemberQuota(-1)
	b.realised("web")
}

// TestHalfAPortOverQuota: a listener without room for its pool is not created again.
func TestHalfAPortOverQuota(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners = s.Listeners[:1] })
	b.realised("web")
	b.onAfter(func(_ context.Context, call string, n int) error {
		if call != memory.CreateListener || n > 1 {
			return nil
		}
		b.cloud.EditLoadBalancer(b.at(vip4.IP).ID, func(lb *sdn.LoadBalancer) {
			for i := range lb.Listeners {
				if lb.Listeners[i].Port == 443 {
					lb.Listeners[i].Pool = nil
				}
			}
		})
		return fmt.Errorf("quota of pools: %w", sdn.ErrQuota)
	})
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners = append(s.Listeners, balancerPort(443, 1, 2)) })
	b.realised("web")
	if got := b.serves("web"); !cmp.Equal(got, served) {
		t.Errorf("there are %v, want %v", got, served)
	}
	if n := b.cloud.Calls(memory.CreateListener); n != 1 {
		t.Errorf("the listener was asked for %d times, want once", n)
	}
}

// TestTrialLeavesNoVIP: Octavia dies while it creates a trial, which can have any address. What is left
// there goes when two comparisons have found it. What is left at the address of a Service stays for the
// Service's next creation, which may be under way.
func TestTrialLeavesNoVIP(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.SubnetIDs = []string{serviceSubnet} })
	b.start()
	b.balancer("web")
	b.realised("web")
	trial, own := v1.VIPAddress{IP: "10.96.0.78", SubnetID: serviceSubnet}, v1.VIPAddress{IP: vip4.IP, SubnetID: serviceSubnet}
	b.cloud.LeaveVIP(trial)
	b.cloud.LeaveVIP(own)
	b.eventually("nothing is left of the trial", func() bool { return !b.cloud.TakenVIP(trial) })
	b.never("a Service's address is touched", func() bool { return !b.cloud.TakenVIP(own) })
}

// TestRefusedLeavesNoVIP: a Service that never got a load balancer is deleted. The remains of the
// refused creation at the VIP are deleted with it. The next Service with that address gets a load
// balancer.
func TestRefusedLeavesNoVIP(t *testing.T) {
	b := balancerBed(t)
	vip := v1.VIPAddress{IP: "10.96.0.77", SubnetID: serviceSubnet}
	at := func(s *v1.KuryrLoadBalancerSpec) { s.VIPs = []v1.VIPAddress{vip} }
	b.fail(memory.CreateLoadBalancer, fmt.Errorf("no answer: %w", sdn.ErrUnavailable))
	b.start()
	web := b.balancer("web", at)
	b.eventually("a load balancer was asked for", func() bool { return b.cloud.Calls(memory.CreateLoadBalancer) > 0 })
	b.cloud.LeaveVIP(vip)
	b.delete(web)
	b.eventually("it is gone", func() bool {
		var list v1.KuryrLoadBalancerList
		return b.client.List(t.Context(), &list) == nil && len(list.Items) == 0
	})
	if b.cloud.TakenVIP(vip) {
		t.Errorf("%s is taken after the Service has gone", vip.IP)
	}
	b.fail("", nil)
	b.balancer("next", at)
	b.realised("next")
}
