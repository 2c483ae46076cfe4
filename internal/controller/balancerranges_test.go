// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestClosedNeverOpen: a Service has source ranges that its provider cannot enforce. It is not made
// public, and its floating IP stays reserved for it. That is reported.
func TestClosedNeverOpen(t *testing.T) {
	b := balancerBed(t)
	b.start()
	ranges := func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.0/24"} }
	klb := b.balancer("web", public, ranges)
	if p := b.realised("web").Status.PublicIP; p != nil || len(b.publicOnes()) > 0 {
		t.Fatalf("status has floating IP %+v, the cloud %q, want none", p, b.publicOnes())
	}
	b.mentions("Event", b.eventOn("web", "NotSupported"), "loadBalancerSourceRanges", "gets no floating IP", "kuryr-provider")
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = nil })
	first := b.realised("web").Status.PublicIP
	if first == nil || b.publicOf(b.tree("web")) != first.IP {
		t.Fatalf("without ranges the status has floating IP %+v, the cloud %q", first, b.publicOnes())
	}
	b.respec("web", ranges)
	if p := b.realised("web").Status.PublicIP; p != nil || !slices.Equal(b.publicOnes(), []string{first.IP + " cluster nowhere"}) {
		t.Errorf("with ranges again the status has floating IP %+v, the cloud %q, want it to be reserved", p, b.publicOnes())
	}
	b.mentions("Event", b.eventOn("web", "FloatingIPWithheld"), first.IP)
	lists := b.cloud.Calls(memory.ListLoadBalancers)
	b.never("somebody is uneasy about the reserved one", func() bool { return b.cloud.Calls(memory.GetLoadBalancer) > 20+lists })
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
	if p := b.realised("web").Status.PublicIP; p == nil || p.IP != first.IP || b.publicOf(b.tree("web")) != first.IP ||
		!slices.Equal(b.tree("web").Listeners[0].SourceRanges, []string{"192.0.2.0/24"}) {
		t.Errorf("with a provider that keeps them out the status has floating IP %+v, the cloud %q %+v", p, b.publicOnes(), b.tree("web"))
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "ovn" })
	b.realised("web")
	b.delete(klb)
	b.removed("web")
	if left := b.publicOnes(); len(left) > 0 {
		t.Errorf("the cloud still has %q", left)
	}
}

// TestRangesOfOtherFamily: a dual-stack Service that admits all of IPv4 has its floating IP. That
// holds also if the provider does not enforce the IPv6 ranges.
func TestRangesOfOtherFamily(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) {
		s.VIPs, s.SourceRanges = []v1.VIPAddress{vip4, vip6}, []string{"0.0.0.0/0", "fd00:96::/112"}
	})
	if p := b.realised("web").Status.PublicIP; p == nil || b.publicOf(b.at(vip4.IP)) != p.IP {
		t.Errorf("the status has floating IP %+v, the cloud %q", p, b.publicOnes())
	}
	b.mentions("Event", b.eventOn("web", "NotSupported"), "loadBalancerSourceRanges", "route to the cluster IP")
}

// TestRangesAreNotTaken: the same if a provider that can enforce ranges refuses them this time, or
// accepts them without effect.
func TestRangesAreNotTaken(t *testing.T) {
	for name, refusal := range map[string]error{
		"refused": fmt.Errorf("updating: %w", sdn.ErrUnsupported), "forbidden": fmt.Errorf("updating: %w", sdn.ErrForbidden),
		"away": fmt.Errorf("updating: %w", sdn.ErrUnavailable), "not done": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := balancerBed(t)
			b.start()
			b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
			ip := b.realised("web").Status.PublicIP.IP
			id := b.tree("web").ID
			if refusal != nil {
				b.fail(memory.UpdateListener, refusal)
			} else {
				b.onAfter(func(context.Context, string, int) error {
					b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) {
						for i := range lb.Listeners {
							lb.Listeners[i].SourceRanges = nil
						}
					})
					return nil
				})
			}
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.0/24"} })
			b.eventually("it is not public any more, and said not to be", func() bool {
				klb := b.klb("web")
				ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
				return klb.Status.PublicIP == nil && slices.Equal(b.publicOnes(), []string{ip + " cluster nowhere"}) &&
					ready.Status == metav1.ConditionFalse && hasWords(ready.Message, "has no floating IP")
			})
			b.fail("", nil)
			b.onAfter(nil)
			if p := b.realised("web").Status.PublicIP; p == nil || p.IP != ip || b.publicOf(b.tree("web")) != ip {
				t.Errorf("when the ranges are kept the status has floating IP %+v, the cloud %q", p, b.publicOnes())
			}
		})
	}
}

// TestRangesTakeTooLong: a Service does not stay public for long while its load balancer is busy,
// either. It is public again once the load balancer has its ranges.
func TestRangesTakeTooLong(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
	ip := b.realised("web").Status.PublicIP.IP
	id := b.tree("web").ID
	b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Provisioning = "PENDING_UPDATE" })
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.0/24"} })
	b.eventually("it is not public any more", func() bool {
		return b.klb("web").Status.PublicIP == nil && slices.Equal(b.publicOnes(), []string{ip + " cluster nowhere"})
	})
	b.mentions("Event", b.eventOn("web", "FloatingIPWithheld"), ip)
	b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Provisioning = sdn.ProvisioningActive })
	if p := b.realised("web").Status.PublicIP; p == nil || p.IP != ip || b.publicOf(b.tree("web")) != ip {
		t.Errorf("when the ranges are kept the status has floating IP %+v, the cloud %q", p, b.publicOnes())
	}
}

// TestWiderRangesTakeTooLong: a Service that is to admit more clients keeps its floating IP,
// however long the change takes, and even if it fails. It admits no client that is to be excluded.
func TestWiderRangesTakeTooLong(t *testing.T) {
	for name, hinder := range map[string]func(b *bed, id string){
		"busy": func(b *bed, id string) {
			b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Provisioning = "PENDING_UPDATE" })
		},
		"forbidden": func(b *bed, _ string) { b.fail(memory.UpdateListener, fmt.Errorf("updating: %w", sdn.ErrForbidden)) },
		"not done": func(b *bed, id string) {
			b.onAfter(func(context.Context, string, int) error {
				b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) {
					for i := range lb.Listeners {
						lb.Listeners[i].SourceRanges = []string{"192.0.2.0/24"}
					}
				})
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := balancerBed(t)
			b.start()
			b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.Provider, s.SourceRanges = "amphora", []string{"192.0.2.0/24"} })
			ip := b.realised("web").Status.PublicIP.IP
			id := b.tree("web").ID
			hinder(b, id)
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = append(s.SourceRanges, "198.51.100.0/24") })
			b.never("the floating IP goes", func() bool {
				return b.klb("web").Status.PublicIP == nil || !slices.Equal(b.publicOnes(), []string{ip + " cluster at 10.96.0.10"})
			})
			b.fail("", nil)
			b.onAfter(nil)
			b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Provisioning = sdn.ProvisioningActive })
			b.realised("web")
			for _, l := range b.tree("web").Listeners {
				if len(l.SourceRanges) != 2 {
					t.Errorf("port %d has source ranges %q, want both", l.Port, l.SourceRanges)
				}
			}
		})
	}
}
