// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/service"
)

// crowd is a Service with so many ports, and so many endpoints of each. A slice has a hundred
// endpoints, as Kubernetes makes them.
func crowd(ports, endpoints int) service.Input {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "crowd"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"}},
	}
	var named []discoveryv1.EndpointPort
	for i := range ports {
		name := fmt.Sprintf("port-%d", i)
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: name, Port: int32(8000 + i), Protocol: corev1.ProtocolTCP})
		named = append(named, discoveryv1.EndpointPort{Name: &name, Port: new(int32(9000 + i)), Protocol: new(corev1.ProtocolTCP)})
	}
	in := service.Input{Service: svc, Settings: settings(), Known: map[netip.Addr]string{}}
	for i := range endpoints {
		if i%100 == 0 {
			in.Slices = append(in.Slices, &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: named})
		}
		ip := netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(i%250 + 1)})
		in.Known[ip] = "7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11"
		s := in.Slices[len(in.Slices)-1]
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip.String()},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("crowd-7d4b9c6f5d-%05d", i)},
		})
	}
	return in
}

// The plan does not depend on the order of slices and of the endpoints in them.
func TestPlanDoesNotDependOnOrder(t *testing.T) {
	in := crowd(3, 250)
	twice := in.Slices[0].DeepCopy() // as while endpoints move: the two slices may differ in their conditions
	for i := range twice.Endpoints {
		twice.Endpoints[i].Conditions.Ready = new(i%2 == 0)
		in.Slices[0].Endpoints[i].Conditions.Ready = new(i%3 == 0)
		twice.Endpoints[i].TargetRef.Name += "-new"
	}
	in.Slices = append(in.Slices, twice)
	want := service.Plan(in)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, seed))
		r.Shuffle(len(in.Slices), func(i, j int) { in.Slices[i], in.Slices[j] = in.Slices[j], in.Slices[i] })
		for _, s := range in.Slices {
			r.Shuffle(len(s.Endpoints), func(i, j int) { s.Endpoints[i], s.Endpoints[j] = s.Endpoints[j], s.Endpoints[i] })
		}
		if diff := cmp.Diff(want, service.Plan(in)); diff != "" {
			t.Fatalf("seed %d: another plan (-first +now):\n%s", seed, diff)
		}
	}
}

// Members that a KuryrLoadBalancer cannot hold are left out and noted.
func TestBounds(t *testing.T) {
	in := crowd(600, 1)
	in.Service.Spec.Type = corev1.ServiceTypeLoadBalancer
	for i := range 600 {
		in.Service.Spec.LoadBalancerSourceRanges = append(in.Service.Spec.LoadBalancerSourceRanges, fmt.Sprintf("100.%d.%d.0/24", i/250, i%250))
	}
	in.Slices[0].Endpoints[0].TargetRef.Name = strings.Repeat("ä", 1000)
	got := service.Plan(in)
	var noted []string
	for _, n := range got.Notes {
		noted = append(noted, n.Field)
	}
	if want := []string{"spec.loadBalancerSourceRanges", "spec.ports"}; !slices.Equal(noted, want) {
		t.Errorf("notes %v, want of %v", got.Notes, want)
	}
	name := got.Spec.Listeners[0].Members[0].Name
	if l, r := len(got.Spec.Listeners), len(got.Spec.SourceRanges); l != 512 || r != 512 || len(name) > 320 || !utf8.ValidString(name) {
		t.Errorf("%d listeners, %d ranges, a member named %q", l, r, name)
	}
	for _, own := range []string{"10.1.0.0/16", "192.168.5.0/24"} {
		if !slices.Contains(got.Spec.SourceRanges, own) {
			t.Errorf("%s, of the cluster itself, is not let in", own)
		}
	}
}

// objectLimit is etcd's limit for a request. A status has the members once more, with two IDs.
const objectLimit = 3 << 19

func TestLargeServicesFitIntoAnObject(t *testing.T) {
	for _, c := range []struct {
		ports, endpoints int
		all              bool
	}{{1, 1000, true}, {3, 1000, true}, {1, 6000, false}, {5, 5000, false}, {512, 50, false}} {
		t.Run(fmt.Sprintf("%d ports, %d endpoints", c.ports, c.endpoints), func(t *testing.T) {
			got := service.Plan(crowd(c.ports, c.endpoints))
			b := v1.KuryrLoadBalancer{Spec: got.Spec}
			members := 0
			for _, l := range got.Spec.Listeners {
				members += len(l.Members)
				if len(l.Members) == 0 || len(l.Members) > 5000 {
					t.Errorf("port %s has %d members, want 1 to 5000", l.Name, len(l.Members))
				}
				for _, m := range l.Members {
					id := strings.Repeat("0", 36)
					b.Status.Members = append(b.Status.Members, v1.MemberStatus{
						ID: id, PoolID: id, Name: fmt.Sprintf("%s:%d", m.Name, m.Port), IP: m.IP, Port: m.Port, SubnetID: m.SubnetID,
					})
				}
			}
			if all := members == c.ports*c.endpoints; all != c.all || all != (len(got.Notes) == 0) {
				t.Errorf("%d of %d members and notes %v", members, c.ports*c.endpoints, got.Notes)
			}
			data, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d members, %d KiB", members, len(data)>>10)
			if len(data) > objectLimit {
				t.Errorf("the object has %d bytes, want at most %d", len(data), objectLimit)
			}
		})
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, size := range [][2]int{{3, 50}, {1, 1000}, {3, 1000}} {
		b.Run(fmt.Sprintf("%dports_%dendpoints", size[0], size[1]), func(b *testing.B) {
			in := crowd(size[0], size[1])
			b.ReportAllocs()
			for b.Loop() {
				service.Plan(in)
			}
		})
	}
}

// docs/services.md mentions every annotation.
func TestDocsNameEveryAnnotation(t *testing.T) {
	data, err := os.ReadFile("../../../docs/services.md")
	if err != nil {
		t.Fatal(err)
	}
	names := service.Annotations()
	if len(names) != 34 { // 31 of the cloud provider, 3 of Kuryr's own
		t.Errorf("%d annotations are known, want 34: %v", len(names), names)
	}
	for _, name := range names {
		if !strings.Contains(string(data), "`"+strings.TrimPrefix(name, "loadbalancer.openstack.org/")+"`") {
			t.Errorf("docs/services.md does not name %s", name)
		}
	}
}

// An Event is sent for a note that was not reported yet. Other words for the same note send none.
func TestFreshNotes(t *testing.T) {
	a := service.Note{Reason: service.ReasonInvalid, Field: "spec.a", Text: "x is wrong", Values: "x"}
	words := service.Note{Reason: service.ReasonInvalid, Field: "spec.a", Text: "x cannot be", Values: "x"}
	b := service.Note{Reason: service.ReasonInvalid, Field: "spec.a", Text: "y is wrong", Values: "y"}
	field := service.Note{Reason: service.ReasonInvalid, Field: "spec.b", Text: "x is wrong", Values: "x"}
	out := service.Note{Reason: service.ReasonLeftOut, Field: "endpoints", Text: "10.0.0.1 is nowhere", Values: "10.0.0.1"}
	other := service.Note{Reason: service.ReasonLeftOut, Field: "endpoints", Text: "10.0.0.2 is nowhere", Values: "10.0.0.2"}
	reported := service.IDs([]service.Note{a, out})
	got := service.Fresh([]service.Note{a, words, b, field, out, other}, reported)
	if want := []service.Note{b, field}; !slices.Equal(got, want) {
		t.Errorf("fresh, where %s was reported: %v, want %v", reported, got, want)
	}
	if got := service.Fresh([]service.Note{a}, ""); len(got) != 1 {
		t.Errorf("fresh, where nothing was reported: %v, want the note", got)
	}
}

func TestIngress(t *testing.T) {
	public := &v1.PublicIPSpec{NetworkID: "public"}
	asked := &v1.PublicIPSpec{NetworkID: "public", Address: "203.0.113.7"}
	ready := func(is metav1.ConditionStatus) v1.KuryrLoadBalancerStatus {
		return v1.KuryrLoadBalancerStatus{
			LoadBalancers: []v1.LoadBalancerStatus{{IP: "10.96.0.7"}},
			Conditions:    []metav1.Condition{{Type: v1.ConditionReady, Status: is}},
		}
	}
	settled := ready(metav1.ConditionFalse)
	settled.Conditions = append(settled.Conditions, metav1.Condition{Type: v1.ConditionInSync, Status: metav1.ConditionTrue})
	refused := ready(metav1.ConditionFalse)
	refused.Conditions[0].Reason = v1.ReasonFloatingIPRefused
	vips := []v1.VIPAddress{{IP: "10.96.0.7"}, {IP: "2001:db8::7"}}
	up := []v1.LoadBalancerStatus{{IP: "10.96.0.7"}, {IP: "2001:db8::7"}}
	internal := map[string]string{"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}
	hostname := map[string]string{"loadbalancer.openstack.org/hostname": "www.example.com"}
	for _, c := range []struct {
		name        string
		kind        corev1.ServiceType
		annotations map[string]string
		shown       []string
		public      *v1.PublicIPSpec
		status      v1.KuryrLoadBalancerStatus
		want        string
	}{
		{"of another type", corev1.ServiceTypeClusterIP, nil, []string{"203.0.113.7"}, public, v1.KuryrLoadBalancerStatus{LoadBalancers: up}, ""},
		{"nothing there yet", corev1.ServiceTypeLoadBalancer, nil, nil, public, v1.KuryrLoadBalancerStatus{}, ""},
		{"floating IP, and IPv6 that is routed", corev1.ServiceTypeLoadBalancer, nil, nil, public,
			v1.KuryrLoadBalancerStatus{LoadBalancers: up, PublicIP: &v1.PublicIPStatus{IP: "203.0.113.7"}}, "203.0.113.7 2001:db8::7"},
		{"another floating IP", corev1.ServiceTypeLoadBalancer, nil, []string{"203.0.113.8"}, public,
			v1.KuryrLoadBalancerStatus{PublicIP: &v1.PublicIPStatus{IP: "203.0.113.7"}}, "203.0.113.7"},
		{"a status that somebody has emptied", corev1.ServiceTypeLoadBalancer, nil, []string{"203.0.113.7", "2001:db8::7"}, public,
			v1.KuryrLoadBalancerStatus{}, "203.0.113.7 2001:db8::7"},
		{"withheld, or given to somebody else", corev1.ServiceTypeLoadBalancer, nil, []string{"203.0.113.7"}, public, v1.KuryrLoadBalancerStatus{LoadBalancers: up[:1]}, ""},
		{"withheld, with a host name", corev1.ServiceTypeLoadBalancer, hostname, []string{"203.0.113.7"}, public, v1.KuryrLoadBalancerStatus{LoadBalancers: up[:1]}, ""},
		{"asked for, and somebody else's as yet", corev1.ServiceTypeLoadBalancer, nil, []string{"203.0.113.7", "203.0.113.8"}, asked, ready(metav1.ConditionFalse), "203.0.113.7"},
		{"asked for, and refused", corev1.ServiceTypeLoadBalancer, nil, []string{"203.0.113.7"}, asked, refused, ""},
		{"asked for, and never shown", corev1.ServiceTypeLoadBalancer, nil, nil, asked, ready(metav1.ConditionFalse), ""},
		{"asked for, and withheld, or somebody else's again", corev1.ServiceTypeLoadBalancer, nil, []string{"203.0.113.7"}, asked, settled, ""},
		{"internal no longer", corev1.ServiceTypeLoadBalancer, nil, []string{"10.96.0.7"}, public, v1.KuryrLoadBalancerStatus{LoadBalancers: up[:1]}, ""},
		{"internal", corev1.ServiceTypeLoadBalancer, internal, nil, nil, v1.KuryrLoadBalancerStatus{LoadBalancers: up}, "10.96.0.7 2001:db8::7"},
		{"internal, while it is made", corev1.ServiceTypeLoadBalancer, internal, nil, nil, v1.KuryrLoadBalancerStatus{}, ""},
		{"no floating IP to be had", corev1.ServiceTypeLoadBalancer, nil, nil, nil, v1.KuryrLoadBalancerStatus{LoadBalancers: up[:1]}, ""},
		{"host name", corev1.ServiceTypeLoadBalancer, hostname, nil, public, v1.KuryrLoadBalancerStatus{PublicIP: &v1.PublicIPStatus{IP: "203.0.113.7"}}, "www.example.com"},
		{"host name, before there is an address", corev1.ServiceTypeLoadBalancer, hostname, nil, public, v1.KuryrLoadBalancerStatus{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}, Spec: corev1.ServiceSpec{Type: c.kind}}
			for _, ip := range c.shown {
				svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
			}
			var got []string
			for _, i := range service.Ingress(svc, &v1.KuryrLoadBalancerSpec{VIPs: vips, PublicIP: c.public}, &c.status) {
				got = append(got, i.IP+i.Hostname)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("Ingress: got %v, want %q", got, c.want)
			}
		})
	}
}

// TestKnownSubnetNamed: a Service that names a subnet of the configuration for its endpoints gets no
// address outside that subnet's prefix as a member. Only services.allowed.memberSubnetIDs lets it.
func TestKnownSubnetNamed(t *testing.T) {
	const id, inside, outside = "7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e99", "10.9.0.5", "10.20.0.5"
	named := service.Subnet{ID: id, Prefix: netip.MustParsePrefix("10.9.0.0/16")}
	for _, c := range []struct {
		name   string
		change func(in *service.Input)
		want   []string
	}{
		{"of pods or nodes", func(in *service.Input) { in.Settings.Members = append(in.Settings.Members, named) }, []string{inside}},
		{"of cluster IPs", func(in *service.Input) { in.Settings.Services = append(in.Settings.Services, named) }, []string{inside}},
		{"of the namespace", func(in *service.Input) { in.Namespace.Subnets = []service.Subnet{named} }, []string{inside}},
		{"not shown by the cloud", func(in *service.Input) { in.Settings.Lost = []string{id} }, nil},
		{"in services.allowed", func(in *service.Input) {
			in.Settings.Members = append(in.Settings.Members, named)
			in.Settings.Allowed.MemberSubnetIDs = []string{strings.ToUpper(id)}
		}, []string{inside, outside}},
	} {
		in := crowd(1, 1)
		in.Service.Annotations = map[string]string{"loadbalancer.openstack.org/member-subnet-id": id}
		in.Slices[0].Endpoints = []discoveryv1.Endpoint{{Addresses: []string{inside}}, {Addresses: []string{outside}}}
		c.change(&in)
		o := service.Plan(in)
		var got []string
		for _, m := range o.Spec.Listeners[0].Members {
			got = append(got, m.IP)
		}
		if !slices.Equal(got, c.want) || slices.Contains(got, outside) != (len(o.Notes) == 0) {
			t.Errorf("Plan of a Service that names a subnet %s: members %v and notes %v, want members %v, and a note if one is left out", c.name, got, o.Notes, c.want)
		}
	}
}

// TestIngressMode: with the PROXY protocol each address is of mode Proxy, so that no service proxy
// bypasses the load balancer. The planned listeners decide, not the annotation's spelling.
func TestIngressMode(t *testing.T) {
	for _, c := range []struct {
		annotation string
		internal   bool
		want       corev1.LoadBalancerIPMode
	}{
		{"", false, corev1.LoadBalancerIPModeVIP},
		{"false", false, corev1.LoadBalancerIPModeVIP},
		{"no such version", false, corev1.LoadBalancerIPModeVIP},
		{"true", false, corev1.LoadBalancerIPModeProxy},
		{"v2", false, corev1.LoadBalancerIPModeProxy},
		{"v1", true, corev1.LoadBalancerIPModeProxy},
	} {
		in := crowd(2, 1)
		in.Service.Spec.Type = corev1.ServiceTypeLoadBalancer
		in.Service.Spec.Ports[0].Protocol = corev1.ProtocolUDP // another port has the PROXY protocol
		in.Service.Annotations = map[string]string{"loadbalancer.openstack.org/proxy-protocol": c.annotation}
		status := v1.KuryrLoadBalancerStatus{PublicIP: &v1.PublicIPStatus{IP: "203.0.113.7"}, LoadBalancers: []v1.LoadBalancerStatus{{IP: "10.96.0.7"}}}
		if c.internal {
			in.Service.Annotations["service.beta.kubernetes.io/openstack-internal-load-balancer"] = "true"
			status.PublicIP = nil
		}
		spec := service.Plan(in).Spec
		got := service.Ingress(in.Service, &spec, &status)
		if len(got) != 1 || got[0].IPMode == nil || *got[0].IPMode != c.want {
			t.Errorf("Ingress with proxy-protocol %q, internal %t: got %+v, want one address of mode %s", c.annotation, c.internal, got, c.want)
		}
	}
}

// FuzzAnnotations: whatever an annotation contains, the plan fits into a KuryrLoadBalancer. Ranges
// never open what they should close. Anything that looks like an annotation for load balancers has
// an effect or a note.
func FuzzAnnotations(f *testing.F) {
	for _, seed := range [][2]string{
		{"loadbalancer.openstack.org/connection-limit", "10"}, {"loadbalancer.openstack.org/health-monitor-delay", "1"},
		{"service.beta.kubernetes.io/load-balancer-source-ranges", "192.0.2.0/24,0.0.0.0/0,::/0"},
		{"loadbalancer.openstack.org/load-balancer-address", "203.0.113.7"}, {"openstack.org/kuryr-timeout-client-data", "31536000001"},
		{"loadbalancer.openstack.org/hostname", "a..b"}, {"loadbalancers.openstack.org/class", "\xff"}, {"openstack.org/kuryr-provider", "ovn"},
		{"service.beta.kubernetes.io/openstack-internal-load-balancer", "ja"}, {"loadbalancer.openstack.org/lb-method", "source_ip"},
		{"loadbalancer.openstack.org/floating-network-id", "7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11"}, {"loadbalancer.openstack.org/proxy-protocol", "V2"},
	} {
		f.Add(seed[0], seed[1], true)
	}
	f.Fuzz(func(t *testing.T, name, value string, checked bool) {
		in := crowd(2, 3)
		in.Service.Spec.Type = corev1.ServiceTypeLoadBalancer
		in.Service.Annotations = map[string]string{name: value}
		if checked {
			in.Service.Annotations["loadbalancer.openstack.org/enable-health-monitor"] = "true"
		}
		got := service.Plan(in)
		if got.Verdict != service.Realise {
			t.Fatalf("Plan: %s", got.Verdict)
		}
		valid(t, &got.Spec)
		for _, n := range got.Notes {
			if n.Reason == "" || n.Field == "" || n.Text == "" || len(n.Text) > 900 {
				t.Errorf("a note that says nothing, or too much: %+v", n)
			}
		}
		open := strings.Contains(value, "/0") || strings.TrimSpace(value) == ""
		if name == "service.beta.kubernetes.io/load-balancer-source-ranges" && len(got.Spec.SourceRanges) == 0 && !open {
			t.Errorf("ranges %q let everybody in", value)
		}
		in.Service.Annotations = maps(in.Service.Annotations, name)
		if without := service.Plan(in); strings.HasPrefix(name, "loadbalancer.openstack.org/") && got.Notes == nil && strings.TrimSpace(value) != "" &&
			cmp.Equal(got.Spec, without.Spec) && !silent(name, value) {
			t.Errorf("%s: %q has neither an effect nor a note", name, value)
		}
	})
}

// maps returns annotations without name.
func maps(annotations map[string]string, name string) map[string]string {
	out := map[string]string{}
	for k, v := range annotations {
		if k != name {
			out[k] = v
		}
	}
	return out
}

// silent reports whether an annotation requests the default, or shows elsewhere than in the spec.
func silent(name, value string) bool {
	value = strings.ToLower(strings.TrimSpace(value))
	off := slices.Contains([]string{"false", "f", "0", "-1", "+0", "-0", "00"}, value) || strings.Trim(value, "+-0") == ""
	same := slices.Contains([]string{"5", "3", "1"}, strings.TrimLeft(value, "+0")) || value == "services" || value == "true" || value == "t"
	return off || same || strings.HasSuffix(name, "/hostname") || strings.HasSuffix(name, "/member-subnet-id")
}

// valid checks what the API server would check.
func valid(t *testing.T, s *v1.KuryrLoadBalancerSpec) {
	t.Helper()
	for _, r := range s.SourceRanges {
		if p, err := netip.ParsePrefix(r); err != nil || p.Masked() != p || p.String() != r || p.Addr().Is4In6() {
			t.Errorf("range %q", r)
		}
	}
	if ip := s.PublicIP; ip != nil && (ip.NetworkID == "" || len(ip.NetworkID) > 64 || len(ip.SubnetID) > 64 || ip.Address != "" && !netip.MustParseAddr(ip.Address).Is4()) {
		t.Errorf("floating IP %+v", ip)
	}
	if len(s.Provider) > 255 || len(s.FlavorID) > 64 || len(s.AvailabilityZone) > 255 {
		t.Errorf("placement %+v", s)
	}
	for _, l := range s.Listeners {
		for _, ms := range []*int64{l.TimeoutClientData, l.TimeoutMemberData, l.TimeoutMemberConnect, l.TimeoutTCPInspect} {
			if ms != nil && (*ms < 0 || *ms > 31536000000) {
				t.Errorf("timeout %d", *ms)
			}
		}
		if l.ConnectionLimit != nil && *l.ConnectionLimit < 1 || !slices.Contains([]string{"", "PROXY", "PROXYV2"}, l.ProxyProtocol) ||
			!slices.Contains([]string{"", "ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"}, l.Algorithm) {
			t.Errorf("listener %+v", l)
		}
		if m := l.Monitor; m != nil && (m.Timeout >= m.Delay || m.Timeout < 1 || m.Delay > 86400 || m.MaxRetries < 1 || m.MaxRetries > 10 || m.MaxRetriesDown < 1 || m.MaxRetriesDown > 10) {
			t.Errorf("monitor %+v", m)
		}
	}
}
