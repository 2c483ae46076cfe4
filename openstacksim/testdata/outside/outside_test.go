// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package outside uses the simulator as a project does that knows nothing of Kuryr.
// hack/openstacksim-outside.sh runs it in a module of its own.
package outside

import (
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// clients log in to the cloud and find Neutron and Octavia in its catalogue.
func clients(t *testing.T, cloud *openstacksim.Cloud) (neutron, octavia *gophercloud.ServiceClient) {
	t.Helper()
	login := cloud.ClientConfig()
	provider, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: login.AuthURL,
		Username:         login.Username,
		Password:         login.Password,
		DomainName:       login.UserDomainName,
		TenantName:       login.ProjectName,
		AllowReauth:      true,
	})
	if err != nil {
		t.Fatalf("logging in: %v", err)
	}
	where := gophercloud.EndpointOpts{Region: login.RegionName}
	if neutron, err = openstack.NewNetworkV2(provider, where); err != nil {
		t.Fatalf("finding Neutron: %v", err)
	}
	if octavia, err = openstack.NewLoadBalancerV2(provider, where); err != nil {
		t.Fatalf("finding Octavia: %v", err)
	}
	return neutron, octavia
}

func TestPortAndLoadBalancer(t *testing.T) {
	cloud := openstacksim.Start(t)
	neutron, octavia := clients(t, cloud)
	network, err := networks.Create(t.Context(), neutron, networks.CreateOpts{Name: "pods"}).Extract()
	if err != nil {
		t.Fatalf("making a network: %v", err)
	}
	subnet, err := subnets.Create(t.Context(), neutron,
		subnets.CreateOpts{NetworkID: network.ID, CIDR: "10.1.0.0/24", IPVersion: gophercloud.IPv4}).Extract()
	if err != nil {
		t.Fatalf("making a subnet: %v", err)
	}
	port, err := ports.Create(t.Context(), neutron, ports.CreateOpts{NetworkID: network.ID, Name: "pod"}).Extract()
	if err != nil {
		t.Fatalf("making a port: %v", err)
	}
	if len(port.FixedIPs) != 1 || port.FixedIPs[0].SubnetID != subnet.ID {
		t.Errorf("the port has the addresses %+v, want one of subnet %s", port.FixedIPs, subnet.ID)
	}
	made, err := loadbalancers.Create(t.Context(), octavia,
		loadbalancers.CreateOpts{Name: "lb", VipSubnetID: subnet.ID, Provider: "ovn"}).Extract()
	if err != nil {
		t.Fatalf("making a load balancer: %v", err)
	}
	lb, err := loadbalancers.Get(t.Context(), octavia, made.ID).Extract()
	if err != nil {
		t.Fatalf("showing the load balancer: %v", err)
	}
	if lb.ProvisioningStatus != "ACTIVE" || lb.VipAddress == "" {
		t.Errorf("the load balancer is %s with address %q, want ACTIVE with one", lb.ProvisioningStatus, lb.VipAddress)
	}
	if got := cloud.Count("POST", "ports", "201"); got != 1 {
		t.Errorf("%d ports were made by request, want 1: %+v", got, cloud.Counts())
	}
}
