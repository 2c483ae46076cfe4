// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// freePort returns a port without a listener.
func freePort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func checkedService(port int32) *corev1.Service {
	svc := webService(30080)
	svc.Spec.Type, svc.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, port
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	return svc
}

// webSlice returns an EndpointSlice with endpoints on these nodes.
func webSlice(nodes ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i, node := range nodes {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, NodeName: &node})
	}
	return slice
}

// health sends a request to a health check port. It returns the code and the answer about
// endpoints.
func health(port int32) (answer struct {
	code, local int
	healthy     bool
	weight      string
}) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/whatever", port))
	if err != nil {
		return answer
	}
	defer response.Body.Close()
	var body struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	raw, _ := io.ReadAll(response.Body)
	if err := json.Unmarshal(raw, &body); err == nil && body.Service.Namespace == "default" && body.Service.Name == "web" {
		answer.code, answer.local, answer.healthy = response.StatusCode, body.LocalEndpoints, body.ServiceProxyHealthy
		answer.weight = response.Header.Get("X-Load-Balancing-Endpoint-Weight")
	}
	return answer
}

func TestHealthChecks(t *testing.T) {
	t.Parallel()
	w, port := newWorld(t), freePort(t)
	w.services.Add(checkedService(port))
	w.slices.Add(webSlice("there"))
	w.start(t, w)
	eventually(t, "no endpoint here", func() bool { return health(port).code == http.StatusServiceUnavailable })
	w.slices.Modify(webSlice("there", "here", "here"))
	eventually(t, "two endpoints", func() bool {
		a := health(port)
		return a.code == http.StatusOK && a.local == 2 && a.healthy && a.weight == "2"
	})

	w.set(func() { w.fail = errors.New("no such device") })
	w.services.Modify(checkedService(port))
	eventually(t, "the node serves nothing", func() bool {
		a := health(port)
		return a.code == http.StatusServiceUnavailable && a.local == 2 && !a.healthy
	})
	w.set(func() { w.fail = nil })
	w.services.Modify(checkedService(port))
	eventually(t, "it does again", func() bool { return health(port).code == http.StatusOK })

	w.set(func() {
		w.fail, w.failed, w.stuck = errors.New("no such device"), [2]bool{false, true}, errors.New("not supported")
	})
	w.services.Modify(checkedService(port))
	eventually(t, "all of it is told", func() bool { return w.logged("no such device") == 2 && health(port).healthy })
	if a := health(port); a.code != http.StatusOK {
		t.Errorf("an IPv4 answer of a node whose IPv6 fails: %+v, want that it serves", a)
	}
	w.set(func() { w.fail = nil })
	w.services.Modify(checkedService(port))
	eventually(t, "what goes on is told", func() bool { return w.logged("nf_conntrack_netlink") == 1 })
	if a := health(port); a.code != http.StatusOK {
		t.Errorf("the answer of a node that ends no UDP connections: %+v, want that it serves", a)
	}

	other := freePort(t)
	w.services.Modify(checkedService(other))
	eventually(t, "the port has changed", func() bool { return health(other).code == http.StatusOK && health(port).code == 0 })
	w.services.Modify(webService(30080))
	eventually(t, "nobody answers any more", func() bool { return health(other).code == 0 })
	w.services.Modify(checkedService(port))
	eventually(t, "slices are watched anew", func() bool { return health(port).local == 2 && w.sliced.Load() == 2 })
}

// A port of another program is reported, and used after it is free.
func TestHealthCheckPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := int32(l.Addr().(*net.TCPAddr).Port)
	w := newWorld(t)
	w.services.Add(checkedService(port))
	w.slices.Add(webSlice("here"))
	n, _ := w.start(t, w)
	eventually(t, "it is told", func() bool { return w.logged("health check port of Service default/web") == 1 && n.blocked.Load() == 1 })
	times := w.times()
	w.services.Modify(checkedService(port)) // tries again at once
	eventually(t, "it is tried again", func() bool { return w.times() > times })
	if got := w.passes(); got != "0.0.0.0:30080->10.96.0.10:80" {
		t.Errorf("meanwhile the node passes on %q", got)
	}
	_ = l.Close()
	eventually(t, "it is answered", func() bool { return health(port).code == http.StatusOK && n.blocked.Load() == 0 })
	if got := w.logged("health check port of Service default/web"); got != 1 {
		t.Errorf("it was told %d times", got)
	}
}

// When Services are no longer served, no listener and no watch remains.
func TestHealthChecksStop(t *testing.T) {
	t.Parallel()
	w, port := newWorld(t), freePort(t)
	h := newHealthChecks("here", w)
	check := nodeport.Check{Port: uint16(port), Service: types.NamespacedName{Namespace: "default", Name: "web"}}
	if blocked, err := h.ensure(t.Context(), []nodeport.Check{check}, [2]bool{true, true}); blocked != 0 || err != nil {
		t.Fatalf("ensure() = %d, %v", blocked, err)
	}
	informer := h.slices
	eventually(t, "slices are watched", informer.HasSynced)
	h.stop()
	eventually(t, "slices are not watched", informer.IsStopped)
	eventually(t, "nobody answers", func() bool { return health(port).code == 0 })
}
