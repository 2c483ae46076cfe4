// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

func exampleService(name string, kind corev1.ServiceType, ips ...string) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: ago(50 * time.Hour)},
		Spec:       corev1.ServiceSpec{Type: kind, ClusterIPs: ips},
	}
	if len(ips) > 0 {
		svc.Spec.ClusterIP = ips[0]
	}
	return svc
}

func exampleBalancer(name, ip string, members ...string) *v1.KuryrLoadBalancer {
	klb := &v1.KuryrLoadBalancer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 4},
		Spec: v1.KuryrLoadBalancerSpec{
			VIPs:      []v1.VIPAddress{{IP: ip, SubnetID: "sub-services"}},
			Listeners: []v1.ListenerSpec{{Name: "http", Protocol: "TCP", Port: 80}},
		},
		Status: v1.KuryrLoadBalancerStatus{
			LoadBalancers: []v1.LoadBalancerStatus{{
				ID: "lb-" + name, Name: "shop/" + name, IP: ip, SubnetID: "sub-services", PortID: "vip-" + name, Provider: "ovn",
				ProvisioningStatus: "ACTIVE", OperatingStatus: "ONLINE",
			}},
			Listeners: []v1.ListenerStatus{{ID: "ls-" + name, LoadBalancerID: "lb-" + name, Protocol: "TCP", Port: 80}},
			Pools:     []v1.PoolStatus{{ID: "pool-" + name, ListenerID: "ls-" + name, LoadBalancerID: "lb-" + name, Protocol: "TCP"}},
			Conditions: []metav1.Condition{
				condition("Supported", "True", "Supported", "The provider does all that is asked for."),
				condition("Ready", "True", "Ready", "The cloud has the load balancer as wanted."),
				condition("Progressing", "False", "Settled", "No action needed."),
				condition("InSync", "True", "InSync", "The last look at the cloud showed what this status says."),
			},
		},
	}
	for i := range klb.Status.Conditions {
		klb.Status.Conditions[i].ObservedGeneration = 4
	}
	for _, m := range members {
		klb.Spec.Listeners[0].Members = append(klb.Spec.Listeners[0].Members, v1.MemberSpec{Name: "shop/" + m, IP: "10.1.0." + m[len(m)-1:], Port: 8080, SubnetID: "sub-pods"})
		klb.Status.Members = append(klb.Status.Members, v1.MemberStatus{ID: "m-" + m, PoolID: "pool-" + name, Name: "shop/" + m + ":8080", IP: "10.1.0." + m[len(m)-1:], Port: 8080, SubnetID: "sub-pods"})
	}
	return klb
}

// planned has a Service say something of its plan.
func planned(svc *corev1.Service, is metav1.ConditionStatus, reason, message string) *corev1.Service {
	svc.Status.Conditions = []metav1.Condition{condition(v1.ConditionPlanned, is, reason, message)}
	return svc
}

// calm is a Service with all that it asks for, public one with a floating IP whose
// cloud differs in all ways there are, the others have no load balancer.
func exampleServices() (calm, differing served, all []served) {
	calm = served{svc: exampleService("calm", "ClusterIP", "10.96.0.10"), klb: exampleBalancer("calm", "10.96.0.10", "web-1", "web-2")}

	klb := exampleBalancer("public", "10.96.0.20", "web-1", "web-2", "web-3")
	klb.Generation = 5
	klb.Spec.VIPs = append(klb.Spec.VIPs, v1.VIPAddress{IP: "fd00::20", SubnetID: "sub-services6"})
	klb.Spec.Provider, klb.Spec.ProjectID, klb.Spec.SourceRanges = "amphora", "proj-1", []string{"192.0.2.0/24", "198.51.100.0/24"}
	klb.Spec.PublicIP = &v1.PublicIPSpec{NetworkID: "outside", Address: "203.0.113.9"}
	klb.Spec.Listeners[0].TimeoutClientData = new(int64(60000))
	klb.Spec.Listeners[0].Members[2].SubnetID = "sub-other"
	klb.Spec.Listeners = append(klb.Spec.Listeners,
		v1.ListenerSpec{Name: "dns", Protocol: "UDP", Port: 53, Members: []v1.MemberSpec{{Name: "shop/dns-0", IP: "10.1.0.53", Port: 53}}},
		v1.ListenerSpec{Name: "tls", Protocol: "TCP", Port: 443, ProxyProtocol: "PROXY"}, v1.ListenerSpec{Name: "bare", Protocol: "TCP", Port: 9000})
	s := &klb.Status
	s.LoadBalancers[0].ProjectID = "proj-2"
	s.LoadBalancers = append(s.LoadBalancers, v1.LoadBalancerStatus{ID: "lb-old", IP: "10.96.0.19", SubnetID: "sub-services", Provider: "ovn", ProvisioningStatus: "ERROR"})
	s.Listeners[0].TimeoutClientData = new(int64(50000))
	s.Listeners = append(s.Listeners, v1.ListenerStatus{ID: "ls-tls", LoadBalancerID: "lb-public", Protocol: "TCP", Port: 443},
		v1.ListenerStatus{ID: "ls-bare", LoadBalancerID: "lb-public", Protocol: "TCP", Port: 9000},
		v1.ListenerStatus{ID: "ls-x", LoadBalancerID: "lb-public", Protocol: "SCTP", Port: 7})
	s.Pools = append(s.Pools, v1.PoolStatus{ID: "pool-tls", ListenerID: "ls-tls", Protocol: "TCP"}, v1.PoolStatus{ID: "pool-x", ListenerID: "ls-x", Protocol: "SCTP"})
	s.Members[1] = v1.MemberStatus{ID: "m-gone", PoolID: "pool-public", IP: "10.1.0.9", Port: 8080}
	s.Members = append(s.Members, v1.MemberStatus{ID: "m-x", PoolID: "pool-x", IP: "10.1.0.7", Port: 7})
	s.PublicIP, s.SecurityGroupID = &v1.PublicIPStatus{ID: "fip-1", IP: "203.0.113.8", Made: true}, "sg-public"
	s.Conditions[0] = condition("Supported", "False", "NotSupported", "spec.ports[dns].protocol: provider amphora has no UDP: the port is left out. Choose another provider")
	s.Conditions[1] = condition("Ready", "False", "OverQuota", "there is no room for a member")
	s.Conditions[2] = condition("Progressing", "True", "Working", "Kuryr changes the load balancer, or waits until Octavia has changed it.")
	s.Conditions[3] = condition("InSync", "False", "Drift", "The cloud was changed by somebody else, and is put right")
	differing = served{klb: klb, svc: planned(exampleService("public", "LoadBalancer", "10.96.0.20", "fd00::20"), "False", "SeveralProblems",
		"spec.loadBalancerIP: 203.0.113.8 is in use\nmetadata.annotations: class: not known")}

	gone := *exampleBalancer("gone", "10.96.0.30")
	gone.DeletionTimestamp = new(ago(time.Minute))
	fresh := v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new"}, Spec: v1.KuryrLoadBalancerSpec{VIPs: []v1.VIPAddress{{IP: "10.96.0.40"}}, PublicIP: &v1.PublicIPSpec{NetworkID: "outside"}}}
	foreign := exampleService("foreign", "LoadBalancer", "10.96.0.50")
	foreign.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
	going := exampleService("going", "ClusterIP", "10.96.0.51")
	going.DeletionTimestamp = new(ago(time.Minute))
	return calm, differing, []served{
		calm, differing, {klb: &gone}, {svc: exampleService("new", "LoadBalancer", "10.96.0.40"), klb: &fresh},
		{svc: exampleService("name", "ExternalName")}, {svc: exampleService("headless", "ClusterIP", "None")}, {svc: foreign}, {svc: going},
		{svc: planned(exampleService("outside", "ClusterIP", "10.97.0.1"), "False", "ClusterIPUnusable", "spec.clusterIPs: 10.97.0.1 is in none of services.subnetIDs")},
		{svc: exampleService("waiting", "ClusterIP", "10.96.0.60")}, {svc: exampleService("unseen", "NodePort", "10.96.0.61")},
	}
}

func TestServicesListPrints(t *testing.T) {
	for _, format := range []string{"", "wide", "name", "yaml", "json"} {
		calm, _, all := exampleServices()
		if format == "yaml" || format == "json" {
			all = []served{calm, all[len(all)-1]}
		}
		var out bytes.Buffer
		if err := writeServices(&out, all, format, format == "wide", noon); err != nil {
			t.Errorf("writeServices as %q: %v", format, err)
		}
		golden(t, "services-"+cmp.Or(format, "table"), out.Bytes())
	}
}

// What is the same in other words, as the controller takes it, is no difference.
func TestOtherWordsAreNoDifference(t *testing.T) {
	const id, other = "0a1b2c3d-0000-4000-8000-00000000000a", "0A1B2C3D00004000800000000000000A"
	klb := exampleBalancer("web", "10.96.0.10", "web-1")
	klb.Spec.Provider, klb.Status.LoadBalancers[0].Provider = "octavia", "amphora"
	klb.Spec.ProjectID, klb.Status.LoadBalancers[0].ProjectID = other, id
	klb.Spec.VIPs[0].SubnetID, klb.Status.LoadBalancers[0].SubnetID = other, id
	klb.Spec.Listeners[0].Members[0].SubnetID, klb.Status.Members[0].SubnetID = other, id
	c := compare(klb)
	if listeners, members := c.counts(); c == nil || len(c.differences) > 0 || members != "1/1" || listeners != "1/1" {
		t.Errorf("compare() = %+v, want no difference", c)
	}
	klb.Spec.Provider = "ovn"
	if c = compare(klb); len(c.differences) != 1 {
		t.Errorf("compare() with another provider = %+v, want one difference", c)
	}
}

func TestServiceShowPrints(t *testing.T) {
	calm, differing, all := exampleServices()
	for name, s := range map[string]served{"calm": calm, "differing": differing, "gone": all[2], "new": all[3], "outside": all[8], "waiting": all[9]} {
		var out bytes.Buffer
		if err := (&servicePicture{served: &s, now: noon}).write(&out); err != nil {
			t.Error(err)
		}
		golden(t, "service-"+name, out.Bytes())
	}
}
