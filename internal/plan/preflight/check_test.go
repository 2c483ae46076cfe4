// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

type (
	facts   = preflight.Facts
	subnets = map[string]sdn.SurveyedSubnet
	usages  = map[string]sdn.Usage
	groups  = map[string]sdn.SurveyedGroup
)

var (
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
)

// sound returns facts without a finding: two nodes, a subnet of pods and one of Services on one
// router, which has a gateway to the public network.
func sound() facts {
	binds := true
	f := facts{}
	f.Config = preflight.Config{
		PodSubnets: [][]string{{"pods"}}, SecurityGroupIDs: []string{"group"}, ServiceSubnetIDs: []string{"services"},
		ExternalNetworkID: "public", ExternalSubnetID: "public-4", Provider: "ovn", WarmUp: true,
	}
	n := &f.Networks
	n.Extensions.Value = strings.Fields("binding security-group router external-net trunk allowed-address-pairs " +
		"network-ip-availability quota_details standard-attr-timestamp net-mtu")
	n.Subnets.Value = subnets{
		"pods": {ID: "pods", Name: "k8s-pods", NetworkID: "pods-net", Prefix: prefix("10.1.0.0/16"), Gateway: addr("10.1.0.1")},
		"services": {
			ID: "services", NetworkID: "services-net", Prefix: prefix("10.96.0.0/15"), Gateway: addr("10.97.255.254"),
			Pools: []sdn.AddressRange{{First: addr("10.97.0.1"), Last: addr("10.97.255.253")}},
		},
		"nodes":    {ID: "nodes", NetworkID: "nodes-net", Prefix: prefix("192.0.2.0/24")},
		"public-4": {ID: "public-4", NetworkID: "public", Prefix: prefix("203.0.113.0/24")},
	}
	n.Networks.Value = map[string]sdn.SurveyedNetwork{
		"pods-net": {ID: "pods-net", MTU: 1442, Type: "geneve"}, "services-net": {ID: "services-net", MTU: 1442, Type: "geneve"}, "public": {ID: "public", External: true},
	}
	n.RouterInterfaces.Value = []sdn.RouterInterface{
		{RouterID: "router", SubnetID: "pods", Address: addr("10.1.0.1")},
		{RouterID: "router", SubnetID: "services", Address: addr("10.97.255.254")},
	}
	n.Routers.Value = map[string]sdn.Router{"router": {ID: "router", ExternalNetwork: "public"}}
	n.Addresses.Value = usages{"pods": {Used: 100, Limit: 65533}}
	n.Quotas = map[string]sdn.Read[usages]{"": {Value: usages{
		"port": {Used: 100, Limit: 500}, "floatingip": {Used: 1, Limit: 50}, "security_group": {Limit: 10},
	}}}
	n.SecurityGroups.Value = groups{"group": {ID: "group", In: []sdn.SurveyedRule{
		{Remote: prefix("10.1.0.0/16")}, {Remote: prefix("10.96.0.0/16")}, {Remote: prefix("192.0.2.0/24")},
		{Remote: prefix("10.2.0.0/16")}, {IPv6: true, Remote: prefix("fd00::/8")},
	}}}
	n.Agents.Value = []sdn.Agent{
		{Type: "OVN Controller agent", Host: "n1", Alive: true}, {Type: "OVN Metadata agent", Host: "n1"},
		{Type: "OVN Controller Gateway agent", Host: "n2", Alive: true},
		{Type: "OVN Neutron agent", Host: "n1", Alive: true},
	}
	n.BindsShown = &binds
	f.Balancing.Providers.Value = []string{"amphora", "ovn"}
	f.Balancing.Quotas.Value = map[string]int{"load_balancer": 10, "listener": -1, "pool": 50, "member": 50}
	c := &f.Cluster
	c.Nodes.Value = []preflight.Node{
		{Name: "n1", Min: 5, Addresses: []netip.Addr{addr("192.0.2.11")}}, {Name: "n2", Min: 5, Addresses: []netip.Addr{addr("192.0.2.12")}},
	}
	c.Pools.Value = []preflight.Pool{{Node: "n1", Min: 5, Free: 5}}
	c.Services.Value = []preflight.Service{
		{Namespace: "kube-system", Name: "kube-dns", ClusterIPs: []netip.Addr{addr("10.96.0.10")}, Ports: 3, Members: 6, DNS: true},
		{Namespace: "default", Name: "web", ClusterIPs: []netip.Addr{addr("10.96.0.80")}, Ports: 1, Members: 2},
	}
	c.ServiceCIDRs.Value = []netip.Prefix{prefix("10.96.0.0/16")}
	return f
}

func changed[T any](m map[string]T, key string, change func(*T)) {
	v := m[key]
	change(&v)
	m[key] = v
}

func TestSoundFactsHaveNoFinding(t *testing.T) {
	r := preflight.Check(sound())
	if len(r.Findings) > 0 || len(r.Passed) != len(preflight.Catalog()) {
		t.Errorf("Check of sound facts = %+v, want none of %d kinds", r, len(preflight.Catalog()))
	}
}

var errDown = fmt.Errorf("Neutron answered 503: %w", sdn.ErrUnavailable)

// row is what is wrong, and what is to be found.
type row struct {
	name, says, remedy string
	change             func(f *facts)
	unknown, warning   bool
}

// broken has, for each finding, what is wrong. The message has to name says, and the remedy remedy.
var broken = []row{
	{name: "PublicNetworkMissing", says: "does not show network public", change: func(f *facts) { delete(f.Networks.Networks.Value, "public") }},
	{name: "PublicNetworkMissing", says: "is not external", change: func(f *facts) {
		changed(f.Networks.Networks.Value, "public", func(n *sdn.SurveyedNetwork) { n.External = false })
	}},
	{name: "PublicNetworkMissing", says: "503", unknown: true, change: func(f *facts) { f.Networks.Networks.Err = errDown }},
	{name: "PublicSubnetMissing", says: "public-4", change: func(f *facts) { delete(f.Networks.Subnets.Value, "public-4") }},
	{name: "PublicSubnetMissing", says: "is of network elsewhere", change: func(f *facts) {
		changed(f.Networks.Subnets.Value, "public-4", func(s *sdn.SurveyedSubnet) { s.NetworkID = "elsewhere" })
	}},
	{name: "PodSubnetMissing", says: "does not show subnet pods", change: func(f *facts) { delete(f.Networks.Subnets.Value, "pods") }},
	{name: "PodSubnetMissing", says: "503", unknown: true, change: func(f *facts) { f.Networks.Subnets.Err = errDown }},
	{name: "PodNetworkMismatch", says: "Subnet nodes is of network nodes-net", change: func(f *facts) { f.Config.PodSubnets = [][]string{{"pods", "nodes"}} }},
	{name: "ServiceSubnetMissing", says: "does not show subnet services", change: func(f *facts) { delete(f.Networks.Subnets.Value, "services") }},
	{name: "NetworkDown", says: "pods-net is switched off", change: func(f *facts) {
		changed(f.Networks.Networks.Value, "pods-net", func(n *sdn.SurveyedNetwork) { n.Down = true })
	}},
	{name: "PodSubnetNotRouted", says: "pods (k8s-pods)", change: func(f *facts) { f.Networks.RouterInterfaces.Value = f.Networks.RouterInterfaces.Value[1:] }},
	{name: "PodSubnetNotRouted", says: "pods", remedy: "router add subnet ROUTER pods", change: func(f *facts) { f.Networks.RouterInterfaces.Value = f.Networks.RouterInterfaces.Value[1:] }},
	{name: "PodSubnetNotRouted", says: "pods", remedy: "port create --network pods-net --fixed-ip subnet=pods router", change: func(f *facts) {
		f.Networks.RouterInterfaces.Value = f.Networks.RouterInterfaces.Value[1:]
		changed(f.Networks.Subnets.Value, "pods", func(s *sdn.SurveyedSubnet) { s.Gateway = netip.Addr{} })
	}},
	{name: "PodSubnetNotRouted", says: "a router outside of Neutron", remedy: "network show pods-net", warning: true, change: func(f *facts) {
		f.Networks.RouterInterfaces.Value = f.Networks.RouterInterfaces.Value[1:]
		changed(f.Networks.Networks.Value, "pods-net", func(n *sdn.SurveyedNetwork) { n.Type, n.Physical = "vlan", "datacentre" })
	}},
	{name: "PodSubnetNotRouted", says: "a router outside of Neutron", warning: true, change: func(f *facts) { // the owner does not see the type
		f.Networks.RouterInterfaces.Value, f.Networks.ProjectID = f.Networks.RouterInterfaces.Value[1:], "mine"
		changed(f.Networks.Networks.Value, "pods-net", func(n *sdn.SurveyedNetwork) { n.Type, n.ProjectID = "", "mine" })
	}},
	{name: "PodSubnetNotRouted", says: "only to administrators and to the network's owner", unknown: true, change: func(f *facts) {
		f.Networks.RouterInterfaces.Value, f.Networks.ProjectID = f.Networks.RouterInterfaces.Value[1:], "mine"
		changed(f.Networks.Networks.Value, "pods-net", func(n *sdn.SurveyedNetwork) { n.Type, n.ProjectID = "", "theirs" })
	}},
	{name: "PodSubnetNotRouted", says: "503", unknown: true, change: func(f *facts) {
		f.Networks.RouterInterfaces.Value = f.Networks.RouterInterfaces.Value[1:]
		f.Networks.Networks.Err, f.Networks.Networks.Value = errDown, nil
	}},
	{name: "AddressesOverlap", says: "503", unknown: true, change: func(f *facts) { f.Networks.Networks.Err, f.Networks.Networks.Value = errDown, nil }},
	{name: "PodSubnetNotRouted", says: "503", unknown: true, change: func(f *facts) { f.Networks.Subnets.Err, f.Networks.Subnets.Value = errDown, nil }},
	{name: "ServiceSubnetNotRouted", says: "services", change: func(f *facts) { f.Networks.RouterInterfaces.Value = f.Networks.RouterInterfaces.Value[:1] }},
	{name: "ServiceSubnetNotRouted", says: "503", unknown: true, change: func(f *facts) { f.Networks.RouterInterfaces.Err = errDown }},
	{name: "RoutersDiffer", says: "on router other", remedy: "openstack router show other\nopenstack router show router", change: func(f *facts) { f.Networks.RouterInterfaces.Value[1].RouterID = "other" }},
	{name: "RouterDown", says: "router is switched off", change: func(f *facts) {
		changed(f.Networks.Routers.Value, "router", func(r *sdn.Router) { r.Down = true })
	}},
	{name: "RouterDown", says: "does not show the router", unknown: true, change: func(f *facts) { f.Networks.Routers.Value = nil }},
	{name: "RouterWithoutGateway", says: "does not show the router", unknown: true, change: func(f *facts) { f.Networks.Routers.Value = nil }},
	{name: "RouterWithoutGateway", says: "a gateway to network other, and none to network public", remedy: "openstack router show router", change: func(f *facts) {
		changed(f.Networks.Routers.Value, "router", func(r *sdn.Router) { r.ExternalNetwork = "other" })
	}},
	{name: "RouterWithoutGateway", says: "no gateway to network public", remedy: "--external-gateway public --disable-snat router", change: func(f *facts) {
		changed(f.Networks.Routers.Value, "router", func(r *sdn.Router) { r.ExternalNetwork = "" })
	}},
	{name: "RouterWithoutGateway", says: "503", unknown: true, change: func(f *facts) { f.Networks.Routers.Err = errDown }},
	{name: "GatewayNotRouter", says: "its router's address is 10.1.0.1", remedy: "port list --fixed-ip subnet=pods,ip-address=10.1.0.2", change: func(f *facts) {
		changed(f.Networks.Subnets.Value, "pods", func(s *sdn.SurveyedSubnet) { s.Gateway = addr("10.1.0.2") })
	}},
	{name: "ServiceRouteMissing", says: "neither a gateway nor a host route to 10.96.0.0/15", change: func(f *facts) {
		changed(f.Networks.Subnets.Value, "pods", func(s *sdn.SurveyedSubnet) { s.Gateway = netip.Addr{} })
	}},
	{name: "ServiceRouteMissing", says: "leads to 10.9.0.1", warning: true, change: func(f *facts) {
		changed(f.Networks.Subnets.Value, "pods", func(s *sdn.SurveyedSubnet) {
			s.Routes = []v1.Route{{Destination: "10.8.0.0/24", Gateway: "10.9.0.1"}}
		})
	}},
	{name: "ServiceRangeOutside", says: "10.100.0.0/16", remedy: "start=FIRST,end=LAST services-2 # CIDR has 10.100.0.0/16 and more\nopenstack router add subnet ROUTER services-2", change: func(f *facts) {
		f.Cluster.ServiceCIDRs.Value = append(f.Cluster.ServiceCIDRs.Value, prefix("10.100.0.0/16"))
	}},
	{name: "ServiceRangeOutside", says: "503", unknown: true, change: func(f *facts) { f.Cluster.ServiceCIDRs.Err = errDown }},
	{name: "ServiceRangeOutside", says: "10.96.0.0/14", change: func(f *facts) { f.Cluster.ServiceCIDRs.Value = []netip.Prefix{prefix("10.96.0.0/14")} }},
	{name: "ServiceRangeShared", says: "gateway 10.97.255.254", remedy: "router remove subnet router services # cuts the subnet off until the last command\n" +
		"openstack subnet set --gateway ADDRESS services", change: func(f *facts) {
		f.Cluster.ServiceCIDRs.Value = []netip.Prefix{prefix("10.97.0.0/16")}
	}},
	{name: "ServiceRangeShared", says: "pool 10.96.0.2-10.96.255.254", change: func(f *facts) {
		changed(f.Networks.Subnets.Value, "services", func(s *sdn.SurveyedSubnet) {
			s.Pools = []sdn.AddressRange{{First: addr("10.96.0.2"), Last: addr("10.96.255.254")}}
		})
	}},
	{name: "DNSOutside", says: "kube-system/kube-dns ([10.200.0.10])", change: func(f *facts) {
		f.Cluster.Services.Value[0].ClusterIPs = []netip.Addr{addr("10.200.0.10")}
	}},
	{name: "DNSOutside", says: "503", unknown: true, change: func(f *facts) { f.Cluster.Services.Err = errDown }},
	{name: "AddressesOverlap", says: "n2 (10.1.0.12)", change: func(f *facts) {
		f.Cluster.Nodes.Value[1].Addresses = []netip.Addr{addr("10.1.0.12")}
	}},
	{name: "AddressesOverlap", says: "overlaps ServiceCIDR 10.1.128.0/24", change: func(f *facts) {
		f.Cluster.ServiceCIDRs.Value = append(f.Cluster.ServiceCIDRs.Value, prefix("10.1.128.0/24"))
	}},
	{name: "AddressesOverlap", says: "A part of the check was not made", unknown: true, change: func(f *facts) {
		f.Cluster.Nodes.Value[1].Addresses = []netip.Addr{addr("10.1.0.12")}
		f.Cluster.ServiceCIDRs.Err = errDown
	}},
	{name: "NodeAgentDown", says: "no agent on host n2.", remedy: "get open_vswitch . external_ids:hostname", change: func(f *facts) { f.Networks.Agents.Value[2].Host = "n3" }},
	{name: "NodeAgentDown", says: "no agent on hosts n1, n2.", change: func(f *facts) { f.Networks.Agents.Value[0].Host, f.Networks.Agents.Value[2].Host = "n4", "n3" }},
	{name: "NodeAgentDown", says: "no agent on host n2, but on host n2.example.org", remedy: "port list --host n2.example.org\nssh n2 ovs-vsctl set open_vswitch . external_ids:hostname=n2 # with OVN, and only if the host has no ports", change: func(f *facts) {
		f.Networks.Agents.Value[2].Host = "n2.example.org"
	}},
	{name: "NodeAgentDown", says: "No agent of host n1 is alive", change: func(f *facts) { f.Networks.Agents.Value[0].Alive = false }},
	{name: "NodeAgentDown", says: "cordoned or does not answer", warning: true, change: func(f *facts) {
		f.Networks.Agents.Value[0].Alive, f.Cluster.Nodes.Value[0].Away = false, true
	}},
	{name: "NodeAgentDown", says: "has no pool of ports", warning: true, change: func(f *facts) {
		f.Networks.Agents.Value[2].Alive, f.Cluster.Nodes.Value[1].ControlPlane = false, true
	}},
	{name: "NodeAgentDown", says: "has no pool of ports", warning: true, change: func(f *facts) {
		f.Networks.Agents.Value[2].Alive, f.Cluster.Nodes.Value[1].Min = false, 0
	}},
	{name: "NodeAgentDown", says: "neutron-openvswitch-agent of host n2 has firewall_driver = iptables_hybrid", remedy: "firewall_driver = openvswitch", change: func(f *facts) {
		f.Networks.Agents.Value[2].Type, f.Networks.Agents.Value[2].Hybrid = "Open vSwitch agent", true
	}},
	{name: "NodeAgentDown", says: "administrators only", unknown: true, change: func(f *facts) { f.Networks.Agents.Value = nil }},
	{name: "NodeAgentDown", says: "503", unknown: true, change: func(f *facts) { f.Cluster.Nodes.Err = errDown }},
	{name: "SecurityGroupMissing", says: "group", change: func(f *facts) { f.Networks.SecurityGroups.Value = nil }},
	{name: "SecurityGroupMissing", says: "does not show security group ruled", change: func(f *facts) { f.Config.MoreGroupIDs = []string{"ruled"} }},
	{name: "SecurityGroupMissing", says: "does not show security group theirs", change: func(f *facts) {
		f.Config.Groups = []preflight.Groups{{Field: "projects[0].securityGroupIDs", IDs: []string{"theirs"}}}
	}},
	{name: "SecurityGroupsEmpty", says: "503", unknown: true, change: func(f *facts) { f.Config.SecurityGroupIDs, f.Networks.Networks.Err = nil, errDown }},
	{name: "SecurityGroupsEmpty", says: "no traffic", remedy: "rule create --protocol any --remote-ip 10.1.0.0/16 kuryr-pods\n" +
		"openstack security group rule create --protocol any --remote-ip CIDR_OF_NODES kuryr-pods", change: func(f *facts) { f.Config.SecurityGroupIDs = nil }},
	{name: "LoadBalancingMissing", says: "no endpoint", change: func(f *facts) {
		f.Balancing.Providers.Err = fmt.Errorf("no endpoint: %w", sdn.ErrNoService)
		f.Balancing.Quotas.Err = f.Balancing.Providers.Err
	}},
	{name: "LoadBalancingMissing", says: "503", unknown: true, change: func(f *facts) { f.Balancing.Providers.Err = errDown }},
	{name: "LoadBalancingMissing", says: "403", remedy: "load-balancer_member", unknown: true, change: func(f *facts) {
		f.Balancing.Providers.Err = fmt.Errorf("Octavia answered 403: %w", sdn.ErrForbidden)
	}},
	{name: "ProviderMissing", says: `"octavia-f5", only amphora, ovn`, change: func(f *facts) { f.Config.Provider = "octavia-f5" }},
	{name: "OctaviaOld", says: "503", unknown: true, change: func(f *facts) { f.Balancing.Old.Err = errDown }},
	{name: "OctaviaOld", says: "v2.25", remedy: "openstack versions show", change: func(f *facts) { f.Balancing.Old.Value = "v2.25" }},
	{name: "ExtensionMissing", says: "trunk, which is needed for nodes of vifType vlan", change: func(f *facts) {
		f.Config.Trunks = true
		f.Networks.Extensions.Value = slices.DeleteFunc(f.Networks.Extensions.Value, func(e string) bool { return e == "trunk" })
	}},
	{name: "BindingHidden", says: "binding:host_id", remedy: "PROJECT service", change: func(f *facts) { *f.Networks.BindsShown = false }},
	{name: "BindingHidden", says: "connect the pods' subnet to a router, then run again", unknown: true, change: func(f *facts) {
		f.Networks.BindsShown = nil
		changed(f.Networks.Networks.Value, "pods-net", func(n *sdn.SurveyedNetwork) { n.Type = "" })
	}},
	{name: "PortQuotaShort", says: "room for 6 more ports of 500, and Kuryr needs 7 more: 5 for pools and 2 for load balancers", change: func(f *facts) {
		f.Networks.Quotas[""].Value["port"] = sdn.Usage{Used: 494, Limit: 500}
	}},
	{name: "PortQuotaShort", says: "room for 1 more ports of 500, and Kuryr needs 2 more: 0 for pools and 2 for load balancers", change: func(f *facts) {
		f.Config.ServiceProjectID = "other"
		f.Networks.Quotas["other"] = sdn.Read[usages]{Value: usages{"port": {Used: 499, Limit: 500}}}
	}},
	{name: "PortQuotaShort", says: "503", unknown: true, change: func(f *facts) { f.Networks.Quotas[""] = sdn.Read[usages]{Err: errDown} }},
	{name: "SubnetFull", says: "4 addresses are left in pods, and Kuryr needs 5", remedy: "--network pods-net --subnet-range CIDR pods-2\nopenstack router add subnet router pods-2\nkubectl apply", change: func(f *facts) {
		f.Networks.Addresses.Value["pods"] = sdn.Usage{Used: 96, Limit: 100}
	}},
	{name: "SubnetFull", says: "503", unknown: true, change: func(f *facts) { f.Networks.Addresses.Err = errDown }},
	{name: "BalancingQuotaShort", says: "2 load balancers, and the Services of the cluster need 3, with one as a trial", change: func(f *facts) {
		f.Balancing.Quotas.Value["load_balancer"] = 2
	}},
	{name: "BalancingQuotaShort", says: "Some Services get no, or an incomplete, load balancer", change: func(f *facts) { f.Balancing.Quotas.Value["member"] = 3 }},
	{name: "BalancingQuotaShort", says: "3 pools, and the Services of the cluster need 4", change: func(f *facts) { f.Balancing.Quotas.Value["pool"] = 3 }},
	{name: "MTUMismatch", says: "node.mtu is 1400", change: func(f *facts) { f.Config.NodeMTU = 1400 }},
	{name: "MTUMismatch", says: "services-net is 1400", change: func(f *facts) {
		changed(f.Networks.Networks.Value, "services-net", func(n *sdn.SurveyedNetwork) { n.MTU = 1400 })
	}},
	{name: "MTUMismatch", says: "IPv6 needs 1280", change: func(f *facts) {
		changed(f.Networks.Networks.Value, "pods-net", func(n *sdn.SurveyedNetwork) { n.MTU = 1200 })
		changed(f.Networks.Subnets.Value, "pods", func(s *sdn.SurveyedSubnet) { s.Prefix = prefix("fd00:1::/64") })
	}},
	{name: "PoliciesNotEnforced", says: "security groups", change: func(f *facts) { f.Cluster.Policies.Value = true }},
	{name: "PoliciesNotEnforced", says: "503", unknown: true, change: func(f *facts) { f.Cluster.Policies.Err = errDown }},
}

var all = slices.Concat(broken, brokenNetworks)

func TestEachFindingIsFound(t *testing.T) {
	severity, tested := map[string]preflight.Severity{}, map[string]bool{preflight.CloudUnavailable: true}
	for _, k := range preflight.Catalog() {
		severity[k.Name] = k.Severity
	}
	for _, b := range all {
		tested[b.name] = tested[b.name] || !b.unknown
		t.Run(b.name+" "+b.says, func(t *testing.T) {
			f := sound()
			b.change(&f)
			want := severity[b.name]
			switch {
			case b.unknown:
				want = preflight.Unknown
			case b.warning:
				want = preflight.Warning
			}
			r := preflight.Check(f)
			if b.warning && slices.ContainsFunc(r.Findings, func(one preflight.Finding) bool { return one.Severity == preflight.Error && one.Name == b.name }) {
				t.Errorf("Check found an error: %+v", r.Findings)
			}
			if slices.Contains(r.Passed, b.name) {
				t.Errorf("%s has passed", b.name)
			}
			i := slices.IndexFunc(r.Findings, func(one preflight.Finding) bool { return one.Name == b.name && strings.Contains(one.Message, b.says) })
			if i < 0 {
				t.Fatalf("Check = %+v; want %s with %q in its message", r.Findings, b.name, b.says)
			}
			got := r.Findings[i]
			if got.Severity != want || got.Object == "" || !b.unknown && len(got.Remedy) == 0 || !strings.Contains(strings.Join(got.Remedy, "\n"), b.remedy) {
				t.Errorf("Check found %+v; want %s with a remedy that has %q", got, want, b.remedy)
			}
			if got.Unavailable != (b.unknown && strings.Contains(got.Message, errDown.Error())) {
				t.Errorf("Check found %+v; want Unavailable only if a request was not answered", got)
			}
		})
	}
	for name := range severity {
		if !tested[name] {
			t.Errorf("no row of the table has finding %s", name)
		}
	}
}

// What looks like a fault and is none.
func TestNoFinding(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(f *facts)
	}{
		{"a machine's address in the pods' subnet, without an agent", func(f *facts) {
			f.Cluster.Nodes.Value = []preflight.Node{{Name: "vm", Virtual: true, Addresses: []netip.Addr{addr("10.1.0.9")}}}
			f.Networks.Agents.Value, *f.Networks.BindsShown = nil, false
		}},
		{"an API server without ServiceCIDRs", func(f *facts) {
			f.Cluster.ServiceCIDRs = sdn.Read[[]netip.Prefix]{Err: fmt.Errorf("no such kind: %w", sdn.ErrNotFound)}
		}},
		{"Services left alone, and no router", func(f *facts) {
			f.Config.ServiceSubnetIDs, f.Networks.RouterInterfaces.Value = nil, nil
			f.Cluster.Services = sdn.Read[[]preflight.Service]{}
			f.Networks.Networks.Value["public"] = sdn.SurveyedNetwork{}
		}},
		{"one subnet for pods and VIPs", func(f *facts) {
			f.Config.PodSubnets, f.Config.NodeMTU = [][]string{{"services"}}, 1500
			f.Networks.SecurityGroups.Value["group"] = sdn.SurveyedGroup{In: []sdn.SurveyedRule{{}}}
			f.Networks.RouterInterfaces.Value = f.Networks.RouterInterfaces.Value[1:]
		}},
		{"a second subnet beside a full one", func(f *facts) {
			more := f.Networks.Subnets.Value["pods"]
			more.ID, more.Prefix, more.Gateway = "more", prefix("10.2.0.0/16"), addr("10.2.0.1")
			f.Networks.Subnets.Value["more"] = more
			f.Config.PodSubnets = [][]string{{"pods", "more"}}
			f.Networks.RouterInterfaces.Value = append(f.Networks.RouterInterfaces.Value, sdn.RouterInterface{RouterID: "router", SubnetID: "more", Address: addr("10.2.0.1")})
			f.Networks.Addresses.Value = usages{"pods": {Used: 9, Limit: 9}, "more": {Limit: 9}}
		}},
		{"a cloud without Neutron's routers", func(f *facts) {
			f.Networks.Extensions.Value = slices.DeleteFunc(f.Networks.Extensions.Value, func(e string) bool { return e == "router" })
			f.Networks.RouterInterfaces.Value, f.Networks.Routers.Value, f.Networks.BindsShown = nil, nil, nil
		}},
		{"a subnet of pods of a family that no Service has", func(f *facts) {
			f.Networks.Subnets.Value["pods-6"] = sdn.SurveyedSubnet{ID: "pods-6", NetworkID: "pods-net", Prefix: prefix("fd00:1::/64")}
			f.Config.PodSubnets = append(f.Config.PodSubnets, []string{"pods-6"})
		}},
		{"a router's link-local address", func(f *facts) {
			f.Networks.Subnets.Value["pods-6"] = sdn.SurveyedSubnet{
				ID: "pods-6", NetworkID: "pods-net", Prefix: prefix("fd00:1::/64"), Gateway: addr("fe80::1"), Routes: []v1.Route{{Destination: "fd00:9::/64", Gateway: "fe80::2"}},
			}
			f.Networks.RouterInterfaces.Value = append(f.Networks.RouterInterfaces.Value, sdn.RouterInterface{RouterID: "router", SubnetID: "pods-6", Address: addr("fd00:1::1")})
			f.Config.PodSubnets = append(f.Config.PodSubnets, []string{"pods-6"})
		}},
		{"a range in two subnets together", func(f *facts) {
			whole := f.Networks.Subnets.Value["services"]
			more := whole
			whole.Prefix, whole.Gateway, whole.Pools = prefix("10.96.0.0/17"), netip.Addr{}, nil
			more.ID, more.Prefix = "more", prefix("10.96.128.0/17")
			more.Gateway, more.Pools = netip.Addr{}, nil
			f.Networks.Subnets.Value["services"], f.Networks.Subnets.Value["more"] = whole, more
			f.Config.ServiceSubnetIDs = append(f.Config.ServiceSubnetIDs, "more")
			f.Networks.RouterInterfaces.Value = append(f.Networks.RouterInterfaces.Value, sdn.RouterInterface{RouterID: "router", SubnetID: "more", Address: addr("10.96.128.1")})
		}},
		{"nodes on the pods' physical network", func(f *facts) {
			f.Cluster.Nodes.Value[1].Addresses = []netip.Addr{addr("10.1.0.12")}
			changed(f.Networks.Networks.Value, "pods-net", func(n *sdn.SurveyedNetwork) { n.Type, n.Physical = "vlan", "datacentre" })
		}},
		{"nodes with a Linux bridge in the pods' network, and no OVN", func(f *facts) {
			for i := range f.Cluster.Nodes.Value {
				f.Cluster.Nodes.Value[i].VIFType = "bridge"
			}
			f.Cluster.Nodes.Value[1].Addresses = []netip.Addr{addr("10.1.0.12")}
			f.Networks.Agents.Value[2].Type = "Open vSwitch agent"
		}},
		{"ML2/OVS beside OVN on a host", func(f *facts) {
			f.Networks.Agents.Value = append(f.Networks.Agents.Value, sdn.Agent{Type: "Open vSwitch agent", Host: "n2", Alive: true, Hybrid: true})
		}},
		{"ML2/OVS", func(f *facts) { f.Networks.Agents.Value[2].Type = "Open vSwitch agent" }},
		{"a network without port security", func(f *facts) {
			f.Config.SecurityGroupIDs = nil
			changed(f.Networks.Networks.Value, "pods-net", func(n *sdn.SurveyedNetwork) { n.Unfiltered = true })
		}},
		{"no room for pools that are made with the first pod", func(f *facts) {
			f.Config.WarmUp = false
			f.Networks.Quotas[""].Value["port"] = sdn.Usage{Used: 498, Limit: 500}
			f.Networks.Addresses.Value["pods"] = sdn.Usage{Used: 100, Limit: 100}
		}},
		{"an administrator without any port of a router in the pods' subnet", func(f *facts) {
			f.Config.ServiceSubnetIDs, f.Networks.RouterInterfaces.Value, f.Networks.BindsShown = nil, nil, nil
			f.Cluster.Services = sdn.Read[[]preflight.Service]{}
		}},
	} {
		f := sound()
		c.change(&f)
		if r := preflight.Check(f); len(r.Findings) > 0 {
			t.Errorf("%s: found %+v", c.name, r.Findings)
		}
	}
}

func TestCloudUnavailableIsTheOnlyFindingOfAnOutage(t *testing.T) {
	f := sound()
	f.Networks.Extensions.Err, f.Networks.Subnets.Err, f.Networks.SecurityGroups.Err = errDown, errDown, errDown
	f.Cluster.Policies.Value = true
	r := preflight.Check(f)
	var names []string
	for _, one := range r.Findings {
		names = append(names, one.Name)
	}
	if want := []string{"PoliciesNotEnforced", preflight.CloudUnavailable}; !slices.Equal(names, want) || len(r.Passed) > 0 {
		t.Errorf("Check in an outage found %v and passed %v, want %v and nothing", names, r.Passed, want)
	}
}

// TestOutageWithoutSecurityGroups: a configuration without security groups has none read, which
// says nothing of the cloud. Groups that were read say that it answers.
func TestOutageWithoutSecurityGroups(t *testing.T) {
	f := sound()
	f.Networks.Extensions.Err, f.Networks.Subnets.Err = errDown, errDown
	away := func(f preflight.Facts) bool {
		return slices.ContainsFunc(preflight.Check(f).Findings, func(one preflight.Finding) bool { return one.Name == preflight.CloudUnavailable })
	}
	if away(f) {
		t.Error("the cloud has shown security groups, and counts as away")
	}
	f.Config.SecurityGroupIDs, f.Config.MoreGroupIDs = nil, nil
	if !away(f) {
		t.Error("the cloud answered nothing, and does not count as away")
	}
}

func TestFindingsAreSortedBySeverity(t *testing.T) {
	f := sound()
	f.Config.NodeMTU, f.Cluster.Services.Err = 1400, errDown
	delete(f.Networks.Subnets.Value, "nodes")
	order := []preflight.Severity{preflight.Error, preflight.Warning, preflight.Unknown}
	found := preflight.Check(f).Findings
	if !slices.IsSortedFunc(found, func(a, b preflight.Finding) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	}) || len(found) < 3 {
		t.Errorf("Check = %+v, want errors, warnings, then what is unknown", found)
	}
}
