// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/openstacksim"
)

const missing = "00000000-0000-4000-8000-000000000000"

// A sound cloud has no finding, and a run costs the stated requests, all of them reads.
func TestNothingIsWrong(t *testing.T) {
	w := newWorld(t)
	w.cloud.Reset()
	r := w.run()
	if len(r.Findings) > 0 || len(r.Passed) == 0 {
		t.Errorf("Run found %+v and passed %d checks, want no finding", r.Findings, len(r.Passed))
	}
	asked := map[string]int{}
	for _, c := range w.cloud.Counts() {
		asked[c.Service] += c.Calls
		if c.Method != http.MethodGet && c.Service != "identity" {
			t.Errorf("Run sent %s %s, want reads only", c.Method, c.Resource)
		}
	}
	if asked["network"] != 9 || asked["load-balancer"] != 3 {
		t.Errorf("Run sent %v requests, want 9 to Neutron and 3 to Octavia", asked)
	}
}

// wrong has what is broken on purpose, and the finding.
var wrong = []struct {
	want   string
	change func(w *world)
}{
	{"Error PublicNetworkMissing", func(w *world) { w.config.Services.ExternalNetworkID = missing }},
	{"Error PublicNetworkMissing", func(w *world) { w.config.Services.ExternalNetworkID = w.network }},
	{"Error PublicSubnetMissing", func(w *world) { w.config.Services.ExternalSubnetID = missing }},
	{"Error PodSubnetMissing", func(w *world) { w.config.Pods.SubnetIDs = []string{missing} }},
	{"Error PodNetworkMismatch", func(w *world) { w.config.Pods.SubnetIDs = append(w.config.Pods.SubnetIDs, w.services) }},
	{"Error ServiceSubnetMissing", func(w *world) { w.config.Services.SubnetIDs = []string{missing} }},
	{"Error NetworkDown", func(w *world) { w.put("network", w.network, object{"admin_state_up": false}) }},
	{"Error PodSubnetNotRouted", func(w *world) { w.iface("remove", w.router, object{"subnet_id": w.pods}) }},
	{"Error ServiceSubnetNotRouted", func(w *world) { w.iface("remove", w.router, object{"subnet_id": w.services}) }},
	{"Warning RoutersDiffer", func(w *world) {
		w.iface("remove", w.router, object{"subnet_id": w.services})
		other := w.make("router", object{"external_gateway_info": object{"network_id": w.publicNetwork}})
		w.iface("add", other, object{"subnet_id": w.services})
	}},
	{"Error RouterDown", func(w *world) { w.put("router", w.router, object{"admin_state_up": false}) }},
	{"Error RouterWithoutGateway", func(w *world) { w.put("router", w.router, object{"external_gateway_info": object{}}) }},
	{"Warning GatewayNotRouter", func(w *world) {
		w.iface("remove", w.router, object{"subnet_id": w.pods})
		w.iface("add", w.router, object{"port_id": w.make("port", object{"network_id": w.network, "fixed_ips": []object{{"subnet_id": w.pods, "ip_address": "10.1.0.9"}}})})
	}},
	{"Warning ServiceRouteMissing", func(w *world) {
		w.put("subnet", w.pods, object{"host_routes": []object{{"destination": "10.8.0.0/24", "nexthop": "10.9.0.1"}}})
	}},
	{"Error ServiceRangeOutside", func(w *world) { w.objects = append(w.objects, serviceRange("more", "10.100.0.0/16")) }},
	{"Warning ServiceRangeShared", func(w *world) {
		w.put("subnet", w.services, object{"allocation_pools": []object{{"start": "10.96.0.2", "end": "10.97.255.253"}}})
	}},
	{"Error DNSOutside", func(w *world) { w.objects[3] = dnsAt("10.200.0.10") }},
	{"Warning AddressesOverlap", func(w *world) { w.objects[0] = node("node1", "10.1.7.7") }},
	{"Error NodeAgentDown", func(w *world) { w.objects = append(w.objects, node("node2", "192.0.2.12")) }},
	{"Error NodeAgentDown", func(w *world) {
		if err := w.cloud.SetAgent("node1", false); err != nil {
			w.t.Fatal(err)
		}
	}},
	{"Warning NodeAgentDown", func(w *world) {
		n := node("node2", "192.0.2.12")
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		w.objects = append(w.objects, n)
	}},
	{"Warning NodeAgentDown", func(w *world) {
		n := node("node2", "192.0.2.12")
		n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		w.objects = append(w.objects, n)
	}},
	{"Error SecurityGroupMissing", func(w *world) { w.config.Pods.SecurityGroupIDs = []string{missing} }},
	{"Warning SecurityGroupsEmpty", func(w *world) { w.config.Pods.SecurityGroupIDs = nil }},
	{"Error ProviderMissing", func(w *world) { w.config.Services.Provider = "no-such-provider" }},
	{"Warning OctaviaOld", func(w *world) {
		w.answers("/load-balancer/", object{"versions": []object{{"id": "v2.0"}, {"id": "v2.25"}}})
	}},
	{"Error ExtensionMissing", func(w *world) {
		w.answers("/networking/v2.0/extensions", object{"extensions": []object{{"alias": "security-group"}, {"alias": "router"}}})
	}},
	{"Warning BindingHidden", func(w *world) { w.user = "tenant" }},
	{"Unknown NodeAgentDown", func(w *world) { w.user = "tenant" }},
	{"Warning PortQuotaShort", func(w *world) { w.quota("port", 8) }},
	{"Warning SubnetFull", func(w *world) {
		w.put("subnet", w.pods, object{"allocation_pools": []object{{"start": "10.1.0.10", "end": "10.1.0.13"}}})
	}},
	{"Warning BalancingQuotaShort", func(w *world) {
		id, _ := w.cloud.Project("k8s")
		w.send(http.MethodPut, "/load-balancer/v2/lbaas/quotas/"+id, object{"quota": object{"load_balancer": 1}})
	}},
	{"Warning BalancingQuotaShort", func(w *world) {
		id, _ := w.cloud.Project("k8s")
		w.send(http.MethodPut, "/load-balancer/v2/lbaas/quotas/"+id, object{"quota": object{"member": 2}})
		w.objects = append(w.objects, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
			Endpoints:  make([]discoveryv1.Endpoint, 3), Ports: make([]discoveryv1.EndpointPort, 1),
		})
	}},
	{"Warning MTUMismatch", func(w *world) { w.config.Node.MTU = 1000 }},
	{"Warning PoliciesNotEnforced", func(w *world) {
		w.objects = append(w.objects, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "deny"}})
	}},
	{"Unknown PoliciesNotEnforced", func(w *world) {
		w.funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*metav1.PartialObjectMetadataList); ok {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "networkpolicies"}, "", nil)
			}
			return c.List(ctx, list, opts...)
		}
	}},
	{"Warning PodSubnetNotRouted", func(w *world) {
		w.iface("remove", w.router, object{"subnet_id": w.pods})
		network := w.make("network", object{"provider:network_type": "flat", "provider:physical_network": "physnet1"})
		w.config.Pods.SubnetIDs = []string{w.make("subnet", object{"network_id": network, "ip_version": 4, "cidr": "10.2.0.0/16"})}
	}},
	{"Error NetworkRouterMissing", func(w *world) { w.config.Networks.RouterID = missing }},
	{"Warning NetworkRouterWithoutGateway", func(w *world) { w.config.Networks.RouterID = w.make("router", object{}) }},
	{"Error RouterDown", func(w *world) {
		w.config.Networks.RouterID = w.otherRouter()
		w.put("router", w.config.Networks.RouterID, object{"admin_state_up": false})
	}},
	{"Error ServiceInterfaceMissing", func(w *world) {
		w.config.Projects = []config.Project{{ProjectID: w.project(), RouterID: w.make("router", object{})}}
	}},
	{"Error GivenNetworkMissing", func(w *world) {
		w.config.Networks.Given = []config.GivenNetwork{{Name: "a", SubnetIDs: []string{missing}}}
	}},
	{"Error GivenNetworkMissing", func(w *world) {
		w.config.Nodes = []config.NodePorts{{NodeSelector: &metav1.LabelSelector{}, SubnetIDs: []string{missing}}}
	}},
	{"Error GivenNetworkNotRouted", func(w *world) {
		storage := w.make("subnet", object{"network_id": w.make("network", object{}), "ip_version": 4, "cidr": "10.2.0.0/24"})
		w.config.Networks.Given = []config.GivenNetwork{{Name: "a", SubnetIDs: []string{storage}}}
	}},
	{"Error ProjectMissing", func(w *world) { w.config.Projects = []config.Project{{ProjectID: missing}} }},
	{"Error ProjectCredentialRefused", func(w *world) {
		w.config.Projects = []config.Project{{ProjectID: w.cloud.AddTenant("red"), Cloud: "red"}}
		if err := w.cloud.SetProject("red", false); err != nil {
			w.t.Fatal(err)
		}
	}},
	{"Error ProjectCredentialRefused", func(w *world) { // it is of another project
		w.config.Projects = []config.Project{{ProjectID: w.cloud.AddTenant("red"), Cloud: "admin"}}
	}},
	{"Warning SecurityGroupRuleMissing", func(w *world) {
		_, out := w.send(http.MethodPost, "/networking/v2.0/security-groups", object{"security_group": object{"name": "closed"}})
		w.config.Pods.SecurityGroupIDs = []string{out["security_group"].(object)["id"].(string)}
	}},
	{"Unknown LoadBalancingMissing", func(w *world) { w.dial("load-balancer GET /v2/lbaas/providers: 503") }},
	{"Unknown PortQuotaShort", func(w *world) { w.dial("network GET /v2.0/quotas/**: 503") }},
	{"Unknown CloudUnavailable", func(w *world) { w.dial("network GET /v2.0/**: 503") }},
}

// apart has two namespaces get networks, on the router.
func (w *world) apart() {
	w.config.Networks.Mode, w.config.Networks.RouterID = "namespace", w.router
	w.objects = append(w.objects, namespace("shop"), namespace("lab"))
}

func (w *world) project() string {
	id, _ := w.cloud.Project("k8s")
	return id
}

func (w *world) dial(line string) {
	w.t.Helper()
	if err := w.cloud.Dial(line); err != nil {
		w.t.Fatal(err)
	}
}

func TestEachFindingOnACloud(t *testing.T) {
	tested := map[string]bool{"LoadBalancingMissing": true} // the next test
	for _, c := range wrong {
		_, name, _ := strings.Cut(c.want, " ")
		tested[name] = true
		t.Run(c.want, func(t *testing.T) {
			w := newWorld(t)
			c.change(w)
			r := w.run()
			if !slices.Contains(names(r), c.want) || slices.Contains(r.Passed, name) {
				t.Errorf("Run found %+v, want %s", r.Findings, c.want)
			}
		})
	}
	for _, name := range newWorld(t).run().Passed { // all that there is
		if !tested[name] {
			t.Errorf("finding %s is in no row", name)
		}
	}
}

// What looks like a fault in the cluster, and is none.
func TestNoFindingOnACloud(t *testing.T) {
	w := newWorld(t)
	windows, gone := node("windows", "192.0.2.13"), node("gone", "192.0.2.14")
	windows.Labels = map[string]string{corev1.LabelOSStable: "windows"}
	gone.DeletionTimestamp, gone.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.org/keeps"}
	w.objects = append(w.objects, windows, gone)
	if r := w.run(); len(r.Findings) > 0 {
		t.Errorf("Run found %+v, want nothing", r.Findings)
	}
}

// An API server before Kubernetes 1.33 has no ServiceCIDRs: cluster IPs show what is wrong.
func TestClusterWithoutServiceCIDRs(t *testing.T) {
	w := newWorld(t)
	w.funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*networkingv1.ServiceCIDRList); ok {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "networking.k8s.io", Kind: "ServiceCIDR"}}
		}
		return c.List(ctx, list, opts...)
	}
	if r := w.run(); len(r.Findings) > 0 {
		t.Errorf("Run found %+v, want nothing", r.Findings)
	}
	w.objects[3] = dnsAt("10.200.0.10")
	if got := names(w.run()); !slices.Equal(got, []string{"Error DNSOutside"}) {
		t.Errorf("Run found %v, want DNSOutside", got)
	}
}

// Nodes of a second page count, and take nothing over from those of the first.
func TestPages(t *testing.T) {
	w := newWorld(t)
	first, second := node("node1", "192.0.2.11"), node("node2", "192.0.2.12")
	w.funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		nodes, ok := list.(*corev1.NodeList)
		if !ok {
			return c.List(ctx, list, opts...)
		}
		var o client.ListOptions
		o.ApplyOptions(opts)
		if len(nodes.Items) > 0 || o.Limit != 500 {
			t.Errorf("a page of %d nodes is read into a list of %d", o.Limit, len(nodes.Items))
		}
		if nodes.Items = []corev1.Node{*second}; o.Continue == "" {
			nodes.Items, nodes.Continue = []corev1.Node{*first}, "more"
		}
		return nil
	}
	r := w.run()
	if got := names(r); !slices.Equal(got, []string{"Error NodeAgentDown"}) || r.Findings[0].Object != "node node2" {
		t.Errorf("Run found %+v, want that node2 of the second page has no agent", r.Findings)
	}
}

func TestCloudWithoutLoadBalancers(t *testing.T) {
	w := newWorld(t, func(o *openstacksim.Options) { o.LBaaSv2 = true })
	r := w.run()
	if !slices.Contains(names(r), "Error LoadBalancingMissing") {
		t.Errorf("Run found %+v, want LoadBalancingMissing", r.Findings)
	}
}

// Networks of namespaces without a fault cost the stated requests more.
func TestNothingIsWrongWithNetworks(t *testing.T) {
	w := newWorld(t)
	w.apart()
	w.config.Networks.SubnetPoolIDs, w.config.Networks.AllowedModes = []string{w.pool("10.64.0.0/16", 24)}, []string{"flat"}
	w.config.Networks.Ranges = []string{"10.240.0.0/12"}
	w.config.Projects = []config.Project{{ProjectID: w.project(), RouterID: w.otherRouter(), SecurityGroupIDs: []string{w.group}}}
	w.cloud.Reset()
	if r := w.run(); len(r.Findings) > 0 {
		t.Errorf("Run found %+v, want nothing", r.Findings)
	}
	asked := map[string]int{}
	for _, c := range w.cloud.Counts() {
		if !strings.HasPrefix(c.Resource, "auth/") {
			asked[c.Service] += c.Calls
		}
	}
	if asked["network"] != 9 || asked["identity"] != 1 {
		t.Errorf("Run sent %v requests, want 9 to Neutron and one for the project", asked)
	}
}

// Without services.subnetIDs nothing of Services is read or checked.
func TestServicesLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.config.Services = config.New().Services
	w.iface("remove", w.router, object{"subnet_id": w.services})
	w.objects[3] = dnsAt("10.200.0.10")
	w.cloud.Reset()
	if r := w.run(); len(r.Findings) > 0 || w.cloud.Count(http.MethodGet, "providers") > 0 {
		t.Errorf("Run found %+v, want nothing about Services", r.Findings)
	}
}
