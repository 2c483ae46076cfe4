// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Authenticate returns the caller of the token. It returns false if the token is unknown, expired
// or revoked, or if its user, project or roles no longer exist.
func (s *Service) Authenticate(id string) (Caller, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, f := s.look(id)
	if f != nil {
		return Caller{}, false
	}
	return s.caller(t), true
}

// Revoke makes the token invalid, as if it had expired. Unknown tokens are ignored.
func (s *Service) Revoke(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tokens[strings.TrimSpace(id)]; t != nil {
		t.revoked = true
	}
}

// RevokeAll makes every token invalid.
func (s *Service) RevokeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tokens {
		t.revoked = true
	}
}

// caller returns the caller that t stands for.
func (s *Service) caller(t *token) Caller {
	u := s.users.byID[t.user]
	c := Caller{UserID: u.ID, UserName: u.Name, DomainID: u.DomainID}
	if p := s.projects.byID[t.project]; p != nil {
		c.ProjectID, c.ProjectName = p.ID, p.Name
	}
	for _, r := range s.rolesOf(t) {
		c.Roles = append(c.Roles, r.Name)
	}
	return c
}

// look returns the token if it is valid. Messages of keystone 22.0.2:
// token/providers/fernet/core.py and observed.
func (s *Service) look(id string) (*token, *fault) {
	id = strings.TrimSpace(id)
	if id == "" {
		return nil, refuse(http.StatusNotFound, "No token in the request")
	}
	t := s.tokens[id]
	if t == nil {
		return nil, refuse(http.StatusNotFound, "Could not recognize Fernet token")
	}
	if t.revoked || !s.now().Before(t.until) {
		return nil, refuse(http.StatusNotFound, "Failed to validate token")
	}
	return t, s.stands(t)
}

// stands returns why a token that has not expired is invalid, nil if it is valid.
func (s *Service) stands(t *token) *fault {
	if u := s.users.byID[t.user]; u == nil {
		return notFound("user", t.user)
	} else if !u.Enabled {
		return refuse(http.StatusNotFound, "Failed to validate token")
	}
	if p := s.projects.byID[t.project]; t.project != "" && p == nil {
		return notFound("project", t.project)
	} else if p != nil && !p.Enabled {
		return refuse(http.StatusNotFound, "Failed to validate token")
	}
	if t.credential != "" {
		c := s.credentials.byID[t.credential]
		if c == nil {
			return notFound("Application Credential", t.credential)
		}
	}
	if !t.unscoped() && len(s.rolesOf(t)) == 0 {
		return refuse(http.StatusNotFound, "Failed to validate token")
	}
	return nil
}

// implied maps a role to the roles that it implies, as a bootstrap sets them up. keystone 22.0.2:
// cmd/bootstrap.py
var implied = map[string][]string{"admin": {"member", "reader"}, "member": {"reader"}}

// rolesOf returns the roles that t has now, with the roles they imply.
func (s *Service) rolesOf(t *token) []role {
	if c := s.credentials.byID[t.credential]; t.credential != "" && c != nil {
		return s.heldOf(c)
	}
	switch {
	case t.project != "":
		return s.rolesIn(t.user, t.project)
	case t.domain != "":
		return s.rolesIn(t.user, t.domain)
	case t.system:
		return s.closure(s.system, t.user, "system")
	}
	return nil
}

// heldOf returns the roles of a credential that its user still has.
func (s *Service) heldOf(c *credential) []role {
	now := s.rolesIn(c.UserID, c.ProjectID)
	var held []role
	for _, r := range c.Roles {
		if slices.ContainsFunc(now, func(n role) bool { return n.ID == r.ID }) {
			held = append(held, r)
		}
	}
	return held
}

func (s *Service) rolesIn(user, target string) []role { return s.closure(s.grants, user, target) }

func (s *Service) closure(grants []grant, user, target string) []role {
	var got []role
	add := func(r *role) {
		if r != nil && !slices.ContainsFunc(got, func(g role) bool { return g.ID == r.ID }) {
			plain := *r
			plain.Links = nil
			got = append(got, plain)
		}
	}
	for _, g := range grants {
		if g.user != user || g.target != target {
			continue
		}
		r := s.roles.byID[g.role]
		add(r)
		if r != nil {
			for _, name := range implied[r.Name] {
				add(s.roleNamed(name))
			}
		}
	}
	return got
}

// form is the format of times in a token.
const form = "2006-01-02T15:04:05.000000Z"

// render returns the token as the answer shows it. keystone 22.0.2: common/render_token.py
func (s *Service) render(t *token, catalog bool) map[string]any {
	u := s.users.byID[t.user]
	body := map[string]any{
		"methods":    t.methods,
		"user":       map[string]any{"domain": s.short(u.DomainID), "id": u.ID, "name": u.Name, "password_expires_at": nil},
		"audit_ids":  t.audits,
		"expires_at": t.until.UTC().Truncate(time.Second).Format(form),
		"issued_at":  t.issued.UTC().Truncate(time.Second).Format(form),
	}
	switch {
	case t.system:
		body["system"] = map[string]any{"all": true}
	case t.domain != "":
		body["domain"] = s.short(t.domain)
	case t.project != "":
		p := s.projects.byID[t.project]
		body["project"] = map[string]any{"domain": s.short(p.DomainID), "id": p.ID, "name": p.Name}
		body["is_domain"] = false
	}
	if t.unscoped() {
		return map[string]any{"token": body}
	}
	body["roles"] = names(s.rolesOf(t))
	if catalog {
		body["catalog"] = s.catalog()
	}
	if c := s.credentials.byID[t.credential]; t.credential != "" && c != nil {
		restricted := c.Unrestricted == nil || !*c.Unrestricted
		body["application_credential"] = map[string]any{"id": c.ID, "name": c.Name, "restricted": restricted}
	}
	return map[string]any{"token": body}
}

func names(roles []role) []map[string]string {
	named := []map[string]string{}
	for _, r := range roles {
		named = append(named, map[string]string{"id": r.ID, "name": r.Name})
	}
	return named
}

func (s *Service) short(domain string) map[string]string {
	d := s.domains.byID[domain]
	if d == nil {
		return map[string]string{"id": domain, "name": domain}
	}
	return map[string]string{"id": d.ID, "name": d.Name}
}

func (s *Service) catalog() []map[string]any {
	list := []map[string]any{}
	for _, v := range s.services.order {
		ends := []map[string]string{}
		for _, e := range s.endpoints.order {
			if e.ServiceID == v.ID && e.Enabled {
				ends = append(ends, map[string]string{"id": e.ID, "interface": e.Interface,
					"region_id": e.RegionID, "url": e.URL, "region": e.Region})
			}
		}
		if len(ends) > 0 && v.Enabled {
			list = append(list, map[string]any{"endpoints": ends, "id": v.ID, "type": v.Type, "name": v.Name})
		}
	}
	return list
}
