// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/test/cluster"
)

// hosted has a pod on node n1 with a host port that leads to its HTTP port, or to its UDP port.
func (f *fixture) hosted(t testing.TB, name string, port corev1.ContainerPort) *corev1.Pod {
	t.Helper()
	template := cluster.Template(map[string]string{"app": name}, "n1")
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = f.namespace, name
	port.ContainerPort = 8080
	if port.Protocol == corev1.ProtocolUDP {
		port.ContainerPort = 8081
	}
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{port}
	if err := f.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return f.running(t, name)
}

// hostname is a script that asks a pod at an address for its name.
func hostname(ip string, port int32) string {
	return get("http://" + net.JoinHostPort(ip, fmt.Sprint(port)) + "/hostname")
}

// nobody waits until nobody answers any more.
func nobody(t testing.TB, from asker, script string) {
	t.Helper()
	eventually(t, func() error {
		out, err := from(t.Context(), script)
		if err == nil && !strings.Contains(out, "curl:") {
			err = fmt.Errorf("%q is answered %q", script, out)
		}
		return err
	})
}

// Host ports of one number with other addresses and protocols lead to the pods that
// have them, from the node and from elsewhere, and go with the pods.
func TestHostPorts(t *testing.T) {
	f := onBed(t)
	const port, open = 54323, 54324
	n1, n2 := f.nodeIP(t, "n1"), f.nodeIP(t, "n2")
	f.hosted(t, "loopback", corev1.ContainerPort{HostPort: port, HostIP: "127.0.0.1"})
	tcp := f.hosted(t, "tcp", corev1.ContainerPort{HostPort: port, HostIP: n1})
	udp := f.hosted(t, "udp", corev1.ContainerPort{HostPort: port, HostIP: n1, Protocol: corev1.ProtocolUDP})
	all := f.hosted(t, "all", corev1.ContainerPort{HostPort: open})
	node := f.byNode("n1")
	node.answers(t, hostname("127.0.0.1", port), 4, "loopback")
	node.answers(t, strings.Replace(hostname("127.0.0.1", port), "curl ", "curl --interface "+n1+" ", 1), 4, "loopback")
	node.answers(t, hostname("127.0.0.1", open), 4, all.Name)
	elsewhere := map[string]asker{
		"node n1": node, "node n2": f.byNode("n2"), "outside": outside,
		"a pod of the node": f.inPod(f.on(t, "n1", "client-1")), "a pod": f.inPod(f.on(t, "n2", "client-2")),
	}
	for name, from := range elsewhere {
		t.Run("from "+name, func(t *testing.T) {
			from.answers(t, hostname(n1, port), 4, tcp.Name)
			from.answers(t, send("hostname", n1, port), 4, udp.Name)
			from.answers(t, hostname(n1, open), 4, all.Name)
			nobody(t, from, hostname(n2, open))
		})
	}
	f.delete(t, udp, all)
	nobody(t, node, hostname("127.0.0.1", open))
	next := f.hosted(t, "next", corev1.ContainerPort{HostPort: port, HostIP: n1, Protocol: corev1.ProtocolUDP})
	for _, from := range elsewhere {
		from.answers(t, send("hostname", n1, port), 4, next.Name)
		from.answers(t, hostname(n1, port), 4, tcp.Name)
		nobody(t, from, hostname(n1, open))
	}
}
