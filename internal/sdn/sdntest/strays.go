// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// strays returns by ID the ports of the target's project that an earlier Kuryr left.
func (f fixture) strays() map[string]sdn.Port {
	f.t.Helper()
	all, err := f.Backend.Strays(f.ctx(), f.ProjectID)
	if err != nil {
		f.t.Fatalf("Strays: %v", err)
	}
	out := map[string]sdn.Port{}
	for _, p := range all {
		out[p.ID] = p
	}
	return out
}

// makeStrays makes such a port on a host, one on the trunk if the cloud has trunks, and one with
// neither.
func (f fixture) makeStrays() (bound, subport, loose string) {
	r := f.request()
	bound = f.Cloud.MakeStray(f.t, r)
	r.Host = ""
	loose = f.Cloud.MakeStray(f.t, r)
	if f.TrunkPortID != "" {
		subport = f.Cloud.MakeStray(f.t, f.subportRequest())
	}
	return bound, subport, loose
}

func straysAreClaimed(t *testing.T, f fixture) {
	bound, subport, loose := f.makeStrays()
	ours, foreign := f.create(f.request(), 1)[0], f.Cloud.MakeForeignPort(t)
	found := f.strays()
	for _, id := range []string{ours.ID, foreign} {
		if p, ok := found[id]; ok {
			t.Errorf("Strays shows %+v, which is none", p)
		}
	}
	p := found[bound]
	if p.Host != f.Host || p.VIF.Type != f.VIFType || p.VIF.ParentPortID != "" || p.Owner != (sdn.Owner{}) || p.NetworkID != f.NetworkID {
		t.Errorf("the stray on a host is %+v", p)
	}
	f.checkAddresses(p, f.Subnets[0])
	if p, ok := found[loose]; !ok || p.Host != "" || p.VIF.ParentPortID != "" {
		t.Errorf("the stray that is nowhere is %+v (%t)", p, ok)
	}
	f.claim(bound, found[bound])
	if subport == "" {
		t.Skip("this cloud offers no trunk")
	}
	p = found[subport]
	if p.VIF.Type != "vlan" || p.VIF.ParentPortID != f.TrunkPortID || p.VIF.VLANID != f.Cloud.Subports(t, f.TrunkPortID)[subport] || p.Host != "" {
		t.Errorf("the stray on the trunk is %+v", p)
	}
	f.claim(subport, p)
	if left := f.Cloud.Subports(t, f.TrunkPortID); left[subport] != 0 {
		t.Error("the claimed subport is on the trunk after DeletePort")
	}
}

// claim claims a port that an earlier Kuryr left, checks that this cluster owns it then, and
// deletes it.
func (f fixture) claim(id string, stray sdn.Port) {
	f.t.Helper()
	for range 2 {
		if err := f.Backend.Claim(f.ctx(), id, f.owner); err != nil {
			f.t.Fatalf("Claim: %v", err)
		}
	}
	want := stray
	want.Owner, want.Name = f.owner, sdn.FreePortName
	if got := f.port(id); got.Owner != want.Owner || got.Name != want.Name || got.Host != want.Host || got.VIF.VLANID != want.VIF.VLANID {
		f.t.Errorf("Port after Claim = %+v, want %+v", got, want)
	}
	if got, ok := f.listed(f.Backend)[id]; !ok || got.Owner != f.owner {
		f.t.Errorf("ListPorts after Claim shows %+v (%t)", got, ok)
	}
	if _, ok := f.strays()[id]; ok {
		f.t.Error("Strays shows it after Claim")
	}
	if err := f.Other.Claim(f.ctx(), id, f.owner); !errors.Is(err, sdn.ErrConflict) {
		f.t.Errorf("Claim by another cluster: %v, want ErrConflict", err)
	}
	if err := f.Backend.DeleteStray(f.ctx(), id); !errors.Is(err, sdn.ErrConflict) || !f.Cloud.HasPort(f.t, id) {
		f.t.Errorf("DeleteStray after Claim: %v, want ErrConflict", err)
	}
	if err := f.Backend.DeletePort(f.ctx(), id); err != nil || f.Cloud.HasPort(f.t, id) {
		f.t.Errorf("DeletePort of a claimed port: %v", err)
	}
}

func straysAreDeleted(t *testing.T, f fixture) {
	bound, subport, loose := f.makeStrays()
	for _, id := range []string{bound, subport, loose} {
		if id == "" {
			continue
		}
		for range 2 {
			if err := f.Backend.DeleteStray(f.ctx(), id); err != nil || f.Cloud.HasPort(t, id) {
				t.Errorf("DeleteStray: %v; is it there: %t", err, f.Cloud.HasPort(t, id))
			}
		}
		if err := f.Backend.Claim(f.ctx(), id, f.owner); !errors.Is(err, sdn.ErrNotFound) {
			t.Errorf("Claim of one that is gone: %v, want ErrNotFound", err)
		}
	}
	if f.TrunkPortID != "" && f.Cloud.Subports(t, f.TrunkPortID)[subport] != 0 {
		t.Error("the deleted stray is still on the trunk")
	}
}

func strayInUse(t *testing.T, f fixture) {
	id, _, _ := f.makeStrays()
	f.Cloud.TakeStray(t, id)
	if p, ok := f.strays()[id]; ok {
		t.Errorf("Strays shows %+v, which a pod has", p)
	}
	if err := f.Backend.Claim(f.ctx(), id, f.owner); !errors.Is(err, sdn.ErrConflict) {
		t.Errorf("Claim of one that a pod has: %v, want ErrConflict", err)
	}
	if err := f.Backend.DeleteStray(f.ctx(), id); !errors.Is(err, sdn.ErrConflict) || !f.Cloud.HasPort(t, id) {
		t.Errorf("DeleteStray of one that a pod has: %v, want ErrConflict", err)
	}
}
