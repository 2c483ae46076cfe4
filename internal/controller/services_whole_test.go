// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// newWholeBed is a serviceBed whose controller applies its plans.
func newWholeBed(t testing.TB) *serviceBed {
	t.Helper()
	b := newServiceBed(t)
	b.whole = true
	b.cloud.AddSubnet(memory.Subnet{ID: publicSubnet, NetworkID: external, Prefix: netip.MustParsePrefix("203.0.113.0/24"), External: true})
	return b
}

// ports gives a Service TCP ports from 8000 on.
func ports(n int) func(*corev1.Service) {
	return func(svc *corev1.Service) {
		svc.Spec.Ports = nil
		for i := range n {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(8000 + i)})
		}
	}
}

// portsOf gives an EndpointSlice the ports that ports gives a Service.
func portsOf(n int) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for i := range n {
		out = append(out, discoveryv1.EndpointPort{Name: new(fmt.Sprint("p", i)), Protocol: new(corev1.ProtocolTCP), Port: new(int32(9000 + i))})
	}
	return out
}

func (b *serviceBed) sliceWith(n int, svc string, ips []string) *discoveryv1.EndpointSlice {
	b.t.Helper()
	s := newSlice(svc, svc+"-1", ips...)
	s.Ports = portsOf(n)
	b.create(s)
	return s
}

// serving returns the members of each port of a Service in the cloud. It returns nil if the Service
// has no load balancer, or if that is busy.
func (b *serviceBed) serving(name string) map[int32]string {
	if lb := b.tree(name); lb != nil {
		return membersOf(lb)
	}
	return nil
}

func membersOf(lb *sdn.LoadBalancer) map[int32]string {
	out := map[int32]string{}
	for _, l := range lb.Listeners {
		if lb.Provisioning != sdn.ProvisioningActive || l.Pool == nil {
			return nil
		}
		var ips []string
		for _, m := range l.Pool.Members {
			ips = append(ips, m.IP)
		}
		slices.Sort(ips)
		out[l.Port] = strings.Join(ips, " ")
	}
	return out
}

// wanted is the result of serving once n ports have these members.
func wanted(n int, ips []string) map[int32]string {
	ips = slices.Sorted(slices.Values(ips))
	out := map[int32]string{}
	for i := range n {
		out[int32(8000+i)] = strings.Join(ips, " ")
	}
	return out
}

// TestServiceInTheCloud: a Service of type LoadBalancer is created in the cloud and deleted, with
// the minimal number of calls. Nothing of it is left.
func TestServiceInTheCloud(t *testing.T) {
	b := newWholeBed(t)
	b.launch()
	b.eventually("default/kubernetes is in the cloud", func() bool { return b.serving("kubernetes") != nil })
	before := b.bed.writes()
	svc := b.service("web", balanced, ports(3))
	s := b.sliceWith(3, "web", []string{"10.1.0.5", "10.1.0.6"})
	b.eventually("it is in the cloud", func() bool { return cmp.Equal(b.serving("web"), wanted(3, []string{"10.1.0.5", "10.1.0.6"})) })
	b.eventually("its floating IP shows", func() bool { return strings.HasPrefix(b.ingress(svc), "203.0.113.") })
	b.realised("web")
	s.Endpoints = endpointsAt("10.1.0.6", "10.1.0.7", "10.1.0.8")
	if err := b.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.eventually("its members are others", func() bool {
		return cmp.Equal(b.serving("web"), wanted(3, []string{"10.1.0.6", "10.1.0.7", "10.1.0.8"}))
	})
	b.realised("web")
	got := b.bed.writes()
	for call, n := range before {
		if got[call] -= n; got[call] == 0 {
			delete(got, call)
		}
	}
	want := map[string]int{memory.CreateLoadBalancer: 1, memory.ChangeMembers: 3, memory.CreateFloatingIP: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	b.patch(svc, map[string]any{"spec": map[string]any{"type": "ClusterIP"}})
	b.eventually("the floating IP is gone", func() bool { return b.ingress(svc) == "" && len(b.cloud.FloatingIPs()) == 0 })
	b.delete(svc)
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	if b.tree("web") != nil {
		t.Error("the cloud still has its load balancer")
	}
}

// TestWithheldDoesNotShow: a Service does not show a floating IP that is withheld because of its
// source ranges.
func TestWithheldDoesNotShow(t *testing.T) {
	b := newWholeBed(t)
	b.launch()
	svc := b.service("web", balanced)
	b.slice("web", "web-1", "10.1.0.5")
	b.eventually("its floating IP shows", func() bool { return strings.HasPrefix(b.ingress(svc), "203.0.113.") })
	was := b.ingress(svc)
	ranges := func(all ...string) map[string]any {
		return map[string]any{"spec": map[string]any{"loadBalancerSourceRanges": all}}
	}
	b.patch(svc, ranges("192.0.2.0/24"))
	b.eventually("it shows no more", func() bool { return b.ingress(svc) == "" })
	b.patch(svc, ranges())
	b.eventually("it is back", func() bool { return b.ingress(svc) == was })
}

// TestAskedForAndWithheld: a Service does not show a requested floating IP, either, however long
// its ranges are refused. It shows that of the controller that served it before until Kuryr has
// served it.
func TestAskedForAndWithheld(t *testing.T) {
	b := newWholeBed(t)
	b.launch()
	ip := b.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: external}).Address
	svc := b.service("web", balanced, func(s *corev1.Service) {
		s.Spec.LoadBalancerIP, s.Annotations = ip, map[string]string{"openstack.org/kuryr-provider": "amphora"}
	})
	b.slice("web", "web-1", "10.1.0.5")
	b.eventually("it shows", func() bool { return b.ingress(svc) == ip })
	b.eventually("it is settled", func() bool {
		klb := b.balancerOf("web")
		return klb != nil && meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionInSync) != nil
	})
	b.fail(memory.UpdateListener, fmt.Errorf("updating: %w", sdn.ErrForbidden))
	b.patch(svc, map[string]any{"spec": map[string]any{"loadBalancerSourceRanges": []string{"192.0.2.0/24"}}})
	b.eventually("it shows no more", func() bool { return b.ingress(svc) == "" })
	b.fail("", nil)
	b.eventually("it is back", func() bool { return b.ingress(svc) == ip })
}

// TestLargestService: of more endpoints than an object holds the first ones are members, in the
// spec and in the status. The Service reports that.
func TestLargestService(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it takes a quarter of a minute, and runs with 'make long'")
	}
	apart(t)
	b := newWholeBed(t)
	b.launch()
	svc := b.service("crowd-with-a-rather-long-name")
	for i := range 50 {
		var ips []string
		for j := range 100 {
			n := i*100 + j
			ips = append(ips, fmt.Sprintf("10.1.%d.%d", 100+n/250, 1+n%250))
		}
		b.create(newSlice(svc.Name, fmt.Sprint("crowd-", i), ips...))
	}
	b.eventually("the status has thousands of members", func() bool {
		klb := b.balancerOf(svc.Name)
		return klb != nil && len(klb.Status.Members) > 3000 && len(klb.Status.Members) == len(klb.Spec.Listeners[0].Members)
	})
	b.mentions("Event", b.eventOn(svc.Name, "EndpointsLeftOut"), "more endpoints than fit into a KuryrLoadBalancer")
}
