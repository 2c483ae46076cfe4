// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/external"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Octavia's members follow the pods of a Deployment, and just these answer.
func TestServiceFollowsEndpoints(t *testing.T) {
	f := withServices(t)
	from := f.inPod(f.on(t, "n1", "client"))
	svc := f.service(t, "web")
	for _, n := range []int{3, 5, 1, 0, 2} {
		pods := f.servers(t, "web", n)
		began := time.Now()
		f.members(t, svc, "TCP:80", at(pods, 8080))
		f.members(t, svc, "UDP:80", at(pods, 8081))
		t.Logf("%d pods are members %.1f s after the last had come or gone", n, time.Since(began).Seconds())
		if n > 0 {
			from.all(t, svc.Spec.ClusterIP, pods)
		}
	}
}

// Pods that are not ready are no members, become such, and the controller takes no
// harm from a Service that has none.
func TestServiceWithoutReadyEndpoints(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 3, func(s *corev1.PodSpec) {
		s.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/tmp/ready"}}},
			PeriodSeconds: 1,
		}
	})
	svc := f.service(t, "web")
	f.realised(t, svc)
	f.members(t, svc, "TCP:80", nil)
	for _, p := range pods[:2] {
		must(f.Exec(t.Context(), f.namespace, p.Name, "touch", "/tmp/ready"))(t)
	}
	f.members(t, svc, "TCP:80", at(pods[:2], 8080))
	f.inPod(pods[2]).all(t, svc.Spec.ClusterIP, pods[:2])
}

// A Service without a selector has the endpoints that somebody writes: here a pod's,
// and the API server's, which is on no network of Neutron's.
func TestServiceWithoutSelector(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "other", 1)
	client := f.inPod(f.on(t, "n2", "client"))
	bare := func(s *corev1.ServiceSpec) {
		s.Selector, s.Ports = nil, []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}
	}
	svc := f.service(t, "web", bare)
	slice := f.slice(t, svc, pods[0].Status.PodIP, 8080)
	f.members(t, svc, "TCP:80", at(pods, 8080))
	client.all(t, svc.Spec.ClusterIP, pods)
	if err := f.Client.Delete(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	f.members(t, svc, "TCP:80", nil)

	// Another Service for this one: docs/services.md, "Limits", says why.
	svc = f.service(t, "api", bare)
	api, _, _ := strings.Cut(os.Getenv("KUBERNETES_API"), ":")
	f.slice(t, svc, api, 6443)
	f.members(t, svc, "TCP:80", []string{api + ":6443"})
	client.answers(t, "curl -sSk -m3 --noproxy '*' https://"+svc.Spec.ClusterIP+":80/readyz 2>&1; echo;", 3, "ok")
}

// slice writes an EndpointSlice of a Service with one address.
func (f *fixture) slice(t testing.TB, svc *corev1.Service, ip string, port int32) *discoveryv1.EndpointSlice {
	t.Helper()
	name := "http"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, GenerateName: svc.Name + "-", Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{ip}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	if err := f.Client.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	return slice
}

// What a Service shows and has in the cloud follows its type.
func TestServiceTypeChanges(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 2)
	client := f.inPod(f.on(t, "n1", "client"))
	svc := f.service(t, "web")
	client.all(t, svc.Spec.ClusterIP, pods)
	lb := f.realised(t, svc).Status.LoadBalancers[0].ID

	f.becomes(t, svc, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })
	public := f.ingress(t, svc)
	asker(outside).all(t, public, pods)
	if now := f.realised(t, svc).Status.LoadBalancers[0].ID; now != lb {
		t.Errorf("load balancer %s has become %s: its Service was out of reach in between", lb, now)
	}

	f.becomes(t, svc, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	f.shows(t, svc, func(ingress []corev1.LoadBalancerIngress) error {
		if len(ingress) > 0 {
			return fmt.Errorf("Service %s of type NodePort shows %+v", svc.Name, ingress)
		}
		return nil
	})
	f.noFloatingIP(t, public)
	client.all(t, svc.Spec.ClusterIP, pods)

	vip := svc.Spec.ClusterIP
	f.becomes(t, svc, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "example.org", "", nil
		s.Spec.Ports = nil
	})
	eventually(t, func() error { return f.noLoadBalancerAt(t.Context(), vip) })
	f.becomes(t, svc, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
		s.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}
	})
	client.all(t, svc.Spec.ClusterIP, pods)
}

// shows waits until a Service's status shows what check wants.
func (f *fixture) shows(t testing.TB, svc *corev1.Service, check func([]corev1.LoadBalancerIngress) error) {
	t.Helper()
	eventually(t, func() error {
		var now corev1.Service
		if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(svc), &now); err != nil {
			return err
		}
		return check(now.Status.LoadBalancer.Ingress)
	})
}

// noFloatingIP waits until Neutron has no floating IP with an address.
func (f *fixture) noFloatingIP(t testing.TB, address string) {
	t.Helper()
	eventually(t, func() error {
		if ip, err := f.floatingIP(t.Context(), address); err != nil || ip != nil {
			return fmt.Errorf("floating IP %s is still there: %+v, %w", address, ip, err)
		}
		return nil
	})
}

// floatingIP returns that of an address, or nil.
func (f *fixture) floatingIP(ctx context.Context, address string) (*floatingips.FloatingIP, error) {
	pages, err := floatingips.List(f.Neutron, floatingips.ListOpts{FloatingIP: address}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	all, err := floatingips.ExtractFloatingIPs(pages)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

func (f *fixture) noLoadBalancerAt(ctx context.Context, vip string) error {
	id, err := f.clusterID(ctx)
	if err != nil {
		return err
	}
	all, err := f.LoadBalancers(ctx, id)
	for _, lb := range all {
		if lb.VipAddress == vip {
			return fmt.Errorf("load balancer %s is still at %s", lb.ID, vip)
		}
	}
	return err
}

// A floating IP that was there is taken, and left when its Service goes.
func TestServiceTakesFloatingIP(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 1)
	ip := must(floatingips.Create(t.Context(), f.Neutron, floatingips.CreateOpts{
		FloatingNetworkID: os.Getenv("EXT_NET"), ProjectID: os.Getenv("PROJECT"),
	}).Extract())(t)
	t.Cleanup(func() {
		if err := floatingips.Delete(context.Background(), f.Neutron, ip.ID).ExtractErr(); err != nil {
			t.Errorf("deleting floating IP %s: %v", ip.ID, err)
		}
	})
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) {
		s.Type, s.LoadBalancerIP = corev1.ServiceTypeLoadBalancer, ip.FloatingIP
	})
	if got := f.ingress(t, svc); got != ip.FloatingIP {
		t.Errorf("the Service shows %s, want %s", got, ip.FloatingIP)
	}
	asker(outside).all(t, ip.FloatingIP, pods)
	if err := f.Client.Delete(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return f.noLoadBalancerAt(t.Context(), svc.Spec.ClusterIP) })
	if left := must(f.floatingIP(t.Context(), ip.FloatingIP))(t); left == nil || left.PortID != "" || left.Description != "" {
		t.Errorf("after the Service the floating IP is %+v, want it there, free and without a mark", left)
	}
}

// A floating IP of a network that no router leads to is refused: the Service says so, shows
// the one that it has had, and is reached by it.
func TestServiceFloatingIPRefused(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 1)
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	before := f.ingress(t, svc)
	asker(outside).all(t, before, pods)
	ip := f.nowhere(t)
	f.change(t, func(document map[string]any) {
		document["services"].(map[string]any)["allowed"] = map[string]any{"externalNetworkIDs": []string{ip.FloatingNetworkID}}
	})
	f.becomes(t, svc, func(s *corev1.Service) {
		s.Annotations = map[string]string{"loadbalancer.openstack.org/floating-network-id": ip.FloatingNetworkID}
		s.Spec.LoadBalancerIP = ip.FloatingIP
	})
	f.event(t, svc.Name, "FloatingIPRefused: Neutron refuses floating IP "+ip.FloatingIP)
	eventually(t, func() error {
		if got := f.ingress(t, svc); got != before {
			return fmt.Errorf("the Service shows %s, want %s as before", got, before)
		}
		return nil
	})
	asker(outside).all(t, before, pods)
	if left := must(f.floatingIP(t.Context(), ip.FloatingIP))(t); left == nil || left.PortID != "" || left.Description != "" {
		t.Errorf("the one that is refused is %+v, want it there, free and without a mark", left)
	}
}

// nowhere makes a floating IP of an external network that has no router.
func (f *fixture) nowhere(t testing.TB) *floatingips.FloatingIP {
	t.Helper()
	yes := true
	net := must(networks.Create(t.Context(), f.Neutron, external.CreateOptsExt{
		CreateOptsBuilder: networks.CreateOpts{Name: "nowhere"}, External: &yes,
	}).Extract())(t)
	t.Cleanup(func() { // what it has goes with it, but for floating IPs
		if err := networks.Delete(context.Background(), f.Neutron, net.ID).ExtractErr(); err != nil {
			t.Errorf("deleting network %s: %v", net.ID, err)
		}
	})
	must(subnets.Create(t.Context(), f.Neutron, subnets.CreateOpts{NetworkID: net.ID, IPVersion: 4, CIDR: "203.0.113.0/24"}).Extract())(t)
	ip := must(floatingips.Create(t.Context(), f.Neutron, floatingips.CreateOpts{
		FloatingNetworkID: net.ID, ProjectID: os.Getenv("PROJECT"),
	}).Extract())(t)
	t.Cleanup(func() {
		if err := floatingips.Delete(context.Background(), f.Neutron, ip.ID).ExtractErr(); err != nil {
			t.Errorf("deleting floating IP %s: %v", ip.ID, err)
		}
	})
	return ip
}

// Timeouts that a Service names are those of its listeners.
func TestServiceTimeouts(t *testing.T) {
	f := withServices(t)
	svc := f.service(t, "web")
	f.realised(t, svc)
	f.becomes(t, svc, func(s *corev1.Service) {
		s.Annotations = map[string]string{
			"openstack.org/kuryr-timeout-client-data": "70000", "openstack.org/kuryr-timeout-member-data": "75000",
		}
	})
	eventually(t, func() error {
		klb := f.realised(t, svc)
		all, err := f.Listeners(t.Context(), klb.Status.LoadBalancers[0].ID)
		if err != nil {
			return err
		}
		if l := all["TCP:80"]; l.TimeoutClientData != 70000 || l.TimeoutMemberData != 75000 {
			return fmt.Errorf("listener has timeouts %d and %d, want 70000 and 75000", l.TimeoutClientData, l.TimeoutMemberData)
		}
		for _, l := range klb.Status.Listeners {
			if l.TimeoutClientData == nil || *l.TimeoutClientData != 70000 || l.TimeoutMemberData == nil || *l.TimeoutMemberData != 75000 {
				return fmt.Errorf("the status of listener %s does not show the timeouts", l.Name)
			}
		}
		return nil
	})
}

// An address that a Service has left serves the next Service at once, and the pods of
// the first do not answer there.
func TestClusterIPServesNext(t *testing.T) {
	f := withServices(t)
	first, second := f.servers(t, "first", 1), f.servers(t, "second", 1)
	client := f.inPod(f.on(t, "n2", "client"))
	svc := f.service(t, "first")
	client.all(t, svc.Spec.ClusterIP, first)
	if err := f.Client.Delete(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	// Until the load balancer is gone the Service is there, and has its address.
	eventually(t, func() error {
		next := &corev1.Service{}
		next.Namespace, next.Name = f.namespace, "second"
		next.Spec = corev1.ServiceSpec{ClusterIP: svc.Spec.ClusterIP, Selector: map[string]string{"app": "second"}, Ports: svc.Spec.Ports}
		return f.Client.Create(t.Context(), next)
	})
	client.all(t, svc.Spec.ClusterIP, second)
}

// A namespace goes with its Services.
func TestNamespaceWithServices(t *testing.T) {
	f := withServices(t)
	own := &fixture{Cluster: f.Cluster, namespace: f.namespace + "-own"}
	if err := f.EnsureNamespace(t.Context(), own.namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.clean(t) })
	var vips []string
	for i := range 3 {
		svc := own.service(t, fmt.Sprintf("web-%d", i), func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
		own.ingress(t, svc)
		vips = append(vips, svc.Spec.ClusterIP)
	}
	own.clean(t)
	eventually(t, func() error {
		var namespace corev1.Namespace
		err := f.Client.Get(t.Context(), client.ObjectKey{Name: own.namespace}, &namespace)
		if err == nil {
			return fmt.Errorf("namespace %s is still there: %+v", own.namespace, namespace.Status)
		}
		return client.IgnoreNotFound(err)
	})
	slices.Sort(vips)
	for _, vip := range vips {
		if err := f.noLoadBalancerAt(t.Context(), vip); err != nil {
			t.Errorf("the namespace is gone: %v", err)
		}
	}
}
