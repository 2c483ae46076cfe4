// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// A namespace in mode namespace has a network of its own from its first pod on, made
// from the subnet pool, and its pods work in it: those on one node and on two, with
// pods of other namespaces, nodes, DNS, the API server, the outside and Services. Pods
// made again by their names work, too. With the namespace everything goes.
func TestNamespaceNetwork(t *testing.T) {
	f := withNetworks(t, mode(v1.NetworkNamespace))
	other := f.beside(t, "other") // in the common network
	common := other.on(t, "n1", "common")
	if f.knows(t) {
		t.Error("the namespace has a KuryrNetwork before it has a pod")
	}
	began := time.Now()
	pods := f.pods(t, "a", "b", "c") // n1, n2, n1
	t.Logf("the namespace's first pods run after %.1f s", time.Since(began).Seconds())
	kns := f.network(t)
	f.isMade(t, kns, v1.NetworkNamespace, families("NAMESPACE_POOL_CIDR"), os.Getenv("ROUTER"), os.Getenv("PROJECT"))
	f.inNetwork(t, kns, pods...)
	f.works(t, pods, common)

	if f.hasServices(t) {
		servers := f.servers(t, "web", 2)
		svc := f.service(t, "web")
		f.realised(t, svc)
		for _, from := range []asker{f.inPod(pods[0]), other.inPod(common), f.byNode("n1")} {
			from.all(t, svc.Spec.ClusterIP, servers)
		}
	}

	for _, pod := range pods[:2] {
		if err := f.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	again := f.pods(t, "a", "b")
	f.inNetwork(t, kns, again...)
	all(t, f.between(again[0], again[1]), f.between(again[1], again[0]))
	f.ends(t)
}

// A namespace whose label asks for it has its network before its first pod.
func TestNetworkBeforePods(t *testing.T) {
	long(t)
	f := withNetworks(t, mode(v1.NetworkNamespace), func(n *corev1.Namespace) {
		n.Labels = map[string]string{v1.NetworkNowLabel: ""}
	})
	kns := f.network(t)
	f.isMade(t, kns, v1.NetworkNamespace, families("NAMESPACE_POOL_CIDR"), os.Getenv("ROUTER"), os.Getenv("PROJECT"))
	f.ends(t)
}

// Pods keep their network when the mode of their namespace changes, and that is told.
// New ones get the same, until the last of them is gone: then there is another network.
func TestNetworkModeChange(t *testing.T) {
	long(t)
	f := withNetworks(t, mode(v1.NetworkNamespace))
	pods := f.pods(t, "a", "b")
	before := f.network(t)
	f.annotate(t, v1.NetworkModeAnnotation, string(v1.NetworkFlat))
	f.plans(t, "False", v1.NetworkModeAnnotation, "mode")
	f.told(t, v1.NetworkModeAnnotation, "mode")
	pods = append(pods, f.on(t, "n1", "c"))
	f.inNetwork(t, before, pods...)
	all(t, f.between(pods[0], pods[1]), f.between(pods[1], pods[2]))

	f.delete(t, pods...)
	eventually(t, func() error {
		var now v1.KuryrNetwork
		err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: f.namespace}, &now)
		if client.IgnoreNotFound(err) != nil || err == nil && now.UID == before.UID {
			return fmt.Errorf("the network of mode %s is still there: %w", before.Spec.Mode, errNotYet)
		}
		return nil
	})
	pods = f.pods(t, "a", "b")
	now := f.network(t)
	f.isMade(t, now, v1.NetworkFlat, families("NAMESPACE_CIDR"), os.Getenv("ROUTER"), os.Getenv("PROJECT"))
	f.inNetwork(t, now, pods...)
	all(t, f.between(pods[0], pods[1]), f.between(pods[1], pods[0]))

	// Without the annotation new pods are in the common network at once.
	f.annotate(t, v1.NetworkModeAnnotation, "")
	common := f.on(t, "n2", "common")
	if !within(os.Getenv("POD_CIDR"), common.Status.PodIP) {
		t.Errorf("a pod of the namespace without its annotation has %s, want an address of %s", common.Status.PodIP, os.Getenv("POD_CIDR"))
	}
	all(t, f.between(pods[0], common), f.between(common, pods[0]))
	f.delete(t, pods...)
	f.unknown(t)
}

// Nodes with subnets of their own (mode node): their pods are there, and reach others.
func TestNodeSubnets(t *testing.T) {
	long(t)
	f := onBed(t)
	rack := f.rack(t, "10.173.0.0/24", "fd00:8000:173::/64")
	f.change(t, func(document map[string]any) {
		document["nodes"] = []any{map[string]any{
			"nodeSelector": map[string]any{"matchLabels": map[string]string{corev1.LabelHostname: "n2"}},
			"subnetIDs":    rack.subnets,
		}}
	})
	t.Cleanup(func() { f.removePods(t) })
	pods := f.pods(t, "a", "b", "c", "d") // n1, n2, n1, n2
	for _, pod := range pods {
		want := map[string]string{"n1": os.Getenv("POD_CIDR"), "n2": rack.cidr}[pod.Spec.NodeName]
		if !within(want, pod.Status.PodIP) {
			t.Errorf("pod %s on %s has %s, want an address of %s", pod.Name, pod.Spec.NodeName, pod.Status.PodIP, want)
		}
	}
	checks := []check{f.between(pods[0], pods[1]), f.between(pods[1], pods[0]), f.between(pods[1], pods[3])}
	all(t, append(checks, f.surroundings(t, pods[0], pods[1])...)...)
}

// families returns a prefix of the bed and, if the bed is dual, that of IPv6.
func families(name string) string { return os.Getenv(name) + " " + os.Getenv(name+"6") }

// isMade checks that Neutron has what a KuryrNetwork says: its network and subnets by
// their names, in a project, each within one of the prefixes outer, on a router, and the
// way of the nodes to it.
func (f *fixture) isMade(t testing.TB, kns *v1.KuryrNetwork, mode v1.NetworkMode, outer, router, project string) {
	t.Helper()
	var namespace corev1.Namespace
	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: f.namespace}, &namespace); err != nil {
		t.Fatal(err)
	}
	name, id := string(namespace.UID)+"/"+f.namespace, must(f.clusterID(t.Context()))(t)
	if kns.Spec.Mode != mode || kns.Spec.NamespaceUID != string(namespace.UID) {
		t.Errorf("KuryrNetwork %s has spec %+v, want mode %s of namespace %s", kns.Name, kns.Spec, mode, namespace.UID)
	}
	network, there := must(f.Networks(t.Context(), id))(t)[kns.Status.NetworkID]
	if !there || network.Name != name || network.ProjectID != project || network.MTU != int(kns.Status.MTU) {
		t.Errorf("the network of %s in Neutron is %+v, want %s of project %s with MTU %d", kns.Name, network, name, project, kns.Status.MTU)
	}
	ifaces := must(f.RouterInterfaces(t.Context(), router))(t)
	all := must(f.Subnets(t.Context(), id))(t)
	if want := len(strings.Fields(outer)); len(kns.Status.Subnets) != want {
		t.Fatalf("KuryrNetwork %s has subnets %+v, want %d", kns.Name, kns.Status.Subnets, want)
	}
	for _, s := range kns.Status.Subnets {
		subnet, there := all[s.ID]
		if !there || subnet.Name != name || subnet.ProjectID != project || subnet.NetworkID != network.ID || subnet.CIDR != s.CIDR || subnet.EnableDHCP {
			t.Errorf("subnet %s of %s in Neutron is %+v, want %s of project %s, %s, without DHCP", s.ID, kns.Name, subnet, name, project, s.CIDR)
		}
		if !slices.ContainsFunc(strings.Fields(outer), func(o string) bool { return contains(o, s.CIDR) }) {
			t.Errorf("subnet %s of %s has prefix %s, want one within %s", s.ID, kns.Name, s.CIDR, outer)
		}
		if ifaces[s.ID] != s.Gateway || !s.Routed {
			t.Errorf("router %s has interfaces %v, want %s in subnet %s; its status is %+v", router, ifaces, s.Gateway, s.ID, s)
		}
		if !slices.ContainsFunc(kns.Status.NodeRoutes, func(r v1.Route) bool {
			return contains(r.Destination, s.CIDR) && r.Gateway != ""
		}) {
			t.Errorf("KuryrNetwork %s has node routes %+v, want one to %s by the router's address outside", kns.Name, kns.Status.NodeRoutes, s.CIDR)
		}
	}
}

// inNetwork checks that pods have ports and addresses in a network.
func (f *fixture) inNetwork(t testing.TB, kns *v1.KuryrNetwork, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		port := must(f.portOf(t, pod))(t)
		if port.NetworkID != kns.Status.NetworkID || port.DeviceOwner != "compute:kuryr" || port.FixedIPs[0].IPAddress != pod.Status.PodIP {
			t.Errorf("pod %s with %s has port %+v, want one of network %s", pod.Name, pod.Status.PodIP, port.Port, kns.Status.NetworkID)
		}
		if project := kns.Spec.ProjectID; project != "" && port.ProjectID != project {
			t.Errorf("the port of pod %s is in project %s, want %s", pod.Name, port.ProjectID, project)
		}
		if !slices.ContainsFunc(kns.Status.Subnets, func(s v1.NetworkSubnetStatus) bool { return within(s.CIDR, pod.Status.PodIP) }) {
			t.Errorf("pod %s has %s, want an address of %+v", pod.Name, pod.Status.PodIP, kns.Status.Subnets)
		}
	}
}

// within reports whether a prefix has an address.
func within(prefix, ip string) bool {
	p, err := netip.ParsePrefix(prefix)
	a, err2 := netip.ParseAddr(ip)
	return err == nil && err2 == nil && p.Contains(a)
}

// contains reports whether a prefix is part of another, or is it.
func contains(outer, inner string) bool {
	o, err := netip.ParsePrefix(outer)
	i, err2 := netip.ParsePrefix(inner)
	return err == nil && err2 == nil && o.Contains(i.Addr()) && o.Bits() <= i.Bits()
}
