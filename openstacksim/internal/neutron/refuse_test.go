// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// said formats an answer as "STATUS TYPE: MESSAGE".
func said(status int, answer object) string {
	wrong, _ := answer["NeutronError"].(object)
	return strings.TrimSuffix(refusal(status, answer)+": "+text(wrong, "message"), ": ")
}

// TestRefusals sends requests that Neutron refuses before it reads its resources.
func TestRefusals(t *testing.T) {
	d := newDesk(t)
	net, subnet := d.net("10.1.0.0/24")
	foreign := text(d.make(other, "network", object{}), "id")
	d.change("network", foreign, object{"shared": true})
	const none = "00000000-0000-4000-8000-000000000001"
	expand := strings.NewReplacer("$net", net, "$subnet", subnet, "$foreign", foreign, "$none", none, "$theirs", theirs).Replace
	for _, c := range []struct {
		who                keystone.Caller
		method, path, body string
		want               string
	}{
		{member, "POST", "/networks", "", "400 HTTPBadRequest: Unable to find 'network' in request body"},
		{member, "POST", "/networks", "{", "400 HTTPBadRequest: Body contains invalid data"},
		{member, "POST", "/networks", "[]", "400 HTTPBadRequest: Body contains invalid data"},
		{member, "POST", "/networks", "{} {}", "400 HTTPBadRequest: Body contains invalid data"},
		{member, "POST", "/networks", `{"net": {}}`, "400 HTTPBadRequest: Unable to find 'network' in request body"},
		{member, "POST", "/networks", `{"network": null}`, "400 HTTPBadRequest: Unable to find 'network' in request body"},
		{member, "POST", "/networks", `{"network": []}`, "400 HTTPBadRequest: Object 'network' contains invalid data"},
		{member, "POST", "/networks", `{"networks": []}`, "400 HTTPBadRequest: Resources required"},
		{member, "POST", "/networks", `{"networks": {"name": "n"}}`, "400 HTTPBadRequest: Object 'network' contains invalid data"},
		{member, "POST", "/networks", `{"networks": [5]}`, "400 HTTPBadRequest: Body contains invalid data"},
		{member, "POST", "/networks", `{"network": {"b": 1, "a": 2}}`, "400 HTTPBadRequest: Unrecognized attribute(s) 'a, b'"},
		{member, "POST", "/networks", `{"network": {"status": "ACTIVE"}}`, "400 HTTPBadRequest: Attribute 'status' not allowed in POST"},
		{member, "POST", "/networks", `{"network": {"name": 5}}`, "400 HTTPBadRequest: Invalid input for name. Reason: '5' is not a valid string."},
		{member, "POST", "/networks", `{"network": {"name": ["a", null, {"b": true}]}}`, "400 HTTPBadRequest: Invalid input for name. Reason: '['a', None, {'b': True}]' is not a valid string."},
		{member, "POST", "/networks", `{"network": {"admin_state_up": "maybe"}}`, "400 InvalidInput: Invalid input for operation: 'maybe' cannot be converted to boolean."},
		{member, "POST", "/networks", `{"network": {"tenant_id": "a", "project_id": "b"}}`, "400 HTTPBadRequest: 'project_id' and 'tenant_id' do not match"},
		{member, "POST", "/networks", `{"network": {"project_id": "$theirs"}}`, "400 HTTPBadRequest: Specifying 'project_id' or 'tenant_id' other than the authenticated project in request requires admin or advsvc privileges"},
		{member, "POST", "/networks", `{"network": {"shared": true, "provider:network_type": "flat"}}`, "403 PolicyNotAuthorized: ((rule:create_network and rule:create_network:shared) and rule:create_network:provider:network_type) is disallowed by policy"},
		{member, "PUT", "/networks/$net", `{"network": {"id": "x"}}`, "400 HTTPBadRequest: Cannot update read-only attribute id"},
		{member, "PUT", "/networks/$net", `{"networks": [{}]}`, "400 HTTPBadRequest: Bulk operation not supported"},
		{member, "PUT", "/networks/$net", "", "400 HTTPBadRequest: Unable to find 'network' in request body"},
		{member, "PUT", "/networks/$foreign", `{"network": {"name": "x"}}`, "403 PolicyNotAuthorized: rule:update_network is disallowed by policy"},
		{member, "PUT", "/networks/$none", `{"network": {"name": "x"}}`, "404 NetworkNotFound: Network $none could not be found."},
		{member, "DELETE", "/networks/$net", "x", "400 HTTPBadRequest: Request body is not supported in DELETE."},
		{member, "DELETE", "/networks/$foreign", "", "403 PolicyNotAuthorized: rule:delete_network is disallowed by policy"},
		{other, "GET", "/networks/$net", "", "404 NetworkNotFound: Network $net could not be found."},
		{other, "POST", "/subnets", `{"subnet": {"network_id": "$net", "cidr": "10.2.0.0/24", "ip_version": 4}}`, "404 NetworkNotFound: Network $net could not be found."},
		{member, "PATCH", "/networks", "", "405 HTTPMethodNotAllowed: The server could not comply with the request since it is either malformed or otherwise incorrect."},
		{member, "PUT", "/networks", `{"network": {"name": "x"}}`, "404 NetworkNotFound: Network None could not be found."},
		{member, "DELETE", "/networks", "", "404 NetworkNotFound: Network None could not be found."},
		{member, "POST", "/networks/$net", "", "400 HTTPBadRequest: Unable to find 'network' in request body"},
		{member, "GET", "/stones", "", "404 HTTPNotFound: The resource could not be found."},
		{member, "GET", "/networks/$net/stones", "", "404 HTTPNotFound: The resource could not be found."},
		{member, "GET", "/routers/$net/add_router_interface", "", "405 HTTPMethodNotAllowed: The server could not comply with the request since it is either malformed or otherwise incorrect."},
		{member, "GET", "/networks?colour=red&size=1", "", "400 HTTPBadRequest: ['colour', 'size'] is invalid attribute for filtering"},
		{member, "GET", "/networks?admin_state_up=maybe", "", "400 InvalidInput: Invalid input for operation: 'maybe' cannot be converted to boolean."},
		{member, "GET", "/networks?limit=-1", "", "400 BadRequest: Bad limit request: Limit must be an integer 0 or greater and not '-1'."},
		{member, "GET", "/networks?sort_key=name", "", "400 HTTPBadRequest: The number of sort_keys and sort_dirs must be same"},
		{member, "GET", "/networks?sort_key=subnets&sort_dir=asc", "", "400 HTTPBadRequest: ['subnets'] is invalid attribute for sort_keys"},
		{member, "GET", "/networks?sort_key=name&sort_dir=up", "", "400 HTTPBadRequest: ['up'] is invalid value for sort_dirs, valid value is 'asc' and 'desc'"},
		{member, "GET", "/networks?limit=1&marker=$none", "", "404 NetworkNotFound: Network $none could not be found."},
		{admin, "PUT", "/networks/$net", `{"network": {"mtu": 1443}}`, "400 InvalidInput: Invalid input for operation: Requested MTU is too big, maximum is 1442."},
		{admin, "POST", "/networks", `{"network": {"provider:network_type": "flat"}}`, "400 InvalidInput: Invalid input for operation: physical_network required for flat provider network."},
		{admin, "POST", "/networks", `{"network": {"provider:segmentation_id": 7}}`, "400 InvalidInput: Invalid input for operation: network_type required."},
		{admin, "POST", "/networks", `{"network": {"provider:network_type": "vlan", "provider:physical_network": "p", "provider:segmentation_id": 4095}}`, "400 InvalidInput: Invalid input for operation: segmentation_id out of range (1 through 4094)."},
		{member, "POST", "/subnets", `{"subnet": {"network_id": "$net", "cidr": "10.1.0.128/25", "ip_version": 4}}`, "400 InvalidInput: Invalid input for operation: Requested subnet with cidr: 10.1.0.128/25 for network: $net overlaps with another subnet."},
		{member, "POST", "/subnets", `{"subnet": {"network_id": "$net", "cidr": "fd00::/64", "ip_version": 4}}`, "400 InvalidInput: Invalid input for operation: cidr 'fd00::/64' does not match the ip_version '4'."},
		{member, "POST", "/subnets", `{"subnet": {"network_id": "$net", "cidr": "0.0.0.0/0", "ip_version": 4, "enable_dhcp": false}}`, "400 InvalidInput: Invalid input for operation: 0 is not allowed as CIDR prefix length."},
		{member, "POST", "/subnets", `{"subnet": {"network_id": "$net", "cidr": "10.3.0.0/31", "ip_version": 4}}`, "400 InvalidInput: Invalid input for operation: Subnet has a prefix length that is incompatible with DHCP service enabled."},
		{member, "POST", "/subnets", `{"subnet": {"network_id": "$net", "cidr": "10.3.0.0/24", "ip_version": 4, "dns_nameservers": ["1.1.1.1", "1.1.1.1"]}}`, "400 HTTPBadRequest: Invalid input for dns_nameservers. Reason: Duplicate nameserver '1.1.1.1'."},
		{member, "POST", "/routers", `{"router": {"external_gateway_info": {"network_id": "$net", "speed": 1}}}`, "400 HTTPBadRequest: Invalid input for external_gateway_info. Reason: Unexpected keys supplied: speed."},
		{member, "PUT", "/quotas/x", `{"quota": {"port": 5}}`, "403 PolicyNotAuthorized: rule:update_quota is disallowed by policy"},
		{admin, "PUT", "/quotas/x", `{"quota": {"stone": 5}}`, "400 HTTPBadRequest: Unrecognized attribute(s) 'stone'"},
		{admin, "DELETE", "/quotas/x", "", "404 TenantQuotaNotFound: Quota for tenant x could not be found."},
	} {
		status, answer := d.ask(c.who, c.method, expand(c.path), expand(c.body))
		if got, want := said(status, answer), expand(c.want); got != want {
			t.Errorf("%s %s %s:\n got %s\nwant %s", c.method, c.path, c.body, got, want)
		}
	}
}

// TestIfMatch changes and deletes with a condition.
func TestIfMatch(t *testing.T) {
	d := newDesk(t)
	id := text(d.make(member, "network", object{}), "id")
	do := func(method, condition, body string) (int, object) {
		r := httptest.NewRequest(method, "/v2.0/networks/"+id, strings.NewReader(body))
		r.Header.Set("If-Match", condition)
		w := httptest.NewRecorder()
		d.Handle(w, r, member)
		var answer object
		_ = json.Unmarshal(w.Body.Bytes(), &answer)
		return w.Code, answer
	}
	for _, c := range []struct{ method, condition, want string }{
		{"PUT", "revision_number=7", "412 RevisionNumberConstraintFailed: Constrained to 7, but current revision is 1"},
		{"PUT", "revision_number=x", "400 BadRequest: Bad if-match request: Revision number etag must be in the format of revision_number=<int>."},
		{"PUT", "revision_number=1", "200"},
		{"PUT", "revision_number=1", "412 RevisionNumberConstraintFailed: Constrained to 1, but current revision is 2"},
		{"PUT", "something else", "200"},
		{"DELETE", "revision_number=2", "412 RevisionNumberConstraintFailed: Constrained to 2, but current revision is 3"},
		{"DELETE", "revision_number=3", "204"},
	} {
		body := ""
		if c.method == "PUT" {
			body = `{"network": {"name": "n"}}`
		}
		if status, answer := do(c.method, c.condition, body); said(status, answer) != c.want {
			t.Errorf("%s if %s: %s, want %s", c.method, c.condition, said(status, answer), c.want)
		}
	}
}

// FuzzHandle searches for requests that stop the service, or that it does not answer. One of
// Neutron's own errors has the status 500.
func FuzzHandle(f *testing.F) {
	for _, s := range []struct{ method, path, body string }{
		{"POST", "networks", `{"networks": [{"name": "n", "segments": [{"provider:network_type": "vlan"}]}]}`},
		{"POST", "subnets", `{"subnet": {"network_id": "@", "cidr": "10.2.0.0/24", "ip_version": 4, "allocation_pools": [{"start": "10.2.0.4", "end": "::1"}]}}`},
		{"POST", "subnets", `{"subnet": {"network_id": "@", "ip_version": 6, "use_default_subnetpool": true, "prefixlen": 64}}`},
		{"POST", "subnetpools", `{"subnetpool": {"name": "p", "prefixes": ["10.0.0.0/8", "10.0.0.0/9"], "default_quota": 4, "is_default": "t"}}`},
		{"POST", "ports", `{"port": {"network_id": "@", "fixed_ips": [{"ip_address": "10.1.0.7"}], "allowed_address_pairs": [{"ip_address": 5}], "extra_dhcp_opts": [{"opt_name": "a", "opt_value": null}]}}`},
		{"POST", "routers", `{"router": {"external_gateway_info": {"network_id": "@", "external_fixed_ips": [{}]}}}`},
		{"POST", "floatingips", `{"floatingip": {"floating_network_id": "@", "fixed_ip_address": "1.2.3.4"}}`},
		{"POST", "security-group-rules", `{"security_group_rule": {"security_group_id": "@", "direction": "ingress", "protocol": 6, "port_range_min": "1", "remote_ip_prefix": "::/0"}}`},
		{"POST", "address-groups", `{"address_group": {"addresses": ["10.0.0.1/32"]}}`},
		{"POST", "trunks", `{"trunk": {"port_id": "@", "sub_ports": [{"port_id": "@", "segmentation_type": "vlan", "segmentation_id": 5}]}}`},
		{"PUT", "networks/@", `{"network": {"shared": 1, "mtu": 1e9}}`},
		{"PUT", "networks/@/tags", `{"tags": ["a", "b"]}`},
		{"PUT", "quotas/p", `{"quota": {"port": "5", "check_limit": true}}`},
		{"GET", "ports?fixed_ips=ip_address=10.1.0.7&tags-any=a,b&fields=id&sort_key=name&sort_dir=desc&limit=2&page_reverse=1", ""},
		{"GET", "quotas/p/details", ""},
		{"DELETE", "networks/@", ""},
	} {
		f.Add(s.method, s.path, s.body)
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		d := newDesk(t)
		net, _ := d.net("10.1.0.0/24")
		d.make(admin, "network", object{"router:external": true})
		path, body = strings.ReplaceAll(path, "@", net), strings.ReplaceAll(body, "@", net)
		r, err := http.NewRequest(strings.ToUpper(method), "http://sim/v2.0/"+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		d.Handle(w, r, admin)
		if w.Code >= 500 && !strings.Contains(w.Body.String(), "SubnetAllocationError") && !strings.Contains(w.Body.String(), "Request Failed: ") {
			t.Errorf("%s %s %s: %d %s", method, path, body, w.Code, w.Body)
		}
	})
}
