// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

func (f fixture) subportRequest() sdn.PortRequest {
	r := f.request()
	r.Host, r.ParentPortID = "", f.TrunkPortID
	return r
}

func subports(t *testing.T, f fixture) {
	if f.TrunkPortID == "" {
		t.Skip("this cloud offers no trunk")
	}
	ports := f.create(f.subportRequest(), 2)
	var wg sync.WaitGroup
	var more []sdn.Port
	var err error
	wg.Go(func() { more, err = f.tryCreate(f.subportRequest(), 2) })
	ports = append(ports, f.create(f.subportRequest(), 1)...)
	wg.Wait()
	if err != nil {
		t.Fatalf("CreatePorts of subports beside others: %v", err)
	}
	ports = append(ports, more...)

	onTrunk := f.Cloud.Subports(t, f.TrunkPortID)
	vlans := map[int32]bool{}
	for _, p := range ports {
		vif := p.VIF
		if vif.Type != "vlan" || vif.ParentPortID != f.TrunkPortID || vif.VLANID < 1 || vif.VLANID > 4094 || p.Host != "" {
			t.Errorf("subport: type %q, parent %q, VLAN %d, host %q", vif.Type, vif.ParentPortID, vif.VLANID, p.Host)
		}
		if vlans[vif.VLANID] || onTrunk[p.ID] != vif.VLANID {
			t.Errorf("subport %s has VLAN %d, on the trunk %d, taken %t", p.ID, vif.VLANID, onTrunk[p.ID], vlans[vif.VLANID])
		}
		vlans[vif.VLANID] = true
		f.checkAddresses(p, f.Subnets[0])
	}
	if diff := cmp.Diff(ports[0], f.port(ports[0].ID)); diff != "" {
		t.Errorf("Port is not what CreatePorts returned: (-create +port)\n%s", diff)
	}
	f.subportGoes(ports)
}

// subportGoes checks that subports are listed. Deleting one must remove it from its trunk, and
// leave the others there.
func (f fixture) subportGoes(ports []sdn.Port) {
	f.t.Helper()
	if got := f.mine(); got != len(ports) {
		f.t.Errorf("ListPorts shows %d of %d subports", got, len(ports))
	}
	for range 2 {
		if err := f.Backend.DeletePort(f.ctx(), ports[0].ID); err != nil {
			f.t.Fatalf("DeletePort of a subport: %v", err)
		}
	}
	left := f.Cloud.Subports(f.t, f.TrunkPortID)
	if _, ok := left[ports[0].ID]; ok || f.Cloud.HasPort(f.t, ports[0].ID) {
		f.t.Errorf("the deleted subport is still there; trunk: %v", left)
	}
	for _, p := range ports[1:] {
		if left[p.ID] != p.VIF.VLANID {
			f.t.Errorf("subport %s has VLAN %d after another was deleted, want %d", p.ID, left[p.ID], p.VIF.VLANID)
		}
	}
}

func trunkThatIsNone(t *testing.T, f fixture) {
	r := f.subportRequest()
	r.ParentPortID = MissingID
	f.refused(r, sdn.FieldParentPort, MissingID)
	plain := f.create(f.request(), 1)[0]
	r.ParentPortID = plain.ID
	_, err := f.tryCreate(r, 1)
	if !errors.Is(err, sdn.ErrInvalid) || !strings.Contains(err.Error(), plain.ID) {
		t.Errorf("CreatePorts with a plain port as trunk: %v, want ErrInvalid naming %s", err, plain.ID)
	}
}

// manySubports checks creations while another client takes VLANs of the same trunk.
func manySubports(t *testing.T, f fixture) {
	if f.TrunkPortID == "" {
		t.Skip("this cloud offers no trunk")
	}
	var theirs []string
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 3 {
			theirs = append(theirs, f.Cloud.MakeStray(t, f.subportRequest()))
		}
	})
	ports := f.create(f.subportRequest(), f.Many)
	wg.Wait()
	onTrunk := f.Cloud.Subports(t, f.TrunkPortID)
	taken := map[int32]string{}
	for id, vlan := range onTrunk {
		if taken[vlan] != "" {
			t.Errorf("subports %s and %s both have VLAN %d", taken[vlan], id, vlan)
		}
		taken[vlan] = id
	}
	for _, p := range ports {
		if onTrunk[p.ID] != p.VIF.VLANID {
			t.Errorf("subport %s has VLAN %d, on the trunk %d", p.ID, p.VIF.VLANID, onTrunk[p.ID])
		}
	}
	for _, id := range theirs {
		if onTrunk[id] == 0 {
			t.Errorf("somebody else's subport %s is not on the trunk any more", id)
		}
	}
	if got := f.mine(); got != f.Many {
		t.Errorf("%d ports are left of %d subports", got, f.Many)
	}
}
