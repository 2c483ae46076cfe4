// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const missingID = "00000000-0000-4000-8000-00000000beef"

// breakage is something that preflight finds.
type breakage struct {
	want      string // severity and name
	config    func(r *readiness) object
	breaks    func(t *testing.T, r *readiness) // in the cloud or the cluster, for the rest of the test
	mends     bool                             // the commands of the remedy mend it
	wordsOnly bool                             // the message says what to do
}

// notOnBed has the findings that cannot be broken on the bed. The tests of internal/preflight have
// all of them, on the simulator.
var notOnBed = map[string]string{
	"ExtensionMissing":     "the bed's Neutron has each extension that a configuration can need; without one it would be another Neutron",
	"OctaviaOld":           "the bed's Octavia is that of Zed or of 2025.1",
	"LoadBalancingMissing": "the bed's cloud has Octavia; without it it would be another cloud",
}

// is is a change of fields of the configuration.
func is(fields object) func(*readiness) object { return func(*readiness) object { return fields } }

// of is such a change to IDs of the test's own.
func of(field string, id func(*readiness) any) func(*readiness) object {
	return func(r *readiness) object { return object{field: id(r)} }
}

// filled are settings with which pools want free ports before the first pod.
var filled = is(object{"pools": object{"min": 5, "batch": 1, "warmUp": true}})

// set changes an object of Neutron for the rest of the test.
func set(t *testing.T, r *readiness, one, id string, fields, back object) {
	t.Helper()
	t.Cleanup(func() { r.put(t, one, id, back) })
	r.put(t, one, id, fields)
}

// without removes an interface of the router for the rest of the test.
func without(subnet func(*readiness) string) func(*testing.T, *readiness) {
	return func(t *testing.T, r *readiness) {
		t.Helper()
		t.Cleanup(func() {
			if ifaces := must(r.RouterInterfaces(context.Background(), r.router))(t); ifaces[subnet(r)] == "" {
				r.iface(t, "add", r.router, object{"subnet_id": subnet(r)})
			}
		})
		r.iface(t, "remove", r.router, object{"subnet_id": subnet(r)})
	}
}

// exists creates an object in Kubernetes for the rest of the test.
func exists(t *testing.T, r *readiness, o client.Object) {
	t.Helper()
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(r.Client.Delete(context.Background(), o)); err != nil {
			t.Error(err)
		}
	})
	if err := r.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func (r *readiness) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: r.namespace, Name: name}
}

var broken = []breakage{
	{want: "Unknown CloudUnavailable", breaks: func(t *testing.T, r *readiness) {
		text := must(os.ReadFile(os.Getenv("OS_CLIENT_CONFIG_FILE")))(t)
		file := filepath.Join(r.dir, "clouds.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), ":5000/", ":5999/")), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("OS_CLIENT_CONFIG_FILE", file)
	}},
	{want: "Error PublicNetworkMissing", config: is(object{"services.externalNetworkID": missingID})},
	{want: "Error PublicNetworkMissing", config: of("services.externalNetworkID", func(r *readiness) any { return r.network })},
	{want: "Error PublicSubnetMissing", config: is(object{"services.externalSubnetID": missingID})},
	{want: "Error PodSubnetMissing", config: is(object{"pods.subnetIDs": []string{missingID}})},
	{want: "Error PodNetworkMismatch", config: of("pods.subnetIDs", func(r *readiness) any { return []string{r.pods, r.services} })},
	{want: "Error ServiceSubnetMissing", config: is(object{"services.subnetIDs": []string{missingID}})},
	{want: "Error NetworkDown", mends: true, breaks: func(t *testing.T, r *readiness) {
		set(t, r, "network", r.network, object{"admin_state_up": false}, object{"admin_state_up": true})
	}},
	{want: "Error PodSubnetNotRouted", mends: true, breaks: without(func(r *readiness) string { return r.pods })},
	{want: "Error ServiceSubnetNotRouted", mends: true, breaks: without(func(r *readiness) string { return r.services })},
	{want: "Warning RoutersDiffer", breaks: func(t *testing.T, r *readiness) {
		without(func(r *readiness) string { return r.services })(t, r)
		t.Cleanup(func() { r.iface(t, "remove", r.other, object{"subnet_id": r.services}) })
		r.iface(t, "add", r.other, object{"subnet_id": r.services})
	}},
	{want: "Error RouterDown", mends: true, breaks: func(t *testing.T, r *readiness) {
		set(t, r, "router", r.router, object{"admin_state_up": false}, object{"admin_state_up": true})
	}},
	{want: "Error RouterWithoutGateway", mends: true, breaks: func(t *testing.T, r *readiness) {
		set(t, r, "router", r.router, object{"external_gateway_info": object{}},
			object{"external_gateway_info": object{"network_id": os.Getenv("EXT_NET"), "enable_snat": false}})
	}},
	{want: "Error NetworkRouterMissing", config: is(object{"networks.routerID": missingID})},
	{want: "Warning NetworkRouterWithoutGateway", mends: true, config: of("networks.routerID", func(r *readiness) any { return r.other }),
		breaks: func(t *testing.T, r *readiness) {
			t.Cleanup(func() { r.put(t, "router", r.other, object{"external_gateway_info": object{}}) })
		}},
	{want: "Error ServiceInterfaceMissing", mends: true, config: of("networks.routerID", func(r *readiness) any { return r.other }),
		breaks: func(t *testing.T, r *readiness) {
			t.Cleanup(func() {
				for _, p := range r.all(t, "ports", "name=services-"+r.other) {
					r.iface(t, "remove", r.other, object{"port_id": p["id"]})
				}
			})
		}},
	{want: "Error GivenNetworkMissing", config: is(object{"networks.given": []object{{"name": "storage", "subnetIDs": []string{missingID}}}})},
	{want: "Error GivenNetworkNotRouted", mends: true, breaks: func(t *testing.T, r *readiness) {
		t.Cleanup(func() { r.iface(t, "remove", r.router, object{"subnet_id": r.given}) })
	}, config: of("networks.given", func(r *readiness) any { return []object{{"name": "storage", "subnetIDs": []string{r.given}}} })},
	{want: "Error ProjectMissing", config: is(object{"projects": []object{{"projectID": strings.ReplaceAll(missingID, "-", "")}}})},
	{want: "Error ProjectMissing", mends: true, config: is(object{"projects": []object{{"projectID": os.Getenv("TENANT_C_PROJECT")}}}),
		breaks: func(t *testing.T, r *readiness) {
			command := "openstack project set --%s " + os.Getenv("TENANT_C_PROJECT")
			t.Cleanup(func() { r.shell(context.Background(), t, fmt.Sprintf(command, "enable")) })
			r.shell(t.Context(), t, fmt.Sprintf(command, "disable"))
		}},
	{want: "Error ProjectCredentialRefused", config: is(object{"projects": []object{{"projectID": os.Getenv("TENANT_A_PROJECT"), "cloud": "admin"}}})}, // that is of another project
	{want: "Warning GatewayNotRouter", breaks: func(t *testing.T, r *readiness) {
		without(func(r *readiness) string { return r.pods })(t, r)
		port := r.made(t, "port", object{"network_id": r.network, "fixed_ips": []object{{"subnet_id": r.pods, "ip_address": "10.130.0.9"}}})
		t.Cleanup(func() { r.iface(t, "remove", r.router, object{"port_id": port}) })
		r.iface(t, "add", r.router, object{"port_id": port})
	}},
	{want: "Warning ServiceRouteMissing", mends: true, breaks: func(t *testing.T, r *readiness) {
		set(t, r, "subnet", r.pods, object{"host_routes": []object{{"destination": "10.8.0.0/24", "nexthop": "10.9.0.1"}}}, object{"host_routes": []object{}})
	}},
	{want: "Error ServiceRangeOutside", config: func(r *readiness) object { return object{"services.subnetIDs": []string{r.pods}} }},
	{want: "Warning ServiceRangeShared", mends: true, breaks: func(t *testing.T, r *readiness) {
		pools := func(first string) object {
			return object{"allocation_pools": []object{{"start": first, "end": "10.97.255.253"}}}
		}
		set(t, r, "subnet", r.services, pools("10.96.0.2"), pools("10.97.0.1"))
	}},
	{want: "Error DNSOutside", config: func(r *readiness) object { return object{"services.subnetIDs": []string{r.pods}} }},
	{want: "Warning AddressesOverlap", config: is(object{"pods.subnetIDs": []string{os.Getenv("NODE_SUBNET")}})},
	{want: "Error NodeAgentDown", config: filled, breaks: func(t *testing.T, r *readiness) {
		exists(t, r, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n9"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "e2e", Effect: corev1.TaintEffectNoSchedule}}}})
	}},
	{want: "Error SecurityGroupMissing", config: is(object{"pods.securityGroupIDs": []string{missingID}})},
	{want: "Warning SecurityGroupRuleMissing", mends: true, breaks: func(t *testing.T, r *readiness) {
		for _, rule := range r.all(t, "security-group-rules", "direction=ingress&security_group_id="+r.group) {
			r.neutron(t, http.MethodDelete, "security-group-rules/"+rule["id"].(string), nil)
		}
	}},
	{want: "Warning SecurityGroupsEmpty", config: is(object{"pods.securityGroupIDs": []string{}})},
	{want: "Error ProviderMissing", config: is(object{"services.provider": "no-such-provider"})},
	{want: "Warning BindingHidden", config: is(object{"neutron.cloud": "tenant"})},
	{want: "Unknown NodeAgentDown", config: is(object{"neutron.cloud": "tenant"}), wordsOnly: true},
	{want: "Warning PortQuotaShort", config: filled, breaks: func(t *testing.T, r *readiness) { r.quota(t, "port", 2) }},
	{want: "Warning SubnetFull", config: filled, breaks: func(t *testing.T, r *readiness) {
		pools := func(last string) object {
			return object{"allocation_pools": []object{{"start": "10.130.0.2", "end": last}}}
		}
		set(t, r, "subnet", r.pods, pools("10.130.0.5"), pools("10.130.255.254"))
	}},
	{want: "Warning BalancingQuotaShort", breaks: func(t *testing.T, r *readiness) {
		at := r.Octavia.ResourceBaseURL() + "lbaas/quotas/" + r.project
		was := request(t, r.Octavia, http.MethodGet, at, nil)["quota"].(object)["load_balancer"]
		t.Cleanup(func() { request(t, r.Octavia, http.MethodPut, at, object{"quota": object{"load_balancer": was}}) })
		request(t, r.Octavia, http.MethodPut, at, object{"quota": object{"load_balancer": 1}})
	}},
	{want: "Warning MTUMismatch", mends: true, config: is(object{"node.mtu": 1400}), breaks: func(t *testing.T, r *readiness) {
		t.Cleanup(func() { r.put(t, "network", r.network, object{"mtu": 1442}) })
	}},
	{want: "Warning PoliciesNotEnforced", breaks: func(t *testing.T, r *readiness) {
		exists(t, r, &networkingv1.NetworkPolicy{ObjectMeta: r.named("deny")})
	}},
}
