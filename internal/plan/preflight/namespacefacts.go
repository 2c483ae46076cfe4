// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"
	"slices"

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
	Ranges      []Ranges
	// Given are existing networks besides that of pods: of networks.given and of nodes.
	Given   []Given
	MinFree int // networks.minFree
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

// Ranges are prefixes that subnets are chosen from.
type Ranges struct {
	Field    string
	Prefixes []netip.Prefix
}

// Given is an existing network.
type Given struct {
	Field     string // that has the subnets
	NetworkID string // empty: that of the subnets
	SubnetIDs []string
}

// Namespace is a namespace that has, or may get, a network of its own.
type Namespace struct {
	Name      string
	Mode      v1.NetworkMode
	ProjectID string // empty: the credential's own

	SubnetPoolIDs                  []string       // of mode namespace
	Ranges                         []netip.Prefix // of mode flat
	PrefixLength, PrefixLengthIPv6 int            // 0: the pool's default
	RouterID                       string
	OwnRouter                      bool       // Kuryr makes a router for it, in place of RouterID
	RouterRoutes                   []v1.Route // of that router

	SubnetIDs []string       // that Kuryr has made for it
	Prefixes  []netip.Prefix // of these
	// NotReady says why its KuryrNetwork is not ready, or not as the author wants it; empty: it is,
	// or there is none.
	NotReady string
}

// makes reports whether Kuryr makes the namespace's network.
func (n *Namespace) makes() bool {
	return n.Mode == v1.NetworkNamespace || n.Mode == v1.NetworkFlat
}

// missing reports whether Kuryr still has to make the namespace's network, with its first pod.
func (n *Namespace) missing() bool { return n.makes() && len(n.SubnetIDs) == 0 }

// Member is the port of a pod that load balancers send to.
type Member struct {
	Service        string // one of them, as in shop/web
	Address        netip.Addr
	Protocol       string // tcp, udp, sctp
	Port           int32
	SecurityGroups []string // of the pod's port
}

// missing returns the namespaces whose network Kuryr still has to make.
func (f *Facts) missing() []Namespace {
	return slices.DeleteFunc(slices.Clone(f.Cluster.Namespaces.Value), func(n Namespace) bool { return !n.missing() })
}

// room returns how many free prefixes of a length a range has, at most a million.
func room(within netip.Prefix, length int, taken []netip.Prefix) int {
	const most = 1 << 20
	if length < within.Bits() {
		return 0
	}
	var inside []netip.Prefix
	for _, t := range taken {
		if t.Overlaps(within) {
			inside = append(inside, t)
		}
	}
	if len(inside) == 0 {
		return 1 << min(length-within.Bits(), 20)
	}
	covers := func(t netip.Prefix) bool { return t.Bits() <= within.Bits() }
	if within.Bits() == length || slices.ContainsFunc(inside, covers) {
		return 0
	}
	low, high := halves(within)
	return min(most, room(low, length, inside)+room(high, length, inside))
}
