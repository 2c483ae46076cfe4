// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package sdntest is the contract of the seam: the behaviour of every backend, as tests. A
// backend proves itself by calling Run. If a real cloud behaves differently, the contract, the
// backends and their simulators change together.
package sdntest

import (
	"context"
	"crypto/rand"
	"net/netip"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Target is a backend under test with the prepared resources in the cloud.
type Target struct {
	Backend sdn.Backend
	// Other is a backend of another cluster on the same cloud.
	Other sdn.Backend
	// Fresh returns a backend of the same cluster as in a newly started process.
	Fresh func(t *testing.T) sdn.Backend
	Cloud Cloud

	ProjectID        string // owns all of these resources; empty: the credential's own
	NetworkID        string
	Subnets          []Subnet // at least two, of that network
	SecurityGroupIDs []string // at least two
	Host             string   // ports can be bound to it
	UnusableHost     string   // ports cannot be bound to it
	MTU              int32
	VIFType          string // of a port bound to Host
	TrunkPortID      string // empty: the cloud has no trunks, and the tests say so
	// PageSize is how many ports the backend requests in one page; 0 if it does not page.
	PageSize int
	// Many is how many ports a case with many ports makes. A real cloud needs half a second for
	// each.
	Many int
}

// ServerID is the virtual machine whose parent ports the tests make.
const ServerID = "5b1f0c9e-55d4-4b41-8ac6-2d6f4c2f8f10"

// Subnet is a subnet with enough free addresses.
type Subnet struct {
	ID      string
	Prefix  netip.Prefix
	Gateway netip.Addr // zero: no gateway
}

// Cloud lets a test act behind the backend's back. Everything that it makes is removed at the end
// of the test.
type Cloud interface {
	// MakeForeignPort makes a port that looks like one of Kuryr's, but has no mark.
	MakeForeignPort(t *testing.T) (id string)
	HasPort(t *testing.T, id string) bool
	// MakeSubnet makes a subnet of the target's network, without a gateway.
	MakeSubnet(t *testing.T, prefix netip.Prefix) (id string)
	// MakeAutomaticSubnet makes a subnet of the target's network. Each new port gets an address
	// of it, even if the request does not ask for one.
	MakeAutomaticSubnet(t *testing.T, prefix netip.Prefix) (id string)
	// LimitPorts leaves room for n more ports until the end of the test.
	LimitPorts(t *testing.T, n int)
	// Subports returns the VLAN of each subport of a trunk.
	Subports(t *testing.T, parentPortID string) map[string]int32
	// MakeMachine makes the port of the virtual machine ServerID in a subnet, in the target's
	// project.
	MakeMachine(t *testing.T, subnetID string, trunk bool) (portID, address string)
	RemoveMachine(t *testing.T, portID string)
	// MakeTwin makes a network with a subnet like the target's first one, and there a virtual
	// machine's port with that address.
	MakeTwin(t *testing.T, address string) (portID, subnetID string)
	// Pairs returns the address pairs of a machine's port.
	Pairs(t *testing.T, portID string) []Pair
	// AddPair adds such a pair as a person does by hand.
	AddPair(t *testing.T, portID string, p Pair)
	// LimitPairs leaves room for n more address pairs until the end of the test.
	LimitPairs(t *testing.T, portID string, n int)
	// MakeStray makes a free port as an earlier Kuryr left it: on a host, as a subport, or with
	// neither.
	MakeStray(t *testing.T, r sdn.PortRequest) (id string)
	// TakeStray assigns the port to a pod as the earlier Kuryr does.
	TakeStray(t *testing.T, id string)
}

// Pair is an address that a port may use in addition to its own.
type Pair struct{ IP, MAC string }

// PairOf returns the pair that lets a port with this address pass. It is a prefix of one address:
// Neutron's driver for OVN takes a plain address for one that moves between machines.
func PairOf(address, mac string) Pair {
	ip := netip.MustParseAddr(address)
	return Pair{IP: netip.PrefixFrom(ip, ip.BitLen()).String(), MAC: mac}
}

// callTimeout bounds each call. A backend must be quicker on its own.
const callTimeout = 2 * time.Minute

// Run checks a backend against the contract. newTarget is called once for each case, and may
// return the same cloud each time. A case looks only at resources that it made, and removes them.
func Run(t *testing.T, newTarget func(t *testing.T) Target) {
	cases := []struct {
		name string
		run  func(*testing.T, fixture)
	}{
		{"a port is complete", portIsComplete},
		{"owner and cluster are known from the creating call on", ownerIsKnown},
		{"ports in bulk", portsInBulk},
		{"no ports asked for", noPorts},
		{"an address of each subnet", addressOfEachSubnet},
		{"an address that nobody asked for", addressUnasked},
		{"another subnet where one is full", anotherSubnetWhereOneIsFull},
		{"security groups none and several", securityGroups},
		{"VIF type overridden", vifTypeOverridden},
		{"update leaves the rest", updateLeavesTheRest},
		{"update of what is not there", updateOfMissing},
		{"states of some ports", statesOfSome},
		{"delete twice", deleteTwice},
		{"delete unchanged", deleteUnchanged},
		{"what is gone is not what is not shown", goneOrNotShown},
		{"a foreign port is out of reach", foreignPort},
		{"another cluster's port is out of reach", otherClustersPort},
		{"a missing subnet is named", missingSubnet},
		{"a missing network is named", missingNetwork},
		{"a missing security group is named", missingGroup},
		{"quota gives a part", quotaGivesPart},
		{"an unusable host leaves nothing", unusableHost},
		{"cancelled", cancelled},
		{"concurrent creates do not share addresses", concurrentCreates},
		{"more ports than a page", morePortsThanAPage},
		{"subports of a trunk", subports},
		{"a trunk that is none", trunkThatIsNone},
		{"many subports beside somebody else's", manySubports},
		{"room is what is left", roomIsWhatIsLeft},
		{"what a new port has of its subnet", detailsOfNewPorts},
		{"a node's port by its address", parentPort},
		{"a node's address that two have", parentPortOfTwo},
		{"macvlan ports pass their parent", macvlanPorts},
		{"macvlan ports come and go at once", macvlanAtOnce},
		{"a parent that can take no more", parentIsFull},
		{"a parent that is none", parentThatIsNone},
		{"strays are claimed", straysAreClaimed},
		{"strays are deleted", straysAreDeleted},
		{"a stray that a pod has", strayInUse},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.run(t, fixture{Target: newTarget(t), t: t, owner: sdn.Owner{Kind: "kuryrportpool", Name: "t-" + unique()}})
		})
	}
}

// fixture is a target, the owner of one case, and steps that several cases use.
type fixture struct {
	Target
	t     *testing.T
	owner sdn.Owner
}

// unique separates cases that run at the same time on the same cloud.
func unique() string { return rand.Text()[:10] }

// MissingID is a well-formed ID that no resource has.
const MissingID = "deadbeef-dead-4ead-8ead-deadbeefdead"

func (f fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(f.t.Context(), callTimeout)
	f.t.Cleanup(cancel)
	return ctx
}

// request returns a request for a plain port: one subnet, one security group.
func (f fixture) request() sdn.PortRequest {
	return sdn.PortRequest{
		ProjectID:        f.ProjectID,
		SubnetIDs:        []string{f.Subnets[0].ID},
		SecurityGroupIDs: []string{f.SecurityGroupIDs[0]},
		Host:             f.Host,
	}
}

// tryCreate makes ports, and deletes them at the end of the test. It also returns the error.
func (f fixture) tryCreate(r sdn.PortRequest, n int) ([]sdn.Port, error) {
	f.t.Helper()
	ports, err := f.Backend.CreatePorts(f.ctx(), f.owner, r, n)
	f.deleteAfter(f.Backend, ports...)
	return ports, err
}

func (f fixture) deleteAfter(b sdn.Backend, ports ...sdn.Port) {
	f.t.Cleanup(func() {
		for _, p := range ports {
			// The test's own context has ended by now.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), callTimeout)
			if err := b.DeletePort(ctx, p.ID); err != nil {
				f.t.Errorf("DeletePort(%s) after the test: %v", p.ID, err)
			}
			cancel()
		}
	})
}

func (f fixture) create(r sdn.PortRequest, n int) []sdn.Port {
	f.t.Helper()
	ports, err := f.tryCreate(r, n)
	if err != nil {
		f.t.Fatalf("CreatePorts(%+v, %d): %v", r, n, err)
	}
	if len(ports) != n {
		f.t.Fatalf("CreatePorts(%+v, %d) returned %d ports", r, n, len(ports))
	}
	return ports
}

// port reads a port that must exist.
func (f fixture) port(id string) sdn.Port {
	f.t.Helper()
	p, err := f.Backend.Port(f.ctx(), id)
	if err != nil {
		f.t.Fatalf("Port(%s): %v", id, err)
	}
	return p
}

// listed returns by ID the ports that b lists. It fails if a port is listed twice.
func (f fixture) listed(b sdn.Backend) map[string]sdn.PortSummary {
	f.t.Helper()
	all, err := b.ListPorts(f.ctx())
	if err != nil {
		f.t.Fatalf("ListPorts: %v", err)
	}
	out := map[string]sdn.PortSummary{}
	for _, p := range all {
		if _, twice := out[p.ID]; twice {
			f.t.Errorf("ListPorts shows %s twice", p.ID)
		}
		if p.Owner == f.owner && p.ProjectID != f.ProjectID {
			f.t.Errorf("ListPorts shows port %s in project %q, want %q", p.ID, p.ProjectID, f.ProjectID)
		}
		out[p.ID] = p
	}
	return out
}

// mine counts the listed ports of this case's owner.
func (f fixture) mine() int {
	f.t.Helper()
	n := 0
	for _, p := range f.listed(f.Backend) {
		if p.Owner == f.owner {
			n++
		}
	}
	return n
}
