// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// CreateNetwork implements sdn.Networks.
func (c *Cloud) CreateNetwork(ctx context.Context, owner sdn.Owner, spec sdn.NetworkSpec) (sdn.Network, error) {
	return in(c, spec.ProjectID, func(n sdn.Network) []string { return []string{n.ID} }, func(s Session) (sdn.Network, error) { return s.CreateNetwork(ctx, owner, spec) })
}

// Network implements sdn.Networks.
func (c *Cloud) Network(ctx context.Context, id string) (sdn.Network, error) {
	n, err := read(ctx, c, Network, id, func(n sdn.Network) string { return n.ProjectID }, func(s Session) (sdn.Network, error) { return s.Network(ctx, id) })
	if k := c.find(ctx, Network, id); err == nil && k != nil {
		for _, s := range n.Subnets {
			c.keep(k, s.ID)
		}
	}
	return n, err
}

// GivenNetwork implements sdn.Networks.
func (c *Cloud) GivenNetwork(ctx context.Context, id string, subnetIDs []string) (sdn.Network, error) {
	return read(ctx, c, given, id, nil, func(s Session) (sdn.Network, error) { return s.GivenNetwork(ctx, id, subnetIDs) })
}

// ListNetworks implements sdn.Networks.
func (c *Cloud) ListNetworks(ctx context.Context) ([]sdn.NetworkSummary, error) {
	return list(c, func(n sdn.NetworkSummary) string { return n.ID }, func(n sdn.NetworkSummary) string { return n.ProjectID },
		func(k *credential) ([]sdn.NetworkSummary, error) { return k.ListNetworks(ctx) })
}

// InUse implements sdn.Networks. The project of a network sees all ports in it, another one its own
// only: if the network's is not known, all have to answer.
func (c *Cloud) InUse(ctx context.Context, networkID string) ([]sdn.PortUse, error) {
	if k := c.find(ctx, Network, networkID); k != nil {
		used, err := k.InUse(ctx, networkID)
		return used, k.explain(err)
	}
	used, err := list(c, func(p sdn.PortUse) string { return p.ID }, nil, func(k *credential) ([]sdn.PortUse, error) { return k.InUse(ctx, networkID) })
	slices.SortFunc(used, func(a, b sdn.PortUse) int { return strings.Compare(a.ID, b.ID) })
	return used, err
}

// DeleteNetwork implements sdn.Networks.
func (c *Cloud) DeleteNetwork(ctx context.Context, id string) error {
	return c.remove(ctx, Network, id, func(s Session) error { return s.DeleteNetwork(ctx, id) })
}

// CreateSubnet implements sdn.Networks. A network that was made before this process is found by the
// project that the subnet names.
func (c *Cloud) CreateSubnet(ctx context.Context, owner sdn.Owner, spec sdn.SubnetSpec) (sdn.OwnSubnet, error) {
	return in(c, spec.ProjectID, func(s sdn.OwnSubnet) []string { return []string{s.ID} }, func(s Session) (sdn.OwnSubnet, error) { return s.CreateSubnet(ctx, owner, spec) })
}

// UpdateSubnet implements sdn.Networks.
func (c *Cloud) UpdateSubnet(ctx context.Context, id string, u sdn.SubnetUpdate) error {
	return c.change(ctx, Network, id, func(s Session) error { return s.UpdateSubnet(ctx, id, u) })
}

// DeleteSubnet implements sdn.Networks.
func (c *Cloud) DeleteSubnet(ctx context.Context, id string) error {
	return c.remove(ctx, Network, id, func(s Session) error { return s.DeleteSubnet(ctx, id) })
}

// AddRouterInterface implements sdn.Networks. Whoever connects a subnet to a router has to see both. The
// subnet's credential is first; if it does not see the router, the main one may see the subnet.
func (c *Cloud) AddRouterInterface(ctx context.Context, routerID, subnetID string) error {
	k := c.find(ctx, Network, subnetID)
	if k == nil {
		return c.change(ctx, Network, subnetID, func(s Session) error { return s.AddRouterInterface(ctx, routerID, subnetID) })
	}
	err := k.AddRouterInterface(ctx, routerID, subnetID)
	if k == c.main || !strange(err) || c.main.AddRouterInterface(ctx, routerID, subnetID) != nil {
		return k.explain(err)
	}
	return nil
}

// strange reports whether the error of an interface may be that of a router of another project.
func strange(err error) bool {
	return sdn.FieldOf(err) == sdn.FieldRouter || errors.Is(err, sdn.ErrForbidden) && !errors.Is(err, sdn.ErrLogin)
}

// RemoveRouterInterface implements sdn.Networks. A session that does not see the router removes nothing, and has
// no error. So the main one is told to as well.
func (c *Cloud) RemoveRouterInterface(ctx context.Context, routerID, subnetID string) error {
	k := c.find(ctx, Network, subnetID)
	if k == nil {
		return c.remove(ctx, Network, subnetID, func(s Session) error { return s.RemoveRouterInterface(ctx, routerID, subnetID) })
	}
	err := k.RemoveRouterInterface(ctx, routerID, subnetID)
	if k == c.main || err != nil && !strange(err) {
		return k.explain(err)
	}
	if other := c.main.RemoveRouterInterface(ctx, routerID, subnetID); other == nil || !absent(other) {
		return other
	}
	return k.explain(err)
}

// RouterAddresses implements sdn.Networks.
func (c *Cloud) RouterAddresses(ctx context.Context, routerID string) ([]netip.Addr, error) {
	return read(ctx, c, given, routerID, nil, func(s Session) ([]netip.Addr, error) { return s.RouterAddresses(ctx, routerID) })
}

// SubnetPool implements sdn.SubnetPools.
func (c *Cloud) SubnetPool(ctx context.Context, id string) (sdn.SubnetPool, error) {
	return read(ctx, c, given, id, nil, func(s Session) (sdn.SubnetPool, error) { return s.SubnetPool(ctx, id) })
}

// Subnet implements sdn.Subnets.
func (c *Cloud) Subnet(ctx context.Context, id string) (sdn.Subnet, error) {
	return read(ctx, c, Network, id, nil, func(s Session) (sdn.Subnet, error) { return s.Subnet(ctx, id) })
}
