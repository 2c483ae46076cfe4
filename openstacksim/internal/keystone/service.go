// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Region is the name of the only region.
const Region = "RegionOne"

const defaultDomain = "default"

// Options are the settings of a Service. Fields without a default are required.
type Options struct {
	URL      string           // of Keystone, without /v3
	Services []Catalog        // the other services of the catalog, in this order
	Password string           // of the users that exist from the start
	Lifetime time.Duration    // of a token
	NewID    func() string    // UUIDs; safe for concurrent use
	Now      func() time.Time // default time.Now
}

// Catalog is a service in the catalog.
type Catalog struct{ Type, Name, URL string }

// Service is a Keystone. It may be used by many goroutines at once.
type Service struct {
	url      string
	lifetime time.Duration
	newID    func() string
	now      func() time.Time
	routes   []route

	mu          sync.RWMutex
	domains     *rows[domain]
	projects    *rows[project]
	users       *rows[user]
	roles       *rows[role]
	services    *rows[service]
	endpoints   *rows[endpoint]
	regions     *rows[region]
	credentials *rows[credential]
	grants      []grant
	system      []grant // target is "system"
	tokens      map[string]*token
}

// New returns a Keystone with the domain Default, the projects admin and k8s, and the roles of a
// bootstrap. It has three users: admin (admin in project admin and of the system), kuryr (admin
// in k8s) and tenant (member in k8s).
func New(o Options) *Service {
	s := &Service{
		url:      strings.TrimSuffix(o.URL, "/"),
		lifetime: o.Lifetime,
		newID:    func() string { return strings.ReplaceAll(o.NewID(), "-", "") },
		now:      o.Now,
		tokens:   map[string]*token{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.makeTables()
	s.bootstrap(o.Password)
	s.makeCatalog(o.Services)
	s.routes = s.makeRoutes()
	return s
}

func (s *Service) makeTables() {
	s.domains = newRows(func(r *domain) string { return r.ID })
	s.projects = newRows(func(r *project) string { return r.ID })
	s.users = newRows(func(r *user) string { return r.ID })
	s.roles = newRows(func(r *role) string { return r.ID })
	s.services = newRows(func(r *service) string { return r.ID })
	s.endpoints = newRows(func(r *endpoint) string { return r.ID })
	s.regions = newRows(func(r *region) string { return r.ID })
	s.credentials = newRows(func(r *credential) string { return r.ID })
}

func (s *Service) bootstrap(password string) {
	s.domains.put(&domain{ID: defaultDomain, Name: "Default", Description: "The default domain", Enabled: true,
		Tags: []string{}, Options: map[string]any{}, Links: s.link("domains", defaultDomain)})
	role := map[string]string{}
	// Octavia's policy asks for load-balancer_* of callers who are no admin.
	for _, name := range []string{"admin", "member", "reader", "service", "load-balancer_admin", "load-balancer_member",
		"load-balancer_observer", "load-balancer_global_observer", "load-balancer_quota_admin"} {
		role[name] = s.addRole(name, slices.Contains([]string{"admin", "member", "reader"}, name))
	}
	admin := s.addProject("admin", "Bootstrap project for initializing the cloud.")
	k8s := s.addProject("k8s", "")
	root, kuryr, tenant := s.addUser("admin", password), s.addUser("kuryr", password), s.addUser("tenant", password)
	s.grants = []grant{
		{root.ID, admin.ID, role["admin"]},
		{kuryr.ID, k8s.ID, role["admin"]}, {kuryr.ID, k8s.ID, role["member"]}, {kuryr.ID, k8s.ID, role["load-balancer_member"]},
		{tenant.ID, k8s.ID, role["member"]}, {tenant.ID, k8s.ID, role["load-balancer_member"]},
	}
	s.system = []grant{{root.ID, "system", role["admin"]}}
}

func (s *Service) addRole(name string, immutable bool) string {
	r := &role{ID: s.newID(), Name: name, Options: map[string]any{}}
	if immutable {
		r.Options["immutable"] = true
	}
	l := s.link("roles", r.ID)
	r.Links = &l
	s.roles.put(r)
	return r.ID
}

func (s *Service) addProject(name, description string) *project {
	id := s.newID()
	p := &project{ID: id, Name: name, DomainID: defaultDomain, Description: description, Enabled: true,
		ParentID: defaultDomain, Tags: []string{}, Options: map[string]any{}, Links: s.link("projects", id)}
	s.projects.put(p)
	return p
}

func (s *Service) addUser(name, password string) *user {
	id := s.newID()
	u := &user{ID: id, Name: name, DomainID: defaultDomain, Enabled: true, password: password,
		Options: map[string]any{}, Links: s.link("users", id)}
	s.users.put(u)
	return u
}

func (s *Service) makeCatalog(others []Catalog) {
	s.regions.put(&region{ID: Region, Links: s.link("regions", Region)})
	for _, c := range append([]Catalog{{"identity", "keystone", s.url + "/v3"}}, others...) {
		id := s.newID()
		s.services.put(&service{ID: id, Name: c.Name, Type: c.Type, Enabled: true, Links: s.link("services", id)})
		for _, side := range []string{"public", "internal", "admin"} {
			e := s.newID()
			s.endpoints.put(&endpoint{ID: e, Interface: side, RegionID: Region, Region: Region, ServiceID: id,
				URL: c.URL, Enabled: true, Links: s.link("endpoints", e)})
		}
	}
}

func (s *Service) link(collection, id string) links {
	return links{Self: s.url + "/v3/" + collection + "/" + id}
}

// Project returns the ID of the project of that name in domain Default.
func (s *Service) Project(name string) (id string, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.projectNamed(name, defaultDomain)
	if p == nil {
		return "", false
	}
	return p.ID, true
}

func (s *Service) projectNamed(name, domain string) *project {
	return s.projects.find(func(p *project) bool { return p.Name == name && p.DomainID == domain })
}

func (s *Service) userNamed(name, domain string) *user {
	return s.users.find(func(u *user) bool { return u.Name == name && u.DomainID == domain })
}

func (s *Service) roleNamed(name string) *role {
	return s.roles.find(func(r *role) bool { return r.Name == name })
}

// rows holds the rows of one kind, in the order of their creation.
type rows[T any] struct {
	id    func(*T) string
	byID  map[string]*T
	order []*T
}

func newRows[T any](id func(*T) string) *rows[T] {
	return &rows[T]{id: id, byID: map[string]*T{}}
}

func (r *rows[T]) put(row *T) {
	r.byID[r.id(row)] = row
	r.order = append(r.order, row)
}

// set replaces the row that has the same ID.
func (r *rows[T]) set(row *T) {
	i := slices.Index(r.order, r.byID[r.id(row)])
	r.order[i], r.byID[r.id(row)] = row, row
}

func (r *rows[T]) drop(id string) {
	r.order = slices.DeleteFunc(r.order, func(row *T) bool { return r.id(row) == id })
	delete(r.byID, id)
}

func (r *rows[T]) find(want func(*T) bool) *T {
	if i := slices.IndexFunc(r.order, want); i >= 0 {
		return r.order[i]
	}
	return nil
}
