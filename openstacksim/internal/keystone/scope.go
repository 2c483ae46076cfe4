// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"net/http"
	"slices"
)

// readScope reads the scope that the request asks for.
func (s *Service) readScope(l *login, auth, identity map[string]any) *fault {
	given, has := auth["scope"]
	if slices.Contains(l.methods, "application_credential") {
		if has {
			f := refuse(http.StatusUnauthorized,
				"Error authenticating with application credential: Application credentials cannot request a scope.")
			f.with = map[string]any{"identity": map[string]any{}}
			return f
		}
		c, f := s.credentialOf(object(identity["application_credential"]))
		if f != nil {
			return f
		}
		l.credential, l.scope.project = c, c.ProjectID
		return nil
	}
	if !has {
		return nil
	}
	return s.scopeOf(l, given)
}

func (s *Service) scopeOf(l *login, given any) *fault {
	if given == "unscoped" {
		l.scope.unscoped = true
		return nil
	}
	o := object(given)
	var kinds []string
	for _, k := range []string{"system", "unscoped", "project", "domain", "OS-TRUST:trust"} {
		if _, has := o[k]; has {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) != 1 {
		return missing("system, project, domain, OS-TRUST:trust or unscoped", "scope")
	}
	var f *fault
	switch kinds[0] {
	case "system":
		l.scope.system = true
	case "unscoped":
		l.scope.unscoped = true
	case "project":
		l.scope.project, f = s.projectOf(object(o["project"]))
	case "domain":
		l.scope.domain, f = s.domainOf(object(o["domain"]))
	default: // trusts are not simulated, so no trust is ever found
		id, _ := object(o["OS-TRUST:trust"])["id"].(string)
		f = refuse(http.StatusNotFound, "Could not find trust: %s.", id)
	}
	return f
}

func (s *Service) projectOf(given map[string]any) (string, *fault) {
	name, _ := given["name"].(string)
	id, _ := given["id"].(string)
	p := s.projects.byID[id]
	if name != "" {
		if _, has := given["domain"]; !has {
			return "", missing("domain", "project")
		}
		d, f := s.domainOf(object(given["domain"]))
		if f != nil {
			return "", f
		}
		p = s.projectNamed(name, d)
	}
	if p == nil || !p.Enabled {
		return "", unauthorized()
	}
	return p.ID, nil
}

func (s *Service) credentialOf(given map[string]any) (*credential, *fault) {
	if id, _ := given["id"].(string); id != "" {
		if c := s.credentials.byID[id]; c != nil {
			return c, nil
		}
		// Observed on keystone 22.0.2: 404, before the caller is known.
		return nil, notFound("Application Credential", id)
	}
	name, _ := given["name"].(string)
	if name == "" {
		return nil, missing("name or ID", "application credential")
	}
	who := object(given["user"])
	if len(who) == 0 {
		return nil, missing("user", "application credential")
	}
	id, _ := who["id"].(string)
	if id == "" {
		if _, has := who["domain"]; !has {
			return nil, missing("domain", "user")
		}
		d, f := s.domainOf(object(who["domain"]))
		if f != nil {
			return nil, f
		}
		n, _ := who["name"].(string)
		u := s.userNamed(n, d)
		if u == nil { // keystone 22.0.2: auth/core.py lets UserNotFound out
			return nil, notFound("user", n)
		}
		id = u.ID
	}
	c := s.credentials.find(func(c *credential) bool { return c.UserID == id && c.Name == name })
	if c == nil {
		return nil, unauthorized()
	}
	return c, nil
}
