// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package network

// subnet is a subnet.
type subnet struct {
	standard
	Name              string      `json:"name"`
	IPVersion         int         `json:"ip_version"`
	NetworkID         string      `json:"network_id"`
	SubnetPoolID      *string     `json:"subnetpool_id"`
	CIDR              string      `json:"cidr"`
	GatewayIP         *string     `json:"gateway_ip"`
	AllocationPools   []ipRange   `json:"allocation_pools"`
	DNSNameservers    []string    `json:"dns_nameservers"`
	HostRoutes        []hostRoute `json:"host_routes"`
	EnableDHCP        bool        `json:"enable_dhcp"`
	IPv6RAMode        *string     `json:"ipv6_ra_mode"`
	IPv6AddressMode   *string     `json:"ipv6_address_mode"`
	ServiceTypes      []string    `json:"service_types"`
	DNSPublishFixedIP bool        `json:"dns_publish_fixed_ip"`
	SegmentID         *string     `json:"segment_id"`
}

// ipRange is an allocation pool: both ends are in it.
type ipRange struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

// hostRoute is a route to a CIDR.
type hostRoute struct {
	Destination string `json:"destination"`
	NextHop     string `json:"nexthop"`
}

func (s *Service) registerSubnets() {
	s.subnets = &kind[subnet]{
		one: "subnet", many: "subnets", title: "Subnet",
		create: createSubnet, update: updateSubnet, remove: removeSubnet,
		shown: func(c *call, n *subnet) bool {
			net, ok := c.networks.rows.Get(n.NetworkID)
			return c.owns(n.ProjectID) || ok && (net.Shared || c.owns(net.ProjectID))
		},
	}
	register(s, s.subnets)
}

func createSubnet(c *call, n *subnet, in values) *fault      { return nil }
func updateSubnet(c *call, n, old *subnet, in values) *fault { return nil }
func removeSubnet(c *call, n *subnet) *fault                 { return nil }
