// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

func fencedBalancer() *v1.KuryrLoadBalancer {
	member := func(ip string, port int32) v1.MemberSpec { return v1.MemberSpec{IP: ip, Port: port, SubnetID: "pods"} }
	return &v1.KuryrLoadBalancer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: v1.KuryrLoadBalancerSpec{
			SourceRanges: []string{"192.0.2.0/24", "198.51.100.7/32"}, SourceRangesAtMembers: true,
			PublicIP: &v1.PublicIPSpec{NetworkID: outsideNet},
			Listeners: []v1.ListenerSpec{
				{Protocol: "UDP", Port: 53, Members: []v1.MemberSpec{member("10.1.0.5", 5353)}},
				{Protocol: "TCP", Port: 80, Members: []v1.MemberSpec{member("10.1.0.5", 8080), member("10.1.0.6", 8080)}},
				{Protocol: "TCP", Port: 81, Members: []v1.MemberSpec{member("10.1.0.5", 8080)}},
			},
		},
	}
}

func fencedPort(namespace, ip, subnet string, groups ...string) *v1.KuryrPort {
	p := &v1.KuryrPort{Spec: v1.KuryrPortSpec{ProjectID: "project", VIF: v1.VIF{Addresses: []v1.Address{{IP: ip, SubnetID: subnet}}}}}
	if namespace != "" {
		p.Spec.PodRef = &v1.PodReference{Namespace: namespace, Name: "pod"}
	}
	p.Status.AppliedSecurityGroupIDs = groups
	return p
}

// paired makes a port an address pair of its machine's port.
func paired(p *v1.KuryrPort) *v1.KuryrPort {
	p.Spec.VIF.Type = "macvlan"
	return p
}

// TestFenced: a security group keeps the ranges where the provider does not and members see the
// client. The rest of the spec has no problem with the provider.
func TestFenced(t *testing.T) {
	ovn := sdn.Features{Provider: "ovn", Protocols: []string{"TCP", "UDP"}, KeepsClientAddress: true, ManyProtocols: true, FarMembers: true}
	hides, unsure := ovn, ovn
	hides.KeepsClientAddress, unsure.Unsure = false, true
	for name, tc := range map[string]struct {
		f      sdn.Features
		change func(*v1.KuryrLoadBalancerSpec)
		want   bool
	}{
		"as configured":            {ovn, func(*v1.KuryrLoadBalancerSpec) {}, true},
		"not configured":           {ovn, func(s *v1.KuryrLoadBalancerSpec) { s.SourceRangesAtMembers = false }, false},
		"no ranges: for all":       {ovn, func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = nil }, true},
		"clients are hidden":       {hides, func(*v1.KuryrLoadBalancerSpec) {}, false},
		"the provider is a guess":  {unsure, func(*v1.KuryrLoadBalancerSpec) {}, false},
		"the provider does itself": {balancer.Everything(), func(*v1.KuryrLoadBalancerSpec) {}, false},
	} {
		klb := fencedBalancer()
		if tc.change(&klb.Spec); balancer.NeedsRangeGroup(klb, tc.f) != tc.want {
			t.Errorf("%s: NeedsRangeGroup = %v, want %v", name, !tc.want, tc.want)
		}
	}
	klb := fencedBalancer()
	rest := balancer.WithoutRanges(klb)
	if _, problems := balancer.Want(rest, ovn); len(problems) > 0 || balancer.WithholdsFloatingIP(rest, ovn) {
		t.Errorf("what is left to the provider: problems %v, withheld %v", problems, balancer.WithholdsFloatingIP(rest, ovn))
	}
	if len(klb.Spec.SourceRanges) != 2 {
		t.Error("WithoutRanges changed its argument")
	}
}

func TestFenceRules(t *testing.T) {
	rule := func(protocol string, port int32, from string) sdn.Rule {
		return sdn.Rule{Protocol: protocol, From: port, To: port, Remote: from}
	}
	want := []sdn.Rule{
		rule("TCP", 8080, "192.0.2.0/24"), rule("TCP", 8080, "198.51.100.7/32"),
		rule("UDP", 5353, "192.0.2.0/24"), rule("UDP", 5353, "198.51.100.7/32"),
	}
	if rules, missing := balancer.RangeGroupRules(fencedBalancer()); len(missing) > 0 {
		t.Errorf("of 4 rules: %v", missing)
	} else if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	open := fencedBalancer()
	open.Spec.SourceRanges = nil
	open.Spec.VIPs = []v1.VIPAddress{{IP: "10.96.0.7"}, {IP: "fd00:96::7"}}
	want = []sdn.Rule{rule("TCP", 8080, "0.0.0.0/0"), rule("TCP", 8080, "::/0"), rule("UDP", 5353, "0.0.0.0/0"), rule("UDP", 5353, "::/0")}
	rules, _ := balancer.RangeGroupRules(open)
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules for all (-want +got):\n%s", diff)
	}
}

// TestManyRules: a group gets as many rules as it may, the same ones each time. The status
// reports that rules are missing.
func TestManyRules(t *testing.T) {
	klb := fencedBalancer()
	klb.Spec.SourceRanges = nil
	for i := range 501 {
		klb.Spec.SourceRanges = append(klb.Spec.SourceRanges, fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
	}
	rules, missing := balancer.RangeGroupRules(klb)
	if len(rules) != 1000 {
		t.Errorf("%d rules, want 1000", len(rules))
	}
	if len(missing) != 1 || !strings.Contains(missing[0].Text, "1002 rules") || !strings.Contains(missing[0].Text, "port 5353") {
		t.Errorf("missing %v", missing)
	}
	klb.Spec.SourceRanges = klb.Spec.SourceRanges[:500]
	if rules, missing := balancer.RangeGroupRules(klb); len(rules) != 1000 || len(missing) > 0 {
		t.Errorf("as many as there may be: %d rules, missing %v", len(rules), missing)
	}
}

// lacking says what members lack: some a port, some the group.
func lacking(port, group []string) map[string]balancer.Lack {
	all := map[string]balancer.Lack{}
	for _, ip := range port {
		all[ip] = balancer.LacksPort
	}
	for _, ip := range group {
		all[ip] = balancer.LacksGroup
	}
	return all
}

func TestSurround(t *testing.T) {
	const id = "group"
	one := fencedPort("shop", "10.1.0.5", "PODS", id, "own")
	for _, tc := range []struct {
		name         string
		group        string
		ports        []*v1.KuryrPort
		bare, behind []string
		reached      bool
		guarded      bool
		foreign      []string
	}{
		{"both have it", id, []*v1.KuryrPort{one, fencedPort("shop", "10.1.0.6", "pods", id)}, nil, nil, true, true, nil},
		{"one is behind", id, []*v1.KuryrPort{one, fencedPort("shop", "10.1.0.6", "pods", "own")}, nil, []string{"10.1.0.6"}, true, true, nil},
		{"there is no group yet", "", []*v1.KuryrPort{one, fencedPort("shop", "10.1.0.6", "pods", "")}, nil, []string{"10.1.0.5", "10.1.0.6"}, true, false, nil},
		{"one is on the host's network", id, []*v1.KuryrPort{one}, []string{"10.1.0.6"}, nil, true, true, nil},
		{"another network has that address, too", id, []*v1.KuryrPort{one, fencedPort("shop", "10.1.0.6", "other", id)}, []string{"10.1.0.6"}, nil, true, true, nil},
		{"one is between two pods", id, []*v1.KuryrPort{one, fencedPort("", "10.1.0.6", "pods", id)}, nil, []string{"10.1.0.6"}, true, true, nil},
		{"one is another namespace's", id, []*v1.KuryrPort{one, fencedPort("bank", "10.1.0.6", "pods", id)}, nil, nil, true, true, []string{"10.1.0.6"}},
		{"one is a pair of its machine's port", id, []*v1.KuryrPort{one, paired(fencedPort("shop", "10.1.0.6", "pods", id))}, []string{"10.1.0.6"}, nil, true, true, nil},
		{"none is Kuryr's", id, nil, []string{"10.1.0.5", "10.1.0.6"}, nil, false, false, nil},
	} {
		got := balancer.Covered(fencedBalancer(), tc.group, func(ip string) []*v1.KuryrPort {
			return slices.DeleteFunc(slices.Clone(tc.ports), func(p *v1.KuryrPort) bool { return p.Spec.VIF.Addresses[0].IP != ip })
		})
		want := balancer.Coverage{Lacks: lacking(tc.bare, tc.behind), OtherNamespace: tc.foreign, Reached: tc.reached, Guarded: tc.guarded}
		if want.Reached {
			want.ProjectID = "project"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// TestFenceProblems: the texts name some of many members, and what to do.
func TestFenceProblems(t *testing.T) {
	many := []string{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"}
	v := balancer.Verdict{Unprotected: many, OtherNamespace: many}
	for _, ip := range many {
		v.Unreached = append(v.Unreached, v1.UnreachedMember{IP: ip})
	}
	klb := fencedBalancer()
	klb.Spec.VIPs = []v1.VIPAddress{{IP: "10.2.0.10"}}
	problems := v.Problems(klb)
	if len(problems) != 3 {
		t.Errorf("%d problems, want three: %v", len(problems), problems)
	}
	for _, p := range problems {
		if !strings.Contains(p.Text, "10.1.0.1, 10.1.0.2") || strings.Contains(p.Text, "10.1.0.6") || !strings.Contains(p.Text, "2 others") || p.Field == "" {
			t.Errorf("Problem %s", p)
		}
	}
}

// A port is to have the security group that a KuryrLoadBalancer grants and that reaches the port.
func TestGrants(t *testing.T) {
	for _, tc := range []struct {
		name   string
		port   *v1.KuryrPort
		change func(*v1.KuryrLoadBalancer)
		want   bool
	}{
		{"a member", fencedPort("shop", "10.1.0.6", "pods"), nil, true},
		{"nobody's port", fencedPort("", "10.1.0.6", "pods"), nil, false},
		{"no member", fencedPort("shop", "10.1.0.7", "pods"), nil, false},
		{"a member's address elsewhere", fencedPort("shop", "10.1.0.6", "other"), nil, false},
		{"a pod of another namespace", fencedPort("bank", "10.1.0.6", "pods"), nil, false},
		{"a pair of its machine's port", paired(fencedPort("shop", "10.1.0.6", "pods")), nil, false},
		{"there is no group", fencedPort("shop", "10.1.0.6", "pods"), func(k *v1.KuryrLoadBalancer) { k.Status.SecurityGroupID = "" }, false},
		{"not by groups", fencedPort("shop", "10.1.0.6", "pods"), func(k *v1.KuryrLoadBalancer) { k.Spec.SourceRangesAtMembers = false }, false},
		{"it goes", fencedPort("shop", "10.1.0.6", "pods"), func(k *v1.KuryrLoadBalancer) { k.DeletionTimestamp = new(metav1.Now()) }, false},
	} {
		klb := fencedBalancer()
		klb.Status.SecurityGroupID = "group"
		if tc.change != nil {
			tc.change(klb)
		}
		if got := balancer.MemberGroup(klb) != "" && balancer.Reaches(klb, tc.port); got != tc.want {
			t.Errorf("%s: Granted and Reaches = %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestAssess: how long members have lacked what protects them decides.
func TestAssess(t *testing.T) {
	const one, two = "10.1.0.5", "10.1.0.6"
	start, patience := time.Unix(10000, 0), time.Minute
	var c balancer.CoverageMemory
	klb := fencedBalancer()
	for _, step := range []struct {
		name        string
		after       time.Duration // since the start
		port, group []string      // the members that lack them
		guarded     bool
		want        string
	}{
		{"all have the group", 0, nil, nil, true, "unprotected [], unreached [], soon 0s"},
		{"one lacks it", time.Second, nil, []string{one}, true, "unprotected [], unreached [], soon 1m0s"},
		{"two lack it, and no other has it", 11 * time.Second, nil, []string{one, two}, false, "unprotected [], unreached [], soon 50s, waits"},
		{"just before the end", time.Minute, nil, []string{one, two}, true, "unprotected [], unreached [], soon 1s"},
		{"a minute of one", 61 * time.Second, nil, []string{one, two}, false, "unprotected [], unreached [10.1.0.5 at 1], soon 10s, waits"},
		{"a minute of both", 71 * time.Second, nil, []string{one, two}, false, "unprotected [], unreached [10.1.0.5 at 1 10.1.0.6 at 11], soon 0s"},
		{"one has it", 80 * time.Second, nil, []string{two}, true, "unprotected [], unreached [10.1.0.6 at 11], soon 0s"},
		{"it lacks it again", 90 * time.Second, nil, []string{one}, true, "unprotected [], unreached [], soon 1m0s"},
		{"its port goes", 100 * time.Second, []string{one}, nil, false, "unprotected [], unreached [], soon 1m0s, passing"},
		{"a minute without", 160 * time.Second, []string{one}, nil, false, "unprotected [10.1.0.5], unreached [], soon 0s"},
	} {
		v := c.Assess(klb, &balancer.Coverage{Lacks: lacking(step.port, step.group), Guarded: step.guarded}, start.Add(step.after), patience)
		if got := verdict(v, start); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	if problems := (&balancer.Verdict{}).Problems(klb); len(problems) > 0 {
		t.Errorf("all are protected: %v", problems)
	}
	// Of a process that has just started: no port was seen, unless the status shows that there was one.
	for name, tc := range map[string]struct {
		of   func(*v1.KuryrLoadBalancer)
		want string
	}{
		"not ready":                      {func(klb *v1.KuryrLoadBalancer) { klb.Status.Conditions = nil }, "unprotected [10.1.0.5], unreached [], soon 0s"},
		"without floating IP":            {func(klb *v1.KuryrLoadBalancer) { klb.Status.PublicIP = nil }, "unprotected [10.1.0.5], unreached [], soon 0s"},
		"with one, and without ranges":   {func(klb *v1.KuryrLoadBalancer) { klb.Spec.SourceRanges = nil }, "unprotected [10.1.0.5], unreached [], soon 0s"},
		"with one, which the ranges cut": {func(*v1.KuryrLoadBalancer) {}, "unprotected [], unreached [], soon 1m0s, passing"},
	} {
		klb := fencedBalancer()
		klb.Spec.VIPs = []v1.VIPAddress{{IP: "10.96.0.10"}}
		klb.Status.PublicIP = &v1.PublicIPStatus{IP: "198.51.100.7"}
		klb.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}}
		tc.of(klb)
		var c balancer.CoverageMemory
		for range 2 { // the second time as the first
			v := c.Assess(klb, &balancer.Coverage{Lacks: lacking([]string{one}, nil)}, start, patience)
			if got := verdict(v, start); got != tc.want {
				t.Errorf("%s: %s, want %s", name, got, tc.want)
			}
		}
	}
}

func verdict(v balancer.Verdict, start time.Time) string {
	unreached := []string{}
	for _, m := range v.Unreached {
		unreached = append(unreached, fmt.Sprintf("%s at %.0f", m.IP, m.Since.Sub(start).Seconds()))
	}
	text := fmt.Sprintf("unprotected %v, unreached %v, soon %s", v.Unprotected, unreached, v.Soon)
	if v.Waits {
		text += ", waits"
	}
	if v.Passing {
		text += ", passing"
	}
	return text
}
