// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Bounds of networks that the API types have too (api/v1).
const (
	maxDNSServers  = 16
	maxRoutes      = 64
	maxRanges      = 16
	maxSubnetPools = 2 // Neutron allows one subnet pool for each family of a network
)

func checkNetworks(c *Config, d *decoder) {
	n := &c.Networks
	if n.Mode == "" {
		d.mode("networks.mode", n.Mode)
	}
	checkChoice("networks", &n.NetworkChoice, d)
	for i, mode := range n.AllowedModes {
		d.mode(fmt.Sprintf("networks.allowedModes[%d]", i), mode)
	}
	d.bounds("networks.minFree", int(n.MinFree), 0, maxLevel)
	if c.Pools.Max > 0 && n.MinFree > c.Pools.Max {
		d.fault("networks.minFree", "minFree %d is above pools.max %d: lower minFree, or raise pools.max", n.MinFree, c.Pools.Max)
	}
	checkGiven(n.Given, d)
	d.most("networks.namespaces", len(n.Namespaces))
	for i := range n.Namespaces {
		checkNamespaceNetwork(&n.Namespaces[i], fmt.Sprintf("networks.namespaces[%d]", i), d)
	}
	checkSources(c, d)
}

// checkChoice checks the fields by themselves; an empty field is correct.
func checkChoice(at string, n *NetworkChoice, d *decoder) {
	if n.Mode != "" {
		d.mode(at+".mode", n.Mode)
	}
	d.ids(at+".subnetPoolIDs", n.SubnetPoolIDs, "subnet pool", maxSubnetPools)
	d.ranges(at+".ranges", n.Ranges)
	if n.PrefixLength != 0 {
		d.bounds(at+".prefixLength", n.PrefixLength, 8, 30)
	}
	if n.PrefixLengthIPv6 != 0 {
		d.bounds(at+".prefixLengthIPv6", n.PrefixLengthIPv6, 48, 126)
	}
	checkRouter(at, &n.RouterID, n.Router, d)
	d.addresses(at+".dnsServers", n.DNSServers)
	d.routes(at+".routes", n.Routes)
}

// checkRouter checks the router of networks: one that is there, or one that Kuryr makes.
func checkRouter(at string, id *string, own *Router, d *decoder) {
	d.optional(at+".routerID", id, "router")
	if own == nil {
		return
	}
	if *id != "" {
		d.fault(at+".router", "%s.routerID names a router that is there, and %s.router has Kuryr make another one for each namespace: remove one of the two", at, at)
	}
	if own.ExternalNetworkID == "" {
		d.fault(at+".router.externalNetworkID", "missing: write the ID of the external network that the router has its gateway in (openstack network list --external)")
	} else {
		d.uuid(at+".router.externalNetworkID", &own.ExternalNetworkID, "network")
	}
	d.routes(at+".router.routes", own.Routes)
}

func checkNamespaceNetwork(e *NamespaceNetwork, at string, d *decoder) {
	checkChoice(at, &e.NetworkChoice, d)
	d.selectors(at, map[string]*metav1.LabelSelector{"namespaceSelector": e.NamespaceSelector})
	if reflect.DeepEqual(e.NetworkChoice, NetworkChoice{}) {
		d.fault(at, "it sets nothing: write mode, or another field that is different for these namespaces, or remove the entry")
	}
}

func (d *decoder) mode(path, mode string) {
	switch v1.NetworkMode(mode) {
	case v1.NetworkShared, v1.NetworkNamespace, v1.NetworkFlat:
	case v1.NetworkGiven:
		d.fault(path, "given is no mode to write here: list the network under networks.given, and name it in the annotation %s of a namespace", v1.NetworkAnnotation)
	case "node":
		d.fault(path, "node is no mode to write here: write subnetIDs in an entry of nodes for each group of nodes")
	default:
		d.fault(path, "want shared, namespace or flat, got %q", mode)
	}
}

// checkSources checks that modes namespace and flat, where they are in use, have something to make
// networks of. Whether each namespace has it depends on labels: its KuryrNetwork reports that, and
// also a range that is smaller than the prefixes to choose from it.
func checkSources(c *Config, d *decoder) {
	n := &c.Networks
	pools, ranges := len(n.SubnetPoolIDs) > 0, len(n.Ranges) > 0
	for _, e := range n.Namespaces {
		pools, ranges = pools || len(e.SubnetPoolIDs) > 0, ranges || len(e.Ranges) > 0
	}
	for _, p := range c.Projects {
		pools = pools || len(p.SubnetPoolIDs) > 0
	}
	check := func(at, mode string) {
		switch {
		case mode == string(v1.NetworkNamespace) && !pools:
			d.fault(at, "mode namespace needs subnet pools: write networks.subnetPoolIDs, one for each address family (openstack subnet pool list)")
		case mode == string(v1.NetworkFlat) && !ranges:
			d.fault(at, "mode flat needs ranges: write networks.ranges, as in [10.0.0.0/8], which holds 256 prefixes of length 16")
		}
	}
	check("networks.mode", n.Mode)
	for i, mode := range n.AllowedModes {
		check(fmt.Sprintf("networks.allowedModes[%d]", i), mode)
	}
	for i := range n.Namespaces {
		check(fmt.Sprintf("networks.namespaces[%d].mode", i), n.Namespaces[i].Mode)
	}
}

func checkGiven(given []GivenNetwork, d *decoder) {
	d.most("networks.given", len(given))
	seen := map[string]int{}
	for i, g := range given {
		at := fmt.Sprintf("networks.given[%d]", i)
		if len(validation.IsDNS1123Label(g.Name)) > 0 {
			d.fault(at+".name", "%q is no name of a given network: write 1 to 63 small letters, digits or '-', as in storage", g.Name)
		} else if first, twice := seen[g.Name]; twice {
			d.fault(at+".name", "the same name as networks.given[%d]: write another one", first)
		} else {
			seen[g.Name] = i
		}
		d.optional(at+".networkID", &given[i].NetworkID, "network")
		if len(g.SubnetIDs) == 0 {
			d.fault(at+".subnetIDs", "missing: write the ID of the network's subnet that pods get their address of, or of one IPv4 and one IPv6 subnet")
		}
		d.ids(at+".subnetIDs", g.SubnetIDs, "subnet", maxAddresses)
		d.selector(at+".namespaceSelector", g.NamespaceSelector)
	}
}

func checkProjects(projects []Project, cloud string, d *decoder) {
	d.most("projects", len(projects))
	seen, clouds := map[string]int{}, map[string]string{cloud: "neutron.cloud"}
	for i, p := range projects {
		at := fmt.Sprintf("projects[%d]", i)
		if p.ProjectID == "" {
			d.fault(at+".projectID", "missing: write what 'openstack project show -c id NAME' prints")
		} else if first, twice := seen[p.ProjectID]; twice {
			d.fault(at+".projectID", "the same project as projects[%d]: a project has one entry", first)
		} else {
			seen[p.ProjectID] = i
		}
		d.project(at+".projectID", p.ProjectID)
		if first, twice := clouds[p.Cloud]; twice && p.Cloud != "" {
			d.fault(at+".cloud", "the same entry of clouds.yaml as %s: a credential is of one project", first)
		}
		clouds[p.Cloud] = at + ".cloud"
		d.ids(at+".securityGroupIDs", p.SecurityGroupIDs, "security group", maxGroups)
		d.ids(at+".subnetPoolIDs", p.SubnetPoolIDs, "subnet pool", maxSubnetPools)
		checkRouter(at, &projects[i].RouterID, p.Router, d)
		d.optional(at+".externalNetworkID", &projects[i].ExternalNetworkID, "network")
		d.selector(at+".namespaceSelector", p.NamespaceSelector)
		d.selector(at+".allowedNamespaces", p.AllowedNamespaces)
	}
}

// selector checks a selector that may be left out.
func (d *decoder) selector(path string, s *metav1.LabelSelector) {
	if s == nil {
		return
	}
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		d.fault(path, "it selects nothing: %v", err)
	}
}

// providerForm is what Octavia takes as the name of a provider.
var providerForm = regexp.MustCompile(`^[0-9A-Za-z._-]{1,255}$`)

// maxAllowed is how many of a kind annotations may name.
const maxAllowed = 1000

func checkServices(s *Services, d *decoder) {
	d.project("services.projectID", s.ProjectID)
	d.ids("services.subnetIDs", s.SubnetIDs, "subnet", maxAddresses)
	d.ids("services.nodeSubnetIDs", s.NodeSubnetIDs, "subnet", maxAddresses)
	if s.Provider != "" && !providerForm.MatchString(s.Provider) {
		d.fault("services.provider", noProvider+", or leave it out for the cloud's default", s.Provider)
	}
	d.optional("services.flavorID", &s.FlavorID, "loadbalancer flavor")
	d.optional("services.externalNetworkID", &s.ExternalNetworkID, "network")
	d.optional("services.externalSubnetID", &s.ExternalSubnetID, "subnet")
	if s.ExternalSubnetID != "" && s.ExternalNetworkID == "" {
		d.fault("services.externalNetworkID", "missing: write the ID of the network that externalSubnetID is of")
	}
	checkAllowed(s.Allowed, d)
	d.between("services.checkInterval", s.CheckInterval, 10*time.Second, 24*time.Hour)
	if s.ReleaseAfter.Duration != 0 {
		d.between("services.releaseAfter", s.ReleaseAfter, time.Minute, 24*time.Hour)
	}
}

const noProvider = "%q is no name of a provider: write one that 'openstack loadbalancer provider list' prints"

func checkAllowed(a Allowed, d *decoder) {
	const path = "services.allowed."
	d.ids(path+"memberSubnetIDs", a.MemberSubnetIDs, "subnet", maxAllowed)
	d.ids(path+"externalNetworkIDs", a.ExternalNetworkIDs, "network", maxAllowed)
	d.ids(path+"externalSubnetIDs", a.ExternalSubnetIDs, "subnet", maxAllowed)
	d.ids(path+"flavorIDs", a.FlavorIDs, "loadbalancer flavor", maxAllowed)
	d.few(path+"providers", len(a.Providers), maxAllowed)
	for i, p := range a.Providers {
		if !providerForm.MatchString(p) {
			d.fault(fmt.Sprintf("%sproviders[%d]", path, i), noProvider, p)
		}
	}
}

func (d *decoder) project(path, id string) {
	if id != "" && !projectForm.MatchString(id) {
		d.fault(path, "%q is no ID of a project: write what 'openstack project show -c id NAME' prints", id)
	}
}

// ranges checks prefixes of a list, none of which may overlap with another one.
func (d *decoder) ranges(path string, texts []string) {
	d.few(path, len(texts), maxRanges)
	parsed := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		if parsed[i] = d.prefix(at, text, "10.0.0.0/8 or fd00:10::/48"); !parsed[i].IsValid() {
			continue
		}
		for j, other := range parsed[:i] {
			if other.IsValid() && other.Overlaps(parsed[i]) {
				d.fault(at, "%s overlaps with %s, which is %s[%d]: remove one", text, texts[j], path, j)
				break
			}
		}
	}
}

// prefix returns the prefix that text is the usual form of; zero, with a fault, if of none.
func (d *decoder) prefix(path, text, example string) netip.Prefix {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		d.fault(path, "%q is no prefix: write it as in %s", text, example)
	case p.Masked().String() != text:
		d.fault(path, "%q has bits behind the prefix, or is not its shortest form: write %s", text, p.Masked())
	default:
		return p
	}
	return netip.Prefix{}
}

func (d *decoder) address(path, text, example string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		d.fault(path, "%q is no IP address: write one as in %s", text, example)
		return netip.Addr{}
	}
	return a
}

// addresses checks the IP addresses of DNS servers.
func (d *decoder) addresses(path string, texts []string) {
	d.few(path, len(texts), maxDNSServers)
	seen := map[netip.Addr]int{}
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		a := d.address(at, text, "10.96.0.10 or fd00:96::a")
		if first, twice := seen[a]; twice && a.IsValid() {
			d.fault(at, "the same address as %s[%d]: remove one", path, first)
			continue
		}
		seen[a] = i
	}
}

func (d *decoder) routes(path string, routes []Route) {
	d.few(path, len(routes), maxRoutes)
	for i, r := range routes {
		at := fmt.Sprintf("%s[%d]", path, i)
		to := d.prefix(at+".destination", r.Destination, "192.0.2.0/24")
		by := d.address(at+".gateway", r.Gateway, "10.7.0.254")
		if to.IsValid() && by.IsValid() && to.Addr().Is4() != by.Is4() {
			d.fault(at+".gateway", "%s is not of the IP family of destination %s: write an address of that family", r.Gateway, r.Destination)
		}
	}
}
