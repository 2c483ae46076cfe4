// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/crashtest"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// tenancy is an OpenStack for the networks of namespaces, in the common project and in those of
// tenants. Each tenant has a router, a subnet pool and a security group of its own.
type tenancy struct {
	*openstackBalancing
	subnetPool string            // of the common project
	projects   []config.Project  // of tenants
	home       map[string]string // project by namespace; a namespace without one is in the common project
	inside     openstackAPI
}

// tenantKinds are the kinds that a controller makes for the namespaces of tenants.
var tenantKinds = []string{"port", "network", "subnet", "security-group", "floatingip", "loadbalancer"}

func newTenancy(w *crashtest.World, tenants ...string) *tenancy {
	b := newBalancing(w).(*openstackBalancing)
	b.kinds = tenantKinds
	return tenancyOf(b, tenants...)
}

// tenancyOf creates what tenants need. All later requests pass the tenancy, which checks them.
func tenancyOf(b *openstackBalancing, tenants ...string) *tenancy {
	c := &tenancy{openstackBalancing: b, inside: b.api, home: map[string]string{}}
	pool := func(in *openstackCloud, i int) string {
		return in.make("subnetpool", map[string]any{
			"name": "namespaces", "prefixes": []string{fmt.Sprintf("10.%d.0.0/16", 160+i)}, "default_prefixlen": 26,
		})
	}
	c.subnetPool = pool(b.openstackCloud, 0)
	for i, project := range tenants {
		in := *b.openstackCloud
		in.project = project
		p := config.Project{ProjectID: project}
		p.RouterID = in.make("router", map[string]any{"name": "out", "external_gateway_info": map[string]any{"network_id": b.outside}})
		p.SubnetPoolIDs = []string{pool(&in, i+1)}
		p.SecurityGroupIDs = []string{in.make("security-group", map[string]any{"name": "pods"})}
		c.projects = append(c.projects, p)
	}
	b.tenants, b.api = tenants, c
	return c
}

// URL implements openstackAPI.
func (c *tenancy) URL() string { return c.inside.URL() }

// Clouds implements openstackAPI.
func (c *tenancy) Clouds() []byte { return c.inside.Clouds() }

// ServeHTTP implements http.Handler. It checks for which project something is to be made.
func (c *tenancy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if makes := r.Method == http.MethodPost && !strings.HasPrefix(r.URL.Path, "/identity/"); makes || strings.HasSuffix(r.URL.Path, "/add_router_interface") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		c.check(r.URL.Path, body)
	}
	c.inside.ServeHTTP(w, r)
}

// check reports what a request is to make, by its mark or by what it is in, for another project than
// it asks for.
func (c *tenancy) check(path string, body []byte) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) == 5 { // networking/v2.0/routers/ID/add_router_interface
		var iface struct {
			Subnet string `json:"subnet_id"`
		}
		_ = json.Unmarshal(body, &iface)
		if is, want := c.projectOf("router", parts[3]), c.projectOf("subnet", iface.Subnet); is != want && !strings.Contains(want, "SubnetNotFound") { // a late request is refused
			c.t.Errorf("a router of project %q gets an interface in subnet %s of project %q", is, iface.Subnet, want)
		}
		return
	}
	kind := strings.ReplaceAll(strings.TrimSuffix(parts[len(parts)-1], "s"), "-", "_")
	var one map[string]map[string]any
	var many map[string][]map[string]any
	rows := []map[string]any{}
	if json.Unmarshal(body, &one) == nil && one[kind] != nil {
		rows = append(rows, one[kind])
	} else if json.Unmarshal(body, &many) == nil {
		rows = many[kind+"s"]
	}
	for _, row := range rows {
		id, _ := row["project_id"].(string)
		is := c.tenant(id)
		if want, known := c.belongs(strings.ReplaceAll(kind, "_", "-"), row); known && is != want && !strings.Contains(want, "NetworkNotFound") { // a late request is refused
			c.t.Errorf("POST of a %s for project %q, want %q: %v", kind, is, want, row)
		}
	}
}

// belongs returns the project that a resource belongs to. It is not known for parts of a load
// balancer, which are in its project whatever the request says.
func (c *tenancy) belongs(kind string, row map[string]any) (project string, known bool) {
	switch kind {
	case "port", "subnet":
		id, _ := row["network_id"].(string)
		return c.projectOf("network", id), true
	case "network", "loadbalancer", "floatingip", "security-group":
		row["id"] = "" // a request has none
		if r, err := resource(kind, row); err == nil {
			return cmp.Or(c.home[r.Owner.Namespace], c.project), true
		}
	}
	return "", false
}

// tenant returns a project if it is one of a tenant, else the common project, whether a request names
// that or not.
func (c *tenancy) tenant(project string) string {
	if slices.Contains(c.tenants, project) {
		return project
	}
	return c.project
}

// projectOf returns the project of a resource, as tenant does.
func (c *tenancy) projectOf(kind, id string) string {
	var out map[string]struct {
		Project string `json:"project_id"`
	}
	if _, err := c.ask(http.MethodGet, "/networking/v2.0/"+kind+"s/"+id, nil, &out); err != nil {
		return err.Error()
	}
	return c.tenant(out[kind].Project)
}

// wrong returns why a resource must not be where it was made; empty if it may.
func (c *tenancy) wrong(r crashtest.Resource) string {
	var row map[string]any
	if err := json.Unmarshal([]byte(r.Content), &row); err != nil {
		return err.Error()
	}
	is := c.tenant(r.Project)
	want := cmp.Or(c.home[r.Owner.Namespace], c.project)
	if r.Kind == "port" { // its mark names a pool, and no namespace
		want, _ = c.belongs(r.Kind, row)
	}
	if is != want {
		return fmt.Sprintf("it is in project %q and belongs to project %q of namespace %s: %s", r.Project, want, r.Owner.Namespace, r.Content)
	}
	return ""
}

// nets returns a line for each network of the cluster, sorted: with its ID, project and subnets, and
// with the routers there.
func (c *tenancy) nets() (all []string) {
	subnets, ifaces := c.all("subnet"), map[string]string{}
	for _, p := range c.all("port") {
		if owner, _ := p["device_owner"].(string); !strings.HasPrefix(owner, "network:router_interface") && owner != "network:ha_router_replicated_interface" {
			continue
		}
		for _, ip := range p["fixed_ips"].([]any) {
			ifaces[ip.(map[string]any)["subnet_id"].(string)] += " at " + p["device_id"].(string)
		}
	}
	for _, n := range c.all("network") {
		if r, err := resource("network", n); err != nil || r.Cluster != c.cluster {
			continue
		}
		var in []string
		for _, s := range subnets {
			if s["network_id"] == n["id"] {
				in = append(in, fmt.Sprintf(", %s%s", s["cidr"], ifaces[s["id"].(string)]))
			}
		}
		slices.Sort(in)
		all = append(all, fmt.Sprintf("%s %s in %s%s", n["name"], n["id"], c.tenant(n["project_id"].(string)), strings.Join(in, "")))
	}
	slices.Sort(all)
	return all
}

// wanted is the line of nets for a KuryrNetwork.
func (c *tenancy) wanted(kn *v1.KuryrNetwork) string {
	project, router := cmp.Or(c.home[kn.Namespace], c.project), c.router
	for _, p := range c.projects {
		if p.ProjectID == project {
			router = p.RouterID
		}
	}
	line := fmt.Sprintf("%s %s in %s", sdn.NetworkName(kn.Spec.NamespaceUID, kn.Namespace), kn.Status.NetworkID, project)
	for _, s := range kn.Status.Subnets {
		line += fmt.Sprintf(", %s at %s", s.CIDR, router)
	}
	return line
}
