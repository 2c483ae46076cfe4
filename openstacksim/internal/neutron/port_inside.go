// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/netip"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// portSpec is a port that Neutron makes itself, for a router or a floating IP.
type portSpec struct {
	ProjectID, NetworkID, Name, DeviceID, DeviceOwner string
	Status                                            string // "" is DOWN
	Addresses                                         []wish // nil: one of each IP version
	Down                                              bool   // admin_state_up is false
}

// newPort makes and stores a port as Neutron does for itself: without access rules and quota. It
// is undone with the request.
func (c *call) newPort(spec portSpec) (*port, *fault) {
	in := values{inRequest: map[string]bool{}}
	if spec.Addresses != nil {
		list := []any{}
		for _, w := range spec.Addresses {
			list = append(list, map[string]any{"subnet_id": w.subnet, "ip_address": w.address})
		}
		in["fixed_ips"] = list
	}
	p := &port{
		standard: c.newStandard(spec.ProjectID), Name: spec.Name, NetworkID: spec.NetworkID,
		DeviceID: spec.DeviceID, DeviceOwner: spec.DeviceOwner, Status: spec.Status, AdminStateUp: !spec.Down, VNICType: "normal",
	}
	inner := *c // Neutron does this with administrator rights
	inner.who.Roles = []string{"admin"}
	f := createPort(&inner, p, in)
	c.undos, c.laters = inner.undos, inner.laters
	if f != nil {
		return nil, f
	}
	c.ports.put(c, p)
	return p, scheduleBinding(c, p)
}

// dropPort removes a port, even if it is in use. A missing port is no error.
func (c *call) dropPort(id string) *fault {
	p, ok := c.ports.rows.Get(id)
	if !ok {
		return nil
	}
	f := c.clearPort(p)
	c.ports.drop(c, id)
	return f
}

// portsOn returns the ports with an address of the subnet.
func (c *call) portsOn(subnetID string) []*port {
	var out []*port
	for p := range c.ports.rows.All() {
		for _, ip := range p.FixedIPs {
			if ip.SubnetID == subnetID {
				out = append(out, p)
				break
			}
		}
	}
	return out
}

// subnetsOf returns the subnets of the network, ordered by ID.
func (s *Service) subnetsOf(networkID string) []*subnet {
	n, ok := s.networks.rows.Get(networkID)
	if !ok {
		return nil
	}
	out := make([]*subnet, 0, len(n.Subnets))
	for _, id := range n.Subnets {
		if sub, ok := s.subnets.rows.Get(id); ok {
			out = append(out, sub)
		}
	}
	return out
}

// VIPPort is a port that a load balancer service requests.
type VIPPort struct {
	ProjectID, NetworkID, SubnetID string
	// The zero Address is any address of the subnet, or of the network if no subnet is given.
	Address                             netip.Addr
	Name, DeviceOwner, DeviceID, Status string
	Down                                bool // admin_state_up is false
}

// MakePort makes a port as a service with all rights does. The error is a *RefusedError.
func (s *Service) MakePort(spec VIPPort) (id string, address netip.Addr, subnetID string, err error) {
	err = s.refused(func(c *call) *fault {
		var wanted []wish
		if spec.SubnetID != "" || spec.Address.IsValid() {
			w := wish{subnet: spec.SubnetID}
			if spec.Address.IsValid() {
				w.address = spec.Address.String()
			}
			wanted = []wish{w}
		}
		p, f := c.newPort(portSpec{
			ProjectID: spec.ProjectID, NetworkID: spec.NetworkID, Name: spec.Name, Status: spec.Status,
			DeviceID: spec.DeviceID, DeviceOwner: spec.DeviceOwner, Addresses: wanted, Down: spec.Down,
		})
		if f != nil {
			return f
		}
		id = p.ID
		if len(p.FixedIPs) > 0 {
			address, _ = netip.ParseAddr(p.FixedIPs[0].IPAddress)
			subnetID = p.FixedIPs[0].SubnetID
		}
		return nil
	})
	return id, address, subnetID, err
}

// RefusedError is the answer that Neutron would have given.
type RefusedError struct {
	Status        int    // the HTTP status
	Type, Message string // of the NeutronError
}

func (r *RefusedError) Error() string { return r.Type + ": " + r.Message }

// refused runs f with the service's own rights, all or nothing.
func (s *Service) refused(f func(*call) *fault) error {
	var why *fault
	if err := s.inside(func(c *call) *fault { why = f(c); return why }); err != nil {
		return &RefusedError{Status: why.status, Type: why.kind, Message: why.message}
	}
	return nil
}

// PortInfo is the part of a port that other services use.
type PortInfo struct {
	ID, ProjectID, NetworkID, Name, Status string
	DeviceID, DeviceOwner                  string
	Addresses                              []PortAddress
}

// PortAddress is an address of a port.
type PortAddress struct {
	SubnetID string
	Address  netip.Addr
}

// Port returns the port with an ID.
func (s *Service) Port(id string) (PortInfo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.ports.rows.Get(id)
	if !ok {
		return PortInfo{}, false
	}
	info := PortInfo{
		ID: p.ID, ProjectID: p.ProjectID, NetworkID: p.NetworkID, Name: p.Name, Status: p.Status,
		DeviceID: p.DeviceID, DeviceOwner: p.DeviceOwner,
	}
	for _, ip := range p.FixedIPs {
		address, _ := netip.ParseAddr(ip.IPAddress)
		info.Addresses = append(info.Addresses, PortAddress{ip.SubnetID, address})
	}
	return info, true
}

// RemovePort removes a port. A missing port is no error.
func (s *Service) RemovePort(id string) error {
	return s.inside(func(c *call) *fault {
		return c.dropPort(id)
	})
}

// Shows reports whether who would see the network, subnet or port in a GET.
func (s *Service) Shows(who keystone.Caller, kind, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &call{Service: s, who: who}
	var missing *fault
	switch kind {
	case "network":
		_, missing = s.networks.find(c, id)
	case "subnet":
		_, missing = s.subnets.find(c, id)
	case "port":
		_, missing = s.ports.find(c, id)
	default:
		return false
	}
	return missing == nil
}

// Subnet returns what other services use of a subnet, whatever project it belongs to.
func (s *Service) Subnet(id string) (networkID string, cidr netip.Prefix, projectID string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.subnets.rows.Get(id)
	if !ok {
		return "", netip.Prefix{}, "", false
	}
	cidr, _ = netip.ParsePrefix(n.CIDR)
	return n.NetworkID, cidr, n.ProjectID, true
}

// NetworkSubnets returns the IDs of the network's subnets, nil if the network does not exist.
func (s *Service) NetworkSubnets(networkID string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.networks.rows.Get(networkID); !there {
		return nil
	}
	out := []string{}
	for _, n := range s.subnetsOf(networkID) {
		out = append(out, n.ID)
	}
	return out
}
