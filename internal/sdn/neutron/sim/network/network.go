// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package network

// network is a network.
type network struct {
	standard
	Name                  string   `json:"name"`
	Subnets               []string `json:"subnets"`
	AdminStateUp          bool     `json:"admin_state_up"`
	Status                string   `json:"status"`
	Shared                bool     `json:"shared"`
	External              bool     `json:"router:external"`
	IsDefault             *bool    `json:"is_default,omitempty"` // of external networks alone
	IPv4AddressScope      *string  `json:"ipv4_address_scope"`
	IPv6AddressScope      *string  `json:"ipv6_address_scope"`
	L2Adjacency           bool     `json:"l2_adjacency"`
	MTU                   int      `json:"mtu"`
	AvailabilityZones     []string `json:"availability_zones"`
	AvailabilityZoneHints []string `json:"availability_zone_hints"`
	PortSecurityEnabled   bool     `json:"port_security_enabled"`
	NetworkType           string   `json:"provider:network_type"`
	PhysicalNetwork       *string  `json:"provider:physical_network"`
	SegmentationID        *int     `json:"provider:segmentation_id"`
	QoSPolicyID           *string  `json:"qos_policy_id"`
	DNSDomain             string   `json:"dns_domain"`
}

func (s *Service) registerNetworks() {
	s.networks = &kind[network]{
		one: "network", many: "networks", title: "Network",
		create: createNetwork, update: updateNetwork, remove: removeNetwork,
		shown: func(c *call, n *network) bool {
			return n.Shared || n.External || c.owns(n.ProjectID) || c.who.Has("advsvc")
		},
	}
	register(s, s.networks)
}

func createNetwork(c *call, n *network, in values) *fault      { return nil }
func updateNetwork(c *call, n, old *network, in values) *fault { return nil }
func removeNetwork(c *call, n *network) *fault                 { return nil }
