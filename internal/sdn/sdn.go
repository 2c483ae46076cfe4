// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package sdn is the seam between Kuryr and a network backend: roles, what the
// backend's resources are called here, who they exist for, and the few errors
// that decide what a reconciler does next. It knows no backend; each lives in a
// package of its own and proves itself by the contract in sdntest.
//
// Rules for every backend, which sdntest checks:
//   - What it makes carries the cluster's mark and the owner from the making call on.
//   - What does not carry this cluster's mark it neither changes nor deletes,
//     and says ErrNotFound or leaves it out of lists.
//   - Deleting what is gone succeeds.
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
	// CreatePorts makes n ports for owner in as few requests as the backend
	// knows. It may succeed in part: it then returns the ports made and the
	// error that stopped it, and the caller keeps both. A port that could not
	// be bound to its host does not outlive the call: ErrUnbound. If the answer
	// is lost (ErrUnavailable) ports may exist that nobody was told of; they
	// carry the owner, so ListPorts shows them. A subnet, network, security group
	// or trunk that does not exist is ErrInvalid. A port's addresses are those of the
	// request's subnets, in their order (see Port.Arrange).
	CreatePorts(ctx context.Context, owner Owner, request PortRequest, n int) ([]Port, error)
	// Port returns a port of this cluster, ErrNotFound if there is none. The
	// VIF's type may be the backend's own even if the request asked for another, and
	// its addresses are all that it has, in the backend's order: who knows the subnets
	// arranges them.
	// One that was made for a parent and has no VIF.ParentPortID was not finished,
	// as its making was cut short: it is of no use.
	Port(ctx context.Context, id string) (Port, error)
	// ListPorts returns all ports of this cluster, in no order.
	ListPorts(ctx context.Context) ([]PortSummary, error)
	// States returns what the backend has of those of these ports that are this
	// cluster's, by ID. It asks for no other ports.
	States(ctx context.Context, ids []string) (map[string]PortState, error)
	// UpdatePort changes what u says and nothing else. ErrNotFound if the
	// port is gone, ErrInvalid if a security group is.
	UpdatePort(ctx context.Context, id string, u PortUpdate) error
	// DeletePort removes a port of this cluster, with its place in a trunk.
	// It succeeds when there is none.
	DeletePort(ctx context.Context, id string) error
}

// Visibility tells what is gone from what is not shown: a cloud may answer both alike,
// so that a credential that has lost a role is told of no port at all.
type Visibility interface {
	// Sees returns nil if the credential is shown the ports that a project has in a
	// network: one that is not shown is gone. It returns ErrForbidden if not. An empty
	// ID is not asked about.
	Sees(ctx context.Context, projectID, networkID string) error
}

// Capacity tells how much room there is. It is asked seldom: when a request was
// refused for want of it, and before ports are made that nobody waits for.
type Capacity interface {
	// Room returns what is used, and what there is at most, of the project's
	// ports and of the addresses of each subnet. What the backend does not tell,
	// or the credential may not see, is left out; that is no error.
	Room(ctx context.Context, projectID string, subnetIDs []string) (Room, error)
}

// Room is the answer of Capacity. It is near the truth, not always it: what is
// used may count addresses that are none of those to be given, as a router's, so a
// subnet may look full while a few are left.
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

// Details tells what ports take over from their subnets as they are made. It is asked
// seldom: a port that was made before somebody changed them does not change with them.
type Details interface {
	// Details returns what a port that is made now has of a subnet and its network: the
	// MTU, the subnet's routes, and one address that says all but the IP. It is as
	// old as what CreatePorts goes by. ErrInvalid if there is no such subnet.
	Details(ctx context.Context, subnetID string) (v1.VIF, error)
}

// Hosts knows the machines that nodes are.
type Hosts interface {
	// ParentPort returns the ID of a machine's port. ErrNotFound if there is none,
	// ErrInvalid if there are several: the caller has to name subnets. A port that is
	// another project's, or another server's, does not count.
	ParentPort(ctx context.Context, m Machine) (string, error)
}

// Machine is a node that is a virtual machine, as far as its port is told by it. The node
// itself says its address: so where more is known, all of it has to be true.
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
	// Strays returns free ports of a project, of the credential's if it is empty,
	// that bear no cluster's mark. Those of a trunk come with their place in it. A
	// port that no pool can be told of (it is neither bound to a host nor on a
	// trunk) has no Host and no VIF.ParentPortID.
	Strays(ctx context.Context, projectID string) ([]Port, error)
	// Claim gives a stray this cluster's mark and an owner, and the name of a free
	// port. ErrConflict if it bears another mark meanwhile, or is free no more;
	// ErrNotFound if it is gone. To claim again for the same owner changes nothing.
	Claim(ctx context.Context, id string, owner Owner) error
	// DeleteStray deletes one. It succeeds when there is none, and is
	// ErrConflict as Claim is.
	DeleteStray(ctx context.Context, id string) error
}

// Owner is who a resource exists for: the Kubernetes object in whose name it
// was made, as kind and name. The zero Owner means that none is known.
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

// PortRequest says what the ports to make have in common.
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

// reaches reports whether the subnet of one of these addresses has the gateway. Of one
// whose subnet's details are not known there are no routes either.
func reaches(from []v1.Address, gateway string) bool {
	ip, err := netip.ParseAddr(gateway)
	return err == nil && slices.ContainsFunc(from, func(a v1.Address) bool {
		own, err := netip.ParseAddr(a.IP)
		return err == nil && a.PrefixLength > 0 && netip.PrefixFrom(own, int(a.PrefixLength)).Contains(ip)
	})
}

// PortSummary is the little that an inventory needs.
type PortSummary struct {
	ID      string
	Owner   Owner
	Created time.Time // zero if the backend does not tell
	Active  bool
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
