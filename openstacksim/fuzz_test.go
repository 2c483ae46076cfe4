// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/internal/recorded"
)

// FuzzHTTP sends requests to a cloud in which there is one of each: whatever it
// is sent, it does not panic, and answers no 5xx but those that the real services
// were seen to answer. Octavia gives away what Python said, and 501 for what the
// OVN provider cannot do; Neutron has one for pools of subnets that are used up.
func FuzzHTTP(f *testing.F) {
	for _, seed := range []struct{ method, path, body string }{
		{"POST", "/networking/v2.0/ports", `{"port":{"network_id":"$NET","fixed_ips":[{"subnet_id":"$SUB","ip_address":"10.0.0.9"}],"mac_address":null,"allowed_address_pairs":[{"ip_address":"::/0"}]}}`},
		{"POST", "/networking/v2.0/ports", `{"ports":[{"network_id":"$NET"},{"network_id":"$NET","fixed_ips":[{}]}]}`},
		{"PUT", "/networking/v2.0/ports/$PORT", `{"port":{"binding:host_id":"node1","binding:profile":{"a":1},"security_groups":[],"port_security_enabled":false}}`},
		{"PUT", "/networking/v2.0/ports/$PORT/tags", `{"tags":["a",1]}`},
		{"GET", "/networking/v2.0/ports?fixed_ips=ip_address%3D10.0.0.9&sort_key=name&sort_dir=up&limit=-1&marker=x&fields=id&tags=a,b", ""},
		{"POST", "/networking/v2.0/networks", `{"network":{"mtu":"9000","provider:network_type":"vlan","shared":true,"segments":[]}}`},
		{"POST", "/networking/v2.0/subnets", `{"subnet":{"network_id":"$NET","ip_version":6,"cidr":"fd00::/64","ipv6_ra_mode":"slaac","allocation_pools":[{"start":"fd00::9","end":"fd00::1"}],"host_routes":[{}]}}`},
		{"POST", "/networking/v2.0/subnetpools", `{"subnetpool":{"name":"p","prefixes":["10.0.0.0/8","::/0"],"default_prefixlen":129}}`},
		{"POST", "/networking/v2.0/security-group-rules", `{"security_group_rule":{"security_group_id":"$SG","direction":"ingress","protocol":-1,"port_range_min":0,"port_range_max":70000,"remote_ip_prefix":"0/0"}}`},
		{"POST", "/networking/v2.0/address-groups", `{"address_group":{"addresses":["1.2.3.4","x"]}}`},
		{"POST", "/networking/v2.0/trunks", `{"trunk":{"port_id":"$PORT","sub_ports":[{"port_id":"$PORT","segmentation_type":"vlan","segmentation_id":0}]}}`},
		{"POST", "/networking/v2.0/routers", `{"router":{"external_gateway_info":{"network_id":"$NET","external_fixed_ips":[{}]},"routes":[{"destination":"x"}]}}`},
		{"PUT", "/networking/v2.0/routers/$ROUTER/add_router_interface", `{"subnet_id":"$SUB","port_id":1}`},
		{"POST", "/networking/v2.0/floatingips", `{"floatingip":{"floating_network_id":"$NET","port_id":"$PORT","fixed_ip_address":7}}`},
		{"PUT", "/networking/v2.0/quotas/x", `{"quota":{"port":-2}}`},
		{"GET", "/networking/v2.0/extensions/quotas", ""},
		{"POST", "/load-balancer/v2/lbaas/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"$SUB","provider":"ovn","listeners":[{"name":"l","protocol":"TCP","protocol_port":80,"default_pool":{"name":"p"}}]}}`},
		{"POST", "/load-balancer/v2.0/lbaas/listeners", `{"listener":{"loadbalancer_id":"$LB","protocol":"HTTP","protocol_port":0,"allowed_cidrs":["x"]}}`},
		{"PUT", "/load-balancer/v2/lbaas/pools/$POOL/members?additive_only=true", `{"members":[{"address":"10.0.0.5","protocol_port":1},null]}`},
		{"POST", "/load-balancer/v2/lbaas/healthmonitors", `{"healthmonitor":{"pool_id":"$POOL","type":"TCP","delay":-1,"timeout":1e9,"max_retries":11}}`},
		{"DELETE", "/load-balancer/v2/lbaas/loadbalancers/$LB?cascade=maybe", ""},
		{"GET", "/load-balancer/v2/lbaas/loadbalancers/$LB/status?fields=x&limit=x", ""},
		{"POST", "/identity/v3/auth/tokens", `{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":7}}}}}`},
		{"PATCH", "/identity/v3/projects/x", `{"project":{"tags":[1]}}`},
		{"PUT", "/sim/dials", `calls: [{on: "* * *", latency: 0s}]`},
		{"GET", "/sim/calls?last=-1", ""},
		{"GET", "/%2e%2e//x", ""},
	} {
		f.Add(seed.method, seed.path, seed.body)
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if strings.HasPrefix(path, "/sim/dials") && method != http.MethodGet {
			return // what may be dialled is another test's
		}
		k, names := furnished(t)
		r, err := http.NewRequestWithContext(t.Context(), method, k.url, strings.NewReader(names.Replace(body)))
		if err != nil {
			return
		}
		r.URL.Path, r.URL.RawQuery, _ = strings.Cut(names.Replace(path), "?")
		if a := k.do(r); a.status >= 500 && !meant(r.URL.Path, a) {
			t.Errorf("%s %s %s\nanswered %d %s", method, path, body, a.status, a.body)
		}
	})
}

// meant says whether a 5xx is one that the real service was seen to answer to
// that, too.
func meant(path string, a answer) bool {
	var said struct {
		Faultstring  string
		NeutronError struct{ Type, Message string }
	}
	if json.Unmarshal([]byte(a.body), &said) != nil {
		return false
	}
	switch {
	case strings.HasPrefix(path, "/networking"):
		slaac := strings.HasSuffix(path, "/ports") && strings.HasPrefix(said.NeutronError.Message, "Request Failed: ") // a bulk POST
		return a.status == http.StatusInternalServerError && (said.NeutronError.Type == "SubnetAllocationError" || slaac)
	case strings.HasPrefix(path, "/load-balancer"):
		return a.status == http.StatusNotImplemented || a.status == http.StatusInternalServerError && recorded.Crashed(said.Faultstring)
	}
	return false
}

func TestMeant(t *testing.T) {
	for _, tc := range []struct {
		path   string
		status int
		body   string
		want   bool
	}{
		{"/networking/v2.0/subnets", 500, `{"NeutronError":{"type":"SubnetAllocationError"}}`, true},
		{"/networking/v2.0/subnets", 500, `{"NeutronError":{"type":"HTTPInternalServerError"}}`, false},
		{"/networking/v2.0/subnets", 503, `{"NeutronError":{"type":"SubnetAllocationError"}}`, false},
		{"/load-balancer/v2/lbaas/pools", 500, `{"faultcode":"Server","faultstring":"'name'"}`, true},
		{"/load-balancer/v2/lbaas/pools", 500, `{"faultcode":"Server","faultstring":"another"}`, false},
		{"/load-balancer/v2/lbaas/pools", 501, `{"faultcode":"Server","faultstring":"not by ovn"}`, true},
		{"/load-balancer/v2/lbaas/pools", 500, `the simulator has a fault: see its log`, false},
		{"/identity/v3/projects", 500, `{"error":{"code":500}}`, false},
	} {
		if got := meant(tc.path, answer{status: tc.status, body: tc.body}); got != tc.want {
			t.Errorf("%s %d %s: got %v, want %v", tc.path, tc.status, tc.body, got, tc.want)
		}
	}
}

// furnished is a cloud in which there is one of each kind, and how to write
// their IDs for $NET, $SUB, $PORT and so on.
func furnished(t testing.TB) (*client, *strings.Replacer) {
	t.Helper()
	c, err := openstacksim.New(openstacksim.Options{URL: "http://cloud.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	k := within(t, c, "kuryr", "k8s")
	known := []string{}
	for _, made := range []struct{ name, path, body string }{
		{"$NET", "/networking/v2.0/networks", `{"network":{}}`},
		{"$SUB", "/networking/v2.0/subnets", `{"subnet":{"network_id":"$NET","cidr":"10.0.0.0/24","ip_version":4}}`},
		{"$PORT", "/networking/v2.0/ports", `{"port":{"network_id":"$NET"}}`},
		{"$SG", "/networking/v2.0/security-groups", `{"security_group":{"name":"g"}}`},
		{"$ROUTER", "/networking/v2.0/routers", `{"router":{}}`},
		{"$LB", "/load-balancer/v2/lbaas/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"$SUB","provider":"ovn"}}`},
		{"$POOL", "/load-balancer/v2/lbaas/pools", `{"pool":{"loadbalancer_id":"$LB","protocol":"TCP","lb_algorithm":"SOURCE_IP_PORT"}}`},
	} {
		body := strings.NewReplacer(known...).Replace(made.body)
		known = append(known, made.name, first(t, k.must(http.StatusCreated, http.MethodPost, made.path, body)))
	}
	return k, strings.NewReplacer(known...)
}
