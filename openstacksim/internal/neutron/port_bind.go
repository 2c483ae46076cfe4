// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"reflect"
	"slices"
)

// The binding states of a port.
const (
	vifUnbound = "unbound"
	vifOVS     = "ovs"
	vifFailed  = "binding_failed"
)

// ML2/OVN's details of a bound port. The drivers appear after the binding is committed, which
// follows the answer to the POST or PUT (observed on Neutron 21.0.0).
var (
	noDetails    = map[string]any{}
	ovsDetails   = map[string]any{"port_filter": true, "connectivity": "l2"}
	boundDetails = map[string]any{"port_filter": true, "connectivity": "l2", "bound_drivers": map[string]string{"0": "ovn"}}
	// Neutron 26.0.3 commits the binding before it answers, and names bridge and datapath of the
	// host (here those of the test bed).
	laterDetails = map[string]any{
		"port_filter": true, "connectivity": "l2", "bound_drivers": map[string]string{"0": "ovn"},
		"bridge_name": "br-int", "datapath_type": "netdev",
	}
)

// commits is how often committing a binding counts as a change of the port before Neutron 26.0.3
// answers (observed).
const commits = 2

// agentDetails returns ML2/OVS's details of a port that is bound to a host (neutron 21.0.0:
// plugins/ml2/drivers/openvswitch/mech_driver/mech_openvswitch.py, get_vif_details). The drivers
// appear as with ML2/OVN.
func agentDetails(hybrid, committed bool) map[string]any {
	d := map[string]any{
		"port_filter": true, "connectivity": "l2", "ovs_hybrid_plug": hybrid, "datapath_type": "system", "bridge_name": "br-int",
	}
	if committed {
		d["bound_drivers"] = map[string]string{"0": "openvswitch"}
	}
	return d
}

// bindable are the types of interface that OVN binds without further conditions (neutron 21.0.0:
// common/ovn/constants.py and mech_driver.py, bind_port).
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
	switch {
	case p.HostID != "" && c.Later:
		p.RevisionNumber += commits
	case p.HostID != "":
		p.hidden = 1 // the commit of the binding
	}
	return nil
}

// bind binds an unbound port as ML2 does. Binding succeeds on a host with a live agent (neutron
// 21.0.0: plugins/ml2/drivers/ovn/mech_driver/mech_driver.py, bind_port). On another host the port is
// marked as failed.
func (c *call) bind(p *port) {
	p.levels = false
	switch {
	case p.HostID == "" || p.DeviceOwner == ownerFloating:
		p.VIFType, p.VIFDetails = vifUnbound, noDetails
	case slices.Contains(c.Hosts, p.HostID) && !c.dead[p.HostID] && slices.Contains(bindable, p.VNICType):
		p.VIFType, p.VIFDetails = vifOVS, ovsDetails
		if c.Later {
			p.VIFDetails = laterDetails
		}
		if hybrid, is := c.OVS[p.HostID]; is {
			p.VIFDetails = agentDetails(hybrid, c.Later)
		}
	default:
		p.VIFType, p.VIFDetails = vifFailed, noDetails
	}
}

// changeBinding binds again if the host, the type or the profile changes. It also retries a
// failed binding (neutron 21.0.0: plugins/ml2/plugin.py, _process_port_binding,
// _bind_port_if_needed).
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
		// The port stays DOWN even if a node has it plugged, until that node plugs it again
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

// scheduleBinding commits the binding after the answer. The port becomes ACTIVE when a node plugs
// it, or at once if OVN needs no node for it.
func scheduleBinding(c *call, p *port) *fault {
	id, host, committed := p.ID, p.HostID, p.levels
	if c.Later && !committed && p.VIFType == vifOVS && host != "" {
		n := p.copied()
		n.levels = true
		c.ports.put(c, n)
	}
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
	if p.VIFType != vifOVS || committed || !p.awaits || host == "" { // a subport has no host
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

// commitPort makes the writes of Neutron that follow the answer.
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

// plug plugs or unplugs the port on its node.
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

// up handles OVN's report of a port. A bound port and its subports become ACTIVE.
func (c *call) up(id string) {
	p, ok := c.ports.rows.Get(id)
	if !ok || p.VIFType != vifOVS || !p.AdminStateUp {
		return
	}
	c.setStatus(p, statusActive)
	c.eachSubport(id, c.up)
}

// down handles OVN's report that a port has disappeared.
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

// eachSubport calls do for each subport of the parent's trunk.
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

// Plug plugs or unplugs a port as its node does. A bound port becomes ACTIVE, an unplugged one
// DOWN. Repeating it changes nothing.
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

// carried updates the subports after their parent changes hosts. OVN reports them up where the
// parent is plugged, whatever the parent's own status (observed).
func (c *call) carried(p *port) {
	if p.HostID != "" && p.HostID == p.pluggedAt && p.VIFType == vifOVS {
		c.eachSubport(p.ID, c.up)
	} else {
		c.eachSubport(p.ID, c.down)
	}
}
