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

// AddStray makes the port of r as a free port that an earlier Kuryr left, and returns it. It
// panics where CreatePorts would refuse.
func (c *Cloud) AddStray(r sdn.PortRequest) sdn.Port {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(r); err != nil {
		panic(err)
	}
	p, err := c.create("", sdn.Owner{}, r)
	if err != nil {
		panic(err)
	}
	c.ports[p.ID].stray = true
	return p
}

// TakeStray assigns a port to a pod as the earlier Kuryr does. The port is then no longer free.
func (c *Cloud) TakeStray(id, podUID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.ports[id]; p != nil {
		p.DeviceID = podUID
	}
}

// Strays implements sdn.Adoption. The result is sorted by ID.
func (b *Backend) Strays(ctx context.Context, projectID string) ([]sdn.Port, error) {
	var out []sdn.Port
	err := b.cloud.do(ctx, Strays, func() error {
		for _, p := range b.cloud.ports {
			if p.isStray() && p.ProjectID == projectID {
				out = append(out, clone(p.Port))
			}
		}
		slices.SortFunc(out, func(x, y sdn.Port) int { return strings.Compare(x.ID, y.ID) })
		return nil
	})
	return out, err
}

// Claim implements sdn.Adoption.
func (b *Backend) Claim(ctx context.Context, id string, owner sdn.Owner) error {
	return b.cloud.do(ctx, Claim, func() error {
		p := b.cloud.ports[id]
		switch {
		case p == nil:
			return fmt.Errorf("claiming port %s: %w", id, sdn.ErrNotFound)
		case p.cluster == b.cluster && p.Owner == owner:
			return nil
		case !p.isStray():
			return fmt.Errorf("claiming port %s, which is no stray any more: %w", id, sdn.ErrConflict)
		}
		p.cluster, p.Owner, p.Name = b.cluster, owner, sdn.FreePortName
		return nil
	})
}

// DeleteStray implements sdn.Adoption.
func (b *Backend) DeleteStray(ctx context.Context, id string) error {
	return b.cloud.do(ctx, DeleteStray, func() error {
		p := b.cloud.ports[id]
		if p == nil {
			return nil
		}
		if !p.isStray() {
			return fmt.Errorf("deleting port %s, which is no stray any more: %w", id, sdn.ErrConflict)
		}
		b.cloud.drop(id)
		return nil
	})
}

func (p *port) isStray() bool { return p.stray && p.cluster == "" && p.DeviceID == "" }
