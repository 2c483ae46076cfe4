// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"math"

	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// severalSubnets is the capacity of a cloud in which one address may be of several subnets:
// what there is of the first, which a pool's key has, is what there is of all of them.
type severalSubnets struct {
	sdn.Capacity
	settings *settings.Live
}

// withMore returns the capacity that o is of; nil if there is none to ask.
func withMore(o Options) sdn.Capacity {
	if o.Capacity == nil {
		return nil
	}
	return severalSubnets{o.Capacity, o.Settings}
}

// Room implements sdn.Capacity. Of several subnets of which one is not known nothing is.
func (c severalSubnets) Room(ctx context.Context, projectID string, subnetIDs []string) (sdn.Room, error) {
	more := c.settings.Load().Pods.MoreSubnetIDs
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

// plus is both together. A subnet of IPv6 may have almost no end.
func plus(a, b sdn.Usage) sdn.Usage {
	if a.Limit < 0 || b.Limit < 0 {
		return sdn.Usage{Used: a.Used + b.Used, Limit: -1}
	}
	if a.Limit > math.MaxInt-b.Limit {
		return sdn.Usage{Used: a.Used + b.Used, Limit: math.MaxInt}
	}
	return sdn.Usage{Used: a.Used + b.Used, Limit: a.Limit + b.Limit}
}
