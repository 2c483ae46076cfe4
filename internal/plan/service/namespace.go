// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/plan/network"
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
