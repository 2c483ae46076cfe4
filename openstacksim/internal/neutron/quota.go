// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"maps"
	"net/http"
)

// defaultQuota is each project's limits by resource (neutron 21.0.0: conf/quota.py; -1 is no
// limit).
var defaultQuota = map[string]int{
	"network": 100, "subnet": 100, "subnetpool": -1, "port": 500, "router": 10, "floatingip": 50,
	"security_group": 10, "security_group_rule": 100, "rbac_policy": 10, "trunk": -1,
}

// quotas holds the limits of all projects.
type quotas struct {
	defaults map[string]int
	projects map[string]map[string]int
}

func newQuotas(own map[string]int) quotas {
	q := quotas{maps.Clone(defaultQuota), map[string]map[string]int{}}
	maps.Copy(q.defaults, own)
	return q
}

// of returns the limits of a project.
func (q quotas) of(project string) map[string]int {
	out := maps.Clone(q.defaults)
	maps.Copy(out, q.projects[project])
	return out
}

// limit returns a project's limit of a resource, -1 if it has none.
func (q quotas) limit(project, one string) int {
	if n, ok := q.projects[project][one]; ok {
		return n
	}
	if n, ok := q.defaults[one]; ok {
		return n
	}
	return -1
}

// reserve refuses to exceed the project's quota.
func (c *call) reserve(one, project string, have, more int) *fault {
	if limit := c.quotas.limit(project, one); limit >= 0 && have+more > limit {
		return conflict("OverQuota", "Quota exceeded for resources: %s.", repr([]string{one}))
	}
	return nil
}

// quota answers /v2.0/quotas/PROJECT, and /details and /default below it.
func (c *call) quota(rest []string, body []byte) (int, any, *fault) {
	get := c.request.Method == http.MethodGet
	switch {
	case len(rest) == 0 && get:
		return c.allQuotas()
	case len(rest) == 1 && get:
		return c.showQuota(rest[0])
	case len(rest) == 1 && c.request.Method == http.MethodPut:
		return c.setQuota(rest[0], body)
	case len(rest) == 1 && c.request.Method == http.MethodDelete:
		return c.resetQuota(rest[0])
	case len(rest) == 2 && get && rest[1] == "details":
		return c.quotaDetails(rest[0])
	case len(rest) == 2 && get && rest[1] == "default":
		if f := c.mayQuota("get_quota", rest[0]); f != nil {
			return 0, nil, f
		}
		return http.StatusOK, map[string]any{"quota": c.quotas.defaults}, nil
	case len(rest) < 2:
		return 0, nil, notAllowed()
	}
	return 0, nil, noSuchPath()
}

// mayQuota allows administrators everything, and other callers to read their own limits.
func (c *call) mayQuota(action, project string) *fault {
	if c.admin() || project != "" && project == c.who.ProjectID {
		return nil
	}
	return refuse(http.StatusForbidden, "PolicyNotAuthorized", "rule:%s is disallowed by policy", action)
}

func (c *call) allQuotas() (int, any, *fault) {
	if f := c.mayQuota("get_quota", ""); f != nil {
		return 0, nil, f
	}
	list := []any{}
	for _, project := range sortedKeys(c.quotas.projects) {
		entry := map[string]any{"project_id": project, "tenant_id": project}
		for one, n := range c.quotas.of(project) {
			entry[one] = n
		}
		list = append(list, entry)
	}
	return http.StatusOK, map[string]any{"quotas": list}, nil
}

func (c *call) showQuota(project string) (int, any, *fault) {
	if project == "tenant" || project == "project" { // clients ask for their own project in this way
		return http.StatusOK, map[string]any{project: map[string]any{project + "_id": c.who.ProjectID}}, nil
	}
	if f := c.mayQuota("get_quota", project); f != nil {
		return 0, nil, f
	}
	return http.StatusOK, map[string]any{"quota": c.quotas.of(project)}, nil
}

func (c *call) setQuota(project string, body []byte) (int, any, *fault) {
	if f := c.mayQuota("update_quota", ""); f != nil {
		return 0, nil, f
	}
	r, f := parse(body, "quota", "quotas")
	if f != nil {
		return 0, nil, f
	}
	if len(r.items) != 1 || r.bulk {
		return 0, nil, badRequest("Unable to find '%s' in request body", "quota")
	}
	check, least := !empty(r.items[0]["check_limit"]), -1
	if c.Later { // neutron 26.0.3: extensions/quotasv2.py
		check, least = r.items[0]["force"] != true, 0
	}
	delete(r.items[0], "check_limit")
	delete(r.items[0], "force")
	limits, f := c.limits(r.items[0])
	if f != nil {
		return 0, nil, f
	}
	for _, one := range sortedKeys(limits) {
		if used := c.used(one, project); check && used > limits[one] && limits[one] >= least {
			return 0, nil, badRequest("Quota limit %d for %s must be greater than or equal to already used %d", limits[one], one, used)
		}
	}
	set := maps.Clone(c.quotas.projects[project])
	if set == nil {
		set = map[string]int{}
	}
	maps.Copy(set, limits)
	c.quotas.projects[project] = set
	return c.showQuota(project)
}

// limits reads the new limits in a request.
func (c *call) limits(item map[string]any) (map[string]int, *fault) {
	var attrs attributeList
	attrs.byName = map[string]*attribute{}
	for _, one := range sortedKeys(c.quotas.defaults) {
		a := &attribute{
			Name: one, AllowPut: true, ConvertTo: &convert{"convert_to_int"},
			Validate: []validate{{Rule: "type:range", Data: []any{-1, 1<<31 - 1}}},
		}
		attrs.all, attrs.byName[one] = append(attrs.all, a), a
	}
	in, f := c.prepare(&attrs, item, false)
	if f != nil {
		return nil, f
	}
	out := map[string]int{}
	for one := range c.quotas.defaults {
		if n, ok := in.number(one); ok {
			out[one] = n
		}
	}
	return out, nil
}

func (c *call) resetQuota(project string) (int, any, *fault) {
	if f := c.mayQuota("delete_quota", ""); f != nil {
		return 0, nil, f
	}
	if _, ok := c.quotas.projects[project]; !ok {
		whose := "tenant"
		if c.Later {
			whose = "project"
		}
		return 0, nil, refuse(http.StatusNotFound, "TenantQuotaNotFound", "Quota for %s %s could not be found.", whose, project)
	}
	delete(c.quotas.projects, project)
	return http.StatusNoContent, nil, nil
}

func (c *call) quotaDetails(project string) (int, any, *fault) {
	if !c.admin() && project != c.who.ProjectID {
		return 0, nil, refuse(http.StatusForbidden, "AdminRequired",
			"User does not have admin privileges: Only admin is authorized to access quotas for another project.")
	}
	out := map[string]any{}
	for one, limit := range c.quotas.of(project) {
		out[one] = map[string]int{"limit": limit, "used": c.used(one, project), "reserved": 0}
	}
	return http.StatusOK, map[string]any{"quota": out}, nil
}

// used returns how many of a resource a project has.
func (c *call) used(one, project string) int {
	if h := c.kindOf(one); h != nil {
		return h.count(project)
	}
	return 0
}
