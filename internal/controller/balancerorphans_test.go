// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestFinalizerTakenOffALivingOne: the finalizer is added again, and nothing is created twice.
func TestFinalizerTakenOffALivingOne(t *testing.T) {
	b := balancerBed(t)
	b.start()
	klb := b.balancer("web")
	b.realised("web")
	for _, restart := range []bool{false, true} {
		if restart {
			b.stop()
		}
		b.unmark("web")
		b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0].Members = s.Listeners[0].Members[:1] })
		if restart {
			b.start()
		}
		b.eventually("it is there again", func() bool { return slices.Contains(b.klb("web").Finalizers, v1.LoadBalancerFinalizer) })
		b.realised("web")
	}
	if n := b.cloud.Calls(memory.CreateLoadBalancer); n != 1 {
		t.Errorf("a load balancer was asked for %d times", n)
	}
	b.delete(klb)
	b.removed("web")
	if n := len(b.cloud.LoadBalancers()); n > 0 {
		t.Errorf("%d load balancers are left", n)
	}
}

// TestOrphansAreCounted: each unnamed resource is counted once, also if its deletion takes time.
func TestOrphansAreCounted(t *testing.T) {
	alone(t)
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.SubnetIDs = []string{serviceSubnet} })
	f, err := b.cloud.Backend("cluster").Features(t.Context(), "amphora")
	if err != nil {
		t.Fatal(err)
	}
	b.cloud.SetProvider(memory.Provider{Features: f, Busy: 3})
	lost := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "lost"}
	if _, err := b.cloud.Backend("cluster").CreateLoadBalancer(t.Context(), lost, sdn.LoadBalancer{
		Provider: "amphora", VIP: v1.VIPAddress{IP: "10.96.9.1", SubnetID: serviceSubnet},
	}); err != nil {
		t.Fatal(err)
	}
	orphans := counted(t, "kuryr_loadbalancer_orphans_deleted_total")
	b.start()
	b.eventually("the orphan is gone", func() bool { return len(b.cloud.LoadBalancers()) == 0 })
	if n := counted(t, "kuryr_loadbalancer_orphans_deleted_total") - orphans; n != 1 {
		t.Errorf("%v orphans were counted, want 1", n)
	}
}

// TestNotOfOthers: a status that names the load balancer of another Service does not harm that load
// balancer.
func TestNotOfOthers(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("first")
	id := b.realised("first").Status.LoadBalancers[0].ID
	second := b.balancer("second", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.11" })
	b.realised("second")
	b.stop()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/status/loadBalancers/0/id","value":%q}]`, id)
	if err := b.client.Status().Patch(t.Context(), b.klb("second"), client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	b.delete(second)
	b.start()
	b.removed("second")
	if b.tree("first") == nil || b.tree("second") != nil {
		t.Errorf("the cloud has %+v and %+v, want the first alone", b.tree("first"), b.tree("second"))
	}
}

// TestOrphanFloatingIPByItsPort: the port of an unnamed floating IP says where it is, whether or
// not its load balancer still exists. At that load balancer's VIP it waits. At another port it is
// left to the user of that port.
func TestOrphanFloatingIPByItsPort(t *testing.T) {
	b := balancerBed(t)
	lost := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "lost"}
	cloud := b.cloud.Backend("cluster")
	f, err := cloud.Features(t.Context(), "amphora")
	if err != nil {
		t.Fatal(err)
	}
	b.cloud.SetProvider(memory.Provider{Features: f, Busy: memory.UntilSettled})
	lb, err := cloud.CreateLoadBalancer(t.Context(), lost, sdn.LoadBalancer{Provider: "amphora", VIP: v1.VIPAddress{IP: "10.96.9.1", SubnetID: serviceSubnet}})
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, port := range []string{b.cloud.AddForeignPort(), lb.VIPPortID} {
		made, err := cloud.CreateFloatingIP(t.Context(), lost, sdn.FloatingIPRequest{NetworkID: publicNetwork, PortID: port})
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, made.Address)
	}
	marked := func() (all []string) {
		for _, f := range b.cloud.FloatingIPs() {
			if f.Cluster == "cluster" {
				all = append(all, f.FloatingIP.Address)
			}
		}
		return all
	}
	b.start()
	b.eventually("the server's is left to it, while the load balancer is there", func() bool { return slices.Equal(marked(), addresses[1:]) })
	b.never("that at the VIP goes", func() bool { return !slices.Equal(marked(), addresses[1:]) })
	b.cloud.RemoveLoadBalancer(lb.ID)
	b.eventually("it goes after its port", func() bool { return len(b.cloud.FloatingIPs()) == 1 && len(marked()) == 0 })
}

// TestOrphanGivenToAServer: an unnamed floating IP is deleted, but not if somebody has given it to
// a server.
func TestOrphanGivenToAServer(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.SubnetIDs = []string{serviceSubnet} })
	lost := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "lost"}
	request := sdn.FloatingIPRequest{NetworkID: publicNetwork, PortID: b.cloud.AddForeignPort()}
	f, err := b.cloud.Backend("cluster").CreateFloatingIP(t.Context(), lost, request)
	if err != nil {
		t.Fatal(err)
	}
	b.start()
	b.eventually("it bears no mark any more", func() bool { return slices.Equal(b.publicOnes(), []string{f.Address + "  elsewhere"}) })
}

// TestOrphanLoadBalancers: unnamed resources with Kuryr's mark are deleted, and nothing else.
func TestOrphanLoadBalancers(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.SubnetIDs = []string{serviceSubnet} })
	cloud, other := b.cloud.Backend("cluster"), b.cloud.Backend("other")
	lb := func(ip string) sdn.LoadBalancer {
		return sdn.LoadBalancer{VIP: v1.VIPAddress{IP: ip, SubnetID: serviceSubnet}}
	}
	lost := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "lost"}
	if _, err := cloud.CreateLoadBalancer(t.Context(), lost, lb("10.96.9.1")); err != nil {
		t.Fatal(err)
	}
	if _, err := cloud.CreateFloatingIP(t.Context(), lost, sdn.FloatingIPRequest{NetworkID: publicNetwork}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.CreateLoadBalancer(t.Context(), lost, lb("10.96.9.2")); err != nil {
		t.Fatal(err)
	}
	b.cloud.AddForeignLoadBalancer(lb("10.96.9.3"))
	b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork})
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork} })
	b.realised("web")
	b.eventually("what is nobody's is gone", func() bool {
		return len(b.cloud.LoadBalancers()) == 3 && len(b.cloud.FloatingIPs()) == 2
	})
	b.never("more goes", func() bool { return len(b.cloud.LoadBalancers()) != 3 || len(b.cloud.FloatingIPs()) != 2 })
	b.realised("web")
}

// TestKuryrLoadBalancerWithoutService: the Events are on the KuryrLoadBalancer itself.
func TestKuryrLoadBalancerWithoutService(t *testing.T) {
	b := balancerBed(t)
	b.start()
	klb := newBalancer("alone")
	klb.OwnerReferences, klb.Spec.FlavorID = nil, "x"
	b.cloud.AddFlavors("small")
	b.create(klb)
	b.eventOn("alone", "Rejected")
}
