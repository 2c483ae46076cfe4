// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestLoadBalancer: one request creates everything, one changes the members of a pool, one deletes
// everything. The status reports the changes in between.
func TestLoadBalancer(t *testing.T) {
	for _, provider := range []string{"ovn", "amphora"} {
		t.Run(provider, func(t *testing.T) {
			b := balancerBed(t)
			b.start()
			b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = provider })
			klb := b.realised("web")
			if diff := cmp.Diff(served, b.serves("web")); diff != "" {
				t.Errorf("the cloud serves (-want +got):\n%s", diff)
			}
			s := klb.Status
			if len(s.LoadBalancers) != 1 || len(s.Listeners) != 2 || len(s.Pools) != 2 || len(s.Members) != 4 ||
				s.LoadBalancers[0].ProvisioningStatus != "ACTIVE" || s.LoadBalancers[0].Provider != provider || s.LoadBalancers[0].PortID == "" {
				t.Errorf("status %+v", s)
			}
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 2, 3, 4) })
			b.realised("web")
			want := []string{"TCP:443>10.1.0.1", "TCP:443>10.1.0.2", "TCP:80>10.1.0.2", "TCP:80>10.1.0.3", "TCP:80>10.1.0.4"}
			if diff := cmp.Diff(want, b.serves("web")); diff != "" {
				t.Errorf("after endpoints changed the cloud serves (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]int{memory.CreateLoadBalancer: 1, memory.ChangeMembers: 1}, b.writes()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			b.delete(klb)
			b.removed("web")
			if left := b.cloud.LoadBalancers(); len(left) > 0 {
				t.Errorf("the cloud still has %v", left)
			}
		})
	}
}

// TestBusyLoadBalancerKeepsNoOtherWaiting: a busy load balancer does not delay others, and one list
// serves all busy ones.
func TestBusyLoadBalancerKeepsNoOtherWaiting(t *testing.T) {
	b := balancerBed(t)
	f, err := b.cloud.Backend("cluster").Features(t.Context(), "amphora")
	if err != nil {
		t.Fatal(err)
	}
	b.cloud.SetProvider(memory.Provider{Features: f, Busy: memory.UntilSettled})
	b.set(func(s *settings.Settings) { s.Orphans.Interval.Duration = time.Hour }) // its lists are not counted here
	b.start()
	for i := range 40 { // more than the number of workers
		b.balancer(fmt.Sprint("slow-", i), func(s *v1.KuryrLoadBalancerSpec) { s.Provider, s.VIPs[0].IP = "amphora", fmt.Sprint("10.96.1.", i+1) })
	}
	b.eventually("all are asked for", func() bool { return len(b.cloud.LoadBalancers()) == 40 })
	b.balancer("web")
	b.realised("web")
	lists := b.cloud.Calls(memory.ListLoadBalancers)
	for _, item := range b.cloud.LoadBalancers() {
		b.cloud.Settle(item.LoadBalancer.ID)
	}
	for i := range 40 {
		b.realised(fmt.Sprint("slow-", i))
	}
	if n := b.cloud.Calls(memory.ListLoadBalancers) - lists; n > 20 {
		t.Errorf("40 load balancers that became ready cost %d lists", n)
	}
}

// TestRefusals: each refusal is reported on the Service, with what to do. The Service recovers from
// each.
func TestRefusals(t *testing.T) {
	b := balancerBed(t)
	b.cloud.AddForeignLoadBalancer(sdn.LoadBalancer{VIP: v1.VIPAddress{IP: "10.96.0.99", SubnetID: serviceSubnet}})
	b.cloud.AddFlavors("small")
	b.start()
	for name, tc := range map[string]struct {
		change func(*v1.KuryrLoadBalancerSpec)
		reason string
		word   string
	}{
		"taken":    {func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.99" }, "Conflict", "10.96.0.99"},
		"outside":  {func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "192.0.2.1" }, "Rejected", "192.0.2.1"},
		"subnet":   {func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].SubnetID = "nowhere" }, "Rejected", "nowhere"},
		"provider": {func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "nobody" }, "Rejected", "nobody"},
		"flavor":   {func(s *v1.KuryrLoadBalancerSpec) { s.FlavorID = "huge" }, "Rejected", "huge"},
		"external": {func(s *v1.KuryrLoadBalancerSpec) {
			s.VIPs[0].IP, s.PublicIP = "10.96.0.41", &v1.PublicIPSpec{NetworkID: network}
		}, "Rejected", network},
	} {
		klb := b.balancer(name, tc.change)
		b.mentions("Event", b.eventOn(name, tc.reason), tc.word)
		b.delete(klb)
		b.removed(name)
	}
	b.cloud.SetLoadBalancerQuota(len(b.cloud.LoadBalancers()))
	b.balancer("full")
	b.mentions("Event", b.eventOn("full", "OverQuota"), "Raise the quota")
	b.cloud.SetLoadBalancerQuota(-1)
	b.realised("full")
}

// TestCloudAway: an outage changes nothing that was true before, and requested changes are made
// afterwards.
func TestCloudAway(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	b.start()
	b.balancer("web")
	b.realised("web")
	b.fail(memory.GetLoadBalancer, fmt.Errorf("reading: %w", sdn.ErrUnavailable))
	b.never("it is said not to be ready", func() bool {
		return !meta.IsStatusConditionTrue(b.klb("web").Status.Conditions, v1.ConditionReady)
	})
	b.fail(memory.CreateLoadBalancer, errors.New("who knows"))
	b.balancer("other", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.11" })
	b.mentions("Event", b.eventOn("other", "BackendError"), "tries again")
	b.fail("", nil)
	b.realised("other")
}

// TestRestartWritesNothing: with a thousand load balancers a new process neither writes nor checks
// each. A load balancer that has changed meanwhile is updated.
func TestRestartWritesNothing(t *testing.T) {
	apart(t)
	n := 1000
	if testing.Short() {
		n = 100
	}
	b := balancerBed(t)
	b.start()
	b.manyBalancers(n)
	all := func() []v1.KuryrLoadBalancer {
		var list v1.KuryrLoadBalancerList
		if err := b.client.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	ready := func() (n int) {
		for _, klb := range all() {
			if meta.IsStatusConditionTrue(klb.Status.Conditions, v1.ConditionReady) && meta.IsStatusConditionFalse(klb.Status.Conditions, v1.ConditionProgressing) {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(3 * time.Minute); ready() < n; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d are ready", ready(), n)
		}
	}
	b.stop()
	versions := map[string]string{}
	for _, klb := range all() {
		versions[klb.Name] = klb.ResourceVersion
	}
	writes, reads, lists := b.writes(), b.cloud.Calls(memory.GetLoadBalancer), b.cloud.Calls(memory.ListLoadBalancers)
	b.set(func(s *settings.Settings) { s.Orphans.Interval.Duration = time.Hour })
	started := time.Now()
	b.start()
	b.respec("web-7", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 9) })
	b.realised("web-7")
	t.Logf("one that changed as the process started was right after %s", time.Since(started))
	b.never("the cloud is written to", func() bool {
		w := b.writes()
		w[memory.ChangeMembers]--
		if w[memory.ChangeMembers] == 0 {
			delete(w, memory.ChangeMembers)
		}
		return !cmp.Equal(writes, w)
	})
	for _, klb := range all() {
		if klb.Name != "web-7" && klb.ResourceVersion != versions[klb.Name] {
			t.Errorf("KuryrLoadBalancer %s was written", klb.Name)
		}
	}
	if n := b.cloud.Calls(memory.GetLoadBalancer) - reads; n > 2 {
		t.Errorf("%d load balancers were read, want that of the one that changed, before and after", n)
	}
	// One list, for the busy load balancer: which one is busy is not known beforehand.
	if n := b.cloud.Calls(memory.ListLoadBalancers) - lists; n > 1 {
		t.Errorf("load balancers were listed %d times", n)
	}
}

// TestMembersFollowSoon: of many load balancers, one whose endpoints change is changed in the cloud
// at once. The test logs the delay and does not check it.
func TestMembersFollowSoon(t *testing.T) {
	apart(t)
	n := 1000
	if testing.Short() {
		n = 50
	}
	b := balancerBed(t)
	b.start()
	b.manyBalancers(n)
	b.eventuallyIn(3*time.Minute, "all are ready", func() bool {
		for i := n - 1; i >= 0; i -= max(1, n/20) {
			if !meta.IsStatusConditionTrue(b.klb(fmt.Sprint("web-", i)).Status.Conditions, v1.ConditionReady) {
				return false
			}
		}
		return true
	})
	var took []time.Duration
	for i := range 100 {
		name := fmt.Sprint("web-", i*n/100)
		b.realised(name)
		asked := make(chan struct{}, 10)
		b.mu.Lock()
		b.before = func(_ context.Context, call string, _ int) error {
			if call == memory.ChangeMembers {
				asked <- struct{}{}
			}
			return nil
		}
		b.mu.Unlock()
		old := b.klb(name)
		klb := old.DeepCopy()
		klb.Spec.Listeners[0] = balancerPort(80, 1, 3+i)
		began := time.Now()
		if err := b.client.Patch(t.Context(), klb, client.MergeFrom(old)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-asked:
			took = append(took, time.Since(began))
		case <-time.After(30 * time.Second):
			t.Fatal("the cloud is not asked for the members")
		}
	}
	slices.Sort(took)
	t.Logf("from the write of the spec to the request to the cloud, of %d load balancers: median %s, 99 in 100 below %s", n, took[50], took[98])
}
