// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"math"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Room implements sdn.Capacity. The quota is that of the whole cloud.
func (b *Backend) Room(ctx context.Context, _ string, subnetIDs []string) (sdn.Room, error) {
	var room sdn.Room
	err := b.cloud.do(ctx, Room, func() error {
		room = sdn.Room{Ports: &sdn.Usage{Used: len(b.cloud.ports), Limit: b.cloud.quota}, Subnets: map[string]sdn.Usage{}}
		for _, id := range subnetIDs {
			if s, ok := b.cloud.subnets[id]; ok {
				room.Subnets[id] = b.cloud.usage(s)
			}
		}
		return nil
	})
	if err != nil {
		return sdn.Room{}, err
	}
	return room, nil
}

// Details implements sdn.Details.
func (b *Backend) Details(ctx context.Context, subnetID string) (v1.VIF, error) {
	var out v1.VIF
	err := b.cloud.do(ctx, GetDetails, func() error {
		s, ok := b.cloud.subnets[subnetID]
		if !ok {
			return fmt.Errorf("reading subnet %s: %w", subnetID, sdn.ErrInvalid)
		}
		out = v1.VIF{MTU: s.MTU, Addresses: []v1.Address{s.address()}, Routes: b.cloud.routesOf(subnetID)}
		return nil
	})
	return out, err
}

// usage counts the addresses of a subnet. The caller holds the lock.
func (c *Cloud) usage(s Subnet) sdn.Usage {
	u := sdn.Usage{Limit: math.MaxInt}
	for k := range c.used {
		if k.subnet == s.ID {
			u.Used++
		}
	}
	if bits := s.Prefix.Addr().BitLen() - s.Prefix.Bits(); bits < 62 {
		// The first address is the subnet's own, the last one IPv4's broadcast.
		u.Limit = max(0, 1<<bits-2)
		if s.Gateway.IsValid() {
			u.Limit = max(0, u.Limit-1)
		}
	}
	return u
}
