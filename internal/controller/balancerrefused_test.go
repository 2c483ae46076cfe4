// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// reasonOf returns the reason and the message of a KuryrLoadBalancer's condition Ready.
func (b *bed) reasonOf(name string) (reason, message string) {
	ready := meta.FindStatusCondition(b.klb(name).Status.Conditions, v1.ConditionReady)
	if ready == nil {
		return "", ""
	}
	return ready.Reason, ready.Message
}

// behindPort returns the addresses behind a port of a load balancer, sorted.
func behindPort(lb *sdn.LoadBalancer, port int32) (ips []string) {
	if lb == nil {
		return nil
	}
	for _, l := range lb.Listeners {
		if l.Port == port && l.Pool != nil {
			for _, m := range l.Pool.Members {
				ips = append(ips, m.IP)
			}
		}
	}
	slices.Sort(ips)
	return ips
}

// TestOneRefusedMember: a member that the cloud refuses blocks neither the addition nor the removal
// of other members. It is named in the report.
func TestOneRefusedMember(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web")
	b.realised("web")
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		for i := range s.Listeners {
			s.Listeners[i].Members = append(balancerPort(80, 3, 4, 5).Members, v1.MemberSpec{Name: "default/x", IP: "192.0.2.7", Port: 8080, SubnetID: "no-such-subnet"})
		}
	})
	want := []string{"10.1.0.3", "10.1.0.4", "10.1.0.5"}
	b.eventually("all others are there", func() bool {
		return slices.Equal(behindPort(b.tree("web"), 80), want) && slices.Equal(behindPort(b.tree("web"), 443), want)
	})
	b.eventually("it is told", func() bool { reason, _ := b.reasonOf("web"); return reason == v1.ReasonRejected })
	_, message := b.reasonOf("web")
	b.mentions("condition", message, "192.0.2.7", "no-such-subnet")
	b.eventOn("web", v1.ReasonRejected)
	asked := b.cloud.Calls(memory.ChangeMembers)
	b.never("it is asked for all the time", func() bool { return b.cloud.Calls(memory.ChangeMembers) > asked+4 })
	b.cloud.AddSubnet(memory.Subnet{ID: "no-such-subnet", NetworkID: network, Prefix: netip.MustParsePrefix("192.0.2.0/24")})
	b.realised("web")
}

// TestOneRefusedMemberOfANewPort: likewise if the members come with a new listener. The others do
// not wait for the pause of a refused request, which is a minute.
func TestOneRefusedMemberOfANewPort(t *testing.T) {
	b := balancerBed(t)
	b.unhurried = true
	b.start()
	b.balancer("web")
	b.realised("web")
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		more := balancerPort(8443, 3, 4)
		more.Members = append(more.Members, v1.MemberSpec{Name: "default/x", IP: "192.0.2.7", Port: 8080, SubnetID: "no-such-subnet"})
		s.Listeners = append(s.Listeners, more)
	})
	b.eventually("all others are there", func() bool {
		return slices.Equal(behindPort(b.tree("web"), 8443), []string{"10.1.0.3", "10.1.0.4"})
	})
}

// TestMembersThatFit: without room for all members, those that fit are added.
func TestMembersThatFit(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners = s.Listeners[:1] })
	b.realised("web")
	b.cloud.SetMemberQuota(7)
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) })
	b.eventuallyIn(time.Minute, "there are as many as fit", func() bool { return len(behindPort(b.tree("web"), 80)) == 7 })
	b.eventually("it is told", func() bool { reason, _ := b.reasonOf("web"); return reason == v1.ReasonOverQuota })
	b.cloud.SetMemberQuota(-1)
	b.realised("web")
}

// TestAddressGivenBack: a load balancer at a former address of the Service is deleted, although its
// floating IP is refused.
func TestAddressGivenBack(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.fail(memory.CreateFloatingIP, fmt.Errorf("no router: %w", sdn.ErrInvalid))
	b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) {
		s.VIPs = append(s.VIPs, v1.VIPAddress{IP: "fd00:96::10", SubnetID: service6Subnet})
	})
	b.eventually("both are there", func() bool { return len(b.cloud.LoadBalancers()) == 2 })
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs = s.VIPs[:1] })
	b.eventually("one is left", func() bool {
		all := b.cloud.LoadBalancers()
		return len(all) == 1 && all[0].LoadBalancer.VIP.IP == "10.96.0.10"
	})
}

// TestDisabled: a load balancer that somebody has disabled is reported, and stays disabled until
// somebody enables it.
func TestDisabled(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web")
	id := b.realised("web").Status.LoadBalancers[0].ID
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	b.stop()
	b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Listeners[0].Disabled = true })
	b.start()
	b.eventuallyIn(time.Minute, "it is told", func() bool { reason, _ := b.reasonOf("web"); return reason == v1.ReasonDisabled })
	_, message := b.reasonOf("web")
	b.mentions("condition", message, "listener default/web:TCP:80", "openstack loadbalancer listener set --enable ")
	b.mentions("Event", b.eventOn("web", v1.ReasonDisabled), "disabled")
	if n := b.cloud.Calls(memory.UpdateListener) + b.cloud.Calls(memory.DeleteListener); n > 0 || !b.tree("web").Listeners[0].Disabled {
		t.Errorf("%d changes of listeners", n)
	}
	b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) {
		lb.Listeners[0].Disabled = false
		p := *lb.Listeners[0].Pool
		p.Members = slices.Clone(p.Members)
		p.Members[0].Disabled = true
		lb.Listeners[0].Pool = &p
	})
	b.eventuallyIn(time.Minute, "the member is told, which hinders nobody", func() bool {
		reason, message := b.reasonOf("web")
		return reason == v1.ReasonReady && hasWords(message, "member set --enable")
	})
	_, message = b.reasonOf("web")
	b.mentions("condition", message, "member default/pod-1", "member set --enable")
}
