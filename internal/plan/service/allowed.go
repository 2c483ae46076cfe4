// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// allows reports whether the Service may name the value of an annotation. It may name no value, a
// value that the configuration uses itself, or one of services.allowed. Otherwise allows notes the
// key of the configuration to change, and effect, which is the consequence.
func (p *planner) allows(annotation, value, key, effect string, named ...[]string) bool {
	same := func(one string) bool { return sdn.SameID(one, value) || sdn.SameProvider(one, value) }
	if value == "" || slices.ContainsFunc(slices.Concat(named...), same) {
		return true
	}
	p.warn(ReasonNotAllowed, field(annotation), "Services may not name %q: %s. Add it to services.allowed.%s in Kuryr's configuration, or remove the annotation", clip(value), effect, key)
	return false
}

const leftOut = "the annotation is ignored"

// memberSubnet returns the subnet that the Service names for its endpoints in no known subnet. named
// is empty if the Service names none or may not name it. In the latter case denied is that subnet.
//
// A known subnet is named without effect: endpoints in its prefix have it anyway, and other addresses
// are not in it. Otherwise an EndpointSlice could make any address a member that the subnet's router
// reaches, in other projects too.
func (p *planner) memberSubnet() (named, denied string) {
	named = p.id(annotationMemberSubnet, "subnet")
	known := slices.Clone(p.Settings.Lost)
	for _, s := range slices.Concat(p.Settings.Services, p.Settings.Members) {
		known = append(known, s.ID)
	}
	listed, is := p.Settings.Allowed.MemberSubnetIDs, func(id string) bool { return sdn.SameID(id, named) }
	if slices.ContainsFunc(known, is) && !slices.ContainsFunc(listed, is) {
		return "", ""
	}
	if !p.allows(annotationMemberSubnet, named, "memberSubnetIDs", "endpoints in it do not become members", listed) {
		return "", named
	}
	return named, ""
}

// floatingSource returns the network and the subnet that the Service names for floating IPs. Each
// is empty if the Service names none, or may not name it.
func (p *planner) floatingSource() (network, subnet string) {
	const effect = "the Service keeps its floating IP, and gets none if it has none"
	s := &p.Settings
	network, subnet = p.id(annotationFloatingNetwork, "network"), p.id(annotationFloatingSubnet, "subnet")
	if !p.allows(annotationFloatingNetwork, network, "externalNetworkIDs", effect, s.Allowed.ExternalNetworkIDs, []string{s.ExternalNetworkID}) {
		network = ""
	}
	if !p.allows(annotationFloatingSubnet, subnet, "externalSubnetIDs", effect, s.Allowed.ExternalSubnetIDs, []string{s.ExternalSubnetID}) {
		subnet = ""
	}
	return network, subnet
}

// provider returns the provider that the Service names; empty if it names none, or may not name it.
// The provider of an existing load balancer stays: to change it is an interruption.
func (p *planner) provider() string {
	value := p.text(annotationProvider)
	if value != "" && !nameForm.MatchString(value) {
		p.warn(ReasonInvalid, field(annotationProvider), "%q is no name of a provider, and is ignored: write one that 'openstack loadbalancer provider list' prints", clip(value))
		return ""
	}
	effect, stays := leftOut, p.Previous != nil && value != "" && sdn.SameProvider(p.Previous.Provider, value)
	if stays {
		effect = "the existing load balancer stays"
	}
	if p.allows(annotationProvider, value, "providers", effect, p.Settings.Allowed.Providers, []string{p.Settings.Provider}) || stays {
		return value
	}
	return ""
}

// flavor returns the flavor that the Service names; empty if it names none, or may not name it.
func (p *planner) flavor() string {
	value := p.id(annotationFlavor, "loadbalancer flavor")
	if p.allows(annotationFlavor, value, "flavorIDs", leftOut, p.Settings.Allowed.FlavorIDs, []string{p.Settings.FlavorID}) {
		return value
	}
	return ""
}
