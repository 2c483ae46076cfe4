// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"fmt"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// A client of gophercloud logs in with what ClientConfig has. Its first request for a
// network fails, as dialled.
func ExampleStart() {
	t, end := example() // in a test, t is its *testing.T
	defer end()

	cloud := openstacksim.Start(t)
	login := cloud.ClientConfig()
	provider, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: login.AuthURL,
		Username:         login.Username,
		Password:         login.Password,
		DomainName:       login.UserDomainName,
		TenantName:       login.ProjectName,
	})
	if err != nil {
		t.Fatalf("logging in: %v", err)
	}
	client, err := openstack.NewNetworkV2(provider, gophercloud.EndpointOpts{Region: login.RegionName})
	if err != nil {
		t.Fatalf("finding Neutron: %v", err)
	}
	if err := cloud.Dial("network POST /v2.0/networks: [over-quota, ok]"); err != nil {
		t.Fatalf("%v", err)
	}
	for range 2 {
		network, err := networks.Create(t.Context(), client, networks.CreateOpts{Name: "pods"}).Extract()
		if err != nil {
			fmt.Println("refused:", gophercloud.ResponseCodeIs(err, 409))
			continue
		}
		fmt.Println(network.Name, network.Status)
	}
	fmt.Println(cloud.Count("POST", "networks"), "requests,", cloud.Objects()["networks"], "network")
	// Output:
	// refused: true
	// pods ACTIVE
	// 2 requests, 1 network
}
