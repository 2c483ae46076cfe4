// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"context"
	"net/netip"
)

// Installer makes what a cluster has once, before its first start. It belongs to the person who
// asks for it: it carries no mark that Kuryr deletes things by, and no part of Kuryr changes it.
// A backend finds it again by its project, its name and its description, which names the cluster.
type Installer interface {
	// FindSetup returns the ID of a thing that exists; ErrNotFound if there is none. A router without
	// an ID is found if the credential's project has exactly one. An interface is found if any router has one
	// in the subnet; it and a rule have no ID.
	FindSetup(ctx context.Context, s Setup) (id string, err error)
	// MakeSetup makes a thing with one request. It does not look for an existing one. ErrInvalid for a
	// router.
	MakeSetup(ctx context.Context, s Setup) (id string, err error)
}

// SetupKind is the kind of a thing of a first start.
type SetupKind string

// The kinds of things.
const (
	SetupRouter          SetupKind = "router"
	SetupNetwork         SetupKind = "network"
	SetupSubnet          SetupKind = "subnet"
	SetupRouterInterface SetupKind = "router interface"
	SetupGroup           SetupKind = "security group"
	SetupRule            SetupKind = "security group rule"
)

// Setup is a thing of a first start. Each kind has some of the fields.
type Setup struct {
	Kind      SetupKind
	Name      string       // of a network, a subnet, a group
	ProjectID string       // of these; empty: the credential's own
	NetworkID string       // of a subnet
	Prefix    netip.Prefix // of a subnet; the senders of a rule
	Gateway   netip.Addr   // of a subnet; zero: the first address
	Pool      AddressRange // of a subnet; zero: all addresses
	RouterID  string       // of an interface
	SubnetID  string       // of an interface
	GroupID   string       // of a rule, which lets in all traffic of the senders
}
