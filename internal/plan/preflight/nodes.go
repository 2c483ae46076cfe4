// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// aside are the types of agents that pass no traffic of ports on their host.
var aside = []string{
	"DHCP agent", "L3 agent", "Metadata agent", "OVN Metadata agent", "OVN Neutron agent", "Metering agent", "Loadbalancer agent", "BGP dynamic routing agent",
}

// Types of agents, and of ports.
const (
	agentOVN        = "OVN Controller agent"
	agentOVNGateway = "OVN Controller Gateway agent"
	agentOVS        = "Open vSwitch agent" // ML2/OVS

	vifTypeBridge = "bridge"
	vifTypeOVS    = "ovs"
)

// host is what Neutron's agents on a host are.
type host struct {
	alive       bool // any
	ovn, hybrid bool // one of these is alive; hybrid: ML2/OVS with a firewall in Linux bridges
}

// hosts returns the hosts with agents that pass traffic.
func (f *Facts) hosts() map[string]host {
	out := map[string]host{}
	for _, a := range f.Networks.Agents.Value {
		if slices.Contains(aside, a.Type) {
			continue
		}
		h := out[a.Host]
		h.alive = h.alive || a.Alive
		h.ovn = h.ovn || a.Alive && (a.Type == agentOVN || a.Type == agentOVNGateway)
		h.hybrid = h.hybrid || a.Alive && a.Type == agentOVS && a.Hybrid
		out[a.Host] = h
	}
	return out
}

// namesake returns the host whose first label is that of a node, which has another name.
func namesake(hosts map[string]host, node string) string {
	first, _, _ := strings.Cut(node, ".")
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		if label, _, _ := strings.Cut(name, "."); label == first {
			return name
		}
	}
	return ""
}

// cause is why Neutron cannot bind ports of Kuryr to a node.
type cause int

const (
	dead    cause = iota + 1 // the host's agents are not alive
	absent                   // Neutron knows no such host
	renamed                  // it knows the host by another name
	refused                  // ML2/OVS with iptables_hybrid
)

func causeOf(hosts map[string]host, n Node) cause {
	h, there := hosts[n.Name]
	switch {
	case n.Virtual:
		return 0
	case there && !h.alive:
		return dead
	case there && h.hybrid && !h.ovn && (n.VIFType == "" || n.VIFType == vifTypeOVS):
		return refused
	case there:
		return 0
	case namesake(hosts, n.Name) != "":
		return renamed
	}
	return absent
}

// nodeAgentDown reports nodes on which Neutron cannot bind ports. Neutron knows a host by the name
// that its agent has, which must be the node's.
func nodeAgentDown(f *Facts, k Kind) []Finding {
	agents, nodes := f.Networks.Agents, f.Cluster.Nodes
	if err := cmp.Or(agents.Err, nodes.Err); err != nil {
		return k.unknown("agents", "each node has one that is alive", err)
	}
	hosts := f.hosts()
	metal := slices.ContainsFunc(nodes.Value, func(n Node) bool { return !n.Virtual })
	if len(hosts) == 0 && metal {
		return k.unknown("agents", "each node has one that is alive", errors.New("Neutron shows no agent that passes traffic: "+
			"it has none, or shows them to administrators only"))
	}
	harmed, idle := map[cause][]string{}, map[cause][]string{}
	for _, n := range nodes.Value {
		c := causeOf(hosts, n)
		if f.idle(n) {
			idle[c] = append(idle[c], n.Name)
		} else {
			harmed[c] = append(harmed[c], n.Name)
		}
	}
	var out []Finding
	for c := dead; c <= refused; c++ {
		if len(harmed[c]) > 0 {
			message, remedy := c.tell(hosts, harmed[c])
			out = append(out, k.found(several("node", harmed[c]), message+" Pods on "+several("node", harmed[c])+" get no network.", remedy...))
		}
		if len(idle[c]) > 0 {
			message, remedy := c.tell(hosts, idle[c])
			out = append(out, k.warning(several("node", idle[c]), message+
				" No pod is known to need a port there: each of these nodes is cordoned or does not answer, or has no pool of ports.", remedy...))
		}
	}
	return out
}

// idle reports whether a node may do without an agent at present.
func (f *Facts) idle(n Node) bool {
	pool := slices.ContainsFunc(f.Cluster.Pools.Value, func(p Pool) bool { return p.Node == n.Name })
	return n.Away || !pool && (n.ControlPlane || n.Min == 0)
}

// tell says what is wrong with nodes, and what to do.
func (c cause) tell(hosts map[string]host, nodes []string) (message string, remedy []string) {
	node, other := nodes[0], namesake(hosts, nodes[0]) // in commands
	if len(nodes) > 1 {
		node, other = "NODE", "HOST"
	}
	switch c {
	case dead:
		return fmt.Sprintf("No agent of %s is alive.", several("host", nodes)),
			[]string{"openstack network agent list", "ssh " + node + " systemctl status ovn-controller # with ML2/OVS: neutron-openvswitch-agent"}
	case refused:
		return fmt.Sprintf("neutron-openvswitch-agent of %s has firewall_driver = iptables_hybrid (ovs_hybrid_plug). It filters in Linux bridges, which Kuryr does not make, "+
				"so security groups would not be enforced, and Kuryr makes no ports there.", several("host", nodes)),
			[]string{
				"openstack network agent list --agent-type open-vswitch --host " + node,
				"# on " + node + ", in the agent's configuration (openvswitch_agent.ini): [securitygroup] firewall_driver = openvswitch",
				"ssh " + node + " systemctl restart neutron-openvswitch-agent # virtual machines there keep their bridges until they are migrated",
			}
	case renamed:
		var others []string
		for _, n := range nodes {
			others = append(others, namesake(hosts, n))
		}
		return fmt.Sprintf("Neutron has no agent on %s, but on %s. An agent must have the name of its node, or Neutron cannot bind ports there. "+
				"With OVN that name is external_ids:hostname of Open vSwitch. Change it only on a host without ports: others lose their network.",
				several("host", nodes), several("host", others)),
			[]string{
				"openstack network agent list", "openstack port list --host " + other,
				"ssh " + node + " ovs-vsctl set open_vswitch . external_ids:hostname=" + node + " # with OVN, and only if the host has no ports",
			}
	case absent:
	}
	return fmt.Sprintf("Neutron has no agent on %s. Without an agent that has the name of the node, Neutron cannot bind ports there.", several("host", nodes)),
		[]string{"openstack network agent list", "ssh " + node + " ovs-vsctl get open_vswitch . external_ids:hostname # with OVN, the name of its agent"}
}

// several is a noun with the names of one or more.
func several(noun string, names []string) string {
	if len(names) > 1 {
		noun += "s"
	}
	return noun + " " + list(names)
}
