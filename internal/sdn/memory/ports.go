// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Backend is a cluster's view of a Cloud.
type Backend struct {
	cloud   *Cloud
	cluster string
}

var _ sdn.Backend = (*Backend)(nil)

// Backend returns the view of one cluster. Two backends of the same ID see the same ports.
func (c *Cloud) Backend(clusterID string) *Backend { return &Backend{cloud: c, cluster: clusterID} }

// CreatePorts implements sdn.Ports.
func (b *Backend) CreatePorts(ctx context.Context, owner sdn.Owner, r sdn.PortRequest, n int) ([]sdn.Port, error) {
	var made []sdn.Port
	var stopped error
	err := b.cloud.do(ctx, CreatePorts, func() error {
		made, stopped = b.cloud.createAll(b.cluster, owner, r, n)
		return stopped
	})
	if !errors.Is(err, stopped) {
		return nil, err // the lost answer named the ports, so they are lost too
	}
	return made, err
}

// Port implements sdn.Ports.
func (b *Backend) Port(ctx context.Context, id string) (sdn.Port, error) {
	var out sdn.Port
	err := b.cloud.do(ctx, GetPort, func() error {
		p, err := b.own(id)
		if err != nil {
			return fmt.Errorf("reading port %s: %w", id, err)
		}
		out = clone(p.Port)
		return nil
	})
	return out, err
}

// ListPorts implements sdn.Ports.
func (b *Backend) ListPorts(ctx context.Context) ([]sdn.PortSummary, error) {
	var out []sdn.PortSummary
	err := b.cloud.do(ctx, ListPorts, func() error {
		for id, p := range b.cloud.ports {
			if p.cluster == b.cluster {
				out = append(out, sdn.PortSummary{ID: id, Name: p.Name, Owner: p.Owner, ProjectID: p.ProjectID, Host: p.Host, Created: p.created, Active: p.Active, Revision: p.revision, SecurityGroupIDs: slices.Clone(p.SecurityGroupIDs)})
			}
		}
		return nil
	})
	return out, err
}

// States implements sdn.Ports.
func (b *Backend) States(ctx context.Context, ids []string) (map[string]sdn.PortState, error) {
	out := map[string]sdn.PortState{}
	err := b.cloud.do(ctx, States, func() error {
		for _, id := range ids {
			if p, err := b.own(id); err == nil {
				out[id] = sdn.PortState{Active: p.Active, SecurityGroupIDs: slices.Clone(p.SecurityGroupIDs)}
			}
		}
		return nil
	})
	return out, err
}

// UpdatePort implements sdn.Ports.
func (b *Backend) UpdatePort(ctx context.Context, id string, u sdn.PortUpdate) error {
	return b.cloud.do(ctx, UpdatePort, func() error {
		p, err := b.own(id)
		if err != nil {
			return fmt.Errorf("updating port %s: %w", id, err)
		}
		if u.SecurityGroupIDs != nil {
			if err := b.cloud.checkGroups(*u.SecurityGroupIDs); err != nil {
				return fmt.Errorf("updating port %s: %w", id, err)
			}
			p.SecurityGroupIDs = slices.Sorted(slices.Values(*u.SecurityGroupIDs))
		}
		p.revision++
		if u.Name != nil {
			p.Name = *u.Name
		}
		if u.DeviceID != nil {
			p.DeviceID = *u.DeviceID
		}
		return nil
	})
}

// DeletePort implements sdn.Ports.
func (b *Backend) DeletePort(ctx context.Context, id string) error {
	return b.DeleteUnchangedPort(ctx, id, 0)
}

// DeleteUnchangedPort implements sdn.Ports.
func (b *Backend) DeleteUnchangedPort(ctx context.Context, id string, revision int) error {
	return b.cloud.do(ctx, DeletePort, func() error {
		p, err := b.own(id)
		if err != nil {
			return nil //nolint:nilerr // it is gone already
		}
		if revision > 0 && revision != p.revision && p.VIF.ParentPortID == "" {
			return fmt.Errorf("deleting port %s of revision %d, which has revision %d: %w", id, revision, p.revision, sdn.ErrConflict)
		}
		b.cloud.drop(id)
		return nil
	})
}

// OwnProject is the project of what is made without naming one. Of such a resource ProjectID is empty.
const OwnProject = "own-project"

// OwnProject implements sdn.Visibility.
func (b *Backend) OwnProject(context.Context) (string, error) { return OwnProject, nil }

// Sees implements sdn.Visibility. A credential sees all projects.
func (b *Backend) Sees(ctx context.Context, _, networkID string) error {
	return b.cloud.do(ctx, Sees, func() error {
		if b.cloud.networks[networkID] != nil {
			return nil
		}
		for _, s := range b.cloud.subnets {
			if networkID == "" || s.NetworkID == networkID {
				return nil
			}
		}
		return fmt.Errorf("network %s is not to be seen: %w", networkID, sdn.ErrForbidden)
	})
}

func (b *Backend) own(id string) (*port, error) {
	if p := b.cloud.ports[id]; p != nil && p.cluster == b.cluster {
		return p, nil
	}
	return nil, sdn.ErrNotFound
}

// The caller of the functions below holds the lock.

func (c *Cloud) check(r sdn.PortRequest) error {
	if len(r.SubnetIDs) == 0 {
		return &sdn.InvalidError{Field: sdn.FieldSubnet, Err: fmt.Errorf("no subnet named: %w", sdn.ErrInvalid)}
	}
	network := r.NetworkID
	ids := slices.Clone(r.SubnetIDs)
	for _, id := range r.SubnetIDs {
		ids = append(ids, r.MoreSubnetIDs[id]...)
	}
	for _, id := range ids {
		s, ok := c.subnets[id]
		if !ok {
			return &sdn.InvalidError{Field: sdn.FieldSubnet, Value: id, Err: fmt.Errorf("subnet %s does not exist: %w", id, sdn.ErrInvalid)}
		}
		if network == "" {
			network = s.NetworkID
		}
		if s.NetworkID != network {
			return &sdn.InvalidError{Field: sdn.FieldNetwork, Value: network, Err: fmt.Errorf("subnet %s is of network %s, not %s: %w", id, s.NetworkID, network, sdn.ErrInvalid)}
		}
	}
	if _, ok := c.pairs[r.ParentPortID]; !ok && byPairs(r) {
		return &sdn.InvalidError{Field: sdn.FieldParentPort, Value: r.ParentPortID, Err: fmt.Errorf("port %s is no machine's: %w", r.ParentPortID, sdn.ErrInvalid)}
	}
	if _, ok := c.trunks[r.ParentPortID]; !ok && r.ParentPortID != "" && !byPairs(r) {
		return &sdn.InvalidError{Field: sdn.FieldParentPort, Value: r.ParentPortID, Err: fmt.Errorf("port %s is no trunk's parent: %w", r.ParentPortID, sdn.ErrInvalid)}
	}
	if r.ParentPortID == "" && r.Host != "" && len(c.hosts) > 0 && !c.hosts[r.Host] {
		return fmt.Errorf("host %q: %w", r.Host, sdn.ErrUnbound)
	}
	return c.checkGroups(r.SecurityGroupIDs)
}

func (c *Cloud) checkGroups(ids []string) error {
	for _, id := range ids {
		if len(c.groups) > 0 && !c.groups[id] && c.made[id] == nil {
			return &sdn.InvalidError{Field: sdn.FieldSecurityGroup, Value: id, Err: fmt.Errorf("security group %s does not exist: %w", id, sdn.ErrInvalid)}
		}
	}
	return nil
}

func (c *Cloud) createAll(cluster string, owner sdn.Owner, r sdn.PortRequest, n int) ([]sdn.Port, error) {
	if err := c.check(r); err != nil {
		return nil, fmt.Errorf("creating %d ports: %w", n, err)
	}
	var made []sdn.Port
	for range n {
		p, err := c.create(cluster, owner, r)
		if err != nil {
			return made, fmt.Errorf("creating %d ports, of which %d were made: %w", n, len(made), err)
		}
		made = append(made, p)
	}
	return made, nil
}

func (c *Cloud) create(cluster string, owner sdn.Owner, r sdn.PortRequest) (sdn.Port, error) {
	if c.quota >= 0 && len(c.ports) >= c.quota {
		return sdn.Port{}, fmt.Errorf("quota of %d ports: %w", c.quota, sdn.ErrProjectQuota)
	}
	vif := v1.VIF{Type: "ovs", MTU: c.subnets[r.SubnetIDs[0]].MTU}
	for _, id := range append(slices.Clone(r.SubnetIDs), c.automatic(r)...) {
		a, err := c.freeAddress(c.subnets[id])
		for _, other := range r.MoreSubnetIDs[id] {
			if err != nil {
				a, err = c.freeAddress(c.subnets[other])
			}
		}
		if err != nil {
			return sdn.Port{}, err
		}
		vif.Addresses = append(vif.Addresses, a)
		vif.Routes = append(vif.Routes, c.routesOf(a.SubnetID)...)
	}
	p := &port{cluster: cluster, created: c.now(), revision: 1, Port: sdn.Port{
		ID: c.nextID(), Owner: owner, ProjectID: r.ProjectID, NetworkID: c.subnets[r.SubnetIDs[0]].NetworkID,
		SecurityGroupIDs: slices.Sorted(slices.Values(r.SecurityGroupIDs)),
		Host:             r.Host, Name: sdn.FreePortName,
	}}
	vif.MACAddress = fmt.Sprintf("fa:16:3e:%02x:%02x:%02x", c.last>>16&0xff, c.last>>8&0xff, c.last&0xff)
	if r.Host == "" {
		vif.Type = unbound
	}
	// Neutron sorts the addresses, whatever order the request had.
	slices.SortFunc(vif.Addresses, func(a, b v1.Address) int { return strings.Compare(a.IP, b.IP) })
	p.VIF = vif
	if r.ParentPortID != "" {
		if err := c.carry(p, r); err != nil {
			return sdn.Port{}, err
		}
	}
	for _, a := range vif.Addresses {
		c.used[addressKey{a.SubnetID, a.IP}] = true
	}
	c.ports[p.ID] = p
	out := clone(p.Port)
	out.Arrange(r.SubnetIDs, r.MoreSubnetIDs)
	if r.VIFType != "" {
		out.VIF.Type = r.VIFType // not stored: Neutron stores only its own type
	}
	return out, nil
}

// automatic returns the subnets that a request does not name, and that give its ports an address
// all the same.
func (c *Cloud) automatic(r sdn.PortRequest) (ids []string) {
	for id, s := range c.subnets {
		if s.Automatic && s.NetworkID == c.subnets[r.SubnetIDs[0]].NetworkID && !slices.Contains(r.SubnetIDs, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// address returns the fields that all addresses of a subnet share.
func (s Subnet) address() v1.Address {
	out := v1.Address{PrefixLength: int32(s.Prefix.Bits()), SubnetID: s.ID}
	if s.Gateway.IsValid() {
		out.Gateway = s.Gateway.String()
	}
	return out
}

func (c *Cloud) freeAddress(s Subnet) (v1.Address, error) {
	out := s.address()
	// The first address is the subnet's own, the last one IPv4's broadcast.
	for ip := s.Prefix.Masked().Addr().Next(); s.Prefix.Contains(ip.Next()); ip = ip.Next() {
		if k := (addressKey{s.ID, ip.String()}); ip != s.Gateway && !c.used[k] {
			out.IP = k.ip
			return out, nil
		}
	}
	return out, fmt.Errorf("subnet %s has no free address: %w", s.ID, sdn.ErrAddresses)
}

func (c *Cloud) freeVLAN(parent string) int32 {
	used := map[int32]bool{}
	for _, v := range c.trunks[parent] {
		used[v] = true
	}
	v := int32(1)
	for used[v] {
		v++
	}
	return v
}

func (c *Cloud) drop(id string) {
	if p := c.ports[id]; p != nil {
		for _, a := range p.VIF.Addresses {
			delete(c.used, addressKey{a.SubnetID, a.IP})
		}
		c.leave(p)
	}
	delete(c.ports, id)
}

func (c *Cloud) nextID() string {
	c.last++
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", c.last)
}

func (c *Cloud) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// clone keeps callers from changing the state of the cloud.
func clone(p sdn.Port) sdn.Port {
	p.SecurityGroupIDs = slices.Clone(p.SecurityGroupIDs)
	p.VIF = *p.VIF.DeepCopy()
	return p
}
