// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

func TestVIFOfOtherBackends(t *testing.T) {
	tests := []struct {
		vifType string
		details object
		want    v1.VIF
	}{
		{"ovs", object{"bridge_name": "br-int", "port_filter": true}, v1.VIF{Type: "ovs", Bridge: "br-int"}},
		{"ovs", object{"bridge_name": "br-int", "ovs_hybrid_plug": false}, v1.VIF{
			Type: "ovs", Bridge: "br-int", Details: map[string]string{"wiredBy": "neutron-openvswitch-agent"},
		}},
		{"ovs", object{"bound_drivers": object{"0": "openvswitch"}, "ovs_hybrid_plug": true}, v1.VIF{
			Type: "ovs", Details: map[string]string{"wiredBy": "neutron-openvswitch-agent", "linuxBridge": "true"},
		}},
		{"ovs", object{"bound_drivers": object{"0": "ovn"}}, v1.VIF{Type: "ovs"}},
		{"bridge", object{"bridge_name": "brq0123456-78"}, v1.VIF{Type: "bridge", Bridge: "brq0123456-78"}},
		{"bridge", object{"bridge_name": "a-name-that-is-too-long"}, v1.VIF{Type: "bridge"}},
		{"hw_veb", object{"vlan": 7, "profile": "x", "more": object{"a": 1}}, v1.VIF{
			Type: "hw-veb", Details: map[string]string{"vlan": "7", "profile": "x", "more": `{"a":1}`},
		}},
		{"midonet", nil, v1.VIF{Type: "midonet"}},
	}
	for _, test := range tests {
		f := newFake(t)
		b := f.backend("one")
		id := mustCreate(t, b, request, 1)[0].ID
		f.ports[id]["binding:vif_type"], f.ports[id]["binding:vif_details"] = test.vifType, test.details
		p, err := b.Port(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		test.want.MTU, test.want.MACAddress, test.want.Addresses = p.VIF.MTU, p.VIF.MACAddress, p.VIF.Addresses
		if diff := cmp.Diff(test.want, p.VIF); diff != "" {
			t.Errorf("%s %v: (-want +got)\n%s", test.vifType, test.details, diff)
		}
	}
}

func TestRoutesOfTheSubnet(t *testing.T) {
	f := newFake(t)
	f.subnets[subnet4]["host_routes"] = []object{{"destination": "10.96.0.0/16", "nexthop": "10.1.0.9"}}
	got := mustCreate(t, f.backend("one"), request, 1)[0].VIF.Routes
	want := []v1.Route{{Destination: "10.96.0.0/16", Gateway: "10.1.0.9"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes: (-want +got)\n%s", diff)
	}
}

func TestFirstCallsAtOnceShareWhatTheyNeed(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := b.CreatePorts(t.Context(), owner, request, 1); err != nil {
				t.Errorf("CreatePorts: %v", err)
			}
		})
	}
	wg.Wait()
	want := map[string]int{
		"POST v3/auth/tokens": 1, "GET v2.0/extensions": 1, "GET v2.0/subnets/ID": 1, "GET v2.0/networks/ID": 1, "POST v2.0/ports": 20,
	}
	if diff := cmp.Diff(want, f.counts()); diff != "" {
		t.Errorf("requests: (-want +got)\n%s", diff)
	}
}

func TestDetailsAreReadAgainWhenOldOrWrong(t *testing.T) {
	f := newFake(t)
	b := f.backend("one", func(c *openstack.Config) { c.CacheAge = time.Nanosecond })
	mustCreate(t, b, request, 2)
	mustCreate(t, b, request, 2)
	if got := f.counts()["GET v2.0/subnets/ID"]; got != 2 {
		t.Errorf("%d reads of a subnet that is always too old, want 2", got)
	}

	f = newFake(t)
	b = f.backend("one")
	mustCreate(t, b, request, 1)
	f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method != http.MethodPost {
			return false
		}
		refuse(w, 404, "SubnetNotFound", "Subnet %s could not be found.", subnet4)
		return true
	}
	delete(f.subnets, subnet4)
	for range 2 {
		_, err := b.CreatePorts(t.Context(), owner, request, 1)
		if !errors.Is(err, sdn.ErrInvalid) || !strings.Contains(err.Error(), subnet4) {
			t.Errorf("CreatePorts in a subnet that is gone: %v", err)
		}
	}
	if got := f.counts(); got["GET v2.0/subnets/ID"] != 2 || got["POST v2.0/ports"] != 2 {
		t.Errorf("requests %v; want the subnet read again after Neutron did not find it", got)
	}
}

// Some releases write the answer of a bulk request before they bind.
func TestBindingSeenLater(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	late := request
	late.Host = "late"
	f.before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method == http.MethodGet && r.URL.Path == "/v2.0/ports" {
			for _, p := range f.ports {
				p["binding:vif_type"] = "ovs"
			}
		}
		if r.Method == http.MethodPost && r.URL.Path == "/v2.0/ports" {
			for _, p := range f.bodies[len(f.bodies)-1]["ports"].([]any) {
				delete(p.(object), "binding:host_id")
			}
		}
		return false
	}
	for _, p := range mustCreate(t, b, late, 3) {
		if p.VIF.Type != "ovs" {
			t.Errorf("VIF type %q, want ovs", p.VIF.Type)
		}
	}
	if got := f.counts()["GET v2.0/ports"]; got != 1 {
		t.Errorf("%d requests to see the binding of 3 ports, want 1", got)
	}
}

func TestPortsThatCannotBeBoundAreDeletedAndTheOthersKept(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	f.before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method == http.MethodPost && r.URL.Path == "/v2.0/ports" {
			f.bodies[len(f.bodies)-1]["ports"].([]any)[1].(object)["binding:host_id"] = "elsewhere"
		}
		return false
	}
	ports, err := b.CreatePorts(t.Context(), owner, request, 3)
	if !errors.Is(err, sdn.ErrUnbound) || len(ports) != 2 || len(f.ports) != 3 {
		t.Errorf("CreatePorts = %d ports, %v; %d in the cloud; want 2, ErrUnbound, and the parent beside them", len(ports), err, len(f.ports))
	}
}

// Kuryr has no bridge with iptables, without which such ports have no security groups.
func TestPortsThatWantABridgeOfTheirOwnAreRefused(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	r := request
	r.Host = "hybrid"
	ports, err := b.CreatePorts(t.Context(), owner, r, 2)
	if !errors.Is(err, sdn.ErrUnsupported) || !strings.Contains(err.Error(), "ovs_hybrid_plug") || !strings.Contains(err.Error(), "firewall_driver = openvswitch") || len(ports) != 0 || len(f.ports) != 1 {
		t.Errorf("CreatePorts = %d ports, %v; %d in the cloud; want none, ErrUnsupported that names ovs_hybrid_plug, and the parent", len(ports), err, len(f.ports))
	}
	r.VIFType = "acme" // a binding driver's business
	if ports, err := b.CreatePorts(t.Context(), owner, r, 1); err != nil || len(ports) != 1 {
		t.Errorf("CreatePorts for a binding driver = %d ports, %v", len(ports), err)
	}
}

func TestListBeginsAnewWhenItsMarkerGoes(t *testing.T) {
	f := newFake(t)
	b := f.backend("one", func(c *openstack.Config) { c.PageSize = 2 })
	mustCreate(t, b, request, 5)
	f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		marker := r.URL.Query().Get("marker")
		if marker == "" || len(f.ports) < 6 {
			return false
		}
		delete(f.ports, marker)
		refuse(w, 404, "PortNotFound", "Port %s could not be found.", marker)
		return true
	}
	ports, err := b.ListPorts(t.Context())
	if err != nil || len(ports) != 4 {
		t.Errorf("ListPorts = %d, %v; want the 4 that are left", len(ports), err)
	}
}

func subportRequest() sdn.PortRequest {
	r := request
	r.Host, r.ParentPortID = "", parent
	return r
}

func TestVLANTakenBySomebodyElse(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	taken := 0
	f.before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		if strings.HasSuffix(r.URL.Path, "add_subports") && taken < 2 {
			taken++
			f.trunks[plainTrunk].Subports = append(f.trunks[plainTrunk].Subports, object{"port_id": "x", "segmentation_id": float64(taken)})
		}
		return false
	}
	if got := mustCreate(t, b, subportRequest(), 1)[0].VIF.VLANID; got != 3 {
		t.Errorf("VLAN %d, want 3: 1 and 2 were taken meanwhile", got)
	}
}

func TestSubportsThatCannotBeAttachedAreDeleted(t *testing.T) {
	for _, status := range []int{409, 500} {
		f := newFake(t)
		b := f.backend("one")
		f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if !strings.HasSuffix(r.URL.Path, "add_subports") {
				return false
			}
			refuse(w, status, "Trouble", "no")
			return true
		}
		ports, err := b.CreatePorts(t.Context(), owner, subportRequest(), 2)
		if err == nil || len(ports) != 0 || len(f.ports) != 1 {
			t.Errorf("answer %d: CreatePorts = %d ports, %v; %d in the cloud, want the parent only", status, len(ports), err, len(f.ports))
		}
		if got, want := f.counts()["PUT v2.0/trunks/ID/add_subports"], map[int]int{409: 3, 500: 1}[status]; got != want {
			t.Errorf("answer %d: %d requests to add subports, want %d", status, got, want)
		}
	}
}

// A repetition of add_subports would be refused, as its subports are there.
func TestLostAnswerOfAddSubports(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	asked := 0
	f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if !strings.HasSuffix(r.URL.Path, "add_subports") {
			return false
		}
		asked++
		f.addSubports(httptest.NewRecorder(), f.trunks[plainTrunk], f.bodies[len(f.bodies)-1])
		return hangUp(w)
	}
	ports, err := b.CreatePorts(t.Context(), owner, subportRequest(), 2)
	if !errors.Is(err, sdn.ErrUnavailable) || len(ports) != 0 {
		t.Errorf("CreatePorts = %d ports, %v; want ErrUnavailable", len(ports), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if asked != 1 || len(f.ports) != 1 || len(f.trunks[plainTrunk].Subports) != 0 {
		t.Errorf("asked %d times; %d ports and subports %v are left; want the parent only", asked, len(f.ports), f.trunks[plainTrunk].Subports)
	}
}

func TestPortWhoseMarkIsTakenAwayIsLetGo(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	id := mustCreate(t, b, request, 1)[0].ID
	f.ports[id]["description"] = "mine now"
	if _, err := b.ListPorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.DeletePort(t.Context(), id); err != nil || !f.holds(id) {
		t.Errorf("DeletePort: %v; the port is there: %t, want it left alone", err, f.holds(id))
	}
}

func TestSubportAfterARestart(t *testing.T) {
	f := newFake(t)
	p := mustCreate(t, f.backend("one"), subportRequest(), 2)[0]
	b := f.backend("one")
	if _, err := b.ListPorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.DeletePort(t.Context(), p.ID); err != nil {
		t.Fatalf("DeletePort: %v", err)
	}
	if left := f.subports(); len(left) != 1 || f.holds(p.ID) {
		t.Errorf("subports after DeletePort: %v, want one", left)
	}
}

// Neutron empties the device_owner of a subport that leaves its trunk. If the
// process ends just then the port must still be found.
func TestSubportOffItsTrunkIsNotLost(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	p := mustCreate(t, b, subportRequest(), 1)[0]
	name := "default/web-0"
	if err := b.UpdatePort(t.Context(), p.ID, sdn.PortUpdate{Name: &name}); err != nil {
		t.Fatal(err)
	}
	f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method == http.MethodDelete {
			refuse(w, 500, "HTTPInternalServerError", "no")
		}
		return r.Method == http.MethodDelete
	}
	if err := b.DeletePort(t.Context(), p.ID); !errors.Is(err, sdn.ErrUnavailable) {
		t.Fatalf("DeletePort: %v, want ErrUnavailable", err)
	}
	f.before = nil
	for _, b := range []*openstack.Backend{b, f.backend("one")} {
		listed, err := b.ListPorts(t.Context())
		if err != nil || len(listed) != 1 || listed[0].ID != p.ID || listed[0].Owner != owner {
			t.Errorf("ListPorts = %+v, %v; want the port that is off its trunk, with its owner", listed, err)
		}
	}
	if err := f.backend("one").DeletePort(t.Context(), p.ID); err != nil || f.holds(p.ID) {
		t.Errorf("DeletePort after a restart: %v", err)
	}
}

func TestCredentialFromTheEnvironment(t *testing.T) {
	f := newFake(t)
	for k, v := range map[string]string{
		"OS_CLOUD": "", "OS_AUTH_URL": f.URL + "/v3", "OS_USERNAME": "kuryr", "OS_PASSWORD": "s3cret", "OS_PROJECT_NAME": "k8s",
		"OS_USER_DOMAIN_NAME": "Users", "OS_PROJECT_DOMAIN_NAME": "Projects", "OS_REGION_NAME": "R",
	} {
		t.Setenv(k, v)
	}
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, b, request, 1)
	want := object{
		"identity": object{"methods": []any{"password"}, "password": object{"user": object{
			"name": "kuryr", "password": "s3cret", "domain": object{"name": "Users"},
		}}},
		"scope": object{"project": object{"name": "k8s", "domain": object{"name": "Projects"}}},
	}
	i := 0
	for f.requests[i] != "POST v3/auth/tokens" {
		i++
	}
	if diff := cmp.Diff(any(want), f.bodies[i]["auth"]); diff != "" {
		t.Errorf("login: (-want +got)\n%s", diff)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Setenv("OS_CLOUD", "")
	t.Setenv("OS_AUTH_URL", "")
	for _, c := range []openstack.Config{
		{ClusterID: "", Cloud: "x"},
		{ClusterID: "two words", Cloud: "x"},
		{ClusterID: "one"},
		{ClusterID: "one", Cloud: "x", CloudsFile: "/nowhere/clouds.yaml"},
	} {
		if _, err := openstack.New(t.Context(), c); err == nil {
			t.Errorf("New(%+v) succeeds", c)
		}
	}
}

// A trunk that is disabled takes no subports and gives none up: what was made for
// it is deleted all the same, and nobody asks again at once.
func TestDisabledTrunkLeavesNoPorts(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if !strings.HasSuffix(r.URL.Path, "_subports") {
			return false
		}
		refuse(w, 409, "TrunkDisabled", "Trunk %s is currently disabled.", plainTrunk)
		return true
	}
	ports, err := b.CreatePorts(t.Context(), owner, subportRequest(), 3)
	if !errors.Is(err, sdn.ErrInvalid) || len(ports) != 0 {
		t.Errorf("CreatePorts = %d ports, %v; want ErrInvalid", len(ports), err)
	}
	if len(f.ports) != 1 {
		t.Errorf("%d ports are in the cloud, want the parent only", len(f.ports))
	}
}

// A subport that is on a disabled trunk stays, and says what keeps it there; it costs two
// requests a try. It goes once the trunk is set up.
func TestDisabledTrunkIsTold(t *testing.T) {
	s := newOnSim(t)
	p := s.create(t, s.target.Backend, s.request(s.parent, "vlan"), 1)[0]
	for _, up := range []bool{false, true} {
		must(t, trunks.Update(t.Context(), s.client, s.trunk, trunks.UpdateOpts{AdminStateUp: &up}).Err)
		s.asked()
		err := s.target.Backend.DeletePort(t.Context(), p.ID)
		if up {
			must(t, err)
			continue
		}
		if !errors.Is(err, sdn.ErrInvalid) || !strings.Contains(err.Error(), "set the node's trunk up") {
			t.Errorf("DeletePort on a disabled trunk: %v, want ErrInvalid that says what to do", err)
		}
		if diff := cmp.Diff(map[string]int{"PUT trunks/{id}/remove_subports": 1, "DELETE ports/{id}": 1}, s.asked()); diff != "" {
			t.Errorf("requests: (-want +got)\n%s", diff)
		}
	}
	if s.HasPort(t, p.ID) {
		t.Error("the port is still there")
	}
}

// A trunk that was deleted with its machine keeps nothing.
func TestSubportOfADeletedTrunkGoes(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	id := mustCreate(t, b, subportRequest(), 1)[0].ID
	f.ports[id]["device_owner"] = ""
	f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if !strings.HasSuffix(r.URL.Path, "remove_subports") {
			return false
		}
		f.trunks[plainTrunk].Subports = nil
		refuse(w, 404, "TrunkNotFound", "Trunk %s could not be found.", plainTrunk)
		return true
	}
	if err := b.DeletePort(t.Context(), id); err != nil || f.holds(id) {
		t.Errorf("DeletePort: %v; the port is there: %t", err, f.holds(id))
	}
}
