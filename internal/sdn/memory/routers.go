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

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// SubnetPool is where the cloud takes prefixes of subnets from.
type SubnetPool struct {
	ID     string
	Prefix netip.Prefix // of the whole pool
	Length int          // of a subnet's prefix that asks for none, in bits
}

var _ sdn.SubnetPools = (*Backend)(nil)

// SubnetPool implements sdn.SubnetPools.
func (b *Backend) SubnetPool(ctx context.Context, id string) (sdn.SubnetPool, error) {
	return answer(ctx, b, GetSubnetPool, func() (sdn.SubnetPool, error) {
		p, ok := b.cloud.subnetPools[id]
		if !ok {
			return sdn.SubnetPool{}, refused(sdn.FieldSubnetPool, id, "there is no such subnet pool")
		}
		out := sdn.SubnetPool{ID: id, IPVersion: 6}
		if p.Prefix.Addr().Is4() {
			out.IPVersion = 4
		}
		return out, nil
	})
}

// router is a router and the subnets that it has an interface in.
type router struct {
	id        string
	cluster   string // empty: no backend made it
	created   time.Time
	own       sdn.OwnRouter // of a router that a backend made
	addresses []netip.Addr
	ifaces    map[string]bool
	needed    map[string]bool // interfaces that something needs
	room      int             // the most interfaces; negative: no limit
}

// AddSubnetPool adds a subnet pool, or replaces the one of the same ID.
func (c *Cloud) AddSubnetPool(p SubnetPool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.Prefix = p.Prefix.Masked()
	c.subnetPools[p.ID] = p
}

// AddRouter adds a router without interfaces, whose gateway has these addresses in an external network.
func (c *Cloud) AddRouter(id string, addresses ...netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.routers[id] = &router{id: id, addresses: addresses, ifaces: map[string]bool{}, needed: map[string]bool{}, room: -1}
}

// RemoveRouter removes a router with its interfaces.
func (c *Cloud) RemoveRouter(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.routers, id)
}

// CutRouterInterface removes an interface of a router behind the backends' backs.
func (c *Cloud) CutRouterInterface(routerID, subnetID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.routers[routerID]; r != nil {
		delete(r.ifaces, subnetID)
	}
}

// NeedRouterInterface sets whether something needs an interface, such as a floating IP of a port in the subnet. Then it
// cannot be removed.
func (c *Cloud) NeedRouterInterface(routerID, subnetID string, needed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.routers[routerID]; r != nil {
		r.needed[subnetID] = needed
	}
}

// SetInterfaceLimit sets how many interfaces a router may have; negative is any number.
func (c *Cloud) SetInterfaceLimit(routerID string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.routers[routerID]; r != nil {
		r.room = n
	}
}

// AddProjects restricts the existing projects to these and those added before.
func (c *Cloud) AddProjects(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.projects[id] = true
	}
}

// SetNetworkQuota sets the quotas of networks and subnets, of those that backends made and foreign
// networks; negative is no quota.
func (c *Cloud) SetNetworkQuota(networks, subnets int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.networkQuota, c.subnetQuota = networks, subnets
}

// NetworkItem is a network and its cluster.
type NetworkItem struct {
	Cluster string // empty: it bears no cluster's mark
	Network sdn.Network
}

// Networks returns all networks that backends made and foreign ones, with their subnets, in no
// order.
func (c *Cloud) Networks() []NetworkItem {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []NetworkItem
	for _, n := range c.networks {
		all = append(all, NetworkItem{Cluster: n.cluster, Network: c.networkWith(n, nil)})
	}
	return all
}

// AddForeignNetwork makes a network without a mark and returns its ID.
func (c *Cloud) AddForeignNetwork(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &network{created: c.now(), Network: sdn.Network{ID: c.nextID(), Name: name, MTU: defaultMTU}}
	c.networks[n.ID] = n
	return n.ID
}

// RemoveNetwork removes a network behind the backends' backs, with its subnets, interfaces and ports.
func (c *Cloud) RemoveNetwork(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pid, p := range c.ports {
		if p.NetworkID == id {
			c.drop(pid)
		}
	}
	c.dropNetwork(id)
}

// EditNetwork changes name, project or MTU of a network behind the backends' backs.
func (c *Cloud) EditNetwork(id string, edit func(*sdn.Network)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.networks[id]; n != nil {
		edit(&n.Network)
	}
}

// EditSubnet changes DNS servers and routes of a subnet behind the backends' backs.
func (c *Cloud) EditSubnet(id string, edit func(*sdn.SubnetUpdate)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.ownSubnets[id]; s != nil {
		edit(&s.SubnetUpdate)
	}
}

// AddRouterInterface implements sdn.Networks.
func (b *Backend) AddRouterInterface(ctx context.Context, routerID, subnetID string) error {
	return b.cloud.do(ctx, AddRouterInterface, func() error {
		c := b.cloud
		s := c.ownSubnets[subnetID]
		if s == nil || s.cluster != b.cluster {
			return refused(sdn.FieldSubnet, subnetID, "adding an interface of router %s", routerID)
		}
		r := c.routers[routerID]
		if r == nil {
			return refused(sdn.FieldRouter, routerID, "adding an interface in subnet %s", subnetID)
		}
		if r.ifaces[subnetID] {
			return nil
		}
		for id := range r.ifaces {
			if p := c.subnets[id].Prefix; p.Overlaps(s.Prefix) {
				return fmt.Errorf("adding an interface of router %s in %s, while it has one in %s: %w", routerID, s.Prefix, p, sdn.ErrOverlap)
			}
		}
		for id, other := range c.routers {
			if other.ifaces[subnetID] {
				return fmt.Errorf("adding an interface of router %s in subnet %s, whose gateway router %s is: %w", routerID, subnetID, id, sdn.ErrConflict)
			}
		}
		if r.room >= 0 && len(r.ifaces) >= r.room {
			return fmt.Errorf("adding an interface of router %s in subnet %s: it has %d: %w", routerID, subnetID, len(r.ifaces), sdn.ErrRouterFull)
		}
		r.ifaces[subnetID] = true
		return nil
	})
}

// RemoveRouterInterface implements sdn.Networks.
func (b *Backend) RemoveRouterInterface(ctx context.Context, routerID, subnetID string) error {
	return b.cloud.do(ctx, RemoveRouterInterface, func() error {
		r, s := b.cloud.routers[routerID], b.cloud.ownSubnets[subnetID]
		if r == nil || s == nil || s.cluster != b.cluster {
			return nil
		}
		if r.ifaces[subnetID] && r.needed[subnetID] {
			return fmt.Errorf("removing the interface of router %s in subnet %s, which is needed: %w", routerID, subnetID, sdn.ErrConflict)
		}
		delete(r.ifaces, subnetID)
		return nil
	})
}

// RouterAddresses implements sdn.Networks.
func (b *Backend) RouterAddresses(ctx context.Context, routerID string) ([]netip.Addr, error) {
	return answer(ctx, b, GetRouterAddresses, func() ([]netip.Addr, error) {
		r := b.cloud.routers[routerID]
		if r == nil {
			return nil, refused(sdn.FieldRouter, routerID, "reading the addresses of a router")
		}
		return slices.Clone(r.addresses), nil
	})
}

// InUse implements sdn.Networks. Ports that backends made have the device owner of Kuryr's ports,
// others that of virtual machines.
func (b *Backend) InUse(ctx context.Context, networkID string) ([]sdn.PortUse, error) {
	return answer(ctx, b, NetworkInUse, func() (out []sdn.PortUse, err error) {
		for id, p := range b.cloud.ports {
			if p.NetworkID != networkID {
				continue
			}
			use := sdn.PortUse{ID: id, DeviceOwner: "compute:nova"}
			if p.cluster != "" {
				use.DeviceOwner, use.Own = "compute:kuryr", p.cluster == b.cluster
			}
			out = append(out, use)
		}
		slices.SortFunc(out, func(x, y sdn.PortUse) int { return strings.Compare(x.ID, y.ID) })
		return out, nil
	})
}

// The caller of the functions below holds the lock.

// user says what keeps a subnet from its deletion; empty: nothing.
func (c *Cloud) user(subnetID string) string {
	for k := range c.used {
		if k.subnet == subnetID {
			return "a port with address " + k.ip
		}
	}
	for id, r := range c.routers {
		if r.ifaces[subnetID] {
			return "an interface of router " + id
		}
	}
	return ""
}

func (c *Cloud) dropNetwork(id string) {
	for sid, s := range c.subnets {
		if s.NetworkID == id {
			c.dropSubnet(sid)
		}
	}
	delete(c.networks, id)
}

func (c *Cloud) dropSubnet(id string) {
	for _, r := range c.routers {
		delete(r.ifaces, id)
	}
	delete(c.ownSubnets, id)
	delete(c.subnets, id)
}
