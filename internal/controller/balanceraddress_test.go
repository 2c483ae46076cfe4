// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestFloatingIPOfOthers: a floating IP that somebody has given to another port stays there and is
// not deleted, whoever created it.
func TestFloatingIPOfOthers(t *testing.T) {
	b := balancerBed(t)
	theirs := b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: "203.0.113.50"})
	server, other := b.cloud.AddForeignPort(), b.cloud.AddForeignPort()
	b.start()
	first := b.balancer("first", public, func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP.Address = theirs.Address })
	second := b.balancer("second", public, func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.11" })
	b.realised("first")
	ours := b.realised("second").Status.PublicIP
	move := func(id, port string) {
		t.Helper()
		as := b.cloud.Backend("cluster")
		for _, f := range b.cloud.FloatingIPs() {
			if f.FloatingIP.ID != id {
				continue
			}
			if err := errors.Join(as.Dissociate(t.Context(), id, f.FloatingIP.PortID), as.Associate(t.Context(), id, port)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.stop()
	move(theirs.ID, server)
	move(ours.ID, other)
	b.start()
	b.mentions("Event", b.eventOn("first", "FloatingIPNotUsable"), server)
	b.mentions("Event", b.eventOn("second", "FloatingIPNotUsable"), other)
	b.delete(first)
	b.delete(second)
	b.removed("first")
	b.removed("second")
	want := []string{ours.IP + "  elsewhere", "203.0.113.50  elsewhere"}
	slices.Sort(want)
	b.never("they go", func() bool { return !slices.Equal(b.publicOnes(), want) })
}

// TestFloatingIPOfAnotherService: another Service's floating IP is not taken from it.
func TestFloatingIPOfAnotherService(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("first", public)
	ip := b.realised("first").Status.PublicIP.IP
	b.balancer("second", public, func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP, s.PublicIP.Address = "10.96.0.11", ip })
	b.mentions("Event", b.eventOn("second", "FloatingIPNotUsable"), ip, "default/first")
	if b.publicOf(b.tree("first")) != ip {
		t.Errorf("the cloud has %q", b.publicOnes())
	}
}

// TestFloatingIPWithoutStatus: a floating IP that no status names is deleted with its
// KuryrLoadBalancer.
func TestFloatingIPWithoutStatus(t *testing.T) {
	b := balancerBed(t)
	b.start()
	klb := b.balancer("web", public)
	b.realised("web")
	b.stop()
	b.empty("web")
	b.delete(klb)
	b.start()
	b.removed("web")
	if left := b.publicOnes(); len(left) > 0 {
		t.Errorf("the cloud still has %q", left)
	}
}

// TestFloatingIPOfTheProcessBefore: a process has created a floating IP and was stopped before it
// could report it. Then the Service is no longer to have one. The floating IP is found when the
// Service changes, and also when it does not.
func TestFloatingIPOfTheProcessBefore(t *testing.T) {
	for name, change := range map[string]func(*v1.KuryrLoadBalancerSpec){
		"changed":   func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 1) },
		"unchanged": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := balancerBed(t)
			b.start()
			b.balancer("web")
			b.realised("web")
			b.stop()
			owner := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "web"}
			request := sdn.FloatingIPRequest{NetworkID: publicNetwork, PortID: b.tree("web").VIPPortID}
			if _, err := b.cloud.Backend("cluster").CreateFloatingIP(t.Context(), owner, request); err != nil {
				t.Fatal(err)
			}
			if change != nil {
				b.set(func(s *settings.Settings) { s.Orphans.Interval.Duration = time.Hour })
				b.respec("web", change)
			}
			b.start()
			b.eventually("the Service is not public any more", func() bool { return len(b.publicOnes()) == 0 })
			b.realised("web")
		})
	}
}

// TestAssociationOfTheProcessBefore: the same with a floating IP that Kuryr did not create, and
// that has no mark.
func TestAssociationOfTheProcessBefore(t *testing.T) {
	b := balancerBed(t)
	theirs := b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: "203.0.113.50"})
	b.start()
	b.balancer("web")
	b.realised("web")
	b.onAfter(func(ctx context.Context, call string, _ int) error {
		if call == memory.Associate {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork, Address: theirs.Address}
	})
	b.eventually("it is public", func() bool { return b.publicOf(b.tree("web")) == theirs.Address })
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = nil })
	b.stop()
	b.onAfter(nil)
	b.start()
	if p := b.realised("web").Status.PublicIP; p != nil || !slices.Equal(b.publicOnes(), []string{"203.0.113.50  nowhere"}) {
		t.Errorf("status has floating IP %+v, the cloud %q", p, b.publicOnes())
	}
}

// TestAddressIsRefused: a floating IP that the cloud does not associate is not reported. The
// floating IP that it was to replace keeps serving. The association is tried again at intervals.
func TestAddressIsRefused(t *testing.T) {
	for name, had := range map[string]bool{"instead of one": true, "the first": false} {
		t.Run(name, func(t *testing.T) {
			b := balancerBed(t)
			theirs := b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: "203.0.113.50"})
			b.start()
			b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) {
				if had {
					s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork}
				}
			})
			before := b.realised("web").Status.PublicIP
			var tries atomic.Int32
			var refused atomic.Int64
			b.onBefore(func(_ context.Context, call string, _ int) error {
				if call != memory.Associate || tries.Add(1)%2 == 0 && had { // every second call puts the former one back
					return nil
				}
				refused.Store(time.Now().UnixNano())
				return fmt.Errorf("no router leads there: %w", sdn.ErrInvalid)
			})
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
				s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork, Address: theirs.Address}
			})
			b.mentions("Event", b.eventOn("web", "FloatingIPRefused"), theirs.Address, "no router leads there", "another address")
			as := func() bool {
				status := b.klb("web").Status
				return cmp.Equal(status.PublicIP, before) && b.publicOf(b.tree("web")) == ipOf(before) && meta.IsStatusConditionFalse(status.Conditions, v1.ConditionReady)
			}
			b.eventually("all is as before", as)
			n := tries.Load()
			b.never("it is tried again at once", func() bool {
				return time.Since(time.Unix(0, refused.Load())) < 2*time.Second && (!as() || tries.Load() > n)
			})
			b.onBefore(nil)
			b.eventually("it is tried again later", func() bool { return b.publicOf(b.tree("web")) == theirs.Address })
			if p := b.realised("web").Status.PublicIP; ipOf(p) != theirs.Address || len(b.publicOnes()) != 1 {
				t.Errorf("status has floating IP %+v, the cloud %q", p, b.publicOnes())
			}
		})
	}
}

// TestRefusedAddressOfABefore: a process that ended between the status and the refusal has left a
// status that names the refused floating IP. The status is corrected. A change of the
// KuryrLoadBalancer causes an immediate new try.
func TestRefusedAddressOfABefore(t *testing.T) {
	b := balancerBed(t)
	b.unhurried = true
	theirs := b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: "203.0.113.50"})
	var tries atomic.Int32
	refuse := func(with error) {
		b.onBefore(func(_ context.Context, call string, _ int) error {
			if call != memory.Associate {
				return nil
			}
			tries.Add(1)
			return fmt.Errorf("no router leads there: %w", with)
		})
	}
	refuse(sdn.ErrUnavailable)
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork, Address: theirs.Address}
	})
	b.eventually("the status names it", func() bool { return ipOf(b.klb("web").Status.PublicIP) == theirs.Address })
	b.stop()
	refuse(sdn.ErrInvalid)
	b.start()
	b.mentions("Event", b.eventOn("web", "FloatingIPRefused"), theirs.Address)
	b.eventually("the status does not name it", func() bool { return b.klb("web").Status.PublicIP == nil })
	n := tries.Load()
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 1) })
	b.eventually("it is tried for the change", func() bool { return tries.Load() > n })
}

func ipOf(p *v1.PublicIPStatus) string {
	if p == nil {
		return ""
	}
	return p.IP
}

// TestKeptForGood: a floating IP to keep is not deleted as unnamed, even if the object went while
// no controller could act on its deletion.
func TestKeptForGood(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.SubnetIDs = []string{serviceSubnet} })
	b.start()
	klb := b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP.Keep = true })
	ip := b.realised("web").Status.PublicIP.IP
	b.stop()
	b.delete(klb)
	b.unmark("web")
	b.removed("web")
	b.start()
	b.eventually("the load balancer goes as an orphan", func() bool { return len(b.cloud.LoadBalancers()) == 0 })
	time.Sleep(b.current.Orphans.Grace.Duration)
	b.never("the floating IP goes", func() bool { return !slices.Equal(b.publicOnes(), []string{ip + "  nowhere"}) })
}

// TestWithoutRouters: a cloud without floating IPs has load balancers all the same, and they can be
// deleted.
func TestWithoutRouters(t *testing.T) {
	b := balancerBed(t)
	b.fail(memory.ListFloatingIPs, fmt.Errorf("listing: %w", sdn.ErrNoService))
	b.start()
	inside := b.balancer("inside", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.11" })
	b.realised("inside")
	web := b.balancer("web", public)
	b.mentions("Event", b.eventOn("web", "FloatingIPNotUsable"), "no routers", "internal")
	b.eventually("it serves inside", func() bool { return cmp.Equal(served, b.serves("web")) })
	b.stop()
	b.start()
	b.respec("inside", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 7) })
	b.realised("inside")
	b.delete(inside)
	b.delete(web)
	b.removed("inside")
	b.removed("web")
}

// TestKeptByTheProcessBefore: a process was stopped after it had removed the mark from a floating
// IP that is to be kept. Then the Service is no longer to be public.
func TestKeptByTheProcessBefore(t *testing.T) {
	b := balancerBed(t)
	b.onAfter(func(ctx context.Context, call string, _ int) error {
		if call == memory.DisownFloatingIP {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	b.start()
	b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP.Keep = true })
	b.eventually("the floating IP is nobody's", func() bool {
		all := b.publicOnes()
		return len(all) == 1 && strings.HasSuffix(all[0], "  at 10.96.0.10")
	})
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = nil })
	b.stop()
	b.onAfter(nil)
	b.start()
	b.realised("web")
	if all := b.publicOnes(); len(all) != 1 || !strings.HasSuffix(all[0], "  nowhere") {
		t.Errorf("the cloud has %q, want a floating IP that is nowhere", all)
	}
}

// TestAddressChanges: a new VIP serves before the old one is deleted, and the floating IP moves to
// it. A load balancer of another provider must get the address of the old one.
func TestAddressChanges(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork} })
	public := b.realised("web").Status.PublicIP.IP
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.77" })
	klb := b.realised("web")
	if lb := b.tree("web"); lb == nil || lb.VIP.IP != "10.96.0.77" || b.publicOf(lb) != public || klb.Status.LoadBalancers[0].IP != "10.96.0.77" {
		t.Errorf("the cloud has %+v with %+v, want it at the new VIP with %s", lb, klb.Status.PublicIP, public)
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.Provider = "amphora"
		s.VIPs = append(s.VIPs, v1.VIPAddress{IP: "fd00:96::5", SubnetID: service6Subnet})
	})
	klb = b.realised("web")
	if lbs := klb.Status.LoadBalancers; len(lbs) != 2 || lbs[0].Provider != "amphora" || lbs[1].Provider != "amphora" || klb.Status.PublicIP.IP != public {
		t.Errorf("status %+v", klb.Status)
	}
}

// TestFloatingIPOfService: a floating IP is obtained and given up with the Service's type. How it
// was obtained decides how it is given up.
func TestFloatingIPOfService(t *testing.T) {
	b := balancerBed(t)
	theirs := b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: "203.0.113.50"})
	b.start()
	klb := b.balancer("web")
	b.realised("web")
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork} })
	first := b.realised("web").Status.PublicIP
	if first == nil || !first.Made || b.publicOf(b.tree("web")) != first.IP {
		t.Fatalf("status has floating IP %+v", first)
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP.Address = "203.0.113.50" })
	second := b.realised("web").Status.PublicIP
	if second == nil || second.ID != theirs.ID || second.Made || b.publicOf(b.tree("web")) != "203.0.113.50" || len(b.cloud.FloatingIPs()) != 1 {
		t.Errorf("status has floating IP %+v, the cloud %+v", second, b.cloud.FloatingIPs())
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = nil })
	if p := b.realised("web").Status.PublicIP; p != nil || b.publicOf(b.tree("web")) != "" || len(b.cloud.FloatingIPs()) != 1 {
		t.Errorf("status has floating IP %+v, the cloud %+v", p, b.cloud.FloatingIPs())
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork} })
	b.realised("web")
	b.delete(klb)
	b.removed("web")
	if all := b.cloud.FloatingIPs(); len(all) != 1 || all[0].FloatingIP.ID != theirs.ID {
		t.Errorf("after the Service is gone there are floating IPs %+v, want only the user's", all)
	}
}

// TestKeptFloatingIP: the floating IP outlives its Service, and the collector does not delete it.
func TestKeptFloatingIP(t *testing.T) {
	b := balancerBed(t)
	b.start()
	klb := b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork, Keep: true} })
	ip := b.realised("web").Status.PublicIP.IP
	b.delete(klb)
	b.removed("web")
	b.never("the floating IP goes", func() bool { return len(b.cloud.FloatingIPs()) == 0 })
	b.balancer("next", func(s *v1.KuryrLoadBalancerSpec) {
		s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork, Address: ip}
	})
	if p := b.realised("next").Status.PublicIP; p.IP != ip || p.Made || len(b.cloud.FloatingIPs()) != 1 {
		t.Errorf("the next Service that asks for it has %+v, the cloud %+v", p, b.cloud.FloatingIPs())
	}
}

// TestFloatingIPInUse: a floating IP in use is reported. The Service serves inside the cluster, and
// the other user keeps the floating IP.
func TestFloatingIPInUse(t *testing.T) {
	b := balancerBed(t)
	port := b.cloud.AddForeignPort()
	b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: "203.0.113.50", PortID: port})
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork, Address: "203.0.113.50"}
	})
	b.mentions("Event", b.eventOn("web", "FloatingIPNotUsable"), "203.0.113.50", port)
	if !cmp.Equal(served, b.serves("web")) {
		t.Errorf("the cloud serves %q", b.serves("web"))
	}
	if f := b.cloud.FloatingIPs(); len(f) != 1 || f[0].FloatingIP.PortID != port {
		t.Errorf("floating IPs: %+v", f)
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP.Address = "" })
	b.realised("web")
}

// TestSecondAtOneAddress: the former implementation could leave two load balancers of one Service
// (bug 1947809). One of them is deleted.
func TestSecondAtOneAddress(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web")
	id := b.realised("web").Status.LoadBalancers[0].ID
	owner := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "web"}
	made, err := b.cloud.Backend("cluster").CreateLoadBalancer(t.Context(), owner, sdn.LoadBalancer{VIP: v1.VIPAddress{IP: "10.96.0.200", SubnetID: serviceSubnet}})
	if err != nil {
		t.Fatal(err)
	}
	b.cloud.EditLoadBalancer(made.ID, func(lb *sdn.LoadBalancer) { lb.VIP.IP = "10.96.0.10" })
	if err := b.client.Status().Patch(t.Context(), b.klb("web"), client.RawPatch(types.MergePatchType, []byte(`{"status":{"members":null}}`))); err != nil {
		t.Fatal(err)
	}
	b.eventually("there is one, the one of before", func() bool { return b.tree("web") != nil && b.tree("web").ID == id })
	b.realised("web")
}

// TestFloatingIPOfARemovedPort: somebody deletes a load balancer while Kuryr associates its floating
// IP. The refusal is about the port that is gone. The next load balancer has another port, and gets
// the floating IP at once.
func TestFloatingIPOfARemovedPort(t *testing.T) {
	b := balancerBed(t)
	b.unhurried = true
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = time.Second })
	var removed atomic.Bool
	b.onBefore(func(_ context.Context, call string, _ int) error {
		if call == memory.Associate && !removed.Load() {
			return &sdn.InvalidError{Field: sdn.FieldPort, Err: fmt.Errorf("PortNotFound: %w", sdn.ErrInvalid)}
		}
		return nil
	})
	b.start()
	b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: "203.0.113.60"})
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork, Address: "203.0.113.60"}
	})
	b.mentions("Event", b.eventOn("web", "FloatingIPRefused"), "PortNotFound", "the load balancer again")
	id := b.klb("web").Status.LoadBalancers[0].ID
	removed.Store(true)
	b.cloud.RemoveLoadBalancer(id)
	b.eventually("the next load balancer has the floating IP", func() bool {
		klb := b.klb("web")
		return balancer.IsReady(klb) && klb.Status.PublicIP != nil && klb.Status.LoadBalancers[0].ID != id
	})
}
