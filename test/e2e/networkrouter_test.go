// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// A namespace has a router of its own, which Kuryr makes with a gateway in the external
// network. Without SNAT nodes and pods reach each other by the routes that the
// KuryrNetwork names, and pods reach cluster DNS and the outside. With SNAT pods reach
// the outside without any route to them. With the namespace all of it goes.
func TestNetworkWithItsOwnRouter(t *testing.T) {
	long(t)
	for name, snat := range map[string]bool{"routed": false, "snat": true} {
		t.Run(name, func(t *testing.T) {
			f := withNetworks(t, mode(v1.NetworkNamespace))
			f.ownRouter(t, snat)
			pods := f.pods(t, "a", "b") // n1, n2
			kns := f.network(t)
			f.isMade(t, kns, v1.NetworkNamespace, families("NAMESPACE_POOL_CIDR"), kns.Status.RouterID, os.Getenv("PROJECT"))
			f.inNetwork(t, kns, pods...)
			f.hasRouter(t, kns, snat)
			checks := []check{f.between(pods[0], pods[1]), f.between(pods[1], pods[0])}
			if snat {
				for _, pod := range pods {
					checks = append(checks, f.leavesAs(pod, kns))
				}
				all(t, checks...)
				f.tellsDNS(t, pods[0])
			} else {
				f.routeFromNodes(t, kns)
				all(t, append(checks, f.routed(t, pods...)...)...)
			}
			f.ends(t)
		})
	}
}

// ownRouter has Kuryr make a router for the test's namespace, until the end of the test.
func (f *fixture) ownRouter(t testing.TB, snat bool) {
	t.Helper()
	f.change(t, func(document map[string]any) {
		networks, _ := document["networks"].(map[string]any)
		if networks == nil {
			networks = map[string]any{}
		}
		more, _ := networks["namespaces"].([]any)
		networks["namespaces"] = append([]any{map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": map[string]string{corev1.LabelMetadataName: f.namespace}},
			"router":            map[string]any{"externalNetworkID": os.Getenv("EXT_NET"), "snat": snat},
		}}, more...)
		document["networks"] = networks
	})
}

// hasRouter compares the router of a KuryrNetwork in Neutron with its spec and status.
func (f *fixture) hasRouter(t testing.TB, kns *v1.KuryrNetwork, snat bool) {
	t.Helper()
	if kns.Spec.Router == nil || kns.Spec.RouterID != "" || kns.Status.RouterID == os.Getenv("ROUTER") {
		t.Fatalf("KuryrNetwork %s has spec %+v and router %s, want a router of its own", kns.Name, kns.Spec, kns.Status.RouterID)
	}
	r := must(routers.Get(t.Context(), f.Neutron, kns.Status.RouterID).Extract())(t)
	id := must(f.clusterID(t.Context()))(t)
	if r.Name != kns.Spec.NamespaceUID+"/"+f.namespace || !strings.Contains(r.Description, "kuryr.cluster="+id) || r.ProjectID != os.Getenv("PROJECT") {
		t.Errorf("the router of %s in Neutron is %+v, want the name and the mark of Kuryr in project %s", kns.Name, r, os.Getenv("PROJECT"))
	}
	g := r.GatewayInfo
	if g.NetworkID != os.Getenv("EXT_NET") || g.EnableSNAT == nil || *g.EnableSNAT != snat {
		t.Errorf("router %s has gateway %+v, want one in %s with SNAT %t", r.ID, g, os.Getenv("EXT_NET"), snat)
	}
	var outside []string
	for _, ip := range g.ExternalFixedIPs {
		outside = append(outside, ip.IPAddress)
	}
	slices.Sort(outside)
	if got := slices.Sorted(slices.Values(kns.Status.RouterAddresses)); !slices.Equal(got, outside) || len(outside) == 0 {
		t.Errorf("KuryrNetwork %s has router addresses %v, want %v", kns.Name, got, outside)
	}
	for _, route := range kns.Status.NodeRoutes {
		if !slices.Contains(outside, route.Gateway) {
			t.Errorf("KuryrNetwork %s has node routes %+v, want them by %v", kns.Name, kns.Status.NodeRoutes, outside)
		}
	}
}

// leavesAs is a check that a pod reaches the outside and the API server's own address,
// without a route of theirs to the pod.
func (f *fixture) leavesAs(pod *corev1.Pod, kns *v1.KuryrNetwork) check {
	api, _, _ := strings.Cut(os.Getenv("KUBERNETES_API"), ":")
	outside := netip.MustParsePrefix(os.Getenv("EXT_CIDR")).Masked().Addr().Next() // br-ex, beyond the router
	return f.inPod(pod).is("pod "+pod.Namespace+"/"+pod.Name+" to the outside as "+strings.Join(kns.Status.RouterAddresses, ", "),
		"ping -c1 -W1 "+outside.String()+" >/dev/null && echo ok; curl -sSk -m3 --noproxy '*' https://"+api+":6443/readyz", "ok\nok")
}

// tellsDNS logs whether a pod behind a router with SNAT reaches cluster DNS. That depends
// on the external network's gateway, and Kuryr promises nothing.
func (f *fixture) tellsDNS(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := f.inPod(pod)(ctx, "timeout 5 getent hosts kubernetes.default.svc.cluster.local | cut -d' ' -f1")
	t.Logf("a pod behind a router with SNAT asks cluster DNS for the API server: %q, %v", strings.TrimSpace(got), err)
}
