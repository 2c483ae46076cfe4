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

// Options are what a Service needs. URL, Networks and the functions have to be given.
type Options struct {
	URL      string // public prefix of its URLs, for links
	Networks Networks
	NewID    func() string // UUIDs
	Now      func() time.Time
	// After runs f later, in a goroutine of its own; at once if d is not positive.
	After func(d time.Duration, f func())
	// Delay says how long the provider works at a change (create, update, delete) of
	// an object (loadbalancer, listener, pool, member, healthmonitor, l7policy, l7rule),
	// and how it ends: "" well, "ERROR", or "STUCK", never. A batch of members is one
	// update of a member, with the pool's ID; a failover is an update. It is called in
	// the order of the requests. Nil: at once, and well.
	Delay func(kind, id, action string) (d time.Duration, outcome string)
	// Amphora enables the provider amphora; ovn always is, and is the default. In the
	// test bed it is off.
	Amphora bool
	// Secret says whether a reference to a secret can be read. Nil: there is no Barbican.
	Secret func(ref string) bool
}

// Networks is what the service asks of Neutron. It is called with the service's
// lock held, so it must not call back. What who does not see is not there.
type Networks interface {
	// Subnet describes a subnet.
	Subnet(who keystone.Caller, id string) (networkID string, cidr netip.Prefix, ok bool)
	// NetworkSubnets lists a network's subnets by ID; nil if there is no such network.
	NetworkSubnets(who keystone.Caller, networkID string) []string
	// MakePort makes a port for a VIP. The error's text is what Neutron would say.
	MakePort(VIPPort) (id string, address netip.Addr, subnetID string, err error)
	// Port describes a port.
	Port(who keystone.Caller, id string) (Port, bool)
	// RemovePort removes a port. One that is gone is no error.
	RemovePort(id string) error
}

// octavia is the service's own user, which sees all. The subnets, networks and ports
// that a request names are asked for as its caller instead: octavia 11.0.0,
// network/drivers/neutron/base.py, allow_invisible_resource_usage, which is off.
var octavia = keystone.Caller{Roles: []string{"admin"}}

// VIPPort is a port to make.
type VIPPort struct {
	ProjectID, NetworkID string
	SubnetID             string     // of the address
	Address              netip.Addr // zero: any free one
	Name                 string
	DeviceOwner          string
	DeviceID             string
}

// Port is a port that a user brings for a VIP.
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

// Service is a simulated Octavia. Its methods may be called at the same time.
type Service struct {
	o  Options
	mu sync.Mutex
	rows
}

// New returns a Service without any load balancer.
func New(o Options) *Service {
	if o.Delay == nil {
		o.Delay = func(string, string, string) (time.Duration, string) { return 0, "" }
	}
	return &Service{o: o, rows: newRows()}
}

// call is one request at work; the service's lock is held.
type call struct {
	*Service
	who   keystone.Caller
	r     *http.Request
	body  []byte
	later []change // begun by this request, in order
	page  *page    // of a GET
}

// answer is a success. A nil body is none at all.
type answer struct {
	status int
	body   any
}

// Handle answers a request of who, whose path is as Octavia's process sees it:
// /, /v2/lbaas/loadbalancers. The token has been checked already.
func (s *Service) Handle(w http.ResponseWriter, r *http.Request, who keystone.Caller) {
	c := &call{Service: s, who: who, r: r}
	c.body, _ = io.ReadAll(r.Body)
	out, text, bad := c.locked()
	// A client may have the answer before Handle returns: what takes no time has to be
	// over by then. What takes some does not begin before the answer goes out.
	s.finish(c.later, func(ch change) bool { return ch.delay <= 0 })
	defer s.finish(c.later, func(ch change) bool { return ch.delay > 0 })
	if bad != nil {
		writeFault(w, r, bad)
	} else {
		write(w, out.status, text, "application/json")
	}
}

// finish ends those changes that are due when their time has come, in their order.
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

// locked serves with the lock held, and lets go of it even if that panics. The
// body is written here already, for it points to rows.
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
