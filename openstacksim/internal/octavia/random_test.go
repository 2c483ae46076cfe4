// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/octavia"
)

// TestRandomHistories sends random requests, mixed in any order with the ends of the changes that
// they begin. It checks what must always hold.
func TestRandomHistories(t *testing.T) {
	histories := 100
	if testing.Short() {
		histories = 20
	}
	for seed := range uint64(histories) {
		h := &history{world: newWorld(t, func(o *octavia.Options) { o.Later = seed%4 > 1 }), r: rand.New(rand.NewPCG(seed, 7)), t: t, seed: seed}
		h.provider = []string{"ovn", "amphora"}[seed%2]
		h.delay = func(string, string, string) (time.Duration, string) {
			if h.r.IntN(10) == 0 {
				return 0, "ERROR"
			}
			return 0, ""
		}
		for range 80 {
			if len(h.later) > 0 && h.r.IntN(2) == 0 {
				h.finish()
				continue
			}
			h.step()
		}
		h.settle()
		h.atRest()
		h.clear()
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, strings.Join(h.said, "\n"))
		}
	}
}

type history struct {
	*world
	r        *rand.Rand
	t        *testing.T
	seed     uint64
	provider string
	port     int
	said     []string
}

// finish ends the oldest change.
func (h *history) finish() {
	f := h.later[0]
	h.later = h.later[1:]
	f()
}

// all returns the objects of a kind, with their IDs and states.
func (h *history) all(path, many string) (rows []object) {
	h.t.Helper()
	_, out := h.do(operator, http.MethodGet, path, "")
	for _, v := range out[many].([]any) {
		rows = append(rows, v.(object))
	}
	return rows
}

func (h *history) pick(path, many string) string {
	rows := h.all(path, many)
	if len(rows) == 0 {
		return "none"
	}
	return rows[h.r.IntN(len(rows))]["id"].(string)
}

func (h *history) step() {
	lb, li, po := h.pick("/loadbalancers", "loadbalancers"), h.pick("/listeners", "listeners"), h.pick("/pools", "pools")
	me := "none"
	if po != "none" {
		me = h.pick("/pools/"+po+"/members", "members")
	}
	hm, pl := h.pick("/healthmonitors", "healthmonitors"), h.pick("/l7policies", "l7policies")
	algorithm := map[string]string{"ovn": "SOURCE_IP_PORT", "amphora": "ROUND_ROBIN"}[h.provider]
	protocol := map[string]string{"ovn": "TCP", "amphora": "HTTP"}[h.provider]
	h.port++
	in := func(format string, args ...any) string { return fmt.Sprintf(format, args...) }
	member := func() string {
		return in(`{"address":"10.0.6.%d","protocol_port":80,"subnet_id":"%s"}`, h.r.IntN(5), subnetID)
	}
	steps := [][3]string{
		{"POST", "/loadbalancers", in(`{"loadbalancer":{"vip_subnet_id":"%s","provider":"%s"}}`, subnetID, h.provider)},
		{"POST", "/loadbalancers", in(`{"loadbalancer":{"vip_subnet_id":"%s","provider":"%s","listeners":[{"protocol":"%s","protocol_port":80,"default_pool":{"name":"p","protocol":"%[3]s","lb_algorithm":"%s","members":[%s]}}]}}`, subnetID, h.provider, protocol, algorithm, member())},
		{"PUT", "/loadbalancers/" + lb, `{"loadbalancer":{"admin_state_up":true}}`},
		{"DELETE", "/loadbalancers/" + lb, ""}, {"DELETE", "/loadbalancers/" + lb + "?cascade=true", ""},
		{"POST", "/listeners", in(`{"listener":{"loadbalancer_id":"%s","protocol":"%s","protocol_port":%d}}`, lb, protocol, h.port)},
		{"PUT", "/listeners/" + li, in(`{"listener":{"default_pool_id":"%s"}}`, po)}, {"DELETE", "/listeners/" + li, ""},
		{"POST", "/pools", in(`{"pool":{"listener_id":"%s","protocol":"%s","lb_algorithm":"%s"}}`, li, protocol, algorithm)},
		{"POST", "/pools", in(`{"pool":{"loadbalancer_id":"%s","protocol":"%s","lb_algorithm":"%s"}}`, lb, protocol, algorithm)},
		{"PUT", "/pools/" + po, `{"pool":{"name":"x"}}`}, {"DELETE", "/pools/" + po, ""},
		{"POST", "/pools/" + po + "/members", `{"member":` + member() + `}`},
		{"PUT", "/pools/" + po + "/members", `{"members":[` + member() + `,` + member() + `]}`},
		{"PUT", "/pools/" + po + "/members?additive_only=yes", `{"members":[` + member() + `]}`},
		{"PUT", "/pools/" + po + "/members/" + me, `{"member":{"weight":3}}`}, {"DELETE", "/pools/" + po + "/members/" + me, ""},
		{"POST", "/healthmonitors", in(`{"healthmonitor":{"pool_id":"%s","type":"TCP","delay":5,"timeout":3,"max_retries":3}}`, po)},
		{"PUT", "/healthmonitors/" + hm, `{"healthmonitor":{"delay":9}}`}, {"DELETE", "/healthmonitors/" + hm, ""},
		{"POST", "/l7policies", in(`{"l7policy":{"listener_id":"%s","action":"REDIRECT_TO_POOL","redirect_pool_id":"%s"}}`, li, po)},
		{"PUT", "/l7policies/" + pl, `{"l7policy":{"name":"x","position":1}}`}, {"DELETE", "/l7policies/" + pl, ""},
		{"POST", "/l7policies/" + pl + "/rules", `{"rule":{"type":"PATH","compare_type":"EQUAL_TO","value":"/x"}}`},
	}
	h.try(steps[h.r.IntN(len(steps))])
}

func (h *history) try(s [3]string) {
	busy := map[string]bool{}
	for _, lb := range h.all("/loadbalancers", "loadbalancers") {
		busy[lb["id"].(string)] = strings.HasPrefix(lb["provisioning_status"].(string), "PENDING")
	}
	code, out := h.do(tenant, s[0], s[1], s[2])
	text, _ := at(out, "faultstring").(string)
	h.said = append(h.said, fmt.Sprint(s, " → ", code, " ", text))
	switch {
	case code >= 500 && code != http.StatusNotImplemented && !strings.Contains(text, "object has no attribute"):
		h.t.Errorf("%v: %d %s", s, code, text)
	case code < 300 && strings.HasPrefix(s[1], "/loadbalancers/"):
		if id := strings.Split(strings.TrimPrefix(s[1], "/loadbalancers/"), "?")[0]; busy[id] {
			h.t.Errorf("%v changed a load balancer that was busy", s)
		}
	case code == http.StatusConflict && strings.Contains(text, "Load Balancer ") && strings.Contains(text, "immutable"):
		id := strings.Fields(text)[2]
		if _, out := h.do(operator, "GET", "/loadbalancers/"+id, ""); at(out, "loadbalancer.provisioning_status") == "ACTIVE" {
			h.t.Errorf("%v: %s, but it is ACTIVE", s, text)
		}
	}
}

// atRest checks that no change is pending, except those that OVN's driver does not end.
func (h *history) atRest() {
	h.t.Helper()
	for _, many := range []string{"loadbalancers", "listeners", "pools", "healthmonitors", "l7policies"} {
		for _, row := range h.all("/"+many, many) {
			status := row["provisioning_status"].(string)
			if h.provider == "ovn" && many == "listeners" && status == "PENDING_UPDATE" {
				continue
			}
			if !slices.Contains([]string{"ACTIVE", "ERROR"}, status) {
				h.t.Errorf("%s %v is %s at rest", many, row["id"], status)
			}
			if many == "pools" {
				h.membersAtRest(row["id"].(string))
			}
		}
	}
}

func (h *history) membersAtRest(pool string) {
	seen := map[string]bool{}
	for _, m := range h.all("/pools/"+pool+"/members", "members") {
		if status := m["provisioning_status"]; status != "ACTIVE" && status != "ERROR" {
			h.t.Errorf("member %v is %v at rest", m["id"], status)
		}
		at := fmt.Sprint(m["address"], m["protocol_port"])
		if seen[at] {
			h.t.Errorf("two members at %s", at)
		}
		seen[at] = true
	}
}

// clear deletes all load balancers and checks that nothing of them is left.
func (h *history) clear() {
	h.t.Helper()
	h.delay = nil
	for _, lb := range h.all("/loadbalancers", "loadbalancers") {
		code, out := h.do(tenant, "DELETE", "/loadbalancers/"+lb["id"].(string)+"?cascade=true", "")
		if code != http.StatusNoContent {
			h.t.Errorf("DELETE of a %v load balancer: %d %v", lb["provisioning_status"], code, out)
		}
	}
	h.settle()
	h.empty(h.t)
}
