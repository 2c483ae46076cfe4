// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"context"
	"errors"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// ErrUnsupported: the provider of a load balancer cannot do the request, or the backend makes ports
// that Kuryr cannot plug. Nothing was changed. The message names the feature.
var ErrUnsupported = errors.New("not supported")

// LoadBalancers makes and keeps load balancers. A change makes a load balancer busy for a while; a
// further change of it then returns a PendingError. Other load balancers are not affected. Methods
// do not wait for the end of a change. What is below a load balancer is named by its own ID and by the
// load balancer's, which has to be this cluster's. A load balancer in ERROR may also refuse changes with a
// PendingError: only its Provisioning shows ERROR. A request that the provider refuses is
// ErrUnsupported; a reference to a missing resource is ErrInvalid. A call that returned a
// PendingError may be repeated and continues where it stopped.
//
// In a cloud without load balancers all methods return ErrNoService. That costs no request; the
// backend checks again after a while.
type LoadBalancers interface {
	// Features returns what a provider can do. The empty name is the cloud's default. ErrInvalid if
	// there is no such provider. What a load balancer of the provider was seen to do, it can do,
	// even if a request for another one was refused: what serves is not deleted for that.
	Features(ctx context.Context, provider string) (Features, error)
	// CreateLoadBalancer makes a load balancer with everything below it, if the provider accepts
	// that in one request. Otherwise it makes a bare one: the answer shows what was made. It also
	// makes a bare one if the provider that it will get is unknown: see Features.Unsure.
	// ErrConflict if the VIP is in use.
	CreateLoadBalancer(ctx context.Context, owner Owner, lb LoadBalancer) (LoadBalancer, error)
	// LoadBalancer returns one of this cluster with all that is below it.
	LoadBalancer(ctx context.Context, id string) (LoadBalancer, error)
	// ListLoadBalancers returns all of this cluster, in no order, without what is
	// below them: one request for any number, or two if some that were known are not
	// shown by their mark.
	ListLoadBalancers(ctx context.Context) ([]LoadBalancerSummary, error)
	// DeleteLoadBalancer removes a load balancer with everything below it, in any state. It
	// succeeds if there is none. It returns a PendingError while the load balancer is being
	// deleted, or is busy.
	DeleteLoadBalancer(ctx context.Context, id string) error
	// FreeVIP removes what a refused CreateLoadBalancer of that project, or one without an answer,
	// has left at a VIP: it keeps the address though there is no load balancer. It succeeds when there
	// is nothing, and where the VIP is a load balancer's, another project's or anything else's. The
	// caller makes none there at the same time, or gives the ID of the port that LeftVIPs returned: then
	// no other port is removed. An empty project is the credential's.
	FreeVIP(ctx context.Context, projectID string, vip v1.VIPAddress, portID string) error
	// LeftVIPs returns what FreeVIP would remove at the addresses of a subnet, by the IDs of the ports.
	// Creations that may still be under way are left out. An empty project is the credential's.
	LeftVIPs(ctx context.Context, projectID, subnetID string) (map[string]v1.VIPAddress, error)
	// MarkLoadBalancer restores the missing mark of a load balancer of this cluster: see
	// LoadBalancer.Unmarked. It keeps tags and words of other users.
	MarkLoadBalancer(ctx context.Context, id string, owner Owner) error
	// FailOver has the provider mend one in ERROR. ErrUnsupported where it cannot:
	// then it is to be made anew.
	FailOver(ctx context.Context, id string) error

	// CreateListener makes a listener with its pool and members, in as few requests as the provider
	// accepts. It may succeed in part: if the ID of its answer is set, the listener exists, with
	// everything that the answer has, and the error says why the rest is missing. ErrConflict if a
	// listener has that protocol and port.
	CreateListener(ctx context.Context, loadBalancerID string, l Listener) (Listener, error)
	// UpdateListener brings the listener of that ID in line with l, but for its
	// pool; protocol and port are fixed.
	UpdateListener(ctx context.Context, loadBalancerID, id string, l Listener) error
	// DeleteListener removes a listener with its pool. It succeeds if there is none. If each change
	// makes the load balancer busy, it deletes the pool and returns a PendingError: that is no
	// fault, and the caller calls again.
	DeleteListener(ctx context.Context, loadBalancerID, id string) error
	// CreatePool makes the pool of a listener that has none, with its members. It
	// may succeed in part, as CreateListener does. ErrConflict if it has one. A new pool, here and in
	// what else makes pools, may lack its affinity where only UpdatePool sets that.
	CreatePool(ctx context.Context, loadBalancerID, listenerID string, p Pool) (Pool, error)
	// UpdatePool brings name, algorithm (an empty one stays as it is), affinity and
	// monitor of a pool in line with p; its protocol is fixed. Members stay.
	UpdatePool(ctx context.Context, loadBalancerID, id string, p Pool) error
	// DeletePool removes the pool of a listener; the listener stays. It succeeds when there is no
	// such pool.
	DeletePool(ctx context.Context, loadBalancerID, id string) error
	// ChangeMembers adds and then removes members of a pool. A member is identified by address and
	// port. A change that is already done is no error; an existing member in the list to add gets
	// the new name. If it is not ACTIVE, though its load balancer is, the provider is told it
	// again. No member may be in both lists: a member that changes its subnet must first be
	// removed, by another call. For a large change the method may do a part and return a
	// PendingError.
	ChangeMembers(ctx context.Context, loadBalancerID, poolID string, add, remove []Member) error
}

// FloatingIPs makes and keeps public addresses. A cloud without routers has none, and
// answers with ErrNoService.
type FloatingIPs interface {
	// CreateFloatingIP makes one for owner, for a port if the request names one.
	// With an Address, ErrConflict if it exists already.
	CreateFloatingIP(ctx context.Context, owner Owner, r FloatingIPRequest) (FloatingIP, error)
	// ListFloatingIPs returns the floating IPs of the cluster, and those of the project without any
	// cluster's mark.
	ListFloatingIPs(ctx context.Context, projectID string) ([]FloatingIP, error)
	// Associate gives a port the floating IP. ErrConflict if another port has it, or
	// the port another; ErrInvalid without a port.
	Associate(ctx context.Context, id, portID string) error
	// Dissociate removes a floating IP from a port. It succeeds if the floating IP does not exist,
	// or the port does not have it: another port that has it keeps it.
	Dissociate(ctx context.Context, id, portID string) error
	// DeleteFloatingIP removes a floating IP of this cluster that no port has, or this port.
	// ErrConflict if another port has it; that port keeps it. It succeeds if there is none.
	DeleteFloatingIP(ctx context.Context, id, portID string) error
	// DisownFloatingIP removes this cluster's mark from a floating IP. The floating IP then belongs
	// to the project only and survives its Service. It succeeds if there is none, or if it has no
	// mark of this cluster.
	DisownFloatingIP(ctx context.Context, id string) error
}

// Subnets reads subnets.
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
	// Unsure: Provider is a guess, because the cloud does not show its default. The first load
	// balancer that is made without a provider shows it; that one is made bare. Until then these
	// may be the features of another provider.
	Unsure    bool
	Protocols []string // of listeners, upper case
	// Algorithm is the default algorithm of a pool, in Octavia's words. Algorithms are the possible
	// ones; see Balances.
	Algorithm  string
	Algorithms []string
	Affinity   bool // by the client's address
	// AffinityUnsure: the cloud accepts and stores affinity, but where no timeout can be said it may have
	// no effect. OVN's provider 3.0.0 ignores it, and 8.0.0 gives OVN a timeout of "None".
	AffinityUnsure  bool
	AffinityTimeout bool // for how long can be said, too, of some protocols: see TimesAffinity
	// AffinityShared: the pools of one protocol share the affinity of their load balancer. All have it
	// once one gets it, keep it when a pool loses it, and lose it when any of them is deleted, whatever
	// the others show. OVN's provider 8.0.0 does so (helper.py, pool_update and pool_delete).
	AffinityShared bool
	// DisabledBlocks: while a listener or a pool is disabled, a change of members never ends and leaves
	// them PENDING. OVN's provider 8.0.0 looks up the pool by an ID that ends in ":D" then (helper.py,
	// _get_current_operating_statuses).
	DisabledBlocks bool
	// ChildrenLater: a load balancer is shown as ACTIVE, and accepts changes, while the provider is still
	// at work on listeners, pools and members of the request before. OVN's provider works on each
	// request in a thread of its own (8.0.0: one or two seconds a member), and a second request meets
	// the first under way.
	ChildrenLater      bool
	SourceRanges       bool // of listeners; else the members' security groups have to do it
	Timeouts           bool // of listeners have an effect; else they may not even be kept
	ConnectionLimit    bool // likewise
	Monitors           []string
	ProxyProtocol      bool
	KeepsClientAddress bool // members see the client's address
	// KeepsUDPClients: a UDP client that keeps sending from one source port stays with its member,
	// even after the member is removed.
	KeepsUDPClients bool
	ManyProtocols   bool // listeners on one port that differ in their protocol; else ErrConflict
	FailOver        bool
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
	// Unmarked: a part of the mark is missing, because another user has replaced the tags. Another
	// process may then not find the load balancer by a list.
	Unmarked     bool
	Disabled     bool // of one that is read: a person has switched it off (admin_state_up)
	Provisioning Provisioning
	Operating    string // Octavia's word
	Listeners    []Listener
}

// Provisioning is how far a load balancer, or a part of it, is.
type Provisioning string

// The states that decide the next action. A backend may have others; treat those as busy.
const (
	ProvisioningActive   Provisioning = "ACTIVE"
	ProvisioningError    Provisioning = "ERROR"
	ProvisioningDeleted  Provisioning = "DELETED"
	ProvisioningCreating Provisioning = "PENDING_CREATE" // busy, and never ACTIVE before
	ProvisioningDeleting Provisioning = "PENDING_DELETE" // busy, and its VIP's port may be gone
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
	Disabled             bool // as a LoadBalancer's
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
	Disabled        bool // as a LoadBalancer's
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
	Disabled     bool // as a LoadBalancer's, or its weight is 0
	Provisioning Provisioning
	Operating    string
}

// LoadBalancerSummary is the little that waiting and an inventory need.
type LoadBalancerSummary struct {
	ID           string
	Name         string
	Owner        Owner
	ProjectID    string
	Created      time.Time // zero if the backend does not tell
	VIPPortID    string
	Provisioning Provisioning
}

// FloatingIPRequest describes the floating IP to make.
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
	ProjectID string
	NetworkID string
	Address   string
	PortID    string // empty: nobody's
}
