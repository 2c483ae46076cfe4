// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// failsTwice has the next two calls of a kind fail.
func (b *bed) failsTwice(call string) {
	var calls atomic.Int32
	b.onBefore(func(_ context.Context, c string, _ int) error {
		if c != call || calls.Add(1) > 2 {
			return nil
		}
		return fmt.Errorf("Octavia answered 500: %w", sdn.ErrUnavailable)
	})
}

// TestMadeAnewAtTheThirdTry: a Service of the name of one that was released is served also
// if its load balancer cannot be made at once, while the old one does not go.
func TestMadeAnewAtTheThirdTry(t *testing.T) {
	b, svc := releasing(t)
	old := b.tree("web").ID
	b.delete(svc)
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	b.unbusy()
	b.failsTwice(memory.CreateLoadBalancer)
	again := b.service("web", balanced)
	b.eventually("the new one is made", func() bool { return b.at(again.Spec.ClusterIP) != nil })
	b.cloud.Settle(old)
	b.realised("web")
}

// TestSecondFamilyBesideAWedgedOne: the load balancer of a second address is made while that
// of the first one does not come to an end.
func TestSecondFamilyBesideAWedgedOne(t *testing.T) {
	b := balancerBed(t)
	b.balancer("web")
	b.start()
	first := b.realised("web").Status.LoadBalancers[0].ID
	b.stubborn()
	b.respec("web", otherMembers)
	b.eventually("the first one is busy", func() bool { return b.tree("web").Provisioning == "PENDING_UPDATE" })
	b.unbusy()
	b.failsTwice(memory.CreateLoadBalancer)
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs = append(s.VIPs, vip6) })
	b.eventually("the second one is made", func() bool { return b.at(vip6.IP) != nil })
	b.cloud.Settle(first)
	b.realised("web")
}

// TestReleaseWithoutStatus: a deleted public Service whose status names no load balancer
// does not wait for Octavia for ever.
func TestReleaseWithoutStatus(t *testing.T) {
	b, svc := releasing(t)
	b.delete(svc)
	b.eventually("it is said to be deleted", func() bool {
		c := meta.FindStatusCondition(b.klb("web").Status.Conditions, v1.ConditionProgressing)
		return c != nil && c.Reason == "Deleting"
	})
	b.empty("web")
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	if left := b.publicOnes(); len(left) > 0 {
		t.Errorf("floating IPs are left: %q", left)
	}
	b.eventually("its cluster IP is held", func() bool { h := b.holders(); return len(h) == 1 && h[0].Spec.ClusterIP == svc.Spec.ClusterIP })
}

// TestChildrenComeLater: OVN's provider shows a load balancer as ACTIVE before its children. Until
// these are, nothing of it is changed or repaired, and it gets no floating IP.
func TestChildrenComeLater(t *testing.T) {
	b := balancerBed(t)
	b.mend = 5 * time.Second // nobody is at work any more when nothing has changed for that time
	set := func(p sdn.Provisioning) {
		for _, item := range b.cloud.LoadBalancers() {
			b.cloud.EditLoadBalancer(item.LoadBalancer.ID, func(lb *sdn.LoadBalancer) {
				for i := range lb.Listeners {
					pool := *lb.Listeners[i].Pool
					pool.Provisioning, lb.Listeners[i].Pool = p, &pool
				}
			})
		}
	}
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "ovn" })
	b.realised("web")
	b.stop()
	set(sdn.ProvisioningCreating)
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.Listeners, s.PublicIP = append(s.Listeners, balancerPort(8080, 3)), &v1.PublicIPSpec{NetworkID: publicNetwork}
	})
	b.start()
	b.eventually("it waits", func() bool {
		k := b.klb("web")
		c := meta.FindStatusCondition(k.Status.Conditions, v1.ConditionProgressing)
		return c.Status == "True" && c.ObservedGeneration == k.Generation
	})
	b.never("it is changed, or public", func() bool {
		return b.cloud.Calls(memory.CreateListener)+b.cloud.Calls(memory.DeletePool) > 0 || len(b.publicOnes()) > 0
	})
	set(sdn.ProvisioningActive)
	b.realised("web")
	b.eventually("it is public", func() bool { return len(b.publicOnes()) == 1 })
	if n := b.cloud.Calls(memory.DeletePool) + b.cloud.Calls(memory.DeleteLoadBalancer); n > 0 {
		t.Errorf("%d objects were replaced", n)
	}
}

// TestRefusedRemovalSparesTheOthers: a port that the cloud refuses to remove for a while does
// not cost the load balancer that serves the others.
func TestRefusedRemovalSparesTheOthers(t *testing.T) {
	b := balancerBed(t)
	b.mend = 3 * time.Second // what serves is spared for 30 times that
	b.start()
	b.balancer("web")
	id := b.realised("web").Status.LoadBalancers[0].ID
	b.fail(memory.DeleteListener, fmt.Errorf("in use: %w", sdn.ErrConflict))
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners = s.Listeners[:1] })
	b.eventually("it is told", func() bool { return hasWords(b.readyMessage("web"), "which the cloud does not delete") })
	asked := b.cloud.Calls(memory.DeleteListener)
	b.never("it is asked for all the time", func() bool { return b.cloud.Calls(memory.DeleteListener) > asked+3 })
	b.onBefore(nil)
	if got := b.realised("web").Status.LoadBalancers[0].ID; got != id || b.cloud.Calls(memory.DeleteLoadBalancer) > 0 {
		t.Errorf("load balancer %s serves in the place of %s", got, id)
	}
}

// TestRefusedChangeOfMembers: where each change of the endpoints of a port is refused, of
// which none serves any more, the pool is made anew with those of now.
func TestRefusedChangeOfMembers(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web")
	id := b.realised("web").Status.LoadBalancers[0].ID
	b.fail(memory.ChangeMembers, fmt.Errorf("no: %w", sdn.ErrConflict))
	b.respec("web", otherMembers)
	if got := b.realised("web").Status.LoadBalancers[0].ID; got != id {
		t.Errorf("load balancer %s serves in the place of %s", got, id)
	}
	if got := b.serves("web"); len(got) != 4 || got[0] != "TCP:443>10.1.0.3" {
		t.Errorf("it serves %q", got)
	}
}
