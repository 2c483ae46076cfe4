// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import "slices"

// subports checks the ports to be added to a trunk (neutron 21.0.0: services/trunk/rules.py,
// SubPortsValidator).
func (c *call) subports(t *trunk, parent *port, list []any) ([]subPort, *fault) {
	out := []subPort{}
	for _, e := range list {
		m, _ := e.(map[string]any)
		s, f := c.subport(parent, m)
		if f != nil {
			return nil, f
		}
		out = append(out, s)
	}
	for i, s := range out {
		taken := func(o subPort) bool { return o.VLAN == s.VLAN }
		if slices.ContainsFunc(t.SubPorts, taken) || slices.ContainsFunc(out[:i], taken) {
			return nil, conflict("DuplicateSubPort",
				"segmentation_type %s and segmentation_id %d already in use on trunk %s.", s.Type, s.VLAN, t.ID)
		}
	}
	return out, nil
}

func (c *call) subport(parent *port, m map[string]any) (subPort, *fault) {
	id := values(m).text("port_id")
	if id == parent.ID {
		return subPort{}, parentInUse(id)
	}
	p, f := c.ports.find(c, id)
	if f == nil {
		if f := c.tooLarge(parent, p); f != nil {
			return subPort{}, f
		}
	}
	segment, bad := c.segment(m, p)
	if bad != nil {
		return subPort{}, bad
	}
	if f := c.inTrunk(id); f != nil {
		return subPort{}, f
	}
	if f != nil {
		return subPort{}, f
	}
	if p.DeviceID != "" {
		return subPort{}, portInUse(p)
	}
	segment.PortID = p.ID
	return segment, nil
}

// tooLarge refuses a subport whose MTU is larger than its parent's.
func (c *call) tooLarge(parent, p *port) *fault {
	outer, ok1 := c.networks.rows.Get(parent.NetworkID)
	inner, ok2 := c.networks.rows.Get(p.NetworkID)
	if !ok1 || !ok2 || outer.MTU == 0 || inner.MTU <= outer.MTU {
		return nil
	}
	// Neutron 21 prints the parent port's ID in place of the trunk's.
	return conflict("SubPortMtuGreaterThanTrunkPortMtu",
		"MTU %d of subport %s cannot be greater than MTU %d of trunk %s.", inner.MTU, p.ID, outer.MTU, parent.ID)
}

// segment reads the segmentation type and number. "inherit" takes those of the port's network.
func (c *call) segment(m map[string]any, p *port) (subPort, *fault) {
	kind, number := m["segmentation_type"], m["segmentation_id"]
	if kind == "inherit" && p != nil {
		if n, ok := c.networks.rows.Get(p.NetworkID); ok {
			kind, number = n.NetworkType, any(nil)
			if n.SegmentationID != nil {
				number = *n.SegmentationID
			}
		}
	}
	_, typed := m["segmentation_type"]
	_, numbered := m["segmentation_id"]
	if !typed || !numbered && m["segmentation_type"] != "inherit" {
		return subPort{}, invalid("Invalid subport details '%s': missing segmentation information. Must specify both segmentation_id and segmentation_type", repr(m))
	}
	vlan, ok := parseInt(number)
	switch {
	case !ok:
		return subPort{}, invalid("Invalid subport details: segmentation_id '%s' is not an integer", show(number))
	case kind != "vlan":
		return subPort{}, invalid("Unknown segmentation_type '%s'", show(kind))
	case vlan < 1 || vlan > 4094:
		return subPort{}, invalid("Segmentation ID '%d' is not in range", vlan)
	}
	return subPort{Type: "vlan", VLAN: vlan}, nil
}

// subportList returns the list in the body of an action.
func subportList(body map[string]any) ([]any, *fault) {
	v, there := body["sub_ports"]
	if !there { // Neutron 21 answers 500 to this
		return nil, badRequest("Unable to find 'sub_ports' in request body")
	}
	if reason := checkSubports(v, nil); reason != "" {
		return nil, invalid("%s", reason)
	}
	list, _ := v.([]any)
	return list, nil
}

// managed returns the trunk if the caller may change its subports.
func (c *call) managed(id string) (*trunk, *fault) {
	return c.trunks.find(c, id)
}

// addSubports answers with the trunk before its driver has acted: DOWN (observed on Neutron
// 21.0.0). Without subports it stays DOWN.
func addSubports(c *call, id string, body map[string]any) (any, *fault) {
	t, f := c.managed(id)
	if f != nil {
		return nil, f
	}
	list, f := subportList(body)
	if f != nil {
		return nil, f
	}
	parent, ok := c.ports.rows.Get(t.PortID)
	if !ok {
		return nil, c.ports.notFound(t.PortID)
	}
	added, f := c.subports(t, parent, list)
	if f != nil {
		return nil, f
	}
	if f := t.manageable(); f != nil {
		return nil, f
	}
	n := *t
	n.SubPorts = append(slices.Clone(t.SubPorts), added...)
	for _, s := range added {
		c.attach(&n, parent, s)
	}
	return c.subportsChanged(&n, len(added) > 0), nil
}

func removeSubports(c *call, id string, body map[string]any) (any, *fault) {
	t, f := c.managed(id)
	if f != nil {
		return nil, f
	}
	if f := t.manageable(); f != nil {
		return nil, f
	}
	list, f := subportList(body)
	if f != nil {
		return nil, f
	}
	n := *t
	n.SubPorts = slices.Clone(t.SubPorts)
	for _, e := range list {
		m, _ := e.(map[string]any)
		port := values(m).text("port_id")
		i := n.subportIndex(port)
		if i < 0 {
			return nil, refuse(404, "SubPortNotFound", "SubPort %s on trunk %s could not be found.", port, id)
		}
		c.detach(n.SubPorts[i])
		n.SubPorts = slices.Delete(n.SubPorts, i, i+1)
	}
	return c.subportsChanged(&n, len(list) > 0), nil
}

// subportsChanged stores a trunk with other subports as DOWN. After the answer the driver makes
// it ACTIVE.
func (c *call) subportsChanged(t *trunk, some bool) any {
	if t.Status != statusDown || !c.Later { // neutron 26.0.3: a subport is no change of the trunk itself
		t.touch(c)
	}
	t.Status = statusDown
	c.trunks.put(c, t)
	if some {
		c.later(0, func(c *call) {
			now, ok := c.trunks.rows.Get(t.ID)
			if !ok {
				return
			}
			n := *now
			n.Status = statusActive
			n.touch(c)
			c.trunks.put(c, &n)
		})
	}
	return c.trunks.answer(c, t, nil)
}
