// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
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

// detailsOfNewPorts checks that Details equals the details of a new port. Otherwise Kuryr would
// take new ports for outdated.
func detailsOfNewPorts(t *testing.T, f fixture) {
	p := f.create(f.request(), 1)[0]
	want := v1.VIF{MTU: p.VIF.MTU, Addresses: slices.Clone(p.VIF.Addresses), Routes: p.VIF.Routes}
	want.Addresses[0].IP = ""
	got, err := f.Backend.Details(f.ctx(), f.Subnets[0].ID)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Details: %v (-port +details)\n%s", err, diff)
	}
	if _, err := f.Backend.Details(f.ctx(), MissingID); !errors.Is(err, sdn.ErrInvalid) {
		t.Errorf("Details of a subnet that does not exist: %v, want ErrInvalid", err)
	}
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
