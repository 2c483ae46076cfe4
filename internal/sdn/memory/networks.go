// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var _ sdn.Networks = (*Backend)(nil)

const defaultMTU = 1442 // of a network that a backend makes

// network is a network that a backend made, or a foreign one. Its subnets are in ownSubnets.
type network struct {
	cluster string // empty: the network is foreign
	created time.Time
	sdn.Network
}

// ownSubnet is what a subnet that a backend made has besides its entry in Cloud.subnets.
type ownSubnet struct {
	cluster string
	sdn.OwnSubnet
}

// CreateNetwork implements sdn.Networks.
func (b *Backend) CreateNetwork(ctx context.Context, owner sdn.Owner, spec sdn.NetworkSpec) (sdn.Network, error) {
	return answer(ctx, b, CreateNetwork, func() (sdn.Network, error) {
		c := b.cloud
		if spec.ProjectID != "" && len(c.projects) > 0 && !c.projects[spec.ProjectID] {
			return sdn.Network{}, refused(sdn.FieldProject, spec.ProjectID, "creating network %s", spec.Name)
		}
		if c.networkQuota >= 0 && len(c.networks) >= c.networkQuota {
			return sdn.Network{}, fmt.Errorf("creating network %s: quota of %d networks: %w", spec.Name, c.networkQuota, sdn.ErrProjectQuota)
		}
		n := &network{cluster: b.cluster, created: c.now(), Network: sdn.Network{
			ID: c.nextID(), Name: spec.Name, Owner: owner, ProjectID: spec.ProjectID, MTU: defaultMTU,
		}}
		c.networks[n.ID] = n
		return n.Network, nil
	})
}

// Network implements sdn.Networks.
func (b *Backend) Network(ctx context.Context, id string) (sdn.Network, error) {
	return answer(ctx, b, GetNetwork, func() (sdn.Network, error) {
		n, err := b.ownNetwork(id)
		if err != nil {
			return sdn.Network{}, fmt.Errorf("reading network %s: %w", id, err)
		}
		out := b.cloud.networkWith(n, nil)
		out.Subnets = slices.DeleteFunc(out.Subnets, func(s sdn.OwnSubnet) bool {
			own := b.cloud.ownSubnets[s.ID]
			return own == nil || own.cluster != b.cluster
		})
		return out, nil
	})
}

// GivenNetwork implements sdn.Networks. A network that no backend made has the subnets that were
// added to the cloud.
func (b *Backend) GivenNetwork(ctx context.Context, id string, subnetIDs []string) (sdn.Network, error) {
	return answer(ctx, b, GetGivenNetwork, func() (sdn.Network, error) {
		c := b.cloud
		n := c.networks[id]
		for _, s := range c.subnets {
			if n == nil && s.NetworkID == id {
				n = &network{Network: sdn.Network{ID: id, Name: id, MTU: int(s.MTU)}}
			}
		}
		if n == nil {
			return sdn.Network{}, refused(sdn.FieldNetwork, id, "reading a given network")
		}
		for _, want := range subnetIDs {
			if s, ok := c.subnets[want]; !ok || s.NetworkID != id {
				return sdn.Network{}, refused(sdn.FieldSubnet, want, "reading network %s", id)
			}
		}
		out := c.networkWith(n, subnetIDs)
		if n.cluster != b.cluster {
			out.Owner = sdn.Owner{}
		}
		if len(subnetIDs) == 0 {
			out.Subnets = nil
		}
		for i := range out.Subnets {
			out.Subnets[i].RouterIDs = nil
		}
		return out, nil
	})
}

// ListNetworks implements sdn.Networks. The result is sorted by ID.
func (b *Backend) ListNetworks(ctx context.Context) ([]sdn.NetworkSummary, error) {
	return answer(ctx, b, ListNetworks, func() ([]sdn.NetworkSummary, error) {
		var out []sdn.NetworkSummary
		for _, n := range b.cloud.networks {
			if n.cluster == b.cluster {
				out = append(out, sdn.NetworkSummary{ID: n.ID, Name: n.Name, Owner: n.Owner, ProjectID: n.ProjectID, Created: n.created})
			}
		}
		slices.SortFunc(out, func(x, y sdn.NetworkSummary) int { return strings.Compare(x.ID, y.ID) })
		return out, nil
	})
}

// DeleteNetwork implements sdn.Networks.
func (b *Backend) DeleteNetwork(ctx context.Context, id string) error {
	return b.cloud.do(ctx, DeleteNetwork, func() error {
		if n := b.cloud.networks[id]; n == nil || n.cluster != b.cluster {
			return nil
		}
		for sid, s := range b.cloud.subnets {
			if what := b.cloud.user(sid); s.NetworkID == id && what != "" {
				return fmt.Errorf("deleting network %s, which has %s: %w", id, what, sdn.ErrConflict)
			}
		}
		b.cloud.dropNetwork(id)
		return nil
	})
}

// CreateSubnet implements sdn.Networks.
func (b *Backend) CreateSubnet(ctx context.Context, owner sdn.Owner, spec sdn.SubnetSpec) (sdn.OwnSubnet, error) {
	return answer(ctx, b, CreateSubnet, func() (sdn.OwnSubnet, error) {
		out, err := b.createSubnet(spec)
		if err != nil {
			return out, fmt.Errorf("creating a subnet of network %s for %s: %w", spec.NetworkID, owner, err)
		}
		return out, nil
	})
}

// UpdateSubnet implements sdn.Networks.
func (b *Backend) UpdateSubnet(ctx context.Context, id string, u sdn.SubnetUpdate) error {
	return b.cloud.do(ctx, UpdateSubnet, func() error {
		s := b.cloud.ownSubnets[id]
		if s == nil || s.cluster != b.cluster {
			return fmt.Errorf("updating subnet %s: %w", id, sdn.ErrNotFound)
		}
		s.SubnetUpdate = cloneUpdate(u)
		return nil
	})
}

// DeleteSubnet implements sdn.Networks.
func (b *Backend) DeleteSubnet(ctx context.Context, id string) error {
	return b.cloud.do(ctx, DeleteSubnet, func() error {
		if s := b.cloud.ownSubnets[id]; s == nil || s.cluster != b.cluster {
			return nil
		}
		if what := b.cloud.user(id); what != "" {
			return fmt.Errorf("deleting subnet %s, which has %s: %w", id, what, sdn.ErrConflict)
		}
		b.cloud.dropSubnet(id)
		return nil
	})
}

// The caller of the functions below holds the lock.

func (b *Backend) ownNetwork(id string) (*network, error) {
	if n := b.cloud.networks[id]; n != nil && n.cluster == b.cluster {
		return n, nil
	}
	return nil, sdn.ErrNotFound
}

func (b *Backend) createSubnet(spec sdn.SubnetSpec) (sdn.OwnSubnet, error) {
	c := b.cloud
	n, err := b.ownNetwork(spec.NetworkID)
	if err != nil {
		return sdn.OwnSubnet{}, refused(sdn.FieldNetwork, spec.NetworkID, "there is no such network of this cluster")
	}
	if c.subnetQuota >= 0 && len(c.ownSubnets) >= c.subnetQuota {
		return sdn.OwnSubnet{}, fmt.Errorf("quota of %d subnets: %w", c.subnetQuota, sdn.ErrProjectQuota)
	}
	prefix, err := c.choose(spec)
	if err != nil {
		return sdn.OwnSubnet{}, err
	}
	for id, s := range c.subnets {
		if s.NetworkID == n.ID && s.Prefix.Overlaps(prefix) {
			return sdn.OwnSubnet{}, fmt.Errorf("%s overlaps with %s of subnet %s: %w", prefix, s.Prefix, id, sdn.ErrOverlap)
		}
	}
	for _, other := range c.ownSubnets {
		if other.NetworkID == n.ID && other.IPVersion == spec.IPVersion && other.PoolID != spec.PoolID {
			return sdn.OwnSubnet{}, refused(sdn.FieldSubnetPool, spec.PoolID, "the network's subnets of IPv%d are of subnet pool %q", spec.IPVersion, other.PoolID)
		}
	}
	s := &ownSubnet{cluster: b.cluster, OwnSubnet: sdn.OwnSubnet{
		ID: c.nextID(), NetworkID: n.ID, IPVersion: spec.IPVersion, Prefix: prefix, Gateway: prefix.Addr().Next(), PoolID: spec.PoolID,
		Created: c.now(), SubnetUpdate: cloneUpdate(spec.SubnetUpdate),
	}}
	c.ownSubnets[s.ID] = s
	c.subnets[s.ID] = Subnet{ID: s.ID, NetworkID: n.ID, Prefix: prefix, Gateway: s.Gateway, MTU: int32(n.MTU)}
	return c.subnetWith(s.ID), nil
}

// choose returns the prefix of a new subnet: the one that was asked for, or the pool's first free one.
func (c *Cloud) choose(spec sdn.SubnetSpec) (netip.Prefix, error) {
	if spec.Prefix.IsValid() {
		if spec.Prefix.Addr().Is4() != (spec.IPVersion == 4) {
			return netip.Prefix{}, refused(sdn.FieldSubnet, spec.Prefix.String(), "the prefix is not of IPv%d", spec.IPVersion)
		}
		return spec.Prefix.Masked(), nil
	}
	pool, ok := c.subnetPools[spec.PoolID]
	if !ok || pool.Prefix.Addr().Is4() != (spec.IPVersion == 4) {
		return netip.Prefix{}, refused(sdn.FieldSubnetPool, spec.PoolID, "there is no such subnet pool of IPv%d", spec.IPVersion)
	}
	bits := pool.Length
	if spec.PrefixLength > 0 {
		bits = spec.PrefixLength
	}
	for p := netip.PrefixFrom(pool.Prefix.Addr(), bits); bits >= pool.Prefix.Bits() && pool.Prefix.Contains(p.Addr()); p = netip.PrefixFrom(after(p), bits) {
		if !c.taken(pool.ID, p) {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("subnet pool %s has no /%d left: %w", pool.ID, bits, sdn.ErrAddresses)
}

// taken reports whether a subnet of the pool overlaps with p.
func (c *Cloud) taken(poolID string, p netip.Prefix) bool {
	for _, s := range c.ownSubnets {
		if s.PoolID == poolID && s.Prefix.Overlaps(p) {
			return true
		}
	}
	return false
}

// after is the first address behind a prefix; zero behind the last one.
func after(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	last := p.Bits() - 1
	for i, step := last/8, byte(1)<<(7-last%8); i >= 0; i, step = i-1, 1 {
		if b[i] += step; b[i] >= step {
			out, _ := netip.AddrFromSlice(b)
			return out
		}
	}
	return netip.Addr{}
}

// networkWith is a network with its subnets, or with some of them.
func (c *Cloud) networkWith(n *network, subnetIDs []string) sdn.Network {
	out := n.Network
	for id, s := range c.subnets {
		if s.NetworkID == n.ID && (len(subnetIDs) == 0 || slices.Contains(subnetIDs, id)) {
			out.Subnets = append(out.Subnets, c.subnetWith(id))
		}
	}
	slices.SortFunc(out.Subnets, sdn.CompareSubnets)
	return out
}

// subnetWith is a subnet with its interfaces, whoever made it.
func (c *Cloud) subnetWith(id string) sdn.OwnSubnet {
	s := c.subnets[id]
	out := sdn.OwnSubnet{ID: s.ID, NetworkID: s.NetworkID, IPVersion: 6, Prefix: s.Prefix, Gateway: s.Gateway}
	if s.Prefix.Addr().Is4() {
		out.IPVersion = 4
	}
	if own := c.ownSubnets[id]; own != nil {
		out = own.OwnSubnet
		out.SubnetUpdate = cloneUpdate(own.SubnetUpdate)
	}
	for _, r := range c.routers {
		if r.ifaces[id] {
			out.RouterIDs = append(out.RouterIDs, r.id)
		}
	}
	slices.Sort(out.RouterIDs)
	return out
}

// routesOf are the routes that new ports get from a subnet.
func (c *Cloud) routesOf(id string) []v1.Route {
	if own := c.ownSubnets[id]; own != nil {
		return slices.Clone(own.Routes)
	}
	return slices.Clone(c.subnets[id].Routes)
}

func cloneUpdate(u sdn.SubnetUpdate) sdn.SubnetUpdate {
	return sdn.SubnetUpdate{DNSServers: slices.Clone(u.DNSServers), Routes: slices.Clone(u.Routes)}
}

func refused(field sdn.Field, value, format string, args ...any) error {
	return &sdn.InvalidError{Field: field, Value: value, Err: fmt.Errorf("%s: %s %s: %w", fmt.Sprintf(format, args...), field, value, sdn.ErrInvalid)}
}
