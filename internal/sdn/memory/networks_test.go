// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

// networkCloud adapts a memory.Cloud to the contract of networks.
type networkCloud struct {
	*memory.Cloud
	lose *atomic.Bool
}

func (c networkCloud) MakeForeignNetwork(_ *testing.T, name string) string {
	return c.AddForeignNetwork(name)
}

func (c networkCloud) HasNetwork(_ *testing.T, id string) bool {
	return slices.ContainsFunc(c.Networks(), func(i memory.NetworkItem) bool { return i.Network.ID == id })
}

func (c networkCloud) MakeForeignSubnet(_ *testing.T, networkID string, prefix netip.Prefix) string {
	c.AddSubnet(memory.Subnet{ID: "foreign", NetworkID: networkID, Prefix: prefix, Gateway: prefix.Addr().Next(), MTU: 1442})
	return "foreign"
}

func (c networkCloud) LimitNetworks(_ *testing.T, networks, subnets int) {
	c.SetNetworkQuota(networks, subnets) // each case has a cloud of its own
}

func (c networkCloud) HasRouter(_ *testing.T, id string) bool { return c.Cloud.HasRouter(id) }

func (c networkCloud) LimitRouters(_ *testing.T, n int) {
	c.SetRouterQuota(n + 1) // the target has one
}

func (c networkCloud) MakeFullNetwork(*testing.T) (string, netip.Prefix) {
	full := memory.Subnet{ID: "full", NetworkID: "full-net", Prefix: netip.MustParsePrefix("198.18.0.0/31"), External: true}
	c.AddSubnet(full)
	return full.NetworkID, full.Prefix
}

func (c networkCloud) NeedRouterInterface(_ *testing.T, _, subnetID string) func() {
	c.Cloud.NeedRouterInterface("r", subnetID, true)
	return func() { c.Cloud.NeedRouterInterface("r", subnetID, false) }
}

func (c networkCloud) LoseAnswer(*testing.T) bool {
	c.lose.Store(true)
	return true
}

func TestContractOfNetworks(t *testing.T) {
	sdntest.RunNetworks(t, func(*testing.T) sdntest.NetworkTarget {
		given := memory.Subnet{ID: "given-4", NetworkID: "given", Prefix: netip.MustParsePrefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.7"), MTU: 1442}
		c := memory.New(given, public)
		four := sdntest.NetworkPool{ID: "pool-4", Prefix: netip.MustParsePrefix("10.251.0.0/22"), Length: 24}
		six := sdntest.NetworkPool{ID: "pool-6", Prefix: netip.MustParsePrefix("fd00:251::/62"), Length: 64}
		c.AddSubnetPool(memory.SubnetPool(four))
		c.AddSubnetPool(memory.SubnetPool(six))
		c.AddRouter("r", netip.MustParseAddr("203.0.113.5"))
		lose := &atomic.Bool{}
		c.After = func(_ context.Context, call string, n int) error {
			lost := lose.Load() && n == 1 && slices.Contains([]string{memory.CreateNetwork, memory.CreateSubnet, memory.CreateRouter, memory.AddRouterInterface}, call)
			if lost {
				return sdn.ErrUnavailable
			}
			return nil
		}
		return sdntest.NetworkTarget{
			Backend: c.Backend("one"), Other: c.Backend("two"), Cloud: networkCloud{c, lose},
			Fresh:     func(*testing.T) sdntest.Networks { return c.Backend("one") },
			ProjectID: "project", RouterID: "r", ExternalID: public.NetworkID, External: netip.MustParsePrefix("203.0.113.0/24"), Four: four, Six: six,
			Given: given.NetworkID, Subnets: []sdntest.Subnet{{ID: given.ID, Prefix: given.Prefix, Gateway: given.Gateway}}, MTU: 1442,
		}
	})
}

// A router needs an address of the external network, and a credential that may say how it translates
// addresses.
func TestRoutersThatTheCloudRefuses(t *testing.T) {
	c := memory.New(memory.Subnet{ID: "small", NetworkID: "public", Prefix: netip.MustParsePrefix("203.0.113.0/30"), Gateway: netip.MustParseAddr("203.0.113.1"), External: true})
	b := c.Backend("one")
	owner := sdn.Owner{Kind: sdn.KindNetwork, Namespace: "shop", Name: "shop"}
	spec := sdn.RouterSpec{Name: "uid/shop", Gateway: sdn.Gateway{NetworkID: "public", SNAT: new(false)}}
	c.ForbidSNAT(true)
	if _, err := b.CreateRouter(t.Context(), owner, spec); !errors.Is(err, sdn.ErrSNATForbidden) || !errors.Is(err, sdn.ErrForbidden) {
		t.Errorf("CreateRouter that says SNAT, which the credential may not: %v", err)
	}
	spec.Gateway.SNAT = nil
	r, err := b.CreateRouter(t.Context(), owner, spec)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.CreateRouter(t.Context(), owner, spec)
	if !errors.Is(err, sdn.ErrExternalAddresses) || !errors.Is(err, sdn.ErrQuota) {
		t.Errorf("CreateRouter in a full external network: %v", err)
	}
	c.EditRouter(r.ID, func(r *sdn.OwnRouter) { r.Gateway.SNAT = new(false) })
	if got := c.Routers(); len(got) != 1 || *got[0].Router.Gateway.SNAT {
		t.Errorf("after a person's change: %+v", got)
	}
	if err := b.DeleteRouter(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.CreateRouter(t.Context(), owner, spec); err != nil {
		t.Errorf("CreateRouter once the address is free again: %v", err)
	}
}

// A network that somebody else deletes is gone with all that was in it, and a project that the
// cloud does not have is refused.
func TestNetworksBehindTheBackendsBack(t *testing.T) {
	c := memory.New()
	c.AddRouter("r")
	c.AddProjects("known")
	b := c.Backend("one")
	owner := sdn.Owner{Kind: sdn.KindNetwork, Namespace: "shop", Name: "shop"}
	if _, err := b.CreateNetwork(t.Context(), owner, sdn.NetworkSpec{ProjectID: "unknown"}); sdn.FieldOf(err) != sdn.FieldProject {
		t.Errorf("CreateNetwork in an unknown project: %v, want ErrInvalid of the project", err)
	}
	n, err := b.CreateNetwork(t.Context(), owner, sdn.NetworkSpec{Name: "uid/shop", ProjectID: "known"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.CreateSubnet(t.Context(), owner, sdn.SubnetSpec{NetworkID: n.ID, IPVersion: 4, Prefix: netip.MustParsePrefix("10.7.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	c.SetInterfaceLimit("r", 0)
	if err := b.AddRouterInterface(t.Context(), "r", s.ID); !errors.Is(err, sdn.ErrRouterFull) {
		t.Errorf("AddRouterInterface of a router that can take no more: %v", err)
	}
	c.SetInterfaceLimit("r", 1)
	for range 2 {
		if err := b.AddRouterInterface(t.Context(), "r", s.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.CreatePorts(t.Context(), owner, sdn.PortRequest{SubnetIDs: []string{s.ID}}, 3); err != nil {
		t.Fatal(err)
	}
	c.CutRouterInterface("r", s.ID)
	if got, err := b.Network(t.Context(), n.ID); err != nil || len(got.Subnets[0].RouterIDs) != 0 {
		t.Errorf("Network after CutRouterInterface = %+v, %v", got, err)
	}
	c.EditNetwork(n.ID, func(n *sdn.Network) { n.MTU = 1000 })
	c.EditSubnet(s.ID, func(u *sdn.SubnetUpdate) { u.DNSServers = []netip.Addr{netip.MustParseAddr("10.7.0.53")} })
	if got, err := b.Network(t.Context(), n.ID); err != nil || got.MTU != 1000 || len(got.Subnets[0].DNSServers) != 1 {
		t.Errorf("Network after a person's changes = %+v, %v", got, err)
	}
	c.RemoveNetwork(n.ID)
	if got := c.Networks(); len(got) != 0 || c.Ports() != 0 {
		t.Errorf("after RemoveNetwork there are %+v and %d ports", got, c.Ports())
	}
	c.RemoveRouter("r")
	if _, err := b.RouterAddresses(t.Context(), "r"); sdn.FieldOf(err) != sdn.FieldRouter {
		t.Errorf("RouterAddresses of a router that is gone: %v", err)
	}
}
