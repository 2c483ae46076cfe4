// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"net/http"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/attributestags"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// provider logs in as any client does, by clouds.yaml.
func provider(t *testing.T, c *openstacksim.Cloud) (*gophercloud.ProviderClient, gophercloud.EndpointOpts) {
	t.Helper()
	auth, endpoint, tls, err := clouds.Parse(clouds.WithCloudName("kuryr"), clouds.WithLocations(c.CloudsFile(t)))
	if err != nil {
		t.Fatal(err)
	}
	auth.AllowReauth = true
	p, err := config.NewProviderClient(t.Context(), auth, config.WithTLSConfig(tls))
	if err != nil {
		t.Fatal(err)
	}
	return p, endpoint
}

// must is v, if there is no error.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func service(t *testing.T) func(*gophercloud.ServiceClient, error) *gophercloud.ServiceClient {
	return must[*gophercloud.ServiceClient](t)
}

func TestGophercloudIdentity(t *testing.T) {
	c := openstacksim.Start(t)
	p, endpoint := provider(t, c)
	k := service(t)(openstack.NewIdentityV3(p, endpoint))
	own := must[*tokens.User](t)(tokens.Get(t.Context(), k, p.Token()).ExtractUser())
	made := must[*projects.Project](t)(projects.Create(t.Context(), k, projects.CreateOpts{Name: "p"}).Extract())
	if got := must[*projects.Project](t)(projects.Get(t.Context(), k, made.ID).Extract()); got.Name != "p" {
		t.Errorf("the project is %+v", got)
	}
	ac := must[*applicationcredentials.ApplicationCredential](t)(applicationcredentials.Create(t.Context(), k, own.ID,
		applicationcredentials.CreateOpts{Name: "ac"}).Extract())
	by := gophercloud.AuthOptions{IdentityEndpoint: c.URL() + "/identity/v3", ApplicationCredentialID: ac.ID, ApplicationCredentialSecret: ac.Secret}
	if _, err := openstack.AuthenticatedClient(t.Context(), by); err != nil {
		t.Errorf("logging in by application credential: %v", err)
	}
	by.ApplicationCredentialSecret = "another"
	if _, err := openstack.AuthenticatedClient(t.Context(), by); !gophercloud.ResponseCodeIs(err, http.StatusUnauthorized) {
		t.Errorf("with another secret: %v", err)
	}
}

func TestGophercloudNetwork(t *testing.T) {
	c := openstacksim.Start(t)
	p, endpoint := provider(t, c)
	n := service(t)(openstack.NewNetworkV2(p, endpoint))
	network := must[*networks.Network](t)(networks.Create(t.Context(), n, networks.CreateOpts{Name: "pods"}).Extract())
	subnet := must[*subnets.Subnet](t)(subnets.Create(t.Context(), n,
		subnets.CreateOpts{NetworkID: network.ID, CIDR: "10.1.0.0/24", IPVersion: gophercloud.IPv4}).Extract())
	group := must[*groups.SecGroup](t)(groups.Create(t.Context(), n, groups.CreateOpts{Name: "g"}).Extract())
	port := must[*ports.Port](t)(ports.Create(t.Context(), n,
		ports.CreateOpts{NetworkID: network.ID, SecurityGroups: &[]string{group.ID}}).Extract())
	if len(port.FixedIPs) != 1 || port.FixedIPs[0].SubnetID != subnet.ID || port.SecurityGroups[0] != group.ID {
		t.Errorf("the port is %+v", port)
	}
	if _, err := attributestags.ReplaceAll(t.Context(), n, "ports", port.ID, attributestags.ReplaceAllOpts{Tags: []string{"mine"}}).Extract(); err != nil {
		t.Error(err)
	}
	page, err := ports.List(n, ports.ListOpts{Tags: "mine"}).AllPages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found := must[[]ports.Port](t)(ports.ExtractPorts(page)); len(found) != 1 || found[0].ID != port.ID {
		t.Errorf("by tag: %+v", found)
	}
	router := must[*routers.Router](t)(routers.Create(t.Context(), n, routers.CreateOpts{Name: "r"}).Extract())
	if _, err := routers.AddInterface(t.Context(), n, router.ID, routers.AddInterfaceOpts{SubnetID: subnet.ID}).Extract(); err != nil {
		t.Error(err)
	}
	if err := networks.Delete(t.Context(), n, network.ID).ExtractErr(); !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
		t.Errorf("deleting a network in use: %v, want 409", err)
	}
	if err := ports.Delete(t.Context(), n, port.ID).ExtractErr(); err != nil {
		t.Error(err)
	}
	if got := c.Objects()["ports"]; got != 1 { // the router's
		t.Errorf("%d ports are left, want 1", got)
	}
}

func TestGophercloudLoadBalancer(t *testing.T) {
	c := openstacksim.Start(t)
	p, endpoint := provider(t, c)
	n, o := service(t)(openstack.NewNetworkV2(p, endpoint)), service(t)(openstack.NewLoadBalancerV2(p, endpoint))
	network := must[*networks.Network](t)(networks.Create(t.Context(), n, networks.CreateOpts{}).Extract())
	subnet := must[*subnets.Subnet](t)(subnets.Create(t.Context(), n,
		subnets.CreateOpts{NetworkID: network.ID, CIDR: "10.1.0.0/24", IPVersion: gophercloud.IPv4}).Extract())
	lb := must[*loadbalancers.LoadBalancer](t)(loadbalancers.Create(t.Context(), o,
		loadbalancers.CreateOpts{Name: "lb", VipSubnetID: subnet.ID, Provider: "ovn"}).Extract())
	listener := must[*listeners.Listener](t)(listeners.Create(t.Context(), o,
		listeners.CreateOpts{LoadbalancerID: lb.ID, Protocol: listeners.ProtocolTCP, ProtocolPort: 80}).Extract())
	pool := must[*pools.Pool](t)(pools.Create(t.Context(), o,
		pools.CreateOpts{ListenerID: listener.ID, Protocol: pools.ProtocolTCP, LBMethod: pools.LBMethodSourceIpPort}).Extract())
	name := "m"
	err := pools.BatchUpdateMembers(t.Context(), o, pool.ID, []pools.BatchUpdateMemberOpts{{Address: "10.1.0.9", ProtocolPort: 8080, Name: &name}}).ExtractErr()
	if err != nil {
		t.Fatal(err)
	}
	if got := must[*loadbalancers.LoadBalancer](t)(loadbalancers.Get(t.Context(), o, lb.ID).Extract()); got.ProvisioningStatus != "ACTIVE" || got.VipAddress == "" {
		t.Errorf("the load balancer is %+v", got)
	}
	tree := must[*loadbalancers.StatusTree](t)(loadbalancers.GetStatuses(t.Context(), o, lb.ID).Extract())
	if l := tree.Loadbalancer.Listeners; len(l) != 1 || len(l[0].Pools) != 1 || len(l[0].Pools[0].Members) != 1 {
		t.Errorf("the tree is %+v", tree.Loadbalancer)
	}
	if err := loadbalancers.Delete(t.Context(), o, lb.ID, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr(); err != nil {
		t.Error(err)
	}
	if left := c.Objects(); left["loadbalancers"]+left["listeners"]+left["pools"]+left["ports"] != 0 {
		t.Errorf("left over: %v", left)
	}
}

// gophercloud logs in again when its token has expired, and sees dialled faults
// as it sees those of a real cloud.
func TestGophercloudFaults(t *testing.T) {
	c := openstacksim.Start(t)
	p, endpoint := provider(t, c)
	n := service(t)(openstack.NewNetworkV2(p, endpoint))
	for _, tc := range []struct {
		line string
		want int
	}{
		{"network POST /v2.0/networks: 503", 503},
		{"network POST /v2.0/networks: over-quota", 409},
		{"network POST /v2.0/networks: {fault: {status: 429, retryAfter: 1s}}", 429},
		{"network POST /v2.0/networks: [expired-token, 403]", 403},
	} {
		if err := c.Dial(tc.line); err != nil {
			t.Fatal(err)
		}
		if err := networks.Create(t.Context(), n, networks.CreateOpts{}).Err; !gophercloud.ResponseCodeIs(err, tc.want) {
			t.Errorf("%s: got %v, want %d", tc.line, err, tc.want)
		}
	}
	if got := c.Count("POST", "auth/tokens"); got != 2 {
		t.Errorf("logged in %d times, want again after the token had expired", got)
	}
}
