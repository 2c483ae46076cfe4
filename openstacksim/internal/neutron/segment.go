// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

// segment carries a network: a geneve number, a VLAN of a physical network, or a physical
// network.
type segment struct {
	kind, physical string
	id             int
}

// takeSegment takes the segment that the network asks for. The default is one of geneve, the test
// bed's type for networks of projects.
func (c *call) takeSegment(n *network, in values) *fault {
	segs := in.list("segments")
	if len(segs) == 1 { // the same in the form for several providers
		m, _ := segs[0].(map[string]any)
		in = values(m)
	}
	n.NetworkType, n.PhysicalNetwork, n.SegmentationID = in.text("provider:network_type"), nil, nil
	physical := in.text("provider:physical_network")
	id, given := parseInt(in["provider:segmentation_id"])
	given = given && in.has("provider:segmentation_id")
	if n.NetworkType == "" {
		if physical != "" || given {
			return invalid("network_type required")
		}
		n.NetworkType = "geneve"
	}
	if f := segmentWrong(n.NetworkType, physical, id, given); f != nil {
		return f
	}
	s := segment{n.NetworkType, physical, id}
	if n.NetworkType == "local" {
		return nil
	}
	if !given && n.NetworkType != "flat" {
		s = c.freeSegment(s)
	}
	if f := c.segmentTaken(s); f != nil {
		return f
	}
	c.segments[s] = n.ID
	c.undo(func() { delete(c.segments, s) })
	if s.physical != "" {
		n.PhysicalNetwork = &s.physical
	}
	if n.NetworkType != "flat" {
		n.SegmentationID = &s.id
	}
	return nil
}

// segmentWrong refuses values that a type of network cannot have (neutron 21.0.0:
// plugins/ml2/managers.py, plugins/ml2/drivers/type_*.py).
func segmentWrong(kind, physical string, id int, given bool) *fault {
	switch kind {
	case "geneve":
		if physical != "" {
			return invalid("provider:physical_network specified for geneve network")
		}
	case "flat":
		switch {
		case physical == "":
			return invalid("physical_network required for flat provider network")
		case given && id != 0:
			return invalid("segmentation_id prohibited for flat provider network")
		}
	case "vlan":
		switch {
		case physical == "" && given:
			return invalid("segmentation_id requires physical_network for VLAN provider network")
		case given && (id < 1 || id > 4094):
			return invalid("segmentation_id out of range (1 through 4094)")
		}
	case "local":
		switch {
		case physical != "":
			return invalid("physical_network prohibited for local provider network")
		case given && id != 0:
			return invalid("segmentation_id prohibited for local provider network")
		}
	default:
		return invalid("network_type value '%s' not supported", kind)
	}
	return nil
}

// freeSegment returns the first free segment of a type.
func (c *call) freeSegment(s segment) segment {
	if s.kind == "vlan" && s.physical == "" {
		s.physical = "external" // the test bed's only physical network
	}
	if s.kind == "geneve" { // there may be many, so the search continues after the last one
		for c.lastSegment++; c.segments[segment{s.kind, "", c.lastSegment}] != ""; {
			c.lastSegment++
		}
		s.id = c.lastSegment
		return s
	}
	for s.id = 100; c.segments[s] != ""; {
		s.id++
	}
	return s
}

func (c *call) segmentTaken(s segment) *fault {
	if c.segments[s] == "" {
		return nil
	}
	switch s.kind {
	case "flat":
		return conflict("FlatNetworkInUse", "Unable to create the flat network. Physical network %s is in use.", s.physical)
	case "vlan":
		return conflict("VlanIdInUse", "Unable to create the network. The VLAN %d on physical network %s is in use.", s.id, s.physical)
	}
	return conflict("TunnelIdInUse", "Unable to create the network. The tunnel ID %d is in use.", s.id)
}

func (c *call) releaseSegment(n *network) {
	s := segment{kind: n.NetworkType}
	if n.PhysicalNetwork != nil {
		s.physical = *n.PhysicalNetwork
	}
	if n.SegmentationID != nil {
		s.id = *n.SegmentationID
	}
	if owner := c.segments[s]; owner == n.ID {
		delete(c.segments, s)
		c.undo(func() { c.segments[s] = owner })
	}
}

// sameSegment refuses to change the segment of a network (neutron 21.0.0: plugins/ml2/plugin.py,
// _update_provider_network_attributes). Neutron can change the number of a VLAN whose ports are
// not bound. The simulator refuses that, too.
func sameSegment(n, old *network, in values) *fault {
	if n.NetworkType != old.NetworkType || !equal(n.PhysicalNetwork, old.PhysicalNetwork) {
		return invalid("Plugin does not support updating the following provider network attributes: provider:network_type, provider:physical_network")
	}
	if in.has("provider:segmentation_id") && !equal(n.SegmentationID, old.SegmentationID) {
		return invalid("Only can be updated the segmentation ID of a VLAN network: %s", n.NetworkType)
	}
	return nil
}
