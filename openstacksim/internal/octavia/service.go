// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// Options are the settings of a Service. URL, Networks, NewID, Now and After are required.
type Options struct {
	URL      string // public prefix of its URLs, for links
	Networks Networks
	NewID    func() string // returns UUIDs
	Now      func() time.Time
	// After runs f later, in a goroutine of its own. If d is not positive, it runs f at once.
	After func(d time.Duration, f func())
	// Delay returns how long the provider works on a change (create, update, delete) of an object
	// (loadbalancer, listener, pool, member, healthmonitor, l7policy, l7rule). outcome is how the
	// change ends: "" is success, "ERROR" is failure, and "STUCK" never ends. A batch of members
	// is one update of a member, with the pool's ID. A failover is an update. Delay is called in
	// the order of the requests. If it is nil, changes succeed at once.
	Delay func(kind, id, action string) (d time.Duration, outcome string)
	// Amphora enables the provider amphora. ovn is always enabled, and is the default. In the
	// test bed amphora is disabled.
	Amphora bool
	Later   bool // Octavia is 16.0.0 with ovn-octavia-provider 8.0.0 (2025.1), not 11.0.0 with 3.0.0 (Zed)
	// Secret reports whether a reference to a secret can be read. If it is nil, the cloud has no
	// Barbican.
	Secret func(ref string) bool
}

// Networks is the part of Neutron that the service uses. The service holds its lock during the
// calls, so they must not call back. Resources that who does not see do not exist for the
// service.
type Networks interface {
	// Subnet describes a subnet.
	Subnet(who keystone.Caller, id string) (networkID string, cidr netip.Prefix, ok bool)
	// NetworkSubnets lists a network's subnets by ID. It returns nil if the network does not
	// exist.
	NetworkSubnets(who keystone.Caller, networkID string) []string
	// MakePort makes the port of a VIP. The error's text is Neutron's message.
	MakePort(VIPPort) (id string, address netip.Addr, subnetID string, err error)
	// Port describes a port.
	Port(who keystone.Caller, id string) (Port, bool)
	// RemovePort removes a port. A missing port is no error.
	RemovePort(id string) error
}

// octavia is the service's own user, who sees everything. The subnets, networks and ports that a
// request names are read as its caller instead, because allow_invisible_resource_usage is off:
// octavia 11.0.0, network/drivers/neutron/base.py.
var octavia = keystone.Caller{Roles: []string{"admin"}}

// RefusedError is a refusal of Neutron's. It prints Neutron's words alone, for Octavia hands them on.
type RefusedError struct {
	Status  int
	Message string
}

func (e *RefusedError) Error() string { return e.Message }

// VIPPort is a port to make.
type VIPPort struct {
	ProjectID, NetworkID string
	SubnetID             string     // of the address
	Address              netip.Addr // zero: any free address
	Name                 string
	DeviceOwner          string
	DeviceID             string
	Down                 bool // admin_state_up is false
}

// Port is a port that a user gives for a VIP.
type Port struct {
	NetworkID string
	DeviceID  string
	Addresses []PortAddress
}

// PortAddress is one address of a port.
type PortAddress struct {
	SubnetID string
	Address  netip.Addr
}

// Service is a simulated Octavia. Its methods are safe for concurrent use.
type Service struct {
	o   Options
	api schema
	mu  sync.Mutex
	rows
}

// New returns a Service without load balancers.
func New(o Options) *Service {
	if o.Delay == nil {
		o.Delay = func(string, string, string) (time.Duration, string) { return 0, "" }
	}
	s := &Service{o: o, api: ofZed(), rows: newRows()}
	if o.Later {
		s.api = of2025()
	}
	return s
}

// call is one request in progress. The service's lock is held.
type call struct {
	*Service
	who   keystone.Caller
	r     *http.Request
	body  []byte
	later []change // changes begun by this request, in order
	page  *page    // of a GET
	death Death    // how the process dies in this request; empty: it does not
}

// answer is a successful answer. A nil body means no body.
type answer struct {
	status int
	body   any
}

// Handle answers a request by who. Its path is as Octavia's process sees it: /,
// /v2/lbaas/loadbalancers. The token has already been checked.
func (s *Service) Handle(w http.ResponseWriter, r *http.Request, who keystone.Caller) {
	if s.o.Later { // octavia 16.0.0 knows no other form: api/common/hooks.py, ContentTypeHook
		r = r.Clone(r.Context())
		r.Header.Set("Accept", "application/json")
	}
	c := &call{Service: s, who: who, r: r, death: deathOf(r.Context())}
	if c.death == RolledBack && !c.leavesTrace() {
		return
	}
	c.body, _ = io.ReadAll(r.Body)
	out, text, bad := c.locked()
	// A client may have the answer before Handle returns. Changes that take no time must have
	// ended by then. Other changes begin only after the answer has been sent.
	s.finish(c.later, func(ch change) bool { return ch.delay <= 0 })
	defer s.finish(c.later, func(ch change) bool { return ch.delay > 0 })
	if bad != nil {
		writeFault(w, r, bad)
	} else {
		write(w, out.status, text, "application/json")
	}
}

// finish ends each of the due changes after its delay, in their order.
func (s *Service) finish(changes []change, due func(change) bool) {
	for _, change := range changes {
		if !due(change) {
			continue
		}
		s.o.After(change.delay, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			change.end()
		})
	}
}

// locked serves with the lock held, and releases it even after a panic. It encodes the body under
// the lock, because the body points to rows.
func (c *call) locked() (out answer, text []byte, bad *fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if out, bad = c.serve(); bad == nil {
		text = encode(out.body)
	}
	return out, text, bad
}

func write(w http.ResponseWriter, status int, text []byte, contentType string) {
	if text != nil {
		w.Header().Set("Content-Type", contentType)
	}
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func writeFault(w http.ResponseWriter, r *http.Request, f *fault) {
	if f.allow != "" {
		w.Header().Set("Allow", f.allow)
	}
	text, contentType := f.body(r)
	write(w, f.status, text, contentType)
}
