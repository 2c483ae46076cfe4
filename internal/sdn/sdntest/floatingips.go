// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

func (f services) floatingRequest(portID string) sdn.FloatingIPRequest {
	return sdn.FloatingIPRequest{ProjectID: f.ProjectID, NetworkID: f.ExternalNetwork, PortID: portID}
}

// tryFloatingIP makes a floating IP and deletes it at the end of the test.
func (f services) tryFloatingIP(r sdn.FloatingIPRequest) (sdn.FloatingIP, error) {
	made, err := f.Backend.CreateFloatingIP(f.ctx(), f.owner, r)
	if made.ID != "" {
		f.floatingIPGoes(f.Backend, made.ID)
	}
	return made, err
}

func (f services) floatingIPGoes(b Services, id string) {
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), callTimeout)
		defer cancel()
		all, err := b.ListFloatingIPs(ctx, f.ProjectID)
		for _, one := range all {
			if one.ID == id {
				err = b.DeleteFloatingIP(ctx, id, one.PortID)
			}
		}
		if err != nil {
			f.t.Errorf("DeleteFloatingIP(%s) after the test: %v", id, err)
		}
	})
}

func (f services) floatingIP(r sdn.FloatingIPRequest) sdn.FloatingIP {
	f.t.Helper()
	made, err := f.tryFloatingIP(r)
	if err != nil {
		f.t.Fatalf("CreateFloatingIP(%+v): %v", r, err)
	}
	return made
}

// floating returns by ID what b lists.
func (f services) floating(b Services) map[string]sdn.FloatingIP {
	f.t.Helper()
	all, err := b.ListFloatingIPs(f.ctx(), f.ProjectID)
	if err != nil {
		f.t.Fatalf("ListFloatingIPs: %v", err)
	}
	out := map[string]sdn.FloatingIP{}
	for _, one := range all {
		if _, twice := out[one.ID]; twice {
			f.t.Errorf("ListFloatingIPs shows %s twice", one.ID)
		}
		out[one.ID] = one
	}
	return out
}

// associateFails checks that Associate is refused and that the floating IP stays unchanged.
func (f services) associateFails(what, id, portID string, want error) {
	f.t.Helper()
	before := f.floating(f.Backend)[id]
	if err := f.Backend.Associate(f.ctx(), id, portID); !errors.Is(err, want) || f.floating(f.Backend)[id] != before {
		f.t.Errorf("Associate %s: %v, want %v and that it stays", what, err, want)
	}
}

// dissociate dissociates a floating IP from a port, twice.
func (f services) dissociate(id, portID string) {
	f.t.Helper()
	for range 2 {
		if err := f.Backend.Dissociate(f.ctx(), id, portID); err != nil {
			f.t.Fatalf("Dissociate(%s, %q): %v", id, portID, err)
		}
	}
	if got := f.floating(f.Backend)[id]; got.PortID != "" {
		f.t.Errorf("floating IP after Dissociate = %+v, want it at no port", got)
	}
}

func (f services) associate(id, portID string) {
	f.t.Helper()
	for range 2 {
		if err := f.Backend.Associate(f.ctx(), id, portID); err != nil {
			f.t.Fatalf("Associate(%s, %q): %v", id, portID, err)
		}
	}
	if got := f.floating(f.Backend)[id]; got.PortID != portID {
		f.t.Errorf("floating IP after Associate = %+v, want it at port %q", got, portID)
	}
}

func floatingIPLife(t *testing.T, f services) {
	one, two := f.balancer(f.wanted()), f.balancer(f.wanted())
	made := f.floatingIP(f.floatingRequest(one.VIPPortID))
	ip, err := netip.ParseAddr(made.Address)
	if err != nil || !f.External.Prefix.Contains(ip) || made.Owner != f.owner || made.NetworkID != f.ExternalNetwork || made.PortID != one.VIPPortID {
		t.Errorf("CreateFloatingIP = %+v, want an address of %v at port %s", made, f.External.Prefix, one.VIPPortID)
	}
	for _, b := range []Services{f.Backend, f.Fresh(t)} {
		if diff := cmp.Diff(made, f.floating(b)[made.ID]); diff != "" {
			t.Errorf("ListFloatingIPs is not what CreateFloatingIP returned: (-create +list)\n%s", diff)
		}
	}
	if _, err := f.tryFloatingIP(f.floatingRequest(one.VIPPortID)); !errors.Is(err, sdn.ErrConflict) {
		t.Errorf("CreateFloatingIP for a port that has one: %v, want ErrConflict", err)
	}
	f.associateFails("of what another port has", made.ID, two.VIPPortID, sdn.ErrConflict)
	f.associateFails("with no port", made.ID, "", sdn.ErrInvalid)
	f.dissociate(made.ID, one.VIPPortID)
	f.associate(made.ID, two.VIPPortID)
	f.dissociate(made.ID, two.VIPPortID)
	other := f.floatingIP(f.floatingRequest(two.VIPPortID))
	f.associateFails("with a port that has another", made.ID, two.VIPPortID, sdn.ErrConflict)
	if err := f.Backend.Associate(f.ctx(), made.ID, MissingID); !errors.Is(err, sdn.ErrInvalid) || !strings.Contains(err.Error(), MissingID) {
		t.Errorf("Associate with a port that is not there: %v, want ErrInvalid naming it", err)
	}
	for _, port := range []string{"", one.VIPPortID, MissingID} {
		if err := f.Backend.DeleteFloatingIP(f.ctx(), other.ID, port); !errors.Is(err, sdn.ErrConflict) || f.floating(f.Backend)[other.ID].PortID != two.VIPPortID {
			t.Errorf("DeleteFloatingIP at port %q, which does not have it: %v, want ErrConflict and that it stays", port, err)
		}
	}
	// The first floating IP is at no port by now.
	for _, id := range []string{made.ID, made.ID, other.ID} {
		if err := f.Backend.DeleteFloatingIP(f.ctx(), id, two.VIPPortID); err != nil || f.Cloud.HasFloatingIP(t, id) {
			t.Errorf("DeleteFloatingIP: %v", err)
		}
	}
	if err := f.Backend.Associate(f.ctx(), made.ID, one.VIPPortID); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("Associate of what is gone: %v, want ErrNotFound", err)
	}
}

func floatingIPByAddress(t *testing.T, f services) {
	r := f.floatingRequest("")
	// Neutron gives addresses of the subnet at random, to routers and to
	// the floating IPs of other cases: any one may be taken.
	r.SubnetID = f.External.ID
	made, err := sdn.FloatingIP{}, error(nil)
	for host := 77; host < 87; host++ {
		r.Address = inside(f.External.Prefix, host)
		if made, err = f.tryFloatingIP(r); !errors.Is(err, sdn.ErrConflict) {
			break
		}
	}
	if errors.Is(err, sdn.ErrForbidden) {
		t.Skip("this credential may not choose the address of a floating IP")
	}
	if err != nil || made.Address != r.Address || made.PortID != "" {
		t.Errorf("CreateFloatingIP = %+v, %v; want address %s and no port", made, err, r.Address)
	}
	if _, err := f.tryFloatingIP(r); !errors.Is(err, sdn.ErrConflict) {
		t.Errorf("CreateFloatingIP of an address that is one: %v, want ErrConflict", err)
	}
	for what, change := range map[string]func(*sdn.FloatingIPRequest){
		"an address of another subnet":           func(r *sdn.FloatingIPRequest) { r.Address = "198.51.100.7" },
		"a network that is not there":            func(r *sdn.FloatingIPRequest) { r.NetworkID = MissingID },
		"a network that is none for them":        func(r *sdn.FloatingIPRequest) { r.NetworkID, r.SubnetID, r.Address = f.NetworkID, "", "" },
		"a subnet that is none of the network's": func(r *sdn.FloatingIPRequest) { r.SubnetID, r.Address = f.Subnet.ID, "" },
		"a port that is not there":               func(r *sdn.FloatingIPRequest) { r.Address, r.PortID = "", MissingID },
	} {
		bad := r
		change(&bad)
		if _, err := f.tryFloatingIP(bad); !errors.Is(err, sdn.ErrInvalid) || errors.Is(err, sdn.ErrNotFound) {
			t.Errorf("CreateFloatingIP with %s: %v, want ErrInvalid", what, err)
		}
	}
}

func floatingIPIsFreed(t *testing.T, f services) {
	lb := f.balancer(f.wanted())
	made := f.floatingIP(f.floatingRequest(lb.VIPPortID))
	f.must("DeleteLoadBalancer", func() error { return f.Backend.DeleteLoadBalancer(f.ctx(), lb.ID) })
	if got, ok := f.floating(f.Backend)[made.ID]; !ok || got.PortID != "" || got.Address != made.Address {
		t.Errorf("the floating IP of a load balancer that is gone is %+v (%t), want it nobody's", got, ok)
	}
	f.associate(made.ID, f.balancer(f.wanted()).VIPPortID)
}

func floatingIPIsTakenBack(t *testing.T, f services) {
	one, two := f.balancer(f.wanted()).VIPPortID, f.balancer(f.wanted()).VIPPortID
	made := f.floatingIP(f.floatingRequest(one))
	for _, b := range []Services{f.Backend, f.Other} {
		for _, port := range []string{two, MissingID, ""} {
			if err := b.Dissociate(f.ctx(), made.ID, port); err != nil && !errors.Is(err, sdn.ErrNotFound) || f.floating(f.Backend)[made.ID].PortID != one {
				t.Errorf("Dissociate from port %q, which does not have it: %v, want nil and that it stays", port, err)
			}
		}
	}
	for range 2 {
		if err := f.Backend.Dissociate(f.ctx(), made.ID, one); err != nil || f.floating(f.Backend)[made.ID].PortID != "" {
			t.Errorf("Dissociate from the port that has it: %v, want it nobody's", err)
		}
	}
	if err := f.Backend.Dissociate(f.ctx(), MissingID, one); err != nil {
		t.Errorf("Dissociate of one that is not there: %v, want nil", err)
	}
}

func foreignFloatingIPs(t *testing.T, f services) {
	id := f.Cloud.MakeForeignFloatingIP(t)
	if got, ok := f.floating(f.Backend)[id]; !ok || got.Owner != (sdn.Owner{}) || got.Address == "" {
		t.Errorf("ListFloatingIPs shows the project's own as %+v (%t)", got, ok)
	}
	port := f.balancer(f.wanted()).VIPPortID
	f.associate(id, port)
	f.dissociate(id, port)
	if err := f.Backend.DeleteFloatingIP(f.ctx(), id, ""); err != nil || !f.Cloud.HasFloatingIP(t, id) {
		t.Errorf("DeleteFloatingIP of one without a mark: %v, want nil and that it is left there", err)
	}
	theirs, err := f.Other.CreateFloatingIP(f.ctx(), f.owner, f.floatingRequest(""))
	if err != nil {
		t.Fatalf("CreateFloatingIP of the other cluster: %v", err)
	}
	f.floatingIPGoes(f.Other, theirs.ID)
	if _, ok := f.floating(f.Backend)[theirs.ID]; ok {
		t.Error("ListFloatingIPs shows another cluster's")
	}
	if err := f.Backend.Associate(f.ctx(), theirs.ID, MissingID); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("Associate of another cluster's: %v, want ErrNotFound", err)
	}
	if err := f.Backend.DeleteFloatingIP(f.ctx(), theirs.ID, ""); err != nil || !f.Cloud.HasFloatingIP(t, theirs.ID) {
		t.Errorf("DeleteFloatingIP of another cluster's: %v, want nil and that it is left there", err)
	}
}

func floatingIPIsDisowned(t *testing.T, f services) {
	port := f.balancer(f.wanted()).VIPPortID
	made := f.floatingIP(f.floatingRequest(port))
	if err := f.Other.DisownFloatingIP(f.ctx(), made.ID); err != nil || f.floating(f.Backend)[made.ID].Owner != f.owner {
		t.Errorf("DisownFloatingIP of another cluster's: %v, want nil and that its mark stays", err)
	}
	for range 2 {
		if err := f.Backend.DisownFloatingIP(f.ctx(), made.ID); err != nil {
			t.Fatalf("DisownFloatingIP: %v", err)
		}
	}
	if got := f.floating(f.Other)[made.ID]; got.Owner != (sdn.Owner{}) || got.PortID != port || got.Address != made.Address {
		t.Errorf("the floating IP that is disowned is %+v, want it as it was and nobody's", got)
	}
	if err := f.Backend.DeleteFloatingIP(f.ctx(), made.ID, port); err != nil || !f.Cloud.HasFloatingIP(t, made.ID) {
		t.Errorf("DeleteFloatingIP of it: %v, want nil and that it is left there", err)
	}
	if err := f.Backend.DisownFloatingIP(f.ctx(), MissingID); err != nil {
		t.Errorf("DisownFloatingIP of none: %v", err)
	}
}

func floatingIPAnswerIsLost(t *testing.T, f services) {
	if !f.Cloud.LoseAnswer(t) {
		t.Skip("this cloud loses no answers")
	}
	if _, err := f.tryFloatingIP(f.floatingRequest("")); !errors.Is(err, sdn.ErrUnavailable) {
		t.Errorf("CreateFloatingIP with its answer lost: %v, want ErrUnavailable", err)
	}
	n := 0
	for id, one := range f.floating(f.Backend) {
		if one.Owner == f.owner {
			n++
			f.floatingIPGoes(f.Backend, id)
		}
	}
	if n != 1 {
		t.Errorf("ListFloatingIPs shows %d of the owner, want 1", n)
	}
}

func subnetsAreTold(t *testing.T, f services) {
	want := sdn.Subnet{ID: f.Subnet.ID, NetworkID: f.NetworkID, CIDR: f.Subnet.Prefix.String()}
	if got, err := f.Backend.Subnet(f.ctx(), f.Subnet.ID); got != want || err != nil {
		t.Errorf("Subnet = %+v, %v; want %+v", got, err, want)
	}
	if _, err := f.Backend.Subnet(f.ctx(), MissingID); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("Subnet that is not there: %v, want ErrNotFound", err)
	}
}
