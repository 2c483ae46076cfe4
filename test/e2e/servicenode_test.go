// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeIP returns the address of a node.
func (f *fixture) nodeIP(t testing.TB, name string) string {
	t.Helper()
	var node corev1.Node
	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
		t.Fatal(err)
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	t.Fatalf("node %s has no address", name)
	return ""
}

// All nodes answer at a Service's node ports, to whoever asks, and no longer once
// the Service has none.
func TestServiceNodePorts(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 2)
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	pod := f.inPod(f.on(t, "n1", "client"))
	pod.all(t, svc.Spec.ClusterIP, pods)
	tcp, udp := svc.Spec.Ports[0].NodePort, svc.Spec.Ports[1].NodePort
	for _, node := range nodes {
		ip := f.nodeIP(t, node)
		for name, from := range map[string]asker{"outside": outside, "a pod": pod, "node n1": f.byNode("n1"), "node n2": f.byNode("n2")} {
			t.Run(node+" from "+name, func(t *testing.T) {
				from.all(t, fmt.Sprintf("%s:%d", ip, tcp), pods)
				from.answers(t, send("hostname", ip, int(udp)), 8, names(pods)...)
			})
		}
	}
	f.becomes(t, svc, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeClusterIP
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 0
		}
	})
	eventually(t, func() error {
		out, err := outside(t.Context(), get("http://"+net.JoinHostPort(f.nodeIP(t, "n1"), fmt.Sprint(tcp))+"/hostname"))
		if err == nil && !strings.Contains(out, "curl:") {
			err = fmt.Errorf("node n1 answers %q at a node port that is no more", out)
		}
		return err
	})
	pod.all(t, svc.Spec.ClusterIP, pods)
}

// A node passes on what comes to it for a Service's external IP.
func TestServiceExternalIP(t *testing.T) {
	f := withServices(t)
	const external = "198.51.100.77"
	pods := f.servers(t, "web", 2)
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{external} })
	f.realised(t, svc)
	for _, node := range nodes {
		f.byNode(node).all(t, external, pods)
	}
	must(outside(t.Context(), "ip route replace "+external+" via "+f.nodeIP(t, "n2")))(t)
	t.Cleanup(func() {
		if out, err := outside(context.Background(), "ip route del "+external); err != nil {
			t.Logf("removing the route: %v: %s", err, out)
		}
	})
	asker(outside).all(t, external, pods)
}

// A node with a ready endpoint says so at the health check port, and one without, too.
func TestServiceHealthCheckNodePort(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 1)
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	})
	asker(outside).all(t, f.ingress(t, svc), pods)
	for _, node := range nodes {
		want := "503"
		if node == pods[0].Spec.NodeName {
			want = "200"
		}
		script := fmt.Sprintf("curl -s -m3 --noproxy '*' -o /dev/null -w '%%{http_code}' http://%s:%d/healthz; echo;",
			f.nodeIP(t, node), f.healthPort(t, svc))
		asker(outside).answers(t, script, 2, want)
	}
}

func (f *fixture) healthPort(t testing.TB, svc *corev1.Service) int32 {
	t.Helper()
	now := &corev1.Service{}
	if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(svc), now); err != nil {
		t.Fatal(err)
	}
	return now.Spec.HealthCheckNodePort
}
