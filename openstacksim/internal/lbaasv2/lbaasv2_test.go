// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package lbaasv2_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
	"github.com/kuryr-go/kuryr/openstacksim/internal/lbaasv2"
)

const subnet = "50000000-0000-4000-8000-000000000001"

// networks has one subnet.
type networks struct{ removed []string }

func (*networks) Subnet(_ keystone.Caller, id string) (string, netip.Prefix, bool) {
	return "net", netip.MustParsePrefix("10.0.0.0/24"), id == subnet
}

func (*networks) MakePort(p lbaasv2.VIPPort) (string, netip.Addr, error) {
	if p.Address == netip.MustParseAddr("10.0.0.66") {
		return "", p.Address, &lbaasv2.RefusedError{Status: 409, Type: "IpAddressAlreadyAllocated", Message: "taken"}
	}
	return "port-of-" + p.DeviceID, p.Address, nil
}

func (n *networks) RemovePort(id string) error {
	n.removed = append(n.removed, id)
	return nil
}

// desk sends requests to a service.
type desk struct {
	t       *testing.T
	service *lbaasv2.Service
	net     *networks
	ends    []func() // the provider's pending work
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, net: &networks{}}
	n := 0
	d.service = lbaasv2.New(lbaasv2.Options{
		Networks: d.net, Quota: 2,
		NewID: func() string { n++; return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) },
		After: func(_ time.Duration, f func()) { d.ends = append(d.ends, f) },
		Delay: func(string, string, string) (time.Duration, string) { return 0, "" },
	})
	return d
}

// ask returns the status and the answer's object, or the type of the fault.
func (d *desk) ask(who keystone.Caller, method, path, body string) (string, map[string]any) {
	d.t.Helper()
	w := httptest.NewRecorder()
	d.service.Handle(w, httptest.NewRequestWithContext(d.t.Context(), method, "/v2.0/"+path, strings.NewReader(body)), who)
	var out map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil && w.Code != http.StatusNoContent {
		d.t.Fatalf("%s %s: %q: %v", method, path, w.Body, err)
	}
	said := fmt.Sprint(w.Code)
	if f, is := out["NeutronError"].(map[string]any); is {
		said += fmt.Sprint(" ", f["type"], ": ", f["message"])
	}
	return said, out
}

func (d *desk) settle() {
	for _, end := range d.ends {
		end()
	}
	d.ends = nil
}

var member = keystone.Caller{ProjectID: "p", Roles: []string{"member"}}

func TestAnswers(t *testing.T) {
	d := newDesk(t)
	const lb = "00000000-0000-4000-8000-000000000003" // two IDs were used by creations that were refused later
	for _, step := range []struct{ method, path, body, want string }{
		{"POST", "lbaas/loadbalancers", `{"loadbalancer": {"vip_subnet_id": "` + subnet + `", "tags": []}}`, "400 HTTPBadRequest: Unrecognized attribute(s) 'tags'"},
		{"POST", "lbaas/loadbalancers", `{"loadbalancer": {}}`, "400 HTTPBadRequest: Failed to parse request. Required attribute 'vip_subnet_id' not specified"},
		{"POST", "lbaas/loadbalancers", `{"loadbalancer": {"vip_subnet_id": "` + lb + `"}}`, "404 SubnetNotFound"},
		{"POST", "lbaas/loadbalancers", `{"loadbalancer": {"vip_subnet_id": "` + subnet + `", "vip_address": "x"}}`, "400 HTTPBadRequest: Invalid input for vip_address"},
		{"POST", "lbaas/loadbalancers", `{"loadbalancer": {"vip_subnet_id": "` + subnet + `", "tenant_id": "other"}}`, "403 AdminRequired"},
		{"POST", "lbaas/loadbalancers", `{"loadbalancer": {"vip_subnet_id": "` + subnet + `", "vip_address": "10.0.0.5"}}`, "201"},
		{"POST", "lbaas/listeners", `{"listener": {"loadbalancer_id": "` + lb + `", "protocol": "TCP", "protocol_port": 80}}`, "409 StateInvalid: Invalid state PENDING_CREATE"},
		{"settle", "", "", ""},
		{"POST", "lbaas/listeners", `{"listener": {"loadbalancer_id": "` + lb + `", "protocol": "UDP", "protocol_port": 80}}`, "400 HTTPBadRequest: Invalid input for protocol"},
		{"DELETE", "lbaas/loadbalancers/" + subnet, "", "404 EntityNotFound: loadbalancer " + subnet + " could not be found"},
		{"GET", "lbaas/pools/" + subnet + "/members", "", "404 EntityNotFound: pool " + subnet + " could not be found"},
		{"GET", "lbaas/l7policies", "", "404 HTTPNotFound"},
	} {
		if step.method == "settle" {
			d.settle()
			continue
		}
		if got, _ := d.ask(member, step.method, step.path, step.body); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s %s %s: %s, want %s", step.method, step.path, step.body, got, step.want)
		}
	}
}

func TestWhatIsUsedStays(t *testing.T) {
	d := newDesk(t)
	id := func(what, path, body string) string {
		t.Helper()
		said, out := d.ask(member, "POST", path, body)
		one, is := out[what].(map[string]any)
		if !is {
			t.Fatalf("POST %s: %s", path, said)
		}
		d.settle()
		return one["id"].(string)
	}
	lb := id("loadbalancer", "lbaas/loadbalancers", `{"loadbalancer": {"vip_subnet_id": "`+subnet+`", "vip_address": "10.0.0.5"}}`)
	li := id("listener", "lbaas/listeners", `{"listener": {"loadbalancer_id": "`+lb+`", "protocol": "TCP", "protocol_port": 80}}`)
	po := id("pool", "lbaas/pools", `{"pool": {"listener_id": "`+li+`", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}}`)
	me := id("member", "lbaas/pools/"+po+"/members", `{"member": {"address": "10.0.0.7", "protocol_port": 80, "subnet_id": "`+subnet+`"}}`)
	hm := id("healthmonitor", "lbaas/healthmonitors", `{"healthmonitor": {"pool_id": "`+po+`", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 2}}`)
	stranger := keystone.Caller{ProjectID: "other", Roles: []string{"member"}}
	if got, _ := d.ask(stranger, "GET", "lbaas/loadbalancers/"+lb, ""); !strings.HasPrefix(got, "404") {
		t.Errorf("another project's GET: %s, want 404", got)
	}
	_, out := d.ask(member, "GET", "lbaas/loadbalancers/"+lb+"/statuses", "")
	if text := fmt.Sprint(out); !strings.Contains(text, me) || !strings.Contains(text, hm) || strings.Contains(text, "PENDING") {
		t.Errorf("statuses: %s", text)
	}
	for _, step := range []struct{ path, want string }{
		{"lbaas/loadbalancers/" + lb, "409 EntityInUse"},
		{"lbaas/pools/" + po, "409 EntityInUse"},
		{"lbaas/healthmonitors/" + hm, "204"},
		{"lbaas/listeners/" + li, "204"},
		{"lbaas/loadbalancers/" + lb, "409 EntityInUse"},
		{"lbaas/pools/" + po, "204"},
		{"lbaas/loadbalancers/" + lb, "204"},
		{"lbaas/loadbalancers/" + lb, "404"},
	} {
		if got, _ := d.ask(member, "DELETE", step.path, ""); !strings.HasPrefix(got, step.want) {
			t.Errorf("DELETE %s: %s, want %s", step.path, got, step.want)
		}
		d.settle()
	}
	if len(d.net.removed) != 1 || d.net.removed[0] != "port-of-"+lb {
		t.Errorf("ports removed: %v, want the VIP's", d.net.removed)
	}
}

func TestListsInPages(t *testing.T) {
	d := newDesk(t)
	for _, ip := range []string{"10.0.0.5", "10.0.0.6"} {
		if got, _ := d.ask(member, "POST", "lbaas/loadbalancers", `{"loadbalancer": {"vip_subnet_id": "`+subnet+`", "vip_address": "`+ip+`"}}`); got != "201" {
			t.Fatal(got)
		}
	}
	if got, _ := d.ask(member, "POST", "lbaas/loadbalancers", `{"loadbalancer": {"vip_subnet_id": "`+subnet+`"}}`); !strings.HasPrefix(got, "409 OverQuota") {
		t.Errorf("a third: %s, want OverQuota", got)
	}
	seen, marker := 0, ""
	for range 3 {
		_, out := d.ask(member, "GET", "lbaas/loadbalancers?limit=1"+marker, "")
		rows := out["loadbalancers"].([]any)
		seen += len(rows)
		if len(out["loadbalancers_links"].([]any)) == 0 {
			break
		}
		marker = "&marker=" + rows[0].(map[string]any)["id"].(string)
	}
	if seen != 2 {
		t.Errorf("%d load balancers in pages, want 2", seen)
	}
	if _, out := d.ask(member, "GET", "lbaas/loadbalancers?vip_address=10.0.0.6", ""); len(out["loadbalancers"].([]any)) != 1 {
		t.Errorf("filtered by address: %v, want one", out)
	}
	if got, _ := d.ask(member, "POST", "lbaas/loadbalancers", `{"loadbalancer": {"vip_subnet_id": "`+subnet+`", "vip_address": "10.0.0.66"}}`); !strings.HasPrefix(got, "409") {
		t.Errorf("a VIP that is taken: %s", got)
	}
}
