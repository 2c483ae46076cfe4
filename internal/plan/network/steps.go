// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package network plans the networks of namespaces. It is pure: the caller reads and writes.
package network

import (
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Work is what is to be done to a network that Kuryr makes. The network has to be there before its
// subnets, and a subnet before its interface. The parts of one field do not depend on each other.
type Work struct {
	Create           *sdn.NetworkSpec // nil: the network is there
	Subnets          []sdn.SubnetSpec
	Updates          map[string]sdn.SubnetUpdate // by ID of a subnet
	RouterInterfaces []string                    // subnets that the router lacks an interface in
}

// Missing compares the spec of a namespace's network with the cloud. is is the network that the
// cloud has; without an ID it has none. routerID is the router of the subnets; empty: there is none,
// or none yet.
func Missing(namespace string, spec *v1.KuryrNetworkSpec, is sdn.Network, routerID string) Work {
	var w Work
	name := sdn.NetworkName(spec.NamespaceUID, namespace)
	if is.ID == "" {
		w.Create = &sdn.NetworkSpec{Name: name, ProjectID: spec.ProjectID}
	}
	for i, s := range Match(spec, is.Subnets) {
		version := spec.Subnets[i].IPVersion
		update := updateOf(spec, version)
		if s.ID == "" {
			p, _ := netip.ParsePrefix(spec.Subnets[i].CIDR) // zero: from a pool
			w.Subnets = append(w.Subnets, sdn.SubnetSpec{
				NetworkID: is.ID, Name: name, ProjectID: spec.ProjectID, IPVersion: int(version), Prefix: p,
				PoolID: spec.Subnets[i].SubnetPoolID, PrefixLength: int(spec.Subnets[i].PrefixLength), SubnetUpdate: update,
			})
			continue
		}
		if !slices.Equal(s.DNSServers, update.DNSServers) || !slices.Equal(sorted(s.Routes), sorted(update.Routes)) {
			if w.Updates == nil {
				w.Updates = map[string]sdn.SubnetUpdate{}
			}
			w.Updates[s.ID] = update
		}
		if routerID != "" && !slices.Contains(s.RouterIDs, routerID) {
			w.RouterInterfaces = append(w.RouterInterfaces, s.ID)
		}
	}
	return w
}

// Match returns, for each subnet of the spec, that of the cloud; without an ID if there is none.
// subnets are sorted by their age.
func Match(spec *v1.KuryrNetworkSpec, subnets []sdn.OwnSubnet) []sdn.OwnSubnet {
	out, taken := make([]sdn.OwnSubnet, len(spec.Subnets)), map[string]bool{}
	for i, want := range spec.Subnets {
		for _, s := range subnets {
			if !taken[s.ID] && isOf(want, s) {
				out[i], taken[s.ID] = s, true
				break
			}
		}
	}
	return out
}

// isOf reports whether a subnet of the cloud is one that was wanted.
func isOf(want v1.NetworkSubnet, s sdn.OwnSubnet) bool {
	if want.CIDR != "" {
		p, err := netip.ParsePrefix(want.CIDR)
		return err == nil && p.Masked() == s.Prefix.Masked()
	}
	return int(want.IPVersion) == s.IPVersion && want.SubnetPoolID == s.PoolID
}

// updateOf returns what may change of a subnet of a family. Addresses and routes that cannot be
// read are left out; package config rejects those.
func updateOf(spec *v1.KuryrNetworkSpec, version int32) (u sdn.SubnetUpdate) {
	for _, text := range spec.DNSServers {
		if a, err := netip.ParseAddr(text); err == nil && family(a) == version {
			u.DNSServers = append(u.DNSServers, a)
		}
	}
	for _, r := range spec.Routes {
		if p, err := netip.ParsePrefix(r.Destination); err == nil && family(p.Addr()) == version {
			u.Routes = append(u.Routes, r)
		}
	}
	return u
}

func sorted(routes []v1.Route) []v1.Route {
	return slices.SortedFunc(slices.Values(routes), func(a, b v1.Route) int {
		return strings.Compare(a.Destination+" "+a.Gateway, b.Destination+" "+b.Gateway)
	})
}

// Status returns the status of a network that Kuryr makes, without conditions.
func Status(spec *v1.KuryrNetworkSpec, is sdn.Network, router Router) v1.KuryrNetworkStatus {
	status := v1.KuryrNetworkStatus{NetworkID: is.ID, MTU: int32(is.MTU)}
	if spec.Router != nil { // also before it has an interface: it is found again by it
		status.RouterID = router.ID
		for _, a := range router.Outside {
			status.RouterAddresses = append(status.RouterAddresses, a.String())
		}
	}
	for _, s := range Match(spec, is.Subnets) {
		if s.ID == "" {
			continue
		}
		one := subnetStatus(s)
		one.Routed = router.ID != "" && slices.Contains(s.RouterIDs, router.ID)
		status.Subnets = append(status.Subnets, one)
		if !one.Routed {
			continue
		}
		status.RouterID = router.ID
		for _, a := range router.Outside {
			if a.Is4() == s.Prefix.Addr().Is4() {
				status.NodeRoutes = append(status.NodeRoutes, v1.Route{Destination: one.CIDR, Gateway: a.String()})
				break
			}
		}
	}
	return status
}

// GivenStatus returns the status of an existing network, without conditions. Its subnets have the
// order of spec.SubnetIDs.
func GivenStatus(spec *v1.KuryrNetworkSpec, is sdn.Network) v1.KuryrNetworkStatus {
	status := v1.KuryrNetworkStatus{NetworkID: is.ID, MTU: int32(is.MTU)}
	for _, id := range spec.SubnetIDs {
		for _, s := range is.Subnets {
			if s.ID == id {
				status.Subnets = append(status.Subnets, subnetStatus(s))
			}
		}
	}
	return status
}

func subnetStatus(s sdn.OwnSubnet) v1.NetworkSubnetStatus {
	out := v1.NetworkSubnetStatus{ID: s.ID, IPVersion: int32(s.IPVersion), CIDR: s.Prefix.Masked().String()}
	if s.Gateway.IsValid() {
		out.Gateway = s.Gateway.String()
	}
	return out
}

// Complete reports whether a status has all that the spec wants made.
func Complete(spec *v1.KuryrNetworkSpec, status *v1.KuryrNetworkStatus) bool {
	if status.NetworkID == "" {
		return false
	}
	if !makes(spec.Mode) {
		return len(status.Subnets) == len(spec.SubnetIDs)
	}
	return len(status.Subnets) == len(spec.Subnets) && len(status.Subnets) > 0 &&
		!slices.ContainsFunc(status.Subnets, func(s v1.NetworkSubnetStatus) bool { return Routed(spec) && !s.Routed })
}

// FullFamily returns the IP family that a network needs another subnet of, given that a port got no
// address; 0 if it needs none. used is the number of ports with an address of each subnet.
//
// The SDN does not say which family is full: the one with fewer addresses is. A subnet that has
// room for as many ports as it has is not full: a pool may report so for a while after the subnet
// was added.
func FullFamily(spec *v1.KuryrNetworkSpec, status *v1.KuryrNetworkStatus, used map[string]int) int32 {
	if !makes(spec.Mode) || !Complete(spec, status) {
		return 0
	}
	bits, newest := map[int32]int{}, map[int32]v1.NetworkSubnetStatus{}
	for _, s := range status.Subnets {
		if p, err := netip.ParsePrefix(s.CIDR); err == nil {
			bits[s.IPVersion] = max(bits[s.IPVersion], p.Addr().BitLen()-p.Bits())
			newest[s.IPVersion] = s
		}
	}
	version := int32(4)
	if b, ok := bits[4]; !ok || len(bits) > 1 && bits[6] < b {
		version = 6
	}
	last, room := newest[version], bits[version]
	if room > 30 || used[last.ID]*2 < 1<<room-4 {
		return 0
	}
	return version
}

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

// Router is the router of a network's subnets.
type Router struct {
	ID      string       // empty: there is none, or none yet
	Outside []netip.Addr // its addresses in its external network
}

// RouterWork is what is to be done to the router that Kuryr makes for a network. After Create the
// work is to be planned again: a new router has no routes.
type RouterWork struct {
	Create *sdn.RouterSpec   // nil: it is there, or none is wanted
	Update *sdn.RouterUpdate // nil: it is as wanted
}

// Routed reports whether the subnets of a network are to have interfaces of a router.
func Routed(spec *v1.KuryrNetworkSpec) bool { return spec.RouterID != "" || spec.Router != nil }

// MissingRouter compares the spec of a namespace's network with the router that the cloud has for
// it; without an ID it has none. Without a wish for SNAT, the router keeps what it has.
func MissingRouter(namespace string, spec *v1.KuryrNetworkSpec, is sdn.OwnRouter) RouterWork {
	want := spec.Router
	if want == nil {
		return RouterWork{}
	}
	gateway := sdn.Gateway{NetworkID: want.ExternalNetworkID, SNAT: want.SNAT}
	if is.ID == "" {
		return RouterWork{Create: &sdn.RouterSpec{Name: sdn.NetworkName(spec.NamespaceUID, namespace), ProjectID: spec.ProjectID, Gateway: gateway}}
	}
	var u sdn.RouterUpdate
	moved := is.Gateway.NetworkID != gateway.NetworkID
	translated := gateway.SNAT != nil && (is.Gateway.SNAT == nil || *is.Gateway.SNAT != *gateway.SNAT)
	if moved || translated {
		u.Gateway = &gateway
	}
	if moved || !slices.Equal(sorted(is.Routes), sorted(want.Routes)) {
		u.Routes = new(slices.Clone(want.Routes))
	}
	if u == (sdn.RouterUpdate{}) {
		return RouterWork{}
	}
	return RouterWork{Update: &u}
}
