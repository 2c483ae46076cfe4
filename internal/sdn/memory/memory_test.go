// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

var (
	subnet4 = memory.Subnet{
		ID: "subnet-4", NetworkID: "network", MTU: 1442,
		Prefix: netip.MustParsePrefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.1"),
	}
	subnet6 = memory.Subnet{
		ID: "subnet-6", NetworkID: "network", MTU: 1442,
		Prefix: netip.MustParsePrefix("fd00:1::/64"), Gateway: netip.MustParseAddr("fd00:1::1"),
	}
	request = sdn.PortRequest{SubnetIDs: []string{"subnet-4"}, Host: "n1"}
	owner   = sdn.Owner{Kind: "kuryrportpool", Name: "p"}
)

// cloud adapts a memory.Cloud to the contract.
type cloud struct {
	*memory.Cloud
	machines *atomic.Int32
}

func (c cloud) MakeForeignPort(*testing.T) string    { return c.AddForeignPort() }
func (c cloud) HasPort(_ *testing.T, id string) bool { return c.Cloud.HasPort(id) }
func (c cloud) LimitPorts(_ *testing.T, n int)       { c.SetQuota(c.Ports() + n) }
func (c cloud) Subports(_ *testing.T, parent string) map[string]int32 {
	return c.Cloud.Subports(parent)
}

func (c cloud) MakeMachine(_ *testing.T, subnetID string, trunk bool) (portID, address string) {
	n := c.machines.Add(1)
	m := memory.Machine{PortID: fmt.Sprintf("machine-%d", n), SubnetID: subnetID, Address: fmt.Sprintf("10.1.0.%d", 200+n), Trunk: trunk, Server: sdntest.ServerID}
	c.AddMachine(m)
	return m.PortID, m.Address
}

func (c cloud) RemoveMachine(_ *testing.T, portID string) { c.Cloud.RemoveMachine(portID) }

func (c cloud) MakeTwin(_ *testing.T, address string) (portID, subnetID string) {
	s := subnet4
	s.ID, s.NetworkID = "twin-subnet", "twin-network"
	c.AddSubnet(s)
	c.AddMachine(memory.Machine{PortID: "twin", SubnetID: s.ID, Address: address, Server: sdntest.ServerID})
	return "twin", s.ID
}

func (c cloud) MakeSubnet(t *testing.T, prefix netip.Prefix) string {
	s := subnet4
	s.ID, s.Prefix, s.Gateway = "small", prefix, netip.Addr{}
	c.AddSubnet(s)
	t.Cleanup(func() { c.RemoveSubnet(s.ID) })
	return s.ID
}

func (c cloud) MakeAutomaticSubnet(t *testing.T, prefix netip.Prefix) string {
	s := subnet6
	s.ID, s.Prefix, s.Gateway, s.Automatic = "automatic", prefix, netip.Addr{}, true
	c.AddSubnet(s)
	t.Cleanup(func() { c.RemoveSubnet(s.ID) })
	return s.ID
}

func (c cloud) Pairs(_ *testing.T, portID string) (all []sdntest.Pair) {
	for _, p := range c.Cloud.Pairs(portID) {
		all = append(all, sdntest.Pair(p))
	}
	return all
}

func (c cloud) AddPair(_ *testing.T, portID string, p sdntest.Pair) {
	c.Cloud.AddPair(portID, memory.Pair(p))
}

func (c cloud) LimitPairs(_ *testing.T, portID string, n int) {
	c.SetMaxPairs(len(c.Cloud.Pairs(portID)) + n)
}

func (c cloud) MakeStray(_ *testing.T, r sdn.PortRequest) string { return c.AddStray(r).ID }
func (c cloud) TakeStray(_ *testing.T, id string)                { c.Cloud.TakeStray(id, "pod") }

func TestContract(t *testing.T) {
	sdntest.Run(t, func(*testing.T) sdntest.Target {
		c := memory.New(subnet4, subnet6)
		c.AddHosts("n1")
		c.AddGroups("group-b", "group-a")
		c.AddTrunk("parent")
		return sdntest.Target{
			Backend: c.Backend("one"), Other: c.Backend("two"), Cloud: cloud{c, new(atomic.Int32)},
			Fresh:     func(*testing.T) sdn.Backend { return c.Backend("one") },
			NetworkID: "network",
			Subnets: []sdntest.Subnet{
				{ID: subnet4.ID, Prefix: subnet4.Prefix, Gateway: subnet4.Gateway},
				{ID: subnet6.ID, Prefix: subnet6.Prefix, Gateway: subnet6.Gateway},
			},
			SecurityGroupIDs: []string{"group-b", "group-a"},
			Host:             "n1", UnusableHost: "nowhere", MTU: 1442, VIFType: "ovs", TrunkPortID: "parent", Many: 100,
		}
	})
}

func TestBeforeKeepsACallFromHappening(t *testing.T) {
	boom := errors.New("boom")
	c := memory.New(subnet4)
	c.Before = func(_ context.Context, call string, n int) error {
		if call == memory.CreatePorts && n == 2 {
			return boom
		}
		return nil
	}
	b := c.Backend("one")
	for i, want := range []error{nil, boom, nil} {
		ports, err := b.CreatePorts(t.Context(), owner, request, 1)
		if !errors.Is(err, want) || (len(ports) == 1) != (want == nil) {
			t.Errorf("CreatePorts call %d = %d ports, %v; want error %v", i+1, len(ports), err, want)
		}
	}
	if got := c.Calls(memory.CreatePorts); got != 3 || c.Ports() != 2 {
		t.Errorf("%d calls, %d ports; want 3 and 2", got, c.Ports())
	}
}

func TestAfterLosesTheAnswer(t *testing.T) {
	c := memory.New(subnet4)
	c.After = func(_ context.Context, call string, _ int) error {
		if call == memory.CreatePorts {
			return sdn.ErrUnavailable
		}
		return nil
	}
	b := c.Backend("one")
	ports, err := b.CreatePorts(t.Context(), owner, request, 2)
	if !errors.Is(err, sdn.ErrUnavailable) || len(ports) != 0 {
		t.Fatalf("CreatePorts = %d ports, %v; want none, ErrUnavailable", len(ports), err)
	}
	listed, err := b.ListPorts(t.Context())
	if err != nil || len(listed) != 2 || listed[0].Owner != owner {
		t.Errorf("ListPorts = %+v, %v; want the two ports nobody was told of, with their owner", listed, err)
	}
}

// A call whose context ends in Before has no effect, and gets to After like others: who counts calls under way relies on it.
func TestAfterFollowsBefore(t *testing.T) {
	c := memory.New(subnet4)
	ctx, cancel := context.WithCancel(t.Context())
	c.Before = func(context.Context, string, int) error { cancel(); return nil }
	after := 0
	c.After = func(context.Context, string, int) error { after++; return nil }
	_, err := c.Backend("one").CreatePorts(ctx, owner, request, 1)
	if !errors.Is(err, context.Canceled) || after != 1 || c.Ports() != 0 {
		t.Errorf("CreatePorts: %v, %d calls of After, %d ports; want Canceled, 1 and 0", err, after, c.Ports())
	}
}

func TestAddressesRunOutAndComeBack(t *testing.T) {
	s := subnet4
	s.Prefix = netip.MustParsePrefix("10.1.0.0/29") // .1 is the gateway, .2 to .6 are free
	b := memory.New(s).Backend("one")
	ports, err := b.CreatePorts(t.Context(), owner, request, 6)
	if !errors.Is(err, sdn.ErrQuota) || len(ports) != 5 {
		t.Fatalf("CreatePorts of 6 = %d ports, %v; want 5, ErrQuota", len(ports), err)
	}
	if err := b.DeletePort(t.Context(), ports[2].ID); err != nil {
		t.Fatal(err)
	}
	again, err := b.CreatePorts(t.Context(), owner, request, 1)
	if err != nil || again[0].VIF.Addresses[0].IP != ports[2].VIF.Addresses[0].IP {
		t.Errorf("CreatePorts after DeletePort = %+v, %v; want the address that came back", again, err)
	}
}

func TestActive(t *testing.T) {
	c := memory.New(subnet4)
	b := c.Backend("one")
	ports, err := b.CreatePorts(t.Context(), owner, request, 1)
	if err != nil || ports[0].Active {
		t.Fatalf("CreatePorts = %+v, %v; want a port that is not active", ports, err)
	}
	c.SetActive(ports[0].ID, true)
	if p, err := b.Port(t.Context(), ports[0].ID); err != nil || !p.Active {
		t.Errorf("Port after SetActive = %+v, %v", p, err)
	}
}
