// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestForeignVIP: whoever makes a load balancer needs to see the network, subnet or
// port that it is for, and those of a shared network are seen by all.
func TestForeignVIP(t *testing.T) {
	c, admin := dialled(t)
	tenant := as(t, c, "tenant", "k8s")
	const networks, balancers = "/networking/v2.0", "/load-balancer/v2/lbaas/loadbalancers"
	makeNet := func(cidr string, shared bool) (network, subnet, port string) {
		network = field(admin.must(201, http.MethodPost, networks+"/networks", fmt.Sprintf(`{"network":{"shared":%t}}`, shared)), "id")
		subnet = field(admin.must(201, http.MethodPost, networks+"/subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":%q}}`, network, cidr)), "id")
		port = field(admin.must(201, http.MethodPost, networks+"/ports", fmt.Sprintf(`{"port":{"network_id":%q}}`, network)), "id")
		return network, subnet, port
	}
	network, subnet, port := makeNet("10.1.0.0/24", false)
	open, openSubnet, openPort := makeNet("10.2.0.0/24", true)
	for name, tc := range map[string]struct {
		who    *client
		vip    string
		status int
		says   string
	}{
		"network":                 {tenant, fmt.Sprintf(`"vip_network_id":%q`, network), 400, "Network " + network + " not found."},
		"network and subnet":      {tenant, fmt.Sprintf(`"vip_network_id":%q,"vip_subnet_id":%q`, network, subnet), 400, "Network " + network + " not found."},
		"subnet":                  {tenant, fmt.Sprintf(`"vip_subnet_id":%q`, subnet), 400, "Subnet " + subnet + " not found."},
		"port":                    {tenant, fmt.Sprintf(`"vip_port_id":%q`, port), 400, "Port " + port + " not found."},
		"shared network":          {tenant, fmt.Sprintf(`"vip_network_id":%q`, open), 201, ""},
		"shared network's subnet": {tenant, fmt.Sprintf(`"vip_subnet_id":%q`, openSubnet), 201, ""},
		"port on a shared one":    {tenant, fmt.Sprintf(`"vip_port_id":%q`, openPort), 400, "Port " + openPort + " not found."},
		"a further VIP elsewhere": {tenant, fmt.Sprintf(`"vip_subnet_id":%q,"additional_vips":[{"subnet_id":%q}]`, openSubnet, subnet), 400, "All VIP subnets must belong to the same network."},
		"network, as admin":       {admin, fmt.Sprintf(`"vip_network_id":%q`, network), 201, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := tc.who.send(http.MethodPost, balancers, `{"loadbalancer":{`+tc.vip+`}}`)
			if a.status != tc.status || !strings.Contains(a.body, tc.says) {
				t.Errorf("POST = %d %s, want %d %s", a.status, a.body, tc.status, tc.says)
			}
		})
	}
}
