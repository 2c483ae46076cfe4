// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kuryr-go/kuryr/test/cluster"
)

// Pods on both nodes run, and what they have is what Neutron has.
func TestPodsHaveNeutronPorts(t *testing.T) {
	f := onBed(t)
	for _, pod := range f.pods(t, "a", "b", "c", "d") {
		kp := must(f.KuryrPortOf(t.Context(), pod))(t)
		eventually(t, func() error {
			port, err := f.Port(t.Context(), kp.Name)
			if err != nil {
				return err
			}
			if port.Status != "ACTIVE" || port.HostID != pod.Spec.NodeName {
				return fmt.Errorf("port %s is %s on %q, want ACTIVE on %q", port.ID, port.Status, port.HostID, pod.Spec.NodeName)
			}
			return nil
		})
		port := must(f.Port(t.Context(), kp.Name))(t)
		if got, want := pod.Status.PodIP, port.FixedIPs[0].IPAddress; got != want {
			t.Errorf("pod %s has IP %s, its port %s", pod.Name, got, want)
		}
		if got := must(f.Exec(t.Context(), f.namespace, pod.Name, "cat", "/sys/class/net/eth0/address"))(t); got != port.MACAddress {
			t.Errorf("pod %s has MAC %s, its port %s", pod.Name, got, port.MACAddress)
		}
		if want := "kuryr.owner=kuryrportpool/" + kp.Spec.Pool; !strings.Contains(port.Description, want) {
			t.Errorf("port %s has description %q, want %q in it", port.ID, port.Description, want)
		}
	}
}

// The pod is annotated exactly as the port CRD design has it.
func TestPodAnnotation(t *testing.T) {
	f := onBed(t)
	pod := f.pods(t, "a")[0]
	kp := must(f.KuryrPortOf(t.Context(), pod))(t)
	want := `{"eth0": {"versioned_object.data": {"selfLink": "/apis/openstack.org/v1/kuryrports/` + kp.Name + `"}}, ` +
		`"versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}`
	eventually(t, func() error {
		pod := f.running(t, "a")
		if got := pod.Annotations["openstack.org/kuryr-vif"]; compact(got) != compact(want) {
			return fmt.Errorf("annotation is %s, want %s", got, want)
		}
		return nil
	})
}

func compact(s string) string { return strings.ReplaceAll(s, " ", "") }

// Pods reach each other on a node and across nodes, by every protocol.
func TestTraffic(t *testing.T) {
	f := onBed(t)
	pods := f.pods(t, "a", "b", "c") // n1, n2, n1
	for _, pair := range [][2]*corev1.Pod{{pods[0], pods[2]}, {pods[2], pods[0]}, {pods[0], pods[1]}, {pods[1], pods[0]}} {
		from, to := pair[0], pair[1]
		t.Run(from.Spec.NodeName+from.Name+"-"+to.Spec.NodeName+to.Name, func(t *testing.T) {
			f.reaches(t, from, to)
			f.transfers(t, from, to)
		})
	}
}

// reaches proves ICMP, TCP and UDP from one pod to another.
func (f *fixture) reaches(t testing.TB, from, to *corev1.Pod) {
	t.Helper()
	ip := to.Status.PodIP
	for _, c := range []struct{ protocol, command, want string }{
		{"ICMP", "ping -c1 -W1 " + ip + " >/dev/null && echo ok", "ok"},
		{"TCP", "curl -sS -m3 http://" + inURL(ip) + ":8080/hostname", to.Name},
		{"UDP", "echo hostname | nc -u -w1 " + ip + " 8081", to.Name},
	} {
		eventually(t, func() error { // the first packets may be lost to ARP
			got, err := f.Exec(t.Context(), from.Namespace, from.Name, "sh", "-c", c.command)
			if err == nil && got != c.want {
				err = fmt.Errorf("%s from %s to %s: got %q, want %q", c.protocol, from.Name, to.Name, got, c.want)
			}
			return err
		})
	}
}

// transfers proves that 1 MiB arrives as it was sent.
func (f *fixture) transfers(t testing.TB, from, to *corev1.Pod) {
	t.Helper()
	serve := "cd /tmp && dd if=/dev/urandom of=blob bs=1024 count=1024 2>/dev/null && " +
		"{ busybox httpd -p 8090 -h /tmp 2>/dev/null || true; } && sha256sum <blob"
	want := must(f.Exec(t.Context(), f.namespace, to.Name, "sh", "-c", serve))(t)
	eventually(t, func() error {
		got, err := f.Exec(t.Context(), f.namespace, from.Name, "sh", "-c",
			"curl -sS -m10 http://"+inURL(to.Status.PodIP)+":8090/blob | sha256sum")
		if err == nil && got != want {
			err = fmt.Errorf("1 MiB from %s: got sum %s, want %s", to.Name, got, want)
		}
		return err
	})
}

// A node reaches its pods, so that kubelet's probes work.
func TestNodeReachesItsPods(t *testing.T) {
	f := onBed(t)
	for _, node := range nodes {
		template := cluster.Template(nil, node)
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Namespace, pod.Name = f.namespace, "probed-"+node
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/hostname", Port: intstr.FromInt32(8080)}},
			PeriodSeconds: 1,
		}
		if err := f.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		pod = f.running(t, pod.Name)
		eventually(t, func() error {
			for _, c := range f.running(t, pod.Name).Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("pod %s is not ready", pod.Name)
		})
		got := must(f.OnNode(t.Context(), node, "curl", "-sS", "-m3", "http://"+pod.Status.PodIP+":8080/hostname"))(t)
		if got != pod.Name {
			t.Errorf("node %s asking %s: got %q, want %q", node, pod.Status.PodIP, got, pod.Name)
		}
	}
}

// A pod reaches what is outside its subnet, through the router: here the API
// server, on the nodes' network.
func TestPodReachesOutside(t *testing.T) {
	f := onBed(t)
	endpoints := must(f.Kube.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", getOptions))(t)
	api := endpoints.Endpoints[0].Addresses[0]
	for _, pod := range f.pods(t, "a", "b") {
		subnet := netip.PrefixFrom(netip.MustParseAddr(pod.Status.PodIP), 16).Masked()
		if subnet.Contains(netip.MustParseAddr(api)) {
			t.Fatalf("the API server %s is inside the pods' subnet %s: this would prove nothing", api, subnet)
		}
		eventually(t, func() error {
			got, err := f.Exec(t.Context(), f.namespace, pod.Name, "curl", "-sSk", "-m3", "https://"+api+":6443/readyz")
			if err == nil && got != "ok" {
				err = fmt.Errorf("the API server answers pod %s with %q, want ok", pod.Name, got)
			}
			return err
		})
	}
}
