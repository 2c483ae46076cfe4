// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"slices"
	"strings"
)

// network is a network.
type network struct {
	standard
	Name         string   `json:"name"`
	Subnets      []string `json:"subnets"`
	AdminStateUp bool     `json:"admin_state_up"`
	Status       string   `json:"status"`
	Shared       bool     `json:"shared"`
	External     bool     `json:"router:external"`
	// Only external networks have IsDefault; the answer to a POST shows it for all (observed on
	// Neutron 21.0.0).
	IsDefault             *bool    `json:"is_default,omitempty"`
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
	s.segments = map[segment]string{}
	s.networks = &kind[network]{
		one: "network", many: "networks", title: "Network", lost: refusesPage,
		create: createNetwork, update: updateNetwork, remove: removeNetwork, made: madeNetwork,
		shown: func(c *call, n *network) bool {
			return n.Shared || n.External || c.owns(n.ProjectID) || c.who.Has("advsvc")
		},
	}
	register(s, s.networks)
}

// createNetwork completes a new network (neutron 21.0.0: plugins/ml2/plugin.py,
// _create_network_db).
func createNetwork(c *call, n *network, in values) *fault {
	c.defaultGroup(n.ProjectID)
	if f := c.takeSegment(n, in); f != nil {
		return f
	}
	if f := n.setMTU(n.MTU); f != nil {
		return f
	}
	if hints := in.list("availability_zone_hints"); len(hints) > 0 {
		return noZone(hints)
	}
	n.Subnets, n.AvailabilityZones, n.AvailabilityZoneHints = []string{}, []string{}, []string{}
	n.Status, n.L2Adjacency, n.RevisionNumber = "ACTIVE", true, 1
	if !n.External {
		n.IsDefault = nil
		return nil
	}
	return c.onlyDefault(n)
}

// madeNetwork returns the network as the answer to a POST shows it.
func madeNetwork(_ *call, n *network) *network {
	if n.IsDefault != nil {
		return n
	}
	m := *n
	m.IsDefault = new(bool)
	return &m
}

// noZone refuses availability zones, because the simulated cloud has none (neutron 21.0.0:
// db/agents_db.py, validate_availability_zones).
func noZone(hints []any) *fault {
	return refuse(404, "AvailabilityZoneNotFound", "AvailabilityZone %s could not be found.", show(hints[0]))
}

// onlyDefault refuses a second default external network (neutron 21.0.0:
// services/auto_allocate/db.py).
func (c *call) onlyDefault(n *network) *fault {
	if n.IsDefault == nil || !*n.IsDefault {
		return nil
	}
	for o := range c.networks.rows.All() {
		if o.ID != n.ID && o.IsDefault != nil && *o.IsDefault {
			return conflict("DefaultExternalNetworkExists", "A default external network already exists: %s.", o.ID)
		}
	}
	return nil
}

// mtus is the largest MTU by type of network. The physical network carries 1500 bytes; geneve
// needs 38 for its header and 20 for IP (the test bed's settings; neutron 21.0.0:
// plugins/ml2/drivers/type_tunnel.py).
var mtus = map[string]int{"geneve": 1442, "flat": 1500, "vlan": 1500, "local": 1500}

func (n *network) setMTU(mtu int) *fault {
	largest := mtus[n.NetworkType]
	if mtu > largest {
		return invalid("Requested MTU is too big, maximum is %d", largest)
	}
	if n.MTU = mtu; mtu == 0 {
		n.MTU = largest
	}
	return nil
}

// updateNetwork checks a change (neutron 21.0.0: plugins/ml2/plugin.py,
// update_network; db/db_base_plugin_v2.py; db/external_net_db.py).
func updateNetwork(c *call, n, old *network, in values) *fault {
	if f := sameSegment(n, old, in); f != nil {
		return f
	}
	if old.Shared && !n.Shared {
		if f := c.nobodyElse(old); f != nil {
			return f
		}
	}
	if in.has("mtu") && c.Later {
		if f := c.fits(n.MTU, n); f != nil {
			return f
		}
	}
	if f := n.setMTU(n.MTU); f != nil {
		return f
	}
	switch {
	case old.External && !n.External:
		if c.firstPort(n.ID, func(p *port) bool { return p.DeviceOwner == ownerGateway }) != nil {
			return conflict("ExternalNetworkInUse", "External network %s cannot be updated to be made non-external, since it has existing gateway ports.", n.ID)
		}
		n.IsDefault = nil
	case !n.External:
		n.IsDefault = nil
	case n.IsDefault == nil:
		n.IsDefault = new(bool)
	}
	return c.onlyDefault(n)
}

// fits refuses an MTU that is too small for a subnet, 0 included (neutron 26.0.3:
// db/db_base_plugin_v2.py, _validate_change_network_mtu). Neutron 21 accepts it.
func (c *call) fits(mtu int, n *network) *fault {
	for _, id := range n.Subnets {
		s, ok := c.subnets.rows.Get(id)
		for _, least := range []int{500, 1280} {
			if ok && mtu < least && (least == 500 || s.IPVersion == 6) {
				return conflict("NetworkMTUSubnetConflict", "MTU of %s is not valid, subnet requires a minimum of %d", n.ID, least)
			}
		}
	}
	return nil
}

// nobodyElse refuses to stop sharing a network that other projects use.
func (c *call) nobodyElse(n *network) *fault {
	other := c.firstPort(n.ID, func(p *port) bool {
		return p.ProjectID != n.ProjectID && !strings.HasPrefix(p.DeviceOwner, "network:")
	}) != nil
	for _, id := range n.Subnets {
		if s, ok := c.subnets.rows.Get(id); ok && s.ProjectID != n.ProjectID {
			other = true
		}
	}
	if !other {
		return nil
	}
	return conflict("InvalidSharedSetting", "Unable to reconfigure sharing settings for network %s. Multiple tenants are using it.", n.Name)
}

// removeNetwork refuses while the network has ports other than those that Neutron made itself
// (neutron 21.0.0: db/db_base_plugin_v2.py, delete_network). Subnets are deleted with their
// network.
func removeNetwork(c *call, n *network) *fault {
	var used []string
	own := []string{}
	for _, p := range c.portsOf(n.ID) {
		if slices.Contains(autoDeleted, p.DeviceOwner) {
			own = append(own, p.ID)
		} else {
			used = append(used, p.ID)
		}
	}
	if len(used) > 0 {
		return conflict("NetworkInUse", "Unable to complete operation on network %s. There are one or more ports still in use on the network, id for these ports is: %s.",
			n.ID, strings.Join(used, ","))
	}
	for _, id := range own {
		if f := c.dropPort(id); f != nil {
			return f
		}
	}
	for _, id := range n.Subnets {
		c.dropSubnet(id)
	}
	c.releaseSegment(n)
	return nil
}

// autoDeleted are the owners of ports that Neutron deletes with their network or subnet (neutron
// 21.0.0: common/_constants.py).
var autoDeleted = []string{ownerDHCP, "network:distributed", "network:floatingip_agent_gateway"}

// changeNetwork replaces a network by a changed copy.
func (c *call) changeNetwork(id string, change func(n *network)) {
	old, ok := c.networks.rows.Get(id)
	if !ok {
		return
	}
	n := *old
	change(&n)
	n.touch(c)
	c.networks.put(c, &n)
}

// portsOf returns the ports on a network, ordered by ID.
func (c *call) portsOf(network string) []*port {
	var out []*port
	for p := range c.ports.rows.All() {
		if p.NetworkID == network {
			out = append(out, p)
		}
	}
	return out
}

// firstPort returns the first port on a network that passes the test, or nil.
func (c *call) firstPort(network string, test func(*port) bool) *port {
	ports := c.portsOf(network)
	if i := slices.IndexFunc(ports, test); i >= 0 {
		return ports[i]
	}
	return nil
}
