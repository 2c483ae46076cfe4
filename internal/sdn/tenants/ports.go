// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"maps"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// CreatePorts implements sdn.Ports.
func (c *Cloud) CreatePorts(ctx context.Context, owner sdn.Owner, request sdn.PortRequest, n int) ([]sdn.Port, error) {
	return in(c, request.ProjectID, portIDs, func(s Session) ([]sdn.Port, error) { return s.CreatePorts(ctx, owner, request, n) })
}

func portIDs(ports []sdn.Port) (ids []string) {
	for _, p := range ports {
		ids = append(ids, p.ID)
	}
	return ids
}

// Port implements sdn.Ports.
func (c *Cloud) Port(ctx context.Context, id string) (sdn.Port, error) {
	return read(ctx, c, Port, id, func(p sdn.Port) string { return p.ProjectID }, func(s Session) (sdn.Port, error) { return s.Port(ctx, id) })
}

// ListPorts implements sdn.Ports.
func (c *Cloud) ListPorts(ctx context.Context) ([]sdn.PortSummary, error) {
	return list(c, func(p sdn.PortSummary) string { return p.ID }, func(p sdn.PortSummary) string { return p.ProjectID },
		func(k *credential) ([]sdn.PortSummary, error) { return k.ListPorts(ctx) })
}

// States implements sdn.Ports. Ports whose credential fails are missing in the answer only if
// others are in it: no caller takes a missing one for a deleted one.
func (c *Cloud) States(ctx context.Context, ids []string) (map[string]sdn.PortState, error) {
	of := map[*credential][]string{}
	all := c.all()
	for _, id := range ids {
		k := c.find(ctx, Port, id)
		if k == nil {
			for _, k := range all {
				of[k] = append(of[k], id)
			}
			continue
		}
		of[k] = append(of[k], id)
	}
	out := map[string]sdn.PortState{}
	var failed error
	answered := len(of) == 0
	for k, some := range of {
		states, err := k.States(ctx, some)
		if err != nil {
			failed = k.explain(err)
			continue
		}
		answered = true
		maps.Copy(out, states)
	}
	if answered {
		return out, nil
	}
	return out, failed
}

// UpdatePort implements sdn.Ports.
func (c *Cloud) UpdatePort(ctx context.Context, id string, u sdn.PortUpdate) error {
	return c.change(ctx, Port, id, func(s Session) error { return s.UpdatePort(ctx, id, u) })
}

// DeletePort implements sdn.Ports.
func (c *Cloud) DeletePort(ctx context.Context, id string) error {
	return c.remove(ctx, Port, id, func(s Session) error { return s.DeletePort(ctx, id) })
}

// DeleteUnchangedPort implements sdn.Ports.
func (c *Cloud) DeleteUnchangedPort(ctx context.Context, id string, revision int) error {
	return c.remove(ctx, Port, id, func(s Session) error { return s.DeleteUnchangedPort(ctx, id, revision) })
}

// Sees implements sdn.Visibility.
func (c *Cloud) Sees(ctx context.Context, projectID, networkID string) error {
	k := c.of(projectID)
	return k.explain(k.Sees(ctx, projectID, networkID))
}

// OwnProject implements sdn.Visibility.
func (c *Cloud) OwnProject(ctx context.Context) (string, error) { return c.main.OwnProject(ctx) }

// Room implements sdn.Capacity.
func (c *Cloud) Room(ctx context.Context, projectID string, subnetIDs []string) (sdn.Room, error) {
	return in(c, projectID, nil, func(s Session) (sdn.Room, error) { return s.Room(ctx, projectID, subnetIDs) })
}

// Details implements sdn.Details.
func (c *Cloud) Details(ctx context.Context, subnetID string) (v1.VIF, error) {
	return read(ctx, c, Network, subnetID, nil, func(s Session) (v1.VIF, error) { return s.Details(ctx, subnetID) })
}

// ParentPort implements sdn.Hosts.
func (c *Cloud) ParentPort(ctx context.Context, m sdn.Machine) (string, error) {
	return in(c, m.ProjectID, nil, func(s Session) (string, error) { return s.ParentPort(ctx, m) })
}

// Strays implements sdn.Adoption.
func (c *Cloud) Strays(ctx context.Context, projectID string) ([]sdn.Port, error) {
	return in(c, projectID, portIDs, func(s Session) ([]sdn.Port, error) { return s.Strays(ctx, projectID) })
}

// Claim implements sdn.Adoption.
func (c *Cloud) Claim(ctx context.Context, id string, owner sdn.Owner) error {
	return c.change(ctx, Port, id, func(s Session) error { return s.Claim(ctx, id, owner) })
}

// DeleteStray implements sdn.Adoption.
func (c *Cloud) DeleteStray(ctx context.Context, id string) error {
	return c.remove(ctx, Port, id, func(s Session) error { return s.DeleteStray(ctx, id) })
}

// EnsureSecurityGroup implements sdn.SecurityGroups.
func (c *Cloud) EnsureSecurityGroup(ctx context.Context, owner sdn.Owner, want sdn.SecurityGroup) (sdn.SecurityGroup, error) {
	return in(c, want.ProjectID, func(g sdn.SecurityGroup) []string { return []string{g.ID} },
		func(s Session) (sdn.SecurityGroup, error) { return s.EnsureSecurityGroup(ctx, owner, want) })
}

// ListSecurityGroups implements sdn.SecurityGroups.
func (c *Cloud) ListSecurityGroups(ctx context.Context) ([]sdn.SecurityGroup, error) {
	return list(c, func(g sdn.SecurityGroup) string { return g.ID }, func(g sdn.SecurityGroup) string { return g.ProjectID },
		func(k *credential) ([]sdn.SecurityGroup, error) { return k.ListSecurityGroups(ctx) })
}

// DeleteSecurityGroup implements sdn.SecurityGroups.
func (c *Cloud) DeleteSecurityGroup(ctx context.Context, id string) error {
	return c.remove(ctx, Balancer, id, func(s Session) error { return s.DeleteSecurityGroup(ctx, id) })
}

// CreateFloatingIP implements sdn.FloatingIPs.
func (c *Cloud) CreateFloatingIP(ctx context.Context, owner sdn.Owner, r sdn.FloatingIPRequest) (sdn.FloatingIP, error) {
	return in(c, r.ProjectID, func(f sdn.FloatingIP) []string { return []string{f.ID} },
		func(s Session) (sdn.FloatingIP, error) { return s.CreateFloatingIP(ctx, owner, r) })
}

// ListFloatingIPs implements sdn.FloatingIPs. The floating IPs without a mark are those that the
// project's credential shows.
func (c *Cloud) ListFloatingIPs(ctx context.Context, projectID string) ([]sdn.FloatingIP, error) {
	own := c.of(projectID)
	return list(c, func(f sdn.FloatingIP) string { return f.ID }, func(f sdn.FloatingIP) string { return f.ProjectID }, func(k *credential) ([]sdn.FloatingIP, error) {
		if k == own {
			return k.ListFloatingIPs(ctx, projectID)
		}
		all, err := k.ListFloatingIPs(ctx, k.ProjectID)
		return slices.DeleteFunc(all, func(f sdn.FloatingIP) bool { return f.Owner == (sdn.Owner{}) }), err
	})
}

// Associate implements sdn.FloatingIPs.
func (c *Cloud) Associate(ctx context.Context, id, portID string) error {
	return c.change(ctx, Balancer, id, func(s Session) error { return s.Associate(ctx, id, portID) })
}

// Dissociate implements sdn.FloatingIPs.
func (c *Cloud) Dissociate(ctx context.Context, id, portID string) error {
	return c.change(ctx, Balancer, id, func(s Session) error { return s.Dissociate(ctx, id, portID) })
}

// DeleteFloatingIP implements sdn.FloatingIPs.
func (c *Cloud) DeleteFloatingIP(ctx context.Context, id, portID string) error {
	return c.remove(ctx, Balancer, id, func(s Session) error { return s.DeleteFloatingIP(ctx, id, portID) })
}

// DisownFloatingIP implements sdn.FloatingIPs.
func (c *Cloud) DisownFloatingIP(ctx context.Context, id string) error {
	return c.remove(ctx, Balancer, id, func(s Session) error { return s.DisownFloatingIP(ctx, id) })
}
