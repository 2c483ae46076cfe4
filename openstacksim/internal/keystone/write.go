// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// given returns the object under key in the body, after checking it. Only an admin may use these
// routes.
func (r *request) given(key, action string, s schema) (map[string]any, *fault) {
	if !r.admin() {
		return nil, forbidden("identity:" + action)
	}
	v, has := r.body[key]
	if !has {
		v = map[string]any{}
	}
	if f := s.check(v); f != nil {
		return nil, f
	}
	return object(v), nil
}

// onto writes the given fields into a copy of row. The JSON names of row are those of the API.
func onto[T any](row *T, given map[string]any) *T {
	changed := *row
	given = maps.Clone(given)
	delete(given, "options") // json.Unmarshal would write into the map that row shares
	b, err := json.Marshal(given)
	if err == nil {
		// The schema has checked the types of the important fields. A field that does not fit
		// stays unchanged.
		_ = json.Unmarshal(b, &changed)
	}
	return &changed
}

func (s *Service) makeProject(r *request) (reply, *fault) {
	in, f := r.given("project", "create_project", creating(projectFields))
	if f != nil {
		return reply{}, f
	}
	id := s.newID()
	p := onto(&project{DomainID: defaultDomain, Enabled: true, Tags: []string{}, Options: map[string]any{}}, in)
	p.ID, p.IsDomain, p.Links = id, false, s.link("projects", id)
	if p.DomainID == "" {
		p.DomainID = defaultDomain
	}
	if p.ParentID == "" {
		p.ParentID = p.DomainID
	}
	if s.domains.byID[p.DomainID] == nil {
		return reply{}, notFound("domain", p.DomainID)
	}
	if s.projectNamed(p.Name, p.DomainID) != nil {
		return reply{}, twoProjects(p)
	}
	s.projects.put(p)
	return created(map[string]any{"project": p})
}

func twoProjects(p *project) *fault {
	return conflict("project", fmt.Sprintf("it is not permitted to have two projects with either the same name or same id in the same domain: "+
		"name is %s, project id %s", p.Name, p.ID))
}

func (s *Service) changeProject(r *request) (reply, *fault) {
	in, f := r.given("project", "update_project", changing(projectFields))
	if f != nil {
		return reply{}, f
	}
	old := s.projects.byID[r.ids[0]]
	if old == nil {
		return reply{}, notFound("project", r.ids[0])
	}
	p := onto(old, in)
	p.ID, p.DomainID, p.ParentID, p.Links, p.IsDomain = old.ID, old.DomainID, old.ParentID, old.Links, old.IsDomain
	if other := s.projectNamed(p.Name, p.DomainID); other != nil && other.ID != p.ID {
		return reply{}, twoProjects(p)
	}
	s.projects.set(p)
	return ok(map[string]any{"project": s.withExtra(p, nil)})
}

// withExtra adds "extra", which Keystone shows only in the answer to a change. Observed on
// keystone 22.0.2.
func (s *Service) withExtra(row any, extra map[string]any) map[string]any {
	var shown map[string]any
	if b, err := json.Marshal(row); err != nil || json.Unmarshal(b, &shown) != nil {
		shown = map[string]any{}
	}
	if extra == nil {
		extra = map[string]any{}
	}
	shown["extra"] = extra
	return shown
}

func (s *Service) dropProject(r *request) (reply, *fault) {
	id := r.ids[0]
	if !r.admin() {
		return reply{}, forbidden("identity:delete_project")
	}
	if s.projects.byID[id] == nil {
		return reply{}, notFound("project", id)
	}
	s.projects.drop(id)
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool { return g.target == id })
	s.dropCredentials(func(c *credential) bool { return c.ProjectID == id })
	return done()
}

func (s *Service) makeUser(r *request) (reply, *fault) {
	in, f := r.given("user", "create_user", creating(userFields))
	if f != nil {
		return reply{}, f
	}
	id := s.newID()
	u := onto(&user{DomainID: defaultDomain, Enabled: true, Options: map[string]any{}}, in)
	u.ID, u.Links = id, s.link("users", id)
	u.password, _ = in["password"].(string)
	if s.domains.byID[u.DomainID] == nil {
		return reply{}, notFound("domain", u.DomainID)
	}
	if s.userNamed(u.Name, u.DomainID) != nil {
		return reply{}, twoUsers(u)
	}
	s.users.put(u)
	return created(map[string]any{"user": u})
}

func twoUsers(u *user) *fault {
	return conflict("user", fmt.Sprintf("Duplicate entry found with name %s at domain ID %s", u.Name, u.DomainID))
}

func (s *Service) changeUser(r *request) (reply, *fault) {
	in, f := r.given("user", "update_user", changing(userFields))
	if f != nil {
		return reply{}, f
	}
	old := s.users.byID[r.ids[0]]
	if old == nil {
		return reply{}, notFound("user", r.ids[0])
	}
	u := onto(old, in)
	u.ID, u.DomainID, u.Links, u.PasswordExpiresAt = old.ID, old.DomainID, old.Links, nil
	if p, has := in["password"].(string); has {
		u.password = p
	}
	if other := s.userNamed(u.Name, u.DomainID); other != nil && other.ID != u.ID {
		return reply{}, twoUsers(u)
	}
	s.users.set(u)
	extra := map[string]any{}
	for _, name := range []string{"description", "email"} {
		if v, has := in[name]; has {
			extra[name] = v
		}
	}
	return ok(map[string]any{"user": s.withExtra(u, extra)})
}

func (s *Service) dropUser(r *request) (reply, *fault) {
	id := r.ids[0]
	if !r.admin() {
		return reply{}, forbidden("identity:delete_user")
	}
	if s.users.byID[id] == nil {
		return reply{}, notFound("user", id)
	}
	s.users.drop(id)
	own := func(g grant) bool { return g.user == id }
	s.grants, s.system = slices.DeleteFunc(s.grants, own), slices.DeleteFunc(s.system, own)
	s.dropCredentials(func(c *credential) bool { return c.UserID == id })
	return done()
}

func (s *Service) makeRole(r *request) (reply, *fault) {
	in, f := r.given("role", "create_role", creating(roleFields))
	if f != nil {
		return reply{}, f
	}
	name, _ := in["name"].(string)
	if s.roleNamed(name) != nil {
		return reply{}, conflict("role", "Duplicate entry found with name "+name)
	}
	return created(map[string]any{"role": s.roles.byID[s.addRole(name, false)]})
}

// ends finds the user, the project or domain, and the role of a grant. It reports missing ones in
// Keystone's order.
func (s *Service) ends(r *request, action string) (grant, *fault) {
	if !r.admin() {
		return grant{}, forbidden("identity:" + action)
	}
	g := grant{user: r.ids[1], target: r.ids[0]}
	if len(r.ids) > 2 {
		g.role = r.ids[2]
		if s.roles.byID[g.role] == nil {
			return g, notFound("role", g.role)
		}
	}
	if s.users.byID[g.user] == nil {
		return g, notFound("user", g.user)
	}
	if s.projects.byID[g.target] == nil && s.domains.byID[g.target] == nil {
		return g, notFound("project", g.target)
	}
	return g, nil
}

func (s *Service) grantsOf(r *request) (reply, *fault) {
	g, f := s.ends(r, "list_grants")
	if f != nil {
		return reply{}, f
	}
	all := []*role{}
	for _, have := range s.grants {
		if have.user == g.user && have.target == g.target {
			all = append(all, s.roles.byID[have.role])
		}
	}
	return ok(s.wrap("roles", r, all))
}

func (s *Service) hasGrant(r *request) (reply, *fault) {
	g, f := s.ends(r, "check_grant")
	if f != nil {
		return reply{}, f
	}
	if !slices.Contains(s.grants, g) {
		return reply{}, g.missing()
	}
	return done()
}

func (g grant) missing() *fault {
	return notFound("role assignment with role", fmt.Sprintf("%s, user or group: %s, project, domain, or system: %s", g.role, g.user, g.target))
}

func (s *Service) makeGrant(r *request) (reply, *fault) {
	g, f := s.ends(r, "create_grant")
	if f != nil {
		return reply{}, f
	}
	if !slices.Contains(s.grants, g) {
		s.grants = append(s.grants, g)
	}
	return done()
}

func (s *Service) dropGrant(r *request) (reply, *fault) {
	g, f := s.ends(r, "revoke_grant")
	if f != nil {
		return reply{}, f
	}
	i := slices.Index(s.grants, g)
	if i < 0 {
		return reply{}, g.missing()
	}
	s.grants = slices.Delete(s.grants, i, i+1)
	return done()
}
