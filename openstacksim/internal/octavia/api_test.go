// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/openstacksim/internal/octavia"
)

func TestQuota(t *testing.T) {
	w := newWorld(t, nil)
	if code, out := w.do(operator, "PUT", "/quotas/"+project, `{"quota":{"loadbalancer":1,"listener":1}}`); code != http.StatusAccepted {
		t.Fatalf("PUT quota: %d %v", code, out)
	}
	lb := w.balancer("ovn")
	code, out := w.do(tenant, "POST", "/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"`+subnetID+`"}}`)
	if got := at(out, "faultstring"); code != http.StatusForbidden || got != "Quota has been met for resources: Load Balancer" {
		t.Errorf("a second load balancer: %d %v", code, got)
	}
	listener := `{"listener":{"loadbalancer_id":"` + lb + `","protocol":"TCP","protocol_port":%d}}`
	w.make("/listeners", fmt.Sprintf(listener, 80))
	code, out = w.do(tenant, "POST", "/listeners", fmt.Sprintf(listener, 81))
	if got := at(out, "faultstring"); code != http.StatusForbidden || got != "Quota has been met for resources: Listener" {
		t.Errorf("a second listener: %d %v", code, got)
	}
}

func TestRoles(t *testing.T) {
	w := newWorld(t, nil)
	lb := w.balancer("ovn")
	for _, c := range []struct {
		role   string
		reads  int
		writes int
		all    int
	}{
		{"load-balancer_member", 403, 403, 0}, {"member", 403, 403, -1}, {"load-balancer_global_observer", 200, 403, 1},
		{"load-balancer_admin", 200, 200, 1}, {"admin", 200, 200, 1}, {"load-balancer_observer", 403, 403, 0},
	} {
		who := stranger
		who.Roles = []string{c.role}
		if code, _ := w.do(who, "GET", "/loadbalancers/"+lb, ""); code != c.reads {
			t.Errorf("a foreign %s reads: %d, want %d", c.role, code, c.reads)
		}
		if code, _ := w.do(who, "PUT", "/loadbalancers/"+lb, `{"loadbalancer":{"name":"x"}}`); code != c.writes {
			t.Errorf("a foreign %s writes: %d, want %d", c.role, code, c.writes)
		}
		w.settle()
		code, out := w.do(who, "GET", "/loadbalancers", "")
		if c.all < 0 && code != http.StatusForbidden || c.all >= 0 && len(out["loadbalancers"].([]any)) != c.all {
			t.Errorf("a foreign %s lists: %d %v, want %d", c.role, code, out, c.all)
		}
	}
}

func TestPages(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 5 {
		tag := []string{"a", "b"}[i%2]
		w.make("/loadbalancers", fmt.Sprintf(`{"loadbalancer":{"vip_subnet_id":"%s","name":"n%d","tags":["t","%s"]}}`, subnetID, i, tag))
	}
	names := func(query string) (string, object) {
		t.Helper()
		code, out := w.do(tenant, "GET", "/loadbalancers?"+query, "")
		if code != http.StatusOK {
			t.Fatalf("GET ?%s: %d %v", query, code, out)
		}
		var have []string
		for _, lb := range out["loadbalancers"].([]any) {
			have = append(have, at(lb, "name").(string))
		}
		return strings.Join(have, " "), out
	}
	for query, want := range map[string]string{
		"":                                    "n0 n1 n2 n3 n4",
		"sort=name:desc":                      "n4 n3 n2 n1 n0",
		"sort_key=name&sort_dir=desc&limit=2": "n4 n3",
		"tags=t,a":                            "n0 n2 n4",
		"tags-any=b,c":                        "n1 n3",
		"not-tags=t,b":                        "n0 n2 n4",
		"not-tags-any=a":                      "n1 n3",
		"name=n3":                             "n3",
		"provider=amphora":                    "",
		"fields=name&limit=1":                 "n0",
		"admin_state_up=false":                "",
	} {
		if got, _ := names(query); got != want {
			t.Errorf("?%s: %q, want %q", query, got, want)
		}
	}
	var all []string
	query := "limit=2"
	for range 5 {
		got, out := names(query)
		all = append(all, got)
		next := ""
		for _, link := range out["loadbalancers_links"].([]any) {
			if at(link, "rel") == "next" {
				_, next, _ = strings.Cut(at(link, "href").(string), "http://lb.test/v2/lbaas/loadbalancers?")
			}
		}
		if next == "" {
			break
		}
		query = next
	}
	if diff := cmp.Diff([]string{"n0 n1", "n2 n3", "n4"}, all); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

func TestPoliciesAreNumbered(t *testing.T) {
	w := newWorld(t, nil)
	lb := w.balancer("amphora")
	li := w.make("/listeners", `{"listener":{"loadbalancer_id":"`+lb+`","protocol":"HTTP","protocol_port":80}}`)
	add := func(name string, position int) string {
		return w.make("/l7policies", fmt.Sprintf(`{"l7policy":{"listener_id":"%s","action":"REJECT","name":"%s","position":%d}}`, li, name, position))
	}
	order := func() string {
		_, out := w.do(tenant, "GET", "/l7policies?sort=position", "")
		var have []string
		for _, p := range out["l7policies"].([]any) {
			have = append(have, fmt.Sprintf("%v%v", at(p, "position"), at(p, "name")))
		}
		return strings.Join(have, " ")
	}
	a := add("a", 10)
	add("b", 1)
	c := add("c", 2)
	if got := order(); got != "1b 2c 3a" {
		t.Errorf("positions: %s", got)
	}
	w.do(tenant, "PUT", "/l7policies/"+a, `{"l7policy":{"position":1}}`)
	w.settle()
	w.do(tenant, "DELETE", "/l7policies/"+c, "")
	w.settle()
	if got := order(); got != "1a 2b" {
		t.Errorf("positions at the end: %s", got)
	}
	rule := w.make("/l7policies/"+a+"/rules", `{"rule":{"type":"PATH","compare_type":"STARTS_WITH","value":"/x"}}`)
	if got := w.get("/l7policies/"+a, "l7policy.rules.0.id"); got != rule {
		t.Errorf("the policy's rule: %v, want %s", got, rule)
	}
}

func TestProviderOff(t *testing.T) {
	w := newWorld(t, func(o *octavia.Options) { o.Amphora = false })
	code, out := w.do(tenant, "POST", "/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"`+subnetID+`","provider":"amphora"}}`)
	if got := at(out, "faultstring"); code != http.StatusBadRequest || got != "Provider 'amphora' is not enabled." {
		t.Errorf("POST: %d %v", code, got)
	}
}
