// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestWithoutLoadBalancing: a cloud without load balancing is reported, and objects without
// resources there can be deleted.
func TestWithoutLoadBalancing(t *testing.T) {
	b := balancerBed(t)
	b.cloud.ServeLoadBalancers(false)
	b.start()
	klb := b.balancer("web")
	b.mentions("Event", b.eventOn("web", "NoLoadBalancing"), "Install Octavia")
	b.delete(klb)
	b.removed("web")
	b.cloud.ServeLoadBalancers(true)
	known := b.balancer("known")
	b.realised("known")
	b.cloud.ServeLoadBalancers(false)
	b.delete(known)
	b.mentions("Event", b.eventOn("known", "NoLoadBalancing"), "clear the status of its KuryrLoadBalancer")
	b.empty("known")
	b.removed("known")
}

// TestProviderChangesOneAtATime: an edit of the configuration interrupts one Service at a time. The
// others follow their endpoints meanwhile.
func TestProviderChangesOneAtATime(t *testing.T) {
	const n = 4
	b := balancerBed(t)
	f, err := b.cloud.Backend("cluster").Features(t.Context(), "amphora")
	if err != nil {
		t.Fatal(err)
	}
	b.cloud.SetProvider(memory.Provider{Features: f, Busy: memory.UntilSettled})
	b.start()
	for i := range n {
		b.balancer(fmt.Sprint("web-", i), func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = fmt.Sprint("10.96.0.", 10+i) })
	}
	for i := range n {
		b.realised(fmt.Sprint("web-", i))
	}
	for i := range n {
		b.respec(fmt.Sprint("web-", i), func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
	}
	providers := func() map[string]int {
		count := map[string]int{}
		for _, item := range b.cloud.LoadBalancers() {
			count[item.LoadBalancer.Provider]++
		}
		return count
	}
	settle := func() {
		for _, item := range b.cloud.LoadBalancers() {
			b.cloud.Settle(item.LoadBalancer.ID)
		}
	}
	for moved := 1; moved <= n; moved++ {
		b.eventually("there is a trial of the other provider", func() bool { return providers()["amphora"] == moved })
		b.never("one goes before the trial is ACTIVE", func() bool { return providers()["ovn"] != n-moved+1 })
		settle()
		b.eventually(fmt.Sprint(moved, " have another provider, and there is a trial"), func() bool { return providers()["amphora"] == moved+1 })
		b.never("another goes before that one serves", func() bool { return providers()["ovn"] != n-moved })
		for _, item := range b.cloud.LoadBalancers() {
			if item.LoadBalancer.Provider == "ovn" && moved == 1 {
				name := item.LoadBalancer.Owner.Name
				b.respec(name, func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 7) })
				b.eventually("the endpoints of one that waits follow", func() bool { return slices.Contains(b.serves(name), "TCP:80>10.1.0.7") })
				conditions := b.klb(name).Status.Conditions
				if c := meta.FindStatusCondition(conditions, v1.ConditionReady); c.Status != metav1.ConditionTrue {
					t.Errorf("one that waits and serves is said not to be ready: %+v", c)
				}
				b.mentions("condition", meta.FindStatusCondition(conditions, v1.ConditionProgressing).Message, "provider ovn still serves", "one load balancer of a project at a time")
				break
			}
		}
		settle()
	}
	for i := range n {
		b.realised(fmt.Sprint("web-", i))
	}
}

// TestWrongProviderTakesNothingDown: a wrong provider is reported. The existing load balancer keeps
// serving and is kept up to date.
func TestWrongProviderTakesNothingDown(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web")
	id := b.realised("web").Status.LoadBalancers[0].ID
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider, s.Listeners[0] = "amphroa", balancerPort(80, 7) })
	b.mentions("Event", b.eventOn("web", "Rejected"), "amphroa")
	b.eventually("endpoints follow", func() bool { return slices.Contains(b.serves("web"), "TCP:80>10.1.0.7") })
	if b.tree("web").ID != id {
		t.Error("the load balancer was made anew")
	}
}

// TestDefaultsAreForNewOnes: a default that cannot be changed in place is reported. The existing
// load balancer is not replaced for it.
func TestDefaultsAreForNewOnes(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", public)
	before := b.realised("web").Status
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.FlavorID, s.ProjectID, s.PublicIP.NetworkID = "big", "other-project", "5f1c5aac-0000-4000-8000-0000000000f9"
	})
	after := b.realised("web")
	b.mentions("Event", b.eventOn("web", "NotChanged"), `flavor "" instead of "big"`, "5f1c5aac-0000-4000-8000-0000000000f9", "Delete the KuryrLoadBalancer")
	if diff := cmp.Diff([]any{before.LoadBalancers, before.PublicIP}, []any{after.Status.LoadBalancers, after.Status.PublicIP}); diff != "" {
		t.Errorf("status (-before +after):\n%s", diff)
	}
	b.mentions("condition", meta.FindStatusCondition(after.Status.Conditions, v1.ConditionReady).Message, "apply to new load balancers only", `project "" instead of "other-project"`)
	if got := b.writes(); got[memory.DeleteLoadBalancer]+got[memory.DeleteFloatingIP] > 0 {
		t.Errorf("writes %v", got)
	}
}

// TestAnotherProject: the resources in the former project are given up in the way in which they
// were obtained.
func TestAnotherProject(t *testing.T) {
	b := balancerBed(t)
	b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{ProjectID: "one", NetworkID: publicNetwork, Address: "203.0.113.50"})
	b.start()
	b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.ProjectID, s.PublicIP.Address = "one", "203.0.113.50" })
	b.realised("web")
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.ProjectID = "two" })
	if p := b.realised("web").Status.PublicIP; p == nil || p.IP != "203.0.113.50" {
		t.Errorf("status has floating IP %+v, the cloud %q", p, b.publicOnes())
	}
	b.stop()
	b.start()
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = nil })
	b.realised("web")
	if got := b.publicOnes(); !slices.Equal(got, []string{"203.0.113.50  nowhere"}) {
		t.Errorf("the cloud has %q", got)
	}
}

// TestBusyProvider: a provider that is busy after each change of one load balancer does not delay
// its other load balancers.
func TestBusyProvider(t *testing.T) {
	b := balancerBed(t)
	f, err := b.cloud.Backend("cluster").Features(t.Context(), "amphora")
	if err != nil {
		t.Fatal(err)
	}
	b.start()
	amphora := func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" }
	b.balancer("first", amphora)
	b.realised("first")
	b.respec("first", func(s *v1.KuryrLoadBalancerSpec) {
		s.Listeners = []v1.ListenerSpec{balancerPort(80, 3, 4), balancerPort(443, 3, 4)}
	})
	b.realised("first") // it is known by now
	b.cloud.SetProvider(memory.Provider{Features: f, Busy: memory.UntilSettled})
	b.balancer("web", amphora, func(s *v1.KuryrLoadBalancerSpec) {
		s.VIPs = []v1.VIPAddress{{IP: "10.96.0.20", SubnetID: serviceSubnet}, {IP: "fd00:96::20", SubnetID: service6Subnet}}
	})
	b.eventually("those of both families are asked for at once", func() bool { return len(b.cloud.LoadBalancers()) == 3 })
	for _, item := range b.cloud.LoadBalancers() {
		b.cloud.Settle(item.LoadBalancer.ID)
	}
	b.realised("web")
}

// TestUnsupported: the supported part is created, and the unsupported part is reported on the
// Service.
func TestUnsupported(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.0/24"} })
	klb := b.realised("web")
	b.mentions("Event", b.eventOn("web", "NotSupported"), "loadBalancerSourceRanges", "ovn", "another provider")
	if !meta.IsStatusConditionFalse(klb.Status.Conditions, v1.ConditionSupported) || !cmp.Equal(served, b.serves("web")) {
		t.Errorf("status %+v, the cloud serves %q", klb.Status.Conditions, b.serves("web"))
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = nil })
	b.eventually("it is supported", func() bool {
		return meta.IsStatusConditionTrue(b.realised("web").Status.Conditions, v1.ConditionSupported)
	})
}

// TestUDPClientsStay: the KuryrLoadBalancer says what happens to clients of a UDP port with OVN's
// provider, in one write and without an Event. Checks write nothing, but for an object with the message
// of an older version, once.
func TestUDPClientsStay(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 200 * time.Millisecond })
	b.start()
	b.balancer("web")
	b.balancer("resolver", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP, s.Listeners[0].Protocol = "10.96.0.11", "UDP" })
	message := func(name string) string {
		return meta.FindStatusCondition(b.realised(name).Status.Conditions, v1.ConditionReady).Message
	}
	plain, full := message("web"), message("resolver")
	if !hasWords(full, "UDP", "ovn", "Limits") || full == plain {
		t.Errorf("of a UDP port Ready says %q, of TCP ports %q", full, plain)
	}
	rests := func(when string) {
		t.Helper()
		reads, version, writes := b.cloud.Calls(memory.GetLoadBalancer), b.klb("resolver").ResourceVersion, b.writes()
		b.eventually("it was looked at some times", func() bool { return b.cloud.Calls(memory.GetLoadBalancer) > reads+6 })
		if now := b.klb("resolver").ResourceVersion; now != version {
			t.Errorf("%s: checks have written the object: version %s became %s", when, version, now)
		}
		if diff := cmp.Diff(writes, b.writes()); diff != "" {
			t.Errorf("%s: checks have written into the cloud (-before +after):\n%s", when, diff)
		}
	}
	rests("with the message")
	old := b.klb("resolver")
	older := old.DeepCopy()
	meta.FindStatusCondition(older.Status.Conditions, v1.ConditionReady).Message = plain
	if err := b.client.Status().Patch(t.Context(), older, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
	b.eventually("the message of an older version is replaced", func() bool { return message("resolver") == full })
	rests("after that")
	b.respec("resolver", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[1] = balancerPort(443, 1, 2, 3) })
	if got := message("resolver"); got != full {
		t.Errorf("after a change Ready says %q, want %q", got, full)
	}
	var all eventsv1.EventList
	if err := b.client.List(t.Context(), &all, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	for _, e := range all.Items {
		if e.Regarding.Name != "resolver" {
			continue // of another test
		}
		t.Errorf("there is an Event %s on %s: %s", e.Reason, e.Regarding.Name, e.Note)
	}
}
