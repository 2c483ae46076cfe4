// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package adopt_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/adopt"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// The nodes of the table: a bare-metal one, a virtual machine with a trunk, one
// by address pairs, and one that the SDN does not know.
func someNodes() []adopt.Node {
	on := func(name, parent, vifType string) adopt.Node {
		return adopt.Node{Name: name, Key: pool.KeyOn(name, pool.Settings{
			ProjectID: "proj", NetworkID: "net", SubnetIDs: []string{"sub4", "sub6"}, SecurityGroupIDs: []string{"grp"},
			VIFType: vifType, ParentPortID: parent,
		})}
	}
	return []adopt.Node{on("metal", "", ""), on("vm", "trunk", "vlan"), on("pairs", "parent", "macvlan"), {Name: "unknown"}}
}

// stray is a port that fits; change makes it the row's.
func stray(change func(*sdn.Port)) sdn.Port {
	p := sdn.Port{ID: "port", ProjectID: "proj", NetworkID: "net", SecurityGroupIDs: []string{"other"}, Host: "metal", VIF: v1.VIF{
		Type: "ovs", MACAddress: "fa:16:3e:00:00:01", Addresses: []v1.Address{{IP: "fd00::5", SubnetID: "sub6"}, {IP: "10.0.0.5", SubnetID: "sub4"}},
	}}
	change(&p)
	return p
}

func subport(p *sdn.Port) {
	p.Host, p.VIF.Type, p.VIF.ParentPortID, p.VIF.VLANID = "", "vlan", "trunk", 7
}

func TestPlan(t *testing.T) {
	for _, r := range []struct {
		name   string
		change func(*sdn.Port)
		state  func(*adopt.State)
		want   string
	}{
		{"bound to a node", func(*sdn.Port) {}, nil, "adopt metal: free on node metal"},
		{"subport of a node's trunk", subport, nil, "adopt vm: free on node vm"},
		{"neither bound nor on a trunk", func(p *sdn.Port) { p.Host = "" }, nil, "delete: neither bound to a host nor on a trunk"},
		{"bound elsewhere", func(p *sdn.Port) { p.Host = "theirs" }, nil, "leave: host theirs is no node of this cluster; another may own it"},
		{"bound elsewhere, for sure nobody's", func(p *sdn.Port) { p.Host = "theirs" }, elsewhere, "delete: host theirs is no node of this cluster"},
		{
			"on a trunk elsewhere", func(p *sdn.Port) { subport(p); p.VIF.ParentPortID = "theirs" }, nil,
			"leave: the trunk of port theirs is no node of this cluster; another may own it",
		},
		{
			"on a trunk elsewhere, for sure nobody's", func(p *sdn.Port) { subport(p); p.VIF.ParentPortID = "theirs" }, elsewhere,
			"delete: the trunk of port theirs is no node of this cluster",
		},
		{"on a node without a pool", func(p *sdn.Port) { p.Host = "unknown" }, elsewhere, "leave unknown: the pool of node unknown is unknown"},
		{"with a KuryrPort", func(*sdn.Port) {}, func(s *adopt.State) { s.Objects = map[string]bool{"port": true} }, "leave: it has a KuryrPort"},
		{
			"of a living pod", func(p *sdn.Port) { p.Host = "" },
			func(s *adopt.State) { s.Pods = map[string]string{"10.0.0.5": "web/shop-0"} }, "leave: pod web/shop-0 has its address",
		},
		{"of another project", func(p *sdn.Port) { p.ProjectID = "theirs" }, nil, "delete metal: of project theirs, the pool of project proj"},
		{"of another network", func(p *sdn.Port) { p.NetworkID = "theirs" }, nil, "delete metal: of network theirs, the pool of network net"},
		{
			"without an address of each subnet", func(p *sdn.Port) { p.VIF.Addresses = p.VIF.Addresses[:1] }, nil,
			"delete metal: of subnets sub6, the pool of subnets sub4, sub6",
		},
		{
			"with two of one subnet", func(p *sdn.Port) { p.VIF.Addresses = append(p.VIF.Addresses, p.VIF.Addresses[0]) }, nil,
			"delete metal: of subnets sub4, sub6, sub6, the pool of subnets sub4, sub6",
		},
		{"with an address that nobody asked for", func(p *sdn.Port) {
			p.VIF.Addresses = append(p.VIF.Addresses, v1.Address{IP: "fd00:9::5", SubnetID: "slaac", PrefixLength: 64})
		}, nil, "adopt metal: free on node metal"},
		{
			"with an address of a subnet beside the pool's", func(p *sdn.Port) { p.VIF.Addresses[0].SubnetID = "sub6b" },
			func(s *adopt.State) { s.Nodes[0].MoreSubnetIDs = map[string][]string{"sub6": {"sub6b"}} }, "adopt metal: free on node metal",
		},
		{"without addresses", func(p *sdn.Port) { p.VIF.Addresses = nil }, nil, "delete metal: of subnets none, the pool of subnets sub4, sub6"},
		{"bound to a virtual machine", func(p *sdn.Port) { p.Host = "vm" }, nil, "delete vm: plugged as ovs, the pool as vlan"},
		{"on the trunk of a machine with pairs", func(p *sdn.Port) { subport(p); p.VIF.ParentPortID = "parent" }, nil, "delete pairs: plugged as vlan, the pool as macvlan"},
	} {
		s := adopt.State{Strays: []sdn.Port{stray(r.change)}, Nodes: someNodes()}
		if r.state != nil {
			r.state(&s)
		}
		if got := describe(adopt.Plan(s)); len(got) != 1 || got[0] != r.want {
			t.Errorf("%s: got %q, want %q", r.name, got, r.want)
		}
	}
}

func elsewhere(s *adopt.State) { s.Elsewhere = true }

func describe(actions []adopt.Action) []string {
	var out []string
	for _, a := range actions {
		on := a.Node
		if on != "" {
			on = " " + on
		}
		out = append(out, fmt.Sprintf("%s%s: %s", a.Verb, on, a.Why))
	}
	return out
}

// Whatever order the SDN answers in, the plan is the same: what is adopted first,
// node by node.
func TestPlanIsSorted(t *testing.T) {
	var strays []sdn.Port
	for i, host := range []string{"metal", "", "theirs", "metal", ""} {
		strays = append(strays, stray(func(p *sdn.Port) { p.ID, p.Host = fmt.Sprint("port-", i), host }))
	}
	strays = append(strays, stray(func(p *sdn.Port) { subport(p); p.ID = "port-5" }))
	want := []string{"port-0", "port-3", "port-5", "port-1", "port-4", "port-2"}
	for range 2 {
		var got []string
		for _, a := range adopt.Plan(adopt.State{Strays: strays, Nodes: someNodes()}) {
			got = append(got, a.Port.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order of the plan (-want +got):\n%s", diff)
		}
		slices.Reverse(strays)
	}
}

// The pool is the one that the controller looks for.
func TestPoolOfAnAction(t *testing.T) {
	nodes := someNodes()
	got := adopt.Plan(adopt.State{Strays: []sdn.Port{stray(func(*sdn.Port) {})}, Nodes: nodes})[0].Pool()
	if want := pool.Name(nodes[0].Key); got != want {
		t.Errorf("Pool: got %s, want %s", got, want)
	}
}
