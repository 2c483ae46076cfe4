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

// Service is an additional service of a Cloud, such as a Nova, Glance or Cinder: see
// Options.Services. The Cloud treats it like its own services: the catalogue lists it, its callers
// need a token, dials name it by its type, the log counts its calls, and Options.Before and After
// run around each call.
type Service interface {
	// Type is the service's type in the catalogue, such as compute, image or block-storage:
	// lower-case letters, digits and single hyphens, beginning with a letter. New calls it once.
	// Clients reach the service at the Cloud's URL + "/" + Type().
	Type() string

	// Handle answers one request. The path of r is without the type: /v2.1/servers. Its first
	// segment counts as the API's version and is not part of Call.Resource. The body has been read
	// already and has at most 64 MiB.
	//
	// who is the caller of the token. A request without a valid token gets 401 and does not come
	// here. Version discovery, with the path /, is the exception: it has no token, and who is the
	// zero Caller. The service itself decides what a caller may do.
	//
	// Requests are concurrent. A panic is answered with 500 and logged.
	Handle(w http.ResponseWriter, r *http.Request, who Caller)
}

// Versioned is a Service whose URL in the catalogue ends with a version, as Nova's and Cinder's do:
// gophercloud does not add one there. Handle's paths begin with it.
type Versioned interface {
	Service
	// Version is the end of the URL, such as v2.1. New calls it once.
	Version() string
}

// Caller is the caller of a request, according to the token.
type Caller struct {
	UserID, UserName string
	ProjectID        string // empty if the token has no project
	ProjectName      string
	DomainID         string   // of the user
	Roles            []string // names, such as admin, member, reader; not to be changed
}

// Admin reports whether the caller has the role admin.
func (c Caller) Admin() bool { return c.Has("admin") }

// Has reports whether the caller has the role of that name.
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

// places are the places of every Cloud.
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

// place is the place of a service of that type, if it is free.
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

// route returns the service of a path, and the path without the type.
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
