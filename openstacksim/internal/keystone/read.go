// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// collection describes how rows of one kind are listed and shown.
type collection[T any] struct {
	many, one string // the name in the path, and the key of a single row
	rows      *rows[T]
	open      bool                          // open to any valid token
	own       func(r *request, row *T) bool // whether a caller who is no admin may see the row
}

// reads returns the routes that list and show rows.
func (s *Service) reads() []route {
	var all []route
	all = append(all, readable(s, collection[domain]{"domains", "domain", s.domains, false,
		func(r *request, d *domain) bool { return r.who.DomainID == d.ID && r.who.ProjectID != "" }})...)
	all = append(all, readable(s, collection[project]{"projects", "project", s.projects, false,
		func(r *request, p *project) bool { return r.who.ProjectID == p.ID }})...)
	all = append(all, readable(s, collection[user]{"users", "user", s.users, false,
		func(r *request, u *user) bool { return r.who.UserID == u.ID }})...)
	all = append(all, readable(s, collection[role]{"roles", "role", s.roles, false, nil})...)
	all = append(all, readable(s, collection[service]{"services", "service", s.services, false, nil})...)
	all = append(all, readable(s, collection[endpoint]{"endpoints", "endpoint", s.endpoints, false, nil})...)
	return append(all, readable(s, collection[region]{"regions", "region", s.regions, true, nil})...)
}

func readable[T any](s *Service, c collection[T]) []route {
	list := func(r *request) (reply, *fault) {
		if !c.open && !r.admin() {
			return reply{}, forbidden("identity:list_" + c.many)
		}
		return ok(s.wrap(c.many, r, choose(c.rows.order, r)))
	}
	show := func(r *request) (reply, *fault) {
		row := c.rows.byID[r.ids[0]]
		if !c.open && !r.admin() && (row == nil || c.own == nil || !c.own(r, row)) {
			return reply{}, forbidden("identity:get_" + c.one)
		}
		if row == nil {
			return reply{}, notFound(c.one, r.ids[0])
		}
		return ok(map[string]any{c.one: row})
	}
	return []route{on(http.MethodGet, c.many, list), on(http.MethodGet, c.many+"/*", show)}
}

// choose returns the rows that the query selects. As in Keystone, a filter for an unknown field
// is ignored.
func choose[T any](all []*T, r *request) []*T {
	chosen := []*T{}
	for _, row := range all {
		if fits(row, r) {
			chosen = append(chosen, row)
		}
	}
	return chosen
}

func fits(row any, r *request) bool {
	if len(r.query) == 0 {
		return true
	}
	b, err := json.Marshal(row)
	if err != nil {
		return false
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil {
		return false
	}
	for name, wanted := range r.query {
		v, has := fields[name]
		switch v := v.(type) {
		case string:
			if has && !slices.Contains(wanted, v) {
				return false
			}
		case bool:
			if yes := wanted[0] != "0" && wanted[0] != "false" && wanted[0] != "False"; yes != v {
				return false
			}
		}
	}
	return true
}

// wrap returns a list in the form of Keystone's answers.
func (s *Service) wrap(many string, r *request, rows any) map[string]any {
	self := s.url + r.URL.Path
	if r.URL.RawQuery != "" {
		self += "?" + r.URL.RawQuery
	}
	return map[string]any{many: rows, "links": map[string]any{"next": nil, "self": self, "previous": nil}}
}

func (s *Service) ownProjects(r *request) (reply, *fault) {
	return ok(s.wrap("projects", r, s.projectsWhere(r.who.UserID, r)))
}

func (s *Service) projectsOf(r *request) (reply, *fault) {
	if r.ids[0] != r.who.UserID && !r.admin() {
		return reply{}, forbidden("identity:list_user_projects")
	}
	return ok(s.wrap("projects", r, s.projectsWhere(r.ids[0], r)))
}

func (s *Service) projectsWhere(user string, r *request) []*project {
	return slices.DeleteFunc(choose(s.projects.order, r), func(p *project) bool { return len(s.rolesIn(user, p.ID)) == 0 })
}

func (s *Service) ownDomains(r *request) (reply, *fault) {
	with := slices.DeleteFunc(choose(s.domains.order, r), func(d *domain) bool { return len(s.rolesIn(r.who.UserID, d.ID)) == 0 })
	return ok(s.wrap("domains", r, with))
}

func (s *Service) ownSystem(r *request) (reply, *fault) {
	all := []map[string]bool{}
	if len(s.closure(s.system, r.who.UserID, "system")) > 0 {
		all = append(all, map[string]bool{"all": true})
	}
	return ok(map[string]any{"system": all, "links": map[string]string{"self": s.url + "/v3/auth/system"}})
}

func (s *Service) showCatalog(r *request) (reply, *fault) {
	if r.token.project == "" {
		return reply{}, refuse(http.StatusForbidden, "%s.", notAuthorized)
	}
	return ok(map[string]any{"catalog": s.catalog(), "links": map[string]string{"self": s.url + "/v3/auth/catalog"}})
}

func (s *Service) noGroups(r *request) (reply, *fault) {
	if !r.admin() {
		return reply{}, forbidden("identity:list_groups")
	}
	return ok(s.wrap("groups", r, []any{}))
}

// assignments answers GET /v3/role_assignments. keystone 22.0.2: api/role_assignments.py, observed
func (s *Service) assignments(r *request) (reply, *fault) {
	if !r.admin() {
		return reply{}, forbidden("identity:list_role_assignments")
	}
	_, withNames := r.query["include_names"]
	all := []any{}
	for _, g := range slices.Concat(s.grants, s.system) {
		if !asked(r, "user.id", g.user) || !asked(r, "role.id", g.role) || !asked(r, "scope.project.id", g.target) {
			continue
		}
		all = append(all, s.assignment(g, withNames))
	}
	return ok(s.wrap("role_assignments", r, all))
}

func asked(r *request, key, value string) bool {
	return !r.query.Has(key) || r.query.Get(key) == value
}

func (s *Service) assignment(g grant, withNames bool) map[string]any {
	who, what := map[string]any{"id": g.user}, map[string]any{"id": g.role}
	u, p := s.users.byID[g.user], s.projects.byID[g.target]
	if withNames && u != nil {
		who["name"], who["domain"] = u.Name, s.short(u.DomainID)
		what["name"] = s.roles.byID[g.role].Name
	}
	scope, at := map[string]any{"system": map[string]bool{"all": true}}, "system"
	switch {
	case p != nil:
		in := map[string]any{"id": p.ID}
		if withNames {
			in["name"], in["domain"] = p.Name, s.short(p.DomainID)
		}
		scope, at = map[string]any{"project": in}, "projects/"+p.ID
	case g.target != "system":
		in := map[string]any{"id": g.target}
		if withNames {
			in["name"] = s.short(g.target)["name"]
		}
		scope, at = map[string]any{"domain": in}, "domains/"+g.target
	}
	link := fmt.Sprintf("%s/v3/%s/users/%s/roles/%s", s.url, at, g.user, g.role)
	return map[string]any{"links": map[string]string{"assignment": link}, "scope": scope, "user": who, "role": what}
}
