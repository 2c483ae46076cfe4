// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/openstack"
	plan "github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/internal/preflight"
	"github.com/kuryr-go/kuryr/internal/sdn/tenants"
	"github.com/kuryr-go/kuryr/openstacksim"
)

type object = map[string]any

// world is a simulated cloud and a cluster, in which all is right at first.
type world struct {
	t      *testing.T
	cloud  *openstacksim.Cloud
	token  string
	user   string // entry of clouds.yaml
	before func(w http.ResponseWriter, r *http.Request) bool

	network, pods, services, servicesNetwork, router, publicNetwork, publicSubnet, group string

	config  *config.Config
	objects []client.Object
	funcs   interceptor.Funcs
}

func newWorld(t *testing.T, change ...func(*openstacksim.Options)) *world {
	t.Helper()
	w := &world{t: t, user: "kuryr"}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	o := openstacksim.Options{URL: server.URL, Seed: 1}
	for _, c := range change {
		c(&o)
	}
	var err error
	if w.cloud, err = openstacksim.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cloud.Close)
	w.login()
	w.build()
	w.config = config.New()
	w.config.Pods.SubnetIDs, w.config.Pods.SecurityGroupIDs = []string{w.pods}, []string{w.group}
	w.config.Services.SubnetIDs, w.config.Services.ExternalNetworkID = []string{w.services}, w.publicNetwork
	w.config.Services.ExternalSubnetID = w.publicSubnet
	w.config.Pools.WarmUp = true
	w.objects = []client.Object{
		node("node1", "192.0.2.11"), serviceRange("kubernetes", "10.96.0.0/16"),
		serviceAt("default", "kubernetes", "10.96.0.1"), dnsAt("10.96.0.10"),
	}
	return w
}

// ServeHTTP implements http.Handler.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if w.before == nil || !w.before(out, r) {
		w.cloud.ServeHTTP(out, r)
	}
}

func (w *world) send(method, path string, body any) (http.Header, object) {
	w.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, bytes.NewReader(text))
	r.Header.Set("X-Auth-Token", w.token)
	r.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	w.cloud.ServeHTTP(rec, r)
	answer, _ := io.ReadAll(rec.Body)
	if rec.Code >= 300 {
		w.t.Fatalf("%s %s: %d %s", method, path, rec.Code, answer)
	}
	var out object
	_ = json.Unmarshal(answer, &out)
	return rec.Header(), out
}

func (w *world) login() {
	named := object{"name": "Default"}
	header, _ := w.send(http.MethodPost, "/identity/v3/auth/tokens", object{"auth": object{
		"identity": object{"methods": []string{"password"}, "password": object{"user": object{"name": "kuryr", "domain": named, "password": "secret"}}},
		"scope":    object{"project": object{"name": "k8s", "domain": named}},
	}})
	w.token = header.Get("X-Subject-Token")
}

// make makes an object of Neutron and returns its ID.
func (w *world) make(one string, fields object) string {
	_, out := w.send(http.MethodPost, "/networking/v2.0/"+one+"s", object{one: fields})
	return out[one].(object)["id"].(string)
}

func (w *world) put(one, id string, fields object) {
	w.send(http.MethodPut, "/networking/v2.0/"+one+"s/"+id, object{one: fields})
}

func (w *world) iface(verb, router string, what object) {
	w.send(http.MethodPut, "/networking/v2.0/routers/"+router+"/"+verb+"_router_interface", what)
}

func (w *world) quota(kind string, n int) {
	id, _ := w.cloud.Project("k8s")
	w.send(http.MethodPut, "/networking/v2.0/quotas/"+id, object{"quota": object{kind: n}})
}

func (w *world) build() {
	w.network = w.make("network", object{"name": "pods"})
	w.pods = w.make("subnet", object{"network_id": w.network, "ip_version": 4, "cidr": "10.1.0.0/16"})
	w.servicesNetwork = w.make("network", object{"name": "services"})
	w.services = w.make("subnet", object{
		"network_id": w.servicesNetwork, "ip_version": 4, "cidr": "10.96.0.0/15", "gateway_ip": "10.97.255.254",
		"allocation_pools": []object{{"start": "10.97.0.1", "end": "10.97.255.253"}}, "enable_dhcp": false,
	})
	w.publicNetwork = w.make("network", object{"name": "public", "router:external": true})
	w.publicSubnet = w.make("subnet", object{"network_id": w.publicNetwork, "ip_version": 4, "cidr": "203.0.113.0/24"})
	w.router = w.make("router", object{"name": "k8s", "external_gateway_info": object{"network_id": w.publicNetwork}})
	w.iface("add", w.router, object{"subnet_id": w.pods})
	w.iface("add", w.router, object{"subnet_id": w.services})
	_, out := w.send(http.MethodPost, "/networking/v2.0/security-groups", object{"security_group": object{"name": "pods"}})
	w.group = out["security_group"].(object)["id"].(string)
	w.rule("0.0.0.0/0")
}

// rule has the security group let in a prefix.
func (w *world) rule(from string) {
	w.send(http.MethodPost, "/networking/v2.0/security-group-rules", object{"security_group_rule": object{
		"security_group_id": w.group, "direction": "ingress", "ethertype": "IPv4", "remote_ip_prefix": from,
	}})
}

// pool makes a subnet pool.
func (w *world) pool(prefix string, length int) string {
	return w.make("subnetpool", object{"name": "tenants", "prefixes": []string{prefix}, "default_prefixlen": length})
}

// otherRouter makes a router with a gateway, and with an interface in the Services' subnet.
func (w *world) otherRouter() string {
	id := w.make("router", object{"external_gateway_info": object{"network_id": w.publicNetwork}})
	w.iface("add", id, object{"port_id": w.make("port", object{"network_id": w.servicesNetwork, "fixed_ips": []object{{"subnet_id": w.services}}})})
	return id
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// run runs the checks with a fresh client of the cloud.
func (w *world) run() plan.Report {
	w.t.Helper()
	w.t.Setenv("OS_CLIENT_CONFIG_FILE", w.cloud.CloudsFile(w.t))
	b, err := openstack.New(w.t.Context(), openstack.Config{ClusterID: "c", Cloud: w.user, RequestTimeout: 5 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			w.t.Fatal(err)
		}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.objects...).WithInterceptorFuncs(w.funcs).Build()
	cloud := tenants.New(tenants.Options{
		Main: b,
		Tenants: func() (all []tenants.Tenant) {
			for _, p := range w.config.Projects {
				if p.Cloud != "" {
					all = append(all, tenants.Tenant{ProjectID: p.ProjectID, Cloud: p.Cloud})
				}
			}
			return all
		},
		Open: func(t tenants.Tenant) tenants.Session { return b.As(t.Cloud, t.ProjectID) },
	})
	return preflight.Run(w.t.Context(), preflight.Sources{Cloud: cloud, Kubernetes: reader, Config: w.config})
}

// answers has the cloud answer a path otherwise.
func (w *world) answers(path string, body any) {
	w.before = func(out http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(body)
		return true
	}
}

func node(name string, address string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: name}}},
	}
}

func serviceRange(name, cidr string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
}

func serviceAt(namespace, name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Port: 443}}},
	}
}

func dnsAt(ip string) *corev1.Service {
	s := serviceAt("kube-system", "kube-dns", ip)
	s.Labels = map[string]string{"k8s-app": "kube-dns"}
	return s
}

// names are the findings, as in "Error PodSubnetMissing".
func names(r plan.Report) []string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s", f.Severity, f.Name))
	}
	return out
}
