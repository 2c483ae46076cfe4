// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// away makes all calls about load balancers fail. Calls about floating IPs, ports and security
// groups succeed.
func (b *bed) away() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = func(_ context.Context, call string, _ int) error {
		for _, what := range []string{"LoadBalancer", "Listener", "Pool", "Member", "Features"} {
			if strings.Contains(call, what) {
				return fmt.Errorf("asking for load balancers: %w", sdn.ErrUnavailable)
			}
		}
		return nil
	}
}

// TestNarrowerWithoutOctavia: a security group enforces narrower ranges, however long the load
// balancer is busy, and whether Octavia answers or not.
func TestNarrowerWithoutOctavia(t *testing.T) {
	for name, hinder := range map[string]func(*bed){
		"busy": func(b *bed) {
			b.cloud.EditLoadBalancer(b.tree("web").ID, func(lb *sdn.LoadBalancer) { lb.Provisioning = "PENDING_UPDATE" })
		},
		"away": (*bed).away,
		"away after a restart": func(b *bed) {
			b.away()
			b.stop()
			b.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := fenceBed(t)
			b.start()
			one, two := b.bound(b.pod("one")), b.bound(b.pod("two"))
			b.fenced("web", one)
			ip := b.realised("web").Status.PublicIP.IP
			hinder(b)
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0].Members = membersAt(one, two) })
			b.eventually("it is noticed", func() bool { return b.has(two, group, b.fence().ID) })
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.128/25"} })
			b.eventually("the rules follow", func() bool { return cmp.Equal(b.fence().Rules, []sdn.Rule{rule(8080, "192.0.2.128/25")}) })
			b.never("the floating IP goes", func() bool { return b.publicOnes()[0] != ip+" cluster at 10.96.0.10" })
			b.fail("", nil)
		})
	}
}

// TestRangesWithoutOctavia: load balancers enforce the ranges, and Octavia does not answer. A
// Service whose ranges have become narrower does not stay public for long. One whose endpoints have
// changed does, also after a restart.
func TestRangesWithoutOctavia(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) {
		s.Provider, s.SourceRanges = "amphora", []string{"192.0.2.0/24", "198.51.100.0/24"}
	})
	ip := b.realised("web").Status.PublicIP.IP
	b.stop()
	b.away()
	b.start()
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.Listeners[0].Members, s.SourceRanges = s.Listeners[0].Members[:1], append(s.SourceRanges, "203.0.113.0/24")
	})
	b.never("it is taken for open", func() bool { return b.publicOnes()[0] != ip+" cluster at 10.96.0.10" })
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.0/25"} })
	b.eventually("it is not public any more", func() bool {
		return b.klb("web").Status.PublicIP == nil && slices.Equal(b.publicOnes(), []string{ip + " cluster nowhere"})
	})
	b.mentions("Event", b.eventOn("web", "FloatingIPWithheld"), ip)
	b.fail("", nil)
	if p := b.realised("web").Status.PublicIP; p == nil || p.IP != ip || b.publicOf(b.tree("web")) != ip {
		t.Errorf("when the ranges are kept the status has floating IP %+v, the cloud %q", p, b.publicOnes())
	}
}

// TestRangesWithoutOctaviaAfterRestart: a new process cannot know some narrowings, such as the
// first ranges of a Service that was open to all. Such a Service does not stay public for long,
// either.
func TestRangesWithoutOctaviaAfterRestart(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.Provider, s.SourceRanges = "amphora", []string{"192.0.2.0/24"} })
	b.realised("web")
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = nil })
	ip := b.realised("web").Status.PublicIP.IP
	b.stop()
	b.away()
	b.start()
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.0/24"} })
	b.eventually("it is not public any more", func() bool { return slices.Equal(b.publicOnes(), []string{ip + " cluster nowhere"}) })
	b.fail("", nil)
	b.realised("web")
}

// TestGroupIsNotChanged: a security group cannot be narrowed to the new ranges. Its Service does
// not stay public for long, either. A quota only prevents a wider group, so there the Service stays
// public.
func TestGroupIsNotChanged(t *testing.T) {
	b := fenceBed(t)
	b.start()
	one := b.bound(b.pod("one"))
	b.fenced("web", one)
	ip := b.realised("web").Status.PublicIP.IP
	b.fail(memory.EnsureSecurityGroup, fmt.Errorf("changing: %w", sdn.ErrQuota))
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24"} })
	b.mentions("Event", b.eventOn("web", "OverQuota"), "security group", "Raise the quota")
	b.never("the floating IP goes for a quota", func() bool { return b.publicOnes()[0] != ip+" cluster at 10.96.0.10" })
	b.fail(memory.EnsureSecurityGroup, fmt.Errorf("changing: %w", sdn.ErrForbidden))
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.128/25"} })
	b.eventually("it is not public any more", func() bool { return slices.Equal(b.publicOnes(), []string{ip + " cluster nowhere"}) })
	b.fail("", nil)
	if p := b.realised("web").Status.PublicIP; p == nil || p.IP != ip {
		t.Errorf("when the group is right the status has floating IP %+v", p)
	}
}
