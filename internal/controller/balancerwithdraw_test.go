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
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// at returns the load balancer at an address; nil if none is there.
func (b *bed) at(ip string) *sdn.LoadBalancer {
	for _, item := range b.cloud.LoadBalancers() {
		if item.LoadBalancer.VIP.IP == ip {
			return &item.LoadBalancer
		}
	}
	return nil
}

// portsAt returns the ports of the load balancer at an address, sorted.
func (b *bed) portsAt(ip string) (all []int32) {
	if lb := b.at(ip); lb != nil {
		for _, l := range lb.Listeners {
			all = append(all, l.Port)
		}
	}
	slices.Sort(all)
	return all
}

// membersAtAddress returns the addresses of the members of the load balancer at an address, sorted,
// without duplicates.
func (b *bed) membersAtAddress(ip string) (all []string) {
	if lb := b.at(ip); lb != nil {
		for _, l := range lb.Listeners {
			if l.Pool == nil {
				continue
			}
			for _, m := range l.Pool.Members {
				all = append(all, m.IP)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func six(i int) v1.MemberSpec {
	return v1.MemberSpec{Name: fmt.Sprint("default/pod-", i), IP: fmt.Sprintf("fd00:96::%d", 100+i), Port: 8080, SubnetID: service6Subnet}
}

var (
	vip4 = v1.VIPAddress{IP: "10.96.0.10", SubnetID: serviceSubnet}
	vip6 = v1.VIPAddress{IP: "fd00:96::10", SubnetID: service6Subnet}
)

// TestRemovedPortCloses: a port that a Service no longer has is closed, whatever happens to a port
// that is to be created.
func TestRemovedPortCloses(t *testing.T) {
	for _, why := range []error{sdn.ErrQuota, sdn.ErrForbidden, sdn.ErrConflict, sdn.ErrUnavailable} {
		t.Run(why.Error(), func(t *testing.T) {
			b := balancerBed(t)
			b.start()
			b.balancer("web", public)
			b.realised("web")
			b.fail(memory.CreateListener, fmt.Errorf("making a listener: %w", why))
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
				s.Listeners = []v1.ListenerSpec{balancerPort(80, 1, 2), balancerPort(8443, 1, 2)}
			})
			b.eventually("443 is closed", func() bool { return cmp.Equal(b.portsAt(vip4.IP), []int32{80}) })
			b.fail("", nil)
			b.realised("web")
		})
	}
}

// TestRemovedPortMakesRoom: replacing one port by another needs no more quota than exists.
func TestRemovedPortMakesRoom(t *testing.T) {
	b := balancerBed(t)
	b.start()
	b.balancer("web", public)
	b.realised("web")
	b.onBefore(func(_ context.Context, call string, _ int) error {
		if call == memory.CreateListener && len(b.portsAt(vip4.IP)) >= 2 {
			return fmt.Errorf("quota of 2 listeners: %w", sdn.ErrQuota)
		}
		return nil
	})
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.Listeners = []v1.ListenerSpec{balancerPort(80, 1, 2), balancerPort(8443, 1, 2)}
	})
	b.realised("web")
	if got := b.portsAt(vip4.IP); !cmp.Equal(got, []int32{80, 8443}) {
		t.Errorf("there are ports %v, want 80 and 8443", got)
	}
}

// TestRemovedPortKeepsRanges: a port that is not closed admits clients that should be excluded. The
// Service loses its floating IP, also if the port is no longer one of its ports.
func TestRemovedPortKeepsRanges(t *testing.T) {
	for _, why := range []error{sdn.ErrForbidden, sdn.ErrUnavailable} {
		t.Run(why.Error(), func(t *testing.T) {
			b := balancerBed(t)
			b.start()
			b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.Provider, s.Listeners = "amphora", s.Listeners[:1] })
			ip := b.realised("web").Status.PublicIP.IP
			b.fail(memory.DeleteListener, fmt.Errorf("deleting a listener: %w", why))
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
				s.Listeners, s.SourceRanges = []v1.ListenerSpec{balancerPort(8080, 1, 2)}, []string{"198.51.100.0/24"}
			})
			b.eventually("it is not public any more", func() bool { return slices.Equal(b.publicOnes(), []string{ip + " cluster nowhere"}) })
			b.eventually("the other port is there", func() bool { return cmp.Equal(b.portsAt(vip4.IP), []int32{80, 8080}) })
			b.fail("", nil)
			if p := b.realised("web").Status.PublicIP; p == nil || p.IP != ip || !cmp.Equal(b.portsAt(vip4.IP), []int32{8080}) {
				t.Errorf("when the port is closed there are floating IP %+v and ports %v", p, b.portsAt(vip4.IP))
			}
		})
	}
}

// TestEndpointsFollowWhateverFails: a failing step does not stop the changes of endpoints. That
// holds for the same load balancer and for that of the other family.
func TestEndpointsFollowWhateverFails(t *testing.T) {
	for _, why := range []error{sdn.ErrForbidden, sdn.ErrConflict, sdn.ErrUnavailable} {
		t.Run("update, "+why.Error(), func(t *testing.T) {
			b := balancerBed(t)
			b.start()
			b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
			b.realised("web")
			b.fail(memory.UpdateListener, fmt.Errorf("changing a listener: %w", why))
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
				s.Listeners = []v1.ListenerSpec{balancerPort(80, 3), balancerPort(443, 3)}
				s.Listeners[0].ConnectionLimit, s.SourceRanges = new(int32(100)), []string{"198.51.100.0/24"}
			})
			b.eventually("it has the endpoints of now", func() bool { return cmp.Equal(b.membersAtAddress(vip4.IP), []string{"10.1.0.3"}) })
			b.fail("", nil)
		})
	}
	for _, why := range []error{sdn.ErrQuota, sdn.ErrConflict, sdn.ErrUnavailable} {
		t.Run("other family, "+why.Error(), func(t *testing.T) {
			b := balancerBed(t)
			b.start()
			b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) {
				s.VIPs = []v1.VIPAddress{vip6}
				s.Listeners = []v1.ListenerSpec{{Name: "p", Protocol: "TCP", Port: 80, Members: []v1.MemberSpec{six(1)}}}
			})
			b.realised("web")
			b.fail(memory.CreateLoadBalancer, fmt.Errorf("making a load balancer: %w", why))
			for i := range 3 {
				b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
					s.VIPs, s.Listeners[0].Members = []v1.VIPAddress{vip4, vip6}, []v1.MemberSpec{six(2 + i)}
				})
				b.eventually("it has the endpoints of now", func() bool { return cmp.Equal(b.membersAtAddress(vip6.IP), []string{six(2 + i).IP}) })
			}
			b.fail("", nil)
			b.realised("web")
		})
	}
}

// TestUnpublishedAtOnce: a Service that is no longer to be public loses its floating IP, however
// long its load balancer is busy, and even if Octavia does not answer. A floating IP that Kuryr did
// not create stays in the project.
func TestUnpublishedAtOnce(t *testing.T) {
	const adopted = "203.0.113.80"
	for name, hinder := range map[string]func(*bed){
		"busy": func(b *bed) {
			b.cloud.EditLoadBalancer(b.tree("web").ID, func(lb *sdn.LoadBalancer) { lb.Provisioning = "PENDING_UPDATE" })
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 3) })
			b.eventually("it is waited for", func() bool {
				return meta.IsStatusConditionTrue(b.klb("web").Status.Conditions, v1.ConditionProgressing)
			})
		},
		"away": (*bed).away,
		"away after a restart": func(b *bed) {
			b.away()
			b.stop()
			b.start()
		},
	} {
		for how, withdraw := range map[string]func(*bed){
			"internal": func(b *bed) { b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = nil }) },
			"deleted":  func(b *bed) { b.delete(b.klb("web")) },
		} {
			for _, address := range []string{"", adopted} {
				t.Run(strings.TrimSpace(name+", "+how+" "+address), func(t *testing.T) {
					b := balancerBed(t)
					var left []string
					if address != "" {
						b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork, Address: address})
						left = []string{adopted + "  nowhere"}
					}
					b.start()
					b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP.Address = address })
					b.realised("web")
					hinder(b)
					withdraw(b)
					b.eventually("it is not public", func() bool { return slices.Equal(b.publicOnes(), left) })
					if how == "internal" {
						b.eventually("the status says so", func() bool { return b.klb("web").Status.PublicIP == nil })
					}
					b.fail("", nil)
				})
			}
		}
	}
}

// TestBusyOtherFamily: a busy load balancer does not stop the Service's other one from closing a
// port or following endpoints.
func TestBusyOtherFamily(t *testing.T) {
	for stuck, other := range map[string]string{vip4.IP: vip6.IP, vip6.IP: vip4.IP} {
		t.Run(stuck, func(t *testing.T) {
			b := balancerBed(t)
			port := func(n int32, i int) v1.ListenerSpec {
				l := balancerPort(n, i)
				l.Members = append(l.Members, six(i))
				return l
			}
			b.start()
			b.balancer("web", public, func(s *v1.KuryrLoadBalancerSpec) {
				s.VIPs, s.Listeners = []v1.VIPAddress{vip4, vip6}, []v1.ListenerSpec{port(80, 1), port(443, 1)}
			})
			b.realised("web")
			b.cloud.EditLoadBalancer(b.at(stuck).ID, func(lb *sdn.LoadBalancer) { lb.Provisioning = "PENDING_UPDATE" })
			for i := range 3 {
				b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners = []v1.ListenerSpec{port(80, 2+i), port(443, 2+i)} })
				want := balancerPort(80, 2+i).Members[0].IP
				if other == vip6.IP {
					want = six(2 + i).IP
				}
				b.eventually("it has the endpoints of now", func() bool { return cmp.Equal(b.membersAtAddress(other), []string{want}) })
			}
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners = s.Listeners[:1] })
			b.eventually("443 is closed", func() bool { return cmp.Equal(b.portsAt(other), []int32{80}) })
			if p := b.klb("web").Status.PublicIP; p == nil || b.publicOf(b.at(vip4.IP)) != p.IP {
				t.Errorf("the floating IP is not where it was: %v, %+v", b.publicOnes(), p)
			}
			b.cloud.EditLoadBalancer(b.at(stuck).ID, func(lb *sdn.LoadBalancer) { lb.Provisioning = sdn.ProvisioningActive })
			b.realised("web")
			if got := b.portsAt(stuck); !cmp.Equal(got, []int32{80}) {
				t.Errorf("the one that was busy has ports %v, want 80", got)
			}
		})
	}
}
