// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package sdn is the seam between Kuryr and a network backend: roles, Kuryr's names for the
// backend's resources, their owners, and the few errors that decide a reconciler's next action. It
// knows no backend. Each backend has its own package and proves itself by the contract in sdntest.
//
// Rules for every backend, which sdntest checks:
//   - A resource carries the cluster's mark and its owner from the creating call on. Others can
//     write a mark, too: lists show the project of each resource, so that a caller can tell.
//   - A backend never changes or deletes a resource without this cluster's mark. It
//     returns ErrNotFound for it, and omits it from lists.
//   - Deleting a missing resource succeeds.
//   - All methods are safe for concurrent use and bounded in time, whatever the
//     deadline of ctx.
package sdn

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Backend is the roles that pods need, and Adoption. Services need LoadBalancers,
// FloatingIPs, SecurityGroups and Subnets besides. A reconciler takes the role it
// needs, not this.
type Backend interface {
	Ports
	Visibility
	Capacity
	Details
	Hosts
	Adoption
}

// Ports makes and keeps ports.
type Ports interface {
	// CreatePorts makes n ports for owner, in as few requests as possible. It may succeed in part:
	// it then returns the ports that were made and the error that stopped it; the caller keeps
	// both. A port that cannot be bound to its host is deleted before the call ends: ErrUnbound. If
	// the answer is lost (ErrUnavailable), unknown ports may exist; they carry the owner, so
	// ListPorts shows them. A missing subnet, network, security group or trunk is ErrInvalid. A
	// port's addresses come from the request's subnets, in their order (see Port.Arrange).
	CreatePorts(ctx context.Context, owner Owner, request PortRequest, n int) ([]Port, error)
	// Port returns a port of this cluster; ErrNotFound if there is none. The VIF's type may be the
	// backend's own even if the request asked for another. The port has all its addresses, in the
	// backend's order: a caller that knows the subnets arranges them. A port made for a parent
	// without VIF.ParentPortID is unfinished, because its creation was interrupted. It cannot be
	// used.
	Port(ctx context.Context, id string) (Port, error)
	// ListPorts returns all ports of this cluster, in no order.
	ListPorts(ctx context.Context) ([]PortSummary, error)
	// States returns, by ID, the backend's state of those of these ports that belong to this
	// cluster. It requests no other ports.
	States(ctx context.Context, ids []string) (map[string]PortState, error)
	// UpdatePort changes the fields of u and nothing else. ErrNotFound if the port is gone,
	// ErrInvalid if a security group is.
	UpdatePort(ctx context.Context, id string, u PortUpdate) error
	// DeletePort removes a port of this cluster, with its place in a trunk.
	// It succeeds when there is none.
	DeletePort(ctx context.Context, id string) error
	// DeleteUnchangedPort is DeletePort for a port that was listed with this revision: it returns
	// ErrConflict if the port has changed since. Revision 0 is unknown, and not compared; nor is that of
	// a subport, which changes when it is taken off its trunk. There is no revision of a port that was
	// just made: Neutron goes on to change it, as it binds it, after its answer (seen with Zed).
	DeleteUnchangedPort(ctx context.Context, id string, revision int) error
}

// Visibility distinguishes deleted ports from invisible ones. A cloud may answer both alike: a
// credential that has lost a role sees no ports at all.
type Visibility interface {
	// Sees returns nil if the credential can see the ports of a project in a network: then a port
	// that is not shown is deleted. Otherwise it returns ErrForbidden. It ignores an empty ID.
	Sees(ctx context.Context, projectID, networkID string) error
	// OwnProject returns the project of what is made without naming one. Empty: the cloud does not
	// tell.
	OwnProject(ctx context.Context) (string, error)
}

// Capacity reports the free room. It is called seldom: after a request was refused for lack of
// room, and before a refill.
type Capacity interface {
	// Room returns usage and limit of the project's ports and of each subnet's addresses. It omits
	// values that the backend does not report or the credential may not see; that is no error.
	Room(ctx context.Context, projectID string, subnetIDs []string) (Room, error)
}

// Room is the answer of Capacity. It is approximate: usage may include addresses that ports do not
// get, such as a router's, so a subnet may look full while a few addresses are left.
type Room struct {
	Ports   *Usage           // nil: not known
	Subnets map[string]Usage // by subnet ID; one that is not known has no entry
}

// Usage is how much there is of something.
type Usage struct {
	Used  int
	Limit int // negative: there is none
}

// Left returns how much is left, and whether that is bounded at all.
func (u Usage) Left() (n int, bounded bool) {
	if u.Limit < 0 {
		return 0, false
	}
	return max(0, u.Limit-u.Used), true
}

// Details reads the properties that ports take over from their subnets at creation. It is called
// seldom: an existing port does not follow a change of its subnet.
type Details interface {
	// Details returns what a new port gets from a subnet and its network: the MTU, the subnet's
	// routes, and an address without its IP. It is as old as the data that CreatePorts uses.
	// ErrInvalid if there is no such subnet.
	Details(ctx context.Context, subnetID string) (v1.VIF, error)
}

// Hosts knows the machines that nodes are.
type Hosts interface {
	// ParentPort returns the ID of a machine's port. ErrNotFound if there is none. ErrInvalid if
	// there are several: the caller must name subnets. A port of another project or another server
	// does not count.
	ParentPort(ctx context.Context, m Machine) (string, error)
}

// Machine identifies the port of a node that is a virtual machine. The node itself reports its
// address. So if more fields are set, all of them must match.
type Machine struct {
	Address   string
	SubnetIDs []string // one of them has Address; empty: any
	ProjectID string   // of the port; empty: the credential's
	ServerID  string   // that the port is plugged into; empty: not known
	Trunk     bool     // the port has to be the parent of one
}

// ParentPortOfAny is ParentPort for a machine that has several addresses, as one in a network
// of both IP families: its port is found by the first of them that a port has.
func ParentPortOfAny(ctx context.Context, h Hosts, m Machine, addresses []string) (id string, err error) {
	err = fmt.Errorf("there is no address: %w", ErrNotFound)
	for _, m.Address = range addresses {
		if id, err = h.ParentPort(ctx, m); !errors.Is(err, ErrNotFound) {
			break
		}
	}
	return id, err
}

// Adoption takes over free ports that an earlier Kuryr has left, which kept no
// objects and marked nothing: they are known by their device owner and name.
type Adoption interface {
	// Strays returns free ports of a project without any cluster's mark; an empty project is the
	// credential's. Subports come with their place in the trunk. A port that is neither bound to a
	// host nor on a trunk has no Host and no VIF.ParentPortID.
	Strays(ctx context.Context, projectID string) ([]Port, error)
	// Claim gives an unmarked port this cluster's mark, an owner, and the name of a free port.
	// ErrConflict if it has another mark meanwhile, or is no longer free; ErrNotFound if it is
	// gone. Repeating it for the same owner changes nothing.
	Claim(ctx context.Context, id string, owner Owner) error
	// DeleteStray deletes one. It succeeds when there is none, and is
	// ErrConflict as Claim is.
	DeleteStray(ctx context.Context, id string) error
}

// Owner is the Kubernetes object that a resource was made for, as kind and name. The zero Owner
// means unknown.
type Owner struct {
	Kind      string // lower case and singular, as in kuryrportpool
	Namespace string // empty for a cluster-scoped object
	Name      string
}

// String is the owner's form in tags and descriptions: kind/name or
// kind/namespace/name.
func (o Owner) String() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// ParseOwner is the inverse of String.
func ParseOwner(s string) (Owner, error) {
	parts := strings.Split(s, "/")
	for _, p := range parts {
		if p == "" {
			return Owner{}, fmt.Errorf("parsing owner %q: an empty part", s)
		}
	}
	switch len(parts) {
	case 2:
		return Owner{Kind: parts[0], Name: parts[1]}, nil
	case 3:
		return Owner{Kind: parts[0], Namespace: parts[1], Name: parts[2]}, nil
	}
	return Owner{}, fmt.Errorf("parsing owner %q: want kind/name or kind/namespace/name", s)
}

// FreePortName is the name of a port that no pod has.
const FreePortName = "available-port"

// PortRequest describes the common properties of the ports to make.
type PortRequest struct {
	ProjectID string   // empty: the credential's own
	NetworkID string   // empty: the network of the subnets
	SubnetIDs []string // one address of each, in this order
	// MoreSubnetIDs are, by one of SubnetIDs, others of the network to take the address of
	// where that has none left: of the first that has. If none has, that is ErrAddresses.
	MoreSubnetIDs    map[string][]string
	SecurityGroupIDs []string // empty: none, and so no traffic, not the backend's default group
	Host             string   // node that the ports are bound to
	// ParentPortID is the port of the virtual machine that carries the ports; then
	// Host is not bound. With VIFType macvlan that port lets theirs pass, and if it
	// can take no more that is ErrQuota; else they are subports of its trunk.
	ParentPortID string
	VIFType      string // empty: as the backend says
}

// Port is a port as the backend has it.
type Port struct {
	ID               string
	Owner            Owner
	ProjectID        string
	NetworkID        string
	SecurityGroupIDs []string // sorted
	Host             string
	Name             string
	DeviceID         string
	VIF              v1.VIF
	Active           bool // the backend passes its traffic
}

// Arrange leaves p the addresses of these subnets, or of one of more in the place of one
// (see PortRequest), in their order, and no route by way of another's: a backend may have
// given more, as Neutron does of each IPv6 subnet of the network where addresses are
// automatic. A port with none of them stays as it is. Nothing is changed that p shares
// with a copy.
func (p *Port) Arrange(subnetIDs []string, more map[string][]string) {
	var kept, rest []v1.Address
	for _, id := range subnetIDs {
		for _, one := range append([]string{id}, more[id]...) {
			before := len(kept)
			for _, a := range p.VIF.Addresses {
				if a.SubnetID == one {
					kept = append(kept, a)
				}
			}
			if len(kept) > before {
				break
			}
		}
	}
	if len(kept) == 0 {
		return
	}
	for _, a := range p.VIF.Addresses {
		if !slices.Contains(kept, a) {
			rest = append(rest, a)
		}
	}
	p.VIF.Addresses = kept
	p.VIF.Routes = slices.DeleteFunc(slices.Clone(p.VIF.Routes), func(r v1.Route) bool {
		return reaches(rest, r.Gateway) && !reaches(kept, r.Gateway)
	})
}

// reaches reports whether a gateway is in the subnet of one of these addresses. An address whose
// subnet is unknown has no routes, either.
func reaches(from []v1.Address, gateway string) bool {
	ip, err := netip.ParseAddr(gateway)
	return err == nil && slices.ContainsFunc(from, func(a v1.Address) bool {
		own, err := netip.ParseAddr(a.IP)
		return err == nil && a.PrefixLength > 0 && netip.PrefixFrom(own, int(a.PrefixLength)).Contains(ip)
	})
}

// PortSummary is the little that an inventory needs.
type PortSummary struct {
	ID        string
	Name      string
	Owner     Owner
	ProjectID string
	Host      string    // node that it is bound to; empty if none, or if the credential may not see it
	Created   time.Time // zero if the backend does not tell
	Active    bool
	Revision  int // see DeleteUnchangedPort; 0: unknown

	SecurityGroupIDs []string // in any order
}

// PortState is what may change of a port without a word of ours.
type PortState struct {
	Active           bool     // the backend passes its traffic
	SecurityGroupIDs []string // sorted
}

// PortUpdate is a change of a port; what is nil stays.
type PortUpdate struct {
	SecurityGroupIDs *[]string // empty: none
	Name             *string
	DeviceID         *string
}
