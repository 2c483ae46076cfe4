// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// floatingIP is a floating IP and its cluster.
type floatingIP struct {
	cluster  string // empty: the floating IP is foreign
	project  string
	subnetID string
	sdn.FloatingIP
}

// AddForeignFloatingIP makes a floating IP without a mark. It panics where CreateFloatingIP would
// refuse.
func (c *Cloud) AddForeignFloatingIP(r sdn.FloatingIPRequest) sdn.FloatingIP {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.createFloatingIP("", sdn.Owner{}, r)
	if err != nil {
		panic(err)
	}
	return f
}

// RemoveFloatingIP removes a floating IP behind the backends' backs.
func (c *Cloud) RemoveFloatingIP(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropFloatingIP(id)
}

// FloatingIPItem is a floating IP of the cloud and its cluster.
type FloatingIPItem struct {
	Cluster    string // empty: it bears no cluster's mark
	ProjectID  string
	FloatingIP sdn.FloatingIP
}

// FloatingIPs returns all floating IPs, foreign ones included, in no order.
func (c *Cloud) FloatingIPs() []FloatingIPItem {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []FloatingIPItem
	for _, f := range c.floating {
		all = append(all, FloatingIPItem{Cluster: f.cluster, ProjectID: f.project, FloatingIP: f.FloatingIP})
	}
	return all
}

// Subnet implements sdn.Subnets.
func (b *Backend) Subnet(ctx context.Context, id string) (sdn.Subnet, error) {
	return answer(ctx, b, GetSubnet, func() (sdn.Subnet, error) {
		s, ok := b.cloud.subnets[id]
		if !ok {
			return sdn.Subnet{}, fmt.Errorf("reading subnet %s: %w", id, sdn.ErrNotFound)
		}
		return sdn.Subnet{ID: s.ID, NetworkID: s.NetworkID, CIDR: s.Prefix.String()}, nil
	})
}

// CreateFloatingIP implements sdn.FloatingIPs.
func (b *Backend) CreateFloatingIP(ctx context.Context, owner sdn.Owner, r sdn.FloatingIPRequest) (sdn.FloatingIP, error) {
	return answer(ctx, b, CreateFloatingIP, func() (sdn.FloatingIP, error) {
		f, err := b.cloud.createFloatingIP(b.cluster, owner, r)
		if err != nil {
			return f, fmt.Errorf("creating a floating IP: %w", err)
		}
		return f, nil
	})
}

// ListFloatingIPs implements sdn.FloatingIPs. The result is sorted by ID.
func (b *Backend) ListFloatingIPs(ctx context.Context, projectID string) ([]sdn.FloatingIP, error) {
	return answer(ctx, b, ListFloatingIPs, func() ([]sdn.FloatingIP, error) {
		var out []sdn.FloatingIP
		for _, f := range b.cloud.floating {
			if f.cluster == b.cluster || f.cluster == "" && (projectID == "" || projectID == f.project) {
				out = append(out, f.FloatingIP)
			}
		}
		slices.SortFunc(out, func(x, y sdn.FloatingIP) int { return strings.Compare(x.ID, y.ID) })
		return out, nil
	})
}

// Associate implements sdn.FloatingIPs.
func (b *Backend) Associate(ctx context.Context, id, portID string) error {
	return b.cloud.do(ctx, Associate, func() error {
		f := b.cloud.floating[id]
		switch {
		case f == nil || f.cluster != b.cluster && f.cluster != "":
			return fmt.Errorf("associating floating IP %s: %w", id, sdn.ErrNotFound)
		case portID == "":
			return fmt.Errorf("associating floating IP %s with no port: %w", id, sdn.ErrInvalid)
		case f.PortID == portID:
			return nil
		case f.PortID != "":
			return fmt.Errorf("associating floating IP %s, which port %s has: %w", id, f.PortID, sdn.ErrConflict)
		}
		if err := b.cloud.takesFloatingIP(portID); err != nil {
			return fmt.Errorf("associating floating IP %s: %w", id, err)
		}
		f.PortID = portID
		return nil
	})
}

// Dissociate implements sdn.FloatingIPs.
func (b *Backend) Dissociate(ctx context.Context, id, portID string) error {
	return b.cloud.do(ctx, Dissociate, func() error {
		if f := b.cloud.floating[id]; f != nil && (f.cluster == b.cluster || f.cluster == "") && f.PortID == portID {
			f.PortID = ""
		}
		return nil
	})
}

// DeleteFloatingIP implements sdn.FloatingIPs.
func (b *Backend) DeleteFloatingIP(ctx context.Context, id, portID string) error {
	return b.cloud.do(ctx, DeleteFloatingIP, func() error {
		f := b.cloud.floating[id]
		switch {
		case f == nil || f.cluster != b.cluster:
			return nil
		case f.PortID != "" && f.PortID != portID:
			return fmt.Errorf("deleting floating IP %s, which port %s has: %w", id, f.PortID, sdn.ErrConflict)
		}
		b.cloud.dropFloatingIP(id)
		return nil
	})
}

// DisownFloatingIP implements sdn.FloatingIPs.
func (b *Backend) DisownFloatingIP(ctx context.Context, id string) error {
	return b.cloud.do(ctx, DisownFloatingIP, func() error {
		if f := b.cloud.floating[id]; f != nil && f.cluster == b.cluster {
			f.cluster, f.Owner = "", sdn.Owner{}
		}
		return nil
	})
}

// The caller of the functions below holds the lock.

func (c *Cloud) createFloatingIP(cluster string, owner sdn.Owner, r sdn.FloatingIPRequest) (sdn.FloatingIP, error) {
	s, err := c.external(r)
	if err != nil {
		return sdn.FloatingIP{}, err
	}
	if r.PortID != "" {
		if err := c.takesFloatingIP(r.PortID); err != nil {
			return sdn.FloatingIP{}, err
		}
	}
	ip := r.Address
	if ip == "" {
		a, err := c.freeAddress(s)
		if err != nil {
			return sdn.FloatingIP{}, err
		}
		ip = a.IP
	}
	if ip, err = inside(ip, s); err != nil {
		return sdn.FloatingIP{}, err
	}
	if k := (addressKey{s.ID, ip}); c.used[k] {
		return sdn.FloatingIP{}, fmt.Errorf("address %s is taken: %w", ip, sdn.ErrConflict)
	}
	f := &floatingIP{cluster: cluster, project: r.ProjectID, subnetID: s.ID, FloatingIP: sdn.FloatingIP{
		ID: c.nextID(), Owner: owner, ProjectID: r.ProjectID, NetworkID: s.NetworkID, Address: ip, PortID: r.PortID,
	}}
	c.floating[f.ID], c.used[addressKey{s.ID, ip}] = f, true
	return f.FloatingIP, nil
}

// external finds the subnet of a floating IP: the named subnet, or the first of the network.
func (c *Cloud) external(r sdn.FloatingIPRequest) (Subnet, error) {
	var fit []Subnet
	for _, s := range c.subnets {
		if s.External && s.NetworkID == r.NetworkID && (r.SubnetID == "" || s.ID == r.SubnetID) {
			fit = append(fit, s)
		}
	}
	if len(fit) == 0 {
		return Subnet{}, &sdn.InvalidError{Field: sdn.FieldExternalNetwork, Value: r.NetworkID, Err: fmt.Errorf("network %s with subnet %q is no external one: %w", r.NetworkID, r.SubnetID, sdn.ErrInvalid)}
	}
	return slices.MinFunc(fit, func(a, b Subnet) int { return strings.Compare(a.ID, b.ID) }), nil
}

// takesFloatingIP checks that the port exists and has no floating IP.
func (c *Cloud) takesFloatingIP(portID string) error {
	for _, f := range c.floating {
		if f.PortID == portID {
			return fmt.Errorf("port %s has floating IP %s: %w", portID, f.Address, sdn.ErrConflict)
		}
	}
	if c.ports[portID] != nil {
		return nil
	}
	for _, lb := range c.balancers {
		if lb.VIPPortID == portID {
			return nil
		}
	}
	return fmt.Errorf("port %s does not exist: %w", portID, sdn.ErrInvalid)
}

func (c *Cloud) dropFloatingIP(id string) {
	if f := c.floating[id]; f != nil {
		delete(c.used, addressKey{f.subnetID, f.Address})
		delete(c.floating, id)
	}
}
