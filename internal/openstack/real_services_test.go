// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	sdk "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/external"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

// TestContractOfServicesReal runs the contract of the roles for Services against the
// Neutron and the Octavia of OS_CLOUD, as TestContractReal does, with the provider of
// KURYR_PROVIDER; with its default provider if that is not set.
func TestContractOfServicesReal(t *testing.T) {
	target := newRealServices(t, false).target(t, os.Getenv("KURYR_PROVIDER"))
	sdntest.RunServices(t, func(*testing.T) sdntest.ServiceTarget { return target })
}

// realServices is a project on a real Neutron and Octavia.
type realServices struct {
	*realCloud
	balancer *gophercloud.ServiceClient
	external string
	router   string
	old      bool // Neutron serves the load balancers itself
	tagless  bool // load balancers have no tags
	change   []func(*openstack.Config)
	wreck    saboteur // nil: a cloud that does as it likes
}

// saboteur is what a simulator does that a real cloud cannot be asked for.
type saboteur interface {
	slow(t *testing.T)
	breaks(t *testing.T, update func())
	loseAnswer(t *testing.T)
}

// newRealServices returns one with Octavia, or with an old Neutron's LBaaS v2.
func newRealServices(t *testing.T, old bool) *realServices {
	r := &realServices{realCloud: newReal(t), old: old}
	auth, endpoint, tls, err := clouds.Parse()
	must(t, err)
	provider, err := config.NewProviderClient(t.Context(), auth, config.WithTLSConfig(tls))
	must(t, err)
	r.balancer, err = sdk.NewLoadBalancerV2(provider, endpoint)
	if errors.As(err, new(*gophercloud.ErrEndpointNotFound)) && !old {
		sdntest.Missing(t, "the cloud of OS_CLOUD has no Octavia")
	} else if old {
		r.balancer, err = r.client, nil // the paths are the same
		r.change = append(r.change, func(c *openstack.Config) { c.LoadBalancerAPI = openstack.LBaaSv2 })
	}
	must(t, err)
	return r
}

func (r *realServices) target(t *testing.T, provider string) sdntest.ServiceTarget {
	net, err := networks.Create(t.Context(), r.client, networks.CreateOpts{Name: "kuryr-contract-services", ProjectID: r.project}).Extract()
	must(t, err)
	r.network = net.ID
	after(t, "network", func(ctx context.Context) error { return networks.Delete(ctx, r.client, net.ID).ExtractErr() })
	after(t, "what is on the network", r.sweep)
	prefixes := []netip.Prefix{
		netip.MustParsePrefix("10.252.0.0/24"), netip.MustParsePrefix("10.252.1.0/24"), netip.MustParsePrefix("fd00:252::/64"),
	}
	public := r.outside(t)
	var all []sdntest.Subnet
	for _, p := range prefixes {
		s := sdntest.Subnet{ID: r.subnet(t, p, p.Addr().Next().String()), Prefix: p}
		all = append(all, s)
		r.join(t, s.ID)
	}
	after(t, "load balancers", r.sweepBalancers)
	cluster := "contract-" + r.project[:12]
	second := newProject()
	after(t, "security groups of the second project", func(ctx context.Context) error { return deleteGroups(ctx, r.client, second) })
	return sdntest.ServiceTarget{
		Backend: r.services(t, cluster), Other: r.services(t, cluster+"-other"), Cloud: r,
		Fresh:     func(t *testing.T) sdntest.Services { return r.services(t, cluster) },
		ProjectID: r.project, Second: second, Provider: provider, NoHeartbeats: provider == "amphora" && r.wreck == nil, Missing: "no-such-provider",
		Subnet: all[0], Far: all[1], Six: all[2], NetworkID: r.network, ExternalNetwork: r.external, External: public,
	}
}

func (r *realServices) services(t *testing.T, cluster string) sdntest.Services {
	c := openstack.Config{ClusterID: cluster, PageSize: pageSize, RequestsPerSecond: 100}
	for _, change := range r.change {
		change(&c)
	}
	b, err := openstack.New(t.Context(), c)
	must(t, err)
	return b
}

// outside makes an external network, and a router that leads there.
func (r *realServices) outside(t *testing.T) sdntest.Subnet {
	yes := true
	net, err := networks.Create(t.Context(), r.client, external.CreateOptsExt{
		CreateOptsBuilder: networks.CreateOpts{Name: "kuryr-contract-outside", ProjectID: r.project}, External: &yes,
	}).Extract()
	must(t, err)
	r.external = net.ID
	after(t, "external network", func(ctx context.Context) error { return networks.Delete(ctx, r.client, net.ID).ExtractErr() })
	after(t, "floating IPs", r.sweepFloatingIPs)
	prefix, gateway := netip.MustParsePrefix("198.18.252.0/24"), "198.18.252.1"
	s, err := subnets.Create(t.Context(), r.client, subnets.CreateOpts{
		NetworkID: net.ID, ProjectID: r.project, CIDR: prefix.String(), GatewayIP: &gateway, IPVersion: gophercloud.IPv4, EnableDHCP: gophercloud.Disabled,
	}).Extract()
	must(t, err)
	router, err := routers.Create(t.Context(), r.client, routers.CreateOpts{
		Name: "kuryr-contract", ProjectID: r.project, GatewayInfo: &routers.GatewayInfo{NetworkID: net.ID},
	}).Extract()
	must(t, err)
	r.router = router.ID
	after(t, "router", func(ctx context.Context) error { return routers.Delete(ctx, r.client, router.ID).ExtractErr() })
	return sdntest.Subnet{ID: s.ID, Prefix: prefix}
}

// join gives a subnet an interface of the router: without one nothing answers for a VIP.
func (r *realServices) join(t *testing.T, subnetID string) {
	must(t, routers.AddInterface(t.Context(), r.client, r.router, routers.AddInterfaceOpts{SubnetID: subnetID}).Err)
	after(t, "router's interface", func(ctx context.Context) error {
		return routers.RemoveInterface(ctx, r.client, r.router, routers.RemoveInterfaceOpts{SubnetID: subnetID}).Err
	})
}

func (r *realServices) balancers(ctx context.Context) ([]loadbalancers.LoadBalancer, error) {
	pages, err := loadbalancers.List(r.balancer, loadbalancers.ListOpts{ProjectID: r.project}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return loadbalancers.ExtractLoadBalancers(pages)
}

// sweepBalancers removes what cases have left.
func (r *realServices) sweepBalancers(ctx context.Context) error {
	for {
		all, err := r.balancers(ctx)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, lb := range all {
			err := loadbalancers.Delete(ctx, r.balancer, lb.ID, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr()
			if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) && !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
				return err
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sweepFloatingIPs removes what cases have left.
func (r *realServices) sweepFloatingIPs(ctx context.Context) error {
	pages, err := floatingips.List(r.client, floatingips.ListOpts{FloatingNetworkID: r.external}).AllPages(ctx)
	if err != nil {
		return err
	}
	all, err := floatingips.ExtractFloatingIPs(pages)
	for _, f := range all {
		if err == nil {
			err = floatingips.Delete(ctx, r.client, f.ID).ExtractErr()
		}
	}
	return err
}

// MakeForeignLoadBalancer implements sdntest.ServiceCloud.
func (r *realServices) MakeForeignLoadBalancer(t *testing.T, vip v1.VIPAddress) string {
	opts := loadbalancers.CreateOpts{
		Name: "foreign", ProjectID: r.project, VipSubnetID: vip.SubnetID, VipAddress: vip.IP, Tags: []string{"kuryr.cluster=contract-somebody-else"},
	}
	if r.old {
		opts.Tags, opts.Description = nil, opts.Tags[0]
	}
	lb, err := loadbalancers.Create(t.Context(), r.balancer, opts).Extract()
	must(t, err)
	after(t, "foreign load balancer", r.sweepBalancers)
	return lb.ID
}

// HasLoadBalancer implements sdntest.ServiceCloud.
func (r *realServices) HasLoadBalancer(t *testing.T, id string) bool {
	all, err := r.balancers(t.Context())
	must(t, err)
	return slices.ContainsFunc(all, func(lb loadbalancers.LoadBalancer) bool { return lb.ID == id })
}

// LimitLoadBalancers implements sdntest.ServiceCloud. The quota is of the test's own project.
func (r *realServices) LimitLoadBalancers(t *testing.T, n int) bool {
	if r.old {
		return false
	}
	all, err := r.balancers(t.Context())
	must(t, err)
	url := r.balancer.ServiceURL("lbaas", "quotas", r.project)
	_, err = r.balancer.Put(t.Context(), url, object{"quota": object{"load_balancer": len(all) + n}}, nil,
		&gophercloud.RequestOpts{OkCodes: []int{http.StatusAccepted}})
	must(t, err)
	after(t, "quota", func(ctx context.Context) error {
		_, err := r.balancer.Delete(ctx, url, &gophercloud.RequestOpts{OkCodes: []int{http.StatusAccepted, http.StatusNoContent}})
		return err
	})
	return true
}

// LoseTags implements sdntest.ServiceCloud.
func (r *realServices) LoseTags(t *testing.T, id string) bool {
	if r.old || r.tagless {
		return false
	}
	must(t, loadbalancers.Update(t.Context(), r.balancer, id, loadbalancers.UpdateOpts{Tags: &[]string{"team=red"}}).Err)
	return true
}

// Slow implements sdntest.ServiceCloud.
func (r *realServices) Slow(t *testing.T) bool {
	if r.wreck != nil {
		r.wreck.slow(t)
	}
	return r.wreck != nil
}

// Disable implements sdntest.ServiceCloud. Members are first: they know no load balancer that is
// switched off, and ovn-octavia-provider 8.0.0 ends no change of members while a pool or listener is.
func (r *realServices) Disable(t *testing.T, id string) bool {
	down := object{"admin_state_up": false}
	put := func(body object, path ...string) {
		t.Helper()
		for until := time.Now().Add(time.Minute); ; {
			_, err := r.balancer.Put(t.Context(), r.balancer.ServiceURL(append([]string{"lbaas"}, path...)...), body, nil,
				&gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}})
			if !gophercloud.ResponseCodeIs(err, http.StatusConflict) || time.Now().After(until) {
				must(t, err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	lb, err := loadbalancers.Get(t.Context(), r.balancer, id).Extract()
	must(t, err)
	for _, p := range lb.Pools {
		all, err := pools.ListMembers(r.balancer, p.ID, nil).AllPages(t.Context())
		must(t, err)
		members, err := pools.ExtractMembers(all)
		must(t, err)
		for i, m := range members {
			change := down
			if i == 0 {
				change = object{"weight": 0}
			}
			put(object{"member": change}, "pools", p.ID, "members", m.ID)
		}
	}
	for _, p := range lb.Pools {
		put(object{"pool": down}, "pools", p.ID)
	}
	for _, l := range lb.Listeners {
		put(object{"listener": down}, "listeners", l.ID)
	}
	put(object{"loadbalancer": down}, "loadbalancers", id)
	return true
}

// Break implements sdntest.ServiceCloud.
func (r *realServices) Break(t *testing.T, id string) bool {
	if r.wreck == nil {
		return false
	}
	r.wreck.breaks(t, func() {
		name := "broken"
		must(t, loadbalancers.Update(t.Context(), r.balancer, id, loadbalancers.UpdateOpts{Name: &name}).Err)
		for {
			lb, err := loadbalancers.Get(t.Context(), r.balancer, id).Extract()
			must(t, err)
			if lb.ProvisioningStatus == "ERROR" {
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	return true
}

// LoseAnswer implements sdntest.ServiceCloud.
func (r *realServices) LoseAnswer(t *testing.T) bool {
	if r.wreck != nil {
		r.wreck.loseAnswer(t)
	}
	return r.wreck != nil
}

// MakeForeignFloatingIP implements sdntest.ServiceCloud.
func (r *realServices) MakeForeignFloatingIP(t *testing.T) string {
	f, err := floatingips.Create(t.Context(), r.client, floatingips.CreateOpts{FloatingNetworkID: r.external, ProjectID: r.project, Description: "mine"}).Extract()
	must(t, err)
	after(t, "foreign floating IP", func(ctx context.Context) error { return floatingips.Delete(ctx, r.client, f.ID).ExtractErr() })
	return f.ID
}

// HasFloatingIP implements sdntest.ServiceCloud.
func (r *realServices) HasFloatingIP(t *testing.T, id string) bool {
	_, err := floatingips.Get(t.Context(), r.client, id).Extract()
	if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Fatal(err)
	}
	return err == nil
}
