// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Networks combines the roles that networks of namespaces need.
type Networks interface {
	sdn.Networks
	sdn.Routers
	sdn.SubnetPools
	sdn.Ports
	sdn.Details
}

// NetworkTarget is a backend under test in these roles, with the prepared resources.
type NetworkTarget struct {
	Backend Networks
	Other   Networks // of another cluster on the same cloud
	Fresh   func(t *testing.T) Networks
	Cloud   NetworkCloud

	ProjectID string // owns all of these resources
	// RouterID is a router without interfaces, with a gateway in External.
	RouterID string
	// ExternalID is an external network with one subnet, External, whose first address is the
	// gateway.
	ExternalID string
	External   netip.Prefix
	// Four and Six are subnet pools that no other test uses.
	Four, Six NetworkPool
	// Given is a network with at least one subnet, which Kuryr did not make.
	Given   string
	Subnets []Subnet
	// MTU is that of a network that asks for none.
	MTU int
}

// NetworkPool is a subnet pool.
type NetworkPool struct {
	ID     string
	Prefix netip.Prefix
	Length int // of a subnet's prefix that asks for none, in bits
}

// NetworkCloud lets a test act behind the backend's back. Everything that it makes is removed at
// the end of the test. ok reports whether the cloud supports the action.
type NetworkCloud interface {
	// MakeForeignNetwork makes a network with this name and the mark of somebody else.
	MakeForeignNetwork(t *testing.T, name string) (id string)
	HasNetwork(t *testing.T, id string) bool
	// MakeForeignSubnet makes a subnet in a network, without a mark. It goes with the network.
	MakeForeignSubnet(t *testing.T, networkID string, prefix netip.Prefix) (id string)
	// LimitNetworks leaves room for some networks and subnets until the end of the test.
	LimitNetworks(t *testing.T, networks, subnets int)
	// NeedRouterInterface gives a port a floating IP by way of the target's router, which has an interface in
	// the port's subnet, until undo is called.
	NeedRouterInterface(t *testing.T, portID, subnetID string) (undo func())
	HasRouter(t *testing.T, id string) bool
	// LimitRouters leaves room for some routers until the end of the test.
	LimitRouters(t *testing.T, n int)
	// MakeFullNetwork makes an external network with one subnet, which has no free address.
	MakeFullNetwork(t *testing.T) (id string, prefix netip.Prefix)
	// LoseAnswer loses the answer to the next creation of a network, to the next one of a subnet or
	// a router, and to the next addition of an interface.
	LoseAnswer(t *testing.T) (ok bool)
}

// RunNetworks checks a backend against the contract of its role for networks, as Run does for the
// other roles.
func RunNetworks(t *testing.T, newTarget func(t *testing.T) NetworkTarget) {
	cases := []struct {
		name string
		run  func(*testing.T, networks)
	}{
		{"a network is complete", networkIsComplete},
		{"more networks than a page", moreNetworksThanAPage},
		{"subnets of both families", subnetsOfBothFamilies},
		{"prefixes of subnet pools", prefixesOfPools},
		{"a subnet pool without a prefix left", poolIsExhausted},
		{"networks at once", networksAtOnce},
		{"prefixes overlap", prefixesOverlap},
		{"the interfaces of a router", interfacesComeAndGo},
		{"interfaces overlap", interfacesOverlap},
		{"an interface that is needed", interfaceIsNeeded},
		{"networks in use stay", networkInUse},
		{"the ports in a network", portsInANetwork},
		{"a network is updated", networkIsUpdated},
		{"what is not there", networkOfMissing},
		{"foreign networks are out of reach", foreignNetwork},
		{"another cluster's network is out of reach", otherClustersNetwork},
		{"a foreign subnet in a network", foreignSubnet},
		{"given networks", givenNetworks},
		{"quotas of networks and subnets", networkQuotas},
		{"the answer about a network is lost", networkAnswerIsLost},
		{"cancelled calls for networks", networksCancelled},
		{"a router is complete", routerIsComplete},
		{"a router is updated", routerIsUpdated},
		{"a router keeps what serves", routerKeepsWhatServes},
		{"a router in use stays", routerInUse},
		{"routers that are not there", routerOfMissing},
		{"other routers are out of reach", otherRouters},
		{"quota of routers", routerQuota},
		{"the answer about a router is lost", routerAnswerIsLost},
		{"cancelled calls for routers", routersCancelled},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			owner := sdn.Owner{Kind: sdn.KindNetwork, Namespace: "t-" + strings.ToLower(unique()), Name: "n"}
			c.run(t, networks{NetworkTarget: newTarget(t), t: t, owner: owner})
		})
	}
}

// networks is a target, the owner of one case, and steps that several cases use.
type networks struct {
	NetworkTarget
	t     *testing.T
	owner sdn.Owner
}

func (f networks) ctx() context.Context {
	return fixture{t: f.t}.ctx()
}

func (f networks) must(what string, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("%s: %v", what, err)
	}
}

// wants checks an error and the field that it names.
func (f networks) wants(what string, err, want error, field sdn.Field) {
	f.t.Helper()
	if !errors.Is(err, want) || sdn.FieldOf(err) != field {
		f.t.Errorf("%s: %v, of field %q; want %v of field %q", what, err, sdn.FieldOf(err), want, field)
	}
}

func (f networks) name() string {
	return sdn.NetworkName("uid-of-"+f.owner.Namespace, f.owner.Namespace)
}

// network makes a network that goes at the end of the test, with whatever is in it.
func (f networks) network() sdn.Network {
	f.t.Helper()
	n, err := f.Backend.CreateNetwork(f.ctx(), f.owner, sdn.NetworkSpec{Name: f.name(), ProjectID: f.ProjectID})
	f.must("CreateNetwork", err)
	f.goes(f.Backend, n.ID)
	return n
}

// goes removes a network at the end of the test.
func (f networks) goes(b Networks, id string) {
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), callTimeout)
		defer cancel()
		n, err := b.Network(ctx, id)
		for _, s := range n.Subnets {
			for _, r := range s.RouterIDs {
				err = errors.Join(err, b.RemoveRouterInterface(ctx, r, s.ID))
			}
		}
		if !errors.Is(err, sdn.ErrNotFound) {
			err = errors.Join(err, b.DeleteNetwork(ctx, id))
		}
		if err != nil && !errors.Is(err, sdn.ErrNotFound) {
			f.t.Errorf("removing network %s after the test: %v", id, err)
		}
	})
}

func (f networks) spec(n sdn.Network, prefix string) sdn.SubnetSpec {
	s := sdn.SubnetSpec{NetworkID: n.ID, Name: f.name(), ProjectID: f.ProjectID, IPVersion: 6, Prefix: netip.MustParsePrefix(prefix)}
	if s.Prefix.Addr().Is4() {
		s.IPVersion = 4
	}
	return s
}

func (f networks) fromPool(n sdn.Network, p NetworkPool) sdn.SubnetSpec {
	s := sdn.SubnetSpec{NetworkID: n.ID, Name: f.name(), ProjectID: f.ProjectID, IPVersion: 6, PoolID: p.ID}
	if p.Prefix.Addr().Is4() {
		s.IPVersion = 4
	}
	return s
}

func (f networks) subnet(spec sdn.SubnetSpec) sdn.OwnSubnet {
	f.t.Helper()
	s, err := f.Backend.CreateSubnet(f.ctx(), f.owner, spec)
	f.must("CreateSubnet", err)
	return s
}

// port makes a port without a host in subnets. It goes when undo is called, or at the end.
func (f networks) port(n sdn.Network, subnetIDs ...string) (p sdn.Port, undo func()) {
	f.t.Helper()
	all, err := f.Backend.CreatePorts(f.ctx(), sdn.Owner{Kind: sdn.KindPool, Name: f.owner.Namespace},
		sdn.PortRequest{ProjectID: f.ProjectID, NetworkID: n.ID, SubnetIDs: subnetIDs}, 1)
	f.must("CreatePorts", err)
	undo = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), callTimeout)
		defer cancel()
		if err := f.Backend.DeletePort(ctx, all[0].ID); err != nil {
			f.t.Errorf("DeletePort: %v", err)
		}
	}
	f.t.Cleanup(undo)
	return all[0], undo
}

// seen reads a network by a backend that has just started.
func (f networks) seen(id string) sdn.Network {
	f.t.Helper()
	n, err := f.Fresh(f.t).Network(f.ctx(), id)
	f.must("Network", err)
	return n
}

// listed are the IDs of this case's networks that b lists.
func (f networks) listed(b Networks) (ids []string) {
	f.t.Helper()
	all, err := b.ListNetworks(f.ctx())
	f.must("ListNetworks", err)
	for _, n := range all {
		if n.Owner == f.owner {
			ids = append(ids, n.ID)
			if n.Name != f.name() || n.ProjectID != f.ProjectID || n.Created.IsZero() || time.Since(n.Created).Abs() > time.Hour {
				f.t.Errorf("ListNetworks shows %+v", n)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

func networkIsComplete(t *testing.T, f networks) {
	n, err := f.Backend.CreateNetwork(f.ctx(), f.owner, sdn.NetworkSpec{Name: f.name(), ProjectID: f.ProjectID})
	f.must("CreateNetwork", err)
	f.goes(f.Backend, n.ID)
	want := sdn.Network{ID: n.ID, Name: f.name(), Owner: f.owner, ProjectID: f.ProjectID, MTU: f.MTU}
	for what, got := range map[string]sdn.Network{"CreateNetwork": n, "Network": f.seen(n.ID)} {
		if diff := cmp.Diff(want, got); diff != "" || n.ID == "" {
			t.Errorf("%s: (-want +got)\n%s", what, diff)
		}
	}
	for _, b := range []Networks{f.Backend, f.Fresh(t)} {
		if got := f.listed(b); !slices.Equal(got, []string{n.ID}) {
			t.Errorf("ListNetworks shows %v of the owner, want %s", got, n.ID)
		}
	}
	f.must("DeleteNetwork", f.Backend.DeleteNetwork(f.ctx(), n.ID))
	f.must("DeleteNetwork again", f.Backend.DeleteNetwork(f.ctx(), n.ID))
	if f.Cloud.HasNetwork(t, n.ID) {
		t.Error("the network is still there")
	}
}

func moreNetworksThanAPage(t *testing.T, f networks) {
	var want []string
	for range 5 {
		want = append(want, f.network().ID)
	}
	slices.Sort(want)
	if got := f.listed(f.Backend); !slices.Equal(got, want) {
		t.Errorf("ListNetworks shows %v, want %v", got, want)
	}
}

func subnetsOfBothFamilies(t *testing.T, f networks) {
	n := f.network()
	four, six := f.spec(n, "10.250.0.0/24"), f.spec(n, "fd00:250::/64")
	four.DNSServers = []netip.Addr{netip.MustParseAddr("10.250.0.53"), netip.MustParseAddr("10.1.1.53")}
	four.Routes = []v1.Route{{Destination: "10.96.0.0/16", Gateway: "10.250.0.1"}}
	six.DNSServers = []netip.Addr{netip.MustParseAddr("fd00:250::53")}
	for _, spec := range []sdn.SubnetSpec{four, six} {
		s := f.subnet(spec)
		want := sdn.OwnSubnet{
			ID: s.ID, NetworkID: n.ID, IPVersion: spec.IPVersion, Prefix: spec.Prefix, Gateway: spec.Prefix.Addr().Next(), SubnetUpdate: spec.SubnetUpdate, Created: s.Created,
		}
		if diff := cmp.Diff(want, s, byValue); diff != "" || s.ID == "" {
			t.Errorf("CreateSubnet: (-want +got)\n%s", diff)
		}
		n.Subnets = append(n.Subnets, s)
	}
	slices.SortFunc(n.Subnets, sdn.CompareSubnets)
	if diff := cmp.Diff(n, f.seen(n.ID), byValue); diff != "" {
		t.Errorf("Network: (-want +got)\n%s", diff)
	}
	p, _ := f.port(n, n.Subnets[0].ID, n.Subnets[1].ID)
	if len(p.VIF.Addresses) != 2 || p.NetworkID != n.ID || p.VIF.MTU != int32(f.MTU) || !cmp.Equal(p.VIF.Routes, four.Routes) {
		t.Errorf("a port has %+v", p)
	}
	for i, a := range p.VIF.Addresses {
		s := n.Subnets[i]
		if ip := netip.MustParseAddr(a.IP); a.SubnetID != s.ID || a.Gateway != s.Gateway.String() || !s.Prefix.Contains(ip) || ip == s.Gateway {
			t.Errorf("a port in %s has the address %+v", s.Prefix, a)
		}
	}
}

// byValue compares addresses and prefixes.
var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func prefixesOfPools(t *testing.T, f networks) {
	n := f.network()
	longer := f.fromPool(n, f.Four)
	longer.PrefixLength = f.Four.Length + 1
	var all []sdn.OwnSubnet
	for spec, pool := range map[*sdn.SubnetSpec]NetworkPool{new(f.fromPool(n, f.Four)): f.Four, &longer: f.Four, new(f.fromPool(n, f.Six)): f.Six} {
		s := f.subnet(*spec)
		bits := max(spec.PrefixLength, pool.Length)
		if s.PoolID != pool.ID || s.Prefix.Bits() != bits || !pool.Prefix.Contains(s.Prefix.Addr()) || s.Gateway != s.Prefix.Addr().Next() || s.IPVersion != spec.IPVersion {
			t.Errorf("a subnet of pool %+v: %+v, want a /%d whose first address is the gateway", pool, s, bits)
		}
		for _, o := range all {
			if o.Prefix.Overlaps(s.Prefix) {
				t.Errorf("two subnets have %s and %s", o.Prefix, s.Prefix)
			}
		}
		all = append(all, s)
		if p, _ := f.port(n, s.ID); p.VIF.Addresses[0].IP == s.Gateway.String() || p.VIF.Addresses[0].Gateway != s.Gateway.String() {
			t.Errorf("a port in a subnet of a pool has %+v, its gateway is %s", p.VIF.Addresses, s.Gateway)
		}
	}
	for id, version := range map[string]int{f.Four.ID: 4, f.Six.ID: 6} {
		if pool, err := f.Backend.SubnetPool(f.ctx(), id); err != nil || pool.ID != id || pool.IPVersion != version {
			t.Errorf("SubnetPool(%s) = %+v, %v; want IPv%d", id, pool, err, version)
		}
	}
	_, err := f.Backend.SubnetPool(f.ctx(), n.ID)
	f.wants("SubnetPool of a network's ID", err, sdn.ErrInvalid, sdn.FieldSubnetPool)
	_, err = f.Backend.CreateSubnet(f.ctx(), f.owner, f.spec(n, "10.250.9.0/24"))
	f.wants("CreateSubnet of no pool beside those of one", err, sdn.ErrInvalid, sdn.FieldSubnetPool)
}

func poolIsExhausted(t *testing.T, f networks) {
	one, two := f.network(), f.network()
	for _, pool := range []NetworkPool{f.Four, f.Six} {
		spec := f.fromPool(one, pool)
		spec.PrefixLength = pool.Prefix.Bits()
		s := f.subnet(spec)
		_, err := f.Backend.CreateSubnet(f.ctx(), f.owner, f.fromPool(two, pool))
		f.wants("CreateSubnet of a full subnet pool", err, sdn.ErrAddresses, "")
		f.must("DeleteSubnet", f.Backend.DeleteSubnet(f.ctx(), s.ID))
		f.subnet(f.fromPool(two, pool))
	}
	if got := f.seen(two.ID).Subnets; len(got) != 2 {
		t.Errorf("the other network has %d subnets, want 2", len(got))
	}
}

func prefixesOverlap(t *testing.T, f networks) {
	one, two := f.network(), f.network()
	for _, prefix := range []string{"10.250.0.0/24", "fd00:250::/64"} {
		f.subnet(f.spec(one, prefix))
		_, err := f.Backend.CreateSubnet(f.ctx(), f.owner, f.spec(one, prefix))
		f.wants("CreateSubnet of a prefix that the network has", err, sdn.ErrOverlap, "")
		if errors.Is(err, sdn.ErrInvalid) {
			t.Errorf("an overlap is an ErrInvalid, too: %v", err)
		}
		f.subnet(f.spec(two, prefix))
	}
	wide := f.spec(one, "10.250.0.0/16")
	_, err := f.Backend.CreateSubnet(f.ctx(), f.owner, wide)
	f.wants("CreateSubnet of a wider prefix", err, sdn.ErrOverlap, "")
	if err != nil && !strings.Contains(err.Error(), "10.250.0.0/24") {
		t.Errorf("%q does not name the prefix in use", err)
	}
}
