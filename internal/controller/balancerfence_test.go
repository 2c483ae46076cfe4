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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// fenceBed is a balancerBed whose configuration has security groups keep source ranges.
func fenceBed(t testing.TB) *bed {
	t.Helper()
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.SourceRangesBySecurityGroups = true })
	return b
}

// fenced makes a public KuryrLoadBalancer for some, with these ports behind it.
func (b *bed) fenced(name string, ports ...*v1.KuryrPort) *v1.KuryrLoadBalancer {
	b.t.Helper()
	return b.balancer(name, func(s *v1.KuryrLoadBalancerSpec) {
		s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork}
		s.SourceRanges, s.SourceRangesAtMembers = []string{"192.0.2.0/24"}, true
		s.Listeners = []v1.ListenerSpec{{Protocol: "TCP", Port: 80, Members: membersAt(ports...)}}
	})
}

func membersAt(ports ...*v1.KuryrPort) []v1.MemberSpec {
	var all []v1.MemberSpec
	for _, p := range ports {
		all = append(all, v1.MemberSpec{Name: "default/x", IP: p.Spec.VIF.Addresses[0].IP, Port: 8080, SubnetID: subnet})
	}
	return all
}

// fence returns the one security group that Kuryr has made, nil if that is not one.
func (b *bed) fence() *sdn.SecurityGroup {
	all := b.cloud.SecurityGroups()
	if len(all) != 1 {
		return nil
	}
	return &all[0].Group
}

// has reports whether the cloud has just these groups on a port.
func (b *bed) has(port *v1.KuryrPort, groups ...string) bool {
	b.t.Helper()
	return slices.Equal(groupsOf(b.t, b, port.Name), slices.Sorted(slices.Values(groups)))
}

func rule(port int32, remote string) sdn.Rule {
	return sdn.Rule{Protocol: "TCP", From: port, To: port, Remote: remote}
}

// TestSourceRangesAtMembers: a security group on the members' ports keeps the ranges.
// The floating IP waits for it, it follows members and ranges, and goes with these.
func TestSourceRangesAtMembers(t *testing.T) {
	b := fenceBed(t)
	b.start()
	one, two := b.bound(b.pod("one")), b.bound(b.pod("two"))
	b.fenced("web", one)
	b.eventually("the group is made", func() bool { return b.fence() != nil && b.klb("web").Status.SecurityGroupID == b.fence().ID })
	if diff := cmp.Diff([]sdn.Rule{rule(8080, "192.0.2.0/24")}, b.fence().Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	klb, id := b.realised("web"), b.fence().ID
	if klb.Status.PublicIP == nil || b.publicOf(b.tree("web")) != klb.Status.PublicIP.IP || !b.has(one, group, id) || !b.has(two, group) {
		t.Errorf("floating IP %+v, groups %v and %v", klb.Status.PublicIP, groupsOf(t, b, one.Name), groupsOf(t, b, two.Name))
	}
	if !meta.IsStatusConditionTrue(klb.Status.Conditions, v1.ConditionSupported) {
		t.Errorf("conditions %+v", klb.Status.Conditions)
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.SourceRanges, s.Listeners[0].Members = []string{"198.51.100.0/24"}, membersAt(two)
	})
	b.eventually("the group goes from who leaves to who comes", func() bool { return b.has(one, group) && b.has(two, group, id) })
	b.eventually("the rules follow", func() bool { return cmp.Equal(b.fence().Rules, []sdn.Rule{rule(8080, "198.51.100.0/24")}) })
	if ip := b.realised("web").Status.PublicIP; ip == nil || *ip != *klb.Status.PublicIP {
		t.Errorf("floating IP %+v, want that of before", ip)
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges, s.SourceRangesAtMembers = nil, false })
	b.eventually("the group is given up", func() bool { return b.has(two, group) && len(b.cloud.SecurityGroups()) == 0 })
	if klb := b.realised("web"); klb.Status.PublicIP == nil || klb.Status.SecurityGroupID != "" {
		t.Errorf("status %+v", klb.Status)
	}
}

// TestFirstMemberHasTheGroup: the floating IP waits for the first member that is open,
// and for no other.
func TestFirstMemberHasTheGroup(t *testing.T) {
	b := fenceBed(t)
	b.unhurried = true
	b.start()
	one, two := b.bound(b.pod("one")), b.bound(b.pod("two"))
	b.mu.Lock()
	var let atomic.Int32 // changes of ports that may be made
	b.before = func(_ context.Context, call string, _ int) error {
		if call == memory.UpdatePort && let.Add(-1) < 0 {
			return fmt.Errorf("updating: %w", sdn.ErrUnavailable)
		}
		return nil
	}
	b.mu.Unlock()
	b.fenced("web", one, two)
	var said string
	b.eventually("the group is made, and said to be waited for", func() bool {
		ready := meta.FindStatusCondition(b.klb("web").Status.Conditions, v1.ConditionReady)
		if b.fence() == nil || ready == nil {
			return false
		}
		said = ready.Message
		return strings.Contains(said, "an endpoint has its security group, "+b.fence().ID)
	})
	b.never("a floating IP before a member has the group", func() bool { return len(b.cloud.FloatingIPs()) > 0 })
	let.Store(1)
	b.eventually("it comes with the first", func() bool { return len(b.publicOnes()) == 1 })
	if id := b.fence().ID; b.has(one, group, id) == b.has(two, group, id) {
		t.Errorf("the ports have %v and %v, want the group at one of them", groupsOf(t, b, one.Name), groupsOf(t, b, two.Name))
	}
	version := b.realised("web").ResourceVersion
	let.Store(100)
	b.eventually("the other follows", func() bool { return b.has(one, group, b.fence().ID) && b.has(two, group, b.fence().ID) })
	b.never("the KuryrLoadBalancer is written for each", func() bool { return b.klb("web").ResourceVersion != version })
}

// TestMembersBehind: whoever does not get the group is closed, and costs nobody the
// floating IP, a new Service neither. It is told, until it is so no more.
func TestMembersBehind(t *testing.T) {
	b := fenceBed(t)
	b.start()
	one, two := b.bound(b.pod("one")), b.bound(b.pod("two"))
	b.fenced("web", one)
	ip := b.realised("web").Status.PublicIP.IP
	b.fail(memory.UpdatePort, fmt.Errorf("updating: %w", sdn.ErrUnavailable))
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0].Members = membersAt(one, two) })
	late := two.Spec.VIF.Addresses[0].IP
	b.mentions("Event", b.eventOn("web", "NotSupported"), late, b.klb("web").Status.SecurityGroupID, "closed to clients outside", "KuryrPorts")
	b.eventually("the condition says it, too, and the floating IP stays", func() bool {
		status := b.realised("web").Status
		return status.PublicIP != nil && status.PublicIP.IP == ip && meta.IsStatusConditionFalse(status.Conditions, v1.ConditionSupported)
	})
	b.balancer("other", func(s *v1.KuryrLoadBalancerSpec) {
		*s = *b.klb("web").Spec.DeepCopy()
		s.VIPs[0].IP, s.Listeners[0].Members = "10.96.0.11", membersAt(two)
	})
	b.eventually("a new Service has one, too", func() bool {
		klb := b.klb("other")
		said := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionSupported)
		return klb.Status.PublicIP != nil && strings.Contains(said.Message, late)
	})
	b.stop()
	b.start()
	b.never("a restart forgets it", func() bool {
		return meta.IsStatusConditionTrue(b.klb("web").Status.Conditions, v1.ConditionSupported)
	})
	b.fail("", nil)
	b.eventually("it has it in the end, and nothing more is told", func() bool {
		return b.hasMost(two) == 3 && meta.IsStatusConditionTrue(b.realised("web").Status.Conditions, v1.ConditionSupported)
	})
}

// TestPortOfAMemberGoes: a member whose port has just gone costs nobody the floating IP:
// there is nobody at its address. For long that is not known.
func TestPortOfAMemberGoes(t *testing.T) {
	for _, name := range []string{"in passing", "after a restart", "for long"} {
		t.Run(name, func(t *testing.T) {
			b := fenceBed(t)
			b.unhurried = name != "for long"
			b.start()
			one, pod := b.bound(b.pod("one")), b.pod("two")
			two := b.bound(pod)
			b.fenced("web", one, two)
			at := b.realised("web").Status.PublicIP.IP + " cluster at 10.96.0.10"
			if name == "after a restart" {
				b.stop()
				b.start()
				b.never("it waits", func() bool { return b.publicOnes()[0] != at })
			}
			b.delete(pod)
			b.delete(two)
			b.eventually("the port is gone", func() bool {
				return !slices.ContainsFunc(b.ports(), func(p v1.KuryrPort) bool { return p.Name == two.Name })
			})
			b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
				s.Listeners = append(s.Listeners, v1.ListenerSpec{Protocol: "TCP", Port: 443, Members: s.Listeners[0].Members})
			})
			b.eventually("the other port is there", func() bool { return b.tree("web") != nil && len(b.tree("web").Listeners) == 2 })
			if name != "for long" {
				b.never("the floating IP goes", func() bool { return b.publicOnes()[0] != at })
				return
			}
			b.mentions("Event", b.eventOn("web", "FloatingIPWithheld"), b.publicOnes()[0][:8])
			b.mentions("Event", b.eventOn("web", "NotSupported"), two.Spec.VIF.Addresses[0].IP)
		})
	}
}

// hasMost returns how many groups a port has in the cloud.
func (b *bed) hasMost(port *v1.KuryrPort) int { return len(groupsOf(b.t, b, port.Name)) }

// TestRangesByProvider: a provider that keeps the ranges itself gets them, and no group
// is made.
func TestRangesByProvider(t *testing.T) {
	b := fenceBed(t)
	b.start()
	one := b.bound(b.pod("one"))
	b.fenced("web", one)
	b.realised("web")
	b.fail(memory.UpdatePort, fmt.Errorf("updating: %w", sdn.ErrUnavailable))
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
	b.realised("web")
	b.stop() // who starts anew learns that no group is needed
	b.fail("", nil)
	b.start()
	b.eventually("the provider keeps them", func() bool {
		lb := b.tree("web")
		return lb != nil && lb.Provider == "amphora" && len(lb.Listeners) == 1 && slices.Equal(lb.Listeners[0].SourceRanges, []string{"192.0.2.0/24"})
	})
	b.eventually("the group is given up", func() bool { return b.has(one, group) && len(b.cloud.SecurityGroups()) == 0 })
	b.realised("web")
	if b.publicOf(b.tree("web")) == "" {
		t.Error("there is no floating IP")
	}
}

// TestMembersWithoutPorts: no group reaches who is on the host's network. As long as
// such are members, nobody comes in from outside.
func TestMembersWithoutPorts(t *testing.T) {
	b := fenceBed(t)
	b.start()
	one := b.bound(b.pod("one"))
	b.fenced("web", one)
	before := b.realised("web").Status.PublicIP
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.Listeners[0].Members = append(membersAt(one), v1.MemberSpec{Name: "default/host", IP: "10.1.77.7", Port: 8080, SubnetID: subnet})
	})
	b.eventually("the floating IP is reserved", func() bool {
		all := b.cloud.FloatingIPs()
		return len(all) == 1 && all[0].FloatingIP.PortID == "" && b.klb("web").Status.PublicIP == nil
	})
	b.mentions("Event", b.eventOn("web", "NotSupported"), "10.1.77.7", "no floating IP")
	klb := b.realised("web")
	if meta.IsStatusConditionTrue(klb.Status.Conditions, v1.ConditionSupported) || !b.has(one, group, b.fence().ID) {
		t.Errorf("conditions %+v", klb.Status.Conditions)
	}
	writes := b.writes()
	b.stop()
	b.start()
	b.never("something is written after a restart", func() bool { return !cmp.Equal(writes, b.writes()) })
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0].Members = membersAt(one) })
	b.eventually("it comes back", func() bool { return b.publicOf(b.tree("web")) == before.IP })
}

// TestOpenToAll: without ranges everybody comes in by the group. Who it does not reach
// keeps nobody from his floating IP, as nobody is to be kept out.
func TestOpenToAll(t *testing.T) {
	b := fenceBed(t)
	b.start()
	one := b.bound(b.pod("one"))
	b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.PublicIP, s.SourceRangesAtMembers = &v1.PublicIPSpec{NetworkID: publicNetwork}, true
		host := v1.MemberSpec{Name: "default/host", IP: "10.1.77.7", Port: 8080, SubnetID: subnet}
		s.Listeners = []v1.ListenerSpec{{Protocol: "TCP", Port: 80, Members: append(membersAt(one), host)}}
	})
	klb := b.realised("web")
	if klb.Status.PublicIP == nil || !meta.IsStatusConditionTrue(klb.Status.Conditions, v1.ConditionSupported) {
		t.Errorf("status %+v", klb.Status)
	}
	if diff := cmp.Diff([]sdn.Rule{rule(8080, "0.0.0.0/0")}, b.fence().Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	b.eventually("the pod has the group", func() bool { return b.has(one, group, b.fence().ID) })
	writes := b.writes()
	b.stop()
	b.start()
	b.never("something is written after a restart", func() bool { return !cmp.Equal(writes, b.writes()) })
	before := b.publicOnes()
	b.fail(memory.EnsureSecurityGroup, fmt.Errorf("changing: %w", sdn.ErrForbidden))
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0].Members[0].Port++ })
	b.never("what is for all loses its floating IP for a group", func() bool { return !slices.Equal(before, b.publicOnes()) })
	b.fail("", nil)
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
	b.eventually("a provider that keeps ranges has no use for it", func() bool { return b.has(one, group) && len(b.cloud.SecurityGroups()) == 0 })
	if got := b.tree("web").Listeners[0].SourceRanges; len(got) > 0 {
		t.Errorf("ranges %v", got)
	}
}

// TestFenceAndRules: a pod whose labels give it other groups has these and that of the
// load balancer, and its port has these alone once it is free.
func TestFenceAndRules(t *testing.T) {
	b := fenceBed(t)
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL.Duration = 2, time.Hour })
	b.start()
	pod := b.pod("one", func(p *corev1.Pod) { p.Labels = map[string]string{"role": "web"} })
	one := b.bound(pod)
	b.fenced("web", one)
	b.realised("web")
	id := b.fence().ID
	b.set(func(s *settings.Settings) {
		s.Pods.SecurityGroups = []config.GroupRule{{PodSelector: labelled("role", "web"), SecurityGroupIDs: []string{otherGroup}}}
	})
	b.eventually("it has both", func() bool { return b.has(one, otherGroup, id) })
	b.delete(pod)
	b.eventually("the free port has the pod's", func() bool { return b.has(one, otherGroup) })
	b.eventually("nothing remembers the other", func() bool {
		i := slices.IndexFunc(b.ports(), func(p v1.KuryrPort) bool { return p.Name == one.Name })
		return i >= 0 && b.ports()[i].Spec.PodRef == nil && b.ports()[i].Annotations["kuryr.openstack.org/member-security-groups"] == ""
	})
}

// TestSourceRangesByConfiguration: the configuration alone says whether security groups
// keep source ranges, from the Service to the ports, and back.
func TestSourceRangesByConfiguration(t *testing.T) {
	b := newWholeBed(t)
	b.set(func(s *settings.Settings) { s.Services.SourceRangesBySecurityGroups = true })
	b.launch()
	pod := b.pod("web-0")
	one := b.bound(pod)
	svc := b.service("web", balanced, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} })
	b.slice("web", "web-1", one.Spec.VIF.Addresses[0].IP)
	b.eventually("its floating IP shows", func() bool { return b.ingress(svc) != "" })
	rules := b.fence().Rules
	if id := b.fence().ID; !slices.Contains(rules, rule(8080, "192.0.2.0/24")) || !b.has(one, group, id) {
		t.Errorf("rules %v, the port has %v", rules, groupsOf(t, b.bed, one.Name))
	}
	b.set(func(s *settings.Settings) { s.Services.SourceRangesBySecurityGroups = false })
	b.eventually("the floating IP is gone", func() bool { return b.ingress(svc) == "" })
	b.eventually("and so is the group", func() bool { return b.has(one, group) && len(b.cloud.SecurityGroups()) == 0 })
	b.set(func(s *settings.Settings) { s.Services.SourceRangesBySecurityGroups = true })
	b.eventually("both come back", func() bool { return b.ingress(svc) != "" && b.fence() != nil && b.has(one, group, b.fence().ID) })
	b.delete(svc)
	b.eventually("the Service goes with all that is its own", func() bool {
		return b.now(svc) == nil && len(b.cloud.SecurityGroups())+len(b.cloud.FloatingIPs()) == 0 && b.has(one, group)
	})
}
