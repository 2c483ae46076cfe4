// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenants makes one backend of several: the main one, and one for each project that has a
// credential of its own. A request for such a project is sent with that credential and no other. A
// list is that of all credentials together, each resource once. A request that names a resource by
// its ID goes to the credential that made or showed it, or to that of the project that an object
// names. Only if neither is known all are asked, and the resource is missing if all of them say so.
//
// A credential that fails concerns its project only. A list is then an sdn.PartialError with the
// part of the others.
//
// Without a project with a credential of its own each call is the main backend's.
package tenants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Session is a backend with one credential.
type Session interface {
	sdn.Backend
	sdn.LoadBalancers
	sdn.FloatingIPs
	sdn.SecurityGroups
	sdn.Subnets
	sdn.Networks
	sdn.Routers
	sdn.SubnetPools
	sdn.Survey
}

// Tenant is a project with a credential of its own.
type Tenant struct {
	ProjectID string
	Cloud     string // the credential's name in the configuration
}

// Kind is what an ID is of.
type Kind int

const (
	// Port is a port of a pod.
	Port Kind = iota
	// Network is a network of a namespace, or a subnet in it.
	Network
	// Balancer is a load balancer, its floating IP or its security group.
	Balancer
	// given is a resource that somebody else made, as a subnet of the configuration.
	given
)

// Options are the parts of a Cloud. All fields except Named must be set.
type Options struct {
	Main Session
	// Tenants returns the projects with a credential of their own. It may change at any time.
	Tenants func() []Tenant
	// Open returns a session with the credential of a project. It sends no request.
	Open func(Tenant) Session
	// Named returns the project that an object names for a resource; false: no object names it. nil:
	// objects are not known.
	Named func(ctx context.Context, kind Kind, id string) (projectID string, ok bool)
}

// Cloud is a backend with all roles, for all projects. It is safe for concurrent use.
type Cloud struct {
	o    Options
	main *credential

	mu     sync.Mutex
	open   map[string]*credential // by project
	listed []Tenant               // when the places were learned
	taught *credential            // that of the last load balancer that was made
	// Projects with a credential of their own, by ID of a resource there; empty: the main one's. What
	// is gone is forgotten with older.
	places, older map[string]string
	renewed       time.Time // when older became the places of before
}

var _ Session = (*Cloud)(nil)

// credential is a session and whose it is.
type credential struct {
	Session
	Tenant // zero: the main one
}

// placeAge is how long a place is remembered at least, from when it was last seen.
const placeAge = 3 * time.Hour

// New returns a Cloud. It opens no session yet.
func New(o Options) *Cloud {
	return &Cloud{o: o, main: &credential{Session: o.Main}, open: map[string]*credential{}, places: map[string]string{}}
}

// of returns the credential for a project.
func (c *Cloud) of(projectID string) *credential {
	if projectID == "" {
		return c.main
	}
	for _, p := range c.tenants() {
		if sdn.SameID(p.ProjectID, projectID) {
			return c.session(p)
		}
	}
	return c.main
}

// tenants returns the projects with a credential of their own. After a change of them nobody knows
// where a resource is: what the main credential showed may now be another's, and hidden from it.
func (c *Cloud) tenants() []Tenant {
	now := c.o.Tenants()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(now, c.listed) {
		clear(c.places)
		clear(c.older)
		c.listed = slices.Clone(now)
	}
	return now
}

// session returns the session of a project. Another name in the configuration is another session.
func (c *Cloud) session(p Tenant) *credential {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is := c.open[p.ProjectID]; is != nil && is.Tenant == p {
		return is
	}
	is := &credential{Session: c.o.Open(p), Tenant: p}
	c.open[p.ProjectID] = is
	return is
}

// all returns the main credential and then the others.
func (c *Cloud) all() []*credential {
	out := []*credential{c.main}
	for _, p := range c.tenants() {
		out = append(out, c.session(p))
	}
	return out
}

// explain says which credential a refusal is about.
func (k *credential) explain(err error) error {
	if err == nil || k.ProjectID == "" || !errors.Is(err, sdn.ErrForbidden) {
		return err
	}
	return fmt.Errorf("with the credential of project %s (projects[].cloud: %s in Kuryr's configuration): %w", k.ProjectID, k.Cloud, err)
}

// keep remembers where resources are.
func (c *Cloud) keep(k *credential, ids ...string) {
	if len(c.tenants()) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.renewed) > placeAge {
		c.older, c.places, c.renewed = c.places, map[string]string{}, time.Now()
	}
	for _, id := range ids {
		if id != "" {
			c.places[id] = k.ProjectID
		}
	}
}

// in asks the credential of a project. ids returns the resources of an answer, which are remembered; nil: none are.
func in[T any](c *Cloud, projectID string, ids func(T) []string, ask func(Session) (T, error)) (T, error) {
	k := c.of(projectID)
	v, err := ask(k)
	if ids != nil {
		c.keep(k, ids(v)...)
	}
	return v, k.explain(err)
}

// place returns the project of a resource. The lock is held.
func (c *Cloud) place(id string) (project string, ok bool) {
	if project, ok = c.places[id]; !ok {
		project, ok = c.older[id]
	}
	return project, ok
}

// find returns the credential of a resource; nil if it is not known.
func (c *Cloud) find(ctx context.Context, kind Kind, id string) *credential {
	if len(c.tenants()) == 0 {
		return c.main
	}
	c.mu.Lock()
	project, ok := c.place(id)
	c.mu.Unlock()
	if ok {
		return c.of(project)
	}
	if kind != given && c.o.Named != nil {
		if project, ok := c.o.Named(ctx, kind, id); ok {
			return c.of(project)
		}
	}
	return nil
}

// absent reports whether an answer may mean that the credential does not see the resource. Octavia
// answers 403 for a load balancer of another project.
func absent(err error) bool {
	return (errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid) || errors.Is(err, sdn.ErrForbidden)) && !errors.Is(err, sdn.ErrLogin)
}

// read asks the credential of a resource, or all if it is not known. project returns the project
// that an answer names; nil: answers name none.
func read[T any](ctx context.Context, c *Cloud, kind Kind, id string, project func(T) string, ask func(Session) (T, error)) (T, error) {
	k := c.find(ctx, kind, id)
	if k != nil {
		v, err := ask(k)
		return v, k.explain(err)
	}
	v, failed := ask(c.main)
	if failed == nil {
		k = c.main
		if project != nil { // an administrator sees what is another's
			k = c.of(project(v))
		}
		c.keep(k, id)
		return v, nil
	}
	if !absent(failed) {
		return v, failed
	}
	others := c.all()[1:]
	answers := asked(others, func(k *credential) (T, error) { return ask(k) })
	for i, a := range answers {
		if a.Err == nil {
			k = others[i]
			if project != nil && c.of(project(a.Value)) != c.main {
				k = c.of(project(a.Value))
			}
			c.keep(k, id)
			return a.Value, nil
		}
	}
	for i, a := range answers {
		if !absent(a.Err) { // it may be there
			return v, others[i].explain(a.Err)
		}
		// Octavia refuses the main one what is another project's. Whose it is says that it is not this
		// cluster's.
		if kind == Balancer && errors.Is(failed, sdn.ErrForbidden) && errors.Is(a.Err, sdn.ErrNotFound) {
			failed = a.Err
		}
	}
	return v, failed
}

// asked asks several sessions at the same time.
func asked[T any](all []*credential, ask func(*credential) (T, error)) []sdn.Read[T] {
	out := make([]sdn.Read[T], len(all))
	var at sync.WaitGroup
	for i, k := range all {
		at.Go(func() { out[i].Value, out[i].Err = ask(k) })
	}
	at.Wait()
	return out
}

// change changes a resource with its credential. If that is not known, each is tried until one sees
// the resource.
func (c *Cloud) change(ctx context.Context, kind Kind, id string, do func(Session) error) error {
	_, err := read(ctx, c, kind, id, nil, func(s Session) (struct{}, error) { return struct{}{}, do(s) })
	return err
}

// remove is change for a request that succeeds if there is nothing to do. If the credential of the
// resource is not known, all are told to, and have to succeed: one that does not see the resource
// does nothing. If all are refused, nobody has looked.
func (c *Cloud) remove(ctx context.Context, kind Kind, id string, do func(Session) error) error {
	all := c.all()
	if k := c.find(ctx, kind, id); k != nil {
		all = []*credential{k}
	}
	var refused error
	refusals := 0
	for _, k := range all {
		err := do(k)
		switch {
		case err == nil:
		case errors.Is(err, sdn.ErrForbidden) && !errors.Is(err, sdn.ErrLogin):
			// Octavia refuses the resource of another project instead of not showing it.
			refused = k.explain(err)
			refusals++
		default:
			return k.explain(err)
		}
	}
	if refusals == len(all) {
		return refused
	}
	return nil
}

// list returns what all credentials list, each resource once. project returns the project that a
// resource names; nil: it names none, and the resource is not remembered.
func list[T any](c *Cloud, id func(T) string, project func(T) string, ask func(*credential) ([]T, error)) ([]T, error) {
	all := c.all()
	if len(all) == 1 {
		return ask(c.main)
	}
	answers := asked(all, ask)
	if answers[0].Err != nil {
		return nil, answers[0].Err
	}
	lacks := map[string]error{}
	for i, a := range answers[1:] {
		if a.Err != nil && !errors.Is(a.Err, sdn.ErrNoService) { // the main one decides whether the cloud has the service
			lacks[all[1+i].ProjectID] = all[1+i].explain(a.Err)
		}
	}
	shown := map[string]bool{}
	var out []T
	for i := range all {
		for _, v := range answers[(i+1)%len(all)].Value { // the main one's come last: it may see what is another's
			if shown[id(v)] {
				continue
			}
			shown[id(v)] = true
			out = append(out, v)
			if project != nil {
				c.keep(c.of(project(v)), id(v))
			}
		}
	}
	if len(lacks) > 0 {
		return out, &sdn.PartialError{Lacks: lacks}
	}
	return out, nil
}
