// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	sdk "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

// TestContractReal runs the contract against the Neutron of OS_CLOUD, with a
// credential that is admin there. All it makes is in a project of its own, which
// Neutron does not mind not being Keystone's, and is removed.
func TestContractReal(t *testing.T) {
	cloud := newReal(t)
	target := cloud.target(t)
	sdntest.Run(t, func(*testing.T) sdntest.Target { return target })
}

// realCloud is a project on a real Neutron.
type realCloud struct {
	client    *gophercloud.ServiceClient
	project   string
	network   string
	groupIDs  []string
	parent    string
	trunk     string
	subnetIDs []string
}

func newReal(t *testing.T) *realCloud {
	t.Helper()
	if os.Getenv("OS_CLOUD") == "" {
		sdntest.Missing(t, "OS_CLOUD is not set: no real Neutron to try; set it to an entry of clouds.yaml that is admin")
	}
	auth, endpoint, tls, err := clouds.Parse()
	must(t, err)
	provider, err := config.NewProviderClient(t.Context(), auth, config.WithTLSConfig(tls))
	must(t, err)
	client, err := sdk.NewNetworkV2(provider, endpoint)
	must(t, err)
	return &realCloud{client: client, project: newProject()}
}

// newProject returns the ID of a project that nobody has. Neutron and Octavia do not ask Keystone.
func newProject() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return hex.EncodeToString(id)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// after runs at the end of the test, when its own context is over.
func after(t *testing.T, what string, undo func(ctx context.Context) error) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := undo(ctx); err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			t.Errorf("removing %s: %v", what, err)
		}
	})
}

func (r *realCloud) target(t *testing.T) sdntest.Target {
	ctx := t.Context()
	net, err := networks.Create(ctx, r.client, networks.CreateOpts{Name: "kuryr-contract", ProjectID: r.project}).Extract()
	must(t, err)
	r.network = net.ID
	after(t, "network", func(ctx context.Context) error { return networks.Delete(ctx, r.client, net.ID).ExtractErr() })
	after(t, "what is on the network", r.sweep)
	prefix4, prefix6 := netip.MustParsePrefix("10.253.0.0/24"), netip.MustParsePrefix("fd00:253::/64")
	gateway4 := netip.MustParseAddr("10.253.0.7")
	four := r.subnet(t, prefix4, gateway4.String())
	six := r.subnet(t, prefix6, "")
	r.groups(t)
	r.makeTrunk(t, four)
	cluster := "contract-" + r.project[:12]
	return sdntest.Target{
		Backend: r.backend(t, cluster), Other: r.backend(t, cluster+"-other"), Cloud: r,
		Fresh:     func(t *testing.T) sdn.Backend { return r.backend(t, cluster) },
		ProjectID: r.project, NetworkID: net.ID,
		Subnets:          []sdntest.Subnet{{ID: four, Prefix: prefix4, Gateway: gateway4}, {ID: six, Prefix: prefix6}},
		SecurityGroupIDs: r.groupIDs,
		Host:             r.host(t), UnusableHost: "no-such-host", MTU: r.mtu(t), VIFType: "ovs", TrunkPortID: r.parent,
		PageSize: pageSize, Many: 12,
	}
}

// pageSize is small, as ports are slow to make.
const pageSize = 2

func (r *realCloud) backend(t *testing.T, cluster string) *openstack.Backend {
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: cluster, PageSize: pageSize, RequestsPerSecond: 100})
	must(t, err)
	return b
}

func (r *realCloud) subnet(t *testing.T, prefix netip.Prefix, gateway string) string {
	opts := subnets.CreateOpts{
		NetworkID: r.network, ProjectID: r.project, CIDR: prefix.String(), GatewayIP: &gateway,
		IPVersion: gophercloud.IPv4, EnableDHCP: gophercloud.Disabled,
	}
	if prefix.Addr().Is6() {
		opts.IPVersion = gophercloud.IPv6
	}
	s, err := subnets.Create(t.Context(), r.client, opts).Extract()
	must(t, err)
	r.subnetIDs = append(r.subnetIDs, s.ID)
	return s.ID
}

// groups makes two security groups, and has the project's default one, which
// Neutron makes by itself, removed too.
func (r *realCloud) groups(t *testing.T) {
	after(t, "security groups", func(ctx context.Context) error { return deleteGroups(ctx, r.client, r.project) })
	after(t, "ports in the groups", r.sweep)
	for _, name := range []string{"kuryr-contract-a", "kuryr-contract-b"} {
		g, err := groups.Create(t.Context(), r.client, groups.CreateOpts{Name: name, ProjectID: r.project}).Extract()
		must(t, err)
		r.groupIDs = append(r.groupIDs, g.ID)
	}
}

// deleteGroups deletes all security groups of a project.
func deleteGroups(ctx context.Context, client *gophercloud.ServiceClient, project string) error {
	pages, err := groups.List(client, groups.ListOpts{ProjectID: project}).AllPages(ctx)
	if err != nil {
		return err
	}
	all, err := groups.ExtractGroups(pages)
	for _, g := range all {
		if err == nil {
			err = groups.Delete(ctx, client, g.ID).ExtractErr()
		}
	}
	return err
}

func (r *realCloud) makeTrunk(t *testing.T, subnetID string) {
	p, err := ports.Create(t.Context(), r.client, ports.CreateOpts{
		NetworkID: r.network, ProjectID: r.project, Name: "parent", SecurityGroups: &[]string{},
		FixedIPs: []ports.IP{{SubnetID: subnetID}},
	}).Extract()
	must(t, err)
	trunk, err := trunks.Create(t.Context(), r.client, trunks.CreateOpts{PortID: p.ID, ProjectID: r.project, Name: "kuryr-contract"}).Extract()
	must(t, err)
	r.parent, r.trunk = p.ID, trunk.ID
}

// sweep removes the trunk and all ports of the network, of whatever a case left.
func (r *realCloud) sweep(ctx context.Context) error {
	if r.trunk != "" {
		if err := trunks.Delete(ctx, r.client, r.trunk).ExtractErr(); err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			return err
		}
	}
	pages, err := ports.List(r.client, ports.ListOpts{NetworkID: r.network}).AllPages(ctx)
	if err != nil {
		return err
	}
	all, err := ports.ExtractPorts(pages)
	for _, p := range all {
		if err == nil {
			err = ports.Delete(ctx, r.client, p.ID).ExtractErr()
		}
	}
	return err
}

func (r *realCloud) mtu(t *testing.T) int32 {
	var out struct {
		Network struct {
			MTU int32 `json:"mtu"`
		} `json:"network"`
	}
	_, err := r.client.Get(t.Context(), r.client.ServiceURL("networks", r.network), &out, nil)
	must(t, err)
	return out.Network.MTU
}

// host finds a host that ports can be bound to. It does not ask by gophercloud's
// agents: ML2/OVN of Zed writes times that it cannot read.
func (r *realCloud) host(t *testing.T) string {
	return sdntest.Host(t, func(into any) error {
		_, err := r.client.Get(t.Context(), r.client.ServiceURL("agents"), into, nil)
		return err
	})
}

// MakeForeignPort implements sdntest.Cloud.
func (r *realCloud) MakeForeignPort(t *testing.T) string {
	p, err := ports.Create(t.Context(), r.client, ports.CreateOpts{
		NetworkID: r.network, ProjectID: r.project, Name: "available-port", DeviceOwner: "compute:kuryr", SecurityGroups: &[]string{},
		Description: "kuryr.cluster=contract-somebody-else",
	}).Extract()
	must(t, err)
	after(t, "foreign port", func(ctx context.Context) error { return ports.Delete(ctx, r.client, p.ID).ExtractErr() })
	return p.ID
}

// HasPort implements sdntest.Cloud.
func (r *realCloud) HasPort(t *testing.T, id string) bool {
	_, err := ports.Get(t.Context(), r.client, id).Extract()
	if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// LimitPorts implements sdntest.Cloud. The quota is of the test's own project.
func (r *realCloud) LimitPorts(t *testing.T, n int) {
	pages, err := ports.List(r.client, ports.ListOpts{ProjectID: r.project}).AllPages(t.Context())
	must(t, err)
	all, err := ports.ExtractPorts(pages)
	must(t, err)
	limit := len(all) + n
	_, err = quotas.Update(t.Context(), r.client, r.project, quotas.UpdateOpts{Port: &limit}).Extract()
	must(t, err)
	after(t, "quota", func(ctx context.Context) error {
		_, err := r.client.Delete(ctx, r.client.ServiceURL("quotas", r.project), nil)
		return err
	})
}

// Subports implements sdntest.Cloud.
func (r *realCloud) Subports(t *testing.T, _ string) map[string]int32 {
	all, err := trunks.GetSubports(t.Context(), r.client, r.trunk).Extract()
	must(t, err)
	out := map[string]int32{}
	for _, s := range all {
		out[s.PortID] = int32(s.SegmentationID)
	}
	return out
}
