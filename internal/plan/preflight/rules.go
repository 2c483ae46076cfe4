// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// sender is who has to reach pods.
type sender struct {
	prefix netip.Prefix
	what   string
	node   bool
}

// senders are nodes, for probes and node ports, the other pods, and the cluster IPs: a pod that
// reaches itself by a Service has the cluster IP as its sender with OVN's provider.
func (f *Facts) senders() []sender {
	var out []sender
	families := map[int]bool{}
	for _, s := range f.subnets(f.Config.PodSubnetIDs()) {
		families[s.Prefix.Addr().BitLen()] = true
		out = append(out, sender{s.Prefix, "pods (" + s.Prefix.String() + ")", false})
	}
	if f.serves() && sdn.SameProvider(f.Config.Provider, "ovn") {
		for _, p := range f.Cluster.ServiceCIDRs.Value {
			out = append(out, sender{p, "cluster IPs (" + p.String() + ")", false})
		}
	}
	for _, n := range f.Cluster.Nodes.Value {
		for _, a := range n.Addresses {
			out = append(out, sender{netip.PrefixFrom(a, a.BitLen()), "node " + n.Name + " (" + a.String() + ")", true})
		}
	}
	return slices.DeleteFunc(out, func(s sender) bool { return !families[s.prefix.Addr().BitLen()] })
}

// admits reports whether groups let in anything of a sender: an administrator may have opened single
// ports.
func (f *Facts) admits(groups []string, from sender) bool {
	return slices.ContainsFunc(groups, func(id string) bool {
		return slices.ContainsFunc(f.Networks.SecurityGroups.Value[id].In, func(r sdn.SurveyedRule) bool {
			return r.IPv6 == from.prefix.Addr().Is6() && f.remote(r, from)
		})
	})
}

// remote reports whether a rule is for all of a sender. A security group as the sender is for pods:
// which of them have it is not looked at.
func (f *Facts) remote(r sdn.SurveyedRule, from sender) bool {
	if r.RemoteGroup != "" {
		return slices.ContainsFunc(f.subnets(f.Config.PodSubnetIDs()), func(s sdn.SurveyedSubnet) bool { return s.Prefix == from.prefix })
	}
	return !r.Remote.IsValid() || r.Remote.Bits() <= from.prefix.Bits() && r.Remote.Contains(from.prefix.Addr())
}

// securityGroupRuleMissing looks at the groups that pods have by default. Other groups may be closed
// on purpose.
func securityGroupRuleMissing(f *Facts, k Kind) []Finding {
	if n, _ := f.network(f.Config.PodSubnetIDs()); n.Unfiltered || f.Networks.SecurityGroups.Err != nil {
		return nil // see needRules
	}
	const most = 20 // commands in one finding
	var out []Finding
	for i, set := range append([]Groups{{"pods.securityGroupIDs", f.Config.SecurityGroupIDs}}, f.Config.Groups...) {
		if len(set.IDs) == 0 || !f.known(set.IDs) {
			continue
		}
		var who, commands []string
		for _, s := range f.senders() {
			if (i == 0 || s.node) && !f.admits(set.IDs, s) { // a project may keep out the pods of others
				who = append(who, s.what)
				commands = append(commands, ruleCommand(s.prefix, set.IDs[0]))
			}
		}
		if len(who) > 0 {
			out = append(out, k.found("security groups of "+set.Field, fmt.Sprintf(
				"Security groups %s let in nothing from %s. Probes of nodes fail, or Services do not answer.", list(set.IDs), list(who)), commands[:min(len(commands), most)]...))
		}
	}
	return out
}

// known reports whether the cloud shows all of these groups.
func (f *Facts) known(groups []string) bool {
	return !slices.ContainsFunc(groups, func(id string) bool {
		_, ok := f.Networks.SecurityGroups.Value[id]
		return !ok
	})
}

// ruleCommand is the command that lets all traffic from somewhere into a group.
func ruleCommand(from netip.Prefix, group string) string {
	family := ""
	if from.Addr().Is6() {
		family = " --ethertype IPv6"
	}
	return fmt.Sprintf("openstack security group rule create --protocol any%s --remote-ip %s %s", family, from, group)
}

func needRules(f *Facts) error {
	if len(f.Config.SecurityGroupIDs)+len(f.Config.Groups) == 0 {
		return nil
	}
	return cmp.Or(f.Networks.SecurityGroups.Err, needNetworks(f), f.Cluster.Nodes.Err)
}
