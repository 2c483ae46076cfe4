// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// reportedAt is the usage that a cloud reports of its subnets.
type reportedAt map[string]sdn.Usage

func (t reportedAt) Room(_ context.Context, _ string, subnetIDs []string) (sdn.Room, error) {
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
	o.Capacity = reportedAt{
		"a": {Used: 6, Limit: 6}, "b": {Used: 1, Limit: 250}, "six": {Used: 3, Limit: math.MaxInt}, "seven": {Used: 1, Limit: math.MaxInt},
		"plain": {Used: 1, Limit: 2}, "half": {Used: 1, Limit: 2},
	}
	o.Subnets = more{"a": {"b"}, "six": {"seven"}, "half": {"unknown"}}
	got, err := withMore(o).Room(t.Context(), "", []string{"a", "six", "plain", "half"})
	want := map[string]sdn.Usage{"a": {Used: 7, Limit: 256}, "six": {Used: 4, Limit: math.MaxInt}, "plain": {Used: 1, Limit: 2}}
	if diff := cmp.Diff(want, got.Subnets); diff != "" || err != nil {
		t.Errorf("Room: %v (-want +got)\n%s", err, diff)
	}
}
