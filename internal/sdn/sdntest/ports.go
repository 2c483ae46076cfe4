// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var macForm = regexp.MustCompile(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`)

func portIsComplete(t *testing.T, f fixture) {
	p := f.create(f.request(), 1)[0]
	want := sdn.Port{
		ID: p.ID, ProjectID: p.ProjectID, Owner: f.owner, NetworkID: f.NetworkID, Host: f.Host, Name: sdn.FreePortName,
		SecurityGroupIDs: f.SecurityGroupIDs[:1],
		VIF: v1.VIF{
			Type: f.VIFType, MTU: f.MTU, MACAddress: p.VIF.MACAddress, Addresses: p.VIF.Addresses,
			Bridge: p.VIF.Bridge, Details: p.VIF.Details,
		},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("CreatePorts: (-want +got)\n%s", diff)
	}
	if p.ID == "" || !macForm.MatchString(p.VIF.MACAddress) {
		t.Errorf("CreatePorts: ID %q, MAC address %q", p.ID, p.VIF.MACAddress)
	}
	f.checkAddresses(p, f.Subnets[0])
	if diff := cmp.Diff(p, f.port(p.ID)); diff != "" {
		t.Errorf("Port is not what CreatePorts returned: (-create +port)\n%s", diff)
	}
}

// checkAddresses checks that p has one address of each of these subnets, in this order.
func (f fixture) checkAddresses(p sdn.Port, subnets ...Subnet) {
	f.t.Helper()
	if len(p.VIF.Addresses) != len(subnets) {
		f.t.Errorf("addresses %+v, want one of each of %+v", p.VIF.Addresses, subnets)
		return
	}
	for i, s := range subnets {
		got := p.VIF.Addresses[i]
		want := v1.Address{IP: got.IP, PrefixLength: int32(s.Prefix.Bits()), SubnetID: s.ID}
		if s.Gateway.IsValid() {
			want.Gateway = s.Gateway.String()
		}
		if got != want {
			f.t.Errorf("address %+v, want %+v", got, want)
		}
		if ip, err := netip.ParseAddr(got.IP); err != nil || !s.Prefix.Contains(ip) || ip == s.Gateway {
			f.t.Errorf("address %q is not one for a port of %v", got.IP, s)
		}
	}
}

func ownerIsKnown(t *testing.T, f fixture) {
	p := f.create(f.request(), 1)[0]
	got, ok := f.listed(f.Backend)[p.ID]
	if !ok || got.Owner != f.owner {
		t.Errorf("ListPorts right after CreatePorts shows %+v (%t), want owner %v", got, ok, f.owner)
	}
}

func portsInBulk(t *testing.T, f fixture) {
	const n = 3
	ports := f.create(f.request(), n)
	ids, macs, ips := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, p := range ports {
		ids[p.ID], macs[p.VIF.MACAddress], ips[p.VIF.Addresses[0].IP] = true, true, true
		f.checkAddresses(p, f.Subnets[0])
		if p.VIF.Type != f.VIFType || p.Host != f.Host || p.Owner != f.owner {
			t.Errorf("port %s: type %q, host %q, owner %v; want %q, %q, %v", p.ID, p.VIF.Type, p.Host, p.Owner, f.VIFType, f.Host, f.owner)
		}
	}
	if len(ids) != n || len(macs) != n || len(ips) != n {
		t.Errorf("%d ports have %d IDs, %d MAC addresses, %d IP addresses", n, len(ids), len(macs), len(ips))
	}
	if got := f.mine(); got != n {
		t.Errorf("ListPorts shows %d ports of the owner, want %d", got, n)
	}
}

func noPorts(t *testing.T, f fixture) {
	ports, err := f.tryCreate(f.request(), 0)
	if err != nil || len(ports) != 0 {
		t.Errorf("CreatePorts(…, 0) = %d ports, %v; want none, nil", len(ports), err)
	}
}

// addressOfEachSubnet checks that the first subnet's address is the first of the pod. The backend
// may sort the addresses differently, so readers of the port arrange them.
func addressOfEachSubnet(_ *testing.T, f fixture) {
	one, other := f.Subnets[0], f.Subnets[1]
	for _, want := range [][]Subnet{{one, other}, {other, one}} {
		r := f.request()
		r.SubnetIDs = []string{want[0].ID, want[1].ID}
		r.NetworkID = f.NetworkID
		p := f.create(r, 1)[0]
		f.checkAddresses(p, want...)
		again := f.port(p.ID)
		again.Arrange(r.SubnetIDs, nil)
		f.checkAddresses(again, want...)
	}
}

// addressUnasked checks that a pod has only addresses of its pool's subnets, even if the cloud
// gives the port more. Port still shows every address.
func addressUnasked(t *testing.T, f fixture) {
	prefix := netip.MustParsePrefix("fd00:254::/64")
	id := f.Cloud.MakeAutomaticSubnet(t, prefix)
	for _, n := range []int{3, 1, 2} {
		if all := f.create(f.request(), n); len(all) != n {
			t.Errorf("CreatePorts of %d where each port has one more address made %d", n, len(all))
		}
	}
	p := f.create(f.request(), 1)[0]
	f.checkAddresses(p, f.Subnets[0])
	got := f.port(p.ID)
	if !slices.ContainsFunc(got.VIF.Addresses, func(a v1.Address) bool { return a.SubnetID == id && int(a.PrefixLength) == prefix.Bits() }) {
		t.Errorf("Port shows addresses %+v, want one of %s with its prefix length, too", got.VIF.Addresses, prefix)
	}
	got.Arrange(f.request().SubnetIDs, nil)
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("Port, arranged, is not what CreatePorts returned: (-create +port)\n%s", diff)
	}
}

// anotherSubnetWhereOneIsFull checks that a full subnet is replaced by the next one that the
// request names for it. No error mentions the full subnet.
func anotherSubnetWhereOneIsFull(t *testing.T, f fixture) {
	small := Subnet{Prefix: netip.MustParsePrefix("10.254.0.0/29")}
	small.ID = f.Cloud.MakeSubnet(t, small.Prefix)
	const room, n = 6, 8 // of eight addresses the first and the last are not for ports
	r := f.request()
	r.SubnetIDs, r.MoreSubnetIDs = []string{small.ID, f.Subnets[1].ID}, map[string][]string{small.ID: {f.Subnets[0].ID}}
	// One by one: Neutron 21 keeps the addresses that a refused bulk request had already taken.
	for i := range n {
		p, first := f.create(r, 1)[0], small
		if i >= room {
			first = f.Subnets[0]
		}
		f.checkAddresses(p, first, f.Subnets[1])
		again := f.port(p.ID)
		again.Arrange(r.SubnetIDs, r.MoreSubnetIDs)
		f.checkAddresses(again, first, f.Subnets[1])
	}
	if ports := f.create(r, n); len(ports) != n {
		t.Errorf("%d ports where one subnet is full, want %d", len(ports), n)
	}
	f.checkAddresses(f.create(r, 1)[0], f.Subnets[0], f.Subnets[1])
	r.MoreSubnetIDs = nil
	if ports, err := f.tryCreate(r, 1); !errors.Is(err, sdn.ErrAddresses) || len(ports) != 0 {
		t.Errorf("CreatePorts in a full subnet = %d ports, %v; want ErrAddresses", len(ports), err)
	}
	r.MoreSubnetIDs = map[string][]string{small.ID: {MissingID}}
	if _, err := f.tryCreate(r, 1); !errors.Is(err, sdn.ErrInvalid) || !strings.Contains(err.Error(), MissingID) {
		t.Errorf("CreatePorts in a full subnet or one that does not exist: %v, want ErrInvalid, and the subnet named", err)
	}
}

func securityGroups(t *testing.T, f fixture) {
	r := f.request()
	r.SecurityGroupIDs = nil
	p := f.create(r, 1)[0]
	if len(p.SecurityGroupIDs) != 0 {
		t.Errorf("CreatePorts without security groups gave %v", p.SecurityGroupIDs)
	}
	both := slices.Sorted(slices.Values(f.SecurityGroupIDs[:2]))
	for _, want := range [][]string{{both[1], both[0]}, {both[1]}, {}} {
		if err := f.Backend.UpdatePort(f.ctx(), p.ID, sdn.PortUpdate{SecurityGroupIDs: &want}); err != nil {
			t.Fatalf("UpdatePort to groups %v: %v", want, err)
		}
		got := f.port(p.ID).SecurityGroupIDs
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("groups after UpdatePort: (-want +got)\n%s", diff)
		}
	}
	r.SecurityGroupIDs = []string{both[1], both[0]}
	if got := f.create(r, 1)[0].SecurityGroupIDs; !slices.Equal(got, both) {
		t.Errorf("CreatePorts with groups %v gave %v, want them sorted", r.SecurityGroupIDs, got)
	}
}

func vifTypeOverridden(t *testing.T, f fixture) {
	r := f.request()
	r.VIFType = "midonet"
	if got := f.create(r, 1)[0].VIF.Type; got != "midonet" {
		t.Errorf("VIF type %q, want midonet as asked for", got)
	}
}

func updateLeavesTheRest(t *testing.T, f fixture) {
	before := f.create(f.request(), 1)[0]
	name, device := "default/web-0", "3d5e2b9c-0c1d-4c4e-9b53-6f1f8b2c1a11"
	if err := f.Backend.UpdatePort(f.ctx(), before.ID, sdn.PortUpdate{Name: &name, DeviceID: &device}); err != nil {
		t.Fatalf("UpdatePort: %v", err)
	}
	want := before
	want.Name, want.DeviceID = name, device
	if diff := cmp.Diff(want, f.port(before.ID)); diff != "" {
		t.Errorf("after UpdatePort of name and device: (-want +got)\n%s", diff)
	}
	if err := f.Backend.UpdatePort(f.ctx(), before.ID, sdn.PortUpdate{}); err != nil {
		t.Errorf("UpdatePort of nothing: %v", err)
	}
	empty := ""
	if err := f.Backend.UpdatePort(f.ctx(), before.ID, sdn.PortUpdate{DeviceID: &empty}); err != nil {
		t.Fatalf("UpdatePort to no device: %v", err)
	}
	want.DeviceID = ""
	if diff := cmp.Diff(want, f.port(before.ID)); diff != "" {
		t.Errorf("after UpdatePort to no device: (-want +got)\n%s", diff)
	}
}

func statesOfSome(t *testing.T, f fixture) {
	ids, want := []string{f.Cloud.MakeForeignPort(t), MissingID}, map[string]sdn.PortState{}
	for _, p := range f.create(f.request(), 3) {
		ids, want[p.ID] = append(ids, p.ID), sdn.PortState{Active: p.Active, SecurityGroupIDs: p.SecurityGroupIDs}
	}
	behind := f.create(f.behind(), 1)[0] // active from the start
	ids, want[behind.ID] = append(ids, behind.ID), sdn.PortState{Active: true, SecurityGroupIDs: behind.SecurityGroupIDs}
	f.create(f.request(), 1)
	both := slices.Sorted(slices.Values(f.SecurityGroupIDs[:2]))
	if err := f.Fresh(t).UpdatePort(f.ctx(), ids[2], sdn.PortUpdate{SecurityGroupIDs: &both}); err != nil {
		t.Fatalf("UpdatePort by another process: %v", err)
	}
	want[ids[2]] = sdn.PortState{SecurityGroupIDs: both}
	got, err := f.Backend.States(f.ctx(), ids)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("States: %v (-want +got)\n%s", err, diff)
	}
	if got, err := f.Backend.States(f.ctx(), nil); err != nil || len(got) != 0 {
		t.Errorf("States of none = %v, %v", got, err)
	}
}

// deleteUnchanged deletes a port as it was listed, and not once it was changed.
func deleteUnchanged(t *testing.T, f fixture) {
	ports := f.create(f.request(), 3)
	listed := func() map[string]int {
		t.Helper()
		all, err := f.Backend.ListPorts(f.ctx())
		if err != nil {
			t.Fatalf("ListPorts: %v", err)
		}
		revisions := map[string]int{}
		for _, p := range all {
			revisions[p.ID] = p.Revision
		}
		return revisions
	}
	before, name := listed(), "changed"
	if err := f.Fresh(t).UpdatePort(f.ctx(), ports[1].ID, sdn.PortUpdate{Name: &name}); err != nil {
		t.Fatalf("UpdatePort by another process: %v", err)
	}
	for id, revision := range before {
		err := f.Backend.DeleteUnchangedPort(f.ctx(), id, revision)
		if changed := id == ports[1].ID; errors.Is(err, sdn.ErrConflict) != changed || f.Cloud.HasPort(t, id) != changed {
			t.Errorf("DeleteUnchangedPort, changed: %v: %v", changed, err)
		}
	}
	for _, revision := range []int{listed()[ports[1].ID], 1} {
		if err := f.Backend.DeleteUnchangedPort(f.ctx(), ports[1].ID, revision); err != nil || f.Cloud.HasPort(t, ports[1].ID) {
			t.Errorf("DeleteUnchangedPort with the changed revision, and of none: %v", err)
		}
	}
}

func deleteTwice(t *testing.T, f fixture) {
	p := f.create(f.request(), 1)[0]
	for range 2 {
		if err := f.Backend.DeletePort(f.ctx(), p.ID); err != nil {
			t.Fatalf("DeletePort: %v", err)
		}
	}
	if f.Cloud.HasPort(t, p.ID) {
		t.Error("the port is still there after DeletePort")
	}
	if got := f.mine(); got != 0 {
		t.Errorf("ListPorts shows %d ports of the owner after DeletePort", got)
	}
	if err := f.Backend.DeletePort(f.ctx(), MissingID); err != nil {
		t.Errorf("DeletePort of what never was: %v", err)
	}
}

func goneOrNotShown(t *testing.T, f fixture) {
	p := f.create(f.request(), 1)[0]
	if err := f.Backend.DeletePort(f.ctx(), p.ID); err != nil {
		t.Fatalf("DeletePort: %v", err)
	}
	for _, network := range []string{p.NetworkID, ""} {
		if err := f.Backend.Sees(f.ctx(), p.ProjectID, network); err != nil {
			t.Errorf("Sees(%s, %q) = %v, want nil: the port is gone", p.ProjectID, network, err)
		}
	}
	if err := f.Backend.Sees(f.ctx(), p.ProjectID, MissingID); !errors.Is(err, sdn.ErrForbidden) {
		t.Errorf("Sees of a network that is not shown: %v, want ErrForbidden", err)
	}
}

func concurrentCreates(t *testing.T, f fixture) {
	const workers = 4
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]string{}
	for range workers {
		wg.Go(func() {
			ports, err := f.Backend.CreatePorts(f.ctx(), f.owner, f.request(), 2)
			mu.Lock()
			defer mu.Unlock()
			f.deleteAfter(f.Backend, ports...)
			if err != nil {
				t.Errorf("CreatePorts beside others: %v", err)
			}
			for _, p := range ports {
				ip := p.VIF.Addresses[0].IP
				if other, taken := seen[ip]; taken {
					t.Errorf("ports %s and %s both have %s", other, p.ID, ip)
				}
				seen[ip] = p.ID
			}
		})
	}
	wg.Wait()
	if len(seen) != 2*workers {
		t.Errorf("%d addresses for %d ports", len(seen), 2*workers)
	}
}

func morePortsThanAPage(t *testing.T, f fixture) {
	if f.PageSize == 0 {
		t.Skip("this backend does not page")
	}
	n := 2*f.PageSize + 1
	f.create(f.request(), n)
	if got := f.mine(); got != n {
		t.Errorf("ListPorts shows %d of %d ports", got, n)
	}
}
