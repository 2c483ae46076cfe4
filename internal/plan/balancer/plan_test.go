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
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

type spec = v1.KuryrLoadBalancerSpec

// TestChanges: each change costs the necessary steps, and no other.
func TestChanges(t *testing.T) {
	for _, tc := range []struct {
		name     string
		provider string // of both; the cloud's default is ovn
		cloud    func(*memory.Cloud)
		before   func(*spec)
		after    func(*spec)
		want     []string // without IDs
	}{
		{
			name: "from nothing one request makes all", before: func(s *spec) { s.VIPs[0].IP = "10.2.0.99" },
			after: func(s *spec) {
				*s = spec{VIPs: []v1.VIPAddress{{IP: "10.2.0.10", SubnetID: vips4}}, Listeners: s.Listeners}
			},
			want: []string{
				"create load balancer shop/web at 10.2.0.10", "delete load balancer (the Service no longer has the address 10.2.0.99)",
			},
		},
		{
			name:   "with affinity, too",
			before: func(s *spec) { s.VIPs[0].IP = "10.2.0.99" },
			after: func(s *spec) {
				*s = spec{VIPs: []v1.VIPAddress{{IP: "10.2.0.10", SubnetID: vips4}}, Listeners: s.Listeners}
				s.Listeners[0].AffinitySeconds = new(int32(10800))
			},
			want: []string{
				"create load balancer shop/web at 10.2.0.10", "delete load balancer (the Service no longer has the address 10.2.0.99)",
			},
		},
		{
			name: "likewise another port",
			after: func(s *spec) {
				s.Listeners = append(s.Listeners, port("TCP", 81, 2))
				s.Listeners[1].AffinitySeconds = new(int32(10800))
			},
			want: []string{"create listener shop/web:TCP:81"},
		},
		{
			name:  "endpoints come and go in one request",
			after: func(s *spec) { s.Listeners[0] = port("TCP", 80, 2, 3, 4) },
			want:  []string{"change members of pool shop/web:TCP:80: add 2, remove 1"},
		},
		{
			name:   "the port that has fewest endpoints gets some first",
			before: func(s *spec) { s.Listeners = append(s.Listeners, port("TCP", 81)) },
			after:  func(s *spec) { s.Listeners = []v1.ListenerSpec{port("TCP", 80, 2, 3, 4), port("TCP", 81, 2, 3, 4)} },
			want:   []string{"change members of pool shop/web:TCP:81: add 3, remove 0", "change members of pool shop/web:TCP:80: add 2, remove 1"},
		},
		{
			name:  "all endpoints go",
			after: func(s *spec) { s.Listeners[0].Members = nil },
			want:  []string{"change members of pool shop/web:TCP:80: add 0, remove 2"},
		},
		{
			name:  "an address goes to another pod",
			after: func(s *spec) { s.Listeners[0].Members[0].Name = "shop/other" },
			want:  []string{"change members of pool shop/web:TCP:80: add 1, remove 0"},
		},
		{
			name:  "a member is reached by another subnet",
			after: func(s *spec) { s.Listeners[0].Members[0].SubnetID = "pods-2" },
			cloud: func(c *memory.Cloud) {
				c.AddSubnet(memory.Subnet{ID: "pods-2", NetworkID: "n", Prefix: prefix("10.1.0.0/17")})
			},
			want: []string{"change members of pool shop/web:TCP:80: add 0, remove 1", "change members of pool shop/web:TCP:80: add 1, remove 0"},
		},
		{
			name:  "another port number",
			after: func(s *spec) { s.Listeners[0].Port = 8081 },
			want:  []string{"delete listener (the Service no longer has its port)", "create listener shop/web:TCP:8081"},
		},
		{
			name:  "another name of a port",
			after: func(s *spec) { s.Listeners[0].Name = "http" },
		},
		{
			name:  "another protocol, where a port can have two",
			after: func(s *spec) { s.Listeners[0].Protocol = "UDP" },
			want:  []string{"delete listener (the Service no longer has its port)", "create listener shop/web:UDP:80"},
		},
		{
			name: "another protocol, where a port has one",
			cloud: func(c *memory.Cloud) {
				c.SetProvider(memory.Provider{Features: sdn.Features{Provider: "ovn", Protocols: []string{"TCP", "UDP"}, FarMembers: true}})
			},
			after: func(s *spec) { s.Listeners[0].Protocol = "UDP" },
			want:  []string{"delete listener (the Service has another protocol on its port)", "create listener shop/web:UDP:80"},
		},
		{
			name: "what is not admitted any more goes before anything is added", provider: "amphora",
			before: func(s *spec) {
				s.SourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24"}
				s.Listeners = append(s.Listeners, port("TCP", 443, 1))
			},
			after: func(s *spec) {
				s.SourceRanges = s.SourceRanges[:1]
				s.Listeners = []v1.ListenerSpec{port("TCP", 80, 2), port("TCP", 8443, 1)}
			},
			want: []string{
				"delete listener (the Service no longer has its port)", "update listener shop/web:TCP:80",
				"change members of pool shop/web:TCP:80: add 0, remove 1",
				// The load balancer is busy after the listener.
				"create listener shop/web:TCP:8443", "create pool shop/web:TCP:8443",
			},
		},
		{
			name: "endpoints before what is no matter of who comes in", provider: "amphora",
			after: func(s *spec) {
				s.Listeners[0] = port("TCP", 80, 2, 3)
				s.Listeners[0].TimeoutClientData = new(int64(70000))
			},
			want: []string{"change members of pool shop/web:TCP:80: add 1, remove 1", "update listener shop/web:TCP:80"},
		},
		{
			name:  "a port more",
			after: func(s *spec) { s.Listeners = append(s.Listeners, port("TCP", 443, 1)) },
			want:  []string{"create listener shop/web:TCP:443"},
		},
		{
			name:  "affinity",
			after: func(s *spec) { s.Listeners[0].AffinitySeconds = new(int32(10800)) },
			want:  []string{"update pool shop/web:TCP:80"},
		},
		{
			name: "another time of affinity", provider: "amphora",
			before: func(s *spec) { s.Listeners[0].Protocol, s.Listeners[0].AffinitySeconds = "UDP", new(int32(10800)) },
			after:  func(s *spec) { s.Listeners[0].AffinitySeconds = new(int32(60)) },
			want:   []string{"update pool shop/web:UDP:80"},
		},
		{
			name: "another time of affinity of TCP, which nobody can be told", provider: "amphora",
			before: func(s *spec) { s.Listeners[0].AffinitySeconds = new(int32(10800)) },
			after:  func(s *spec) { s.Listeners[0].AffinitySeconds = new(int32(60)) },
		},
		{
			name: "another way to balance", provider: "amphora",
			after: func(s *spec) { s.Listeners[0].Algorithm = "LEAST_CONNECTIONS" },
			want:  []string{"update pool shop/web:TCP:80"},
		},
		{
			name: "as the provider likes", provider: "amphora",
			before: func(s *spec) { s.Listeners[0].Algorithm = "LEAST_CONNECTIONS" },
			after:  func(s *spec) { s.Listeners[0].Algorithm = "" },
			want:   []string{"update pool shop/web:TCP:80"},
		},
		{
			name:  "another way to balance, which the provider does not know",
			after: func(s *spec) { s.Listeners[0].Algorithm = "LEAST_CONNECTIONS" },
		},
		{
			name:   "another time of affinity, where it has no effect",
			before: func(s *spec) { s.Listeners[0].AffinitySeconds = new(int32(10800)) },
			after:  func(s *spec) { s.Listeners[0].AffinitySeconds = new(int32(60)) },
		},
		{
			name: "affinity no longer", provider: "amphora",
			before: func(s *spec) { s.Listeners[0].AffinitySeconds = new(int32(10800)) },
			after:  func(s *spec) { s.Listeners[0].AffinitySeconds = nil },
			want:   []string{"update pool shop/web:TCP:80"},
		},
		{
			name:  "a monitor comes",
			after: func(s *spec) { s.Listeners[0].Monitor = monitor("TCP", 5) },
			want:  []string{"update pool shop/web:TCP:80"},
		},
		{
			name:   "a monitor changes",
			before: func(s *spec) { s.Listeners[0].Monitor = monitor("TCP", 5) },
			after:  func(s *spec) { s.Listeners[0].Monitor = monitor("TCP", 7) },
			want:   []string{"update pool shop/web:TCP:80"},
		},
		{
			name:   "a monitor goes",
			before: func(s *spec) { s.Listeners[0].Monitor = monitor("TCP", 5) },
			after:  func(s *spec) { s.Listeners[0].Monitor = nil },
			want:   []string{"update pool shop/web:TCP:80"},
		},
		{
			name:  "timeouts",
			after: func(s *spec) { s.Listeners[0].TimeoutClientData = new(int64(70000)) },
			want:  []string{"update listener shop/web:TCP:80"},
		},
		{
			name:  "timeouts as they are anyhow",
			after: func(s *spec) { s.Listeners[0].TimeoutClientData = new(int64(50000)) },
		},
		{
			name:   "timeouts no longer",
			before: func(s *spec) { s.Listeners[0].TimeoutMemberData = new(int64(70000)) },
			after:  func(s *spec) { s.Listeners[0].TimeoutMemberData = nil },
			want:   []string{"update listener shop/web:TCP:80"},
		},
		{
			name: "source ranges close before anything opens", provider: "amphora",
			after: func(s *spec) {
				s.SourceRanges = []string{"192.0.2.0/24", "2001:db8::/32"}
				s.Listeners[0].Members = append(s.Listeners[0].Members, member(7))
			},
			want: []string{"update listener shop/web:TCP:80", "change members of pool shop/web:TCP:80: add 1, remove 0"},
		},
		{
			name: "the PROXY protocol needs another pool", provider: "amphora",
			after: func(s *spec) { s.Listeners[0].ProxyProtocol = "PROXYV2" },
			// The pool is deleted first, and then the load balancer is busy: the listener gets
			// another pool.
			want: []string{"delete listener (the protocol of its pool changes to PROXYV2)", "create pool shop/web:TCP:80"},
		},
		{
			name:  "another VIP is there before the old one goes",
			after: func(s *spec) { s.VIPs[0].IP = "10.2.0.11" },
			want: []string{
				"create load balancer shop/web at 10.2.0.11", "delete load balancer (the Service no longer has the address 10.2.0.10)",
			},
		},
		{
			name:  "a second family",
			after: func(s *spec) { s.VIPs = append(s.VIPs, v1.VIPAddress{IP: "fd00:2::10", SubnetID: vips6}) },
			want:  []string{"create load balancer shop/web/fd00:2::10 at fd00:2::10"},
		},
		{
			name:  "another provider has to have the address",
			after: func(s *spec) { s.Provider = "amphora" },
			want: []string{
				`delete load balancer (its provider is "ovn" and should be "amphora")`, "create load balancer shop/web at 10.2.0.10",
			},
		},
		{
			name: "no provider is any", provider: "amphora",
			after: func(s *spec) { s.Provider = "" },
		},
		{
			name: "another flavor is for new ones", provider: "amphora",
			after: func(s *spec) { s.FlavorID = "big" },
		},
		{
			name:  "another project is for new ones",
			after: func(s *spec) { s.ProjectID = "other" },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			if tc.cloud != nil {
				tc.cloud(w.cloud)
			}
			w.klb.Spec.Provider = tc.provider
			w.klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80, 1, 2)}
			if tc.before != nil {
				tc.before(&w.klb.Spec)
			}
			w.settle()
			w.did = nil
			tc.after(&w.klb.Spec)
			w.settle()
			if diff := cmp.Diff(tc.want, withoutIDs(w.did)); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKept: what only a new load balancer could have is reported.
func TestKept(t *testing.T) {
	w := newWorld(t)
	w.klb.Spec.FlavorID = "5F1C5AAC-0000-4000-8000-00000000000B"
	w.settle()
	w.klb.Spec.FlavorID = "5f1c5aac-0000-4000-8000-00000000000b"
	if _, _, p, _ := w.plan(); len(p.Kept) > 0 {
		t.Errorf("kept %v although nothing has changed", p.Kept)
	}
	w.klb.Spec.FlavorID, w.klb.Spec.ProjectID, w.klb.Spec.AvailabilityZone = "big", "p", "az"
	_, _, p, err := w.plan()
	if err != nil || !atRest(&p) {
		t.Fatalf("plan %+v, error %v, want none", p, err)
	}
	said := keptText(p.Kept)
	for _, word := range []string{`project "" instead of "p"`, `flavor "5F1C5AAC-0000-4000-8000-00000000000B" instead of "big"`, `availabilityZone "" instead of "az"`} {
		if !strings.Contains(said, word) {
			t.Errorf("kept %q, want it to say %q", said, word)
		}
	}
}

// TestMoves: a change of the provider is recognised as such, until it has begun.
func TestMoves(t *testing.T) {
	at := func(ip, subnet, provider string) sdn.LoadBalancer {
		return sdn.LoadBalancer{ID: ip + provider, VIP: v1.VIPAddress{IP: ip, SubnetID: subnet}, Provider: provider, Provisioning: sdn.ProvisioningActive}
	}
	four, six := at("10.2.0.10", vips4, "ovn"), at("fd00:2::10", vips6, "ovn")
	broken := four
	broken.Provisioning = sdn.ProvisioningError
	for _, tc := range []struct {
		name, provider string
		have           []sdn.LoadBalancer
		want           string
	}{
		{"another", "amphora", []sdn.LoadBalancer{four, six}, "ovn"},
		{"the same", "ovn", []sdn.LoadBalancer{four, six}, ""},
		{"in capitals", "OVN", []sdn.LoadBalancer{four, six}, ""},
		{"any", "", []sdn.LoadBalancer{four, six}, ""},
		{"new", "amphora", nil, ""},
		{"one has gone", "amphora", []sdn.LoadBalancer{six}, ""},
		{"one has been made", "amphora", []sdn.LoadBalancer{at("10.2.0.10", vips4, "octavia"), six}, ""},
		{"broken", "amphora", []sdn.LoadBalancer{broken, six}, ""},
	} {
		klb := newWorld(t).klb
		klb.Spec.VIPs = append(klb.Spec.VIPs, v1.VIPAddress{IP: "fd00:2::10", SubnetID: vips6})
		klb.Spec.Provider = tc.provider
		if got := balancer.Moves(klb, tc.have, nil); got != tc.want {
			t.Errorf("%s: Moves = %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestOneIDInTwoForms: clouds return IDs in their own form, and people write them in theirs.
// Nothing is made anew because of that.
func TestOneIDInTwoForms(t *testing.T) {
	const subnet = "5f1c5aac-0000-4000-8000-00000000000b"
	w := newWorld(t)
	w.cloud.AddSubnet(memory.Subnet{ID: subnet, NetworkID: "n", Prefix: prefix("10.3.0.0/24")})
	w.klb.Spec.VIPs[0] = v1.VIPAddress{IP: "10.3.0.10", SubnetID: subnet}
	w.klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80, 1)}
	w.klb.Spec.Listeners[0].Members[0] = v1.MemberSpec{IP: "10.3.0.20", Port: 80, SubnetID: subnet}
	w.settle()
	for _, form := range []string{strings.ToUpper(subnet), strings.ReplaceAll(subnet, "-", "")} {
		w.klb.Spec.VIPs[0].SubnetID, w.klb.Spec.Listeners[0].Members[0].SubnetID = form, form
		want, have, p, err := w.plan()
		if err != nil || !atRest(&p) {
			t.Errorf("as %s: plan %+v, error %v, want none", form, p, err)
		}
		if s := balancer.Status(have, w.klb.Spec.VIPs); !balancer.Covers(&s, want, false) {
			t.Errorf("as %s the status does not cover what is wanted", form)
		}
	}
	w.klb.Spec.VIPs[0].SubnetID = "5f1c5aac-0000-4000-8000-00000000000c"
	if _, _, p, _ := w.plan(); atRest(&p) {
		t.Error("another subnet makes no difference")
	}
}

// withoutIDs removes the IDs of the memory backend from steps. It also removes steps that were
// repeated because the load balancer was busy.
func withoutIDs(steps []string) []string {
	var out []string
	for _, s := range steps {
		var words []string
		for w := range strings.FieldsSeq(s) {
			w, colon := strings.CutSuffix(w, ":")
			if isID(w) {
				if colon {
					words[len(words)-1] += ":"
				}
				continue
			}
			if colon {
				w += ":"
			}
			words = append(words, w)
		}
		s = strings.Join(words, " ")
		if len(out) == 0 || out[len(out)-1] != s {
			out = append(out, s)
		}
	}
	return out
}

func isID(s string) bool { return len(s) == 36 && strings.Count(s, "-") == 4 }
