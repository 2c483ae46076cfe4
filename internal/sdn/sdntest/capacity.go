// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

func (f fixture) room() sdn.Room {
	f.t.Helper()
	room, err := f.Backend.Room(f.ctx(), f.ProjectID, []string{f.Subnets[0].ID, MissingID})
	if err != nil || room.Ports == nil {
		f.t.Fatalf("Room: %+v, %v; want the ports too", room, err)
	}
	return room
}

func roomIsWhatIsLeft(t *testing.T, f fixture) {
	const left, n = 5, 2
	f.Cloud.LimitPorts(t, left)
	want := f.room()
	if got, bounded := want.Ports.Left(); got != left || !bounded {
		t.Errorf("room for %d ports is left (%t), want %d", got, bounded, left)
	}
	if _, known := want.Subnets[MissingID]; known || want.Subnets[f.Subnets[0].ID].Limit < 100 {
		t.Errorf("Room knows of addresses %+v, want those of subnet %s only", want.Subnets, f.Subnets[0].ID)
	}
	f.create(f.request(), n)
	want.Ports.Used += n
	subnet := want.Subnets[f.Subnets[0].ID]
	subnet.Used += n
	want.Subnets[f.Subnets[0].ID] = subnet
	if diff := cmp.Diff(want, f.room()); diff != "" {
		t.Errorf("Room after %d ports were made: (-want +got)\n%s", n, diff)
	}
}
