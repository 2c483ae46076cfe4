// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package plug puts a port of the SDN into a network namespace of a node. It makes the device
// pair, connects it to a bridge, and sets names, addresses and routes inside. It uses netlink and
// OVSDB. It knows neither Kubernetes nor the SDN's API.
package plug

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Interface describes one port for one sandbox.
type Interface struct {
	PortID       string           // the SDN's ID of the port
	Type         string           // driver: ovs, bridge or the name of a binding driver
	ContainerID  string           // the container runtime's ID of the sandbox
	Netns        string           // path of the sandbox's network namespace; empty: none exists
	Name         string           // of the interface in the sandbox
	MAC          net.HardwareAddr // nil: Kuryr chooses one; see HardwareAddr
	MTU          int              // bytes; 0 is the node's own; never larger than the node's
	Addresses    []Address
	Routes       []Route
	Default      bool // whether the default route goes through this interface
	Bridge       string
	VLANID       int
	ParentPortID string
	Pod          string            // namespace/name, for people and binding drivers
	Details      map[string]string // for binding drivers
	// Agent: neutron-openvswitch-agent wires the port of type ovs, and not OVN. Wait then returns
	// when the agent has put the port into its network. The agent sets the port's security groups
	// after that, which only the SDN shows.
	Agent bool
	// Hybrid: the agent enforces security groups in a Linux bridge between the port and the switch.
	// Kuryr has none, so Plug refuses the port.
	Hybrid bool
}

// Address is one address with its subnet's gateway. An invalid Gateway means no gateway. Its JSON,
// and that of Route, is in the journal of package daemon.
type Address struct {
	Prefix  netip.Prefix `json:"prefix"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
}

// Route is a route in addition to those of the subnets.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway"` // invalid: the destination is on the link
}

// Driver plugs ports of one type. All methods may be repeated after any interruption, with the
// same result. Calls for different ports may run in parallel.
type Driver interface {
	// Plug connects the port and configures the sandbox's end. It reuses or replaces what an
	// interrupted call left. A port that is plugged into another sandbox is removed from there. An
	// earlier port of i's sandbox must be unplugged before.
	Plug(ctx context.Context, i Interface) error
	// Wait returns after the data path passes the port's traffic, or at once if the data path
	// does not report that. Plug, or at the latest Wait, announces the port's addresses to its
	// neighbours.
	Wait(ctx context.Context, i Interface) error
	// Unplug removes the port from the sandbox and from the node. It succeeds if nothing is left
	// to do. It does nothing if the port is by now plugged into another sandbox than
	// i.ContainerID.
	Unplug(ctx context.Context, i Interface) error
	// Check returns an error that names the first difference from the state after Plug.
	Check(ctx context.Context, i Interface) error
}

// Errors that a caller can act on.
var (
	// ErrNoNetns: the sandbox's network namespace no longer exists.
	ErrNoNetns = errors.New("network namespace is gone")
	// ErrDataPath: the local switch (Open vSwitch, the bridge) is missing or refuses the port.
	ErrDataPath = errors.New("data path unavailable")
	// ErrNotWired: the port is plugged, but the data path does not pass its traffic yet.
	ErrNotWired = errors.New("not wired yet")
	// ErrUnknownType: no driver plugs ports of this type.
	ErrUnknownType = errors.New("no driver for this type of port")
	// ErrDriver: a binding driver failed.
	ErrDriver = errors.New("binding driver failed")
)
