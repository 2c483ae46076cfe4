// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// reported is the usage that a cloud reports of its subnets.
type reported map[string]sdn.Usage

func (t reported) Room(_ context.Context, _ string, subnetIDs []string) (sdn.Room, error) {
	room := sdn.Room{Subnets: map[string]sdn.Usage{}}
	for _, id := range subnetIDs {
		if u, ok := t[id]; ok {
			room.Subnets[id] = u
		}
	}
	return room, nil
}

// TestRoomOfSeveralSubnets: where one address may come from several subnets, their room is
// added. It is unknown if that of one is.
func TestRoomOfSeveralSubnets(t *testing.T) {
	o := options(nil)
	o.Capacity = reported{
		"a": {Used: 6, Limit: 6}, "b": {Used: 1, Limit: 250}, "six": {Used: 3, Limit: math.MaxInt}, "seven": {Used: 1, Limit: math.MaxInt},
		"plain": {Used: 1, Limit: 2}, "half": {Used: 1, Limit: 2},
	}
	o.Subnets = more{"a": {"b"}, "six": {"seven"}, "half": {"unknown"}}
	c := newCapacity(o)
	key := v1.PoolKey{SubnetIDs: []string{"a", "six", "plain", "half"}}
	if err := c.learn(t.Context(), &key); err != nil {
		t.Fatal(err)
	}
	got := map[string]sdn.Usage{}
	for _, id := range key.SubnetIDs {
		if r := c.rooms[sdn.Scope{Subnet: true, ID: id}]; r.bounded() {
			got[id] = sdn.Usage{Used: r.limit - r.left, Limit: r.limit}
		}
	}
	want := map[string]sdn.Usage{"a": {Used: 7, Limit: 256}, "six": {Limit: math.MaxInt}, "plain": {Used: 1, Limit: 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("room (-want +got)\n%s", diff)
	}
}
