// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestProblems: what a provider cannot do is left out. It is reported with its field, once for
// all load balancers, and only if the Service asks for it.
func TestProblems(t *testing.T) {
	poor := sdn.Features{Provider: "poor", Algorithm: "SOURCE_IP_PORT", Protocols: []string{"TCP", "UDP"}}
	for _, tc := range []struct {
		name   string
		change func(*spec)
		want   string // fields
	}{
		{"nothing special", func(*spec) {}, ""},
		{"protocol", func(s *spec) { s.Listeners[0] = port("SCTP", 80) }, "spec.ports[80].protocol"},
		{"named port", func(s *spec) { s.Listeners[0] = v1.ListenerSpec{Name: "x", Protocol: "SCTP", Port: 80} }, "spec.ports[x].protocol"},
		{"two protocols", func(s *spec) { s.Listeners = append(s.Listeners, port("UDP", 80)) }, "spec.ports[80].port"},
		{"source ranges", func(s *spec) { s.SourceRanges = []string{"10.0.0.0/8"} }, "spec.loadBalancerSourceRanges"},
		{"affinity", func(s *spec) { s.Listeners[0].AffinitySeconds = new(int32(10800)) }, "spec.sessionAffinity"},
		{"timeouts", func(s *spec) { s.Listeners[0].TimeoutTCPInspect = new(int64(1)) }, "timeouts"},
		{"limit", func(s *spec) { s.Listeners[0].ConnectionLimit = new(int32(1)) }, "connection limit"},
		{"proxy", func(s *spec) { s.Listeners[0].ProxyProtocol = "PROXY" }, "PROXY protocol"},
		{"monitor", func(s *spec) { s.Listeners[0].Monitor = monitor("HTTP", 5) }, "health monitor"},
		{"algorithm", func(s *spec) { s.Listeners[0].Algorithm = "ROUND_ROBIN" }, "algorithm"},
		{"client address", func(s *spec) { s.KeepClientAddress = true }, "spec.externalTrafficPolicy"},
		{"far endpoint", func(s *spec) { s.Listeners[0] = port("TCP", 80, 1) }, "endpoints"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			klb := newWorld(t).klb
			klb.Spec.VIPs = append(klb.Spec.VIPs, v1.VIPAddress{IP: "10.2.0.11", SubnetID: vips4})
			klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80)}
			tc.change(&klb.Spec)
			_, problems := balancer.Want(klb, poor)
			var fields []string
			for _, p := range problems {
				fields = append(fields, p.Field)
				if !strings.Contains(p.Text, "poor") {
					t.Errorf("%q does not name the provider", p)
				}
			}
			if got := strings.Join(fields, " "); got != tc.want {
				t.Errorf("problems of %q, want %q", got, tc.want)
			}
			if _, problems := balancer.Want(klb, balancer.Everything()); len(problems) > 0 {
				t.Errorf("a provider that can do everything has problems: %v", problems)
			}
		})
	}
}

// TestUnsureAffinity: where it is unknown whether affinity is kept, it is requested, and the
// status says so.
func TestUnsureAffinity(t *testing.T) {
	f := balancer.Everything()
	f.Provider, f.AffinityUnsure = "old", true
	klb := newWorld(t).klb
	klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80), port("UDP", 80)}
	if _, problems := balancer.Want(klb, f); len(problems) > 0 {
		t.Errorf("problems %v of one that asks for no affinity", problems)
	}
	for i := range klb.Spec.Listeners {
		klb.Spec.Listeners[i].AffinitySeconds = new(int32(10800))
	}
	want, problems := balancer.Want(klb, f)
	if len(problems) != 1 || problems[0].Field != "spec.sessionAffinity" || !contains(problems[0].Text, "provider old", "2025.1 for TCP") {
		t.Errorf("problems %v, want one that says what is not known", problems)
	}
	for _, l := range want[0].Listeners {
		if l.Pool.AffinitySeconds == nil {
			t.Errorf("listener %s is to have no affinity", l.Name)
		}
	}
}

// TestRangesNameTheOption: the problem suggests security groups where these could keep the
// ranges. It does not where they already do, or where endpoints do not see clients.
func TestRangesNameTheOption(t *testing.T) {
	for _, tc := range []struct {
		keeps, set, want bool
	}{{true, false, true}, {true, true, false}, {false, false, false}} {
		f := sdn.Features{Provider: "poor", Protocols: []string{"TCP"}, KeepsClientAddress: tc.keeps}
		klb := newWorld(t).klb
		klb.Spec.SourceRanges, klb.Spec.SourceRangesAtMembers = []string{"192.0.2.0/24"}, tc.set
		_, problems := balancer.Want(klb, f)
		if len(problems) != 1 || contains(problems[0].Text, "services.sourceRangesBySecurityGroups") != tc.want {
			t.Errorf("%+v: problems %v", tc, problems)
		}
	}
}

// TestWithheld: a Service whose source ranges cannot be kept is not made public, and the status
// says so and what to do.
func TestWithheld(t *testing.T) {
	klb := newWorld(t).klb
	klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80)}
	ovn := sdn.Features{Provider: "ovn", Protocols: []string{"TCP"}}
	for _, tc := range []struct {
		name   string
		public bool
		ranges []string
		f      sdn.Features
		want   bool
		says   string
	}{
		{"public", true, nil, ovn, false, ""},
		{"public, for all of its family", true, []string{"0.0.0.0/0"}, ovn, false, ""},
		{"public, for some, and for all of the other family", true, []string{"192.0.2.0/24", "::/0"}, ovn, true, "gets no floating IP"},
		{"public, for some", true, []string{"192.0.2.0/24"}, ovn, true, "gets no floating IP"},
		{"public, for some, who are kept out", true, []string{"192.0.2.0/24"}, balancer.Everything(), false, ""},
		{"inside, for some", false, []string{"192.0.2.0/24"}, ovn, false, "route to the cluster IP"},
	} {
		klb.Spec.PublicIP, klb.Spec.SourceRanges = nil, tc.ranges
		if tc.public {
			klb.Spec.PublicIP = &v1.PublicIPSpec{NetworkID: outsideNet}
		}
		if got := balancer.WithholdsFloatingIP(klb, tc.f); got != tc.want {
			t.Errorf("%s: Withheld = %v, want %v", tc.name, got, tc.want)
		}
		_, problems := balancer.Want(klb, tc.f)
		if len(problems) > 0 != (tc.says != "") || len(problems) > 0 && !strings.Contains(problems[0].Text, tc.says) {
			t.Errorf("%s: problems %v, want one that says %q", tc.name, problems, tc.says)
		}
	}
}

// TestWithheldByFamily: ranges that a provider cannot keep for the load balancer of the other
// family are reported. They are no reason to have no floating IP, which is IPv4.
func TestWithheldByFamily(t *testing.T) {
	klb := newWorld(t).klb
	klb.Spec.VIPs = append(klb.Spec.VIPs, v1.VIPAddress{IP: "fd00:2::10", SubnetID: vips6})
	klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80)}
	klb.Spec.PublicIP = &v1.PublicIPSpec{NetworkID: outsideNet}
	klb.Spec.SourceRanges = []string{"0.0.0.0/0", "fd00:2::/64"} // what is planned for 0.0.0.0/0
	ovn := sdn.Features{Provider: "ovn", Protocols: []string{"TCP"}}
	_, problems := balancer.Want(klb, ovn)
	if balancer.WithholdsFloatingIP(klb, ovn) || len(problems) != 1 || !strings.Contains(problems[0].Text, "route to the cluster IP") {
		t.Errorf("Withheld = %v, problems %v, want none withheld and one of who has a route", balancer.WithholdsFloatingIP(klb, ovn), problems)
	}
	if want, _ := balancer.Want(klb, balancer.Everything()); balancer.AdmitsOthers(want, []sdn.LoadBalancer{{VIP: klb.Spec.VIPs[0], Listeners: []sdn.Listener{{Protocol: "TCP", Port: 80}}}}, nil) {
		t.Error("a port that is open to all is taken for one that lets in too many")
	}
	klb.Spec.SourceRanges = []string{"192.0.2.0/24", "::/0"}
	if !balancer.WithholdsFloatingIP(klb, ovn) {
		t.Error("who is kept out of IPv4 is let in, as all of IPv6 may come")
	}
}

// TestLax: clients outside the source ranges may come in while a port admits more than wanted.
func TestLax(t *testing.T) {
	listener := func(port int32, ranges ...string) sdn.Listener {
		return sdn.Listener{Protocol: "TCP", Port: port, SourceRanges: ranges}
	}
	lb := func(all ...sdn.Listener) []sdn.LoadBalancer {
		return []sdn.LoadBalancer{{ID: "a", VIP: v1.VIPAddress{IP: "10.2.0.10", SubnetID: vips4}, Listeners: all}}
	}
	for _, tc := range []struct {
		name       string
		want, have []sdn.LoadBalancer
		is         bool
	}{
		{"nothing yet", lb(listener(80, "192.0.2.0/24")), nil, false},
		{"no port yet", lb(listener(80, "192.0.2.0/24")), lb(), false},
		{"as wanted", lb(listener(80, "192.0.2.0/24")), lb(listener(80, "192.0.2.0/24")), false},
		{"open", lb(listener(80, "192.0.2.0/24")), lb(listener(80)), true},
		{"open to others", lb(listener(80, "192.0.2.0/24")), lb(listener(80, "198.51.100.0/24")), true},
		{"open, and to be so by a range", lb(listener(80, "0.0.0.0/0")), lb(listener(80)), false},
		{"to be open", lb(listener(80)), lb(listener(80, "198.51.100.0/24")), false},
		{"more to come in", lb(listener(80, "192.0.2.0/24", "198.51.100.0/24")), lb(listener(80, "192.0.2.0/24")), false},
		{"a wider one", lb(listener(80, "192.0.0.0/16")), lb(listener(80, "192.0.2.0/24")), false},
		{"less to come in", lb(listener(80, "192.0.2.0/24")), lb(listener(80, "192.0.2.0/24", "198.51.100.0/24")), true},
		{"a narrower one", lb(listener(80, "192.0.2.0/25")), lb(listener(80, "192.0.2.0/24")), true},
		{"open to nobody", lb(listener(80, "192.0.2.0/24")), lb(listener(80, "0.0.0.0/32")), false},
		{"open to nobody knows whom", lb(listener(80, "192.0.2.0/24")), lb(listener(80, "anywhere")), true},
		{"one of two", lb(listener(80, "192.0.2.0/24"), listener(81, "192.0.2.0/24")), lb(listener(80, "192.0.2.0/24"), listener(81)), true},
		{"one too many", lb(listener(80, "192.0.2.0/24")), lb(listener(80, "192.0.2.0/24"), listener(81)), true},
		{"one too many, as closed", lb(listener(80, "192.0.2.0/24")), lb(listener(80, "192.0.2.0/24"), listener(81, "192.0.2.0/25")), false},
		{"one too many where all may come", lb(listener(80)), lb(listener(80), listener(81)), false},
		{"one, and none is wanted", lb(), lb(listener(81)), true},
	} {
		if got := balancer.AdmitsOthers(tc.want, tc.have, nil); got != tc.is {
			t.Errorf("%s: Lax = %v, want %v", tc.name, got, tc.is)
		}
	}
}

// TestSourceRangesOfOneFamily: a load balancer of the other family admits no client, instead of
// all.
func TestSourceRangesOfOneFamily(t *testing.T) {
	klb := newWorld(t).klb
	klb.Spec.VIPs = append(klb.Spec.VIPs, v1.VIPAddress{IP: "fd00:2::10", SubnetID: vips6})
	klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80)}
	for _, tc := range []struct {
		ranges []string
		want   [2]string // of the first and the second VIP
	}{
		{nil, [2]string{"", ""}},
		{[]string{"192.0.2.7/24"}, [2]string{"192.0.2.0/24", "::/128"}},
		{[]string{"2001:db8::/32", "2001:db8::/32"}, [2]string{"0.0.0.0/32", "2001:db8::/32"}},
		{[]string{"2001:db8::/32", "198.51.100.0/24", "192.0.2.0/24"}, [2]string{"192.0.2.0/24 198.51.100.0/24", "2001:db8::/32"}},
		{[]string{"nonsense"}, [2]string{"0.0.0.0/32", "::/128"}},
	} {
		klb.Spec.SourceRanges = tc.ranges
		want, _ := balancer.Want(klb, balancer.Everything())
		for i := range want {
			if got := strings.Join(want[i].Listeners[0].SourceRanges, " "); got != tc.want[i] {
				t.Errorf("%q at %s become %q, want %q", tc.ranges, want[i].VIP.IP, got, tc.want[i])
			}
		}
	}
}

// TestProviderOfAFlavor: a KuryrLoadBalancer with a flavor and no provider gets the flavor's
// provider, not the usual one.
func TestProviderOfAFlavor(t *testing.T) {
	klb := newWorld(t).klb
	f := balancer.Everything()
	f.Provider = "amphora"
	for _, tc := range []struct{ provider, flavor, want string }{
		{"", "", "amphora"}, {"", "big", ""}, {"ovn", "", "ovn"}, {"ovn", "big", "ovn"},
	} {
		klb.Spec.Provider, klb.Spec.FlavorID = tc.provider, tc.flavor
		if want, _ := balancer.Want(klb, f); want[0].Provider != tc.want {
			t.Errorf("provider %q and flavor %q become provider %q, want %q", tc.provider, tc.flavor, want[0].Provider, tc.want)
		}
	}
}

// TestMembersOfEachFamily: a load balancer has the endpoints of its own family, with the names
// of their targets.
func TestMembersOfEachFamily(t *testing.T) {
	klb := newWorld(t).klb
	klb.Spec.VIPs = append(klb.Spec.VIPs, v1.VIPAddress{IP: "fd00:2::10", SubnetID: vips6})
	l := port("TCP", 80, 1, 1)
	l.Members = append(l.Members, v1.MemberSpec{IP: "fd00:1::1", Port: 80}, v1.MemberSpec{Name: "shop/" + strings.Repeat("x", 253), IP: "fd00:1::2", Port: 65535})
	klb.Spec.Listeners = []v1.ListenerSpec{l}
	want, _ := balancer.Want(klb, balancer.Everything())
	var names []string
	for _, lb := range want {
		for _, m := range lb.Listeners[0].Pool.Members {
			names = append(names, lb.Name+" "+m.Name)
		}
	}
	expected := []string{
		"shop/web shop/web-1:8080", "shop/web/fd00:2::10 shop/web:80", "shop/web/fd00:2::10 shop/" + strings.Repeat("x", 244) + ":65535",
	}
	if diff := cmp.Diff(expected, names); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// TestCovers: a status covers what is wanted until anything is removed from it.
func TestCovers(t *testing.T) {
	w := newWorld(t)
	w.klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80, 1, 2), port("UDP", 80, 1), port("TCP", 81)}
	w.settle()
	want, have, _, err := w.plan()
	if err != nil {
		t.Fatal(err)
	}
	whole := balancer.Status(have, w.klb.Spec.VIPs)
	whole.PublicIP = &v1.PublicIPStatus{ID: "a", IP: "203.0.113.1"}
	if !balancer.Covers(&whole, want, true) {
		t.Fatalf("%+v does not cover what the cloud has been made of", whole)
	}
	for what, cut := range map[string]func(*v1.KuryrLoadBalancerStatus){
		"all":               func(s *v1.KuryrLoadBalancerStatus) { *s = v1.KuryrLoadBalancerStatus{} },
		"load balancers":    func(s *v1.KuryrLoadBalancerStatus) { s.LoadBalancers = nil },
		"listeners":         func(s *v1.KuryrLoadBalancerStatus) { s.Listeners = nil },
		"a listener":        func(s *v1.KuryrLoadBalancerStatus) { s.Listeners = s.Listeners[1:] },
		"pools":             func(s *v1.KuryrLoadBalancerStatus) { s.Pools = nil },
		"a pool":            func(s *v1.KuryrLoadBalancerStatus) { s.Pools = s.Pools[1:] },
		"members":           func(s *v1.KuryrLoadBalancerStatus) { s.Members = nil },
		"a member":          func(s *v1.KuryrLoadBalancerStatus) { s.Members = s.Members[1:] },
		"a listener's ID":   func(s *v1.KuryrLoadBalancerStatus) { s.Listeners[1].ID = "" },
		"a pool's ID":       func(s *v1.KuryrLoadBalancerStatus) { s.Pools[1].ID = "" },
		"a member's ID":     func(s *v1.KuryrLoadBalancerStatus) { s.Members[0].ID = "" },
		"the floating IP":   func(s *v1.KuryrLoadBalancerStatus) { s.PublicIP = nil },
		"the subnet":        func(s *v1.KuryrLoadBalancerStatus) { s.LoadBalancers[0].SubnetID = "" },
		"nothing, but more": func(s *v1.KuryrLoadBalancerStatus) { s.Members = append(s.Members, v1.MemberStatus{ID: "x"}) },
	} {
		s := *whole.DeepCopy()
		cut(&s)
		if balancer.Covers(&s, want, true) {
			t.Errorf("covers what is wanted although somebody took out: %s", what)
		}
	}
	if balancer.Covers(&whole, want, false) {
		t.Error("covers what is wanted with a floating IP that is not")
	}
}
