// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"math"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// severalSubnets is the capacity of a cloud in which an address may come from one of several
// subnets. A pool's key has the first of them; its room is the room of all.
type severalSubnets struct {
	sdn.Capacity
	lists subnetLists
}

// withMore returns the capacity of o, with all subnets; nil if the room cannot be asked for.
func withMore(o Options) sdn.Capacity {
	if o.Capacity == nil {
		return nil
	}
	return severalSubnets{o.Capacity, o.Subnets}
}

// Room implements sdn.Capacity. The room of several subnets is unknown if that of one is.
func (c severalSubnets) Room(ctx context.Context, projectID string, subnetIDs []string) (sdn.Room, error) {
	more, err := c.lists.More(ctx, subnetIDs)
	if err != nil {
		return sdn.Room{}, err
	}
	var all []string
	for _, id := range subnetIDs {
		all = append(append(all, id), more[id]...)
	}
	got, err := c.Capacity.Room(ctx, projectID, all)
	if err != nil {
		return sdn.Room{}, err
	}
	room := sdn.Room{Ports: got.Ports, Subnets: map[string]sdn.Usage{}}
	for _, id := range subnetIDs {
		sum, known := got.Subnets[id]
		for _, other := range more[id] {
			u, ok := got.Subnets[other]
			known = known && ok
			sum = plus(sum, u)
		}
		if known {
			room.Subnets[id] = sum
		}
	}
	return room, nil
}

// plus returns the sum of two usages. The limit of an IPv6 subnet may be near the largest int.
func plus(a, b sdn.Usage) sdn.Usage {
	if a.Limit < 0 || b.Limit < 0 {
		return sdn.Usage{Used: a.Used + b.Used, Limit: -1}
	}
	if a.Limit > math.MaxInt-b.Limit {
		return sdn.Usage{Used: a.Used + b.Used, Limit: math.MaxInt}
	}
	return sdn.Usage{Used: a.Used + b.Used, Limit: a.Limit + b.Limit}
}
