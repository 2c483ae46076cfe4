// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/openstacksim/internal/octavia"
)

func later(o *octavia.Options) { o.Later = true }

// TestLaterAnswers covers what the recordings of 2025.1 leave open.
func TestLaterAnswers(t *testing.T) {
	zed, later := newWorld(t, nil), newWorld(t, later)
	ids := map[*world]*strings.Replacer{}
	for _, w := range []*world{zed, later} {
		lb := w.balancer("ovn")
		pool := w.make("/pools", `{"pool":{"loadbalancer_id":"`+lb+`","protocol":"UDP","lb_algorithm":"SOURCE_IP_PORT"}}`)
		member := w.make("/pools/"+pool+"/members", `{"member":{"address":"10.0.0.9","protocol_port":80}}`)
		hm := w.make("/healthmonitors", `{"healthmonitor":{"pool_id":"`+w.make("/pools", `{"pool":{"loadbalancer_id":"`+lb+
			`","protocol":"SCTP","lb_algorithm":"SOURCE_IP_PORT"}}`)+`","type":"UDP-CONNECT","delay":5,"timeout":3,"max_retries":3}}`)
		taken, _ := w.get("/loadbalancers/"+lb, "loadbalancer.vip_address").(string)
		ids[w] = strings.NewReplacer("LB", lb, "POOL", pool, "MEMBER", member, "HM", hm, "SUBNET", subnetID, "TAKEN", taken)
	}
	for _, c := range []struct {
		name, method, path, body string // LB and so on stand for IDs
		zed, later               string // what the answers have
	}{
		{"a member without a subnet", "PUT", "/pools/POOL/members/MEMBER", `{"member":{"weight":2}}`, "500 Provider 'ovn' reports error: failed to", "200"},
		{"a member's card", "POST", "/pools/POOL/members", `{"member":{"address":"10.0.0.8","protocol_port":80,"request_sriov":true}}`, "400 Unknown attribute", "400 The load balancer flavor does not allow SR-IOV"},
		{"a member twice", "PUT", "/pools/POOL/members", `{"members":[{"address":"10.0.0.9","protocol_port":80},{"address":"10.0.0.9","protocol_port":80}]}`, "202", "400 Validation failure: Member must be updated only once"},
		{"members' monitors", "PUT", "/pools/POOL/members", `{"members":[{"address":"10.0.0.9","protocol_port":80,"monitor_port":81}]}`, "501 Provider 'ovn' does not support a requested option: OVN provider does not support monitor options, so", "501 Provider 'ovn' does not support a requested option: OVN provider does not support monitor options"},
		{"a monitor without a delay", "PUT", "/healthmonitors/HM", `{"healthmonitor":{"timeout":2}}`, "500 '<' not supported", "200"},
		{"a monitor in one request", "POST", "/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"SUBNET","pools":[{"name":"p","protocol":"TCP","lb_algorithm":"SOURCE_IP_PORT",
			"healthmonitor":{"type":"PING","delay":5,"timeout":3,"max_retries":3}}]}}`, "201", "501 Provider 'ovn' does not support a requested option: OVN provider does not support PING"},
		{"HSTS alone", "POST", "/listeners", `{"listener":{"loadbalancer_id":"LB","protocol":"TCP","protocol_port":80,"hsts_preload":true}}`, "400 Unknown attribute", "400 Validation failure: HSTS configuration"},
		{"HSTS of TCP", "POST", "/listeners", `{"listener":{"loadbalancer_id":"LB","protocol":"TCP","protocol_port":80,"hsts_max_age":1}}`, "400 Unknown attribute", "400 Validation failure: The HSTS feature can only"},
		{"CIDRs", "POST", "/listeners", `{"listener":{"loadbalancer_id":"LB","protocol":"TCP","protocol_port":80,"allowed_cidrs":["fd00::/8"]}}`,
			"400 Validation failure: CIDR fd00::/8 IP version incompatible with VIP TAKEN IP", "400 Validation failure: CIDR fd00::/8 IP version incompatible with all VIPs ['TAKEN'] IP"},
		{"an address in use, by amphora", "POST", "/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"SUBNET","vip_address":"TAKEN","provider":"amphora"}}`, "500 Provider 'amphora' reports error: IP address", "500 Provider 'amphora' reports error: ConflictException: 409"},
		{"no limit", "GET", "/pools?limit=infinite", "", "500 '>=' not supported", "200"},
	} {
		for w, want := range map[*world]string{zed: c.zed, later: c.later} {
			w.settle()
			code, out := w.do(tenant, c.method, ids[w].Replace(c.path), ids[w].Replace(c.body))
			said, _ := at(out, "faultstring").(string)
			got := strings.TrimSpace(fmt.Sprintf("%d %s", code, said))
			if !strings.HasPrefix(got, ids[w].Replace(want)) {
				t.Errorf("%s, Later %t: %s, want %s", c.name, w == later, got, want)
			}
		}
	}
}

// The provider shows a load balancer as ACTIVE after the first part of a change.
func TestLaterShowsPartsLater(t *testing.T) {
	w := newWorld(t, later)
	state := func() string {
		_, out := w.do(tenant, "GET", "/loadbalancers", "")
		said := []any{at(out, "loadbalancers.0.provisioning_status")}
		for _, many := range []string{"listeners", "pools"} {
			_, out := w.do(tenant, "GET", "/"+many, "")
			said = append(said, at(out, many+".0.provisioning_status"))
			if id, ok := at(out, many+".0.id").(string); ok && many == "pools" {
				_, out := w.do(tenant, "GET", "/pools/"+id+"/members?sort=address", "")
				for _, m := range out["members"].([]any) {
					said = append(said, at(m, "provisioning_status"))
				}
			}
		}
		return strings.NewReplacer("PENDING_", "", "[", "", "]", "").Replace(fmt.Sprint(said))
	}
	var got []string
	change := func(method, path, body string) {
		if code, out := w.do(tenant, method, path, body); code >= 300 {
			t.Fatalf("%s %s: %d %v", method, path, code, out)
		}
		for got = append(got, state()); len(w.later) > 0; got = append(got, state()) {
			f := w.later[0]
			w.later = w.later[1:]
			f()
		}
	}
	w.delay = func(string, string, string) (time.Duration, string) { return time.Second, "" }
	member := func(n int) string { return fmt.Sprintf(`{"address":"10.0.6.%d","protocol_port":80}`, n) }
	change("POST", "/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"`+subnetID+`","listeners":[{"protocol":"TCP","protocol_port":80,"default_pool":{
		"name":"p","protocol":"TCP","lb_algorithm":"SOURCE_IP_PORT","members":[`+member(1)+`]}}]}}`)
	_, out := w.do(tenant, "GET", "/pools", "")
	pool := "/pools/" + at(out, "pools.0.id").(string)
	change("PUT", pool+"/members", `{"members":[`+member(2)+`,`+member(3)+`]}`)
	change("DELETE", pool, "")
	// The load balancer, its listener, its pool, and this one's members.
	want := []string{
		"CREATE CREATE CREATE CREATE", "ACTIVE CREATE CREATE CREATE", "ACTIVE ACTIVE ACTIVE CREATE", "ACTIVE ACTIVE ACTIVE ACTIVE",
		"UPDATE UPDATE UPDATE DELETE CREATE CREATE", "ACTIVE ACTIVE ACTIVE DELETE ACTIVE CREATE", "ACTIVE ACTIVE ACTIVE ACTIVE ACTIVE",
		"UPDATE UPDATE DELETE ACTIVE ACTIVE", "ACTIVE ACTIVE ACTIVE", "ACTIVE ACTIVE <nil>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Each of several VIPs has a port, and all go with the load balancer.
func TestLaterMakesMoreVIPs(t *testing.T) {
	w := newWorld(t, later)
	asked := func(address string) string {
		return `{"loadbalancer":{"vip_subnet_id":"` + subnetID + `","vip_sg_ids":null,"additional_vips":[{"subnet_id":"` + secondID + `","ip_address":"` + address + `"}]}}`
	}
	lb := w.make("/loadbalancers", asked("10.0.7.7"))
	if got := w.get("/loadbalancers/"+lb, "loadbalancer.additional_vips.0.ip_address"); got != "10.0.7.7" || len(w.nets.ports) != 2 {
		t.Errorf("the additional VIP is %v, with %d ports, want 10.0.7.7 and 2", got, len(w.nets.ports))
	}
	if got, ok := w.get("/loadbalancers/"+lb, "loadbalancer.vip_sg_ids").([]any); !ok || len(got) > 0 {
		t.Errorf("vip_sg_ids: %v, want []", got)
	}
	if code, out := w.do(tenant, "POST", "/loadbalancers", asked("10.0.7.7")); code != 500 || len(w.nets.ports) != 2 {
		t.Errorf("an additional VIP in use: %d %v, and %d ports, want 500 and 2", code, out, len(w.nets.ports))
	}
	w.do(tenant, "DELETE", "/loadbalancers/"+lb, "")
	if w.settle(); len(w.nets.ports) != 0 {
		t.Errorf("%d ports are left", len(w.nets.ports))
	}
}
