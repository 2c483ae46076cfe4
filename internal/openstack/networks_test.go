// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// TestContractOfNetworksSim runs the contract of the role for networks against the simulator.
func TestContractOfNetworksSim(t *testing.T) {
	onEachRelease(t, func(t *testing.T, cloud *openstacksim.Cloud) {
		r := newRealNetworks(t)
		r.lose = func(t *testing.T) {
			simulated{cloud}.dial(t, `{calls: [{on: network POST /v2.0/networks, times: 1, fault: lost}, {on: network POST /v2.0/subnets, times: 1, fault: lost}, {on: network POST /v2.0/routers, times: 1, fault: lost}, `+
				`{on: network PUT /v2.0/routers/*/add_router_interface, times: 1, fault: lost}]}`)
		}
		target := r.target(t)
		sdntest.RunNetworks(t, func(*testing.T) sdntest.NetworkTarget { return target })
	})
}

var networkOwner = sdn.Owner{Kind: sdn.KindNetwork, Namespace: "shop", Name: "shop"}

// networkRequests counts what is asked of Neutron, by method and path without IDs.
type networkRequests struct {
	mu  sync.Mutex
	all map[string]int
}

func (n *networkRequests) note(_ http.ResponseWriter, r *http.Request, _ object) bool {
	_, path, is := strings.Cut(r.URL.Path, "/v2.0/")
	if !is || strings.Contains(r.URL.Path, "lbaas") {
		return false
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if len(p) == 36 {
			parts[i] = "ID"
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all[r.Method+" "+strings.Join(parts, "/")]++
	return false
}

func (n *networkRequests) taken() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.all
	n.all = map[string]int{}
	return out
}

// TestRequestsOfANetwork: the network of a namespace with subnets of both families costs one
// request for each object. To look at it costs three, and to find it after a restart one page.
func TestRequestsOfANetwork(t *testing.T) {
	f, asked := newFront(t), &networkRequests{all: map[string]int{}}
	r := newRealNetworks(t)
	target := r.target(t)
	f.before = asked.note
	registry := prometheus.NewRegistry()
	start := func() *openstack.Backend {
		b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", Metrics: registry})
		must(t, err)
		return b
	}
	b := start()
	step := func(what string, want map[string]int) {
		t.Helper()
		if diff := cmp.Diff(want, asked.taken()); diff != "" {
			t.Errorf("%s: requests (-want +got)\n%s", what, diff)
		}
	}
	n, err := b.CreateNetwork(t.Context(), networkOwner, sdn.NetworkSpec{Name: "uid/shop", ProjectID: r.project})
	must(t, err)
	var subnetIDs []string
	for version, pool := range map[int]sdntest.NetworkPool{4: target.Four, 6: target.Six} {
		s, err := b.CreateSubnet(t.Context(), networkOwner, sdn.SubnetSpec{NetworkID: n.ID, Name: "uid/shop", ProjectID: r.project, IPVersion: version, PoolID: pool.ID})
		must(t, err)
		must(t, b.AddRouterInterface(t.Context(), r.router, s.ID))
		subnetIDs = append(subnetIDs, s.ID)
	}
	step("a new one", map[string]int{"POST networks": 1, "POST subnets": 2, "PUT routers/ID/add_router_interface": 2})
	if _, err := b.Network(t.Context(), n.ID); err != nil {
		t.Error(err)
	}
	step("looked at", map[string]int{"GET networks/ID": 1, "GET subnets": 1, "GET ports": 1})
	must(t, b.AddRouterInterface(t.Context(), r.router, subnetIDs[0]))
	step("an interface that is there", map[string]int{"PUT routers/ID/add_router_interface": 1, "GET ports": 1})
	b = start()
	if all, err := b.ListNetworks(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("ListNetworks = %+v, %v", all, err)
	}
	if _, err := b.Network(t.Context(), n.ID); err != nil {
		t.Error(err)
	}
	step("found after a restart", map[string]int{"GET networks": 1, "GET networks/ID": 1, "GET subnets": 1, "GET ports": 1})
	// Neutron makes ports of these device owners itself, and deletes them with the network.
	for _, owner := range []string{"network:dhcp", "network:distributed"} {
		r.makePort(t, object{"network_id": n.ID, "device_owner": owner})
	}
	// Octavia's OVN provider makes such a port for health monitors, and deletes it with the last one.
	// Neutron does not, and refuses to delete the network.
	var want []sdn.PortUse
	for _, owner := range []string{"compute:nova", "ovn-lb-hm:distributed"} {
		want = append(want, sdn.PortUse{ID: r.makePort(t, object{"network_id": n.ID, "device_owner": owner}).ID, DeviceOwner: owner})
	}
	slices.SortFunc(want, func(x, y sdn.PortUse) int { return strings.Compare(x.ID, y.ID) })
	asked.taken()
	if got, err := b.InUse(t.Context(), n.ID); err != nil || !slices.Equal(got, want) {
		t.Errorf("InUse = %+v, %v; want %+v alone", got, err, want)
	}
	step("asked for its ports", map[string]int{"GET ports": 1})
	for _, port := range want {
		must(t, r.removePort(t.Context(), port.ID))
	}
	asked.taken()
	for _, id := range subnetIDs {
		must(t, b.RemoveRouterInterface(t.Context(), r.router, id))
	}
	must(t, b.DeleteNetwork(t.Context(), n.ID))
	step("deleted", map[string]int{"PUT routers/ID/remove_router_interface": 2, "GET networks/ID": 1, "DELETE networks/ID": 1})

	metrics := `
# HELP kuryr_cloud_requests_total HTTP requests to the cloud, by status code; none if there was no answer.
# TYPE kuryr_cloud_requests_total counter
kuryr_cloud_requests_total{code="200",resource="add_router_interface",service="network",verb="PUT"} 2
kuryr_cloud_requests_total{code="200",resource="networks",service="network",verb="GET"} 4
kuryr_cloud_requests_total{code="200",resource="ports",service="network",verb="GET"} 4
kuryr_cloud_requests_total{code="200",resource="remove_router_interface",service="network",verb="PUT"} 2
kuryr_cloud_requests_total{code="200",resource="subnets",service="network",verb="GET"} 2
kuryr_cloud_requests_total{code="201",resource="networks",service="network",verb="POST"} 1
kuryr_cloud_requests_total{code="201",resource="subnets",service="network",verb="POST"} 2
kuryr_cloud_requests_total{code="201",resource="tokens",service="identity",verb="POST"} 2
kuryr_cloud_requests_total{code="204",resource="networks",service="network",verb="DELETE"} 1
kuryr_cloud_requests_total{code="400",resource="add_router_interface",service="network",verb="PUT"} 1
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(metrics), "kuryr_cloud_requests_total"))
}

// TestNetworksOfAMember: a credential that is no administrator gets networks in its own project
// only, and the refusal names the project.
func TestNetworksOfAMember(t *testing.T) {
	cloud := openstacksim.Start(t)
	t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", Cloud: "tenant"})
	must(t, err)
	own, _ := cloud.Project("k8s")
	_, err = b.CreateNetwork(t.Context(), networkOwner, sdn.NetworkSpec{Name: "uid/shop", ProjectID: strings.Repeat("0", 32)})
	if !errors.Is(err, sdn.ErrInvalid) || sdn.FieldOf(err) != sdn.FieldProject {
		t.Errorf("CreateNetwork in another project: %v, want ErrInvalid of the project", err)
	}
	for _, project := range []string{"", own} {
		n, err := b.CreateNetwork(t.Context(), networkOwner, sdn.NetworkSpec{Name: "uid/shop", ProjectID: project})
		must(t, err)
		if n.ProjectID != own {
			t.Errorf("a network of project %q is of %s", project, n.ProjectID)
		}
	}
}

// TestRoutersOfAMember: a credential that is no administrator may make routers, but not say whether
// they translate addresses.
func TestRoutersOfAMember(t *testing.T) {
	cloud := openstacksim.Start(t)
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
	target := newRealNetworks(t).target(t)
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", Cloud: "tenant"})
	must(t, err)
	spec := sdn.RouterSpec{Name: "uid/shop", Gateway: sdn.Gateway{NetworkID: target.ExternalID, SNAT: new(true)}}
	if _, err := b.CreateRouter(t.Context(), networkOwner, spec); !errors.Is(err, sdn.ErrSNATForbidden) {
		t.Errorf("CreateRouter that says SNAT: %v, want ErrSNATForbidden", err)
	}
	spec.Gateway.SNAT = nil
	r, err := b.CreateRouter(t.Context(), networkOwner, spec)
	must(t, err)
	must(t, b.DeleteRouter(t.Context(), r.ID))
}

// TestRefusedNetworks: refusals that a simulator does not make by itself. What is not Neutron's own
// word is never "gone".
func TestRefusedNetworks(t *testing.T) {
	cloud := openstacksim.Start(t)
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
	r := newRealNetworks(t)
	target := r.target(t)
	b := target.Backend
	n, err := b.CreateNetwork(t.Context(), networkOwner, sdn.NetworkSpec{Name: "uid/shop"})
	must(t, err)
	spec := sdn.SubnetSpec{NetworkID: n.ID, IPVersion: 4, PoolID: target.Four.ID}
	s, err := b.CreateSubnet(t.Context(), networkOwner, spec)
	must(t, err)
	network := func() error {
		_, err := b.CreateNetwork(t.Context(), networkOwner, sdn.NetworkSpec{Name: "uid/shop"})
		return err
	}
	subnet := func() error {
		_, err := b.CreateSubnet(t.Context(), networkOwner, spec)
		return err
	}
	router := func() error {
		_, err := b.CreateRouter(t.Context(), networkOwner, sdn.RouterSpec{Name: "uid/shop", Gateway: sdn.Gateway{NetworkID: target.ExternalID, SNAT: new(false)}})
		return err
	}
	add := func() error { return b.AddRouterInterface(t.Context(), r.router, s.ID) }
	remove := func() error { return b.RemoveRouterInterface(t.Context(), r.router, s.ID) }
	for _, c := range []struct {
		on, fault string
		call      func() error
		want      error
		says      string
	}{
		{"POST /v2.0/networks", "{status: 409, type: NoNetworkAvailable, message: none}", network, sdn.ErrQuota, "ml2_conf.ini"},
		{"POST /v2.0/networks", "{status: 403, type: PolicyNotAuthorized, message: no}", network, sdn.ErrForbidden, "role"},
		{"POST /v2.0/subnets", "{status: 409, type: SubnetPoolQuotaExceeded, message: no}", subnet, sdn.ErrAddresses, "default_quota"},
		{"POST /v2.0/subnets", "503", subnet, sdn.ErrUnavailable, ""},
		{"POST /v2.0/routers", "{status: 409, type: IpAddressGenerationFailure, message: no}", router, sdn.ErrExternalAddresses, target.ExternalID},
		{"POST /v2.0/routers", "{status: 409, type: OverQuota, message: no}", router, sdn.ErrProjectQuota, "quota"},
		{"POST /v2.0/routers", "{status: 403, type: PolicyNotAuthorized, message: no}", router, sdn.ErrSNATForbidden, "SNAT"},
		{"PUT /v2.0/routers/*/add_router_interface", "{status: 409, type: OverQuota, message: no}", add, sdn.ErrRouterFull, "quota"},
		{"PUT /v2.0/routers/*/add_router_interface", "{status: 409, type: RouterInterfaceAttachmentConflict, message: no}", add, sdn.ErrConflict, ""},
		{"PUT /v2.0/routers/*/add_router_interface", "{status: 400, type: BadRequest, message: no}", add, sdn.ErrInvalid, "no"},
		{"PUT /v2.0/routers/*/remove_router_interface", "{status: 409, type: RouterInterfaceInUseByRoute, message: no}", remove, sdn.ErrConflict, ""},
		{"PUT /v2.0/routers/*/remove_router_interface", "{status: 404, type: HTTPNotFound, message: no}", remove, sdn.ErrUnavailable, ""},
	} {
		must(t, cloud.Dial("network "+c.on+": {fault: "+c.fault+"}"))
		err := c.call()
		cloud.SetDials(&dial.Set{})
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s answered %s: %v, want %v that says %q", c.on, c.fault, err, c.want, c.says)
		}
	}
	must(t, b.DeleteNetwork(t.Context(), n.ID))
}

// TestListsOfASubnetAreBounded: Neutron takes five DNS servers and twenty routes, and the refusal
// says of what there are too many.
func TestListsOfASubnetAreBounded(t *testing.T) {
	cloud := openstacksim.Start(t)
	t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", Cloud: "kuryr"})
	must(t, err)
	n, err := b.CreateNetwork(t.Context(), networkOwner, sdn.NetworkSpec{Name: "uid/shop"})
	must(t, err)
	spec := sdn.SubnetSpec{NetworkID: n.ID, IPVersion: 4, Prefix: netip.MustParsePrefix("10.7.0.0/16")}
	for i := range 6 {
		spec.DNSServers = append(spec.DNSServers, netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i+1)))
	}
	if _, err := b.CreateSubnet(t.Context(), networkOwner, spec); sdn.FieldOf(err) != sdn.FieldDNSServers {
		t.Errorf("CreateSubnet with six DNS servers: %v", err)
	}
	spec.DNSServers = nil
	for i := range 21 {
		spec.Routes = append(spec.Routes, v1.Route{Destination: fmt.Sprintf("10.9.%d.0/24", i), Gateway: "10.7.0.2"})
	}
	if _, err := b.CreateSubnet(t.Context(), networkOwner, spec); sdn.FieldOf(err) != sdn.FieldRoutes {
		t.Errorf("CreateSubnet with 21 routes: %v", err)
	}
}
