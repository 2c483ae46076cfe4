// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Namespace is what a plan needs to know of the Service's namespace. The zero value is a namespace
// whose pods are in the common network and in the common project.
type Namespace struct {
	// ProjectID is the project of the namespace; empty: the common one, that of Settings.
	ProjectID string
	// Subnets are those of the namespace's own network.
	Subnets []Subnet
	// Foreign has the subnets of addresses that are ports of pods in other projects. Known does not
	// have these addresses.
	Foreign map[netip.Addr]string
	// Blocked reports that the project of new load balancers is not known: the author of the
	// namespace asks for what the configuration does not allow, as Faults say. Without Faults it
	// will be known soon.
	Blocked bool
	Faults  []network.Fault
}

// Project is a project of the configuration that namespaces may be in.
type Project struct {
	ID                string
	ExternalNetworkID string // of floating IPs; empty: that of Settings
}

// namespaceField begins the fields of a Service's namespace.
const namespaceField = "namespace"

// OfService reports whether the field belongs to the Service itself.
func (n Note) OfService() bool {
	return n.Field != endpointsField && n.Field != namespaceField && !strings.HasPrefix(n.Field, namespaceField+".")
}

// blocked reports whether the namespace may have no new load balancer. A load balancer in another
// project than the one that the author means would be worse than none. Existing ones go on.
func (p *planner) blocked() bool {
	if !p.Namespace.Blocked {
		return false
	}
	effect := "its Services get no load balancers"
	if p.Previous != nil {
		effect = "the Service's load balancer stays in its project, and further Services get none"
	}
	for _, f := range p.Namespace.Faults {
		p.warn(ReasonNotAllowed, namespaceField+"."+f.Field, "the namespace may not name %q, so %s: %s", clip(f.Value), effect, f.Why)
	}
	return p.Previous == nil
}

// settle sets the project of the load balancers, and the network of floating IPs there.
//
// Nothing in the cloud can be moved to another project. So what exists keeps its project if the
// project of the namespace changes. A change of services.projectID alone goes into the spec, as it
// does without projects of namespaces; the load balancers stay nevertheless.
func (p *planner) settle() {
	s := &p.Settings
	project, external := s.ProjectID, s.ExternalNetworkID
	if own := p.Namespace.ProjectID; own != "" {
		project, external = own, p.externalOf(own)
	}
	if before := p.Previous; before != nil && (p.Namespace.Blocked || p.stays(before.ProjectID, project)) {
		project, external = before.ProjectID, p.externalOf(before.ProjectID)
	}
	if external != s.ExternalNetworkID {
		s.ExternalSubnetID = "" // it is in the common external network
	}
	s.ProjectID, s.ExternalNetworkID = project, external
	s.Members = slices.Concat(s.Members, p.Namespace.Subnets)
}

// stays reports whether what exists in the cloud stays in another project than the one of the
// namespace, and notes it.
func (p *planner) stays(is, wanted string) bool {
	if is == wanted || !p.Made || !p.ofNamespaces(is) && !p.ofNamespaces(wanted) {
		return false
	}
	p.warn(ReasonNotChanged, namespaceField, "the namespace is in %s now, and the Service's load balancer stays in %s, because the cloud cannot move it. "+
		"To have it made again there, delete the Service's KuryrLoadBalancer, which interrupts the Service. To keep it, undo the change", named(wanted), named(is))
	return true
}

// named names a project in a text.
func named(project string) string {
	if project == "" {
		return "the project of Kuryr's credential"
	}
	return "project " + project
}

// ofNamespaces reports whether a project is one that namespaces choose.
func (p *planner) ofNamespaces(project string) bool {
	return project != "" && (project == p.Namespace.ProjectID || slices.ContainsFunc(p.Settings.Projects, func(o Project) bool { return o.ID == project }))
}

// externalOf returns the network of floating IPs of a project.
func (p *planner) externalOf(project string) string {
	for _, o := range p.Settings.Projects {
		if o.ID == project && o.ExternalNetworkID != "" {
			return o.ExternalNetworkID
		}
	}
	return p.Settings.ExternalNetworkID
}

// foreign reports whether an address is the port of a pod in another project, whose subnet the
// Service may not have members in. The author of an EndpointSlice can write any address into it.
// The credential of Kuryr reaches all projects, and some providers put a port of the load balancer
// into the subnet of each member.
func (p *planner) foreign(ip netip.Addr) bool {
	subnet, is := p.Namespace.Foreign[ip]
	return is && !slices.ContainsFunc(p.Settings.Allowed.MemberSubnetIDs, func(id string) bool { return strings.EqualFold(id, subnet) })
}

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

// ParseAddr parses an address of a Service or an endpoint as Kubernetes does. The numbers of an
// IPv4 address may have leading zeros, which old API servers have accepted, and are decimal. An
// IPv4-mapped IPv6 address becomes an IPv4 address.
func ParseAddr(text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		ip, err = netip.ParseAddr(trimZeros(text))
	}
	return ip.Unmap().WithZone(""), err
}

// parsePrefix is ParseAddr for a prefix.
func parsePrefix(text string) (netip.Prefix, error) {
	text = strings.TrimSpace(text)
	ip, bits, slash := strings.Cut(text, "/")
	if slash && !strings.Contains(ip, ":") {
		text = trimZeros(ip) + "/" + bits
	}
	return netip.ParsePrefix(text)
}

func trimZeros(text string) string {
	parts := strings.Split(text, ".")
	for i, p := range parts {
		if parts[i] = strings.TrimLeft(p, "0"); parts[i] == "" && p != "" {
			parts[i] = "0"
		}
	}
	return strings.Join(parts, ".")
}
