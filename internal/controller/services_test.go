// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// TestServiceFirst: a Service without an EndpointSlice gets nothing. Then it gets a
// KuryrLoadBalancer of its own, and the finalizer.
func TestServiceFirst(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web")
	b.never("a KuryrLoadBalancer without endpoints", func() bool { return b.balancerOf("web") != nil })
	b.slice("web", "web-1", "10.1.0.5")
	klb := b.members("web", "10.1.0.5")
	want := v1.KuryrLoadBalancerSpec{
		VIPs: []v1.VIPAddress{{IP: svc.Spec.ClusterIP, SubnetID: vipSubnet}},
		Listeners: []v1.ListenerSpec{{Protocol: "TCP", Port: 80, Members: []v1.MemberSpec{
			{Name: "default/web", IP: "10.1.0.5", Port: 8080, SubnetID: subnet},
		}}},
	}
	if diff := cmp.Diff(want, klb.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if o := klb.OwnerReferences; len(o) != 1 || o[0].UID != svc.UID {
		t.Errorf("owners %+v, want the Service", o)
	}
	if f := b.now(svc).Finalizers; !slices.Equal(f, []string{v1.ServiceFinalizer}) {
		t.Errorf("finalizers of the Service %v", f)
	}
}

// TestSliceFirst: endpoints may come before the Service, in several slices.
func TestSliceFirst(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	b.slice("web", "web-1", "10.1.0.6", "10.1.0.5")
	second := b.slice("web", "web-2", "10.1.0.7")
	b.service("web")
	b.members("web", "10.1.0.5", "10.1.0.6", "10.1.0.7")
	b.patch(second, map[string]any{"endpoints": []any{}})
	b.members("web", "10.1.0.5", "10.1.0.6")
	// Their deletion leaves the load balancer without members.
	if err := b.client.DeleteAllOf(t.Context(), &discoveryv1.EndpointSlice{}, client.InNamespace("default"), client.MatchingLabels{"test": "services"}); err != nil {
		t.Fatal(err)
	}
	b.members("web")
}

// TestDefaultKubernetes: the Service of the API servers gets a load balancer, too.
func TestDefaultKubernetes(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	b.eventually("default/kubernetes is realised", func() bool { return b.balancerOf("kubernetes") != nil })
}

// TestNoWriteWhenNothingChanges: neither an irrelevant change nor a restart causes a write. It
// causes no request to the cloud except for the subnets.
func TestNoWriteWhenNothingChanges(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web", balanced)
	s := b.slice("web", "web-1", "10.1.0.5")
	b.applied(b.members("web", "10.1.0.5"), "203.0.113.7")
	b.eventually("the ingress is written", func() bool { return b.ingress(svc) == "203.0.113.7" })
	before := b.quiet()
	b.patch(s, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"touched": "yes"}}})
	b.patch(svc, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"touched": "yes"}}})
	b.patchStatus(b.balancerOf("web"), map[string]any{"members": []any{map[string]any{"id": "m", "poolID": "p", "ip": "10.1.0.5", "port": 8080}}})
	if n := b.quiet(); n != before {
		t.Errorf("%d writes for nothing: %v", n-before, b.wrote.all[before:])
	}
	events := b.eventsOn(svc)
	b.stop()
	calls := b.book.count()
	b.launch()
	b.eventually("Services are planned after a restart", func() bool { return b.book.count() > calls })
	if n := b.quiet(); n != before {
		t.Errorf("%d writes after a restart: %v", n-before, b.wrote.all[before:])
	}
	if n := b.book.count() - calls; n != 2 {
		t.Errorf("%d calls for subnets after a restart, want 2", n)
	}
	if diff := cmp.Diff(events, b.eventsOn(svc)); diff != "" {
		t.Errorf("Events after a restart (-before +after):\n%s", diff)
	}
}

// TestIngressFollows: the Service shows the addresses in the status of its KuryrLoadBalancer. They
// are removed when the type changes.
func TestIngressFollows(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web", balanced)
	b.slice("web", "web-1", "10.1.0.5")
	klb := b.members("web", "10.1.0.5")
	if klb.Spec.PublicIP == nil || klb.Spec.PublicIP.NetworkID != external {
		t.Errorf("floating IP %+v, want one of %s", klb.Spec.PublicIP, external)
	}
	b.applied(klb, "203.0.113.7")
	b.eventually("the floating IP shows", func() bool { return b.ingress(svc) == "203.0.113.7" })
	b.patchStatus(klb, map[string]any{"publicIP": nil, "loadBalancers": nil})
	b.never("the address goes while nothing is known", func() bool { return b.ingress(svc) != "203.0.113.7" })
	b.applied(klb, "")
	b.eventually("an address that is withheld, or somebody else's, goes", func() bool { return b.ingress(svc) == "" })
	b.applied(klb, "203.0.113.8")
	b.eventually("another floating IP shows", func() bool { return b.ingress(svc) == "203.0.113.8" })
	b.patch(svc, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}}})
	b.eventually("an internal one shows its VIP", func() bool { return b.ingress(svc) == svc.Spec.ClusterIP })
	b.patch(svc, map[string]any{"spec": map[string]any{"type": "ClusterIP"}})
	b.eventually("a Service of type ClusterIP shows nothing", func() bool { return b.ingress(svc) == "" })
	b.eventually("and has no floating IP", func() bool { return b.balancerOf("web").Spec.PublicIP == nil })
}

// TestCleanupFinalizer: a Service that Kuryr makes public has Kubernetes' cleanup finalizer as long
// as it is of that type, and in deletion until the cloud is clean. A finalizer that another
// controller has added stays.
func TestCleanupFinalizer(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	both := []string{v1.ServiceFinalizer, v1.CleanupFinalizer}
	has := func(svc *corev1.Service, want ...string) func() bool {
		return func() bool { return slices.Equal(slices.Sorted(slices.Values(b.now(svc).Finalizers)), want) }
	}
	web := b.service("web", balanced)
	b.slice("web", "web-1", "10.1.0.5")
	b.eventually("it has both", has(web, both...))
	b.patch(web, map[string]any{"spec": map[string]any{"type": "ClusterIP"}})
	b.eventually("the type goes, and the finalizer with it", has(web, v1.ServiceFinalizer))
	b.patch(web, map[string]any{"spec": map[string]any{"type": "LoadBalancer"}})
	b.eventually("it has both again", has(web, both...))
	klb := b.members("web", "10.1.0.5")
	b.applied(klb, "")
	b.delete(web)
	b.never("it goes before the cloud is clean", func() bool { return b.now(web) == nil || !has(web, both...)() })
	b.patch(b.balancerOf("web"), map[string]any{"metadata": map[string]any{"finalizers": nil}})
	b.eventually("it is gone", func() bool { return b.now(web) == nil })

	theirs := b.service("theirs", balanced, func(s *corev1.Service) {
		s.Spec.LoadBalancerClass, s.Finalizers = new("example.com/other"), []string{v1.CleanupFinalizer}
	})
	b.slice("theirs", "theirs-1", "10.1.0.6")
	b.eventually("it has its own and ours", has(theirs, both...))
	b.patch(theirs, map[string]any{"spec": map[string]any{"type": "ClusterIP", "loadBalancerClass": nil}})
	b.never("theirs goes with the type", func() bool { return !has(theirs, both...)() })
	b.delete(theirs)
	b.eventually("ours goes", has(theirs, v1.CleanupFinalizer))
	b.never("theirs goes", func() bool { return !has(theirs, v1.CleanupFinalizer)() })
}

// TestLeftAloneFinalizer: a Service that Kuryr is to leave alone keeps neither of Kuryr's
// finalizers.
func TestLeftAloneFinalizer(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	web := b.service("web", balanced)
	b.slice("web", "web-1", "10.1.0.5")
	b.eventually("it has both", func() bool { return len(b.now(web).Finalizers) == 2 })
	b.patch(web, map[string]any{"metadata": map[string]any{"labels": map[string]any{v1.LeaveAloneLabel: "true"}}})
	b.eventually("it has none", func() bool { return len(b.now(web).Finalizers) == 0 })
}

// TestServiceDeletion: the Service waits for its KuryrLoadBalancer, and is gone after it.
func TestServiceDeletion(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web")
	b.slice("web", "web-1", "10.1.0.5")
	b.applied(b.members("web", "10.1.0.5"), "")
	b.delete(svc)
	b.eventually("the KuryrLoadBalancer is being deleted", func() bool { return !b.balancerOf("web").DeletionTimestamp.IsZero() })
	b.never("the Service goes before it", func() bool { return b.now(svc) == nil })
	b.letGo("web")
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	if b.balancerOf("web") != nil {
		t.Error("the KuryrLoadBalancer came back")
	}
}

// TestDeletionWhileStopped: a Service that was deleted while no controller ran is released.
func TestDeletionWhileStopped(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc, other := b.service("web"), b.service("other")
	b.slice("web", "web-1", "10.1.0.5")
	b.slice("other", "other-1", "10.1.0.6")
	b.members("web", "10.1.0.5")
	b.applied(b.members("other", "10.1.0.6"), "")
	b.stop()
	b.delete(svc)
	b.delete(other)
	b.delete(b.balancerOf("web")) // somebody was faster
	b.launch()
	b.eventually("the Service without a KuryrLoadBalancer is gone", func() bool { return b.now(svc) == nil })
	b.letGo("other")
	b.eventually("the other one, too", func() bool { return b.now(other) == nil })
}

// TestBalancerDeletedByHand: the KuryrLoadBalancer is created again once it is gone. Fields that
// somebody writes into its spec are removed.
func TestBalancerDeletedByHand(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	b.service("web")
	b.slice("web", "web-1", "10.1.0.5")
	klb := b.members("web", "10.1.0.5")
	b.applied(klb, "")
	b.delete(klb)
	b.never("it is changed while it goes", func() bool { return b.balancerOf("web").UID != klb.UID })
	b.letGo("web")
	b.eventually("there is another", func() bool { return b.balancerOf("web") != nil && b.balancerOf("web").UID != klb.UID })
	b.patch(b.balancerOf("web"), map[string]any{"spec": map[string]any{"listeners": []any{}, "provider": "other"}})
	b.members("web", "10.1.0.5")
	b.eventually("what nobody plans is taken out", func() bool { return b.balancerOf("web").Spec.Provider == "" })
	before := b.quiet()
	b.patch(b.balancerOf("web"), map[string]any{"metadata": map[string]any{"annotations": map[string]any{"touched": "yes"}}})
	if n := b.quiet(); n != before {
		t.Errorf("%d writes for nothing: %v", n-before, b.wrote.all[before:])
	}
}

// misspelled gives a Service an annotation that causes a note.
func misspelled(svc *corev1.Service) {
	svc.Annotations = map[string]string{"loadbalancer.openstack.org/flavour-id": "x"}
}

// TestNotWantedAnyMore: a Service that is no longer to have a load balancer loses everything that
// Kuryr has written on it.
func TestNotWantedAnyMore(t *testing.T) {
	for name, change := range map[string]map[string]any{
		"ExternalName": {"spec": map[string]any{"type": "ExternalName", "externalName": "example.com", "clusterIP": nil, "clusterIPs": nil}},
		"proxy":        {"metadata": map[string]any{"labels": map[string]any{"service.kubernetes.io/service-proxy-name": "other"}}},
		"leave alone":  {"metadata": map[string]any{"labels": map[string]any{v1.LeaveAloneLabel: ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newServiceBed(t)
			b.launch()
			svc := b.service("web", balanced, misspelled)
			b.slice("web", "web-1", "10.1.0.5")
			b.applied(b.members("web", "10.1.0.5"), "203.0.113.7")
			b.eventually("the ingress and the condition are written", func() bool { return b.ingress(svc) != "" && b.planned(svc) != nil })
			b.patch(svc, change)
			b.eventually("the KuryrLoadBalancer is being deleted", func() bool { return !b.balancerOf("web").DeletionTimestamp.IsZero() })
			others := ""
			if b.now(svc).Spec.Type == corev1.ServiceTypeLoadBalancer { // the next controller is quick
				others = "198.51.100.9"
				b.patchStatus(svc, map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": others}}}})
			}
			b.letGo("web")
			b.eventually("nothing of ours is on the Service", func() bool {
				s := b.now(svc)
				return len(s.Finalizers) == 0 && b.planned(svc) == nil
			})
			if got := b.ingress(svc); got != others {
				t.Errorf("ingress %q, want that of who serves it now, %q", got, others)
			}
			b.patch(svc, map[string]any{
				"metadata": map[string]any{"labels": nil}, "spec": map[string]any{"type": "ClusterIP", "externalName": nil},
			})
			b.members("web", "10.1.0.5")
		})
	}
}

// TestForeignServices: Services that Kuryr does not serve get no finalizer, no status and no
// object.
func TestForeignServices(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	proxy := func(s *corev1.Service) {
		s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
	}
	all := []*corev1.Service{
		b.service("headless", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }),
		b.service("proxy", balanced, proxy),
		b.service("both", balanced, foreign, proxy),
	}
	for _, svc := range all {
		b.slice(svc.Name, svc.Name, "10.1.0.5")
	}
	for _, svc := range all[1:] {
		b.patchStatus(svc, shownElsewhere)
	}
	b.never("something of ours on a foreign Service", func() bool {
		return slices.ContainsFunc(all, func(s *corev1.Service) bool { return b.balancerOf(s.Name) != nil || len(b.now(s).Finalizers) > 0 })
	})
	for _, svc := range all[1:] {
		if got := b.ingress(svc); got != "203.0.113.7" {
			t.Errorf("ingress of %s %q, want what its controller wrote", svc.Name, got)
		}
	}
}

// foreign lets another controller make a Service public; shownElsewhere is what that one shows.
func foreign(svc *corev1.Service) { svc.Spec.LoadBalancerClass = new("example.com/lb") }

var shownElsewhere = map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "203.0.113.7"}}}}

// TestForeignClass: a Service that another controller makes public has a load balancer at its
// cluster IP. Kuryr neither writes nor removes anything about its public side.
func TestForeignClass(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web", balanced, foreign, func(s *corev1.Service) {
		s.Annotations = map[string]string{
			"openstack.org/kuryr-providr": "ovn", "loadbalancer.openstack.org/flavour-id": "x",
			"loadbalancer.openstack.org/load-balancer-address": "203.0.113.9",
		}
	})
	b.patchStatus(svc, shownElsewhere)
	b.slice("web", "web-1", "10.1.0.5")
	klb := b.members("web", "10.1.0.5")
	if klb.Spec.PublicIP != nil {
		t.Errorf("floating IP %+v, want none", klb.Spec.PublicIP)
	}
	b.applied(klb, "")
	b.eventually("what there is to say of Kuryr's own annotation is said", func() bool { return b.planned(svc) != nil })
	if got := b.planned(svc).Message; strings.Contains(got, "flavour-id") {
		t.Errorf("condition %q, want nothing of somebody else's annotation", got)
	}
	b.never("the ingress changes", func() bool { return b.ingress(svc) != "203.0.113.7" })
	b.patch(svc, map[string]any{"metadata": map[string]any{"labels": map[string]any{"service.kubernetes.io/service-proxy-name": "other"}}})
	b.eventually("the KuryrLoadBalancer is being deleted", func() bool { return !b.balancerOf("web").DeletionTimestamp.IsZero() })
	b.letGo("web")
	b.eventually("nothing of ours is on the Service", func() bool { return len(b.now(svc).Finalizers) == 0 && b.planned(svc) == nil })
	if got, want := b.now(svc), b.ingress(svc); want != "203.0.113.7" || len(got.Annotations) != 3 {
		t.Errorf("ingress %q, annotations %v, want what others wrote", want, got.Annotations)
	}
}

// TestLeftAlone: without configured subnets no Service is changed, and existing load balancers
// stay.
func TestLeftAlone(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	b.service("web")
	b.slice("web", "web-1", "10.1.0.5")
	klb := b.members("web", "10.1.0.5")
	b.set(func(s *settings.Settings) { s.Services.SubnetIDs = nil })
	other := b.service("other", misspelled)
	b.slice("other", "other-1", "10.1.0.6")
	b.never("something becomes of a Service", func() bool { return b.balancerOf("other") != nil || b.planned(other) != nil })
	if now := b.balancerOf("web"); now == nil || now.ResourceVersion != klb.ResourceVersion {
		t.Errorf("KuryrLoadBalancer %+v, want it as it was", now)
	}
	b.set(func(s *settings.Settings) { s.Services.SubnetIDs = []string{vipSubnet} })
	b.members("other", "10.1.0.6")
}

// TestLateKuryrPort: an endpoint whose KuryrPort arrives later than its EndpointSlice becomes a
// member then.
func TestLateKuryrPort(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	b.service("web")
	b.slice("web", "web-1", "10.7.0.5")
	b.members("web")
	port := &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: "5f1c5aac-0000-4000-8000-0000000000b1"}, Spec: v1.KuryrPortSpec{
		Pool: "p", NodeName: "elsewhere", NetworkID: network,
		VIF:    v1.VIF{Type: "ovs", MACAddress: "fa:16:3e:00:00:01", Addresses: []v1.Address{{IP: "10.7.0.5", PrefixLength: 24, SubnetID: "namespace"}}},
		PodRef: &v1.PodReference{Namespace: "default", Name: "web-0", UID: "u", Interface: "eth0"},
	}}
	b.create(port)
	if klb := b.members("web", "10.7.0.5"); klb.Spec.Listeners[0].Members[0].SubnetID != "namespace" {
		t.Errorf("members %+v, want the port's subnet", klb.Spec.Listeners[0].Members)
	}
}

// TestServiceMadeAnew: a new Service of the same name is another Service.
func TestServiceMadeAnew(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web")
	b.slice("web", "web-1", "10.1.0.5")
	klb := b.members("web", "10.1.0.5")
	b.applied(klb, "")
	b.delete(svc)
	b.patch(svc, map[string]any{"metadata": map[string]any{"finalizers": nil}}) // by force
	again := b.service("web")
	b.eventually("the old KuryrLoadBalancer is being deleted", func() bool { return !b.balancerOf("web").DeletionTimestamp.IsZero() })
	b.letGo("web")
	b.eventually("there is one of the new Service", func() bool {
		now := b.balancerOf("web")
		return now != nil && now.UID != klb.UID && len(now.OwnerReferences) == 1 && now.OwnerReferences[0].UID == again.UID
	})
}
