// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
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

// fenceBed is a balancerBed whose configuration has security groups enforce source ranges.
func fenceBed(t testing.TB) *bed {
	t.Helper()
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.SourceRangesBySecurityGroups = true })
	return b
}

// fenced creates a public KuryrLoadBalancer with source ranges and these ports as members.
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

// fence returns the one security group that Kuryr has created; nil unless there is exactly one.
func (b *bed) fence() *sdn.SecurityGroup {
	all := b.cloud.SecurityGroups()
	if len(all) != 1 {
		return nil
	}
	return &all[0].Group
}

// has reports whether a port has exactly these groups in the cloud.
func (b *bed) has(port *v1.KuryrPort, groups ...string) bool {
	b.t.Helper()
	return slices.Equal(groupsOf(b.t, b, port.Name), slices.Sorted(slices.Values(groups)))
}

func rule(port int32, remote string) sdn.Rule {
	return sdn.Rule{Protocol: "TCP", From: port, To: port, Remote: remote}
}

// TestSourceRangesAtMembers: a security group on the members' ports enforces the ranges. The
// floating IP waits for the group. The group follows members and ranges, and is deleted with the
// ranges.
func TestSourceRangesAtMembers(t *testing.T) {
	b := fenceBed(t)
	b.unhurried = true // however slow the machine is, no endpoint lacks its group for long
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

// TestFirstMemberHasTheGroup: the floating IP waits for the first member that has the group, and
// for no other.
func TestFirstMemberHasTheGroup(t *testing.T) {
	b := fenceBed(t)
	b.unhurried = true
	b.start()
	one, two := b.bound(b.pod("one")), b.bound(b.pod("two"))
	b.mu.Lock()
	var let atomic.Int32 // changes of ports that may succeed
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
		return hasWords(said, "an endpoint has its security group, "+b.fence().ID)
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

// TestMembersBehind: a member without the group admits no client from outside. It does not cost a
// Service its floating IP, not even a new Service. The member is reported until it has the group.
func TestMembersBehind(t *testing.T) {
	b := fenceBed(t)
	b.unhurried = true // until it has its group, the first member is not reported, either
	b.start()
	one, two := b.bound(b.pod("one")), b.bound(b.pod("two"))
	b.fenced("web", one)
	ip := b.realised("web").Status.PublicIP.IP
	b.stop()
	b.unhurried = false
	b.start()
	b.fail(memory.UpdatePort, fmt.Errorf("updating: %w", sdn.ErrUnavailable))
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0].Members = membersAt(one, two) })
	late := two.Spec.VIF.Addresses[0].IP
	b.mentions("Event", b.eventOn("web", "NotSupported"), late, b.klb("web").Status.SecurityGroupID, "clients outside cannot reach them", "KuryrPorts")
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
		return klb.Status.PublicIP != nil && len(klb.Status.UnreachedMembers) == 1 && klb.Status.UnreachedMembers[0].IP == late
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

// TestPortOfAMemberGoes: a member whose port was just deleted does not cost the Service its
// floating IP: no pod has its address. That is accepted for a limited time only.
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

// hasMost returns the number of groups of a port in the cloud.
func (b *bed) hasMost(port *v1.KuryrPort) int { return len(groupsOf(b.t, b, port.Name)) }

// TestRangesByProvider: a provider that enforces the ranges itself gets them, and no group is
// created.
func TestRangesByProvider(t *testing.T) {
	b := fenceBed(t)
	b.start()
	one := b.bound(b.pod("one"))
	b.fenced("web", one)
	b.realised("web")
	b.fail(memory.UpdatePort, fmt.Errorf("updating: %w", sdn.ErrUnavailable))
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
	b.realised("web")
	b.stop() // a new process learns that no group is needed
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

// TestMembersWithoutPorts: a group does not reach pods in the host's network. While such pods are
// members, no client from outside is admitted.
func TestMembersWithoutPorts(t *testing.T) {
	b := fenceBed(t)
	b.unhurried = true // however slow the machine is, the first endpoint does not lack its group for long
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

// TestOpenToAll: without ranges the group admits every client. A member without the group does not
// cost the Service its floating IP, as no client is to be excluded.
func TestOpenToAll(t *testing.T) {
	b := fenceBed(t)
	b.unhurried = true // however slow the machine is, no endpoint lacks its group for long
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
	b.eventually("its trial is gone", func() bool { return b.tree("web") != nil })
	if got := b.tree("web").Listeners[0].SourceRanges; len(got) > 0 {
		t.Errorf("ranges %v", got)
	}
}

// TestFenceAndRules: a pod whose labels give it other groups has these and that of the load
// balancer. Its port does not have the latter once it is free.
func TestFenceAndRules(t *testing.T) {
	b := fenceBed(t)
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL.Duration = 2, time.Hour })
	b.start()
	pod := b.pod("one", func(p *corev1.Pod) { p.Labels = map[string]string{"role": "web"} })
	one := b.bound(pod)
	var last []v1.KuryrPort
	t.Cleanup(func() {
		for _, p := range last {
			if t.Failed() {
				t.Logf("KuryrPort %s: annotations %v, spec %+v, status %+v", p.Name, p.Annotations, p.Spec, p.Status)
			}
		}
	})
	b.fenced("web", one)
	b.realised("web")
	id := b.fence().ID
	b.set(func(s *settings.Settings) {
		s.Pods.SecurityGroups = []config.GroupRule{{PodSelector: labelled("role", "web"), SecurityGroupIDs: []string{otherGroup}}}
	})
	b.eventually("it has both", func() bool { return b.has(one, otherGroup, id) })
	// A port that is freed before its status says so gets the pool's groups, to be safe.
	b.knows("the cloud has both", func(p *v1.KuryrPort) bool {
		return p.Name == one.Name && p.Grouped() && slices.Equal(p.Spec.SecurityGroupIDs, slices.Sorted(slices.Values([]string{otherGroup, id})))
	})
	b.delete(pod)
	b.eventually("the free port has the load balancer's group no more, and those of the rule", func() bool {
		last = b.ports()
		return b.has(one, otherGroup)
	})
	b.eventually("nothing remembers the other", func() bool {
		i := slices.IndexFunc(b.ports(), func(p v1.KuryrPort) bool { return p.Name == one.Name })
		return i >= 0 && b.ports()[i].Spec.PodRef == nil && b.ports()[i].Annotations["kuryr.openstack.org/member-security-groups"] == ""
	})
}

// TestSourceRangesByConfiguration: the configuration alone decides whether security groups enforce
// source ranges, from the Service to the ports, and back.
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
