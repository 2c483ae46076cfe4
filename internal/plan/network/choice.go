// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package network plans the networks of namespaces. It is pure: the caller reads and writes.
package network

import (
	"net/netip"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Choice is what the configuration and the author of a namespace want for the namespace.
type Choice struct {
	// Common reports that the pods are in the common network and the common project. Such a
	// namespace needs no KuryrNetwork.
	Common bool

	Mode      v1.NetworkMode
	ProjectID string // empty: the credential's own

	NetworkID string   // of mode given; empty: that of the subnets
	SubnetIDs []string // of modes shared and given

	SubnetPoolIDs                  []string       // of mode namespace
	Ranges                         []netip.Prefix // of mode flat
	PrefixLength, PrefixLengthIPv6 int            // 0: the pool's default; in mode flat 16 and 64
	RouterID                       string
	Router                         *v1.NetworkRouter // that Kuryr makes, in place of RouterID
	DNSServers                     []string
	Routes                         []v1.Route

	SecurityGroupIDs  []string // of pods
	ExternalNetworkID string   // of floating IPs
	Now               bool     // the network is made before the first pod

	// Faults are wishes of the namespace's author that the configuration does not allow. The rest
	// of the choice is as without them, except with Blocked: then the pods get no network.
	Faults  []Fault
	Blocked bool
}

// Fault is a wish that is not fulfilled.
type Fault struct {
	Field string // what the author wrote, as in metadata.annotations[openstack.org/kuryr-project]
	Value string
	Why   string // why not, and what to do
}
