// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

var _ sdn.SecurityGroups = (*Backend)(nil)

// group is a security group that a backend made, and its cluster.
type group struct {
	cluster string
	sdn.SecurityGroup
}

// SecurityGroupItem is a security group that a backend made, and its cluster.
type SecurityGroupItem struct {
	Cluster string
	Group   sdn.SecurityGroup
}

// SecurityGroups returns all security groups that backends made, with their rules, in no order.
func (c *Cloud) SecurityGroups() []SecurityGroupItem {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []SecurityGroupItem
	for _, g := range c.made {
		all = append(all, SecurityGroupItem{Cluster: g.cluster, Group: cloneGroup(g.SecurityGroup)})
	}
	return all
}

// EditSecurityGroup changes a group behind the backends' backs. A group without an owner has lost
// its mark.
func (c *Cloud) EditSecurityGroup(id string, edit func(*sdn.SecurityGroup)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.made[id]; g != nil {
		edit(&g.SecurityGroup)
	}
}

func cloneGroup(g sdn.SecurityGroup) sdn.SecurityGroup {
	g.Rules = slices.Clone(g.Rules)
	return g
}

// EnsureSecurityGroup implements sdn.SecurityGroups.
func (b *Backend) EnsureSecurityGroup(ctx context.Context, owner sdn.Owner, want sdn.SecurityGroup) (sdn.SecurityGroup, error) {
	return answer(ctx, b, EnsureSecurityGroup, func() (sdn.SecurityGroup, error) {
		rules, err := sdn.CanonicalRules(want.Rules)
		if err != nil {
			return sdn.SecurityGroup{}, fmt.Errorf("ensuring the security group of %s: %w", owner, err)
		}
		for _, g := range b.cloud.made {
			lost := g.ID == want.ID && g.Name == want.Name && g.Owner == (sdn.Owner{})
			known := g.ID == want.ID || g.ProjectID == want.ProjectID
			if g.cluster == b.cluster && (g.Owner == owner && known || lost) {
				mended := lost || !slices.Equal(g.Rules, rules)
				g.Owner, g.Rules = owner, rules
				out := cloneGroup(g.SecurityGroup)
				out.Mended = mended
				return out, nil
			}
		}
		g := &group{b.cluster, sdn.SecurityGroup{ID: b.cloud.nextID(), Owner: owner, Name: want.Name, ProjectID: want.ProjectID, Rules: rules}}
		b.cloud.made[g.ID] = g
		return cloneGroup(g.SecurityGroup), nil
	})
}

// ListSecurityGroups implements sdn.SecurityGroups. The result is sorted by ID.
func (b *Backend) ListSecurityGroups(ctx context.Context) ([]sdn.SecurityGroup, error) {
	return answer(ctx, b, ListSecurityGroups, func() ([]sdn.SecurityGroup, error) {
		var out []sdn.SecurityGroup
		for _, g := range b.cloud.made {
			if g.cluster == b.cluster && g.Owner != (sdn.Owner{}) {
				bare := g.SecurityGroup
				bare.Rules = nil
				out = append(out, bare)
			}
		}
		slices.SortFunc(out, func(x, y sdn.SecurityGroup) int { return strings.Compare(x.ID, y.ID) })
		return out, nil
	})
}

// DeleteSecurityGroup implements sdn.SecurityGroups.
func (b *Backend) DeleteSecurityGroup(ctx context.Context, id string) error {
	return b.cloud.do(ctx, DeleteSecurityGroup, func() error {
		g := b.cloud.made[id]
		if g == nil || g.cluster != b.cluster {
			return nil
		}
		if g.Owner == (sdn.Owner{}) {
			return fmt.Errorf("deleting security group %s, which bears no mark: %w", id, sdn.ErrInvalid)
		}
		for _, p := range b.cloud.ports {
			if slices.Contains(p.SecurityGroupIDs, id) {
				return &sdn.PendingError{What: fmt.Sprintf("port %s to give up security group %s", p.ID, id), Retry: time.Second}
			}
		}
		delete(b.cloud.made, id)
		return nil
	})
}
