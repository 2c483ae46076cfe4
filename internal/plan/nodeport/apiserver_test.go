// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nodeport_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

func api(s *corev1.Service) {
	s.Namespace, s.Name, s.Spec.Type = "default", "kubernetes", corev1.ServiceTypeClusterIP
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.1", []string{"10.96.0.1"}
	s.Spec.Ports = []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}}
}

func apiSlice(ips ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: new("https"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(6443))}}}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s
}

func TestAPIServers(t *testing.T) {
	unready := apiSlice("192.0.2.1", "192.0.2.2")
	unready.Endpoints[0].Conditions.Ready = new(false)
	other := apiSlice("192.0.2.1")
	other.Ports[0].Name = new("http")
	public := func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30443 }
	both := func(s *corev1.Service) { s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "fd96::1") }
	for name, c := range map[string]struct {
		service *corev1.Service
		slices  []*discoveryv1.EndpointSlice
		want    []string
		// forwards: others' traffic, too
		forwards bool
	}{
		"one":             {svc("", api), []*discoveryv1.EndpointSlice{apiSlice("192.0.2.1")}, []string{"10.96.0.1 TCP 443 -> 192.0.2.1:6443 (default/kubernetes)"}, false},
		"none known":      {svc("", api), nil, nil, false},
		"not ready":       {svc("", api), []*discoveryv1.EndpointSlice{unready}, []string{"10.96.0.1 TCP 443 -> 192.0.2.2:6443 (default/kubernetes)"}, false},
		"another port":    {svc("", api, both), []*discoveryv1.EndpointSlice{other}, nil, false},
		"loopback":        {svc("", api), []*discoveryv1.EndpointSlice{apiSlice("127.0.0.1")}, nil, false},
		"left alone":      {svc("", api, labelled("kuryr.openstack.org/leave-alone")), []*discoveryv1.EndpointSlice{apiSlice("192.0.2.1")}, nil, false},
		"another Service": {svc("a", of(corev1.ServiceTypeClusterIP)), []*discoveryv1.EndpointSlice{apiSlice("192.0.2.1")}, nil, false},
		"nonsense":        {svc("", api), []*discoveryv1.EndpointSlice{apiSlice("zebra"), {}, apiSlice()}, nil, false},
		"with a node port": {svc("", api, public), []*discoveryv1.EndpointSlice{apiSlice("192.0.2.1")}, []string{
			"0.0.0.0 TCP 30443 -> 10.96.0.1:443 (default/kubernetes:https)", "10.96.0.1 TCP 443 -> 192.0.2.1:6443 (default/kubernetes)",
		}, true},
		"each family by itself": {svc("", api, both), []*discoveryv1.EndpointSlice{apiSlice("192.0.2.1"), apiSlice("fd01::1")}, []string{
			"10.96.0.1 TCP 443 -> 192.0.2.1:6443 (default/kubernetes)", "fd96::1 TCP 443 -> [fd01::1]:6443 (default/kubernetes)",
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := nodeport.Plan([]*corev1.Service{c.service}, nil, nodeport.APIServers{Node: "n1", Slices: c.slices})
			if d := cmp.Diff(c.want, lines(got)); d != "" {
				t.Errorf("Plan() (-want +got):\n%s", d)
			}
			if got.Table.Forwards() != c.forwards {
				t.Errorf("Forwards() = %v", !c.forwards)
			}
		})
	}
}

// A daemon that finds the API by the Service leaves that as it is.
func TestAPIServersByTheService(t *testing.T) {
	for by, want := range map[string]int{"10.96.0.1": 0, "fd96::1": 0, "192.0.2.1": 1} {
		both := func(s *corev1.Service) { s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "fd96::1") }
		got := nodeport.Plan([]*corev1.Service{svc("", api, both)}, nil, nodeport.APIServers{
			Node: "n1", Slices: []*discoveryv1.EndpointSlice{apiSlice("192.0.2.1")}, By: netip.MustParseAddr(by),
		})
		if len(got.Table) != want {
			t.Errorf("by %s: %q, want %d", by, lines(got), want)
		}
	}
}

// Nodes are spread over the servers; one that goes takes only its own nodes elsewhere.
func TestAPIServersAreSpread(t *testing.T) {
	const nodes = 300
	chosen := func(node string, servers ...string) string {
		got := lines(nodeport.Plan([]*corev1.Service{svc("", api)}, nil, nodeport.APIServers{Node: node, Slices: []*discoveryv1.EndpointSlice{apiSlice(servers...)}}))
		if len(got) != 1 {
			t.Fatalf("Plan() = %q, want one line", got)
		}
		return got[0]
	}
	count := map[string]int{}
	for i := range nodes {
		node := fmt.Sprintf("n%d", i)
		before, after := chosen(node, "192.0.2.1", "192.0.2.2", "192.0.2.3"), chosen(node, "192.0.2.3", "192.0.2.1")
		count[before]++
		if gone := chosen(node, "192.0.2.2"); before != after && before != gone {
			t.Errorf("%s went from %s to %s although the former is still there", node, before, after)
		}
	}
	for server, n := range count {
		if n < nodes/5 {
			t.Errorf("%s has %d of %d nodes", server, n, nodes)
		}
	}
	if len(count) != 3 {
		t.Errorf("nodes are spread over %d servers, want 3", len(count))
	}
}

// Who may write Services is not to get what nodes send to the API.
func TestExternalIPsOfTheAPI(t *testing.T) {
	at := func(port int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: port}}
		}
	}
	unready := apiSlice("192.0.2.1", "192.0.2.2")
	unready.Endpoints[0].Conditions.Ready = new(false)
	for port, want := range map[int32]int{6443: 0, 443: 2} {
		got := nodeport.Plan([]*corev1.Service{svc("a", of(corev1.ServiceTypeClusterIP), external("192.0.2.1", "192.0.2.2"), at(port))}, nil,
			nodeport.APIServers{Node: "n1", Slices: []*discoveryv1.EndpointSlice{unready}})
		if len(got.Table) != want || len(got.Conflicts) != 2-want {
			t.Errorf("external IPs of API servers at port %d: %q, conflicts %v; want %d", port, lines(got), got.Conflicts, want)
		}
		for _, c := range got.Conflicts {
			if c.Holder != "the Kubernetes API" {
				t.Errorf("the holder of %v is %q", c.Frontend, c.Holder)
			}
		}
	}
}

// TestNumbersOfPorts: ports are numbers from 1 to 65535. What else the API server may have let through is
// left out, and not cut to 16 bits.
func TestNumbersOfPorts(t *testing.T) {
	for number, want := range map[int32]bool{-1: false, 0: false, 1: true, 0xffff: true, 0x10000: false, 0x10050: false} {
		service := func(port, nodePort, check int32) *corev1.Service {
			return svc("a", of(corev1.ServiceTypeLoadBalancer), func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{{Port: port, NodePort: nodePort}}
				s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, check
			})
		}
		apiPort := func(s *corev1.Service) { s.Spec.Ports[0].Port = number }
		server := apiSlice("192.0.2.1")
		server.Ports[0].Port, server.Ports[0].Protocol = new(number), nil
		for what, got := range map[string]int{
			"port":              len(nodeport.Plan([]*corev1.Service{service(number, 30080, 0)}, nil, nodeport.APIServers{}).Table),
			"node port":         len(nodeport.Plan([]*corev1.Service{service(80, number, 0)}, nil, nodeport.APIServers{}).Table),
			"health check port": len(nodeport.Plan([]*corev1.Service{service(80, 0, number)}, nil, nodeport.APIServers{}).Checks),
			"port of the API": len(nodeport.Plan([]*corev1.Service{svc("", api, apiPort)}, nil, nodeport.APIServers{
				Slices: []*discoveryv1.EndpointSlice{apiSlice("192.0.2.1")},
			}).Table),
			"port of an API server": len(nodeport.Plan([]*corev1.Service{svc("", api)}, nil, nodeport.APIServers{
				Slices: []*discoveryv1.EndpointSlice{server},
			}).Table),
		} {
			if (got == 1) != want || got > 1 {
				t.Errorf("%s %d: %d entries", what, number, got)
			}
		}
	}
}
