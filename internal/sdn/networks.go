// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// KindNetwork is the kind of the owner of all networks and subnets.
const KindNetwork = "kuryrnetwork"

// Networks makes and keeps networks with subnets and their interfaces of routers (interfaces). A backend
// changes and deletes networks and subnets of this cluster only. A router may be anybody's: only its
// interfaces in this cluster's subnets are Kuryr's. Routers makes routers.
type Networks interface {
	// CreateNetwork makes a network. ErrProjectQuota, ErrForbidden, and ErrInvalid (FieldProject)
	// name the cause. A backend need not know whether a project exists. If the answer is lost (ErrUnavailable), the network may exist: it carries the
	// owner and the name, so ListNetworks shows it.
	CreateNetwork(ctx context.Context, owner Owner, spec NetworkSpec) (Network, error)
	// Network returns a network of this cluster with its subnets and their interfaces; ErrNotFound if
	// there is none. Subnets that somebody else has made in it are missing. It costs at most three requests, two of them at the same time.
	Network(ctx context.Context, id string) (Network, error)
	// GivenNetwork returns any network that the credential can see, with those of its subnets that
	// the IDs name, without their interfaces; ErrInvalid (FieldNetwork, FieldSubnet) if one is not there.
	// Nothing says whose it is: a caller does not change it.
	GivenNetwork(ctx context.Context, id string, subnetIDs []string) (Network, error)
	// ListNetworks returns all networks of this cluster, in no order.
	ListNetworks(ctx context.Context) ([]NetworkSummary, error)
	// InUse returns the ports in a network that keep it from its deletion, of any owner and project,
	// sorted by ID; none if there is no such network. Interfaces of routers are not among them, nor
	// the ports of DHCP and metadata, which go with the network. It costs one request for each page.
	InUse(ctx context.Context, networkID string) ([]PortUse, error)
	// DeleteNetwork deletes a network of this cluster with its subnets, whoever made these. RouterInterfaces have to be removed
	// before: ErrConflict while a port is in it. It succeeds when there is none.
	DeleteNetwork(ctx context.Context, id string) error

	// CreateSubnet makes a subnet in a network of this cluster: ErrInvalid (FieldNetwork) if there
	// is none. ErrOverlap if its prefix overlaps with another one of the network, ErrAddresses if
	// the subnet pool has no prefix left, ErrInvalid (FieldSubnetPool) if there is no such pool, or
	// the network's subnets of that IP version are of another one, or of none.
	CreateSubnet(ctx context.Context, owner Owner, spec SubnetSpec) (OwnSubnet, error)
	// UpdateSubnet changes DNS servers and routes of a subnet of this cluster; ErrNotFound if there
	// is none.
	UpdateSubnet(ctx context.Context, id string, u SubnetUpdate) error
	// DeleteSubnet deletes a subnet of this cluster; ErrConflict while a port has an address of it.
	// It succeeds when there is none.
	DeleteSubnet(ctx context.Context, id string) error

	// AddRouterInterface gives a router an interface in a subnet of this cluster, at the subnet's gateway. It
	// succeeds when the router has it. ErrOverlap if the router has an interface in a subnet that
	// overlaps, ErrRouterFull if the router can take no more, ErrInvalid (FieldRouter, FieldSubnet)
	// if one is not there.
	AddRouterInterface(ctx context.Context, routerID, subnetID string) error
	// RemoveRouterInterface removes it. It succeeds when router or interface is gone. ErrConflict while
	// something needs the interface, such as a floating IP of a port in the subnet.
	RemoveRouterInterface(ctx context.Context, routerID, subnetID string) error
	// RouterAddresses returns the addresses of a router's gateway in its external network, by which
	// hosts outside reach what is behind it; empty if it has none. ErrInvalid (FieldRouter) if
	// there is no such router.
	RouterAddresses(ctx context.Context, routerID string) ([]netip.Addr, error)
}

// SubnetPools reads the subnet pools that a backend chooses the prefixes of subnets from.
type SubnetPools interface {
	// SubnetPool returns a subnet pool; ErrInvalid (FieldSubnetPool) if there is none that the
	// credential can see.
	SubnetPool(ctx context.Context, id string) (SubnetPool, error)
}

// SubnetPool is a subnet pool as the backend has it.
type SubnetPool struct {
	ID        string
	IPVersion int // 4 or 6
}

// NetworkSpec is a network to make.
type NetworkSpec struct {
	Name      string // as NetworkName
	ProjectID string // empty: the credential's own
}

// NetworkName is the name of a namespace's network and of its subnets, as earlier versions of Kuryr
// have them. The UID tells the network of an earlier namespace of that name apart.
func NetworkName(namespaceUID, namespace string) string { return namespaceUID + "/" + namespace }

// SubnetSpec is a subnet to make, without DHCP: nodes address pods.
type SubnetSpec struct {
	NetworkID    string
	Name         string // as NetworkName
	ProjectID    string // that of the network
	IPVersion    int    // 4 or 6
	Prefix       netip.Prefix
	PoolID       string // that the backend chooses the prefix from, if Prefix is zero
	PrefixLength int    // of the prefix from the pool; 0: the pool's default
	SubnetUpdate
}

// SubnetUpdate is what may change of a subnet. All of it is written.
type SubnetUpdate struct {
	DNSServers []netip.Addr
	Routes     []v1.Route
}

// Network is a network as the backend has it.
type Network struct {
	ID, Name  string
	Owner     Owner // zero for a given network of somebody else
	ProjectID string
	MTU       int
	Subnets   []OwnSubnet // sorted by Created, then by ID
}

// OwnSubnet is a subnet as the backend has it.
type OwnSubnet struct {
	ID, NetworkID string
	IPVersion     int
	Prefix        netip.Prefix
	Gateway       netip.Addr // zero: none
	PoolID        string
	Created       time.Time // zero if the backend does not tell
	RouterIDs     []string  // routers with an interface in it, sorted
	SubnetUpdate
}

// PortUse is a port in a network and whose it is.
type PortUse struct {
	ID          string
	DeviceOwner string // what has the port, in the backend's words; empty if nothing has it yet
	Own         bool   // it has the mark of this cluster
}

// CompareSubnets is the order of Network.Subnets.
func CompareSubnets(a, b OwnSubnet) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// NetworkSummary is the little that an inventory needs.
type NetworkSummary struct {
	ID, Name  string
	Owner     Owner
	ProjectID string
	Created   time.Time // zero if the backend does not tell
}
