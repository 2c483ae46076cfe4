// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/openstacksim/internal/octavia"
)

func TestVIPPorts(t *testing.T) {
	for provider, want := range map[string]octavia.VIPPort{
		"ovn":     {Name: "ovn-lb-vip-%s"},
		"amphora": {Name: "octavia-lb-%s", DeviceOwner: "Octavia", DeviceID: "lb-%s", Down: true},
	} {
		t.Run(provider, func(t *testing.T) {
			w := newWorld(t, nil)
			lb := w.balancer(provider)
			port := w.get("/loadbalancers/"+lb, "loadbalancer.vip_port_id").(string)
			want.Name, want.DeviceID = fill(want.Name, lb), fill(want.DeviceID, lb)
			want.ProjectID, want.NetworkID, want.SubnetID = project, networkID, subnetID
			got := w.nets.ports[port]
			got.Address = netip.Addr{}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("the port of the VIP (-want +got):\n%s", diff)
			}
			if code, out := w.do(tenant, http.MethodDelete, "/loadbalancers/"+lb, ""); code != http.StatusNoContent {
				t.Fatalf("DELETE: %d %v", code, out)
			}
			if len(w.nets.ports) != 1 {
				t.Error("the port has gone before the load balancer")
			}
			w.settle()
			if len(w.nets.ports) != 0 {
				t.Errorf("ports left: %v", w.nets.ports)
			}
		})
	}
}

func fill(format, id string) string { return strings.Replace(format, "%s", id, 1) }

func TestOwnPort(t *testing.T) {
	const own = "33333333-3333-4333-8333-333333333333"
	for provider, want := range map[string]string{
		"ovn":     "500 Provider 'ovn' reports error: IP address 10.0.9.9 already allocated in subnet " + subnetID + "\nNeutron server returns request_ids: ",
		"amphora": "201 ",
	} {
		t.Run(provider, func(t *testing.T) {
			w := newWorld(t, nil)
			w.nets.brief[own] = octavia.Port{NetworkID: networkID, Addresses: []octavia.PortAddress{{SubnetID: subnetID, Address: netip.MustParseAddr("10.0.9.9")}}}
			code, out := w.do(tenant, http.MethodPost, "/loadbalancers", `{"loadbalancer":{"vip_port_id":"`+own+`","provider":"`+provider+`"}}`)
			text, _ := at(out, "faultstring").(string)
			if got := fmt.Sprintf("%d %s", code, text); !strings.HasPrefix(got, want) {
				t.Errorf("POST: %s, want %s", got, want)
			}
			if code != http.StatusCreated {
				return
			}
			if got := at(out, "loadbalancer.vip_address"); got != "10.0.9.9" || len(w.nets.ports) != 0 {
				t.Errorf("VIP %v, ports made: %v", got, w.nets.ports)
			}
		})
	}
}

// TestStatuses checks the operating statuses that each provider sets.
func TestStatuses(t *testing.T) {
	const lbs, lis, pos, mem, mon = "loadbalancer", "listener", "pool", "member", "healthmonitor"
	for _, c := range []struct {
		provider, algorithm string
		empty, full         string // of a pool without members, and with members
		watched             map[string]string
	}{
		{"ovn", "SOURCE_IP_PORT", "ONLINE", "ONLINE", map[string]string{lbs: "ACTIVE ONLINE", lis: "PENDING_UPDATE ONLINE", pos: "ACTIVE ONLINE", mem: "ACTIVE ONLINE", mon: "ERROR ERROR"}},
		{"amphora", "ROUND_ROBIN", "ONLINE", "ONLINE", map[string]string{lbs: "ACTIVE ONLINE", lis: "ACTIVE ONLINE", pos: "ACTIVE ONLINE", mem: "ACTIVE ONLINE", mon: "ACTIVE ONLINE"}},
	} {
		t.Run(c.provider, func(t *testing.T) {
			w := newWorld(t, nil)
			paths := map[string]string{}
			status := func(kind string) string {
				return fmt.Sprint(w.get(paths[kind], kind+".provisioning_status"), " ", w.get(paths[kind], kind+".operating_status"))
			}
			lb := w.balancer(c.provider)
			li := w.make("/listeners", `{"listener":{"loadbalancer_id":"`+lb+`","protocol":"TCP","protocol_port":80}}`)
			po := w.make("/pools", `{"pool":{"listener_id":"`+li+`","protocol":"TCP","lb_algorithm":"`+c.algorithm+`"}}`)
			paths[lbs], paths[lis], paths[pos] = "/loadbalancers/"+lb, "/listeners/"+li, "/pools/"+po
			for kind, want := range map[string]string{lbs: "ACTIVE ONLINE", lis: "ACTIVE ONLINE", pos: "ACTIVE " + c.empty} {
				if got := status(kind); got != want {
					t.Errorf("%s is %s, want %s", kind, got, want)
				}
			}
			me := w.make("/pools/"+po+"/members", `{"member":{"address":"10.0.5.5","protocol_port":80,"subnet_id":"`+subnetID+`"}}`)
			paths[mem] = "/pools/" + po + "/members/" + me
			if got := status(mem) + ", " + status(pos); got != "ACTIVE NO_MONITOR, ACTIVE "+c.full {
				t.Errorf("member and pool are %s", got)
			}
			paths[mon] = "/healthmonitors/" + w.make("/healthmonitors", `{"healthmonitor":{"pool_id":"`+po+`","type":"TCP","delay":5,"timeout":3,"max_retries":3}}`)
			for kind, want := range c.watched {
				if got := status(kind); got != want {
					t.Errorf("with a monitor, %s is %s, want %s", kind, got, want)
				}
			}
			w.do(tenant, http.MethodPut, paths[lis], `{"listener":{"admin_state_up":false}}`)
			w.settle()
			if got := status(lis); got != "ACTIVE OFFLINE" {
				t.Errorf("switched off, the listener is %s", got)
			}
		})
	}
}

// TestPending changes each object while its load balancer is busy.
func TestPending(t *testing.T) {
	w := newWorld(t, nil)
	lb := w.balancer("ovn")
	li := w.make("/listeners", `{"listener":{"loadbalancer_id":"`+lb+`","protocol":"TCP","protocol_port":80}}`)
	po := w.make("/pools", `{"pool":{"listener_id":"`+li+`","protocol":"TCP","lb_algorithm":"SOURCE_IP_PORT"}}`)
	me := w.make("/pools/"+po+"/members", `{"member":{"address":"10.0.5.5","protocol_port":80,"subnet_id":"`+subnetID+`"}}`)
	if code, _ := w.do(tenant, http.MethodPut, "/listeners/"+li, `{"listener":{"name":"busy"}}`); code != http.StatusOK {
		t.Fatalf("PUT listener: %d", code)
	}
	held := "Load Balancer " + lb + " is immutable and cannot be updated."
	state := "Invalid state PENDING_UPDATE of loadbalancer resource " + lb
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", "/loadbalancers/" + lb, `{"loadbalancer":{"name":"x"}}`, state},
		{"DELETE", "/loadbalancers/" + lb + "?cascade=true", "", state},
		{"POST", "/listeners", `{"listener":{"loadbalancer_id":"` + lb + `","protocol":"TCP","protocol_port":81}}`, held},
		{"PUT", "/listeners/" + li, `{"listener":{"name":"x"}}`, held},
		{"DELETE", "/listeners/" + li, "", held},
		{"POST", "/pools", `{"pool":{"loadbalancer_id":"` + lb + `","protocol":"TCP","lb_algorithm":"SOURCE_IP_PORT"}}`, held},
		{"PUT", "/pools/" + po, `{"pool":{"name":"x"}}`, held},
		{"DELETE", "/pools/" + po, "", held},
		{"POST", "/pools/" + po + "/members", `{"member":{"address":"10.0.5.6","protocol_port":80}}`, held},
		{"PUT", "/pools/" + po + "/members", `{"members":[]}`, held},
		{"PUT", "/pools/" + po + "/members/" + me, `{"member":{"weight":2}}`, held},
		{"DELETE", "/pools/" + po + "/members/" + me, "", held},
		{"POST", "/healthmonitors", `{"healthmonitor":{"pool_id":"` + po + `","type":"TCP","delay":5,"timeout":3,"max_retries":3}}`, held},
	} {
		code, out := w.do(tenant, c.method, c.path, c.body)
		if got := at(out, "faultstring"); code != http.StatusConflict || got != c.want {
			t.Errorf("%s %s: %d %v, want 409 %s", c.method, c.path, code, got, c.want)
		}
	}
	w.settle()
	if code, out := w.do(tenant, "DELETE", "/listeners/"+li, ""); code != http.StatusNoContent {
		t.Errorf("DELETE when it is free: %d %v", code, out)
	}
}

func TestOutcomes(t *testing.T) {
	w := newWorld(t, nil)
	lb := w.balancer("ovn")
	outcome := "STUCK"
	w.delay = func(string, string, string) (time.Duration, string) { return 0, outcome }
	_, out := w.do(tenant, "POST", "/listeners", `{"listener":{"loadbalancer_id":"`+lb+`","protocol":"TCP","protocol_port":80}}`)
	w.settle()
	li := at(out, "listener.id").(string)
	if got := w.get("/listeners/"+li, "listener.provisioning_status"); got != "PENDING_CREATE" {
		t.Errorf("a stuck listener is %v", got)
	}
	if got := w.get("/loadbalancers/"+lb, "loadbalancer.provisioning_status"); got != "PENDING_UPDATE" {
		t.Errorf("its load balancer is %v", got)
	}
	outcome = "ERROR"
	broken := w.balancer("ovn")
	if got := w.get("/loadbalancers/"+broken, "loadbalancer.provisioning_status"); got != "ERROR" {
		t.Errorf("a broken load balancer is %v", got)
	}
	code, out := w.do(tenant, "POST", "/listeners", `{"listener":{"loadbalancer_id":"`+broken+`","protocol":"TCP","protocol_port":80}}`)
	if code != http.StatusConflict {
		t.Errorf("a listener for it: %d %v, want 409", code, out)
	}
	outcome = ""
	w.do(tenant, "DELETE", "/loadbalancers/"+broken, "")
	w.settle()
	if code, _ := w.do(tenant, "GET", "/loadbalancers/"+broken, ""); code != http.StatusNotFound {
		t.Errorf("GET of it, deleted: %d", code)
	}
}

func TestFullyPopulated(t *testing.T) {
	w := newWorld(t, nil)
	body := `{"loadbalancer":{"name":"all","vip_network_id":"` + networkID + `","provider":"%s",
	 "pools":[{"name":"shared","protocol":"TCP","lb_algorithm":"%s"}],
	 "listeners":[{"name":"a","protocol":"TCP","protocol_port":80,"default_pool":{"name":"shared"}},
	  {"name":"b","protocol":"TCP","protocol_port":81,"default_pool":{"name":"own","protocol":"TCP","lb_algorithm":"%[2]s",
	   "members":[{"address":"10.0.5.5","protocol_port":80}],"healthmonitor":{"type":"TCP","delay":5,"timeout":2,"max_retries":2}}}%s]}}`
	policy := `,{"name":"c","protocol":"HTTP","protocol_port":82,"l7policies":[{"action":"REJECT","rules":[{"type":"PATH","compare_type":"EQUAL_TO","value":"/x"}]}]}`
	for provider, c := range map[string]struct{ algorithm, more, monitor string }{
		"ovn":     {"SOURCE_IP_PORT", "", "PENDING_CREATE"}, // OVN's driver does not receive the monitor
		"amphora": {"ROUND_ROBIN", policy, "ACTIVE"},
	} {
		lb := w.make("/loadbalancers", fmt.Sprintf(body, provider, c.algorithm, c.more))
		_, out := w.do(tenant, "GET", "/loadbalancers/"+lb+"/status", "")
		tree := at(out, "statuses.loadbalancer")
		for path, want := range map[string]any{
			"provisioning_status": "ACTIVE", "listeners.0.provisioning_status": "ACTIVE", "listeners.1.pools.0.members.0.address": "10.0.5.5",
			"listeners.1.pools.0.provisioning_status": "ACTIVE", "listeners.1.pools.0.health_monitor.provisioning_status": c.monitor,
		} {
			if got := at(tree, path); got != want {
				t.Errorf("%s: %s = %v, want %v", provider, path, got, want)
			}
		}
		w.do(tenant, "DELETE", "/loadbalancers/"+lb+"?cascade=true", "")
		w.settle()
	}
	w.empty(t)
}

// empty fails if any object is left.
func (w *world) empty(t *testing.T) {
	t.Helper()
	for _, many := range []string{"loadbalancers", "listeners", "pools", "healthmonitors", "l7policies"} {
		if _, out := w.do(operator, "GET", "/"+many, ""); len(out[many].([]any)) != 0 {
			t.Errorf("%s left: %v", many, out[many])
		}
	}
	if len(w.nets.ports) != 0 {
		t.Errorf("ports left: %v", w.nets.ports)
	}
}

func TestBatch(t *testing.T) {
	w := newWorld(t, nil)
	lb := w.balancer("ovn")
	po := w.make("/pools", `{"pool":{"loadbalancer_id":"`+lb+`","protocol":"TCP","lb_algorithm":"SOURCE_IP_PORT"}}`)
	put := func(query string, want int, members ...string) string {
		t.Helper()
		var list []string
		for _, m := range members {
			address, weight, _ := strings.Cut(m, "*")
			list = append(list, fmt.Sprintf(`{"address":"10.0.5.%s","protocol_port":80,"weight":%s,"subnet_id":"%s"}`, address, weight, subnetID))
		}
		code, out := w.do(tenant, "PUT", "/pools/"+po+"/members"+query, `{"members":[`+strings.Join(list, ",")+`]}`)
		if code != want {
			t.Fatalf("PUT %v: %d %v, want %d", members, code, out, want)
		}
		w.settle()
		_, out = w.do(tenant, "GET", "/pools/"+po+"/members", "")
		var have []string
		for _, m := range out["members"].([]any) {
			have = append(have, fmt.Sprintf("%s*%v", strings.TrimPrefix(at(m, "address").(string), "10.0.5."), at(m, "weight")))
			if got := at(m, "provisioning_status"); got != "ACTIVE" {
				t.Errorf("a member is %v", got)
			}
		}
		return strings.Join(have, " ")
	}
	for _, c := range []struct {
		query   string
		members []string
		status  int
		want    string
	}{
		{"", []string{"1*1", "2*1"}, 202, "1*1 2*1"},
		{"", []string{"2*7", "3*1"}, 202, "2*7 3*1"},
		{"?additive_only=true", []string{"1*1"}, 202, "2*7 3*1 1*1"},
		{"", []string{"9*1", "9*1"}, 409, "2*7 3*1 1*1"},
		{"", nil, 202, ""},
		{"", nil, 202, ""},
	} {
		if got := put(c.query, c.status, c.members...); got != c.want {
			t.Errorf("PUT%s %v: members %q, want %q", c.query, c.members, got, c.want)
		}
		want := map[bool]string{true: "OFFLINE", false: "ONLINE"}[c.want == ""]
		if got := w.get("/pools/"+po, "pool.operating_status"); got != want {
			t.Errorf("with the members %q the pool is %v, want %s", c.want, got, want)
		}
	}
}
