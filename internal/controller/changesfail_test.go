// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// Octavia answers reads from its database. What it cannot do without Neutron it answers with
// 500, as while its login at Keystone fails.
const (
	identityAway   = `{on: "identity * /**", fault: 503}`
	withoutNeutron = `fault: {status: 500, message: "Unable to establish connection to http://controller:9696/v2.0/subnets"}`
)

// oneService is a Service with one port in the cloud of a simBed.
type oneService struct {
	slice        *discoveryv1.EndpointSlice
	balancer     string // ID
	pool, member string // IDs
}

// serveOne creates a Service on OVN with two endpoints, and waits until it is in the cloud.
func (b *simBed) serveOne(name string, ips []string) oneService {
	b.t.Helper()
	b.service(name, ports(1), by("ovn"))
	s := oneService{slice: b.sliceWith(1, name, ips)}
	b.eventuallyIn(time.Minute, name+" is in the cloud", func() bool { return b.atRest(name, 1, ips) })
	status := b.balancerOf(name).Status
	s.balancer, s.pool, s.member = status.LoadBalancers[0].ID, status.Pools[0].ID, status.Members[0].ID
	return s
}

// moveTo replaces the endpoints of a Service.
func (b *simBed) moveTo(s *oneService, ips []string) {
	b.t.Helper()
	s.slice.Endpoints = endpointsAt(ips...)
	if err := b.client.Update(b.t.Context(), s.slice); err != nil {
		b.t.Fatal(err)
	}
}

func (b *simBed) inError(collection, id string) {
	b.t.Helper()
	if err := b.api.SetProvisioning(collection, id, "ERROR"); err != nil {
		b.t.Fatal(err)
	}
}

// readyOf returns the condition Ready of a KuryrLoadBalancer.
func (b *simBed) readyOf(name string) metav1.Condition {
	if klb := b.balancerOf(name); klb != nil {
		if c := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady); c != nil {
			return *c
		}
	}
	return metav1.Condition{}
}

// follow waits until each Service has its members in the cloud.
func (b *simBed) follow(members map[string][]string) {
	b.t.Helper()
	began := time.Now()
	for name, ips := range members {
		b.eventuallyIn(30*time.Second, name+" is in the cloud", func() bool { return b.atRest(name, 1, ips) })
	}
	b.t.Logf("everything was right after %s", time.Since(began))
	have := b.membersOf()
	for name, ips := range members {
		if diff := cmp.Diff(wanted(1, ips), have[name]); diff != "" {
			b.t.Errorf("members of %s (-want +got):\n%s", name, diff)
		}
	}
}

// TestChangesFail: Octavia answers lists, and each change with 500. Failed changes are no
// attempts at a repair, and no pause gets long: when changes work again, everything is right within
// half a minute, at the gentlest level, with the pauses of production.
func TestChangesFail(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it waits for pauses of production; 'make long' runs it")
	}
	alone(t)
	b := newSimBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	b.launch(1000)
	before, after := addresses(0, 2), addresses(1, 2)
	all := map[string]*oneService{}
	for _, name := range []string{"well", "member", "pool", "balancer"} {
		s := b.serveOne(name, before)
		all[name] = &s
	}
	mends := counted(t, "kuryr_loadbalancer_mends_total")
	b.slow(`{calls: [` + identityAway + `, {on: "load-balancer POST|PUT|DELETE /v2/lbaas/**", ` + withoutNeutron + `}]}`)
	b.inError("members", all["member"].member)
	b.inError("pools", all["pool"].pool)
	b.inError("loadbalancers", all["balancer"].balancer)
	b.moveTo(all["well"], after)
	b.service("new", ports(1), by("ovn"))
	b.sliceWith(1, "new", after)
	for _, name := range []string{"well", "member", "pool", "balancer", "new"} {
		b.eventually("it is told what fails", func() bool {
			klb := b.balancerOf(name)
			said := b.readyOf(name).Message
			// What serves is not replaced while another load balancer cannot be created.
			return klb != nil && (hasWords(said, "Octavia answered 500") || name == "balancer" && hasWords(said, "the cloud does not create the load balancer of default/new"))
		})
	}
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = time.Hour })
	time.Sleep(12 * time.Second) // the pause of each queue item is 10 s by then, as long as it gets
	if n := counted(t, "kuryr_loadbalancer_mends_total") - mends; n != 0 {
		t.Errorf("%v attempts count that Octavia has answered with 500", n)
	}
	b.slow("{}")
	b.follow(map[string][]string{"well": after, "new": after, "member": before, "pool": before, "balancer": before})
	for name, s := range all {
		status := b.balancerOf(name).Status
		if same := status.LoadBalancers[0].ID == s.balancer; same != (name != "balancer") {
			t.Errorf("%s: load balancer %s, before it was %s", name, status.LoadBalancers[0].ID, s.balancer)
		}
		if same := status.Pools[0].ID == s.pool; same != (name == "well" || name == "member") {
			t.Errorf("%s: pool %s, before it was %s", name, status.Pools[0].ID, s.pool)
		}
	}
}

// TestRepairsWhileChangesFail: without Neutron Octavia refuses to create load balancers, and
// all else that it accepts ends in ERROR. The attempts of that time do not count either, once a
// change works that failed before.
func TestRepairsWhileChangesFail(t *testing.T) {
	alone(t)
	b := newSimBed(t)
	b.mend = 6 * time.Second // after the last attempt the pause is eight times as long
	b.launch(1000)
	before, after := addresses(0, 2), addresses(2, 2)
	web := b.serveOne("web", before)
	b.slow(`{calls: [` + identityAway + `, {on: "load-balancer POST /v2/lbaas/loadbalancers", ` + withoutNeutron + `}], balancers: [{outcome: ERROR}]}`)
	b.service("new", ports(1), by("ovn"))
	b.sliceWith(1, "new", after)
	b.moveTo(&web, after)
	b.eventuallyIn(time.Minute, "everything was tried", func() bool {
		klb := b.balancerOf("web")
		return b.readyOf("web").Reason == v1.ReasonLoadBalancerInError && meta.IsStatusConditionFalse(klb.Status.Conditions, v1.ConditionProgressing)
	})
	b.eventually("the other one is not created", func() bool { return hasWords(b.readyOf("new").Message, "Octavia answered 500") })
	b.slow("{}")
	b.follow(map[string][]string{"new": after, "web": after})
}
