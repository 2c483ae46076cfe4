// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var comparePrefixes = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

// dual is the spec of a flat network of both families.
func dual() *v1.KuryrNetworkSpec {
	return &v1.KuryrNetworkSpec{
		Mode: v1.NetworkFlat, NamespaceUID: "u1", ProjectID: "p", RouterID: "r", DNSServers: []string{"10.9.9.9", "fd09::9"},
		Routes:  []v1.Route{{Destination: "10.96.0.0/16", Gateway: "10.0.0.2"}},
		Subnets: []v1.NetworkSubnet{{IPVersion: 4, CIDR: "10.0.0.0/16"}, {IPVersion: 6, CIDR: "fd00::/64"}},
	}
}

// made is the network of dual, complete.
func made() sdn.Network {
	return sdn.Network{ID: "n", Name: "u1/shop", ProjectID: "p", MTU: 1400, Subnets: []sdn.OwnSubnet{
		{ID: "s6", NetworkID: "n", IPVersion: 6, Prefix: prefix("fd00::/64"), Gateway: netip.MustParseAddr("fd00::1"), RouterIDs: []string{"r"},
			SubnetUpdate: sdn.SubnetUpdate{DNSServers: []netip.Addr{netip.MustParseAddr("fd09::9")}}},
		{ID: "s4", NetworkID: "n", IPVersion: 4, Prefix: prefix("10.0.0.0/16"), Gateway: netip.MustParseAddr("10.0.0.1"), RouterIDs: []string{"r"},
			SubnetUpdate: sdn.SubnetUpdate{DNSServers: []netip.Addr{netip.MustParseAddr("10.9.9.9")}, Routes: dual().Routes}},
	}}
}

func TestMissing(t *testing.T) {
	subnet4 := sdn.SubnetSpec{NetworkID: "n", Name: "u1/shop", ProjectID: "p", IPVersion: 4, Prefix: prefix("10.0.0.0/16"), SubnetUpdate: made().Subnets[1].SubnetUpdate}
	for name, c := range map[string]struct {
		is   func(*sdn.Network)
		want network.Work
	}{
		"nothing":      {func(*sdn.Network) {}, network.Work{}},
		"an interface": {func(n *sdn.Network) { n.Subnets[0].RouterIDs = []string{"another"} }, network.Work{RouterInterfaces: []string{"s6"}}},
		"a subnet":     {func(n *sdn.Network) { n.Subnets = n.Subnets[:1] }, network.Work{Subnets: []sdn.SubnetSpec{subnet4}}},
		"DNS servers":  {func(n *sdn.Network) { n.Subnets[1].DNSServers = nil }, network.Work{Updates: map[string]sdn.SubnetUpdate{"s4": subnet4.SubnetUpdate}}},
		"somebody else's subnet is left alone": {func(n *sdn.Network) {
			n.Subnets = append(n.Subnets, sdn.OwnSubnet{ID: "x", IPVersion: 4, Prefix: prefix("10.7.0.0/16")})
		}, network.Work{}},
	} {
		is := made()
		c.is(&is)
		got := network.Missing("shop", dual(), is, "r")
		if diff := cmp.Diff(c.want, got, comparePrefixes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	got := network.Missing("shop", dual(), sdn.Network{}, "r")
	if want := (sdn.NetworkSpec{Name: "u1/shop", ProjectID: "p"}); got.Create == nil || *got.Create != want || len(got.Subnets) != 2 {
		t.Errorf("without a network: %+v", got)
	}
}

// Two subnets of one pool are told apart by their age.
func TestMatchSubnetsOfAPool(t *testing.T) {
	spec := &v1.KuryrNetworkSpec{Mode: v1.NetworkNamespace, Subnets: []v1.NetworkSubnet{
		{IPVersion: 4, SubnetPoolID: "a"}, {IPVersion: 6, SubnetPoolID: "b"}, {IPVersion: 4, SubnetPoolID: "a"},
	}}
	var ids []string
	for _, s := range network.Match(spec, []sdn.OwnSubnet{{ID: "1", IPVersion: 4, PoolID: "a"}, {ID: "x", IPVersion: 4}, {ID: "2", IPVersion: 4, PoolID: "a"}}) {
		ids = append(ids, s.ID)
	}
	if diff := cmp.Diff([]string{"1", "", "2"}, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatus(t *testing.T) {
	want := v1.KuryrNetworkStatus{
		NetworkID: "n", MTU: 1400, RouterID: "r",
		Subnets: []v1.NetworkSubnetStatus{
			{ID: "s4", IPVersion: 4, CIDR: "10.0.0.0/16", Gateway: "10.0.0.1", Routed: true},
			{ID: "s6", IPVersion: 6, CIDR: "fd00::/64", Gateway: "fd00::1", Routed: true},
		},
		NodeRoutes: []v1.Route{{Destination: "10.0.0.0/16", Gateway: "192.0.2.7"}},
	}
	got := network.Status(dual(), made(), network.Router{ID: "r", Outside: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8")}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !network.Complete(dual(), &got) {
		t.Error("a network with all subnets and interfaces is not complete")
	}
	for name, spoil := range map[string]func(*v1.KuryrNetworkStatus){
		"no network":   func(s *v1.KuryrNetworkStatus) { s.NetworkID = "" },
		"no subnet":    func(s *v1.KuryrNetworkStatus) { s.Subnets = s.Subnets[:1] },
		"no interface": func(s *v1.KuryrNetworkStatus) { s.Subnets[1].Routed = false },
	} {
		broken := *got.DeepCopy()
		spoil(&broken)
		if network.Complete(dual(), &broken) {
			t.Errorf("%s: complete", name)
		}
	}
}

func TestFullFamily(t *testing.T) {
	status := network.Status(dual(), made(), network.Router{ID: "r"})
	small := *status.DeepCopy()
	small.Subnets[0].CIDR = "10.0.0.0/28" // 16 addresses
	for name, c := range map[string]struct {
		spec   *v1.KuryrNetworkSpec
		status v1.KuryrNetworkStatus
		used   map[string]int
		want   int32
	}{
		"the smaller family":                    {dual(), small, map[string]int{"s4": 13, "s6": 13}, 4},
		"a subnet that was just added has room": {dual(), small, map[string]int{"s4": 3}, 0},
		"a subnet is yet to be made":            {dual(), v1.KuryrNetworkStatus{NetworkID: "n"}, nil, 0},
		"an existing network":                   {&v1.KuryrNetworkSpec{Mode: v1.NetworkGiven}, small, map[string]int{"s4": 13}, 0},
	} {
		if got := network.FullFamily(c.spec, &c.status, c.used); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
