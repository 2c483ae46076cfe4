// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestAdoptedAddressIsNotTaken: a Service has a floating IP by its address, without a mark. No
// other Service gets it while it is temporarily at no port.
func TestAdoptedAddressIsNotTaken(t *testing.T) {
	const address = "203.0.113.80"
	asks := func(s *v1.KuryrLoadBalancerSpec) {
		s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork, Address: address}
	}
	for name, tc := range map[string]struct {
		take, back func(*bed)
	}{
		"made anew": {
			take: func(b *bed) {
				b.fail(memory.CreateLoadBalancer, fmt.Errorf("making a load balancer: %w", sdn.ErrUnavailable))
				b.cloud.RemoveLoadBalancer(b.at(vip4.IP).ID)
			},
			back: func(b *bed) { b.fail("", nil) },
		},
		"withheld": {
			take: func(b *bed) {
				b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.0/24"} })
			},
			back: func(b *bed) { b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = nil }) },
		},
		"withheld, and restarted": {
			take: func(b *bed) {
				b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.0/24"} })
				b.eventually("the status says so", func() bool {
					is := b.klb("web").Status
					return is.PublicIP == nil && is.WithheldPublicIP == address
				})
				b.stop()
				b.start()
			},
			back: func(b *bed) { b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = nil }) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := balancerBed(t)
			b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: address})
			b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
			b.start()
			b.balancer("older", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.66" })
			b.realised("older")
			b.balancer("web", asks)
			b.realised("web")
			b.respec("older", asks)
			b.mentions("Event", b.eventOn("older", v1.ReasonFloatingIPNotUsable), address)
			tc.take(b)
			b.eventually("it is at no port", func() bool { return len(b.publicOnes()) == 1 && b.publicOnes()[0] == address+"  nowhere" })
			b.never("another Service takes it", func() bool { return b.publicOf(b.at("10.96.0.66")) != "" })
			tc.back(b)
			b.eventually("it is back", func() bool { return b.at(vip4.IP) != nil && b.publicOf(b.at(vip4.IP)) == address })
			if is := b.realised("web").Status.WithheldPublicIP; is != "" {
				t.Errorf("the status says that %s is withheld", is)
			}
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = nil })
			b.eventually("the other one has it now", func() bool { return b.publicOf(b.at("10.96.0.66")) == address })
		})
	}
}

// TestAdoptedAddressOfAnotherNetwork: a Service gets such a floating IP back once it is no longer
// withheld. That holds also if the cluster's floating IPs are of another network by then.
func TestAdoptedAddressOfAnotherNetwork(t *testing.T) {
	const address = "203.0.113.80"
	b := balancerBed(t)
	b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: address})
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork, Address: address}
	})
	b.realised("web")
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.PublicIP.NetworkID, s.SourceRanges = "5f1c5aac-0000-4000-8000-0000000000f9", []string{"192.0.2.0/24"}
	})
	b.eventually("it is withheld", func() bool { return b.publicOf(b.tree("web")) == "" && b.klb("web").Status.PublicIP == nil })
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = nil })
	if p := b.realised("web").Status.PublicIP; p == nil || p.IP != address || b.publicOf(b.tree("web")) != address {
		t.Errorf("it has %+v, the cloud %v, want %s back", p, b.publicOnes(), address)
	}
}
