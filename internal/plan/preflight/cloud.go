// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// need is an extension of Neutron, and what it is for.
type need struct {
	alias, what string
	all         bool // all pods or all Services need it
}

// needed are extensions without which a part of Kuryr does not work. Routers are none: see routed.
func (f *Facts) needed() []need {
	needs := []need{
		{"binding", "binding ports to nodes", true}, {"security-group", "security groups of ports", true},
	}
	if f.public() {
		needs = append(needs, need{"external-net", "floating IPs", true})
	}
	all := func(vifType string) bool {
		return !slices.ContainsFunc(f.Cluster.Nodes.Value, func(n Node) bool { return n.VIFType != vifType })
	}
	if f.Config.Trunks {
		needs = append(needs, need{"trunk", "nodes of vifType vlan", all("vlan")})
	}
	if f.Config.Pairs {
		needs = append(needs, need{"allowed-address-pairs", "nodes of vifType macvlan", all("macvlan")})
	}
	return needs
}

func extensionMissing(f *Facts, k Kind) []Finding {
	if err := f.Networks.Extensions.Err; err != nil {
		return k.unknown("extensions of Neutron", "Neutron has those that Kuryr needs", err)
	}
	var out []Finding
	for _, n := range f.needed() {
		if !slices.Contains(f.Networks.Extensions.Value, n.alias) {
			out = append(out, k.ifAll(n.all).found("extension "+n.alias, fmt.Sprintf("Neutron does not have the extension %s, which is needed for %s.", n.alias, n.what),
				"openstack extension list --network # then service_plugins and extension_drivers of neutron.conf"))
		}
	}
	return out
}

// bindingHidden reports a credential that most likely may not bind ports. What it may write cannot
// be read; Neutron's policies show the host of a port to those who may choose it.
func bindingHidden(f *Facts, k Kind) []Finding {
	shown := f.Networks.BindsShown
	nodes := f.Cluster.Nodes.Value
	virtual := len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n Node) bool { return !n.Virtual })
	if shown == nil || *shown || virtual {
		return nil
	}
	return []Finding{k.found("credential", "Neutron does not show the credential the host of ports (binding:host_id). Most likely it may not bind ports to nodes: then pods get no ports. "+
		"Newer Neutron permits it to the role service, an older one by the policies in docs/neutron.md or to admins of the whole cloud.",
		"openstack role add --user USER --project PROJECT service # and member; make an application credential again")}
}

func securityGroupMissing(f *Facts, k Kind) []Finding {
	fields := map[string]string{}
	for _, g := range append(slices.Clone(f.Config.Groups), Groups{"pods.securityGroups", f.Config.MoreGroupIDs}, Groups{"pods.securityGroupIDs", f.Config.SecurityGroupIDs}) {
		for _, id := range g.IDs {
			fields[id] = g.Field
		}
	}
	ids := slices.Sorted(maps.Keys(fields))
	if err := f.Networks.SecurityGroups.Err; err != nil && len(ids) > 0 {
		return k.unknown("pods.securityGroupIDs", "the security groups exist", err)
	}
	var out []Finding
	for _, id := range ids {
		if _, ok := f.Networks.SecurityGroups.Value[id]; ok {
			continue
		}
		own := k.ifAll(slices.Contains(f.Config.SecurityGroupIDs, id))
		out = append(out, own.missing("security group "+id, fields[id], "Pods that should have it get no ports.", "openstack security group list"))
	}
	return out
}

func securityGroupsEmpty(f *Facts, k Kind) []Finding {
	if len(f.Config.SecurityGroupIDs) > 0 {
		return nil
	}
	if err := cmp.Or(f.Networks.Subnets.Err, f.Networks.Networks.Err); err != nil {
		return k.unknown("pods.securityGroupIDs", "pods need security groups", err)
	}
	if n, _ := f.network(f.Config.PodSubnetIDs()); n.Unfiltered {
		return nil
	}
	remedy := append([]string{"openstack security group create kuryr-pods"}, f.groupRules()...)
	return []Finding{k.found("pods.securityGroupIDs", "pods.securityGroupIDs is empty: the ports of pods pass no traffic, unless an entry of pods.securityGroups selects the pod.",
		append(remedy, editConfig)...)}
}

// groupRules are commands that let pods, Services and nodes in.
func (f *Facts) groupRules() []string {
	from := slices.Clone(f.Cluster.ServiceCIDRs.Value)
	for _, s := range f.subnets(f.Config.PodSubnetIDs()) {
		from = append(from, s.Prefix)
	}
	var out []string
	for _, p := range from {
		out = append(out, ruleCommand(p, "kuryr-pods"))
	}
	return append(out, "openstack security group rule create --protocol any --remote-ip CIDR_OF_NODES kuryr-pods")
}
