// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// onSim is a project on a simulator.
type onSim struct {
	*realCloud
	target sdntest.Target
	sim    *openstacksim.Cloud
}

func newOnSim(t *testing.T) *onSim {
	t.Helper()
	cloud := openstacksim.Start(t)
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
	r := newReal(t)
	return &onSim{r, r.target(t), cloud}
}

// request is for a port in the first subnet.
func (s *onSim) request(parentID, vifType string) sdn.PortRequest {
	return sdn.PortRequest{
		ProjectID: s.project, SubnetIDs: []string{s.target.Subnets[0].ID}, SecurityGroupIDs: s.groupIDs[:1],
		ParentPortID: parentID, VIFType: vifType,
	}
}

func (s *onSim) create(t *testing.T, b sdn.Backend, r sdn.PortRequest, n int) []sdn.Port {
	t.Helper()
	made, err := b.CreatePorts(t.Context(), owner, r, n)
	if err != nil || len(made) != n {
		t.Fatalf("CreatePorts of %d = %d, %v", n, len(made), err)
	}
	return made
}

// asked counts what was asked of Neutron since the last time, by method and resource.
func (s *onSim) asked() map[string]int {
	out := map[string]int{}
	for _, c := range s.sim.Counts() {
		if c.Service == "network" {
			out[c.Method+" "+c.Resource] += c.Calls
		}
	}
	s.sim.Reset()
	return out
}

// A member sees his own quota, and no addresses; that is no error.
func TestRoomOfAMember(t *testing.T) {
	s := newOnSim(t)
	shared := true
	must(t, networks.Update(t.Context(), s.client, s.network, networks.UpdateOpts{Shared: &shared}).Err)
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", Cloud: "tenant"})
	must(t, err)
	subnetIDs := []string{s.target.Subnets[0].ID, sdntest.MissingID}
	room, err := b.Room(t.Context(), "", subnetIDs)
	want := sdn.Room{Ports: &sdn.Usage{Limit: 500}, Subnets: map[string]sdn.Usage{}}
	if diff := cmp.Diff(want, room); diff != "" || err != nil {
		t.Errorf("Room of the own project: %v (-want +got)\n%s", err, diff)
	}
	want.Ports = nil
	room, err = b.Room(t.Context(), s.project, subnetIDs)
	if diff := cmp.Diff(want, room); diff != "" || err != nil {
		t.Errorf("Room of another project: %v (-want +got)\n%s", err, diff)
	}
	must(t, s.sim.Dial("network GET /v2.0/quotas/**: 503"))
	if _, err = b.Room(t.Context(), "", nil); !errors.Is(err, sdn.ErrUnavailable) {
		t.Errorf("Room of a cloud that is away: %v, want ErrUnavailable", err)
	}
}

func TestRoomOfASubnetThatHasAlmostNoEnd(t *testing.T) {
	s := newOnSim(t)
	six := s.target.Subnets[1].ID
	room, err := s.target.Backend.Room(t.Context(), s.project, []string{six})
	if left, bounded := room.Subnets[six].Left(); err != nil || !bounded || left < 1<<62 {
		t.Errorf("Room = %+v, %v; want the largest number there is", room, err)
	}
}

// A batch costs one POST and one PUT; a parent is asked for once before anything
// is made.
func TestCallsOfMacvlanPorts(t *testing.T) {
	s := newOnSim(t)
	parentID, _ := s.MakeMachine(t, s.target.Subnets[0].ID, false)
	b, r := s.target.Backend, s.request(parentID, "macvlan")
	made := s.create(t, b, r, 1)
	s.asked()
	made = append(made, s.create(t, b, r, 10)...)
	want := map[string]int{"POST ports": 1, "GET ports/{id}": 2, "PUT ports/{id}": 1}
	if diff := cmp.Diff(want, s.asked()); diff != "" {
		t.Errorf("requests of 10 more: (-want +got)\n%s", diff)
	}
	must(t, b.DeletePort(t.Context(), made[0].ID))
	want = map[string]int{"GET ports/{id}": 2, "PUT ports/{id}": 1, "DELETE ports/{id}": 1}
	if diff := cmp.Diff(want, s.asked()); diff != "" {
		t.Errorf("requests of a deletion: (-want +got)\n%s", diff)
	}
	if got := len(s.Pairs(t, parentID)); got != 10 {
		t.Errorf("%d address pairs are left, want 10", got)
	}
}

// Two controllers, as when the leader changes, and somebody with a mouse.
func TestPairsBesideOthers(t *testing.T) {
	s := newOnSim(t)
	parentID, _ := s.MakeMachine(t, s.target.Subnets[0].ID, false)
	r := s.request(parentID, "macvlan")
	var wg sync.WaitGroup
	for _, b := range []sdn.Backend{s.target.Backend, s.target.Fresh(t)} {
		wg.Go(func() {
			for range 5 {
				made, err := b.CreatePorts(t.Context(), owner, r, 2)
				if err != nil || b.DeletePort(t.Context(), made[0].ID) != nil {
					t.Errorf("CreatePorts and DeletePort beside others: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(s.Pairs(t, parentID)); got != 10 {
		t.Errorf("%d address pairs, want those of 10 ports", got)
	}

	conflict := "network PUT /v2.0/ports/*: {times: 3, fault: {status: 412, type: RevisionNumberConstraintFailed, message: changed}}"
	must(t, s.sim.Dial(conflict))
	s.create(t, s.target.Backend, r, 1)
	must(t, s.sim.Dial(strings.Replace(conflict, "times: 3", "times: 9", 1)))
	before := s.sim.Objects()["ports"]
	made, err := s.target.Backend.CreatePorts(t.Context(), owner, r, 2)
	if !errors.Is(err, sdn.ErrConflict) || len(made) != 0 || s.sim.Objects()["ports"] != before {
		t.Errorf("CreatePorts where the parent changes all the time = %d, %v; want none and ErrConflict", len(made), err)
	}
}

// A request for pairs that is slow on its way comes after that of another process:
// it is refused, as it insists on what it was made from, and made anew.
func TestPairsWrittenMeanwhileStay(t *testing.T) {
	s := newOnSim(t)
	parentID, _ := s.MakeMachine(t, s.target.Subnets[0].ID, false)
	r := s.request(parentID, "macvlan")
	slow, other := s.target.Backend, s.target.Fresh(t)
	gone := s.create(t, other, r, 1)
	must(t, s.sim.Dial("network PUT /v2.0/ports/*: {times: 1, latency: 1s}"))
	s.asked()
	done := make(chan []sdn.Port, 1)
	go func() {
		made, err := slow.CreatePorts(t.Context(), owner, r, 1)
		if err != nil {
			t.Error(err)
		}
		done <- made
	}()
	for s.sim.Count(http.MethodGet, "ports/{id}") < 2 { // it has seen the parent, and the pairs
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // its request is on its way; if not, the test sees less
	there := s.create(t, other, r, 1)
	must(t, other.DeletePort(t.Context(), gone[0].ID))
	var want []sdntest.Pair
	for _, p := range append(there, <-done...) {
		want = append(want, sdntest.PairOf(p.VIF.Addresses[0].IP, p.VIF.MACAddress))
	}
	byIP := func(a, b sdntest.Pair) int { return strings.Compare(a.IP, b.IP) }
	slices.SortFunc(want, byIP)
	if diff := cmp.Diff(want, slices.SortedFunc(slices.Values(s.Pairs(t, parentID)), byIP)); diff != "" {
		t.Errorf("address pairs (-want those of the ports that there are, +got):\n%s", diff)
	}
}

// Earlier versions wrote plain addresses, and a Neutron may write a prefix of one
// address as that, or in capitals.
func TestPairsInOtherWords(t *testing.T) {
	s := newOnSim(t)
	parentID, _ := s.MakeMachine(t, s.target.Subnets[0].ID, false)
	r := s.request(parentID, "macvlan")
	r.SubnetIDs = append(r.SubnetIDs, s.target.Subnets[1].ID)
	made := s.create(t, s.target.Backend, r, 2)
	var plain []sdntest.Pair
	for _, p := range made {
		for _, a := range p.VIF.Addresses {
			plain = append(plain, sdntest.Pair{IP: strings.ToUpper(a.IP), MAC: strings.ToUpper(p.VIF.MACAddress)})
		}
	}
	near := plain[0]
	near.IP += "/31" // somebody else's, of this MAC address
	must(t, s.setPairs(t, parentID, append(plain, near)))
	fresh := s.target.Fresh(t)
	for _, b := range []sdn.Backend{s.target.Backend, fresh} {
		if p, err := b.Port(t.Context(), made[0].ID); err != nil || p.VIF.ParentPortID != parentID || !p.Active {
			t.Errorf("Port = %+v, %v; want it behind %s", p, err, parentID)
		}
	}
	must(t, s.target.Backend.DeletePort(t.Context(), made[0].ID))
	must(t, fresh.DeletePort(t.Context(), made[1].ID))
	if diff := cmp.Diff([]sdntest.Pair{near}, s.Pairs(t, parentID)); diff != "" {
		t.Errorf("address pairs that are left: (-want +got)\n%s", diff)
	}
}

// Only the machine's port is to be where the SDN delivers a pod's frames.
func TestPortsBehindOthersAreDisabled(t *testing.T) {
	s := newOnSim(t)
	subnetID := s.target.Subnets[0].ID
	plain, _ := s.MakeMachine(t, subnetID, false)
	trunked, _ := s.MakeMachine(t, subnetID, true)
	for _, test := range []struct {
		parentID, vifType string
		up                bool
	}{{plain, "macvlan", false}, {trunked, "vlan", true}, {"", "", true}} {
		made := s.create(t, s.target.Backend, s.request(test.parentID, test.vifType), 1)
		p, err := ports.Get(t.Context(), s.client, made[0].ID).Extract()
		if err != nil || p.AdminStateUp != test.up {
			t.Errorf("type %q: admin_state_up %v, %v; want %v", test.vifType, p.AdminStateUp, err, test.up)
		}
	}
}

func TestFullParentSaysWhatToDo(t *testing.T) {
	s := newOnSim(t)
	parentID, _ := s.MakeMachine(t, s.target.Subnets[0].ID, false)
	s.LimitPairs(t, parentID, 1)
	r := s.request(parentID, "macvlan")
	for range 2 {
		_, err := s.target.Backend.CreatePorts(t.Context(), owner, r, 2)
		if !errors.Is(err, sdn.ErrQuota) || !strings.Contains(err.Error(), "max_allowed_address_pair") {
			t.Errorf("CreatePorts: %v, want ErrQuota that names the option", err)
		}
		s.asked()
	}
	if _, err := s.target.Backend.CreatePorts(t.Context(), owner, r, 2); err == nil {
		t.Error("CreatePorts succeeds")
	}
	if diff := cmp.Diff(map[string]int{"GET ports/{id}": 1}, s.asked()); diff != "" {
		t.Errorf("requests when it is known to be full: (-want +got)\n%s", diff)
	}
}

// A parent without port security lets everything pass, and may have no pairs.
func TestParentWithoutPortSecurity(t *testing.T) {
	s := newOnSim(t)
	p := s.makePort(t, object{"network_id": s.network, "port_security_enabled": false})
	made := s.create(t, s.target.Backend, s.request(p.ID, "macvlan"), 2)
	got, err := s.target.Fresh(t).Port(t.Context(), made[0].ID)
	if err != nil || got.VIF.ParentPortID != p.ID || len(s.Pairs(t, p.ID)) != 0 {
		t.Errorf("Port = %+v, %v; want it behind %s", got, err, p.ID)
	}
	must(t, s.target.Backend.DeletePort(t.Context(), made[0].ID))
}

// Subports of a machine that runs are ACTIVE at once, and are seen so.
func TestSubportsOfARunningMachine(t *testing.T) {
	s := newOnSim(t)
	p := s.makePort(t, object{"network_id": s.network, "binding:host_id": s.target.Host})
	must(t, s.sim.Plug(p.ID, true))
	trunk := s.makeTrunkOf(t, p.ID)
	s.asked()
	for _, got := range s.create(t, s.target.Backend, s.request(p.ID, ""), 100) {
		if !got.Active || got.VIF.Type != "vlan" || got.VIF.VLANID == 0 {
			t.Fatalf("subport %+v, want it active", got)
		}
	}
	asked := s.asked()
	for _, what := range []string{"POST ports", "PUT trunks/{id}/add_subports", "GET ports"} {
		if asked[what] != 2 {
			t.Errorf("%d requests %s, want one for each 50 ports; all: %v", asked[what], what, asked)
		}
	}
	if status := s.trunkStatus(t, trunk); status != "ACTIVE" {
		t.Errorf("the trunk is %s, want ACTIVE", status)
	}
}

// Neutron refuses what changed since it was looked at; what a person wrote stays.
func TestClaim(t *testing.T) {
	s := newOnSim(t)
	id := s.MakeStray(t, sdn.PortRequest{SubnetIDs: []string{s.target.Subnets[0].ID}, Host: s.target.Host})
	must(t, s.sim.Dial("network PUT /v2.0/ports/*: {times: 1, fault: {status: 412, type: RevisionNumberConstraintFailed, message: changed}}"))
	if err := s.target.Backend.Claim(t.Context(), id, owner); !errors.Is(err, sdn.ErrConflict) {
		t.Errorf("Claim of one that changes: %v, want ErrConflict", err)
	}
	must(t, s.target.Backend.Claim(t.Context(), id, owner))
	p, err := ports.Get(t.Context(), s.client, id).Extract()
	must(t, err)
	if !strings.HasPrefix(p.Description, "made long ago kuryr.cluster=") || p.Name != sdn.FreePortName {
		t.Errorf("name %q, description %q; want both texts", p.Name, p.Description)
	}
	long := s.MakeStray(t, sdn.PortRequest{SubnetIDs: []string{s.target.Subnets[0].ID}, Host: s.target.Host})
	text := strings.Repeat("x", 250)
	must(t, ports.Update(t.Context(), s.client, long, ports.UpdateOpts{Description: &text}).Err)
	must(t, s.target.Backend.Claim(t.Context(), long, owner))
	if p, err = ports.Get(t.Context(), s.client, long).Extract(); err != nil || !strings.HasPrefix(p.Description, "kuryr.cluster=") {
		t.Errorf("description %q, %v; want the mark in the place of a text beside which it has no room", p.Description, err)
	}
}

func TestClaimTagsWhereNewPortsAreTagged(t *testing.T) {
	f := newFake(t)
	f.aliases = append(f.aliases, "tag-ports-during-bulk-creation")
	const id = "b1000000-0000-4000-8000-000000000001"
	f.ports[id] = object{
		"id": id, "name": "kuryr-pool-port", "device_owner": "compute:kuryr", "device_id": "", "description": "", "revision_number": 3,
		"tags": []string{"old"},
	}
	var put []any
	f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/tags") {
			return false
		}
		put = f.bodies[len(f.bodies)-1]["tags"].([]any)
		answer(w, 200, object{"tags": put})
		return true
	}
	must(t, f.backend("one").Claim(t.Context(), id, owner))
	if want := []any{"old", "kuryr.cluster=one", "kuryr.owner=kuryrportpool/n1-0123456789"}; !slices.Equal(put, want) {
		t.Errorf("tags %v, want %v", put, want)
	}
}

// Neutron has a port's addresses in the order of their text, which has nothing to do
// with that of the subnets: the pod's default route would be another one at random.
func TestAddressesInTheOrderOfTheSubnets(t *testing.T) {
	s := newOnSim(t)
	first := s.subnet(t, netip.MustParsePrefix("10.60.8.0/22"), "10.60.8.1")
	second := s.subnet(t, netip.MustParsePrefix("10.60.12.0/22"), "10.60.12.1")
	r := s.request("", "")
	r.SubnetIDs = []string{first, second}
	for _, p := range s.create(t, s.target.Backend, r, 20) {
		if got := p.VIF.Addresses[0]; got.SubnetID != first || got.Gateway != "10.60.8.1" {
			t.Fatalf("first address %+v of %+v, want one of subnet %s", got, p.VIF.Addresses, first)
		}
	}
}
