// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodePortsFollowServices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.services.Add(webService(30080))
	n, stop := w.start(t, w)
	eventually(t, "it is passed on", func() bool { return w.passes() == "0.0.0.0:30080->10.96.0.10:80" })
	w.services.Modify(webService(30081))
	eventually(t, "the new one is passed on", func() bool { return w.passes() == "0.0.0.0:30081->10.96.0.10:80" })
	eventually(t, "it is counted", func() bool { return n.entries[0].Load() == 1 && n.entries[1].Load() == 0 })
	stop()
	if got := w.passes(); got != "0.0.0.0:30081->10.96.0.10:80" {
		t.Errorf("without a daemon the node passes on %q, want what it did before", got)
	}
	w.services.Delete(webService(30081))
	w.start(t, w)
	eventually(t, "nothing is passed on", func() bool { return w.passes() == "" })
	if got := w.sliced.Load(); got != 0 {
		t.Errorf("EndpointSlices were asked for %d times, and nobody needs them", got)
	}
}

// The node reaches the Kubernetes API without a load balancer, whether or not it forwards
// packets.
func TestNodeFindsTheAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.off = true
	kubernetes := webService(0)
	kubernetes.Name, kubernetes.Spec.Type, kubernetes.Spec.ClusterIP, kubernetes.Spec.ClusterIPs = "kubernetes", "ClusterIP", "10.96.0.1", []string{"10.96.0.1"}
	w.services.Add(kubernetes)
	slice := webSlice("n1")
	slice.Name, slice.Endpoints = "kubernetes", []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}
	slice.Ports = []discoveryv1.EndpointPort{{Name: &kubernetes.Spec.Ports[0].Name, Port: new(int32(6443))}}
	w.api.Add(slice)
	n, stop := w.start(t, w)
	eventually(t, "it is found", func() bool { return w.passes() == "10.96.0.1:80->192.0.2.1:6443" })
	moved := slice.DeepCopy()
	moved.Endpoints[0].Addresses[0] = "192.0.2.2"
	w.api.Modify(moved)
	eventually(t, "it is found where it has gone", func() bool { return w.passes() == "10.96.0.1:80->192.0.2.2:6443" })
	eventually(t, "it is counted", func() bool { return n.entries[0].Load() == 1 })
	stop()
	if w.logged("sysctl") > 0 {
		t.Error("the node is told to pass on packets, which nothing needs")
	}
	w.api.Modify(slice)
	w.start(t, w)
	eventually(t, "both are known again", func() bool { return w.passes() == "10.96.0.1:80->192.0.2.1:6443" })
}

// If Services are not served, the tables of an earlier start are removed once, and the API gets
// no requests.
func TestNodePortsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, stop := w.start(t, nil)
	stop()
	if w.ensured != 0 {
		t.Errorf("the tables were looked at %d times on a node that never had any", w.ensured)
	}
	w.services.Add(webService(30080))
	_, stop = w.start(t, w)
	eventually(t, "it is passed on", func() bool { return w.passes() != "" })
	stop()
	looked := w.ensured
	w.fail = errors.New("operation not supported")
	_, stop = w.start(t, nil)
	eventually(t, "it was looked", func() bool { return w.logged("cannot be removed") == 1 })
	stop()
	w.fail = nil
	_, stop = w.start(t, nil)
	eventually(t, "the tables are empty", func() bool { return w.passes() == "" && w.logged("removed Kuryr's tables") == 1 })
	stop()
	_, stop = w.start(t, nil)
	stop()
	if w.ensured != looked+2 {
		t.Errorf("the tables were looked at %d times in three starts, want one that failed and one", w.ensured-looked)
	}
}

// A failure is reported once and counted. It is repaired as soon as possible.
func TestNodePortsFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fail, w.off = errors.New("no buffer space"), true
	w.services.Add(webService(30080))
	n, _ := w.start(t, w)
	eventually(t, "it failed", func() bool { return n.failures.Load() == 1 })
	w.services.Modify(webService(30081)) // tries again at once
	eventually(t, "it failed again", func() bool { return n.failures.Load() > 1 })
	w.set(func() { w.fail = nil })
	w.services.Modify(webService(30082))
	eventually(t, "it is passed on", func() bool { return w.passes() == "0.0.0.0:30082->10.96.0.10:80" })
	if got := w.logged("no buffer space"); got != 1 {
		t.Errorf("the failure was told %d times", got)
	}
	eventually(t, "that the node passes nothing on is told", func() bool { return w.logged(`"sysctl"="net.ipv4.ip_forward"`) == 1 })
	if got := w.logged("net.ipv6"); got != 0 {
		t.Errorf("IPv6 was told %d times, which no Service has", got)
	}
	w.set(func() { w.off = false })
	w.services.Modify(webService(30083))
	eventually(t, "it is known to pass on", func() bool { return n.forwarded[0].Load() })
}

func TestNodePortsConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, name := range []string{"old", "young"} {
		svc := webService(0)
		svc.Name, svc.CreationTimestamp = name, metav1.Unix(int64(1e9+i), 0)
		svc.Spec.ClusterIPs[0], svc.Spec.ExternalIPs = fmt.Sprintf("10.96.0.1%d", i), []string{"203.0.113.5"}
		w.services.Add(svc)
	}
	w.start(t, w)
	eventually(t, "the older one has it", func() bool { return w.passes() == "203.0.113.5:80->10.96.0.10:80" })
	eventually(t, "it is told", func() bool {
		return w.logged(`"for"="default/young" "holder"="default/old" "address"="203.0.113.5"`) == 1
	})
}

// A daemon of a cluster with Services, on a real API server. It serves pods without the
// permissions for Services. It serves Services after it gets them.
func TestServicesOnAPIServer(t *testing.T) {
	c := newCluster(t)
	from, err := Connect(c.daemon, "n1")
	if err != nil {
		t.Fatal(err)
	}
	svc := checkedService(0) // the API server chooses addresses and ports
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs, svc.Spec.Ports[0].NodePort = "", nil, 0
	c.make(t, svc)
	c.make(t, webSlice("n1"))
	// This is in addition to the API server's own, which it does not make if it has only the
	// loopback.
	servers := webSlice("n1")
	servers.Name, servers.Labels[discoveryv1.LabelServiceName], servers.Endpoints[0].Addresses[0] = "servers", "kubernetes", "192.0.2.1"
	servers.Ports = []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443))}}
	c.make(t, servers)
	w, n := newWorld(t), newNode(t)
	n.services, n.tables = from, w
	n.start()
	n.daemon.ServeServices(true)
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	w.set(func() {
		if w.ensured != 0 {
			t.Error("the tables were changed by who does not know the Services")
		}
	})
	c.make(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "services"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
	}})
	c.make(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "services"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "services"},
		Subjects:   []rbacv1.Subject{{Kind: "User", Name: "daemon"}},
	})
	eventually(t, "the Service is passed on", func() bool {
		return strings.Contains(w.passes(), fmt.Sprintf("0.0.0.0:%d->%s:80", svc.Spec.Ports[0].NodePort, svc.Spec.ClusterIP))
	})
	host, _, err := net.SplitHostPort(strings.TrimPrefix(c.daemon.Host, "https://"))
	if err != nil || from.Address().String() != host {
		t.Errorf("Address() = %s, want that of %s", from.Address(), c.daemon.Host)
	}
	// The API server's own Service has the first cluster IP.
	eventually(t, "the node finds the API", func() bool { return strings.Contains(w.passes(), "10.0.0.1:443->") })
	eventually(t, "the health check is answered", func() bool { return health(svc.Spec.HealthCheckNodePort).local == 1 })
	if err := c.Delete(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Service is gone", func() bool {
		return !strings.Contains(w.passes(), svc.Spec.ClusterIP+":80") && health(svc.Spec.HealthCheckNodePort).code == 0
	})
	n.end()
}
