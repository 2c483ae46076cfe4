// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/openstacksim/dial"
	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// Service is a service that a Cloud has besides its own, such as a Nova, Glance or
// Cinder: see Options.Services. To the Cloud it is one more of its services: the
// catalogue has it, its callers need a token, dials name it by its type, the log
// counts its calls, and Options.Before and After are called around each.
type Service interface {
	// Type is the service's type in the catalogue, such as compute, image or
	// block-storage: lower-case letters, digits and single hyphens, a letter first.
	// New asks for it once. Clients reach the service at the Cloud's URL + "/" + Type().
	Type() string

	// Handle answers one request. The path of r is as the service sees it, without
	// the type: /v2.1/servers. The first segment is taken to be the API's version: it
	// is not part of Call.Resource. The body has been read already and is 64 MiB at most.
	//
	// who is whom the token stands for. A request without a valid token does not come
	// here: it was answered with 401. But version discovery, of which the path is /,
	// comes without one, and who is the zero Caller then. What who may do is for the
	// service to decide.
	//
	// Requests come at the same time. A panic is answered with 500 and logged.
	Handle(w http.ResponseWriter, r *http.Request, who Caller)
}

// Versioned is a Service of which the URL in the catalogue ends with a version, as
// Nova's and Cinder's do: gophercloud adds none of its own there. Paths that Handle
// sees begin with it.
type Versioned interface {
	Service
	// Version is what the URL ends with, such as v2.1. New asks for it once.
	Version() string
}

// Caller is who makes a request, as the token says.
type Caller struct {
	UserID, UserName string
	ProjectID        string // empty if the token has no project
	ProjectName      string
	DomainID         string   // of the user
	Roles            []string // names, such as admin, member, reader; not to be changed
}

// Admin says whether the caller has the role admin.
func (c Caller) Admin() bool { return c.Has("admin") }

// Has says whether the caller has the role of that name.
func (c Caller) Has(role string) bool { return slices.Contains(c.Roles, role) }

// added is a Service as the Cloud's own services are.
type added struct{ Service }

func (a added) Handle(w http.ResponseWriter, r *http.Request, who keystone.Caller) {
	a.Service.Handle(w, r, Caller(who))
}

// Where the services are below Options.URL.
const (
	identityPath = "/identity"
	networkPath  = "/networking"
	balancerPath = "/load-balancer"
	adminPath    = "/sim"
)

// place is where a service is below Options.URL.
type place struct{ path, name string }

// places are those that every Cloud has.
var places = []place{{identityPath, dial.Identity}, {networkPath, dial.Network}, {balancerPath, dial.LoadBalancer}, {adminPath, admin}}

var (
	isType    = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	isVersion = regexp.MustCompile(`^v[0-9]+(\.[0-9]+)?$`)
)

// add takes services into places and the catalogue.
func (c *Cloud) add(services []Service) error {
	c.places, c.catalog, c.added = slices.Clone(places), c.own(), map[string]api{}
	for i, s := range services {
		if s == nil {
			return fmt.Errorf("Services[%d] is nil", i)
		}
		p, err := c.place(s.Type())
		if err != nil {
			return err
		}
		url := c.o.URL + p.path
		if v, is := s.(Versioned); is {
			version := v.Version()
			if !isVersion.MatchString(version) {
				return fmt.Errorf("service %s: %q is no version: write it as in v2.1", p.name, version)
			}
			url += "/" + version
		}
		c.places = append(c.places, p)
		c.catalog = append(c.catalog, keystone.Catalog{Type: p.name, Name: p.name, URL: url})
		c.added[p.name] = added{s}
		c.types = append(c.types, p.name)
	}
	return nil
}

// place is where a service of that type will be, if nothing else is there.
func (c *Cloud) place(name string) (place, error) {
	if !isType.MatchString(name) {
		return place{}, fmt.Errorf("%q is no type of a service: write lower-case letters, digits and single hyphens, as in block-storage", name)
	}
	p := place{"/" + name, name}
	for _, other := range c.places {
		if other.name == p.name || other.path == p.path {
			return place{}, fmt.Errorf("a service of type %s cannot be added: there is %s already, at %s", name, other.name, other.path)
		}
	}
	return p, nil
}

// own is the catalogue of the Cloud's own services; Keystone adds itself.
func (c *Cloud) own() []keystone.Catalog {
	all := []keystone.Catalog{
		{Type: dial.Network, Name: "neutron", URL: c.o.URL + networkPath},
		{Type: dial.LoadBalancer, Name: "octavia", URL: c.o.URL + balancerPath},
	}
	if c.o.LBaaSv2 {
		return all[:1]
	}
	return all
}

// route says which service a path is for, and what the service sees of it.
func (c *Cloud) route(path string) (service, rest string) {
	for _, p := range c.places {
		if rest, has := strings.CutPrefix(path, p.path); has && (rest == "" || rest[0] == '/') {
			if rest == "" {
				rest = "/"
			}
			return p.name, rest
		}
	}
	return "", ""
}
