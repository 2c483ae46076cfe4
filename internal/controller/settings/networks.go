// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/plan/network"
)

// networkRules is the configuration of networks and projects, with compiled selectors.
type networkRules struct {
	namespaces []labels.Selector // of Networks.Namespaces, in the same order
	given      []labels.Selector // of Networks.Given
	projects   []labels.Selector // of Projects; nothing for an entry without a selector
	allowed    []labels.Selector // of Projects' AllowedNamespaces
}

// compileNetworks compiles the selectors of networks and projects.
func (r *Rules) compileNetworks() {
	modes := append([]string{r.Networks.Mode}, r.Networks.AllowedModes...)
	for _, n := range r.Networks.Namespaces {
		r.networks.namespaces = append(r.networks.namespaces, selector(n.NamespaceSelector))
		modes = append(modes, n.Mode)
	}
	for _, g := range r.Networks.Given {
		r.networks.given = append(r.networks.given, selector(g.NamespaceSelector))
	}
	for _, p := range r.Projects {
		s := labels.Nothing()
		if p.NamespaceSelector != nil {
			s = selector(p.NamespaceSelector)
		}
		r.networks.projects = append(r.networks.projects, s)
		r.networks.allowed = append(r.networks.allowed, selector(p.AllowedNamespaces))
	}
	apart := slices.ContainsFunc(modes, func(m string) bool { return modeOf(m) != v1.NetworkShared })
	r.RoutersByNamespace = r.Networks.Router != nil ||
		slices.ContainsFunc(r.Networks.Namespaces, func(n config.NamespaceNetwork) bool { return n.Router != nil }) ||
		slices.ContainsFunc(r.Projects, func(p config.Project) bool { return p.Router != nil })
	r.NetworksByNamespace = apart || len(r.Networks.Given) > 0 || len(r.Projects) > 0
}

// modeOf returns the mode that a field of the configuration says.
func modeOf(s string) v1.NetworkMode { return v1.NetworkMode(cmp.Or(s, string(v1.NetworkShared))) }

// Network returns where the pods of a namespace get their network. It depends on the configuration,
// the labels and the annotations of the namespace only. A configuration without networks and projects
// is no other case: a namespace that names a project then names one that is not listed.
//
// The caller must not change the slices of the choice.
func (r *Rules) Network(ns *metav1.PartialObjectMetadata) network.Choice {
	c := network.Choice{Mode: v1.NetworkShared, ProjectID: r.Pods.ProjectID}
	c.SecurityGroupIDs, c.ExternalNetworkID = r.Pods.SecurityGroupIDs, r.Services.ExternalNetworkID
	said := r.chosen(labels.Set(ns.Labels))
	project := r.project(&c, ns)
	if project != nil {
		c.ProjectID = project.ProjectID
		c.ExternalNetworkID = cmp.Or(project.ExternalNetworkID, c.ExternalNetworkID)
		if project.SecurityGroupIDs != nil {
			c.SecurityGroupIDs = project.SecurityGroupIDs
		}
		said.RouterID, said.Router = router(project.RouterID, project.Router, said.RouterID, said.Router)
		said.SubnetPoolIDs = either(project.SubnetPoolIDs, said.SubnetPoolIDs)
	}
	c.Mode = r.mode(&c, ns, modeOf(said.Mode))
	r.fill(&c, &said)
	now, labelled := ns.Labels[v1.NetworkNowLabel]
	c.Now = labelled && now != "false"
	groups := project != nil && project.SecurityGroupIDs != nil
	c.Common = !c.Blocked && c.Mode == v1.NetworkShared && c.ProjectID == r.Pods.ProjectID && !groups
	return c
}

// chosen returns the configured choice for namespaces with these labels: of each field the first
// entry that selects the namespace and says it, else that of Networks.
func (r *Rules) chosen(namespace labels.Set) config.NetworkChoice {
	var c config.NetworkChoice
	for i, s := range r.networks.namespaces {
		if s.Matches(namespace) {
			c = refine(c, &r.Networks.Namespaces[i].NetworkChoice)
		}
	}
	return refine(c, &r.Networks.NetworkChoice)
}

// refine returns c with the fields of next where c says nothing.
func refine(c config.NetworkChoice, next *config.NetworkChoice) config.NetworkChoice {
	id, own := router(c.RouterID, c.Router, next.RouterID, next.Router)
	return config.NetworkChoice{
		Mode:             cmp.Or(c.Mode, next.Mode),
		SubnetPoolIDs:    either(c.SubnetPoolIDs, next.SubnetPoolIDs),
		Ranges:           either(c.Ranges, next.Ranges),
		PrefixLength:     cmp.Or(c.PrefixLength, next.PrefixLength),
		PrefixLengthIPv6: cmp.Or(c.PrefixLengthIPv6, next.PrefixLengthIPv6),
		RouterID:         id,
		Router:           own,
		DNSServers:       either(c.DNSServers, next.DNSServers),
		Routes:           either(c.Routes, next.Routes),
	}
}

// router returns the first of two choices that says anything of a router: either the ID of one, or
// how Kuryr makes one.
func router(id string, own *config.Router, nextID string, next *config.Router) (string, *config.Router) {
	if id != "" || own != nil {
		return id, own
	}
	return nextID, next
}

// either returns the first of two lists that has an element.
func either[T any](a, b []T) []T {
	if len(a) > 0 {
		return a
	}
	return b
}

// project returns the project of a namespace; nil is the common project without anything special.
// A namespace that a project selects is in the first that does, or in another one that selects it by
// its annotation. It cannot leave these: the administrator has put it there. Any other namespace is
// in the project that its annotation names. One that the configuration does not list for it blocks
// the choice: its author means to keep the pods apart from the pods of others.
func (r *Rules) project(c *network.Choice, ns *metav1.PartialObjectMetadata) *config.Project {
	id, named := ns.Annotations[v1.ProjectAnnotation]
	set := labels.Set(ns.Labels)
	var selected *config.Project
	for i := range r.Projects {
		p := &r.Projects[i]
		switch {
		case !r.networks.projects[i].Matches(set):
		case !named || p.ProjectID == id:
			return p
		case selected == nil:
			selected = p
		}
	}
	if selected != nil {
		refuse(c, v1.ProjectAnnotation, id, fmt.Sprintf("the configuration puts the namespace in project %s by its labels, so it is there. Remove the annotation, or have the administrator change projects[].namespaceSelector in Kuryr's configuration", selected.ProjectID))
		return selected
	}
	if !named {
		return nil
	}
	if i := slices.IndexFunc(r.Projects, func(p config.Project) bool { return p.ProjectID == id }); i >= 0 {
		if r.networks.allowed[i].Matches(set) {
			return &r.Projects[i]
		}
		c.Blocked = true
		refuse(c, v1.ProjectAnnotation, id, "the configuration does not allow this project for this namespace. Write another one, or have the administrator change projects[].allowedNamespaces in Kuryr's configuration")
	} else if id != r.Pods.ProjectID {
		c.Blocked = true
		refuse(c, v1.ProjectAnnotation, id, "the configuration does not list this project. Write one of its projects, or have the administrator add this one to projects in Kuryr's configuration")
	}
	return nil
}

// HasCredential reports whether a project has a credential of its own.
func (r *Rules) HasCredential(projectID string) bool {
	return slices.ContainsFunc(r.Projects, func(p config.Project) bool { return p.Cloud != "" && p.ProjectID == projectID })
}

// GroupsIn returns the security groups of pods in a project.
func (r *Rules) GroupsIn(projectID string) []string {
	for i := range r.Projects {
		if p := &r.Projects[i]; p.ProjectID == projectID && p.SecurityGroupIDs != nil {
			return p.SecurityGroupIDs
		}
	}
	return r.Pods.SecurityGroupIDs
}

// AllSubnetIDs returns the existing subnets that pods may have addresses of: those that the
// configuration lists.
func (r *Rules) AllSubnetIDs() []string {
	all := r.Pods.AllSubnetIDs()
	for i := range r.Nodes {
		all = append(all, r.Nodes[i].SubnetIDs...)
	}
	for i := range r.Networks.Given {
		all = append(all, r.Networks.Given[i].SubnetIDs...)
	}
	return all
}

// mode returns the mode of a namespace, given the one that the configuration says. It sets the
// existing network that the namespace names.
func (r *Rules) mode(c *network.Choice, ns *metav1.PartialObjectMetadata, configured v1.NetworkMode) v1.NetworkMode {
	wish, wished := ns.Annotations[v1.NetworkModeAnnotation]
	if name, named := ns.Annotations[v1.NetworkAnnotation]; named {
		if wished && wish != string(v1.NetworkGiven) {
			refuse(c, v1.NetworkModeAnnotation, wish, "the namespace also names a network by annotation "+v1.NetworkAnnotation+", which counts. Remove one of the two")
		}
		return r.given(c, ns, name)
	}
	switch {
	case !wished || wish == string(configured):
	case wish == string(v1.NetworkGiven):
		refuse(c, v1.NetworkModeAnnotation, wish, "the namespace names no network. Name one by annotation "+v1.NetworkAnnotation)
	case slices.Contains(r.Networks.AllowedModes, wish):
		return v1.NetworkMode(wish)
	default:
		refuse(c, v1.NetworkModeAnnotation, wish, fmt.Sprintf("the configuration does not allow this mode, so the mode is %s. Write %s, or have the administrator add the mode to networks.allowedModes in Kuryr's configuration",
			configured, strings.Join(append([]string{string(configured)}, r.Networks.AllowedModes...), " or ")))
	}
	return configured
}

// given sets the existing network that a namespace names. A network that the namespace may not have
// blocks the choice: the namespace's pods are to be in no other.
func (r *Rules) given(c *network.Choice, ns *metav1.PartialObjectMetadata, name string) v1.NetworkMode {
	for i, g := range r.Networks.Given {
		if g.Name == name && r.networks.given[i].Matches(labels.Set(ns.Labels)) {
			c.NetworkID, c.SubnetIDs = g.NetworkID, g.SubnetIDs
			return v1.NetworkGiven
		}
	}
	c.Blocked = true
	refuse(c, v1.NetworkAnnotation, name, "the configuration lists no network of this name for this namespace. Write another one, or have the administrator add it to networks.given in Kuryr's configuration")
	return v1.NetworkGiven
}

// refuse notes that the value of an annotation is not fulfilled.
func refuse(c *network.Choice, annotation, value, message string) {
	c.Faults = append(c.Faults, network.Fault{Field: "metadata.annotations[" + annotation + "]", Value: value, Why: message})
}

// fill sets what a choice of c.Mode has besides its project.
func (r *Rules) fill(c *network.Choice, said *config.NetworkChoice) {
	switch c.Mode {
	case v1.NetworkShared:
		c.SubnetIDs = r.Pods.SubnetIDs
		return
	case v1.NetworkGiven:
		return
	case v1.NetworkNamespace:
		c.SubnetPoolIDs = said.SubnetPoolIDs
	case v1.NetworkFlat:
		c.Ranges = prefixes(said.Ranges)
	}
	c.PrefixLength, c.PrefixLengthIPv6 = said.PrefixLength, said.PrefixLengthIPv6
	c.RouterID, c.DNSServers = said.RouterID, said.DNSServers
	c.Routes, c.Router = said.Routes, said.Router
}

// prefixes parses configured prefixes. Package config rejects invalid ones.
func prefixes(list []string) (out []netip.Prefix) {
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}
