// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// names returns the names of namespaces.
func names(all []Namespace) []string {
	out := make([]string, 0, len(all))
	for _, n := range all {
		out = append(out, n.Name)
	}
	slices.Sort(out)
	return out
}

// routersOfNamespaces returns the configured routers, each once, with the first field that has it.
func (f *Facts) routersOfNamespaces() []Named {
	var out []Named
	for _, r := range f.Config.Routers {
		if !slices.ContainsFunc(out, func(o Named) bool { return o.ID == r.ID }) {
			out = append(out, r)
		}
	}
	return out
}

func networkRouterMissing(f *Facts, k Kind) []Finding {
	var out []Finding
	routers := f.routersOfNamespaces()
	if err := f.Networks.Routers.Err; err != nil && len(routers) > 0 {
		return k.unknown("routers of networks", "they exist", err)
	}
	for _, r := range routers {
		if _, ok := f.Networks.Routers.Value[r.ID]; !ok {
			out = append(out, k.missing("router "+r.ID, r.Field, "Networks of namespaces that should be on it do not become ready, and their pods wait.", "openstack router list"))
		}
	}
	without := slices.DeleteFunc(slices.Clone(f.Cluster.Namespaces.Value), func(n Namespace) bool { return !n.makes() || n.RouterID != "" || n.Router != nil })
	if len(without) > 0 {
		out = append(out, k.warning("networks.routerID", fmt.Sprintf(
			"The configuration has no router for the networks of %s. Their pods reach neither Services nor anything outside of their network.", several("namespace", names(without))),
			"openstack router list", editConfig))
	}
	for _, r := range f.Config.OwnRouters {
		out = append(out, f.notExternal(k, r.ID, r.Field, "Kuryr makes no routers with a gateway there, and the pods of their namespaces wait.")...)
	}
	return out
}

// ownRouterWithoutRoute reports namespaces whose own router has no route to a subnet of cluster IPs.
// The gateway of the external network may have one, which no fact shows.
func ownRouterWithoutRoute(f *Facts, k Kind) []Finding {
	if !f.serves() {
		return nil
	}
	var out []Finding
	for _, vips := range f.subnets(f.Config.ServiceSubnetIDs) {
		var all []Namespace
		for _, n := range f.Cluster.Namespaces.Value {
			if n.makes() && n.Router != nil && n.families()[vips.Prefix.Addr().BitLen()] && !routes(sdn.Router{Routes: n.Router.Routes}, vips.Prefix) {
				all = append(all, n)
			}
		}
		if len(all) > 0 {
			out = append(out, k.warning("networks.router", fmt.Sprintf(
				"The router that Kuryr makes for %s has no route to subnet %s of %s. Unless the gateway of its external network has one, the pods reach neither Services nor the cluster's DNS.",
				several("namespace", names(all)), named(vips.ID, vips.Name), fieldServices),
				"openstack router show -c external_gateway_info ROUTER # of the cluster IPs: its address is the gateway of a route to "+vips.Prefix.String()+" in router.routes", editConfig))
		}
	}
	return out
}

func networkRouterWithoutGateway(f *Facts, k Kind) []Finding {
	var out []Finding
	for _, at := range f.routersOfNamespaces() {
		r, ok := f.Networks.Routers.Value[at.ID]
		if !ok || r.ExternalNetwork != "" {
			continue
		}
		public := cmp.Or(f.Config.ExternalNetworkID, "PUBLIC")
		out = append(out, k.found("router "+r.ID+" of "+at.Field, fmt.Sprintf(
			"Router %s has no gateway to an external network. Pods of the namespaces on it reach nothing outside, and nodes that are outside do not reach the pods, as for probes.", named(r.ID, r.Name)),
			fmt.Sprintf("openstack router set --external-gateway %s %s # --disable-snat where nodes are outside: see docs/services-howto.md", public, r.ID)))
	}
	return out
}

// serviceInterfaceMissing reports routers of pods that have no interface in a subnet of cluster IPs. The common
// pods' routers are the subject of RoutersDiffer.
func serviceInterfaceMissing(f *Facts, k Kind) []Finding {
	if !f.serves() || !f.routed() {
		return nil
	}
	out := ownRouterWithoutRoute(f, k)
	all := f.routersOfNamespaces()
	for _, g := range f.Config.Given {
		for _, s := range g.SubnetIDs {
			for _, id := range f.routersOf(s) {
				all = append(all, Named{g.Field, id})
			}
		}
	}
	if err := f.Networks.RouterInterfaces.Err; err != nil && len(all) > 0 {
		return append(out, k.unknown("routers of networks", "they have ports in the subnets of "+fieldServices, err)...)
	}
	seen := map[string]bool{}
	for _, at := range all {
		r, ok := f.Networks.Routers.Value[at.ID]
		if seen[at.ID] || !ok {
			continue // see networkRouterMissing
		}
		seen[at.ID] = true
		for _, vips := range f.subnets(f.Config.ServiceSubnetIDs) {
			on := f.routersOf(vips.ID)
			if len(on) == 0 || slices.Contains(on, r.ID) || routes(r, vips.Prefix) {
				continue // without any: see serviceSubnetNotRouted
			}
			out = append(out, k.found("router "+r.ID+" of "+at.Field, fmt.Sprintf(
				"Router %s has neither a port in subnet %s of %s nor a route to it. Pods behind the router do not reach Services, nor the cluster's DNS.",
				named(r.ID, r.Name), named(vips.ID, vips.Name), fieldServices),
				fmt.Sprintf("openstack port create --network %s --fixed-ip subnet=%s --disable-port-security services-%s", vips.NetworkID, vips.ID, r.ID),
				fmt.Sprintf("openstack router add port %s services-%s", r.ID, r.ID)))
		}
	}
	return out
}

// routes reports whether a route of a router covers a prefix.
func routes(r sdn.Router, to netip.Prefix) bool {
	return leads(sdn.SurveyedSubnet{Routes: r.Routes}, to)
}

// givenNetworkMissing also reports subnets that are not of one network.
func givenNetworkMissing(f *Facts, k Kind) []Finding {
	var out []Finding
	for _, g := range f.Config.Given {
		out = append(out, missingSubnets(f, k, g.Field, g.SubnetIDs, "Pods that should be in it wait.")...)
		out = append(out, f.notOfOne(k, g.Field, g.NetworkID, g.SubnetIDs)...)
	}
	return out
}

func givenNetworkNotRouted(f *Facts, k Kind) []Finding {
	if !f.serves() {
		return nil
	}
	var out []Finding
	for _, g := range f.Config.Given {
		out = append(out, f.notRouted(k, g.Field, g.SubnetIDs, "Its pods do not reach cluster IPs, and load balancers do not reach its pods.")...)
	}
	return out
}

func projectMissing(f *Facts, k Kind) []Finding {
	if err := f.Networks.Projects.Err; err != nil && len(f.Config.Projects) > 0 {
		return k.unknown("projects", "they exist", err)
	}
	var out []Finding
	for _, p := range f.Config.Projects {
		enabled, ok := f.Networks.Projects.Value.Enabled[p.ID]
		switch {
		case enabled || !ok && slices.Contains(f.Networks.Projects.Value.Hidden, p.ID):
		case ok:
			out = append(out, k.found("project "+p.ID+" of "+p.Field, "Project "+p.ID+" is disabled. What Kuryr has to make in it may be refused, and its users cannot log in.",
				"openstack project set --enable "+p.ID))
		default:
			out = append(out, k.found("project "+p.ID+" of "+p.Field, "Keystone has no project "+p.ID+". Namespaces in it get networks and ports that belong to nobody.",
				"openstack project list", editConfig))
		}
	}
	return out
}

// projectCredentialRefused reports projects with a credential of their own that cannot be used.
func projectCredentialRefused(f *Facts, k Kind) []Finding {
	var out []Finding
	for _, p := range f.Config.Projects {
		err := f.Networks.Credentials[p.ID]
		field := strings.TrimSuffix(p.Field, ".projectID") + ".cloud"
		switch {
		case err == nil:
		case errors.Is(err, sdn.ErrUnavailable):
			out = append(out, k.unknown("project "+p.ID+" of "+field, "the credential of project "+p.ID+" can be used", err)...)
		default:
			out = append(out, k.found("project "+p.ID+" of "+field, fmt.Sprintf(
				"The credential of project %s cannot be used, so nothing is made in the project and its namespaces wait: %s.", p.ID, err),
				"openstack project show "+p.ID, "kubectl -n kuryr-system edit secret kuryr-cloud # "+field+" names the entry of clouds.yaml", editConfig))
		}
	}
	return out
}

// families returns the IP families of the prefixes that a namespace's network gets. Those of subnet
// pools are not read: one is taken for IPv4, and another one for IPv6.
func (n *Namespace) families() map[int]bool {
	out := map[int]bool{32: len(n.SubnetPoolIDs) > 0, 128: len(n.SubnetPoolIDs) > 1}
	for _, r := range n.Ranges {
		out[r.Addr().BitLen()] = true
	}
	return out
}

var errNoNamespaces = errors.New("the namespaces were not read")

// needNamespaces is for what depends on the namespaces that exist.
func needNamespaces(f *Facts) error {
	if f.Cluster.Namespaces.Err != nil {
		return fmt.Errorf("%w: %w", errNoNamespaces, f.Cluster.Namespaces.Err)
	}
	return nil
}

func needRoutersOfNamespaces(f *Facts) error {
	if len(f.Config.Routers) == 0 || !f.routed() {
		return nil
	}
	return f.Networks.Routers.Err
}
