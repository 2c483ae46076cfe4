// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
)

// asOwner admits the user named in the path, and an admin if admins is set. keystone 22.0.2:
// api/users.py, common/policies/application_credential.py
func (r *request) asOwner(action string, admins bool) *fault {
	if r.ids[0] != r.who.UserID && !(admins && r.admin()) {
		return forbidden("identity:" + action)
	}
	if r.token.credential != "" {
		return refuse(http.StatusForbidden, "%s: %s.", notAuthorized,
			"Using method 'application_credential' is not allowed for managing additional application credentials.")
	}
	return nil
}

func (s *Service) makeCredential(r *request) (reply, *fault) {
	if r.ids[0] != r.who.UserID {
		return reply{}, forbidden("identity:create_application_credential")
	}
	v, has := r.body["application_credential"]
	if !has {
		v = map[string]any{}
	}
	if f := creating(credentialFields).check(v); f != nil {
		return reply{}, f
	}
	if f := r.asOwner("create_application_credential", false); f != nil {
		return reply{}, f
	}
	if r.token.project == "" {
		return reply{}, missing("project_id", "token")
	}
	c, f := s.newCredential(r, object(v))
	if f != nil {
		return reply{}, f
	}
	if s.credentials.find(func(o *credential) bool { return o.UserID == c.UserID && o.Name == c.Name }) != nil {
		return reply{}, conflict("application_credential", "Duplicate entry found with name "+c.Name)
	}
	s.credentials.put(c)
	shown := *c
	shown.Secret = c.secret // Keystone shows the secret in this answer only
	return created(map[string]any{"application_credential": shown})
}

func (s *Service) newCredential(r *request, in map[string]any) (*credential, *fault) {
	id := s.newID()
	c := &credential{ID: id, UserID: r.who.UserID, ProjectID: r.token.project,
		// The link lacks the user: observed on keystone 22.0.2
		Links: links{Self: s.url + "/v3/application_credentials/" + id}}
	c.Name, _ = in["name"].(string)
	if d, ok := in["description"].(string); ok {
		c.Description = &d
	}
	if u, ok := in["unrestricted"].(bool); ok {
		c.Unrestricted = &u
	}
	if rules, has := in["access_rules"]; has {
		if b, err := json.Marshal(rules); err == nil {
			c.AccessRules = b
		}
	}
	if c.secret, _ = in["secret"].(string); c.secret == "" {
		c.secret = base64.RawURLEncoding.EncodeToString([]byte(s.newID() + s.newID()))
	}
	if when, _ := in["expires_at"].(string); when != "" {
		t, f := s.expiry(when)
		if f != nil {
			return nil, f
		}
		at := t.UTC().Format("2006-01-02T15:04:05.000000")
		c.expires, c.ExpiresAt = t, &at
	}
	var f *fault
	c.Roles, f = s.wanted(r, list(in["roles"]))
	return c, f
}

// wanted returns the roles of the new credential: all roles of the token, or the named ones of
// them.
func (s *Service) wanted(r *request, named []any) ([]role, *fault) {
	have := s.rolesOf(r.token)
	if len(named) == 0 {
		return have, nil
	}
	var roles []role
	for _, n := range named {
		o := object(n)
		id, _ := o["id"].(string)
		name, _ := o["name"].(string)
		i := slices.IndexFunc(have, func(h role) bool { return h.ID == id || h.Name == name && name != "" })
		if i < 0 {
			if name != "" && s.roleNamed(name) == nil {
				return nil, notFound("role", name)
			}
			return nil, refuse(http.StatusBadRequest,
				"Invalid application credential: Cannot create an application credential with unassigned role")
		}
		roles = append(roles, have[i])
	}
	return roles, nil
}

func (s *Service) listCredentials(r *request) (reply, *fault) {
	if f := r.asOwner("list_application_credentials", true); f != nil {
		return reply{}, f
	}
	own := slices.DeleteFunc(choose(s.credentials.order, r), func(c *credential) bool { return c.UserID != r.ids[0] })
	return ok(s.wrap("application_credentials", r, own))
}

func (s *Service) showCredential(r *request) (reply, *fault) {
	c, f := s.ownCredential(r, "get_application_credential")
	if f != nil {
		return reply{}, f
	}
	return ok(map[string]any{"application_credential": c})
}

func (s *Service) dropCredential(r *request) (reply, *fault) {
	c, f := s.ownCredential(r, "delete_application_credential")
	if f != nil {
		return reply{}, f
	}
	s.credentials.drop(c.ID)
	return done()
}

func (s *Service) ownCredential(r *request, action string) (*credential, *fault) {
	if f := r.asOwner(action, true); f != nil {
		return nil, f
	}
	c := s.credentials.byID[r.ids[1]]
	if c == nil || c.UserID != r.ids[0] {
		return nil, notFound("Application Credential", r.ids[1])
	}
	return c, nil
}

func (s *Service) dropCredentials(gone func(*credential) bool) {
	for _, c := range slices.Clone(s.credentials.order) {
		if gone(c) {
			s.credentials.drop(c.ID)
		}
	}
}
