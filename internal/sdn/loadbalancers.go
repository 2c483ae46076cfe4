// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"context"
	"errors"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// ErrUnsupported: the provider of a load balancer cannot do what was asked, or the
// backend makes ports that Kuryr cannot plug. Nothing was changed; the message names what.
var ErrUnsupported = errors.New("not supported")

// LoadBalancers makes and keeps load balancers. A change makes a load balancer
// busy for a while: a further change of the same one is then a PendingError,
// which says nothing about the others. Methods do not wait for it to be over. One
// in ERROR may take no change either, which is a PendingError too: only its
// Provisioning tells. What the provider refuses is ErrUnsupported; what a request
// refers to and is not there is ErrInvalid. Calls may be repeated after a
// PendingError, and go on where they were stopped.
//
// A cloud without load balancers answers all of it with ErrNoService, which costs
// no request and is asked again after a while.
type LoadBalancers interface {
	// Features returns what a provider can do; the empty name is the cloud's
	// default. ErrInvalid if there is no such provider.
	Features(ctx context.Context, provider string) (Features, error)
	// CreateLoadBalancer makes a load balancer with all that is below it, if the
	// provider takes that in one request, and else a bare one: the answer tells
	// what was made. It is bare, too, if nobody knows yet what provider it will get:
	// see Features.Unsure. ErrConflict if the VIP is taken.
	CreateLoadBalancer(ctx context.Context, owner Owner, lb LoadBalancer) (LoadBalancer, error)
	// LoadBalancer returns one of this cluster with all that is below it.
	LoadBalancer(ctx context.Context, id string) (LoadBalancer, error)
	// ListLoadBalancers returns all of this cluster, in no order, without what is
	// below them: one request for any number, or two if some that were known are not
	// shown by their mark.
	ListLoadBalancers(ctx context.Context) ([]LoadBalancerSummary, error)
	// DeleteLoadBalancer removes one with all that is below it, whatever state it
	// is in. It succeeds when there is none, and is a PendingError while it goes, or
	// is busy with something else.
	DeleteLoadBalancer(ctx context.Context, id string) error
	// MarkLoadBalancer writes down again whose one of this cluster is, where that is
	// missing: see LoadBalancer.Unmarked. What others have written beside it stays.
	MarkLoadBalancer(ctx context.Context, id string, owner Owner) error
	// FailOver has the provider mend one in ERROR. ErrUnsupported where it cannot:
	// then it is to be made anew.
	FailOver(ctx context.Context, id string) error

	// CreateListener makes a listener with its pool and members, in as few
	// requests as the provider takes. It may succeed in part: if its ID is set
	// there is a listener, with as much below it as the answer has, and the error
	// says why there is no more. ErrConflict if one has that protocol and port.
	CreateListener(ctx context.Context, loadBalancerID string, l Listener) (Listener, error)
	// UpdateListener brings the listener of that ID in line with l, but for its
	// pool; protocol and port are fixed.
	UpdateListener(ctx context.Context, id string, l Listener) error
	// DeleteListener removes a listener with its pool. It succeeds when there is none.
	// Where each change makes the load balancer busy it is a PendingError with the pool
	// gone: nothing is wrong then, and it is to be called again.
	DeleteListener(ctx context.Context, loadBalancerID, id string) error
	// CreatePool makes the pool of a listener that has none, with its members. It
	// may succeed in part, as CreateListener does. ErrConflict if it has one.
	CreatePool(ctx context.Context, listenerID string, p Pool) (Pool, error)
	// UpdatePool brings name, algorithm (an empty one stays as it is), affinity and
	// monitor of a pool in line with p; its protocol is fixed. Members stay.
	UpdatePool(ctx context.Context, id string, p Pool) error
	// ChangeMembers adds, then removes members of a pool, known by address and port:
	// what is already so is no error, and one to add that is there gets its name.
	// Nobody may be in both lists: a member that changes its subnet has to go first,
	// by a call of its own. Of very many it may do a part, and be a PendingError.
	ChangeMembers(ctx context.Context, poolID string, add []Member, remove []Member) error
}

// FloatingIPs makes and keeps public addresses. A cloud without routers has none, and
// answers with ErrNoService.
type FloatingIPs interface {
	// CreateFloatingIP makes one for owner, for a port if the request names one.
	// With an Address, ErrConflict if it exists already.
	CreateFloatingIP(ctx context.Context, owner Owner, r FloatingIPRequest) (FloatingIP, error)
	// ListFloatingIPs returns those of the cluster, and those of the project that
	// bear no cluster's mark.
	ListFloatingIPs(ctx context.Context, projectID string) ([]FloatingIP, error)
	// Associate gives a port the floating IP. ErrConflict if another port has it, or
	// the port another; ErrInvalid without a port.
	Associate(ctx context.Context, id, portID string) error
	// Dissociate takes a floating IP from a port. It succeeds when there is none, or
	// the port does not have it: whoever has it by then keeps it.
	Dissociate(ctx context.Context, id, portID string) error
	// DeleteFloatingIP removes one of this cluster that no port has, or this one.
	// ErrConflict if another port has it, which goes on with it. It succeeds when there
	// is none.
	DeleteFloatingIP(ctx context.Context, id, portID string) error
	// DisownFloatingIP takes this cluster's mark off one, which then belongs to the
	// project alone: it outlives who it was made for. It succeeds when there is none
	// or it bears no mark of this cluster.
	DisownFloatingIP(ctx context.Context, id string) error
}

// Subnets tells what subnets there are.
type Subnets interface {
	// Subnet returns a subnet. ErrNotFound if there is none, or none to be seen.
	Subnet(ctx context.Context, id string) (Subnet, error)
}

// Subnet is a subnet as far as load balancers need it.
type Subnet struct {
	ID        string
	NetworkID string
	CIDR      string
}

// Features is what a provider can do.
type Features struct {
	Provider string // its name; of the default one, too
	// Unsure: Provider is a guess, as the cloud does not tell what its default is. It
	// is told by the first load balancer that is made without naming one, which is a
	// bare one therefore; until then these features may be another provider's.
	Unsure    bool
	Protocols []string // of listeners, upper case
	// Algorithm is how a pool balances that says nothing, in Octavia's words, and
	// Algorithms is what it may say; see Balances.
	Algorithm  string
	Algorithms []string
	Affinity   bool // by the client's address
	// AffinityUnsure: it is taken and stored, and may have no effect, as early versions
	// of this provider do nothing with it, and nobody is told which one it is.
	AffinityUnsure     bool
	AffinityTimeout    bool // for how long can be said, too, of some protocols: see TimesAffinity
	SourceRanges       bool // of listeners; else the members' security groups have to do it
	Timeouts           bool // of listeners have an effect; else they may not even be kept
	ConnectionLimit    bool // likewise
	Monitors           []string
	ProxyProtocol      bool
	KeepsClientAddress bool // members see the client's address
	ManyProtocols      bool // listeners on one port that differ in their protocol; else ErrConflict
	FailOver           bool
	// FarMembers: a member may be in a subnet other than the VIP's if it names it.
	FarMembers bool
}

// LoadBalancer is a load balancer, wanted or as the backend has it. IDs and
// statuses are empty in one that is wanted.
type LoadBalancer struct {
	ID               string
	Owner            Owner
	Name             string
	ProjectID        string
	Provider         string
	FlavorID         string
	AvailabilityZone string
	VIP              v1.VIPAddress
	VIPPortID        string
	// Unmarked: a part of what says whose it is is missing, as somebody has replaced
	// its tags. Another process may not find it by a list then.
	Unmarked     bool
	Provisioning Provisioning
	Operating    string // Octavia's word
	Listeners    []Listener
}

// Provisioning is how far a load balancer, or a part of it, is.
type Provisioning string

// The states that decide what to do next; a backend may have others, which are
// to be taken for busy ones.
const (
	ProvisioningActive  Provisioning = "ACTIVE"
	ProvisioningError   Provisioning = "ERROR"
	ProvisioningDeleted Provisioning = "DELETED"
)

// Listener is a port of a load balancer.
type Listener struct {
	ID                   string
	Name                 string
	Protocol             string // TCP, UDP, SCTP
	Port                 int32
	SourceRanges         []string // sorted; empty: anywhere
	ConnectionLimit      *int32   // nil: the backend's default, as all that follow
	TimeoutClientData    *int64   // milliseconds, as all that follow
	TimeoutMemberData    *int64
	TimeoutMemberConnect *int64
	TimeoutTCPInspect    *int64
	Provisioning         Provisioning
	Operating            string
	Pool                 *Pool // nil: it has none
}

// Pool is what is behind a listener.
type Pool struct {
	ID              string
	Name            string
	Protocol        string // TCP, UDP, SCTP, PROXY, PROXYV2
	Algorithm       string
	AffinitySeconds *int32 // nil: none; 0: as long as the backend likes, which is all some can, and all there is with TCP
	Monitor         *v1.MonitorSpec
	MonitorBroken   bool // of one that is read: it is in ERROR, and checks nothing
	Provisioning    Provisioning
	Operating       string
	Members         []Member
}

// Member is an endpoint in a pool.
type Member struct {
	ID           string
	Name         string
	IP           string
	Port         int32
	SubnetID     string
	Provisioning Provisioning
	Operating    string
}

// LoadBalancerSummary is the little that waiting and an inventory need.
type LoadBalancerSummary struct {
	ID           string
	Owner        Owner
	VIPPortID    string
	Provisioning Provisioning
}

// FloatingIPRequest says what floating IP to make.
type FloatingIPRequest struct {
	ProjectID string // empty: the credential's own
	NetworkID string
	SubnetID  string // empty: any
	Address   string // empty: any
	PortID    string // empty: nobody's yet
}

// FloatingIP is a public address.
type FloatingIP struct {
	ID        string
	Owner     Owner // zero: not this cluster's
	NetworkID string
	Address   string
	PortID    string // empty: nobody's
}
