// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// routed checks which subnets of a network the target's router has an interface in.
func (f networks) routed(n sdn.Network, want ...string) {
	f.t.Helper()
	var got []string
	for _, s := range f.seen(n.ID).Subnets {
		if slices.Equal(s.RouterIDs, []string{f.RouterID}) {
			got = append(got, s.ID)
		} else if len(s.RouterIDs) > 0 {
			f.t.Errorf("subnet %s has interfaces of %v", s.ID, s.RouterIDs)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		f.t.Errorf("the router has interfaces in %v, want %v", got, want)
	}
}

func interfacesComeAndGo(t *testing.T, f networks) {
	n := f.network()
	four, six, more := f.subnet(f.spec(n, "10.250.0.0/24")), f.subnet(f.spec(n, "fd00:250::/64")), f.subnet(f.spec(n, "fd00:251::/64"))
	f.routed(n)
	for _, id := range []string{four.ID, six.ID, more.ID} {
		f.must("AddRouterInterface", f.Backend.AddRouterInterface(f.ctx(), f.RouterID, id))
		f.must("AddRouterInterface again", f.Backend.AddRouterInterface(f.ctx(), f.RouterID, id))
		f.must("AddRouterInterface after a restart", f.Fresh(t).AddRouterInterface(f.ctx(), f.RouterID, id))
	}
	f.routed(n, four.ID, six.ID, more.ID)
	addresses, err := f.Backend.RouterAddresses(f.ctx(), f.RouterID)
	f.must("RouterAddresses", err)
	if len(addresses) != 1 || !f.External.Contains(addresses[0]) {
		t.Errorf("RouterAddresses: %v, want one in %s", addresses, f.External)
	}
	for i, b := range []Networks{f.Backend, f.Fresh(t)} {
		id := []string{six.ID, four.ID}[i]
		f.must("RemoveRouterInterface", b.RemoveRouterInterface(f.ctx(), f.RouterID, id))
		f.must("RemoveRouterInterface again", b.RemoveRouterInterface(f.ctx(), f.RouterID, id))
	}
	f.routed(n, more.ID)
	f.must("RemoveRouterInterface of a missing router", f.Backend.RemoveRouterInterface(f.ctx(), MissingID, more.ID))
	f.must("RemoveRouterInterface of a missing subnet", f.Backend.RemoveRouterInterface(f.ctx(), f.RouterID, MissingID))
	f.routed(n, more.ID)
}

func interfacesOverlap(t *testing.T, f networks) {
	one, two := f.network(), f.network()
	for _, prefixes := range [][2]string{{"10.250.0.0/24", "10.250.0.0/20"}, {"fd00:250::/64", "fd00:250::/64"}} {
		first, second := f.subnet(f.spec(one, prefixes[0])), f.subnet(f.spec(two, prefixes[1]))
		f.must("AddRouterInterface", f.Backend.AddRouterInterface(f.ctx(), f.RouterID, first.ID))
		err := f.Backend.AddRouterInterface(f.ctx(), f.RouterID, second.ID)
		f.wants("AddRouterInterface in a subnet that overlaps", err, sdn.ErrOverlap, "")
		if errors.Is(err, sdn.ErrInvalid) {
			t.Errorf("an overlap is an ErrInvalid, too: %v", err)
		}
		f.routed(two)
		f.must("RemoveRouterInterface", f.Backend.RemoveRouterInterface(f.ctx(), f.RouterID, first.ID))
		f.must("AddRouterInterface once the other one is gone", f.Backend.AddRouterInterface(f.ctx(), f.RouterID, second.ID))
		f.must("RemoveRouterInterface", f.Backend.RemoveRouterInterface(f.ctx(), f.RouterID, second.ID))
	}
}

// networksAtOnce makes networks behind one router at the same time, as many as a pool has prefixes.
func networksAtOnce(t *testing.T, f networks) {
	var all sync.WaitGroup
	made := make([]sdn.Network, 4)
	for i := range made {
		made[i] = f.network()
		all.Go(func() {
			var s sdn.OwnSubnet
			err := unlessConflict(func() (err error) {
				s, err = f.Backend.CreateSubnet(f.ctx(), f.owner, f.fromPool(made[i], f.Four))
				return err
			})
			if err == nil {
				err = unlessConflict(func() error { return f.Backend.AddRouterInterface(f.ctx(), f.RouterID, s.ID) })
			}
			if err != nil {
				t.Errorf("making one of %d networks at once: %v", len(made), err)
			}
		})
	}
	all.Wait()
	prefixes := map[netip.Prefix]bool{}
	for _, n := range made {
		got := f.seen(n.ID).Subnets
		if len(got) != 1 || !slices.Equal(got[0].RouterIDs, []string{f.RouterID}) || prefixes[got[0].Prefix] {
			t.Fatalf("a network has %+v, want one subnet of its own with an interface", got)
		}
		prefixes[got[0].Prefix] = true
	}
}

// unlessConflict repeats a call a few times, as callers do.
func unlessConflict(call func() error) (err error) {
	for range 5 {
		if err = call(); !errors.Is(err, sdn.ErrConflict) {
			return err
		}
	}
	return err
}

func interfaceIsNeeded(_ *testing.T, f networks) {
	n := f.network()
	s := f.subnet(f.spec(n, "10.250.0.0/24"))
	f.must("AddRouterInterface", f.Backend.AddRouterInterface(f.ctx(), f.RouterID, s.ID))
	p, gone := f.port(n, s.ID)
	undo := f.Cloud.NeedRouterInterface(f.t, p.ID, s.ID)
	f.wants("RemoveRouterInterface of an interface that a floating IP needs", f.Backend.RemoveRouterInterface(f.ctx(), f.RouterID, s.ID), sdn.ErrConflict, "")
	f.routed(n, s.ID)
	undo()
	gone()
	f.must("RemoveRouterInterface", f.Backend.RemoveRouterInterface(f.ctx(), f.RouterID, s.ID))
	f.routed(n)
}

func networkInUse(t *testing.T, f networks) {
	n := f.network()
	s, other := f.subnet(f.spec(n, "10.250.0.0/24")), f.subnet(f.spec(n, "10.250.1.0/24"))
	_, gone := f.port(n, s.ID)
	f.wants("DeleteNetwork with a port", f.Backend.DeleteNetwork(f.ctx(), n.ID), sdn.ErrConflict, "")
	f.wants("DeleteSubnet with a port", f.Backend.DeleteSubnet(f.ctx(), s.ID), sdn.ErrConflict, "")
	f.must("DeleteSubnet without a port", f.Backend.DeleteSubnet(f.ctx(), other.ID))
	f.must("DeleteSubnet again", f.Backend.DeleteSubnet(f.ctx(), other.ID))
	gone()
	f.must("AddRouterInterface", f.Backend.AddRouterInterface(f.ctx(), f.RouterID, s.ID))
	f.wants("DeleteNetwork with an interface of a router", f.Backend.DeleteNetwork(f.ctx(), n.ID), sdn.ErrConflict, "")
	f.wants("DeleteSubnet with an interface of a router", f.Backend.DeleteSubnet(f.ctx(), s.ID), sdn.ErrConflict, "")
	if got := f.seen(n.ID).Subnets; len(got) != 1 || got[0].ID != s.ID {
		t.Errorf("the network has %+v, want subnet %s alone", got, s.ID)
	}
	f.must("RemoveRouterInterface", f.Backend.RemoveRouterInterface(f.ctx(), f.RouterID, s.ID))
	f.must("DeleteNetwork", f.Fresh(t).DeleteNetwork(f.ctx(), n.ID))
	_, err := f.Backend.Network(f.ctx(), n.ID)
	f.wants("Network of one that is deleted", err, sdn.ErrNotFound, "")
	if got := f.listed(f.Backend); len(got) != 0 {
		t.Errorf("ListNetworks shows %v", got)
	}
}

// portsInANetwork: the ports of this cluster and of others are in use, the interface of a router is
// not.
func portsInANetwork(t *testing.T, f networks) {
	n, empty := f.network(), f.network()
	s := f.subnet(f.spec(n, "10.250.0.0/24"))
	f.must("AddRouterInterface", f.Backend.AddRouterInterface(f.ctx(), f.RouterID, s.ID))
	shows := func(want ...sdn.PortUse) {
		t.Helper()
		got, err := f.Fresh(t).InUse(f.ctx(), n.ID)
		f.must("InUse", err)
		slices.SortFunc(want, func(a, b sdn.PortUse) int { return strings.Compare(a.ID, b.ID) })
		for i := range got {
			if got[i].DeviceOwner == "" {
				t.Errorf("InUse does not say what has port %s", got[i].ID)
			}
			got[i].DeviceOwner = ""
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("InUse: (-want +got)\n%s", diff)
		}
	}
	shows()
	var want []sdn.PortUse
	for range 3 { // more than a page
		p, _ := f.port(n, s.ID)
		want = append(want, sdn.PortUse{ID: p.ID, Own: true})
	}
	others := f
	others.Backend = f.Other
	foreign, gone := others.port(n, s.ID)
	shows(append(slices.Clone(want), sdn.PortUse{ID: foreign.ID})...)
	gone()
	shows(want...)
	for what, id := range map[string]string{"an empty network": empty.ID, "a missing network": MissingID} {
		if got, err := f.Backend.InUse(f.ctx(), id); err != nil || len(got) != 0 {
			t.Errorf("InUse of %s = %v, %v; want none", what, got, err)
		}
	}
}

func networkIsUpdated(t *testing.T, f networks) {
	n := f.network()
	spec := f.spec(n, "10.250.0.0/24")
	spec.DNSServers = []netip.Addr{netip.MustParseAddr("10.250.0.53")}
	s := f.subnet(spec)
	_, err := f.Backend.Details(f.ctx(), s.ID)
	f.must("Details", err)
	routes := []v1.Route{{Destination: "10.97.0.0/16", Gateway: "10.250.0.9"}}
	for _, u := range []sdn.SubnetUpdate{{DNSServers: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")}, Routes: routes}, {}, {Routes: routes}} {
		f.must("UpdateSubnet", f.Backend.UpdateSubnet(f.ctx(), s.ID, u))
		if diff := cmp.Diff(u, f.seen(n.ID).Subnets[0].SubnetUpdate, byValue); diff != "" {
			t.Errorf("after UpdateSubnet: (-want +got)\n%s", diff)
		}
	}
	if got, err := f.Backend.Details(f.ctx(), s.ID); err != nil || !cmp.Equal(got.Routes, routes) {
		t.Errorf("a new port gets %+v, %v; want the routes of the updates", got, err)
	}
}

func networkOfMissing(_ *testing.T, f networks) {
	n := f.network()
	s := f.subnet(f.spec(n, "10.250.0.0/24"))
	missing := sdn.Network{ID: MissingID}
	for _, b := range []Networks{f.Backend, f.Other} {
		f.wants("Network", second(b.Network(f.ctx(), MissingID)), sdn.ErrNotFound, "")
		f.wants("UpdateSubnet", b.UpdateSubnet(f.ctx(), MissingID, sdn.SubnetUpdate{}), sdn.ErrNotFound, "")
		f.must("DeleteNetwork", b.DeleteNetwork(f.ctx(), MissingID))
		f.must("DeleteSubnet", b.DeleteSubnet(f.ctx(), MissingID))
		f.wants("CreateSubnet in a missing network", second(b.CreateSubnet(f.ctx(), f.owner, f.spec(missing, "10.250.1.0/24"))), sdn.ErrInvalid, sdn.FieldNetwork)
		f.wants("AddRouterInterface in a missing subnet", b.AddRouterInterface(f.ctx(), f.RouterID, MissingID), sdn.ErrInvalid, sdn.FieldSubnet)
		f.wants("RouterAddresses", second(b.RouterAddresses(f.ctx(), MissingID)), sdn.ErrInvalid, sdn.FieldRouter)
	}
	f.wants("AddRouterInterface of a missing router", f.Backend.AddRouterInterface(f.ctx(), MissingID, s.ID), sdn.ErrInvalid, sdn.FieldRouter)
	spec := f.fromPool(n, NetworkPool{ID: MissingID})
	f.wants("CreateSubnet of a missing pool", second(f.Backend.CreateSubnet(f.ctx(), f.owner, spec)), sdn.ErrInvalid, sdn.FieldSubnetPool)
	other := f.network()
	spec = f.fromPool(other, f.Six)
	spec.IPVersion = 4
	f.wants("CreateSubnet of a pool of the other family", second(f.Backend.CreateSubnet(f.ctx(), f.owner, spec)), sdn.ErrInvalid, sdn.FieldSubnetPool)
}

// outOfReach tries all that a backend can do with a network, and a subnet of it, that are not its
// cluster's.
func (f networks) outOfReach(b Networks, id, subnetID string) {
	f.t.Helper()
	f.wants("Network", second(b.Network(f.ctx(), id)), sdn.ErrNotFound, "")
	f.must("DeleteNetwork", b.DeleteNetwork(f.ctx(), id))
	f.wants("CreateSubnet", second(b.CreateSubnet(f.ctx(), f.owner, f.spec(sdn.Network{ID: id}, "10.250.9.0/24"))), sdn.ErrInvalid, sdn.FieldNetwork)
	f.wants("UpdateSubnet", b.UpdateSubnet(f.ctx(), subnetID, sdn.SubnetUpdate{}), sdn.ErrNotFound, "")
	f.must("DeleteSubnet", b.DeleteSubnet(f.ctx(), subnetID))
	f.wants("AddRouterInterface", b.AddRouterInterface(f.ctx(), f.RouterID, subnetID), sdn.ErrInvalid, sdn.FieldSubnet)
	f.must("RemoveRouterInterface", b.RemoveRouterInterface(f.ctx(), f.RouterID, subnetID))
	if all := f.listed(b); slices.Contains(all, id) {
		f.t.Errorf("ListNetworks shows %s", id)
	}
	n, err := b.GivenNetwork(f.ctx(), id, []string{subnetID})
	if err != nil || len(n.Subnets) != 1 || n.Owner != (sdn.Owner{}) {
		f.t.Errorf("GivenNetwork = %+v, %v; want the network without an owner", n, err)
	}
	if !f.Cloud.HasNetwork(f.t, id) {
		f.t.Error("the network is gone")
	}
}

func foreignNetwork(t *testing.T, f networks) {
	id := f.Cloud.MakeForeignNetwork(t, f.name())
	subnetID := f.Cloud.MakeForeignSubnet(t, id, netip.MustParsePrefix("10.250.0.0/24"))
	f.outOfReach(f.Backend, id, subnetID)
}

func otherClustersNetwork(_ *testing.T, f networks) {
	n := f.network()
	spec := f.spec(n, "10.250.0.0/24")
	spec.DNSServers = []netip.Addr{netip.MustParseAddr("10.250.0.53")}
	s := f.subnet(spec)
	f.must("AddRouterInterface", f.Backend.AddRouterInterface(f.ctx(), f.RouterID, s.ID))
	f.outOfReach(f.Other, n.ID, s.ID)
	f.routed(n, s.ID)
	if got := f.seen(n.ID); len(got.Subnets) != 1 || len(got.Subnets[0].DNSServers) != 1 || got.MTU != f.MTU {
		f.t.Errorf("the other cluster has changed the network to %+v", got)
	}
}

func foreignSubnet(t *testing.T, f networks) {
	n := f.network()
	f.Cloud.MakeForeignSubnet(t, n.ID, netip.MustParsePrefix("10.250.0.0/24"))
	f.wants("CreateSubnet over a foreign one", second(f.Backend.CreateSubnet(f.ctx(), f.owner, f.spec(n, "10.250.0.0/20"))), sdn.ErrOverlap, "")
	s := f.subnet(f.spec(n, "10.250.1.0/24"))
	if got := f.seen(n.ID).Subnets; len(got) != 1 || got[0].ID != s.ID {
		t.Errorf("Network shows %+v, want subnet %s alone", got, s.ID)
	}
	f.must("DeleteNetwork", f.Backend.DeleteNetwork(f.ctx(), n.ID))
}

func givenNetworks(t *testing.T, f networks) {
	first := f.Subnets[0]
	n, err := f.Backend.GivenNetwork(f.ctx(), f.Given, []string{first.ID})
	f.must("GivenNetwork", err)
	if n.ID != f.Given || n.MTU != f.MTU || n.Owner != (sdn.Owner{}) || len(n.Subnets) != 1 || n.Subnets[0].Prefix != first.Prefix || n.Subnets[0].Gateway != first.Gateway {
		t.Errorf("GivenNetwork = %+v, want that of %+v", n, first)
	}
	if n, err = f.Backend.GivenNetwork(f.ctx(), f.Given, nil); err != nil || len(n.Subnets) != 0 {
		t.Errorf("GivenNetwork without subnets = %+v, %v", n, err)
	}
	own := f.network()
	s := f.subnet(f.spec(own, "10.250.0.0/24"))
	f.wants("GivenNetwork of a missing network", second(f.Backend.GivenNetwork(f.ctx(), MissingID, nil)), sdn.ErrInvalid, sdn.FieldNetwork)
	for _, id := range []string{MissingID, s.ID} {
		f.wants("GivenNetwork without this subnet", second(f.Backend.GivenNetwork(f.ctx(), f.Given, []string{first.ID, id})), sdn.ErrInvalid, sdn.FieldSubnet)
	}
}

func networkQuotas(t *testing.T, f networks) {
	f.Cloud.LimitNetworks(t, 1, 1)
	n := f.network()
	_, err := f.Backend.CreateNetwork(f.ctx(), f.owner, sdn.NetworkSpec{Name: f.name(), ProjectID: f.ProjectID})
	f.wants("CreateNetwork over quota", err, sdn.ErrProjectQuota, "")
	f.subnet(f.spec(n, "10.250.0.0/24"))
	f.wants("CreateSubnet over quota", second(f.Backend.CreateSubnet(f.ctx(), f.owner, f.spec(n, "10.250.1.0/24"))), sdn.ErrProjectQuota, "")
	if got := f.listed(f.Backend); len(got) != 1 {
		t.Errorf("networks are %v, want one", got)
	}
}

func networkAnswerIsLost(t *testing.T, f networks) {
	if !f.Cloud.LoseAnswer(t) {
		t.Skip("SKIPPED: this cloud loses no answers")
	}
	_, err := f.Backend.CreateNetwork(f.ctx(), f.owner, sdn.NetworkSpec{Name: f.name(), ProjectID: f.ProjectID})
	f.wants("CreateNetwork whose answer is lost", err, sdn.ErrUnavailable, "")
	ids := f.listed(f.Backend)
	if len(ids) != 1 {
		t.Fatalf("ListNetworks shows %v of the owner, want the one network", ids)
	}
	f.goes(f.Backend, ids[0])
	n := f.seen(ids[0])
	_, err = f.Backend.CreateSubnet(f.ctx(), f.owner, f.spec(n, "10.250.0.0/24"))
	f.wants("CreateSubnet whose answer is lost", err, sdn.ErrUnavailable, "")
	if n = f.seen(n.ID); len(n.Subnets) != 1 {
		t.Fatalf("Network shows %+v, want the one subnet", n)
	}
	if err := f.Backend.AddRouterInterface(f.ctx(), f.RouterID, n.Subnets[0].ID); err != nil && !errors.Is(err, sdn.ErrUnavailable) {
		t.Errorf("AddRouterInterface whose answer is lost: %v", err)
	}
	f.must("AddRouterInterface again", f.Backend.AddRouterInterface(f.ctx(), f.RouterID, n.Subnets[0].ID))
	f.routed(n, n.Subnets[0].ID)
}

func networksCancelled(t *testing.T, f networks) {
	n := f.network()
	s := f.subnet(f.spec(n, "10.250.0.0/24"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for call, err := range map[string]error{
		"CreateNetwork":         second(f.Backend.CreateNetwork(ctx, f.owner, sdn.NetworkSpec{Name: f.name()})),
		"Network":               second(f.Backend.Network(ctx, n.ID)),
		"GivenNetwork":          second(f.Backend.GivenNetwork(ctx, n.ID, []string{s.ID})),
		"ListNetworks":          second(f.Backend.ListNetworks(ctx)),
		"DeleteNetwork":         f.Backend.DeleteNetwork(ctx, n.ID),
		"CreateSubnet":          second(f.Backend.CreateSubnet(ctx, f.owner, f.spec(n, "10.250.1.0/24"))),
		"UpdateSubnet":          f.Backend.UpdateSubnet(ctx, s.ID, sdn.SubnetUpdate{}),
		"DeleteSubnet":          f.Backend.DeleteSubnet(ctx, s.ID),
		"AddRouterInterface":    f.Backend.AddRouterInterface(ctx, f.RouterID, s.ID),
		"RemoveRouterInterface": f.Backend.RemoveRouterInterface(ctx, f.RouterID, s.ID),
		"RouterAddresses":       second(f.Backend.RouterAddresses(ctx, f.RouterID)),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v, want context.Canceled", call, err)
		}
	}
	f.routed(n)
}
