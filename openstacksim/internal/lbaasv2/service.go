// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package lbaasv2 simulates Neutron's own load balancing from the time before Octavia: the
// extension lbaasv2 with shared pools and hm_max_retries_down, as in neutron-lbaas 13. It has no
// tags. A load balancer is created without anything below it. Members are added and removed one
// by one. An object in use cannot be deleted. The simulator's Octavia follows recordings; this
// package follows that project's source.
package lbaasv2

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// Options are the settings of a Service. All except Quota are required.
type Options struct {
	Networks Networks
	NewID    func() string // returns UUIDs
	// After runs f later, in a goroutine of its own. If d is not positive, it runs f at once.
	After func(d time.Duration, f func())
	// Delay returns how long the provider works on a change (create, update, delete) of an object
	// (loadbalancer, listener, pool, member, healthmonitor). outcome is how the change ends: ""
	// is success, "ERROR" is failure, and "STUCK" never ends.
	Delay func(kind, id, action string) (d time.Duration, outcome string)
	// Quota is how many load balancers and how many pools a project may have. 0 is Neutron's
	// default, 10. Negative is no quota.
	Quota int
}

// Networks is the part of Neutron that the service uses. The service holds its lock during the
// calls, so they must not call back.
type Networks interface {
	// Subnet returns the network of a subnet that who may see.
	Subnet(who keystone.Caller, id string) (networkID string, cidr netip.Prefix, ok bool)
	// MakePort makes the port of a VIP. Its error may be a *RefusedError.
	MakePort(VIPPort) (id string, address netip.Addr, err error)
	RemovePort(id string) error
}

// VIPPort is a port to make.
type VIPPort struct {
	ProjectID, NetworkID, SubnetID string
	Address                        netip.Addr // zero: any free address
	Name, DeviceOwner, DeviceID    string
}

// RefusedError is a refusal.
type RefusedError struct {
	Status        int
	Type, Message string // of the NeutronError
}

func (e *RefusedError) Error() string { return e.Type + ": " + e.Message }

func refuse(status int, kind, format string, args ...any) *RefusedError {
	return &RefusedError{status, kind, fmt.Sprintf(format, args...)}
}

// Provider is the name of the only provider.
const Provider = "haproxy"

// Service is a simulated LBaaS v2. Its methods are safe for concurrent use.
type Service struct {
	o    Options
	mu   sync.Mutex
	rows map[string]*row
}

// New returns a Service without load balancers.
func New(o Options) *Service {
	if o.Quota == 0 {
		o.Quota = 10
	}
	return &Service{o: o, rows: map[string]*row{}}
}

// Serves reports whether a path, as Neutron sees it, belongs to the service.
func Serves(path string) bool {
	return strings.HasPrefix(path, "/v2.0/lbaas/") || strings.HasPrefix(path, "/v2.0/service-providers")
}

// call is one request in progress. The service's lock is held.
type call struct {
	*Service
	who   keystone.Caller
	r     *http.Request
	body  []byte
	later []change
}

// change is the provider's work after the answer has been sent.
type change struct {
	delay time.Duration
	end   func() // runs with the lock held
}

// Handle answers a request by who. The token has already been checked.
func (s *Service) Handle(w http.ResponseWriter, r *http.Request, who keystone.Caller) {
	c := &call{Service: s, who: who, r: r}
	c.body, _ = io.ReadAll(r.Body)
	status, text := c.locked()
	s.finish(c.later, func(ch change) bool { return ch.delay <= 0 })
	defer s.finish(c.later, func(ch change) bool { return ch.delay > 0 })
	if text != nil {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func (s *Service) finish(changes []change, due func(change) bool) {
	for _, ch := range changes {
		if due(ch) {
			s.o.After(ch.delay, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				ch.end()
			})
		}
	}
}

func (c *call) locked() (int, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status, body, bad := c.serve()
	if bad != nil {
		status, body = bad.Status, object{"NeutronError": object{"type": bad.Type, "message": bad.Message, "detail": ""}}
	}
	if body == nil {
		return status, nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // cannot happen: rows hold only what was decoded from JSON
	}
	return status, text
}

var errNowhere = refuse(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")

// serve dispatches a request by its path.
func (c *call) serve() (int, object, *RefusedError) {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(c.r.URL.Path, "/v2.0"), "/"), "/")
	if parts[0] == "service-providers" {
		return http.StatusOK, object{"service_providers": []object{{"service_type": "LOADBALANCERV2", "name": Provider, "default": true}}}, nil
	}
	parts = parts[1:]
	kind, above := parts[0], ""
	if kind == "pools" && len(parts) > 2 && parts[2] == "members" {
		if _, bad := c.find("pools", parts[1]); bad != nil {
			return 0, nil, bad
		}
		above, kind, parts = parts[1], "members", parts[2:]
	}
	if attributes[kind] == nil || len(parts) > 3 {
		return 0, nil, errNowhere
	}
	switch {
	case len(parts) == 1:
		return c.collection(kind, above)
	case len(parts) == 2:
		return c.one(kind, parts[1])
	case kind == "loadbalancers" && parts[2] == "statuses":
		return c.statuses(parts[1])
	}
	return 0, nil, errNowhere
}

var errNotAllowed = refuse(http.StatusMethodNotAllowed, "HTTPMethodNotAllowed", "The method is not allowed for this resource.")

// collection answers for a kind. above is the pool of the members.
func (c *call) collection(kind, above string) (int, object, *RefusedError) {
	switch c.r.Method {
	case http.MethodGet:
		return c.list(kind, above)
	case http.MethodPost:
		return c.create(kind, above)
	}
	return 0, nil, errNotAllowed
}

// one answers for a single object.
func (c *call) one(kind, id string) (int, object, *RefusedError) {
	row, bad := c.find(kind, id)
	if bad != nil {
		return 0, nil, bad
	}
	switch c.r.Method {
	case http.MethodGet:
		return http.StatusOK, object{singular(kind): c.view(row)}, nil
	case http.MethodPut:
		return c.update(row)
	case http.MethodDelete:
		return c.remove(row)
	}
	return 0, nil, errNotAllowed
}

func singular(kind string) string { return strings.TrimSuffix(kind, "s") }

// find returns an object that the caller may see.
func (c *call) find(kind, id string) (*row, *RefusedError) {
	r := c.rows[id]
	if r == nil || r.kind != kind || !c.sees(r) {
		return nil, refuse(http.StatusNotFound, "EntityNotFound", "%s %s could not be found", singular(kind), id)
	}
	return r, nil
}

func (c *call) sees(r *row) bool { return c.who.Admin() || r.shown["tenant_id"] == c.who.ProjectID }

// list answers with all objects of a kind that the caller may see, ordered by ID, page by page.
// It filters them by their attributes and by load balancer.
func (c *call) list(kind, above string) (int, object, *RefusedError) {
	q := c.r.URL.Query()
	var found []*row
	for _, r := range c.rows {
		if r.kind == kind && c.sees(r) && (above == "" || r.above == above) && c.matches(r, q) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *row) int { return strings.Compare(a.id, b.id) })
	if marker := q.Get("marker"); marker != "" {
		if _, bad := c.find(kind, marker); bad != nil {
			return 0, nil, bad
		}
		found = slices.DeleteFunc(found, func(r *row) bool { return r.id <= marker })
	}
	out, links := []object{}, []object{}
	limit := len(found)
	if _, err := fmt.Sscan(q.Get("limit"), &limit); err == nil && limit > 0 && limit <= len(found) {
		links = append(links, object{"rel": "next", "href": "?marker=" + found[limit-1].id})
		found = found[:limit]
	}
	for _, r := range found {
		out = append(out, c.view(r))
	}
	return http.StatusOK, object{kind: out, kind + "_links": links}, nil
}

func (c *call) matches(r *row, q map[string][]string) bool {
	for name, values := range q {
		switch name {
		case "limit", "marker", "sort_key", "sort_dir", "page_reverse", "fields":
			continue
		case "loadbalancer_id":
			if !slices.Contains(values, r.balancer) {
				return false
			}
		default: // unknown fields are ignored
			if v, has := r.shown[name]; has && !slices.Contains(values, fmt.Sprint(v)) {
				return false
			}
		}
	}
	return true
}
