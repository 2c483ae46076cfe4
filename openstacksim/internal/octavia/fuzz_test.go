// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/openstacksim/internal/recorded"
)

// FuzzRequests sends any input to a service that has one object of each kind.
func FuzzRequests(f *testing.F) {
	paths := []string{
		"/loadbalancers", "/loadbalancers/$lb", "/loadbalancers/$lb/status", "/loadbalancers/$lb/failover", "/listeners", "/listeners/$li",
		"/pools", "/pools/$po", "/pools/$po/members", "/pools/$po/members/$me", "/healthmonitors", "/healthmonitors/$hm",
		"/l7policies", "/l7policies/$pl", "/l7policies/$pl/rules", "/quotas/p1", "/flavors", "/flavorprofiles", "/availabilityzones",
		"/availabilityzoneprofiles", "/providers/ovn/flavor_capabilities",
	}
	bodies := []string{
		`{"loadbalancer":{"vip_subnet_id":"` + subnetID + `","listeners":[{"protocol":"TCP","protocol_port":1,"default_pool":{"name":"p","protocol":"TCP","lb_algorithm":"SOURCE_IP_PORT","members":[{"address":"10.0.0.9","protocol_port":1}],"healthmonitor":{"type":"TCP","delay":1,"timeout":1,"max_retries":1}}}]}}`,
		`{"listener":{"loadbalancer_id":"$lb","protocol":"HTTP","protocol_port":81,"insert_headers":{"X-Forwarded-For":"true"},"allowed_cidrs":["10.0.0.0/8"],"tags":["a"]}}`,
		`{"pool":{"loadbalancer_id":"$lb","protocol":"TCP","lb_algorithm":"ROUND_ROBIN","session_persistence":{"type":"SOURCE_IP"}}}`,
		`{"member":{"address":"10.0.0.9","protocol_port":"80","weight":null}}`, `{"members":[{"address":"10.0.0.9","protocol_port":80},null]}`,
		`{"healthmonitor":{"pool_id":"$po","type":"HTTP","delay":1,"timeout":1,"max_retries":1,"http_version":1.1,"domain_name":"a.b"}}`,
		`{"l7policy":{"listener_id":"$li","action":"REDIRECT_TO_URL","redirect_url":"http://a/b"}}`, `{"rule":{"type":"PATH","compare_type":"REGEX","value":"a"}}`,
		`{"quota":{"pool":-1}}`, `{"flavor":{"name":"f","flavor_profile_id":"$lb"}}`, `{"flavorprofile":{"name":"f","provider_name":"amphora","flavor_data":"{}"}}`,
		`[]`, `null`, `{"loadbalancer":null}`, `{"listener":{"protocol_port":1e999}}`, `{"pool":{"name":"\ud800"}}`, "\xff",
	}
	for i, path := range paths {
		for j, method := range []string{"POST", "PUT", "GET", "DELETE"} {
			f.Add(method, path, "fields=id&limit=1&sort=name:desc&cascade=1", bodies[(i*4+j)%len(bodies)])
		}
	}
	for _, body := range bodies {
		f.Add("POST", "/loadbalancers", "", body)
		f.Add("PUT", "/pools/$po/members", "additive_only=t", body)
	}
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		if strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || method == "" {
			return
		}
		w := newWorld(t, nil)
		lb := w.balancer("amphora")
		li := w.make("/listeners", `{"listener":{"loadbalancer_id":"`+lb+`","protocol":"HTTP","protocol_port":80}}`)
		po := w.make("/pools", `{"pool":{"listener_id":"`+li+`","protocol":"HTTP","lb_algorithm":"ROUND_ROBIN"}}`)
		me := w.make("/pools/"+po+"/members", `{"member":{"address":"10.0.5.5","protocol_port":80}}`)
		hm := w.make("/healthmonitors", `{"healthmonitor":{"pool_id":"`+po+`","type":"TCP","delay":5,"timeout":3,"max_retries":3}}`)
		pl := w.make("/l7policies", `{"l7policy":{"listener_id":"`+li+`","action":"REJECT"}}`)
		vars := strings.NewReplacer("$lb", lb, "$li", li, "$po", po, "$me", me, "$hm", hm, "$pl", pl)
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(vars.Replace(body)))
		r.Method = method
		r.URL = &url.URL{Path: "/v2/lbaas" + vars.Replace(path), RawQuery: query}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json")
		for _, who := range []bool{false, true} {
			rec := httptest.NewRecorder()
			if who {
				w.Handle(rec, r, operator)
			} else {
				w.Handle(rec, r, tenant)
			}
			w.settle()
			if text := rec.Body.String(); text != "" && !json.Valid([]byte(text)) {
				t.Errorf("%s %s: no JSON: %q", method, path, text)
			}
			var fault struct{ Faultstring string }
			_ = json.Unmarshal(rec.Body.Bytes(), &fault)
			if rec.Code >= 500 && rec.Code != 501 && !recorded.Crashed(fault.Faultstring) {
				t.Errorf("%s %s %s: %d %s", method, path, body, rec.Code, fault.Faultstring)
			}
		}
	})
}
