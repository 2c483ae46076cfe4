// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package plug puts a port of the SDN into a network namespace of a node: the
// device pair, its place on a bridge, and names, addresses and routes inside.
// It knows netlink and OVSDB, neither Kubernetes nor the SDN's API.
package plug

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Interface is all that is needed to plug one port into one sandbox.
type Interface struct {
	PortID       string           // the SDN's ID of the port
	Type         string           // driver: ovs, bridge or the name of a binding driver
	ContainerID  string           // sandbox, in the container runtime's words
	Netns        string           // path of the sandbox's network namespace; empty: gone
	Name         string           // of the interface in the sandbox
	MAC          net.HardwareAddr // nil: one that Kuryr chooses; see HardwareAddr
	MTU          int              // bytes; 0 is the node's own; never above the node's
	Addresses    []Address
	Routes       []Route
	Default      bool // whether the default route goes through this interface
	Bridge       string
	VLANID       int
	ParentPortID string
	Pod          string            // namespace/name, for people and binding drivers
	Details      map[string]string // for binding drivers
}

// Address is one address with its subnet's gateway, which may be invalid (none).
type Address struct {
	Prefix  netip.Prefix
	Gateway netip.Addr
}

// Route is a route beyond those of the subnets.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// Driver plugs ports of one type. All methods may be called again after any
// interruption and reach the same end; calls for different ports may run at once.
type Driver interface {
	// Plug connects the port and configures the sandbox's end. What a call
	// that was cut off half-way has left is taken over or replaced. A port
	// that is plugged into another sandbox is taken from there.
	Plug(ctx context.Context, i Interface) error
	// Wait returns once the data path passes the port's traffic, or at once
	// where the data path does not tell.
	Wait(ctx context.Context, i Interface) error
	// Unplug takes the port out of the sandbox and away from the node. It
	// succeeds when there is nothing (left) to do. It does nothing if the port
	// is meanwhile plugged into another sandbox than i.ContainerID.
	Unplug(ctx context.Context, i Interface) error
	// Check returns an error that says what is not as Plug has left it.
	Check(ctx context.Context, i Interface) error
}

// Errors that a caller can act on.
var (
	// ErrNoNetns: the sandbox's network namespace is gone.
	ErrNoNetns = errors.New("network namespace is gone")
	// ErrDataPath: the local switch (Open vSwitch, the bridge) is not there or
	// refuses the port.
	ErrDataPath = errors.New("data path unavailable")
	// ErrNotWired: the port is plugged, and the data path does not pass its
	// traffic yet.
	ErrNotWired = errors.New("not wired yet")
	// ErrUnknownType: no driver plugs ports of this type.
	ErrUnknownType = errors.New("no driver for this type of port")
	// ErrDriver: a binding driver failed.
	ErrDriver = errors.New("binding driver failed")
)
