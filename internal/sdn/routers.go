// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"context"
	"net/netip"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Routers makes and keeps routers that are of one namespace each. A backend changes and deletes
// routers of this cluster only. Networks makes the interfaces (interfaces) of all routers.
type Routers interface {
	// CreateRouter makes a router with a gateway in an external network, and without routes.
	// ErrProjectQuota, ErrExternalAddresses, ErrSNATForbidden, ErrForbidden, and ErrInvalid
	// (FieldExternalNetwork, FieldProject) name the cause. If the answer is lost (ErrUnavailable),
	// the router may exist: it carries the owner and the name, so ListRouters shows it.
	CreateRouter(ctx context.Context, owner Owner, spec RouterSpec) (OwnRouter, error)
	// Router returns a router of this cluster; ErrNotFound if there is none. It costs one request.
	Router(ctx context.Context, id string) (OwnRouter, error)
	// ListRouters returns all routers of this cluster, in no order.
	ListRouters(ctx context.Context) ([]RouterSummary, error)
	// UpdateRouter changes gateway or routes of a router of this cluster, and returns what it is
	// then, also with an error: what serves stays, or is restored. Its gateway and its routes are not
	// changed at once: after a stop, or with ErrUnavailable, a part may be done. The next call with
	// the wanted routes restores routes that are lost.
	// ErrNotFound if there is none, ErrConflict while a floating IP needs the gateway, ErrInvalid
	// (FieldExternalNetwork, FieldRouterRoutes), and otherwise the errors of CreateRouter.
	UpdateRouter(ctx context.Context, id string, u RouterUpdate) (OwnRouter, error)
	// DeleteRouter deletes a router of this cluster with its gateway; ErrConflict while it has an
	// interface. It succeeds when there is none.
	DeleteRouter(ctx context.Context, id string) error
}

// RouterSpec is a router to make.
type RouterSpec struct {
	Name      string // as NetworkName
	ProjectID string // empty: the credential's own
	Gateway   Gateway
}

// Gateway is the way out of a router.
type Gateway struct {
	NetworkID string // the external network
	// SNAT is whether the router replaces the addresses of what is behind it by its own; nil: as the
	// backend chooses. In Neutron's default policy only administrators may choose.
	SNAT *bool
}

// RouterUpdate is a change of a router; what is nil stays.
type RouterUpdate struct {
	Gateway *Gateway
	// Routes are all routes that the router is to have, by way of neighbours. With Gateway, the
	// routes may be by way of the new one.
	Routes *[]v1.Route
}

// OwnRouter is a router as the backend has it.
type OwnRouter struct {
	ID, Name  string
	Owner     Owner
	ProjectID string
	Gateway   Gateway // without a network: it has none. SNAT is never nil with one
	// Addresses are those of the gateway in the external network, IPv4 first.
	Addresses []netip.Addr
	Routes    []v1.Route
}

// RouterSummary is the little that an inventory needs, as of networks.
type RouterSummary = NetworkSummary
