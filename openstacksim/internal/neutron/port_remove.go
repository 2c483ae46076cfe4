// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import "slices"

// removePort refuses a port in use. Otherwise it releases the port's addresses.
func removePort(c *call, p *port) *fault {
	if f := c.portInUse(p); f != nil {
		return f
	}
	return c.clearPort(p)
}

// clearPort releases a port's addresses, and dissociates its floating IPs.
func (c *call) clearPort(p *port) *fault {
	c.releaseAddresses(p.FixedIPs)
	c.releaseMAC(p)
	if c.portGone != nil {
		c.portGone(c, p)
	}
	return nil
}

// portInUse refuses ports of trunks and routers, which other calls delete (neutron 21.0.0:
// services/trunk/rules.py; db/l3_db.py, prevent_l3_port_deletion).
func (c *call) portInUse(p *port) *fault {
	if p.TrunkDetails != nil {
		return conflict("PortInUseAsTrunkParent", "Port %s is currently a parent port for trunk %s.", p.ID, p.TrunkDetails.TrunkID)
	}
	if trunk, ok := c.subportOf[p.ID]; ok {
		return conflict("PortInUseAsSubPort", "Port %s is currently a subport for trunk %s.", p.ID, trunk)
	}
	if len(p.FixedIPs) == 0 {
		return nil
	}
	user := ""
	switch {
	case p.DeviceOwner == ownerFloating:
		user = "floatingip"
	case slices.Contains([]string{ownerRouter, ownerGateway, "network:ha_router_replicated_interface"}, p.DeviceOwner):
		user = "router"
	}
	if user == "" || c.projectOf(user, p.DeviceID) == "" {
		return nil
	}
	return conflict("ServicePortInUse", "Port %s cannot be deleted directly via the port API: has device owner %s.", p.ID, p.DeviceOwner)
}
