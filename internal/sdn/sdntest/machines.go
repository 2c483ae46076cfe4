// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

func parentPort(t *testing.T, f fixture) {
	here, elsewhere := []string{f.Subnets[0].ID}, []string{f.Subnets[1].ID}
	plain, plainIP := f.Cloud.MakeMachine(t, here[0], false)
	trunked, trunkedIP := f.Cloud.MakeMachine(t, here[0], true)
	both := append(slices.Clone(elsewhere), here...)
	own, server := f.ProjectID, ServerID
	tests := []struct {
		what string
		m    sdn.Machine
		want string
		err  error
	}{
		{"a port without a trunk", sdn.Machine{Address: plainIP, SubnetIDs: here, ProjectID: own}, plain, nil},
		{"a port without a trunk, as one with", sdn.Machine{Address: plainIP, SubnetIDs: here, ProjectID: own, Trunk: true}, "", sdn.ErrNotFound},
		{"a trunk's parent", sdn.Machine{Address: trunkedIP, SubnetIDs: here, ProjectID: own, Trunk: true}, trunked, nil},
		{"a trunk's parent, trunk or not", sdn.Machine{Address: trunkedIP, SubnetIDs: both, ProjectID: own}, trunked, nil},
		{"a port of a server", sdn.Machine{Address: trunkedIP, SubnetIDs: here, ProjectID: own, ServerID: server, Trunk: true}, trunked, nil},
		{"another server's port", sdn.Machine{Address: plainIP, SubnetIDs: here, ProjectID: own, ServerID: MissingID}, "", sdn.ErrNotFound},
		{"another project's port", sdn.Machine{Address: plainIP, SubnetIDs: here, ProjectID: MissingID, ServerID: server}, "", sdn.ErrNotFound},
		{"an address of another subnet", sdn.Machine{Address: plainIP, SubnetIDs: elsewhere, ProjectID: own}, "", sdn.ErrNotFound},
		{"an address that nobody has", sdn.Machine{Address: "10.253.255.254", SubnetIDs: here, ProjectID: own}, "", sdn.ErrNotFound},
		{"what is no address", sdn.Machine{Address: "n1", SubnetIDs: here, ProjectID: own}, "", sdn.ErrInvalid},
	}
	for _, test := range tests {
		got, err := f.Backend.ParentPort(f.ctx(), test.m)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("ParentPort of %s = %q, %v; want %q, %v", test.what, got, err, test.want, test.err)
		}
	}
}

func parentPortOfTwo(t *testing.T, f fixture) {
	one, address := f.Cloud.MakeMachine(t, f.Subnets[0].ID, false)
	two, twin := f.Cloud.MakeTwin(t, address)
	m := sdn.Machine{Address: address, ProjectID: f.ProjectID}
	if got, err := f.Backend.ParentPort(f.ctx(), m); !errors.Is(err, sdn.ErrInvalid) {
		t.Errorf("ParentPort of an address that two have = %q, %v; want ErrInvalid", got, err)
	}
	for subnet, want := range map[string]string{f.Subnets[0].ID: one, twin: two} {
		m.SubnetIDs = []string{subnet}
		if got, err := f.Backend.ParentPort(f.ctx(), m); err != nil || got != want {
			t.Errorf("ParentPort with the subnet named = %q, %v; want %q", got, err, want)
		}
	}
}

// others is an address pair of a parent port that Kuryr did not add.
var others = Pair{IP: "10.253.200.0/24", MAC: "02:00:00:00:00:99"}

// behind returns a request for ports behind a new parent port. The parent port also has the pair
// others.
func (f fixture) behind() sdn.PortRequest {
	f.t.Helper()
	r := f.request()
	r.Host, r.VIFType = "", "macvlan"
	r.ParentPortID, _ = f.Cloud.MakeMachine(f.t, f.Subnets[0].ID, false)
	f.Cloud.AddPair(f.t, r.ParentPortID, others)
	return r
}

// lets checks that a parent port has exactly the address pairs of these ports, and others.
func (f fixture) lets(parentID string, ports ...sdn.Port) {
	f.t.Helper()
	want := []Pair{others}
	for _, p := range ports {
		for _, a := range p.VIF.Addresses {
			want = append(want, PairOf(a.IP, p.VIF.MACAddress))
		}
	}
	byIP := func(a, b Pair) int { return strings.Compare(a.IP, b.IP) }
	slices.SortFunc(want, byIP)
	if diff := cmp.Diff(want, slices.SortedFunc(slices.Values(f.Cloud.Pairs(f.t, parentID)), byIP)); diff != "" {
		f.t.Errorf("address pairs of the parent: (-want +got)\n%s", diff)
	}
}

func macvlanPorts(t *testing.T, f fixture) {
	r := f.behind()
	r.SubnetIDs = append(r.SubnetIDs, f.Subnets[1].ID)
	ports := f.create(r, 3)
	for _, p := range ports {
		vif := p.VIF
		if vif.Type != "macvlan" || vif.ParentPortID != r.ParentPortID || vif.VLANID != 0 || p.Host != "" || !p.Active || vif.MTU != f.MTU {
			t.Errorf("port: %+v, want one of type macvlan, active, without a host", p)
		}
		f.checkAddresses(p, f.Subnets[:2]...)
	}
	f.lets(r.ParentPortID, ports...)
	fresh := f.Fresh(t)
	got, err := fresh.Port(f.ctx(), ports[0].ID)
	if diff := cmp.Diff(ports[0], got); diff != "" || err != nil {
		t.Errorf("Port is not what CreatePorts returned: %v (-create +port)\n%s", err, diff)
	}
	if listed := f.listed(f.Backend)[ports[1].ID]; !listed.Active || listed.Owner != f.owner {
		t.Errorf("ListPorts shows %+v, want it active and of %v", listed, f.owner)
	}
	// The last backend does not know the port yet.
	for i, b := range []sdn.Backend{f.Backend, fresh, f.Fresh(t)} {
		for range 2 {
			if err := b.DeletePort(f.ctx(), ports[i].ID); err != nil {
				t.Fatalf("DeletePort: %v", err)
			}
		}
		f.lets(r.ParentPortID, ports[i+1:]...)
	}
}

func macvlanAtOnce(t *testing.T, f fixture) {
	r := f.behind()
	first := f.create(r, 3)
	var wg sync.WaitGroup
	var kept [2][]sdn.Port
	for i := range 2 {
		wg.Go(func() {
			ports, err := f.Backend.CreatePorts(f.ctx(), f.owner, r, 2)
			if err != nil {
				t.Errorf("CreatePorts beside others: %v", err)
			}
			kept[i] = ports
		})
		wg.Go(func() {
			if err := f.Backend.DeletePort(f.ctx(), first[i].ID); err != nil {
				t.Errorf("DeletePort beside others: %v", err)
			}
		})
	}
	wg.Wait()
	left := append(slices.Concat(kept[:]...), first[2])
	f.deleteAfter(f.Backend, left...)
	f.lets(r.ParentPortID, left...)
}

func parentIsFull(t *testing.T, f fixture) {
	const room, asked = 3, 5
	r := f.behind()
	f.Cloud.LimitPairs(t, r.ParentPortID, room)
	ports, err := f.tryCreate(r, asked)
	if !errors.Is(err, sdn.ErrQuota) || len(ports) != room || f.mine() != room {
		t.Fatalf("CreatePorts of %d with room for %d: %d, %v, %d left; want ErrQuota", asked, room, len(ports), err, f.mine())
	}
	more, err := f.tryCreate(r, 1)
	if !errors.Is(err, sdn.ErrQuota) || len(more) != 0 || f.mine() != room {
		t.Errorf("CreatePorts with no room: %d ports, %v, %d left; want none and ErrQuota", len(more), err, f.mine())
	}
	for _, p := range ports[:2] {
		if err := f.Backend.DeletePort(f.ctx(), p.ID); err != nil {
			t.Fatalf("DeletePort: %v", err)
		}
	}
	more, err = f.tryCreate(r, 3)
	if !errors.Is(err, sdn.ErrQuota) || len(more) != 2 {
		t.Errorf("CreatePorts of 3 where two have gone: %d, %v; want 2 and ErrQuota", len(more), err)
	}
}

func parentThatIsNone(t *testing.T, f fixture) {
	r := f.behind()
	gone := r.ParentPortID
	port := f.create(r, 1)[0]
	r.ParentPortID = MissingID
	_, err := f.tryCreate(r, 1)
	if !errors.Is(err, sdn.ErrInvalid) || !strings.Contains(err.Error(), MissingID) {
		t.Errorf("CreatePorts behind a port that is none: %v, want ErrInvalid naming it", err)
	}
	f.Cloud.RemoveMachine(t, gone)
	r.ParentPortID = gone
	if _, err := f.tryCreate(r, 1); !errors.Is(err, sdn.ErrInvalid) || errors.Is(err, sdn.ErrNotFound) || !strings.Contains(err.Error(), gone) {
		t.Errorf("CreatePorts behind a port that has gone: %v, want ErrInvalid naming it", err)
	}
	if got := f.mine(); got != 1 {
		t.Errorf("%d ports are left, want the one made before", got)
	}
	if p, err := f.Fresh(t).Port(f.ctx(), port.ID); err != nil || p.VIF.ParentPortID != "" || p.VIF.Type == "macvlan" {
		t.Errorf("Port of one whose parent has gone: %+v, %v; want it without a parent", p.VIF, err)
	}
	if err := f.Backend.DeletePort(f.ctx(), port.ID); err != nil || f.Cloud.HasPort(t, port.ID) {
		t.Errorf("DeletePort of one whose parent has gone: %v", err)
	}
}
