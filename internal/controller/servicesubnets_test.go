// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestSubnetsUnknown: while the cloud does not show the subnets, Services wait. Deleted Services do
// not wait.
func TestSubnetsUnknown(t *testing.T) {
	b := newServiceBed(t)
	b.book.fail(sdn.ErrUnavailable)
	b.launch()
	b.service("web")
	b.slice("web", "web-1", "10.1.0.5")
	b.never("a plan without subnets", func() bool { return b.balancerOf("web") != nil })
	going := b.service("going", func(s *corev1.Service) { s.Finalizers = []string{v1.ServiceFinalizer} })
	b.delete(going)
	b.eventually("a Service that is deleted is gone", func() bool { return b.now(going) == nil })
	b.book.fail(nil)
	b.members("web", "10.1.0.5")
}

// TestSubnetsSlow: while the cloud answers slowly about the subnets, no worker waits for long.
// Deleted Services do not wait at all.
func TestSubnetsSlow(t *testing.T) {
	b := newServiceBed(t)
	release := b.book.block()
	defer release()
	b.launch()
	going := b.service("going", func(s *corev1.Service) { s.Finalizers = []string{v1.ServiceFinalizer} })
	for i := range 20 { // more than the number of workers
		b.service(fmt.Sprint("web-", i))
	}
	b.slice("web-0", "web-1", "10.1.0.5")
	b.eventually("the cloud is asked", func() bool { return b.book.count() > 0 })
	b.delete(going)
	b.eventuallyIn(10*time.Second, "the Service that goes is gone", func() bool { return b.now(going) == nil })
	if n := b.book.count(); n != 1 {
		t.Errorf("%d calls for one subnet", n)
	}
	release()
	b.members("web-0", "10.1.0.5")
}

// TestSubnetsForbidden: existing load balancers stay when the cloud no longer shows the subnets.
func TestSubnetsForbidden(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web")
	s := b.slice("web", "web-1", "10.1.0.5", "10.1.0.6")
	klb := b.members("web", "10.1.0.5", "10.1.0.6")
	b.stop()
	b.book.fail(sdn.ErrForbidden)
	b.launch()
	b.eventually("it is said", func() bool {
		c := b.planned(svc)
		return c != nil && hasWords(c.Message, "the cloud shows no subnet "+vipSubnet)
	})
	b.quiet()
	if diff := cmp.Diff(klb.Spec, b.balancerOf("web").Spec); diff != "" {
		t.Errorf("spec (-before +after):\n%s", diff)
	}
	b.patch(s, map[string]any{"endpoints": endpointsAt("10.1.0.6")})
	b.members("web", "10.1.0.6")
	b.book.fail(nil)
	b.eventually("all is well", func() bool { return b.planned(svc) == nil })
}

// TestSubnetGone: a subnet is deleted while the controller runs. That is noticed with the next
// check of the load balancers, and after a change of the configuration. New addresses in the subnet
// are left out, which is reported.
func TestSubnetGone(t *testing.T) {
	const nodes = "5f1c5aac-0000-4000-8000-0000000000b1"
	for name, c := range map[string]struct {
		interval time.Duration
		then     func(b *serviceBed)
	}{
		"look":   {500 * time.Millisecond, func(*serviceBed) {}},
		"reload": {time.Hour, func(b *serviceBed) { b.set(func(*settings.Settings) {}) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newServiceBed(t)
			b.cloud.AddSubnet(memory.Subnet{ID: nodes, NetworkID: network, Prefix: netip.MustParsePrefix("192.0.2.0/24"), MTU: 1442})
			b.set(func(s *settings.Settings) {
				s.Services.NodeSubnetIDs, s.Services.CheckInterval.Duration = []string{nodes}, c.interval
			})
			b.launch()
			svc := b.service("web")
			s := b.slice("web", "web-1", "192.0.2.5")
			b.members("web", "192.0.2.5")
			b.book.lose(nodes)
			c.then(b)
			b.eventually("it is told", func() bool {
				c := b.planned(svc)
				return c != nil && hasWords(c.Message, nodes)
			})
			b.patch(s, map[string]any{"endpoints": endpointsAt("192.0.2.5", "192.0.2.6")})
			b.quiet()
			b.members("web", "192.0.2.5")
			b.book.lose("")
			b.members("web", "192.0.2.5", "192.0.2.6")
		})
	}
}

// TestSubnetGoneBeforeTheCacheShowsAnything: a subnet is deleted before the cache shows the
// KuryrLoadBalancer that was just written. Its members stay.
func TestSubnetGoneBeforeTheCacheShowsAnything(t *testing.T) {
	const nodes = "5f1c5aac-0000-4000-8000-0000000000b1"
	b := newServiceBed(t)
	b.cache = lateBy{"KuryrLoadBalancer", 700 * time.Millisecond}.apply(b.cache)
	b.cloud.AddSubnet(memory.Subnet{ID: nodes, NetworkID: network, Prefix: netip.MustParsePrefix("192.0.2.0/24"), MTU: 1442})
	b.set(func(s *settings.Settings) {
		s.Services.NodeSubnetIDs, s.Services.CheckInterval.Duration = []string{nodes}, time.Hour
	})
	b.launch()
	svc := b.service("web")
	b.slice("web", "web-1", "192.0.2.5")
	b.members("web", "192.0.2.5")
	b.book.lose(nodes)
	b.set(func(*settings.Settings) {})
	b.never("the member is dropped", func() bool {
		l := b.balancerOf("web").Spec.Listeners
		return len(l) != 1 || len(l[0].Members) != 1
	})
	b.eventually("it is told", func() bool {
		c := b.planned(svc)
		return c != nil && hasWords(c.Message, nodes)
	})
	b.members("web", "192.0.2.5")
}
