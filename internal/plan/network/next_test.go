// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/network"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func taken(all ...string) (out []network.Taken) {
	for _, s := range all {
		out = append(out, network.Taken{Prefix: prefix(s), By: "the network of namespace other"})
	}
	return out
}

// flat is a namespace in mode flat without a KuryrNetwork.
func flat() network.Input {
	return network.Input{
		UID: "u1", Wanted: true,
		Choice: network.Choice{Mode: v1.NetworkFlat, ProjectID: "p", Ranges: []netip.Prefix{prefix("10.0.0.0/8")}, RouterID: "r", DNSServers: []string{"10.0.0.53"}},
	}
}

// pooled is a dual-stack namespace in mode namespace without a KuryrNetwork.
func pooled() network.Input {
	return network.Input{
		UID: "u1", Wanted: true,
		Choice: network.Choice{Mode: v1.NetworkNamespace, SubnetPoolIDs: []string{"four", "six"}, PrefixLength: 24},
		Pools:  []network.SubnetPool{{ID: "four", IPVersion: 4}, {ID: "six", IPVersion: 6}},
	}
}

func TestFree(t *testing.T) {
	for _, c := range []struct {
		within string
		length int
		taken  []string
		want   string // empty: none
	}{
		{"10.0.0.0/8", 16, nil, "10.0.0.0/16"},
		{"10.0.0.0/8", 16, []string{"10.0.0.0/16", "10.1.0.0/16", "10.3.0.0/16"}, "10.2.0.0/16"},
		{"10.0.0.0/8", 16, []string{"10.0.3.0/24", "10.1.255.255/32"}, "10.2.0.0/16"},
		{"10.0.0.0/8", 16, []string{"10.0.0.0/9"}, "10.128.0.0/16"},
		{"10.0.0.0/8", 16, []string{"10.0.0.0/9", "10.0.7.0/24", "10.128.0.0/10"}, "10.192.0.0/16"},
		{"10.0.0.0/8", 16, []string{"0.0.0.0/0"}, ""},
		{"10.0.0.0/8", 16, []string{"fd00::/8", "192.168.0.0/16"}, "10.0.0.0/16"},
		{"10.0.0.0/15", 16, []string{"10.0.0.0/16", "10.1.2.0/24"}, ""},
		{"10.0.0.0/24", 16, nil, ""},
		{"255.255.0.0/16", 24, []string{"255.255.0.0/17", "255.255.128.0/17"}, ""},
		{"fd00::/48", 64, []string{"fd00::/64", "fd00:0:0:1::/64"}, "fd00:0:0:2::/64"},
	} {
		got, ok := network.Free(prefix(c.within), c.length, taken(c.taken...))
		if ok != (c.want != "") || ok && got != prefix(c.want) {
			t.Errorf("Free(%s, %d, %v) = %s, %v; want %q", c.within, c.length, c.taken, got, ok, c.want)
		}
	}
}

// 10.0.0.0/8 holds 256 namespaces with a /16 each, and no two overlap.
func TestARangeIsUsedWhole(t *testing.T) {
	var all []network.Taken
	for n := range 256 {
		p, ok := network.Free(prefix("10.0.0.0/8"), 16, all)
		if !ok {
			t.Fatalf("no prefix is left after %d", n)
		}
		for _, other := range all {
			if other.Prefix.Overlaps(p) {
				t.Fatalf("%s overlaps with %s", p, other.Prefix)
			}
		}
		all = append(all, network.Taken{Prefix: p})
	}
	if p, ok := network.Free(prefix("10.0.0.0/8"), 16, all); ok {
		t.Errorf("the 257th prefix is %s, want none", p)
	}
}

func TestPlansOfNewNetworks(t *testing.T) {
	for name, c := range map[string]struct {
		in     network.Input
		change func(*network.Input)
		want   *v1.KuryrNetworkSpec
		reason string
	}{
		"the first prefix of the range": {in: flat(), want: &v1.KuryrNetworkSpec{
			Mode: v1.NetworkFlat, NamespaceUID: "u1", ProjectID: "p", RouterID: "r", DNSServers: []string{"10.0.0.53"},
			Subnets: []v1.NetworkSubnet{{IPVersion: 4, CIDR: "10.0.0.0/16"}},
		}},
		"a prefix that overlaps with nothing, of each family": {in: flat(), change: func(in *network.Input) {
			in.Choice.Ranges = append(in.Choice.Ranges, prefix("fd00::/56"))
			in.Taken = taken("10.0.0.0/16", "10.1.2.3/32", "fd00::/64")
		}, want: &v1.KuryrNetworkSpec{
			Mode: v1.NetworkFlat, NamespaceUID: "u1", ProjectID: "p", RouterID: "r", DNSServers: []string{"10.0.0.53"},
			Subnets: []v1.NetworkSubnet{{IPVersion: 4, CIDR: "10.2.0.0/16"}, {IPVersion: 6, CIDR: "fd00:0:0:1::/64"}},
		}},
		"the second range when the first is full": {in: flat(), change: func(in *network.Input) {
			in.Choice.Ranges = []netip.Prefix{prefix("10.5.0.0/16"), prefix("10.9.0.0/16")}
			in.Taken = taken("10.5.0.0/24")
		}, want: &v1.KuryrNetworkSpec{
			Mode: v1.NetworkFlat, NamespaceUID: "u1", ProjectID: "p", RouterID: "r", DNSServers: []string{"10.0.0.53"},
			Subnets: []v1.NetworkSubnet{{IPVersion: 4, CIDR: "10.9.0.0/16"}},
		}},
		"no family alone when the other's range is full": {in: flat(), change: func(in *network.Input) {
			in.Choice.Ranges = append(in.Choice.Ranges, prefix("fd00::/64"))
			in.Taken = taken("fd00::/64")
		}, want: &v1.KuryrNetworkSpec{
			Mode: v1.NetworkFlat, NamespaceUID: "u1", ProjectID: "p", RouterID: "r", DNSServers: []string{"10.0.0.53"},
		}, reason: v1.ReasonRangeFull},
		"a subnet of each pool": {in: pooled(), want: &v1.KuryrNetworkSpec{
			Mode: v1.NetworkNamespace, NamespaceUID: "u1",
			Subnets: []v1.NetworkSubnet{{IPVersion: 4, SubnetPoolID: "four", PrefixLength: 24}, {IPVersion: 6, SubnetPoolID: "six"}},
		}},
		"no pool": {in: pooled(), change: func(in *network.Input) { in.Choice.SubnetPoolIDs, in.Pools = nil, nil },
			want: &v1.KuryrNetworkSpec{Mode: v1.NetworkNamespace, NamespaceUID: "u1"}, reason: v1.ReasonNotConfigured},
		"an existing network": {in: network.Input{UID: "u1", Wanted: true, Choice: network.Choice{Mode: v1.NetworkGiven, NetworkID: "n", SubnetIDs: []string{"s"}, RouterID: "r"}},
			want: &v1.KuryrNetworkSpec{Mode: v1.NetworkGiven, NamespaceUID: "u1", NetworkID: "n", SubnetIDs: []string{"s"}}},
		"nothing before the first pod":          {in: flat(), change: func(in *network.Input) { in.Wanted = false }},
		"nothing for the common network":        {in: flat(), change: func(in *network.Input) { in.Choice.Common = true }},
		"nothing for a wish that is refused":    {in: flat(), change: func(in *network.Input) { in.Choice.Blocked = true }},
		"a wish that is left out is a note":     {in: flat(), change: func(in *network.Input) { in.Wanted, in.Choice.Faults = false, []network.Fault{{Field: "f"}} }, reason: v1.ReasonNotAllowed},
		"a refused wish is a note, and nothing": {in: flat(), change: func(in *network.Input) { in.Choice.Blocked, in.Choice.Faults = true, []network.Fault{{Field: "f"}} }, reason: v1.ReasonNotAllowed},
	} {
		in := c.in
		if c.change != nil {
			c.change(&in)
		}
		got := network.Next(in)
		if got.Delete || got.Reason != c.reason || (got.Why == "") != (c.reason == "") {
			t.Errorf("%s: %+v; want reason %q", name, got, c.reason)
		}
		if diff := cmp.Diff(c.want, got.Spec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// existing returns the input of the next plan, with the spec of the first.
func existing(in network.Input) network.Input {
	in.Current = network.Next(in).Spec
	return in
}

func TestChangesOfExistingNetworks(t *testing.T) {
	const inPlace, waits, replaced = "in place", "waits", "replaced"
	for name, c := range map[string]struct {
		in     network.Input
		change func(*network.Input)
		want   string
		words  string // in the message of one that waits
	}{
		"nothing":     {flat(), func(*network.Input) {}, inPlace, ""},
		"DNS servers": {flat(), func(in *network.Input) { in.Choice.DNSServers = []string{"1.1.1.1"} }, inPlace, ""},
		"routes": {flat(), func(in *network.Input) {
			in.Choice.Routes = []v1.Route{{Destination: "10.96.0.0/16", Gateway: "10.0.0.2"}}
		}, inPlace, ""},
		"the mode":    {flat(), func(in *network.Input) { in.Choice.Mode, in.Pools = v1.NetworkNamespace, pooled().Pools }, waits, "namespace"},
		"the project": {flat(), func(in *network.Input) { in.Choice.ProjectID = "q" }, waits, "project: want q, have p"},
		"the router":  {flat(), func(in *network.Input) { in.Choice.RouterID = "" }, waits, "router"},
		"the common one": {flat(), func(in *network.Input) {
			in.Choice = network.Choice{Common: true, Mode: v1.NetworkShared, ProjectID: "p"}
		}, waits, "want the common one, where new pods of the namespace are already"},
		"the common one and its project": {flat(), func(in *network.Input) { in.Choice = network.Choice{Common: true, Mode: v1.NetworkShared} }, waits,
			"want the common one with its network, the default; have p"},
		"another UID":   {flat(), func(in *network.Input) { in.UID = "u2" }, waits, "earlier namespace"},
		"another range": {flat(), func(in *network.Input) { in.Choice.Ranges = []netip.Prefix{prefix("10.64.0.0/10")} }, waits, "10.0.0.0/16"},
		"a wider range": {flat(), func(in *network.Input) {
			in.Choice.Ranges = []netip.Prefix{prefix("10.0.0.0/8"), prefix("172.16.0.0/12")}
		}, inPlace, ""},
		"another length": {flat(), func(in *network.Input) { in.Choice.PrefixLength = 20 }, waits, "10.0.0.0/16"},
		"a new neighbour": {flat(), func(in *network.Input) {
			in.Made, in.Taken = []netip.Prefix{prefix("10.0.0.0/16")}, taken("10.0.4.0/24")
		}, waits, "overlaps"},
		"another pool": {pooled(), func(in *network.Input) {
			in.Pools = []network.SubnetPool{{ID: "other", IPVersion: 4}, {ID: "six", IPVersion: 6}}
		}, waits, "four"},
		"another length of a pool": {pooled(), func(in *network.Input) { in.Choice.PrefixLength = 25 }, waits, "four"},
		"one family less":          {pooled(), func(in *network.Input) { in.Pools = in.Pools[:1] }, waits, "IPv6"},
		"another given network": {network.Input{UID: "u1", Wanted: true, Choice: network.Choice{Mode: v1.NetworkGiven, NetworkID: "n", SubnetIDs: []string{"s"}}},
			func(in *network.Input) { in.Choice.NetworkID = "m" }, waits, "network: want m, have n"},
		"another subnet of it": {network.Input{UID: "u1", Wanted: true, Choice: network.Choice{Mode: v1.NetworkGiven, NetworkID: "n", SubnetIDs: []string{"s"}}},
			func(in *network.Input) { in.Choice.SubnetIDs = []string{"s2"} }, inPlace, ""},
	} {
		for _, inUse := range []bool{true, false} {
			in := existing(c.in)
			was := in.Current.DeepCopy()
			in.InUse = inUse
			c.change(&in)
			got := network.Next(in)
			if diff := cmp.Diff(was, in.Current); diff != "" {
				t.Errorf("%s: Next changed its input:\n%s", name, diff)
			}
			want := c.want
			if want == waits && !inUse {
				want = replaced
			}
			switch {
			case want == replaced && (!got.Delete || got.Spec != nil),
				want == waits && (got.Delete || got.Spec != nil || got.Reason != v1.ReasonWaitsForPods || !strings.Contains(got.Why, c.words)),
				want == inPlace && (got.Delete || got.Spec == nil || got.Reason != ""):
				t.Errorf("%s, in use %t: %+v; want it %s", name, inUse, got, want)
			}
			if want == inPlace && got.Spec != nil {
				next := in
				next.Current = got.Spec
				if again := network.Next(next); !cmp.Equal(again.Spec, got.Spec) {
					t.Errorf("%s: the plan is not at rest: %s", name, cmp.Diff(got.Spec, again.Spec))
				}
			}
		}
	}
}

// A refused wish leaves the network as it is: the pods there keep it.
func TestARefusedWishChangesNothing(t *testing.T) {
	in := existing(flat())
	in.Choice.Blocked, in.Choice.Mode, in.Choice.Faults = true, v1.NetworkGiven, []network.Fault{{Field: "metadata.annotations[x]", Value: "v", Why: "no"}}
	if got := network.Next(in); got.Delete || got.Spec != nil || got.Reason != v1.ReasonNotAllowed || got.Why != `metadata.annotations[x] "v": no` {
		t.Errorf("%+v; want nothing but the condition", got)
	}
}

// A network that got no subnets because a range was full gets them when there is room.
func TestARangeWithRoomAgain(t *testing.T) {
	in := flat()
	in.Taken = taken("10.0.0.0/8")
	first := network.Next(in)
	if first.Reason != v1.ReasonRangeFull || !strings.Contains(first.Why, "networks.ranges") || len(first.Spec.Subnets) != 0 {
		t.Fatalf("with a full range: %+v", first)
	}
	in.Current, in.Taken = first.Spec, taken("10.0.0.0/9")
	if got := network.Next(in); got.Reason != "" || len(got.Spec.Subnets) != 1 || got.Spec.Subnets[0].CIDR != "10.128.0.0/16" {
		t.Errorf("with room: %+v", got)
	}
}

// A full family gets one more subnet, 16 at most.
func TestAFullFamilyGetsAnotherSubnet(t *testing.T) {
	for name, in := range map[string]network.Input{"flat": existing(flat()), "namespace": existing(pooled())} {
		in.InUse, in.Full, in.Taken = true, 4, taken("10.1.0.0/16")
		got := network.Next(in)
		if n := len(in.Current.Subnets); got.Reason != "" || len(got.Spec.Subnets) != n+1 || got.Spec.Subnets[n].IPVersion != 4 ||
			!cmp.Equal(got.Spec.Subnets[:n], in.Current.Subnets) {
			t.Fatalf("%s: %+v; want one more IPv4 subnet", name, got)
		}
		if name == "flat" && got.Spec.Subnets[1].CIDR != "10.2.0.0/16" {
			t.Errorf("the second subnet is %s; want the next free one, 10.2.0.0/16", got.Spec.Subnets[1].CIDR)
		}
		for len(got.Spec.Subnets) < network.MaxSubnets {
			in.Current = got.Spec
			got = network.Next(in)
		}
		in.Current = got.Spec
		if got := network.Next(in); got.Reason != v1.ReasonSubnetExhausted || len(got.Spec.Subnets) != network.MaxSubnets {
			t.Errorf("%s: the 17th subnet: %s, %d subnets; want SubnetExhausted and 16", name, got.Reason, len(got.Spec.Subnets))
		}
	}
}

// The SDN may choose a prefix that nodes have: that is told, and the network stays.
func TestAPrefixOfThePoolThatOverlaps(t *testing.T) {
	in := existing(pooled())
	in.Made, in.Taken = []netip.Prefix{prefix("10.3.0.0/24")}, []network.Taken{{Prefix: prefix("10.3.0.9/32"), By: "node n1"}}
	got := network.Next(in)
	if got.Delete || got.Reason != v1.ReasonOverlap || !strings.Contains(got.Why, "node n1") {
		t.Errorf("%+v; want Overlap with node n1", got)
	}
}
