// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// MaxSubnets is the largest number of subnets of a namespace's network.
const MaxSubnets = 16

// Input is what the plan of a namespace's network depends on.
type Input struct {
	UID    types.UID // of the namespace
	Choice Choice
	Wanted bool // a pod of the namespace wants a port, or the network is to be made before
	// Pools are the subnet pools of the choice, with the IP family (4 or 6) of each.
	Pools []SubnetPool

	Current *v1.KuryrNetworkSpec // nil: there is no KuryrNetwork
	Made    []netip.Prefix       // prefixes of the subnets that exist
	InUse   bool                 // a pod has a port in the network of Current, or is about to get one
	Full    int32                // IP family whose subnets have no address left; 0: none
	Taken   []Taken              // prefixes of others
}

// SubnetPool is a subnet pool of the SDN.
type SubnetPool struct {
	ID        string
	IPVersion int32 // 4 or 6
}

// Plan is what to do about the KuryrNetwork of a namespace.
type Plan struct {
	Spec   *v1.KuryrNetworkSpec // to write if it differs; nil: there is none to write
	Delete bool                 // the KuryrNetwork is deleted; the next plan may make another one
	// Reason and Why are those of condition Planned with status False. They are empty if
	// everything is as it is asked for.
	Reason, Why string
}

// Next plans the KuryrNetwork of a namespace. It changes nothing of Current that pods in the
// network depend on: such a change waits until the network is not in use. Then the KuryrNetwork is
// deleted, and the next plan makes another one.
func Next(in Input) Plan {
	c := &in.Choice
	switch {
	case in.Current == nil && (c.Common || c.Blocked || !in.Wanted):
		return Plan{}.note(c)
	case in.Current == nil:
		return in.settle(in.fresh(), 0).note(c)
	case c.Blocked:
		return Plan{}.note(c)
	}
	if why := in.differs(); why != "" && !in.InUse {
		return Plan{Delete: true}
	} else if why != "" {
		return Plan{
			Reason: v1.ReasonWaitsForPods,
			Why:    fmt.Sprintf("%s. Pods of the namespace have ports in its network, so Kuryr changes this once none has: delete or restart all pods of the namespace at once, or undo the change", why),
		}.note(c)
	}
	spec := in.Current.DeepCopy()
	in.inPlace(spec)
	return in.settle(spec, in.Full).note(c)
}

// note adds the faults of a choice to a plan that has nothing else to report.
func (p Plan) note(c *Choice) Plan {
	if p.Reason == "" && len(c.Faults) > 0 {
		p.Reason, p.Why = v1.ReasonNotAllowed, Explain(c.Faults)
	}
	return p
}

// Explain describes faults for a person.
func Explain(faults []Fault) string {
	var all []string
	for _, f := range faults {
		all = append(all, fmt.Sprintf("%s %q: %s", f.Field, f.Value, f.Why))
	}
	return strings.Join(all, ". ")
}

// fresh returns the spec of a new KuryrNetwork, without subnets to make.
func (in *Input) fresh() *v1.KuryrNetworkSpec {
	spec := &v1.KuryrNetworkSpec{Mode: in.Choice.Mode, NamespaceUID: string(in.UID), ProjectID: in.Choice.ProjectID, NetworkID: in.Choice.NetworkID}
	in.inPlace(spec)
	spec.RouterID = in.router()
	return spec
}

// router returns the router of the subnets that Kuryr makes.
func (in *Input) router() string {
	if !makes(in.Choice.Mode) {
		return ""
	}
	return in.Choice.RouterID
}

// makes reports whether Kuryr makes the networks of a mode.
func makes(mode v1.NetworkMode) bool {
	return mode == v1.NetworkNamespace || mode == v1.NetworkFlat
}

// Makes reports whether Kuryr makes the network of a spec.
func Makes(spec *v1.KuryrNetworkSpec) bool { return makes(spec.Mode) }

// inPlace sets what may change while pods have ports in the network.
func (in *Input) inPlace(spec *v1.KuryrNetworkSpec) {
	c := &in.Choice
	if !makes(c.Mode) {
		spec.SubnetIDs = slices.Clone(c.SubnetIDs)
		return
	}
	spec.DNSServers, spec.Routes = slices.Clone(c.DNSServers), slices.Clone(c.Routes)
	spec.Router = c.Router.DeepCopy()
}

// differs returns what of the current spec is not as chosen and cannot change in place; empty if
// nothing is.
func (in *Input) differs() string {
	is, c := in.Current, &in.Choice
	switch {
	case c.Common && is.ProjectID != c.ProjectID:
		return fmt.Sprintf("project: want the common one with its network, %s; have %s", named(c.ProjectID), named(is.ProjectID))
	case c.Common:
		return "network: want the common one, where new pods of the namespace are already"
	case is.NamespaceUID != string(in.UID):
		return "the KuryrNetwork is of an earlier namespace of this name"
	case is.Mode != c.Mode:
		return fmt.Sprintf("network mode: want %s, have %s", c.Mode, is.Mode)
	case is.ProjectID != c.ProjectID:
		return fmt.Sprintf("project: want %s, have %s", named(c.ProjectID), named(is.ProjectID))
	case is.NetworkID != c.NetworkID:
		return fmt.Sprintf("network: want %s, have %s", named(c.NetworkID), named(is.NetworkID))
	}
	want, has := routerName(in.router(), makes(c.Mode) && c.Router != nil), routerName(is.RouterID, is.Router != nil)
	if want != has {
		return fmt.Sprintf("router: want %s, have %s", want, has)
	}
	return in.differentSubnets()
}

func routerName(id string, own bool) string {
	if own {
		return "one that Kuryr makes for the namespace"
	}
	return named(id)
}

func named(id string) string {
	if id == "" {
		return "the default"
	}
	return id
}

// differentSubnets is differs for the subnets to make.
func (in *Input) differentSubnets() string {
	has := map[int32]bool{}
	for _, s := range in.Current.Subnets {
		has[s.IPVersion] = true
		if !in.fits(s) {
			return fmt.Sprintf("the IPv%d subnet %s is not as networks in Kuryr's configuration now says", s.IPVersion, s.CIDR+s.SubnetPoolID)
		}
	}
	for _, v := range in.families() {
		if len(has) > 0 && !has[v] && in.InUse {
			return fmt.Sprintf("subnets: want one of IPv%d, have none", v)
		}
	}
	if p, t, over := overlap(in.Made, in.Taken); over && in.Current.Mode == v1.NetworkFlat {
		return fmt.Sprintf("the prefix %s overlaps with %s of %s", p, t.Prefix, t.By)
	}
	return ""
}

// fits reports whether the choice would make a subnet like this one.
func (in *Input) fits(s v1.NetworkSubnet) bool {
	if in.Choice.Mode == v1.NetworkNamespace {
		return s.PrefixLength == in.length(s.IPVersion) && slices.Contains(in.Pools, SubnetPool{s.SubnetPoolID, s.IPVersion})
	}
	p, err := netip.ParsePrefix(s.CIDR)
	return err == nil && p.Bits() == int(in.length(s.IPVersion)) && slices.ContainsFunc(in.ranges(), func(r netip.Prefix) bool {
		return r.Bits() <= p.Bits() && r.Contains(p.Addr())
	})
}

// families returns the IP families of the subnets that the choice makes, in its order.
func (in *Input) families() (all []int32) {
	add := func(v int32) {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	switch in.Choice.Mode {
	case v1.NetworkNamespace:
		for _, p := range in.Pools {
			add(p.IPVersion)
		}
	case v1.NetworkFlat:
		for _, r := range in.ranges() {
			add(family(r.Addr()))
		}
	case v1.NetworkShared, v1.NetworkGiven:
	}
	return all
}

// defaultRange is the range of mode flat if the configuration has none.
var defaultRange = netip.MustParsePrefix("10.0.0.0/8")

func (in *Input) ranges() []netip.Prefix {
	if len(in.Choice.Ranges) == 0 {
		return []netip.Prefix{defaultRange}
	}
	return in.Choice.Ranges
}

// length returns the length of the prefixes of a family; 0: as the subnet pool says.
func (in *Input) length(version int32) int32 {
	bits, flat := in.Choice.PrefixLength, 16
	if version == 6 {
		bits, flat = in.Choice.PrefixLengthIPv6, 64
	}
	if bits == 0 && in.Choice.Mode == v1.NetworkFlat {
		bits = flat
	}
	return int32(bits)
}

// settle adds to spec the subnets that it lacks, all or none, and one of the family full.
func (in *Input) settle(spec *v1.KuryrNetworkSpec, full int32) Plan {
	if !makes(spec.Mode) {
		return Plan{Spec: spec}
	}
	if spec.Mode == v1.NetworkNamespace && len(in.Pools) == 0 {
		return Plan{Spec: spec, Reason: v1.ReasonNotConfigured,
			Why: "networks.subnetPoolIDs in Kuryr's configuration names no subnet pool for the namespace's network: name one for each IP family, or choose another mode"}
	}
	subnets := spec.Subnets
	for _, v := range in.families() {
		if slices.ContainsFunc(spec.Subnets, func(s v1.NetworkSubnet) bool { return s.IPVersion == v }) && v != full {
			continue
		}
		if len(subnets) >= MaxSubnets {
			return Plan{Spec: spec, Reason: v1.ReasonSubnetExhausted,
				Why: fmt.Sprintf("the namespace's network has %d subnets, which is the most, and all IPv%d addresses are in use: delete pods, or give networks a shorter prefix length and restart all pods of the namespace at once", MaxSubnets, v)}
		}
		s, ok := in.subnet(v)
		if !ok {
			return Plan{Spec: spec, Reason: v1.ReasonRangeFull, Why: in.rangeFull(v)}
		}
		subnets = append(slices.Clip(subnets), s)
	}
	spec.Subnets = subnets
	if p, t, over := overlap(in.Made, in.Taken); over {
		return Plan{Spec: spec, Reason: v1.ReasonOverlap,
			Why: fmt.Sprintf("the subnet %s, which the SDN chose from networks.subnetPoolIDs, overlaps with %s of %s: pods may not reach those. Take the prefix out of the subnet pool, and restart all pods of the namespace at once", p, t.Prefix, t.By)}
	}
	return Plan{Spec: spec}
}

// subnet returns another subnet of a family. It returns false if no prefix is left.
func (in *Input) subnet(version int32) (v1.NetworkSubnet, bool) {
	for _, p := range in.Pools {
		if in.Choice.Mode == v1.NetworkNamespace && p.IPVersion == version {
			return v1.NetworkSubnet{IPVersion: version, SubnetPoolID: p.ID, PrefixLength: in.length(version)}, true
		}
	}
	taken := in.Taken
	for _, p := range in.ownPrefixes() {
		taken = append(slices.Clip(taken), Taken{Prefix: p})
	}
	for _, r := range in.ranges() {
		if family(r.Addr()) != version {
			continue
		}
		if p, ok := Free(r, int(in.length(version)), taken); ok {
			return v1.NetworkSubnet{IPVersion: version, CIDR: p.String()}, true
		}
	}
	return v1.NetworkSubnet{}, false
}

// ownPrefixes returns the prefixes that the namespace's network has or is to have.
func (in *Input) ownPrefixes() []netip.Prefix {
	all := slices.Clone(in.Made)
	if in.Current != nil {
		all = append(all, Prefixes(in.Current)...)
	}
	return all
}

// Prefixes returns the prefixes that Kuryr has chosen for a network.
func Prefixes(spec *v1.KuryrNetworkSpec) (all []netip.Prefix) {
	for _, s := range spec.Subnets {
		if p, err := netip.ParsePrefix(s.CIDR); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}

func (in *Input) rangeFull(version int32) string {
	var of []string
	for _, r := range in.ranges() {
		if family(r.Addr()) == version {
			of = append(of, r.String())
		}
	}
	field := "networks.prefixLength"
	if version == 6 {
		field = "networks.prefixLengthIPv6"
	}
	return fmt.Sprintf("networks.ranges in Kuryr's configuration (%s) has no IPv%d prefix of /%d left that overlaps with no other network: add a range, set a longer %s, or delete namespaces",
		strings.Join(of, ", "), version, in.length(version), field)
}
