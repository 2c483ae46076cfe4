// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr-go/kuryr/openstacksim/dial"
	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// Report has the calls to the cloud and its resources, as GET /sim/report returns it.
type Report struct {
	Calls   []Count        `json:"calls"`
	Objects map[string]int `json:"objects"`
}

// Report returns Counts and Objects together.
func (c *Cloud) Report() Report { return Report{Calls: c.Counts(), Objects: c.Objects()} }

// admin answers below /sim. It needs no token: every client that reaches it is an administrator of
// the cloud anyway.
func (c *Cloud) admin(w http.ResponseWriter, r *http.Request) {
	what := strings.Trim(r.URL.Path, "/")
	switch {
	case what == "dials":
		c.adminDials(w, r)
	case what == "calls" && r.Method == http.MethodDelete:
		c.Reset()
		w.WriteHeader(http.StatusNoContent)
	case what == "calls" && r.Method == http.MethodGet:
		calls := c.Calls()
		if n, err := strconv.Atoi(r.URL.Query().Get("last")); err == nil && n >= 0 && n < len(calls) {
			calls = calls[len(calls)-n:]
		}
		write(w, http.StatusOK, map[string]any{"calls": calls})
	case what == "report" && r.Method == http.MethodGet:
		write(w, http.StatusOK, c.Report()) //nolint:contextcheck // what exists is counted in memory, whoever waits
	case what == "clouds.yaml" && r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(c.Clouds())
	case what == "tokens" && r.Method == http.MethodDelete:
		c.RevokeTokens()
		w.WriteHeader(http.StatusNoContent)
	case what == "" && r.Method == http.MethodGet:
		write(w, http.StatusOK, map[string]any{"url": c.o.URL, "seed": c.o.Seed, "hosts": c.o.Hosts})
	default:
		c.adminPorts(w, r, what)
	}
}

// adminAgents answers PUT /sim/agents/HOST with {"alive": false}.
func (c *Cloud) adminAgents(w http.ResponseWriter, r *http.Request, host string) {
	var asked struct {
		Alive *bool `json:"alive"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<10)).Decode(&asked); err != nil || asked.Alive == nil {
		write(w, http.StatusBadRequest, problem(`write {"alive": true} or {"alive": false}`))
		return
	}
	if err := c.SetAgent(host, *asked.Alive); err != nil {
		write(w, http.StatusNotFound, problem(err.Error()))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// adminPorts answers PUT /sim/ports/ID with {"plugged": true}, and hands on the other
// changes of single objects.
func (c *Cloud) adminPorts(w http.ResponseWriter, r *http.Request, what string) {
	collection, id, is := strings.Cut(what, "/")
	is = is && r.Method == http.MethodPut
	if is && slices.Contains([]string{"loadbalancers", "listeners", "pools", "members"}, collection) {
		c.adminBalancers(w, r, collection, id)
		return
	}
	if is && collection == "agents" {
		c.adminAgents(w, r, id)
		return
	}
	if !is || collection != "ports" {
		write(w, http.StatusNotFound, problem("no such thing: GET, PUT, PATCH, DELETE /sim/dials; GET, DELETE /sim/calls; "+
			"GET /sim/report, /sim/clouds.yaml; DELETE /sim/tokens; PUT /sim/ports/ID, /sim/agents/HOST, /sim/loadbalancers/ID, /sim/listeners/ID, /sim/pools/ID, /sim/members/ID"))
		return
	}
	var asked struct {
		Plugged *bool `json:"plugged"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<10)).Decode(&asked); err != nil || asked.Plugged == nil {
		write(w, http.StatusBadRequest, problem(`write {"plugged": true} or {"plugged": false}`))
		return
	}
	if err := c.Plug(id, *asked.Plugged); err != nil {
		write(w, http.StatusNotFound, problem(err.Error()))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (c *Cloud) adminDials(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		write(w, http.StatusRequestEntityTooLarge, problem("more than 1 MiB of dials"))
		return
	}
	var set *dial.Set
	switch r.Method {
	case http.MethodGet:
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(c.panel.Current().YAML())
		return
	case http.MethodPut:
		set, err = dial.Parse(text, c.types...)
	case http.MethodPatch:
		set, err = c.panel.Current().Patch(text, c.types...)
	case http.MethodDelete:
		set = &dial.Set{}
	default:
		write(w, http.StatusMethodNotAllowed, problem("GET, PUT (all anew), PATCH (added in front) or DELETE"))
		return
	}
	if err != nil {
		write(w, http.StatusBadRequest, problem(err.Error()))
		return
	}
	c.SetDials(set)
	w.WriteHeader(http.StatusNoContent)
}

func problem(text string) map[string]string { return map[string]string{"error": text} }

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return // the client went
	}
}

// collections are the collections that Objects counts, by service.
var collections = map[string][]string{
	dial.Network: {"networks", "subnets", "subnetpools", "ports", "security-groups", "security-group-rules", "address-groups",
		"routers", "floatingips", "trunks"},
	dial.LoadBalancer: {"loadbalancers", "listeners", "pools", "healthmonitors", "l7policies"},
}

// Objects is how many of each kind exist in Neutron and Octavia, in all projects.
func (c *Cloud) Objects() map[string]int {
	root := keystone.Caller{UserName: "sim", Roles: []string{"admin"}}
	counts := map[string]int{}
	for _, many := range collections[dial.Network] {
		c.count(counts, c.network, "/v2.0/"+many, many, root)
	}
	for _, many := range collections[dial.LoadBalancer] {
		if c.lbaas != nil {
			c.count(counts, c.lbaas, "/v2.0/lbaas/"+many, many, root)
			continue
		}
		c.count(counts, c.balancer, "/v2/lbaas/"+many, many, root)
	}
	return counts
}

// count asks the service directly, without the log and the dials.
func (c *Cloud) count(counts map[string]int, service api, path, many string, who keystone.Caller) {
	r := (&http.Request{Method: http.MethodGet, URL: mustURL(path + "?fields=id"), Header: http.Header{}, Body: http.NoBody}).
		WithContext(context.Background()) //nolint:forbidigo // the services ask nobody, so there is nothing to break off
	rec := newRecorder(nil, true)
	service.Handle(rec, r, who)
	if rec.status == http.StatusOK {
		counts[many] = items(rec.body.Bytes())
	}
}
