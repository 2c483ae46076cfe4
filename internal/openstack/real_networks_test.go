// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"net/http"
	"net/netip"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/external"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/subnetpools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

// TestContractOfNetworksReal runs the contract of the role for networks against the Neutron of
// OS_CLOUD, as TestContractReal does.
func TestContractOfNetworksReal(t *testing.T) {
	target := newRealNetworks(t).target(t)
	sdntest.RunNetworks(t, func(*testing.T) sdntest.NetworkTarget { return target })
}

// realNetworks is a project on a real Neutron, with a router that leads outside.
type realNetworks struct {
	*realServices
	lose func(t *testing.T) // nil: the cloud loses no answers
}

func newRealNetworks(t *testing.T) *realNetworks {
	return &realNetworks{realServices: &realServices{realCloud: newReal(t)}}
}

func (r *realNetworks) target(t *testing.T) sdntest.NetworkTarget {
	net, err := networks.Create(t.Context(), r.client, networks.CreateOpts{Name: "kuryr-contract-given", ProjectID: r.project}).Extract()
	must(t, err)
	r.network = net.ID
	after(t, "network", func(ctx context.Context) error { return networks.Delete(ctx, r.client, net.ID).ExtractErr() })
	public := r.outside(t)
	given := sdntest.Subnet{Prefix: netip.MustParsePrefix("10.249.0.0/24"), Gateway: netip.MustParseAddr("10.249.0.7")}
	given.ID = r.subnet(t, given.Prefix, given.Gateway.String())
	cluster := "contract-" + r.project[:12]
	return sdntest.NetworkTarget{
		Backend: r.networks(t, cluster), Other: r.networks(t, cluster+"-other"), Cloud: r,
		Fresh:     func(t *testing.T) sdntest.Networks { return r.networks(t, cluster) },
		ProjectID: r.project, RouterID: r.router, ExternalID: r.external, External: public.Prefix,
		Four: r.pool(t, "10.251.0.0/22", 24), Six: r.pool(t, "fd00:251::/62", 64),
		Given: net.ID, Subnets: []sdntest.Subnet{given}, MTU: int(r.mtu(t)),
	}
}

func (r *realNetworks) networks(t *testing.T, cluster string) sdntest.Networks {
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: cluster, PageSize: pageSize, RequestsPerSecond: 1000})
	must(t, err)
	return b
}

func (r *realNetworks) pool(t *testing.T, prefix string, length int) sdntest.NetworkPool {
	p, err := subnetpools.Create(t.Context(), r.client, subnetpools.CreateOpts{
		Name: "kuryr-contract", ProjectID: r.project, Prefixes: []string{prefix}, DefaultPrefixLen: length, MinPrefixLen: netip.MustParsePrefix(prefix).Bits(),
	}).Extract()
	must(t, err)
	after(t, "subnet pool", func(ctx context.Context) error { return subnetpools.Delete(ctx, r.client, p.ID).ExtractErr() })
	return sdntest.NetworkPool{ID: p.ID, Prefix: netip.MustParsePrefix(prefix), Length: length}
}

// MakeForeignNetwork implements sdntest.NetworkCloud.
func (r *realNetworks) MakeForeignNetwork(t *testing.T, name string) string {
	n, err := networks.Create(t.Context(), r.client, networks.CreateOpts{
		Name: name, ProjectID: r.project, Description: "kuryr.cluster=contract-somebody-else",
	}).Extract()
	must(t, err)
	after(t, "foreign network", func(ctx context.Context) error { return networks.Delete(ctx, r.client, n.ID).ExtractErr() })
	return n.ID
}

// HasNetwork implements sdntest.NetworkCloud.
func (r *realNetworks) HasNetwork(t *testing.T, id string) bool {
	_, err := networks.Get(t.Context(), r.client, id).Extract()
	if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// MakeForeignSubnet implements sdntest.NetworkCloud.
func (r *realNetworks) MakeForeignSubnet(t *testing.T, networkID string, prefix netip.Prefix) string {
	s, err := subnets.Create(t.Context(), r.client, subnets.CreateOpts{
		NetworkID: networkID, ProjectID: r.project, CIDR: prefix.String(), IPVersion: gophercloud.IPv4, EnableDHCP: gophercloud.Disabled,
	}).Extract()
	must(t, err)
	return s.ID
}

// LimitNetworks implements sdntest.NetworkCloud. The quotas are of the test's own project.
func (r *realNetworks) LimitNetworks(t *testing.T, nets, snets int) {
	pages, err := networks.List(r.client, networks.ListOpts{ProjectID: r.project}).AllPages(t.Context())
	must(t, err)
	hasNetworks, err := networks.ExtractNetworks(pages)
	must(t, err)
	pages, err = subnets.List(r.client, subnets.ListOpts{ProjectID: r.project}).AllPages(t.Context())
	must(t, err)
	hasSubnets, err := subnets.ExtractSubnets(pages)
	must(t, err)
	nets, snets = nets+len(hasNetworks), snets+len(hasSubnets)
	_, err = quotas.Update(t.Context(), r.client, r.project, quotas.UpdateOpts{Network: &nets, Subnet: &snets}).Extract()
	must(t, err)
	after(t, "quota", func(ctx context.Context) error {
		_, err := r.client.Delete(ctx, r.client.ServiceURL("quotas", r.project), nil)
		return err
	})
}

// HasRouter implements sdntest.NetworkCloud.
func (r *realNetworks) HasRouter(t *testing.T, id string) bool {
	_, err := routers.Get(t.Context(), r.client, id).Extract()
	if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// LimitRouters implements sdntest.NetworkCloud.
func (r *realNetworks) LimitRouters(t *testing.T, n int) {
	pages, err := routers.List(r.client, routers.ListOpts{ProjectID: r.project}).AllPages(t.Context())
	must(t, err)
	has, err := routers.ExtractRouters(pages)
	must(t, err)
	n += len(has)
	_, err = quotas.Update(t.Context(), r.client, r.project, quotas.UpdateOpts{Router: &n}).Extract()
	must(t, err)
	after(t, "quota", func(ctx context.Context) error {
		_, err := r.client.Delete(ctx, r.client.ServiceURL("quotas", r.project), nil)
		return err
	})
}

// MakeFullNetwork implements sdntest.NetworkCloud. A port has the only address that may be given.
func (r *realNetworks) MakeFullNetwork(t *testing.T) (string, netip.Prefix) {
	prefix := netip.MustParsePrefix("198.18.0.0/29")
	n, err := networks.Create(t.Context(), r.client, external.CreateOptsExt{
		CreateOptsBuilder: networks.CreateOpts{Name: "kuryr-contract-full", ProjectID: r.project}, External: new(true),
	}).Extract()
	must(t, err)
	after(t, "full network", func(ctx context.Context) error { return networks.Delete(ctx, r.client, n.ID).ExtractErr() })
	_, err = subnets.Create(t.Context(), r.client, subnets.CreateOpts{
		NetworkID: n.ID, ProjectID: r.project, CIDR: prefix.String(), IPVersion: gophercloud.IPv4, EnableDHCP: gophercloud.Disabled,
		AllocationPools: []subnets.AllocationPool{{Start: "198.18.0.2", End: "198.18.0.2"}},
	}).Extract()
	must(t, err)
	r.makePort(t, object{"network_id": n.ID})
	return n.ID, prefix
}

// NeedRouterInterface implements sdntest.NetworkCloud.
func (r *realNetworks) NeedRouterInterface(t *testing.T, portID, _ string) func() {
	f, err := floatingips.Create(t.Context(), r.client, floatingips.CreateOpts{FloatingNetworkID: r.external, ProjectID: r.project, PortID: portID}).Extract()
	must(t, err)
	return func() {
		must(t, floatingips.Delete(t.Context(), r.client, f.ID).ExtractErr())
	}
}

// LoseAnswer implements sdntest.NetworkCloud.
func (r *realNetworks) LoseAnswer(t *testing.T) bool {
	if r.lose == nil {
		return false
	}
	r.lose(t)
	return true
}
