// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// subnet adds a subnet without a router to a network of the facts.
func subnet(f *facts, id, network, cidr string) {
	f.Networks.Subnets.Value[id] = sdn.SurveyedSubnet{ID: id, NetworkID: network, Prefix: prefix(cidr), Gateway: prefix(cidr).Addr().Next()}
}

// iface gives a router a port in a subnet.
func iface(f *facts, router, subnet, address string) {
	f.Networks.RouterInterfaces.Value = append(f.Networks.RouterInterfaces.Value, sdn.RouterInterface{RouterID: router, SubnetID: subnet, Address: addr(address)})
}

// noPort takes a subnet from all routers.
func noPort(f *facts, subnet string) {
	f.Networks.RouterInterfaces.Value = slices.DeleteFunc(f.Networks.RouterInterfaces.Value, func(l sdn.RouterInterface) bool { return l.SubnetID == subnet })
}

func without(f *facts, extension string) {
	f.Networks.Extensions.Value = slices.DeleteFunc(f.Networks.Extensions.Value, func(e string) bool { return e == extension })
}

func routerOff(f *facts, id string) {
	changed(f.Networks.Routers.Value, id, func(r *sdn.Router) { r.Down = true })
}

// moreServices gives Services a second subnet, on the router, whose addresses no Service has yet.
func moreServices(f *facts) {
	subnet(f, "services-2", "more-net", "10.98.0.0/16")
	f.Networks.Networks.Value["more-net"] = sdn.SurveyedNetwork{ID: "more-net", MTU: 1442, Type: "geneve"}
	f.Config.ServiceSubnetIDs = append(f.Config.ServiceSubnetIDs, "services-2")
	iface(f, "router", "services-2", "10.98.0.1")
}

// morePods gives pods a second subnet, on the router, for when the first one is full.
func morePods(f *facts) {
	subnet(f, "pods-2", "pods-net", "10.2.0.0/16")
	f.Config.PodSubnets = [][]string{{"pods", "pods-2"}}
	iface(f, "router", "pods-2", "10.2.0.1")
}

// dual gives DNS a second address, of IPv6, which no subnet has.
func dual(f *facts) {
	f.Cluster.Services.Value[0].ClusterIPs = append(f.Cluster.Services.Value[0].ClusterIPs, addr("fd00:96::a"))
}

// hold is a fault, and whether a first start waits for it.
type hold struct {
	what   string
	name   string // of the finding; empty: there is none of severity Error
	holds  bool
	change []func(f *facts)
}

var holds = []hold{
	{"the pods' subnet", "PodSubnetMissing", true, faults(func(f *facts) { delete(f.Networks.Subnets.Value, "pods") })},
	{"a subnet for when the first one is full", "PodSubnetMissing", false, faults(morePods, func(f *facts) { delete(f.Networks.Subnets.Value, "pods-2") })},
	{"the pods' subnet is on no router", "PodSubnetNotRouted", true, faults(morePods, func(f *facts) { noPort(f, "pods") })},
	{"that for later is on no router", "PodSubnetNotRouted", false, faults(morePods, func(f *facts) { noPort(f, "pods-2") })},
	{"the pods' subnets are of two networks", "PodNetworkMismatch", true, faults(func(f *facts) { f.Config.PodSubnets = [][]string{{"pods"}, {"services"}} })},
	{"that for later is of another network", "PodNetworkMismatch", false, faults(morePods, func(f *facts) {
		changed(f.Networks.Subnets.Value, "pods-2", func(s *sdn.SurveyedSubnet) { s.NetworkID = "elsewhere" })
	})},
	{"the Services' subnet", "ServiceSubnetMissing", true, faults(func(f *facts) { delete(f.Networks.Subnets.Value, "services") })},
	{"that of all Services there are", "ServiceSubnetMissing", true, faults(moreServices, func(f *facts) { delete(f.Networks.Subnets.Value, "services") })},
	{"one that no Service has an address of", "ServiceSubnetMissing", false, faults(moreServices, func(f *facts) { delete(f.Networks.Subnets.Value, "services-2") })},
	{"the Services' subnet is on no router", "ServiceSubnetNotRouted", true, faults(moreServices, func(f *facts) { noPort(f, "services") })},
	{"one without Services is on no router", "ServiceSubnetNotRouted", false, faults(moreServices, func(f *facts) { noPort(f, "services-2") })},
	{"only DNS is in a subnet on no router", "ServiceSubnetNotRouted", true, faults(moreServices, func(f *facts) {
		noPort(f, "services-2")
		f.Cluster.Services.Value[0].ClusterIPs[0] = addr("10.98.0.10")
	})},
	{"no subnet of Services is on a router", "ServiceSubnetNotRouted", true, faults(moreServices, func(f *facts) {
		noPort(f, "services")
		noPort(f, "services-2")
		for i := range f.Cluster.Services.Value {
			s := &f.Cluster.Services.Value[i]
			s.ClusterIPs = append(s.ClusterIPs, addr(fmt.Sprint("10.98.0.", i+10)))
		}
	})},
	{"the pods' network is off", "NetworkDown", true, faults(func(f *facts) {
		changed(f.Networks.Networks.Value, "pods-net", func(n *sdn.SurveyedNetwork) { n.Down = true })
	})},
	{"a network without Services is off", "NetworkDown", false, faults(moreServices, func(f *facts) {
		changed(f.Networks.Networks.Value, "more-net", func(n *sdn.SurveyedNetwork) { n.Down = true })
	})},
	{"the router is off", "RouterDown", true, faults(apart, func(f *facts) { routerOff(f, "router") })},
	{"a project's router is off", "RouterDown", false, faults(apart, func(f *facts) { routerOff(f, "theirs") })},
	{"a router beside the gateway is off", "RouterDown", false, faults(func(f *facts) {
		iface(f, "beside", "pods", "10.1.0.2")
		f.Networks.Routers.Value["beside"] = sdn.Router{ID: "beside", Down: true}
	})},
	{"a router is off where Services have no address, pods are on none of Neutron's", "RouterDown", false, faults(moreServices, func(f *facts) {
		noPort(f, "pods")
		noPort(f, "services-2")
		changed(f.Networks.Networks.Value, "pods-net", func(n *sdn.SurveyedNetwork) { n.Type, n.Physical = "vlan", "datacentre" })
		iface(f, "other", "services-2", "10.98.0.1")
		f.Networks.Routers.Value["other"] = sdn.Router{ID: "other", Down: true}
	})},
	{"both routers are off", "RouterDown", true, faults(apart, func(f *facts) {
		routerOff(f, "router")
		routerOff(f, "theirs")
	})},
	{"the router has no gateway", "RouterWithoutGateway", true, faults(func(f *facts) {
		changed(f.Networks.Routers.Value, "router", func(r *sdn.Router) { r.ExternalNetwork = "" })
	})},
	{"that of a subnet without Services has none", "RouterWithoutGateway", false, faults(moreServices, func(f *facts) {
		noPort(f, "services-2")
		iface(f, "inside", "services-2", "10.98.0.1")
		f.Networks.Routers.Value["inside"] = sdn.Router{ID: "inside"}
	})},
	{"no route to the Services", "ServiceRouteMissing", true, faults(func(f *facts) {
		changed(f.Networks.Subnets.Value, "pods", func(s *sdn.SurveyedSubnet) { s.Gateway = netip.Addr{} })
	})},
	{"no route to a subnet without Services", "ServiceRouteMissing", false, faults(moreServices, func(f *facts) {
		changed(f.Networks.Subnets.Value, "pods", func(s *sdn.SurveyedSubnet) {
			s.Gateway, s.Routes = netip.Addr{}, []v1.Route{{Destination: "10.96.0.0/15", Gateway: "10.1.0.1"}}
		})
	})},
	{"a host route by way of another subnet", "", false, faults(func(f *facts) {
		changed(f.Networks.Subnets.Value, "pods", func(s *sdn.SurveyedSubnet) { s.Routes = []v1.Route{{Destination: "10.8.0.0/24", Gateway: "10.9.0.7"}} })
	})},
	{"the range of all Services", "ServiceRangeOutside", true, faults(func(f *facts) {
		changed(f.Networks.Subnets.Value, "services", func(s *sdn.SurveyedSubnet) { s.Prefix = prefix("10.94.0.0/15") })
	})},
	{"a range of IPv6 beside that of IPv4", "ServiceRangeOutside", false, faults(dual, func(f *facts) {
		f.Cluster.ServiceCIDRs.Value = append(f.Cluster.ServiceCIDRs.Value, prefix("fd00:96::/108"))
	})},
	{"a range of no Service", "ServiceRangeOutside", false, faults(func(f *facts) {
		f.Cluster.ServiceCIDRs.Value = append(f.Cluster.ServiceCIDRs.Value, prefix("10.250.0.0/24"))
	})},
	{"DNS", "DNSOutside", true, faults(func(f *facts) { f.Cluster.Services.Value[0].ClusterIPs[0] = addr("10.250.0.10") })},
	{"one of two addresses of DNS", "", false, faults(dual)},
	{"the pods' group", "SecurityGroupMissing", true, faults(apart, func(f *facts) { delete(f.Networks.SecurityGroups.Value, "group") })},
	{"a project's group", "SecurityGroupMissing", false, faults(apart, func(f *facts) { delete(f.Networks.SecurityGroups.Value, "blue-group") })},
	{"the group of some pods", "SecurityGroupMissing", false, faults(func(f *facts) { f.Config.MoreGroupIDs = []string{"ruled"} })},
	{"security groups", "ExtensionMissing", true, faults(func(f *facts) { without(f, "security-group") })},
	{"trunks of one node", "ExtensionMissing", false, faults(func(f *facts) {
		without(f, "trunk")
		f.Config.Trunks, f.Cluster.Nodes.Value[1].VIFType, f.Cluster.Nodes.Value[1].Virtual = true, "vlan", true
	})},
	{"trunks of all nodes", "ExtensionMissing", true, faults(func(f *facts) {
		without(f, "trunk")
		f.Config.Trunks = true
		for i := range f.Cluster.Nodes.Value {
			f.Cluster.Nodes.Value[i].VIFType, f.Cluster.Nodes.Value[i].Virtual = "vlan", true
		}
	})},
	{"the public network", "PublicNetworkMissing", true, faults(func(f *facts) { delete(f.Networks.Networks.Value, "public") })},
	{"the provider", "ProviderMissing", true, faults(func(f *facts) { f.Config.Provider = "octavia-f5" })},
	{"a project's router", "NetworkRouterMissing", false, faults(apart, func(f *facts) { delete(f.Networks.Routers.Value, "theirs") })},
	{"a node's agent", "NodeAgentDown", false, faults(func(f *facts) { f.Networks.Agents.Value[2].Alive = false; f.Cluster.Pools.Value[0].Node = "n2" })},
	{"warnings", "", false, faults(func(f *facts) { f.Config.NodeMTU = 1400 })},
	{"the cloud does not answer", preflight.CloudUnavailable, true, faults(func(f *facts) {
		f.Networks.Extensions.Err, f.Networks.Subnets.Err, f.Networks.SecurityGroups.Err = errDown, errDown, errDown
	})},
	{"a part of the cloud does not answer", "", false, faults(func(f *facts) { f.Networks.Routers.Err = errDown })},
}

func faults(changes ...func(f *facts)) []func(f *facts) { return changes }

// TestHolds: a first start waits for what all pods or all Services need, and for the cloud. It does
// not wait for what concerns a project, a node, some Services, or nothing that there is.
func TestHolds(t *testing.T) {
	for _, h := range holds {
		f := sound()
		for _, change := range h.change {
			change(&f)
		}
		r := preflight.Check(f)
		var holding []string
		found := false
		for _, one := range r.Findings {
			found = found || one.Name == h.name
			if preflight.Holds(one) {
				holding = append(holding, one.Name)
			}
			if h.name == "" && one.Severity == preflight.Error {
				t.Errorf("%s: Check found the error %+v, want none", h.what, one)
			}
		}
		if h.name != "" && !found {
			t.Errorf("%s: Check = %+v, want a finding %s", h.what, r.Findings, h.name)
		}
		if slices.Contains(holding, h.name) != h.holds || !h.holds && len(holding) > 0 {
			t.Errorf("%s (%s): a first start waits for %q, want that it waits is %v", h.what, h.name, holding, h.holds)
		}
	}
	kinds := preflight.Catalog()
	for _, name := range preflight.Holding() {
		if !slices.ContainsFunc(kinds, func(k preflight.Kind) bool {
			return k.Name == name && (k.Severity == preflight.Error || name == preflight.CloudUnavailable)
		}) {
			t.Errorf("%s holds a first start, and is no kind of error", name)
		}
	}
}
