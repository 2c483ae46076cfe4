// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestNotForgotten: resources that exist are deleted in the end, although the requested load
// balancer is impossible.
func TestNotForgotten(t *testing.T) {
	b := balancerBed(t)
	b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: "203.0.113.50"})
	b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: "203.0.113.51", PortID: b.cloud.AddForeignPort()})
	b.start()
	b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP.Address = "203.0.113.50" })
	b.realised("web")
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP.Address = "203.0.113.51" })
	b.eventOn("web", "FloatingIPNotUsable")
	if p := b.klb("web").Status.PublicIP; p == nil || p.IP != "203.0.113.50" {
		t.Errorf("status has floating IP %+v, want the one that is in place", p)
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = nil })
	b.realised("web")
	if got := b.publicOnes(); !slices.Equal(got, []string{"203.0.113.50  nowhere", "203.0.113.51  elsewhere"}) {
		t.Errorf("the cloud has %q", got)
	}
}

// TestChecksShareLists: checking each load balancer once an interval costs one list of floating
// IPs, not one per load balancer.
func TestChecksShareLists(t *testing.T) {
	const n = 10
	b := balancerBed(t)
	b.set(func(s *settings.Settings) {
		s.Services.CheckInterval.Duration, s.Orphans.Interval.Duration = 300*time.Millisecond, time.Hour
	})
	b.start()
	for i := range n {
		b.balancer(fmt.Sprint("web-", i), public, func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = fmt.Sprint("10.96.0.", 10+i) })
	}
	for i := range n {
		b.realised(fmt.Sprint("web-", i))
	}
	for _, restart := range []bool{false, true} {
		if restart {
			b.stop()
			b.start()
		}
		lists, reads := b.cloud.Calls(memory.ListFloatingIPs), b.cloud.Calls(memory.GetLoadBalancer)
		b.eventually("all were looked at some times", func() bool { return b.cloud.Calls(memory.GetLoadBalancer) > reads+5*n })
		looks := (b.cloud.Calls(memory.GetLoadBalancer) - reads) / n
		if got := b.cloud.Calls(memory.ListFloatingIPs) - lists; got > looks+n {
			t.Errorf("after a restart: %v: floating IPs were listed %d times while each of %d load balancers was looked at %d times", restart, got, n, looks)
		}
	}
}

// TestTagsTakenOff: somebody has removed the tags of a load balancer, so that no list shows it. The
// status still names it. It is kept up to date, and deleted in the end.
func TestTagsTakenOff(t *testing.T) {
	b := balancerBed(t)
	var hidden atomic.Bool
	b.around = func(l sdn.LoadBalancers) sdn.LoadBalancers { return unlisting{l, &hidden} }
	b.start()
	klb := b.balancer("web")
	b.realised("web")
	hidden.Store(true)
	time.Sleep(2 * b.current.Orphans.Interval.Duration) // the inventory misses the load balancer
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 7) })
	b.realised("web")
	if !slices.Contains(b.serves("web"), "TCP:80>10.1.0.7") || b.cloud.Calls(memory.CreateLoadBalancer) > 1 {
		t.Errorf("the cloud serves %q after %d load balancers were asked for", b.serves("web"), b.cloud.Calls(memory.CreateLoadBalancer))
	}
	b.delete(klb)
	b.removed("web")
	if n := len(b.cloud.LoadBalancers()); n > 0 {
		t.Errorf("%d load balancers are left", n)
	}
}

// TestTagsWrittenAgain: removed tags are written again, and that is reported.
func TestTagsWrittenAgain(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	b.start()
	b.balancer("web")
	id := b.realised("web").Status.LoadBalancers[0].ID
	b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Unmarked = true })
	b.eventually("it is marked again", func() bool { return !b.tree("web").Unmarked })
	b.mentions("Event", b.eventOn("web", "Drift"), "mark load balancer "+id)
	b.realised("web")
}

// unlisting returns empty lists while the test says so.
type unlisting struct {
	sdn.LoadBalancers
	hidden *atomic.Bool
}

func (u unlisting) ListLoadBalancers(ctx context.Context) ([]sdn.LoadBalancerSummary, error) {
	all, err := u.LoadBalancers.ListLoadBalancers(ctx)
	if u.hidden.Load() {
		all = nil
	}
	return all, err
}

// TestStrayLoadBalancer: a load balancer of an earlier object, which the status of the present one
// does not name, is found and deleted.
func TestStrayLoadBalancer(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web")
	id := b.realised("web").Status.LoadBalancers[0].ID
	owner := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "web"}
	if _, err := b.cloud.Backend("cluster").CreateLoadBalancer(t.Context(), owner, sdn.LoadBalancer{VIP: v1.VIPAddress{IP: "10.96.0.200", SubnetID: serviceSubnet}}); err != nil {
		t.Fatal(err)
	}
	b.eventually("there is one, the one of the object", func() bool { return b.tree("web") != nil && b.tree("web").ID == id })
	b.realised("web")
}

// TestLessonsAreNoDrift: a provider turns out to support more or less than assumed. That is not
// reported as a change by somebody else. It also holds for a process that did not make the
// assumption.
func TestLessonsAreNoDrift(t *testing.T) {
	alone(t)
	for name, restart := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			b := balancerBed(t)
			f, err := b.cloud.Backend("cluster").Features(t.Context(), "amphora")
			if err != nil {
				t.Fatal(err)
			}
			all := f.Protocols
			f.Provider, f.Protocols = "small", []string{"TCP"}
			b.cloud.SetProvider(memory.Provider{Features: f})
			b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 200 * time.Millisecond })
			b.start()
			b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider, s.Listeners[1].Protocol = "small", "UDP" })
			if n := len(b.realised("web").Status.Listeners); n != 1 {
				t.Fatalf("%d listeners, want that of TCP", n)
			}
			if restart {
				b.stop()
			}
			before := counted(t, "kuryr_loadbalancer_drifts_total")
			f.Protocols = all
			b.cloud.SetProvider(memory.Provider{Features: f})
			if restart {
				b.start()
			}
			b.eventually("the other listener is there", func() bool { return len(b.realised("web").Status.Listeners) == 2 })
			if n := counted(t, "kuryr_loadbalancer_drifts_total") - before; n > 0 {
				t.Errorf("%v times somebody else is said to have changed it", n)
			}
			b.cloud.EditLoadBalancer(b.tree("web").ID, func(lb *sdn.LoadBalancer) { lb.Listeners = lb.Listeners[:1] })
			b.eventually("somebody who has is told of", func() bool { return counted(t, "kuryr_loadbalancer_drifts_total") > before })
		})
	}
}

// TestStatusEmptied: resources that the cloud has are found again, and missing ones are created
// again. Nothing is created twice.
func TestStatusEmptied(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web")
	before := b.realised("web").Status.DeepCopy()
	for what, patch := range map[string]string{
		"all":           `{"status":null}`,
		"members":       `{"status":{"members":null}}`,
		"pools":         `{"status":{"pools":null}}`,
		"listeners":     `{"status":{"listeners":null}}`,
		"loadBalancers": `{"status":{"loadBalancers":null}}`,
		"conditions":    `{"status":{"conditions":null}}`,
	} {
		if err := b.client.Status().Patch(t.Context(), b.klb("web"), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		b.eventually("what was taken out is there again: "+what, func() bool {
			s := b.realised("web").Status.DeepCopy()
			s.Conditions = before.Conditions
			return cmp.Equal(before, s)
		})
	}
	if diff := cmp.Diff(map[string]int{memory.CreateLoadBalancer: 1}, b.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	b.cloud.RemoveLoadBalancer(before.LoadBalancers[0].ID)
	if err := b.client.Status().Patch(t.Context(), b.klb("web"), client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))); err != nil {
		t.Fatal(err)
	}
	b.eventually("what was deleted meanwhile is made again", func() bool {
		lbs := b.realised("web").Status.LoadBalancers
		return len(lbs) == 1 && lbs[0].ID != before.LoadBalancers[0].ID && cmp.Equal(served, b.serves("web"))
	})
}

// TestDrift: a change that somebody makes in the cloud is reported and reverted.
func TestDrift(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	b.start()
	b.balancer("web")
	id := b.realised("web").Status.LoadBalancers[0].ID
	for what, c := range map[string]struct {
		told   string
		change func(*sdn.LoadBalancer)
	}{
		"listener": {"create listener", func(lb *sdn.LoadBalancer) { lb.Listeners = lb.Listeners[1:] }},
		"pool":     {"create pool", func(lb *sdn.LoadBalancer) { lb.Listeners[0].Pool = nil }},
		"member":   {"change members", func(lb *sdn.LoadBalancer) { lb.Listeners[0].Pool.Members = lb.Listeners[0].Pool.Members[1:] }},
		"stranger": {"delete listener", func(lb *sdn.LoadBalancer) {
			lb.Listeners = append(lb.Listeners, sdn.Listener{ID: "x", Protocol: "UDP", Port: 53, Pool: &sdn.Pool{ID: "y", Protocol: "UDP", Members: []sdn.Member{{IP: "10.1.0.9", Port: 1}}}})
		}},
	} {
		b.cloud.EditLoadBalancer(id, c.change)
		b.eventually(what+" is put right", func() bool { return cmp.Equal(served, b.serves("web")) })
		b.realised("web")
		b.eventSaying("web", "Drift", "somebody else", c.told)
	}
	b.cloud.RemoveLoadBalancer(id)
	b.eventually("the load balancer is there again", func() bool { return cmp.Equal(served, b.serves("web")) })
	b.eventSaying("web", "Drift", "create load balancer")
	b.eventually("it is said to be in sync", func() bool {
		return meta.IsStatusConditionTrue(b.realised("web").Status.Conditions, v1.ConditionInSync)
	})
}

// TestDeletionByOthersIsDrift: a check that meets a load balancer while somebody deletes it says so.
// The floating IP is not associated with a port that is going away.
func TestDeletionByOthersIsDrift(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork} })
	before := b.realised("web").Status
	lb, other := before.LoadBalancers[0], b.cloud.Backend("cluster")
	f, err := other.Features(t.Context(), lb.Provider)
	if err != nil {
		t.Fatal(err)
	}
	b.cloud.SetProvider(memory.Provider{Features: f, Busy: memory.UntilSettled})
	if err := other.Dissociate(t.Context(), before.PublicIP.ID, lb.PortID); err != nil {
		t.Fatal(err)
	}
	if err := other.DeleteLoadBalancer(t.Context(), lb.ID); err == nil {
		t.Fatal("the deletion is complete at once")
	}
	b.eventSaying("web", "Drift", "create load balancer default/web, once the deletion of "+lb.ID)
	b.never("the floating IP is associated with a port that goes", func() bool { return !slices.Equal(b.publicOnes(), []string{before.PublicIP.IP + " cluster nowhere"}) })
	b.cloud.SetProvider(memory.Provider{Features: f})
	b.cloud.Settle(lb.ID)
	b.eventually("there is a new one with the floating IP", func() bool {
		s := b.realised("web").Status
		return s.LoadBalancers[0].ID != lb.ID && b.publicOf(b.tree("web")) == before.PublicIP.IP
	})
}

// TestStepFindsNothing: a step that meets a resource that somebody has deleted does not make the
// load balancer count as complete.
func TestStepFindsNothing(t *testing.T) {
	for what, c := range map[string]struct {
		edit   func(*sdn.LoadBalancer)
		change func(*v1.ListenerSpec)
		want   []string
	}{
		"listener": {
			func(lb *sdn.LoadBalancer) {
				lb.Listeners = slices.DeleteFunc(lb.Listeners, func(l sdn.Listener) bool { return l.Port == 80 })
			},
			func(l *v1.ListenerSpec) { l.TimeoutClientData = new(int64(70_000)) },
			served,
		},
		"pool": {
			func(lb *sdn.LoadBalancer) {
				lb.Listeners[slices.IndexFunc(lb.Listeners, func(l sdn.Listener) bool { return l.Port == 80 })].Pool = nil
			},
			func(l *v1.ListenerSpec) { l.Members = l.Members[:1] },
			served[:3],
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := balancerBed(t)
			b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = time.Hour })
			b.start()
			b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
			id := b.realised("web").Status.LoadBalancers[0].ID
			b.cloud.EditLoadBalancer(id, c.edit)
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
				c.change(&s.Listeners[slices.IndexFunc(s.Listeners, func(l v1.ListenerSpec) bool { return l.Port == 80 })])
			})
			b.realised("web")
			if got := b.serves("web"); !cmp.Equal(got, c.want) {
				t.Errorf("it is said to be ready, and serves %v", got)
			}
		})
	}
}

// TestBrokenMonitor: a health monitor that checks nothing is reported, on the Service too. The load
// balancer serves all the same.
func TestBrokenMonitor(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.Listeners[0].Monitor = &v1.MonitorSpec{Type: "TCP", Delay: 5, Timeout: 3, MaxRetries: 1, MaxRetriesDown: 3}
	})
	id := b.realised("web").Status.LoadBalancers[0].ID
	writes := b.writes()
	broken := func(is bool) {
		b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) {
			for i := range lb.Listeners {
				lb.Listeners[i].Pool.MonitorBroken = is && lb.Listeners[i].Port == 80
			}
		})
	}
	broken(true)
	b.mentions("Event", b.eventOn("web", "NotSupported"), "health monitor", "TCP:80", "Remove the annotation")
	klb := b.realised("web")
	if said := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionSupported); said.Status != metav1.ConditionFalse || !hashed && strings.Contains(said.Message, "443") {
		t.Errorf("condition %+v, want that the monitor of port 80 is broken", said)
	}
	broken(false)
	b.eventually("it is said to be well", func() bool { return meta.IsStatusConditionTrue(b.klb("web").Status.Conditions, v1.ConditionSupported) })
	if diff := cmp.Diff(writes, b.writes()); diff != "" {
		t.Errorf("the cloud was changed for it (-before +now):\n%s", diff)
	}
}

// TestFloatingIPDrift: a floating IP that somebody takes away is restored, and that is reported.
func TestFloatingIPDrift(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork} })
	public := b.realised("web").Status.PublicIP
	if err := b.cloud.Backend("cluster").Dissociate(t.Context(), public.ID, b.tree("web").VIPPortID); err != nil {
		t.Fatal(err)
	}
	b.eventually("it is at the VIP again", func() bool { return b.publicOf(b.tree("web")) == public.IP })
	b.mentions("Event", b.eventOn("web", "Drift"), public.IP)
	b.cloud.RemoveFloatingIP(public.ID)
	b.eventually("there is another", func() bool {
		p := b.realised("web").Status.PublicIP
		return p != nil && p.ID != public.ID && b.publicOf(b.tree("web")) == p.IP
	})
}

// TestDriftIsShownBeforeRepair: the status reports the difference in the cloud before the repair
// begins.
func TestDriftIsShownBeforeRepair(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	b.start()
	b.balancer("web")
	id := b.realised("web").Status.LoadBalancers[0].ID
	release := b.block(memory.CreateListener)
	b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Listeners = lb.Listeners[1:] })
	b.eventually("drift is shown", func() bool {
		c := meta.FindStatusCondition(b.klb("web").Status.Conditions, v1.ConditionInSync)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "Drift"
	})
	release()
	b.eventually("it is put right", func() bool { return cmp.Equal(served, b.serves("web")) })
}
