// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"reflect"
	"slices"
)

// How a port is bound.
const (
	vifUnbound = "unbound"
	vifOVS     = "ovs"
	vifFailed  = "binding_failed"
)

// What ML2/OVN says of a port that it bound. The drivers are there once the
// binding is committed, which is after the answer to the POST or PUT (observed on
// Neutron 21.0.0).
var (
	noDetails    = map[string]any{}
	ovsDetails   = map[string]any{"port_filter": true, "connectivity": "l2"}
	boundDetails = map[string]any{"port_filter": true, "connectivity": "l2", "bound_drivers": map[string]string{"0": "ovn"}}
)

// bindable are the types of interface that OVN binds without more (neutron
// 21.0.0: common/ovn/constants.py and mech_driver.py, bind_port).
var bindable = []string{"normal", "vdpa", "remote-managed"}

// newBinding checks and makes the binding of a new port.
func (c *call) newBinding(p *port) *fault {
	if p.Profile == nil {
		p.Profile = noDetails
	}
	if f := c.profileWrong(p.Profile); f != nil {
		return f
	}
	c.bind(p)
	p.awaits = true
	if p.HostID != "" {
		p.hidden = 1 // the commit of the binding
	}
	return nil
}

// bind does what ML2 does with a port that is not bound: one on a live host gets
// bound, one on another gets marked as having failed.
func (c *call) bind(p *port) {
	p.levels = false
	switch {
	case p.HostID == "" || p.DeviceOwner == ownerFloating:
		p.VIFType, p.VIFDetails = vifUnbound, noDetails
	case slices.Contains(c.Hosts, p.HostID) && slices.Contains(bindable, p.VNICType):
		p.VIFType, p.VIFDetails = vifOVS, ovsDetails
	default:
		p.VIFType, p.VIFDetails = vifFailed, noDetails
	}
}

// changeBinding binds anew if the host, the type or the profile are others, and
// tries again if it has failed before (neutron 21.0.0: plugins/ml2/plugin.py,
// _process_port_binding, _bind_port_if_needed).
func (c *call) changeBinding(p, old *port, in values) *fault {
	if p.Profile == nil {
		p.Profile = noDetails
	}
	changed := p.HostID != old.HostID || p.VNICType != old.VNICType || !reflect.DeepEqual(p.Profile, old.Profile)
	if changed || in.given("binding:profile") {
		if f := c.profileWrong(p.Profile); f != nil {
			return f
		}
	}
	switch {
	case changed:
		// It stays so even if a node has it plugged, until that plugs it anew
		// (observed on Neutron 21.0.0 with OVN 23.03).
		p.Status = statusDown
		c.bind(p)
		p.awaits = p.HostID != old.HostID
		c.carried(p)
		if p.VIFType == vifUnbound && old.VIFType != vifUnbound {
			c.parentUnbound(p)
		}
	case p.HostID != "" && p.VIFType != vifOVS:
		c.bind(p)
		p.awaits = true
	}
	return nil
}

// scheduleBinding has the binding committed after the answer, and the port become
// ACTIVE when it is time: when it is plugged, or at once where OVN has no node do
// that.
func scheduleBinding(c *call, p *port) *fault {
	id, host := p.ID, p.HostID
	if p.hidden > 0 {
		c.later(0, func(c *call) { c.commitPort(id) })
	}
	if p.ofRouter() && p.Status != statusActive {
		c.later(0, func(c *call) {
			if now, ok := c.ports.rows.Get(id); ok && now.ofRouter() {
				c.setStatus(now, statusActive)
			}
		})
	}
	if p.VIFType != vifOVS || p.levels || !p.awaits || host == "" { // a subport has no host
		return nil
	}
	if after, ok := c.Active(id); ok {
		c.later(after, func(c *call) {
			if now, ok := c.ports.rows.Get(id); ok && now.HostID == host {
				c.plug(now, true)
			}
		})
	}
	return nil
}

// commitPort is what Neutron writes of a port after it has answered.
func (c *call) commitPort(id string) {
	p, ok := c.ports.rows.Get(id)
	if !ok || p.hidden == 0 {
		return
	}
	n := p.copied()
	n.levels = p.VIFType == vifOVS && p.HostID != ""
	n.RevisionNumber += p.hidden
	n.hidden = 0
	c.ports.put(c, n)
}

// plug is a node plugging the port, or unplugging it.
func (c *call) plug(p *port, plugged bool) {
	n := p.copied()
	if n.pluggedAt = ""; plugged {
		n.pluggedAt = p.HostID
	}
	c.ports.put(c, n)
	if plugged {
		c.up(p.ID)
	} else {
		c.down(p.ID)
	}
}

// up is OVN reporting a port: it becomes ACTIVE if it is bound, and so do the
// subports that it carries.
func (c *call) up(id string) {
	p, ok := c.ports.rows.Get(id)
	if !ok || p.VIFType != vifOVS || !p.AdminStateUp {
		return
	}
	c.setStatus(p, statusActive)
	c.eachSubport(id, c.up)
}

// down is OVN reporting that a port is no longer there.
func (c *call) down(id string) {
	p, ok := c.ports.rows.Get(id)
	if !ok {
		return
	}
	c.setStatus(p, statusDown)
	c.eachSubport(id, c.down)
}

func (c *call) setStatus(p *port, status string) {
	if p.Status == status {
		return
	}
	n := p.copied()
	n.Status = status
	n.touch(c)
	c.ports.put(c, n)
}

// eachSubport does something to each subport of the trunk whose parent it is.
func (c *call) eachSubport(parent string, do func(id string)) {
	p, ok := c.ports.rows.Get(parent)
	if !ok || p.TrunkDetails == nil {
		return
	}
	if t, ok := c.trunks.rows.Get(p.TrunkDetails.TrunkID); ok {
		for _, s := range t.SubPorts {
			do(s.PortID)
		}
	}
}

// Plug does to a port what a node does that plugs it, or unplugs it: the port
// becomes ACTIVE, if it is bound, or DOWN. Repeating it changes nothing.
func (s *Service) Plug(portID string, plugged bool) error {
	return s.inside(func(c *call) *fault {
		p, ok := c.ports.rows.Get(portID)
		if !ok {
			return c.ports.notFound(portID)
		}
		c.plug(p, plugged)
		return nil
	})
}

// carried has subports follow their parent to another host: OVN has them up
// where the parent is plugged (observed), whatever the parent's own status.
func (c *call) carried(p *port) {
	if p.HostID != "" && p.HostID == p.pluggedAt && p.VIFType == vifOVS {
		c.eachSubport(p.ID, c.up)
	} else {
		c.eachSubport(p.ID, c.down)
	}
}
