// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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

// traffic is a protocol and a port of pods; an empty protocol is any traffic at all.
type traffic struct {
	protocol string
	port     int32
}

// admits reports whether groups let a sender in. Of empty traffic it reports whether they let in
// anything of the sender: an administrator may have opened single ports.
func (f *Facts) admits(groups []string, from sender, t traffic) bool {
	for _, id := range groups {
		for _, r := range f.Networks.SecurityGroups.Value[id].In {
			if r.IPv6 != from.prefix.Addr().Is6() || !f.remote(r, from) {
				continue
			}
			if t.protocol == "" || r.Protocol == "" || r.Protocol == t.protocol && (r.To == 0 || r.From <= t.port && t.port <= r.To) {
				return true
			}
		}
	}
	return false
}

// remote reports whether a rule is for all of a sender. A security group as the sender is for pods:
// which of them have it is not looked at.
func (f *Facts) remote(r sdn.SurveyedRule, from sender) bool {
	if r.RemoteGroup != "" {
		return slices.ContainsFunc(f.subnets(f.Config.PodSubnetIDs()), func(s sdn.SurveyedSubnet) bool { return s.Prefix == from.prefix })
	}
	return !r.Remote.IsValid() || r.Remote.Bits() <= from.prefix.Bits() && r.Remote.Contains(from.prefix.Addr())
}

// lack is what groups do not let in.
type lack struct {
	who      []string
	commands []string
}

// securityGroupRuleMissing looks at the groups that pods have by default, and at the groups that
// members of load balancers have. Other groups may be closed on purpose.
func securityGroupRuleMissing(f *Facts, k Kind) []Finding {
	if n, _ := f.network(f.Config.PodSubnetIDs()); n.Unfiltered || f.Networks.SecurityGroups.Err != nil {
		return nil // see needRules
	}
	sets := append([]Groups{{"pods.securityGroupIDs", f.Config.SecurityGroupIDs}}, f.Config.Groups...)
	var out []Finding
	for i, set := range sets {
		if len(set.IDs) == 0 || !f.known(set.IDs) {
			continue
		}
		var l lack
		for _, s := range f.senders() {
			if (i == 0 || s.node) && !f.admits(set.IDs, s, traffic{}) { // a project may keep out the pods of others
				l.add(set.IDs[0], s, traffic{})
			}
		}
		if len(l.who) > 0 {
			out = append(out, k.found("security groups of "+set.Field, fmt.Sprintf(
				"Security groups %s let in nothing from %s. Probes of nodes fail, or Services do not answer.", list(set.IDs), list(l.who)), l.commands...))
		}
	}
	return append(out, f.closedMembers(k, sets)...)
}

// closedMembers reports members of load balancers that do not get the traffic of some senders, for
// each list of groups once.
func (f *Facts) closedMembers(k Kind, defaults []Groups) []Finding {
	lacks, services := map[string]*lack{}, map[string][]string{}
	var order []string
	for _, m := range f.Cluster.Members.Value {
		if !f.known(m.SecurityGroups) || len(m.SecurityGroups) == 0 {
			continue
		}
		set := slices.IndexFunc(defaults, func(g Groups) bool { return slices.Equal(g.IDs, m.SecurityGroups) })
		key := strings.Join(m.SecurityGroups, " ")
		for _, s := range f.senders() {
			t := traffic{m.Protocol, m.Port}
			if s.prefix.Addr().BitLen() != m.Address.BitLen() || f.admits(m.SecurityGroups, s, t) || set > 0 && !s.node {
				continue
			}
			if set >= 0 && !f.admits(m.SecurityGroups, s, traffic{}) {
				continue // it lets in nothing at all, which is a finding already
			}
			if lacks[key] == nil {
				lacks[key], order = &lack{}, append(order, key)
			}
			lacks[key].add(m.SecurityGroups[0], s, t)
			if !slices.Contains(services[key], m.Service) {
				services[key] = append(services[key], m.Service)
			}
		}
	}
	var out []Finding
	for _, key := range order {
		out = append(out, k.found("security groups "+list(strings.Fields(key)), fmt.Sprintf(
			"Pods of Services (%s) have security groups that do not let in %s at the pods' ports. These Services do not answer them.", list(services[key]), list(lacks[key].who)),
			lacks[key].commands...))
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

// add notes a sender that is not let in, and the command that lets it in.
func (l *lack) add(group string, s sender, t traffic) {
	const most = 20 // commands in one finding
	if !slices.Contains(l.who, s.what) {
		l.who = append(l.who, s.what)
	}
	what := "--protocol any"
	if t.protocol != "" {
		what = fmt.Sprintf("--protocol %s --dst-port %d", t.protocol, t.port)
	}
	command := ruleCommand(what, s.prefix, group)
	if len(l.commands) < most && !slices.Contains(l.commands, command) {
		l.commands = append(l.commands, command)
	}
}

// ruleCommand is the command that lets some traffic from somewhere into a group.
func ruleCommand(what string, from netip.Prefix, group string) string {
	if from.Addr().Is6() {
		what += " --ethertype IPv6"
	}
	return fmt.Sprintf("openstack security group rule create %s --remote-ip %s %s", what, from, group)
}

func needRules(f *Facts) error {
	if len(f.Config.SecurityGroupIDs)+len(f.Config.Groups) == 0 {
		return nil
	}
	return cmp.Or(f.Networks.SecurityGroups.Err, needNetworks(f), f.Cluster.Nodes.Err, f.Cluster.Members.Err)
}
