// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

func updateOfMissing(t *testing.T, f fixture) {
	name := "x"
	if err := f.Backend.UpdatePort(f.ctx(), MissingID, sdn.PortUpdate{Name: &name}); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("UpdatePort of what never was: %v, want ErrNotFound", err)
	}
	if _, err := f.Backend.Port(f.ctx(), MissingID); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("Port of what never was: %v, want ErrNotFound", err)
	}
	p := f.create(f.request(), 1)[0]
	if err := f.Backend.DeletePort(f.ctx(), p.ID); err != nil {
		t.Fatalf("DeletePort: %v", err)
	}
	if err := f.Backend.UpdatePort(f.ctx(), p.ID, sdn.PortUpdate{Name: &name}); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("UpdatePort of what is gone: %v, want ErrNotFound", err)
	}
}

func foreignPort(t *testing.T, f fixture) {
	f.outOfReach(f.Cloud.MakeForeignPort(t))
}

func otherClustersPort(t *testing.T, f fixture) {
	ports, err := f.Other.CreatePorts(f.ctx(), f.owner, f.request(), 1)
	f.deleteAfter(f.Other, ports...)
	if err != nil || len(ports) != 1 {
		t.Fatalf("CreatePorts of the other cluster: %d ports, %v", len(ports), err)
	}
	f.outOfReach(ports[0].ID)
	if _, ok := f.listed(f.Other)[ports[0].ID]; !ok {
		t.Error("the other cluster does not see its own port")
	}
	p, err := f.Other.Port(f.ctx(), ports[0].ID)
	if err != nil || p.Name != sdn.FreePortName {
		t.Errorf("the other cluster's port is %+v, %v; want it untouched", p, err)
	}
}

// outOfReach checks that the backend can neither see, change nor delete a port.
func (f fixture) outOfReach(id string) {
	f.t.Helper()
	if _, ok := f.listed(f.Backend)[id]; ok {
		f.t.Error("ListPorts shows it")
	}
	if _, err := f.Backend.Port(f.ctx(), id); !errors.Is(err, sdn.ErrNotFound) {
		f.t.Errorf("Port: %v, want ErrNotFound", err)
	}
	name := "stolen"
	if err := f.Backend.UpdatePort(f.ctx(), id, sdn.PortUpdate{Name: &name}); !errors.Is(err, sdn.ErrNotFound) {
		f.t.Errorf("UpdatePort: %v, want ErrNotFound", err)
	}
	if err := f.Backend.DeletePort(f.ctx(), id); err != nil {
		f.t.Errorf("DeletePort: %v, want nil as for a port that is gone", err)
	}
	if !f.Cloud.HasPort(f.t, id) {
		f.t.Error("DeletePort has removed it")
	}
}

// refused checks that a request is ErrInvalid for that field, that the error names the missing
// ID, and that no port is left behind.
func (f fixture) refused(r sdn.PortRequest, field sdn.Field, id string) {
	f.t.Helper()
	ports, err := f.tryCreate(r, 1)
	if !errors.Is(err, sdn.ErrInvalid) || errors.Is(err, sdn.ErrNotFound) || sdn.FieldOf(err) != field {
		f.t.Errorf("CreatePorts: %v, of field %q; want ErrInvalid of field %q and not ErrNotFound", err, sdn.FieldOf(err), field)
	}
	if err != nil && !strings.Contains(err.Error(), id) {
		f.t.Errorf("CreatePorts: %q does not name %s", err, id)
	}
	if got := f.mine(); len(ports) != 0 || got != 0 {
		f.t.Errorf("CreatePorts returned %d ports and left %d", len(ports), got)
	}
}

func missingSubnet(_ *testing.T, f fixture) {
	r := f.request()
	r.SubnetIDs = append(r.SubnetIDs, MissingID)
	f.refused(r, sdn.FieldSubnet, MissingID)
	r.SubnetIDs = nil
	f.refused(r, sdn.FieldSubnet, "")
}

func missingNetwork(_ *testing.T, f fixture) {
	r := f.request()
	r.NetworkID = MissingID
	f.refused(r, sdn.FieldNetwork, MissingID)
}

func missingGroup(t *testing.T, f fixture) {
	r := f.request()
	r.SecurityGroupIDs = append(r.SecurityGroupIDs, MissingID)
	f.refused(r, sdn.FieldSecurityGroup, MissingID)

	p := f.create(f.request(), 1)[0]
	err := f.Backend.UpdatePort(f.ctx(), p.ID, sdn.PortUpdate{SecurityGroupIDs: &r.SecurityGroupIDs})
	if !errors.Is(err, sdn.ErrInvalid) || errors.Is(err, sdn.ErrNotFound) || !strings.Contains(err.Error(), MissingID) {
		t.Errorf("UpdatePort to a group that is not there: %v, want ErrInvalid naming %s", err, MissingID)
	}
	if got := f.port(p.ID).SecurityGroupIDs; len(got) != 1 || got[0] != f.SecurityGroupIDs[0] {
		t.Errorf("groups after the refused update: %v", got)
	}
}

func quotaGivesPart(t *testing.T, f fixture) {
	const room, asked = 3, 5
	f.Cloud.LimitPorts(t, room)
	ports, err := f.tryCreate(f.request(), asked)
	if !errors.Is(err, sdn.ErrProjectQuota) {
		t.Errorf("CreatePorts of %d with room for %d: %v, want ErrProjectQuota", asked, room, err)
	}
	if got := f.mine(); len(ports) != room || got != room {
		t.Errorf("CreatePorts of %d with room for %d returned %d and left %d", asked, room, len(ports), got)
	}
	ports, err = f.tryCreate(f.request(), 1)
	if !errors.Is(err, sdn.ErrQuota) || len(ports) != 0 {
		t.Errorf("CreatePorts with no room: %d ports, %v; want none and ErrQuota", len(ports), err)
	}
}

func unusableHost(t *testing.T, f fixture) {
	r := f.request()
	r.Host = f.UnusableHost
	ports, err := f.tryCreate(r, 2)
	if !errors.Is(err, sdn.ErrUnbound) {
		t.Errorf("CreatePorts on %q: %v, want ErrUnbound", r.Host, err)
	}
	if err != nil && !strings.Contains(err.Error(), r.Host) {
		t.Errorf("CreatePorts: %q does not name the host %q", err, r.Host)
	}
	if got := f.mine(); len(ports) != 0 || got != 0 {
		t.Errorf("CreatePorts returned %d ports and left %d", len(ports), got)
	}
}

func cancelled(t *testing.T, f fixture) {
	p := f.create(f.request(), 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	name := "x"
	for call, err := range map[string]error{
		"CreatePorts": second(f.Backend.CreatePorts(ctx, f.owner, f.request(), 1)),
		"Port":        second(f.Backend.Port(ctx, p.ID)),
		"ListPorts":   second(f.Backend.ListPorts(ctx)),
		"UpdatePort":  f.Backend.UpdatePort(ctx, p.ID, sdn.PortUpdate{Name: &name}),
		"DeletePort":  f.Backend.DeletePort(ctx, p.ID),
		"Room":        second(f.Backend.Room(ctx, f.ProjectID, nil)),
		"ParentPort":  second(f.Backend.ParentPort(ctx, sdn.Machine{Address: "10.0.0.1", ProjectID: f.ProjectID})),
		"Strays":      second(f.Backend.Strays(ctx, f.ProjectID)),
		"Claim":       f.Backend.Claim(ctx, p.ID, f.owner),
		"DeleteStray": f.Backend.DeleteStray(ctx, p.ID),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v, want context.Canceled", call, err)
		}
	}
	if got := f.port(p.ID); got.Name != sdn.FreePortName {
		t.Errorf("cancelled calls changed the port: %+v", got)
	}
}

func second[T any](_ T, err error) error { return err }
