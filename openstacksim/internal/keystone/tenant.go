// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

// AddTenant adds a project and a user of the same name who is a member of it. It returns the ID of
// the project.
func (s *Service) AddTenant(name, password string) (projectID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, u := s.addProject(name, ""), s.addUser(name, password)
	for _, role := range []string{"member", "load-balancer_member"} {
		s.grants = append(s.grants, grant{u.ID, p.ID, s.roleNamed(role).ID})
	}
	return p.ID
}

// SetProject enables or disables a project; false if there is none of that name. Rows are never
// changed in place.
func (s *Service) SetProject(name string, enabled bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.projectNamed(name, defaultDomain)
	if p == nil {
		return false
	}
	changed := *p
	changed.Enabled = enabled
	s.projects.set(&changed)
	return true
}

// SetPassword gives a user another password; false if there is none of that name.
func (s *Service) SetPassword(name, password string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.userNamed(name, defaultDomain)
	if u == nil {
		return false
	}
	changed := *u
	changed.password = password
	s.users.set(&changed)
	return true
}
