// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/netip"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// portSpec is a port that Neutron itself makes: for a router, a floating IP.
type portSpec struct {
	ProjectID, NetworkID, Name, DeviceID, DeviceOwner string
	Status                                            string // "" is DOWN
	Addresses                                         []wish // nil: one of each IP version; else just these
}

// newPort makes and stores a port as Neutron itself does: no access rule and no
// quota applies. It is undone with the request.
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
		DeviceID: spec.DeviceID, DeviceOwner: spec.DeviceOwner, Status: spec.Status, AdminStateUp: true, VNICType: "normal",
	}
	inner := *c // what Neutron does for a caller it does with all rights
	inner.who.Roles = []string{"admin"}
	f := createPort(&inner, p, in)
	c.undos, c.laters = inner.undos, inner.laters
	if f != nil {
		return nil, f
	}
	c.ports.put(c, p)
	return p, scheduleBinding(c, p)
}

// dropPort removes a port whatever it is used for. It does nothing if there is none.
func (c *call) dropPort(id string) *fault {
	p, ok := c.ports.rows.Get(id)
	if !ok {
		return nil
	}
	f := c.clearPort(p)
	c.ports.drop(c, id)
	return f
}

// portsOn are the ports that have an address of the subnet.
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

// subnetsOf are the subnets of the network, in the order of their IDs.
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

// VIPPort is a port that a load balancer service asks for.
type VIPPort struct {
	ProjectID, NetworkID, SubnetID      string
	Address                             netip.Addr // zero: any of the subnet; with no subnet, of the network
	Name, DeviceOwner, DeviceID, Status string
}

// MakePort makes a port as a service does that has all rights. The error is a
// *RefusedError.
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
			DeviceID: spec.DeviceID, DeviceOwner: spec.DeviceOwner, Addresses: wanted,
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

// RefusedError is what Neutron would have answered.
type RefusedError struct {
	Status        int    // of HTTP
	Type, Message string // of its NeutronError
}

func (r *RefusedError) Error() string { return r.Type + ": " + r.Message }

// refused runs f as the service's own doing, all or nothing.
func (s *Service) refused(f func(*call) *fault) error {
	var why *fault
	if err := s.inside(func(c *call) *fault { why = f(c); return why }); err != nil {
		return &RefusedError{Status: why.status, Type: why.kind, Message: why.message}
	}
	return nil
}

// PortInfo is what other services ask of a port.
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

// Port is the port of that ID.
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

// RemovePort removes the port. It succeeds when there is none.
func (s *Service) RemovePort(id string) error {
	return s.inside(func(c *call) *fault {
		return c.dropPort(id)
	})
}

// Shows reports whether who sees the network, subnet or port, as a GET would tell.
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

// Subnet is what other services ask of a subnet, whoever sees it.
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

// NetworkSubnets are the IDs of the network's subnets; nil without the network.
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
