// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/openstack"
)

const nobody = "5f1c5aac-0000-4000-8000-00000000dead" // an ID of nothing

func annotated(name, value string, kind corev1.ServiceType) func(*corev1.Service) {
	return func(svc *corev1.Service) {
		svc.Spec.Type = kind
		if svc.Annotations == nil {
			svc.Annotations = map[string]string{}
		}
		svc.Annotations[name] = value
	}
}

func at(ip string) func(*corev1.Service) {
	return func(svc *corev1.Service) { svc.Spec.ClusterIP = ip }
}

// mistake is a Service that cannot be served as requested, and the expected report.
type mistake struct {
	change []func(*corev1.Service)
	at     string   // address of its endpoint; empty: a pod's
	reason string   // of the Event and of the condition
	words  []string // the place of the mistake, and what to do
}

// TestMistakesOnOctavia: Kuryr, or the cloud in its own words, refuses a part of a Service. A
// condition and an Event name the mistake and what to do. Other Services are served all the time. A
// Service with a mistake can be deleted.
func TestMistakesOnOctavia(t *testing.T) {
	b := newSimBed(t)
	vips := b.current.Services.SubnetIDs[0]
	var shown map[string]map[string]any
	if _, err := b.cloud.ask(http.MethodGet, "/networking/v2.0/subnets/"+vips, nil, &shown); err != nil {
		t.Fatal(err)
	}
	b.cloud.make("port", map[string]any{"network_id": shown["subnet"]["network_id"], "name": "theirs", "fixed_ips": []any{map[string]any{"subnet_id": vips, "ip_address": "10.0.77.1"}}})
	if _, err := b.cloud.ask(http.MethodPost, "/load-balancer/v2.0/lbaas/loadbalancers", map[string]any{"loadbalancer": map[string]any{
		"name": "theirs", "vip_subnet_id": vips, "vip_address": "10.0.77.2", "provider": "ovn"}}, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	inside := b.cloud.make("network", map[string]any{"name": "inside"})
	b.set(func(s *settings.Settings) { s.Services.Allowed.ExternalNetworkIDs = []string{inside, nobody} })
	const clusterIP, balancer = corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer
	mistakes := map[string]mistake{
		"port":     {change: []func(*corev1.Service){at("10.0.77.1"), by("ovn")}, reason: "Conflict", words: []string{"10.0.77.1", "Release the address in the cloud, or create the Service again"}},
		"balancer": {change: []func(*corev1.Service){at("10.0.77.2"), by("ovn")}, reason: "Conflict", words: []string{"10.0.77.2", "Release the address in the cloud, or create the Service again"}},
		"amphora": {change: []func(*corev1.Service){at("10.0.77.3"), by("amphora"), func(*corev1.Service) {
			b.cloud.make("port", map[string]any{"network_id": shown["subnet"]["network_id"], "fixed_ips": []any{map[string]any{"subnet_id": vips, "ip_address": "10.0.77.3"}}})
		}}, reason: "Conflict", words: []string{"10.0.77.3", "Release the address in the cloud, or create the Service again"}},
		"provider": {change: []func(*corev1.Service){by("nobody")}, reason: "Rejected", words: []string{`"nobody"`, "amphora, ovn", "openstack.org/kuryr-provider", "services.provider"}},
		"flavor":   {change: []func(*corev1.Service){annotated("loadbalancer.openstack.org/flavor-id", nobody, clusterIP)}, reason: "Rejected", words: []string{"Octavia answered 400", "loadbalancer.openstack.org/flavor-id", "services.flavorID"}},
		"zone":     {change: []func(*corev1.Service){annotated("loadbalancer.openstack.org/availability-zone", "moon", clusterIP)}, reason: "Rejected", words: []string{"Octavia answered 400", "loadbalancer.openstack.org/availability-zone"}},
		"inside":   {change: []func(*corev1.Service){annotated("loadbalancer.openstack.org/floating-network-id", inside, balancer)}, reason: "Rejected", words: []string{inside, "loadbalancer.openstack.org/floating-network-id", "services.externalNetworkID"}},
		"nowhere":  {change: []func(*corev1.Service){annotated("loadbalancer.openstack.org/floating-network-id", nobody, balancer)}, reason: "Rejected", words: []string{nobody, "loadbalancer.openstack.org/floating-network-id", "services.externalNetworkID"}},
		"subnet": {change: []func(*corev1.Service){annotated("loadbalancer.openstack.org/floating-subnet-id", nobody, balancer),
			annotated("loadbalancer.openstack.org/floating-network-id", inside, balancer)}, reason: "Rejected", words: []string{"loadbalancer.openstack.org/floating-subnet-id"}},
		"far": {at: "198.51.100.5", reason: "EndpointsLeftOut", words: []string{"198.51.100.5", "services.nodeSubnetIDs"}},
	}
	b.launch(1000)
	for name, m := range mistakes {
		b.make(name, m)
	}
	for name, m := range mistakes {
		b.told(name, m)
	}
	b.served("other")
	for name := range mistakes {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		b.delete(svc)
		b.eventually("Service "+name+" goes", func() bool { return b.now(svc) == nil })
	}
	if all := b.rows("loadbalancer"); len(all) != 3 { // theirs, other and default/kubernetes
		t.Errorf("the cloud has %v", all)
	}
}

// make creates a Service with a mistake.
func (b *simBed) make(name string, m mistake) {
	b.t.Helper()
	b.service(name, m.change...)
	if m.at == "" {
		m.at = "10.1.0.5"
	}
	b.slice(name, name, m.at)
}

// told waits until a mistake is reported in a condition and an Event.
func (b *simBed) told(name string, m mistake) {
	b.t.Helper()
	var said []string
	all := func(text string) bool { return hasWords(text, m.words...) }
	svc := b.now(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	defer func() {
		if b.t.Failed() {
			b.t.Logf("of %s is said %q", name, said)
		}
	}()
	b.eventually(name+" is told", func() bool {
		said = nil
		event, condition := false, false
		for _, e := range b.eventList(svc) {
			said = append(said, e.Reason+": "+e.Note)
			event = event || e.Type == corev1.EventTypeWarning && e.Reason == m.reason && all(e.Regarding.FieldPath+" "+e.Note)
		}
		conditions := b.now(svc).Status.Conditions
		if klb := b.balancerOf(name); klb != nil {
			conditions = append(conditions, klb.Status.Conditions...)
		}
		for _, c := range conditions {
			condition = condition || c.Status == metav1.ConditionFalse && c.Reason == m.reason && all(c.Message)
			if c.Status == metav1.ConditionFalse {
				said = append(said, c.Type+": "+c.Reason+": "+c.Message)
			}
		}
		return event && condition
	})
}

// served creates a Service without mistakes, and waits until the cloud has it.
func (b *simBed) served(name string) {
	b.t.Helper()
	b.service(name, by("ovn"))
	b.slice(name, name, "10.1.0.5")
	b.eventually("Service "+name+" is served", func() bool { return b.atRest(name, 1, []string{"10.1.0.5"}) })
}

// TestFullOctavia: each exhausted quota is reported, and other Services are served. The Service is
// served once there is room. OVN's driver leaves the VIP's port behind if there is no room for a
// part.
func TestFullOctavia(t *testing.T) {
	const balancing, networking = "/load-balancer/v2.0/lbaas/quotas/", "/networking/v2.0/quotas/"
	for what, path := range map[string]string{
		"loadbalancer": balancing, "listener": balancing, "pool": balancing, "member": balancing, "floatingip": networking,
	} {
		t.Run(what, func(t *testing.T) {
			b := newSimBed(t)
			b.backoff = outcome.Backoff{Quota: 200 * time.Millisecond}
			external := b.cloud.make("network", map[string]any{"name": "external", "router:external": true})
			b.cloud.make("subnet", map[string]any{"network_id": external, "cidr": "203.0.113.0/24", "ip_version": 4})
			b.set(func(s *settings.Settings) { s.Services.Allowed.ExternalNetworkIDs = []string{external} })
			b.launch(1000)
			b.served("before")
			path += b.rows("loadbalancer")[0]["project_id"].(string)
			quota := func(n int) {
				if _, err := b.cloud.ask(http.MethodPut, path, map[string]any{"quota": map[string]any{what: n}}, &struct{}{}); err != nil {
					t.Fatal(err)
				}
			}
			quota(0)
			m := mistake{change: []func(*corev1.Service){by("ovn")}, reason: "OverQuota", words: []string{"Raise the quota"}}
			if what == "floatingip" {
				m.change = append(m.change, annotated("loadbalancer.openstack.org/floating-network-id", external, corev1.ServiceTypeLoadBalancer))
			}
			b.make("full", m)
			b.told("full", m)
			if klb := b.balancerOf("before"); !meta.IsStatusConditionTrue(klb.Status.Conditions, v1.ConditionReady) {
				t.Errorf("of another Service is said %+v", klb.Status.Conditions)
			}
			quota(-1)
			if what != "floatingip" { // there is no router for it
				b.eventually("there is room", func() bool { return b.atRest("full", 1, []string{"10.1.0.5"}) })
			}
		})
	}
}

// TestFloatingIPLeadsNowhere: Neutron refuses a floating IP of a network that no router leads to
// (404 ExternalGatewayForFloatingIPNotFound). The Service does not show it.
func TestFloatingIPLeadsNowhere(t *testing.T) {
	b := newSimBed(t)
	external := b.cloud.make("network", map[string]any{"name": "external", "router:external": true})
	b.cloud.make("subnet", map[string]any{"network_id": external, "cidr": "203.0.113.0/24", "ip_version": 4})
	theirs := b.cloud.make("floatingip", map[string]any{"floating_network_id": external, "floating_ip_address": "203.0.113.50"})
	b.set(func(s *settings.Settings) { s.Services.ExternalNetworkID = external })
	b.launch(1000)
	svc := b.service("web", by("ovn"), balanced, func(svc *corev1.Service) { svc.Spec.LoadBalancerIP = "203.0.113.50" })
	b.slice("web", "web", "10.1.0.5")
	b.told("web", mistake{reason: "FloatingIPRefused", words: []string{"203.0.113.50", "router", "another address"}})
	shown := func() bool { return b.ingress(svc) != "" || b.balancerOf("web").Status.PublicIP != nil }
	b.eventually("it is not shown any more, if it was while it was asked for", func() bool { return !shown() })
	b.never("it is shown", shown)
	if all := b.rows("floatingip"); len(all) != 1 || all[0]["id"] != theirs || all[0]["description"] != "" || all[0]["port_id"] != nil {
		t.Errorf("the cloud has floating IPs %v, want somebody's as it was", all)
	}
}

// TestClusterIPOutside: a Service with a cluster IP outside of the configured subnets reports that,
// without a request to the cloud. It is served once the configuration has the subnet.
func TestClusterIPOutside(t *testing.T) {
	b := newSimBed(t)
	right := b.current.Services.SubnetIDs
	b.set(func(s *settings.Settings) { s.Services.SubnetIDs = []string{b.cloud.subnet} })
	b.launch(1000)
	svc := b.service("web", by("ovn"), func(svc *corev1.Service) { svc.Spec.ClusterIP = "10.0.77.4" })
	b.slice("web", "web", "10.1.0.5")
	b.told("web", mistake{reason: "ClusterIPUnusable", words: []string{"10.0.77.4", "services.subnetIDs", "add its subnet"}})
	if all := b.rows("loadbalancer"); len(all) > 0 {
		t.Errorf("the cloud has %v", all)
	}
	b.set(func(s *settings.Settings) { s.Services.SubnetIDs = right })
	b.eventually("it is served", func() bool { return b.atRest("web", 1, []string{"10.1.0.5"}) && b.planned(svc) == nil })
}

// TestProtocolRefused: of two ports the one that the provider supports is served.
func TestProtocolRefused(t *testing.T) {
	b := newSimBed(t, lbaasv2)
	b.launch(1000)
	m := mistake{change: []func(*corev1.Service){func(svc *corev1.Service) {
		svc.Spec.Ports = []corev1.ServicePort{{Name: "web", Port: 80}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}
	}}, reason: "NotSupported", words: []string{"UDP", "provider"}}
	b.service("web", m.change...)
	b.sliceWith(2, "web", []string{"10.1.0.5"})
	b.told("web", m)
}

// lbaasv2 makes Neutron itself serve load balancers.
func lbaasv2(b *simBed) { b.with = openstack.LBaaSv2 }
