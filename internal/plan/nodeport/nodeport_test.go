// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nodeport_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// svc is a Service of type NodePort with a port: web/name, 80 at 10.96.0.10, node
// port 30080, unless the options say otherwise.
func svc(name string, options ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
		},
	}
	for _, o := range options {
		o(s)
	}
	return s
}

func of(t corev1.ServiceType) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Type = t }
}

func at(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = ips[0], ips }
}

func external(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ExternalIPs = ips }
}

func ports(ports ...corev1.ServicePort) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports = ports }
}

func born(second int) func(*corev1.Service) {
	return func(s *corev1.Service) { s.CreationTimestamp = metav1.Unix(int64(1e9+second), 0) }
}

func labelled(label string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Labels[label] = "" }
}

// lines is a plan as people read it, in order.
func lines(w nodeport.Wanted) []string {
	var all []string
	for f, b := range w.Table {
		line := fmt.Sprintf("%s %s %d -> %s (%s)", f.Address, f.Protocol, f.Port, b.AddrPort, b.For)
		if f.Host {
			line += " host"
		}
		all = append(all, line)
	}
	slices.Sort(all)
	for _, c := range w.Checks {
		all = append(all, fmt.Sprintf("check %d %s", c.Port, c.Service))
	}
	for _, c := range w.Conflicts {
		all = append(all, fmt.Sprintf("conflict %s %s %d: %s has it, not %s", c.Address, c.Protocol, c.Port, c.Holder, c.For))
	}
	return all
}

func TestPlan(t *testing.T) {
	class := func(c string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &c }
	}
	checked := func(s *corev1.Service) {
		s.Spec.HealthCheckNodePort, s.Spec.ExternalTrafficPolicy = 31999, corev1.ServiceExternalTrafficPolicyLocal
	}
	for name, c := range map[string]struct {
		services []*corev1.Service
		want     []string
	}{
		"nothing":   {nil, nil},
		"node port": {[]*corev1.Service{svc("a")}, []string{"0.0.0.0 TCP 30080 -> 10.96.0.10:80 (web/a)"}},
		"several ports, named": {
			[]*corev1.Service{svc("a", ports(
				corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, NodePort: 30053},
				corev1.ServicePort{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53, NodePort: 30053},
				corev1.ServicePort{Name: "sctp", Protocol: corev1.ProtocolSCTP, Port: 99, NodePort: 30099},
			))},
			[]string{
				"0.0.0.0 SCTP 30099 -> 10.96.0.10:99 (web/a:sctp)",
				"0.0.0.0 TCP 30053 -> 10.96.0.10:53 (web/a:dns-tcp)",
				"0.0.0.0 UDP 30053 -> 10.96.0.10:53 (web/a:dns)",
			},
		},
		"dual stack": {
			[]*corev1.Service{svc("a", at("10.96.0.10", "fd96::10"), external("203.0.113.5", "2001:db8::5"))},
			[]string{
				"0.0.0.0 TCP 30080 -> 10.96.0.10:80 (web/a)", "2001:db8::5 TCP 80 -> [fd96::10]:80 (web/a)",
				"203.0.113.5 TCP 80 -> 10.96.0.10:80 (web/a)", ":: TCP 30080 -> [fd96::10]:80 (web/a)",
			},
		},
		"load balancer":                     {[]*corev1.Service{svc("a", of(corev1.ServiceTypeLoadBalancer))}, []string{"0.0.0.0 TCP 30080 -> 10.96.0.10:80 (web/a)"}},
		"without node ports":                {[]*corev1.Service{svc("a", of(corev1.ServiceTypeLoadBalancer), ports(corev1.ServicePort{Port: 80}))}, nil},
		"cluster IP alone":                  {[]*corev1.Service{svc("a", of(corev1.ServiceTypeClusterIP))}, nil},
		"external IP of a cluster IP":       {[]*corev1.Service{svc("a", of(corev1.ServiceTypeClusterIP), external("203.0.113.5"))}, []string{"203.0.113.5 TCP 80 -> 10.96.0.10:80 (web/a)"}},
		"external IP of the other family":   {[]*corev1.Service{svc("a", of(corev1.ServiceTypeClusterIP), external("2001:db8::5"))}, nil},
		"external IP with zeros, and twice": {[]*corev1.Service{svc("a", of(corev1.ServiceTypeClusterIP), external("203.000.113.05", "203.0.113.5"))}, []string{"203.0.113.5 TCP 80 -> 10.96.0.10:80 (web/a)"}},
		"addresses that are not outside": {
			[]*corev1.Service{
				svc("a", of(corev1.ServiceTypeClusterIP), external("127.0.0.1", "0.0.0.0", "169.254.169.254", "224.0.0.1", "nonsense", "10.96.0.11")),
				svc("b", of(corev1.ServiceTypeClusterIP), at("10.96.0.11")),
			},
			nil,
		},
		"cluster IPs of Services that are left to others": {
			[]*corev1.Service{
				svc("a", of(corev1.ServiceTypeClusterIP), external("10.96.0.11", "10.96.0.12", "203.0.113.5")),
				svc("dns", at("10.96.0.11"), labelled("kuryr.openstack.org/leave-alone")),
				svc("theirs", at("10.96.0.12"), labelled("service.kubernetes.io/service-proxy-name")),
			},
			[]string{"203.0.113.5 TCP 80 -> 10.96.0.10:80 (web/a)"},
		},
		"headless":      {[]*corev1.Service{svc("a", at("None"), external("203.0.113.5"))}, nil},
		"external name": {[]*corev1.Service{svc("a", of(corev1.ServiceTypeExternalName), external("203.0.113.5"))}, nil},
		"somebody else's": {
			[]*corev1.Service{
				svc("a", labelled("service.kubernetes.io/service-proxy-name")), svc("b", labelled("service.kubernetes.io/headless")),
			},
			nil,
		},
		"somebody else's to make public": {
			[]*corev1.Service{svc("c", of(corev1.ServiceTypeLoadBalancer), class("example.com/other"), checked)},
			[]string{"0.0.0.0 TCP 30080 -> 10.96.0.10:80 (web/c)", "check 31999 web/c"},
		},
		"our class": {[]*corev1.Service{svc("a", of(corev1.ServiceTypeLoadBalancer), class("openstack.org/kuryr"))}, []string{"0.0.0.0 TCP 30080 -> 10.96.0.10:80 (web/a)"}},
		"no cluster IP yet, or none that makes sense": {[]*corev1.Service{svc("a", at("")), svc("b", at("zebra"))}, nil},
		"health check": {
			[]*corev1.Service{svc("a", of(corev1.ServiceTypeLoadBalancer), checked)},
			[]string{"0.0.0.0 TCP 30080 -> 10.96.0.10:80 (web/a)", "check 31999 web/a"},
		},
		"health check of no load balancer": {[]*corev1.Service{svc("a", checked)}, []string{"0.0.0.0 TCP 30080 -> 10.96.0.10:80 (web/a)"}},
		"the oldest has it": {
			[]*corev1.Service{
				svc("young", at("10.96.0.11"), born(2), external("203.0.113.5")),
				svc("old", born(1), external("203.0.113.5"), ports(corev1.ServicePort{Name: "http", Port: 80, NodePort: 30081})),
			},
			[]string{
				"0.0.0.0 TCP 30080 -> 10.96.0.11:80 (web/young)", "0.0.0.0 TCP 30081 -> 10.96.0.10:80 (web/old:http)",
				"203.0.113.5 TCP 80 -> 10.96.0.10:80 (web/old:http)",
				"conflict 203.0.113.5 TCP 80: web/old:http has it, not web/young",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, lines(nodeport.Plan(c.services, nil, nodeport.APIServers{}))); d != "" {
				t.Errorf("Plan() (-want +got):\n%s", d)
			}
		})
	}
}

// Whatever order a cache lists Services in, the plan is the same, and the cache's
// objects are as they were.
func TestPlanDoesNotDependOnOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []*corev1.Service
	for i := range 40 {
		all = append(all, svc(fmt.Sprint("s", i), at(fmt.Sprintf("10.96.0.%d", 1+i%20)), born(i%3), external(fmt.Sprintf("203.0.113.%d", i%7)),
			ports(corev1.ServicePort{Port: int32(80 + i%2), NodePort: int32(30000 + i%15)})))
	}
	want := strings.Join(lines(nodeport.Plan(all, nil, nodeport.APIServers{})), "\n")
	first := all[0].DeepCopy()
	for range 50 {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if got := strings.Join(lines(nodeport.Plan(all, nil, nodeport.APIServers{})), "\n"); got != want {
			t.Fatalf("Plan() in another order:\n%s\nwant\n%s", got, want)
		}
	}
	i := slices.IndexFunc(all, func(s *corev1.Service) bool { return s.Name == first.Name })
	if d := cmp.Diff(first, all[i]); d != "" {
		t.Errorf("Plan() changed a Service (-was +is):\n%s", d)
	}
}

func TestLocal(t *testing.T) {
	yes, no, here, there := true, false, "here", "there"
	slice := func(family discoveryv1.AddressType, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{AddressType: family, Endpoints: endpoints}
	}
	endpoint := func(ip string, node *string, ready *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: node, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	}
	for name, c := range map[string]struct {
		slices []*discoveryv1.EndpointSlice
		want   int
	}{
		"none":       {nil, 0},
		"elsewhere":  {[]*discoveryv1.EndpointSlice{slice("IPv4", endpoint("10.0.0.1", &there, &yes), endpoint("10.0.0.2", nil, &yes))}, 0},
		"not ready":  {[]*discoveryv1.EndpointSlice{slice("IPv4", endpoint("10.0.0.1", &here, &no))}, 0},
		"two":        {[]*discoveryv1.EndpointSlice{slice("IPv4", endpoint("10.0.0.1", &here, &yes), endpoint("10.0.0.2", &here, nil), endpoint("10.0.0.3", &there, nil))}, 2},
		"in several": {[]*discoveryv1.EndpointSlice{slice("IPv4", endpoint("10.0.0.1", &here, &yes)), slice("IPv4", endpoint("10.0.0.1", &here, &yes))}, 1},
		"dual stack": {[]*discoveryv1.EndpointSlice{slice("IPv4", endpoint("10.0.0.1", &here, &yes)), slice("IPv6", endpoint("fd00::1", &here, &yes))}, 1},
		"no address": {[]*discoveryv1.EndpointSlice{slice("IPv4", discoveryv1.Endpoint{NodeName: &here})}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nodeport.Local(c.slices, here); got != c.want {
				t.Errorf("Local() = %d, want %d", got, c.want)
			}
			for _, s := range c.slices { // what the daemon keeps is enough
				s.Endpoints = nodeport.Keep(s.Endpoints, here)
			}
			if got := nodeport.Local(c.slices, here); got != c.want {
				t.Errorf("Local() of what Keep leaves = %d, want %d", got, c.want)
			}
		})
	}
}

func BenchmarkPlan(b *testing.B) {
	var all []*corev1.Service
	for i := range 1000 {
		all = append(all, svc(fmt.Sprint("s", i), at(fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250)), born(i%7),
			ports(corev1.ServicePort{Port: 80, NodePort: int32(30000 + i)})))
	}
	for b.Loop() {
		nodeport.Plan(all, nil, nodeport.APIServers{})
	}
}
