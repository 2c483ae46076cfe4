// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// apart adds a project with a router of its own, a range, a given network and three
// namespaces, the last of which has its network, to sound facts. Nothing is wrong.
func apart(f *facts) {
	flat := []netip.Prefix{prefix("10.128.0.0/14")}
	f.Config.NamespaceConfig = preflight.NamespaceConfig{
		Routers:  []preflight.Named{{Field: "networks.routerID", ID: "router"}, {Field: "projects[0].routerID", ID: "theirs"}},
		Projects: []preflight.Named{{Field: "projects[0].projectID", ID: "blue"}},
		Groups:   []preflight.Groups{{Field: "projects[0].securityGroupIDs", IDs: []string{"blue-group"}}},
		Given:    []preflight.Given{{Field: "networks.given[0].subnetIDs", SubnetIDs: []string{"storage"}}},
	}
	n := &f.Networks
	n.Routers.Value["theirs"] = sdn.Router{ID: "theirs", ExternalNetwork: "public"}
	n.RouterInterfaces.Value = append(n.RouterInterfaces.Value, sdn.RouterInterface{RouterID: "theirs", SubnetID: "services", Address: addr("10.97.0.9")},
		sdn.RouterInterface{RouterID: "router", SubnetID: "storage", Address: addr("10.2.0.1")})
	n.SecurityGroups.Value["blue-group"] = sdn.SurveyedGroup{ID: "blue-group", In: []sdn.SurveyedRule{{Remote: prefix("192.0.2.0/24")}}}
	n.Subnets.Value["storage"] = sdn.SurveyedSubnet{ID: "storage", NetworkID: "storage-net", Prefix: prefix("10.2.0.0/24"), Gateway: addr("10.2.0.1")}
	n.Networks.Value["storage-net"] = sdn.SurveyedNetwork{ID: "storage-net", Type: "geneve"}
	n.Projects.Value.Enabled = map[string]bool{"blue": true}
	f.Cluster.Namespaces.Value = []preflight.Namespace{
		{Name: "shop", Choice: network.Choice{Mode: v1.NetworkNamespace, SubnetPoolIDs: []string{"pool"}, RouterID: "theirs"}},
		{Name: "lab", Choice: network.Choice{Mode: v1.NetworkFlat, Ranges: flat, RouterID: "router"}},
		{Name: "old", Choice: network.Choice{Mode: v1.NetworkFlat, Ranges: flat, RouterID: "router"}},
	}
}

func TestSoundNetworksHaveNoFinding(t *testing.T) {
	f := sound()
	apart(&f)
	if r := preflight.Check(f); len(r.Findings) > 0 {
		t.Errorf("Check = %+v, want no finding", r.Findings)
	}
}

// with is apart, and what is wrong.
func with(change func(f *facts)) func(f *facts) {
	return func(f *facts) {
		apart(f)
		change(f)
	}
}

// brokenNetworks continues broken with networks of namespaces.
var brokenNetworks = []row{
	{name: "NetworkRouterMissing", says: "does not show router theirs", change: with(func(f *facts) { delete(f.Networks.Routers.Value, "theirs") })},
	{name: "NetworkRouterMissing", says: "does not show network gone", change: with(func(f *facts) {
		f.Config.OwnRouters = []preflight.Named{{Field: "networks.router.externalNetworkID", ID: "gone"}}
	})},
	{name: "NetworkRouterMissing", says: "storage-net is not external", change: with(func(f *facts) {
		f.Config.OwnRouters = []preflight.Named{{Field: "networks.router.externalNetworkID", ID: "storage-net"}}
	})},
	{name: "ServiceInterfaceMissing", says: "makes for namespace lab has no route to subnet services", warning: true, change: with(func(f *facts) {
		f.Cluster.Namespaces.Value[1].RouterID, f.Cluster.Namespaces.Value[1].Router = "", &v1.NetworkRouter{}
	})},
	{name: "NetworkRouterMissing", says: "no router for the networks of namespace lab", warning: true, change: with(func(f *facts) { f.Cluster.Namespaces.Value[1].RouterID = "" })},
	{name: "NetworkRouterMissing", says: "503", unknown: true, change: with(func(f *facts) { f.Networks.Routers.Err = errDown })},
	{name: "RouterDown", says: "theirs is switched off", remedy: "openstack router set --enable theirs", change: with(func(f *facts) {
		changed(f.Networks.Routers.Value, "theirs", func(r *sdn.Router) { r.Down = true })
	})},
	{name: "NetworkRouterWithoutGateway", says: "theirs has no gateway", remedy: "--external-gateway public theirs", change: with(func(f *facts) {
		changed(f.Networks.Routers.Value, "theirs", func(r *sdn.Router) { r.ExternalNetwork = "" })
	})},
	{name: "ServiceInterfaceMissing", says: "Router theirs has neither a port in subnet services", remedy: "fixed-ip subnet=services", change: with(func(f *facts) {
		f.Networks.RouterInterfaces.Value = append(f.Networks.RouterInterfaces.Value[:2:2], f.Networks.RouterInterfaces.Value[3:]...)
	})},
	{name: "ServiceInterfaceMissing", says: "Router other has neither", remedy: "openstack router add port other", change: with(func(f *facts) {
		f.Networks.Routers.Value["other"] = sdn.Router{ID: "other"}
		f.Networks.RouterInterfaces.Value[3].RouterID = "other"
	})},
	{name: "GivenNetworkMissing", says: "does not show subnet storage", change: with(func(f *facts) { delete(f.Networks.Subnets.Value, "storage") })},
	{name: "GivenNetworkMissing", says: "does not show network gone", change: with(func(f *facts) { f.Config.Given[0].NetworkID = "gone" })},
	{name: "GivenNetworkMissing", says: "pods (k8s-pods) is of network pods-net", change: with(func(f *facts) {
		f.Config.Given[0].SubnetIDs = []string{"storage", "pods"}
	})},
	{name: "GivenNetworkNotRouted", says: "No router has a port in subnet storage", remedy: "router add subnet ROUTER storage", change: with(func(f *facts) {
		f.Networks.RouterInterfaces.Value = f.Networks.RouterInterfaces.Value[:3]
	})},
	{name: "ProjectMissing", says: "Keystone has no project blue", change: with(func(f *facts) { f.Networks.Projects.Value.Enabled = nil })},
	{name: "ProjectMissing", says: "blue is disabled", remedy: "openstack project set --enable blue", change: with(func(f *facts) { f.Networks.Projects.Value.Enabled["blue"] = false })},
	{name: "ProjectMissing", says: "503", unknown: true, change: with(func(f *facts) { f.Networks.Projects.Err = errDown })},
	{name: "ProjectCredentialRefused", says: "wrong password", remedy: "edit secret kuryr-cloud", change: with(func(f *facts) {
		f.Networks.Credentials = map[string]error{"blue": fmt.Errorf("wrong password: %w", sdn.ErrLogin)}
	})},
	{name: "ProjectCredentialRefused", says: "503", unknown: true, change: with(func(f *facts) { f.Networks.Credentials = map[string]error{"blue": errDown} })},
	{name: "SecurityGroupRuleMissing", says: "Security groups group let in nothing from node n1 (192.0.2.11), node n2", remedy: "rule create --protocol any --remote-ip 192.0.2.11/32 group", change: func(f *facts) {
		changed(f.Networks.SecurityGroups.Value, "group", func(g *sdn.SurveyedGroup) { g.In = g.In[:2] })
	}},
	{name: "SecurityGroupRuleMissing", says: "let in nothing from pods (10.1.0.0/16), cluster IPs (10.96.0.0/16)", change: func(f *facts) {
		changed(f.Networks.SecurityGroups.Value, "group", func(g *sdn.SurveyedGroup) { g.In = g.In[2:] })
	}},
	{name: "SecurityGroupRuleMissing", says: "Security groups blue-group let in nothing from node n1", change: with(func(f *facts) {
		f.Networks.SecurityGroups.Value["blue-group"].In[0].IPv6 = true
	})},
	{name: "SecurityGroupRuleMissing", says: "503", unknown: true, change: func(f *facts) { f.Networks.SecurityGroups.Err = errDown }},
}

// What looks like a fault of networks and is none.
func TestNoFindingOfNetworks(t *testing.T) {
	for name, change := range map[string]func(f *facts){
		"a project that Keystone hides": func(f *facts) {
			f.Networks.Projects.Value = sdn.SurveyedProjects{Hidden: []string{"blue"}}
		},
		"a route in place of an interface": func(f *facts) {
			f.Networks.RouterInterfaces.Value = append(f.Networks.RouterInterfaces.Value[:2:2], f.Networks.RouterInterfaces.Value[3:]...)
			changed(f.Networks.Routers.Value, "theirs", func(r *sdn.Router) { r.Routes = []v1.Route{{Destination: "10.96.0.0/12", Gateway: "203.0.113.9"}} })
		},
		"a rule for the members of a group": func(f *facts) {
			f.Networks.SecurityGroups.Value["group"].In[0] = sdn.SurveyedRule{RemoteGroup: "group"}
		},
		"a pool of ports of another project": func(f *facts) {
			f.Cluster.Pools.Value = append(f.Cluster.Pools.Value, preflight.Pool{Node: "n1", ProjectID: "blue", Elsewhere: true, Min: 5000})
		},
		"no Services": func(f *facts) {
			f.Config.ServiceSubnetIDs = nil
			f.Networks.RouterInterfaces.Value = f.Networks.RouterInterfaces.Value[:1]
		},
	} {
		f := sound()
		apart(&f)
		change(&f)
		if r := preflight.Check(f); len(r.Findings) > 0 {
			t.Errorf("%s: found %+v", name, r.Findings)
		}
	}
}

// Without networks of namespaces nothing of them is asked for, so its errors are none.
func TestErrorsOfNetworksThatAreNotThere(t *testing.T) {
	f := sound()
	f.Networks.Projects.Err = errors.New("no Keystone")
	if r := preflight.Check(f); len(r.Findings) > 0 {
		t.Errorf("Check = %+v, want no finding", r.Findings)
	}
}
