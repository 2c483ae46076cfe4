// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import "slices"

// trunk carries subports on its parent port.
type trunk struct {
	standard
	Name         string    `json:"name"`
	AdminStateUp bool      `json:"admin_state_up"`
	PortID       string    `json:"port_id"`
	Status       string    `json:"status"`
	SubPorts     []subPort `json:"sub_ports"` // in the order of their addition; never changed in place
}

// subPort is a port on a trunk.
type subPort struct {
	PortID string `json:"port_id"`
	Type   string `json:"segmentation_type"`
	VLAN   int    `json:"segmentation_id"`
}

// trunkDetails is what the parent port shows of its trunk.
type trunkDetails struct {
	TrunkID  string          `json:"trunk_id"`
	SubPorts []subPortDetail `json:"sub_ports"`
}

type subPortDetail struct {
	subPort
	MACAddress string `json:"mac_address,omitempty"`
}

// seen returns the details for an answer. The answer for a single port includes MAC addresses; a
// list does not (neutron 21.0.0: services/trunk/plugin.py, whose bulk form looks for another
// key).
func (d *trunkDetails) seen(c *call, whole bool) *trunkDetails {
	out := &trunkDetails{TrunkID: d.TrunkID, SubPorts: []subPortDetail{}}
	t, ok := c.trunks.rows.Get(d.TrunkID)
	if !ok {
		return out
	}
	for _, s := range t.SubPorts {
		detail := subPortDetail{subPort: s}
		if p, ok := c.ports.rows.Get(s.PortID); ok && whole {
			detail.MACAddress = p.MACAddress
		}
		out.SubPorts = append(out.SubPorts, detail)
	}
	return out
}

func (s *Service) registerTrunks() {
	s.trunks = &kind[trunk]{
		one: "trunk", many: "trunks", title: "Trunk",
		create: createTrunk, update: func(*call, *trunk, *trunk, values) *fault { return nil }, remove: removeTrunk,
		created: carry,
	}
	register(s, s.trunks)
	s.action("PUT", "/trunks/{id}/add_subports", addSubports)
	s.action("PUT", "/trunks/{id}/remove_subports", removeSubports)
	s.action("GET", "/trunks/{id}/get_subports", func(c *call, id string, _ map[string]any) (any, *fault) {
		t, f := c.trunks.find(c, id)
		if f != nil {
			return nil, f
		}
		return map[string]any{"sub_ports": t.SubPorts}, nil
	})
}

// createTrunk completes a new trunk. OVN prepares nothing for it, so it is ACTIVE at once
// (neutron 21.0.0: services/trunk/drivers/ovn/trunk_driver.py).
func createTrunk(c *call, t *trunk, in values) *fault {
	p, f := c.trunkable(t.PortID)
	if f != nil {
		return f
	}
	t.SubPorts = []subPort{}
	added, f := c.subports(t, p, in.list("sub_ports"))
	if f != nil {
		return f
	}
	t.SubPorts, t.Status, t.RevisionNumber = added, statusActive, 1
	return nil
}

// carry updates the parent port and the subports of a stored trunk.
func carry(c *call, t *trunk) *fault {
	p, _ := c.ports.rows.Get(t.PortID)
	parent := p.copied()
	parent.TrunkDetails = &trunkDetails{TrunkID: t.ID}
	c.ports.put(c, parent)
	for _, s := range t.SubPorts {
		c.attach(t, parent, s)
	}
	return nil
}

// trunkable returns the port if it can be the parent of a new trunk (neutron 21.0.0:
// services/trunk/rules.py, TrunkPortValidator).
func (c *call) trunkable(id string) (*port, *fault) {
	if f := c.inTrunk(id); f != nil {
		return nil, f
	}
	p, f := c.ports.find(c, id)
	if f != nil {
		return nil, f
	}
	// The binding driver of a bound port must support trunks.
	if p.HostID != "" && p.VIFType != vifOVS {
		return nil, parentInUse(id)
	}
	return p, nil
}

// inTrunk refuses a port that is a subport or a parent port. It refuses a parent port only if the
// caller sees the port or the trunk. A trunk has a project, but the record of a subport has none
// (neutron 21.0.0: services/trunk/models.py).
func (c *call) inTrunk(id string) *fault {
	if _, ok := c.subportOf[id]; ok {
		return conflict("TrunkPortInUse", "Port %s is in use by another trunk.", id)
	}
	p, ok := c.ports.rows.Get(id)
	if !ok || p.TrunkDetails == nil {
		return nil
	}
	t, ok := c.trunks.rows.Get(p.TrunkDetails.TrunkID)
	if c.ports.sees(c, p) || ok && c.trunks.sees(c, t) {
		return parentInUse(id)
	}
	return nil
}

func parentInUse(id string) *fault {
	return conflict("ParentPortInUse", "Port %s is currently in use and is not eligible for use as a parent port.", id)
}

func removeTrunk(c *call, t *trunk) *fault {
	if f := t.manageable(); f != nil {
		return f
	}
	p, ok := c.ports.rows.Get(t.PortID)
	if ok && p.HostID != "" && p.VIFType != vifOVS {
		return conflict("TrunkInUse", "Trunk %s is currently in use.", t.ID)
	}
	for _, s := range t.SubPorts {
		c.detach(s)
	}
	if ok {
		parent := p.copied()
		parent.TrunkDetails = nil
		c.ports.put(c, parent)
	}
	return nil
}

func (t *trunk) manageable() *fault {
	if t.AdminStateUp {
		return nil
	}
	return conflict("TrunkDisabled", "Trunk %s is currently disabled.", t.ID)
}

// parentUnbound sets a trunk to DOWN after its parent port was unbound.
func (c *call) parentUnbound(p *port) {
	if p.TrunkDetails == nil {
		return
	}
	t, ok := c.trunks.rows.Get(p.TrunkDetails.TrunkID)
	if !ok || t.Status == statusDown {
		return
	}
	n := *t
	n.Status = statusDown
	n.touch(c)
	c.trunks.put(c, &n)
}

// attach makes a port a subport. The port gets a binding without a host, and the parent's status
// (neutron 21.0.0: services/trunk/drivers/ovn/trunk_driver.py, _set_binding_profile; observed).
func (c *call) attach(t *trunk, parent *port, s subPort) {
	p, ok := c.ports.rows.Get(s.PortID)
	if !ok {
		return
	}
	n := p.copied()
	n.DeviceOwner, n.VIFType, n.Status = ownerSubport, vifOVS, parent.Status
	n.Profile = withKeys(p.Profile, map[string]any{"parent_name": parent.ID, "tag": s.VLAN})
	n.touch(c)
	c.ports.put(c, n)
	c.subportOf[p.ID] = t.ID
	c.undo(func() { delete(c.subportOf, p.ID) })
}

// detach makes a subport an ordinary port. Its host stays, without a binding. OVN reports it down
// later (observed).
func (c *call) detach(s subPort) {
	trunk := c.subportOf[s.PortID]
	delete(c.subportOf, s.PortID)
	c.undo(func() { c.subportOf[s.PortID] = trunk })
	p, ok := c.ports.rows.Get(s.PortID)
	if !ok {
		return
	}
	n := p.copied()
	n.DeviceOwner, n.VIFType, n.levels = "", vifUnbound, false
	n.Profile = withKeys(p.Profile, map[string]any{"parent_name": nil, "tag": nil})
	n.touch(c)
	c.ports.put(c, n)
	c.later(0, func(c *call) {
		if c.subportOf[s.PortID] == "" {
			c.down(s.PortID)
		}
	})
}

// withKeys returns a copy of a map with the keys set, or removed if nil.
func withKeys(m, keys map[string]any) map[string]any {
	out := make(map[string]any, len(m)+len(keys))
	for _, from := range []map[string]any{m, keys} {
		for k, v := range from {
			if v == nil {
				delete(out, k)
			} else {
				out[k] = v
			}
		}
	}
	return out
}

// subportIndex returns the port's index among the subports, -1 if it is none.
func (t *trunk) subportIndex(port string) int {
	return slices.IndexFunc(t.SubPorts, func(s subPort) bool { return s.PortID == port })
}
