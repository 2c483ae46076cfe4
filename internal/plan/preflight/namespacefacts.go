// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// NamespaceConfig is what the configuration says of networks of namespaces and of projects.
type NamespaceConfig struct {
	Routers []Named // of networks, networks.namespaces and projects
	// OwnRouters are the routers that Kuryr makes for namespaces.
	OwnRouters  []OwnRouter
	Projects    []Named // projects[].projectID
	Groups      []Groups
	SubnetPools []Pools
	// Given are existing networks besides that of pods: of networks.given and of nodes.
	Given []Given
}

// OwnRouter is how Kuryr makes a router for each of some namespaces.
type OwnRouter struct {
	Field           string // that says so
	ExternalNetwork string // of its gateway
}

// Named is the ID of an object of the cloud, and the field of the configuration that has it.
type Named struct{ Field, ID string }

// Groups are the security groups of some pods, and the field that has them.
type Groups struct {
	Field string
	IDs   []string
}

// Pools are subnet pools that one network gets subnets of, and the lengths of their prefixes.
type Pools struct {
	Field                          string
	IDs                            []string
	PrefixLength, PrefixLengthIPv6 int // 0: the pool's default
}

// Given is an existing network.
type Given struct {
	Field     string // that has the subnets
	NetworkID string // empty: that of the subnets
	SubnetIDs []string
}

// Namespace is a namespace that has, or may get, a network of its own.
type Namespace struct {
	Name string
	Mode v1.NetworkMode

	SubnetPoolIDs []string       // of mode namespace
	Ranges        []netip.Prefix // of mode flat
	RouterID      string
	OwnRouter     bool       // Kuryr makes a router for it, in place of RouterID
	RouterRoutes  []v1.Route // of that router

	Prefixes []netip.Prefix // of the subnets that Kuryr has made for it
}

// makes reports whether Kuryr makes the namespace's network.
func (n *Namespace) makes() bool {
	return n.Mode == v1.NetworkNamespace || n.Mode == v1.NetworkFlat
}
