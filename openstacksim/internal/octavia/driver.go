// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"net/netip"
	"slices"
)

const (
	ovnName     = "ovn"
	amphoraName = "amphora"
)

// driver is the behaviour of a provider: what it accepts, and what it makes of it. A method that
// refuses has no effect.
type driver interface {
	name() string
	// vip makes lb's VIP port and sets the resulting port, address and subnet.
	vip(c *call, lb *loadBalancer) *fault
	createListener(l *listener) *fault
	updateListener(in values) *fault
	createPool(p *pool) *fault
	updatePool(in values) *fault
	createMember(c *call, p *pool, m *member) *fault
	updateMember(c *call, p *pool, m *member, in values) *fault
	batch(c *call, p *pool, all []*member) *fault
	createMonitor(m *monitor) *fault
	createPolicy(l *listener) *fault
	// createAll checks the children of a fully populated load balancer.
	createAll(listeners []*listener, pools []*pool, members []*member) *fault
	failover() *fault
	flavors() (map[string]string, *fault)
	zones() (map[string]string, *fault)
}

// driver returns an enabled provider: octavia 11.0.0, api/drivers/driver_factory.py.
func (s *Service) driver(name string) (driver, *fault) {
	switch {
	case name == ovnName:
		return ovn{}, nil
	case (name == amphoraName || name == "") && s.o.Amphora:
		return amphora{}, nil
	case name == "":
		name = amphoraName
	}
	return nil, refuse(400, "Provider '%s' is not enabled.", name)
}

func unsupported(provider, format string, args ...any) *fault {
	return refuse(501, "Provider '%s' does not support a requested option: %s", provider, fmt.Sprintf(format, args...))
}

func unimplemented(provider, text string) *fault {
	return refuse(501, "Provider '%s' does not support a requested action: %s", provider, text)
}

func driverError(provider, text string) *fault {
	return crash("Provider '%s' reports error: %s", provider, text)
}

// ovn is ovn-octavia-provider 3.0.0: driver.py.
type ovn struct{}

func (ovn) name() string { return ovnName }

// vip always makes the port, even if the user gave one. Neutron then refuses the address, which
// becomes a 500. The port has neither device_owner nor device_id.
func (ovn) vip(c *call, lb *loadBalancer) *fault {
	address, _ := netip.ParseAddr(lb.VIPAddress)
	id, address, subnet, err := c.o.Networks.MakePort(VIPPort{
		ProjectID: lb.ProjectID, NetworkID: lb.VIPNetworkID, SubnetID: lb.VIPSubnetID, Address: address,
		Name: "ovn-lb-vip-" + lb.ID,
	})
	if err != nil {
		return c.neutronRefuses(ovnName, err)
	}
	lb.VIPPortID, lb.VIPAddress, lb.VIPSubnetID, lb.ownsPort = id, address.String(), subnet, true
	lb.AdditionalVIPs = []additionalVIP{} // the provider does not implement them
	return nil
}

func (ovn) protocol(p string) *fault {
	if slices.Contains([]string{"TCP", "UDP", "SCTP"}, p) {
		return nil
	}
	return unsupported(ovnName, "OVN provider does not support %s protocol", p)
}

func (ovn) algorithm(a string) *fault {
	if a == "SOURCE_IP_PORT" {
		return nil
	}
	return unsupported(ovnName, "OVN provider does not support %s algorithm", a)
}

func (o ovn) createListener(l *listener) *fault {
	if bad := o.protocol(l.Protocol); bad != nil {
		return bad
	}
	return o.cidrs(len(l.AllowedCIDRs))
}

func (ovn) cidrs(n int) *fault {
	if n == 0 {
		return nil
	}
	return unsupported(ovnName, "OVN provider does not support allowed_cidrs option")
}

func (o ovn) updateListener(in values) *fault { return o.cidrs(len(in.list("allowed_cidrs"))) }

func (o ovn) createPool(p *pool) *fault {
	if bad := o.protocol(p.Protocol); bad != nil {
		return bad
	}
	return o.algorithm(p.Algorithm)
}

func (o ovn) updatePool(in values) *fault {
	if !in.given("lb_algorithm") {
		return nil
	}
	return o.algorithm(str(in["lb_algorithm"]))
}

func (ovn) monitored(address, port any) *fault {
	if address == nil && port == nil {
		return nil
	}
	return unsupported(ovnName, "OVN Load Balancer does not support different member monitor address or port.")
}

func (o ovn) createMember(c *call, p *pool, m *member) *fault {
	if m.MonitorAddress != nil || m.MonitorPort != nil {
		return o.monitored(true, true)
	}
	lb, _ := c.loadBalancers.Get(p.LoadBalancerID)
	if isIPv6(m.Address) != isIPv6(lb.VIPAddress) {
		return unsupported(ovnName, "OVN provider does not support mixing IPv4/IPv6 configuration within the same Load Balancer.")
	}
	if m.SubnetID == nil && !c.inVIPSubnet(lb, m.Address) {
		return unsupported(ovnName, "Subnet is required, or Loadbalancer associated with Pool must have a subnet, "+
			"for Member creation with OVN Provider Driver if it is not the same as LB VIP subnet")
	}
	return nil
}

func (c *call) inVIPSubnet(lb *loadBalancer, address string) bool {
	a, err := netip.ParseAddr(address)
	_, cidr, ok := c.o.Networks.Subnet(octavia, lb.VIPSubnetID)
	return err == nil && ok && cidr.Contains(a)
}

// updateMember answers 500 for a member that was made without a subnet. The driver checks whether
// the new address is in the VIP's subnet, but a change has no new address. The message is that of
// netaddr 0.8.0.
func (o ovn) updateMember(_ *call, _ *pool, m *member, in values) *fault {
	if m.SubnetID == nil {
		return driverError(ovnName, "failed to detect a valid IP address from Unset")
	}
	return o.monitored(in["monitor_address"], in["monitor_port"])
}

func (o ovn) batch(c *call, p *pool, all []*member) *fault {
	lb, _ := c.loadBalancers.Get(p.LoadBalancerID)
	skipped := []any{}
	for _, m := range all {
		switch {
		case m.MonitorAddress != nil || m.MonitorPort != nil || isIPv6(m.Address) != isIPv6(lb.VIPAddress):
			skipped = append(skipped, m.ID)
		case m.SubnetID == nil && !c.inVIPSubnet(lb, m.Address):
			return unsupported(ovnName, "Subnet is required, or Loadbalancer associated with Pool must have a subnet, "+
				"for Member batch update with OVN Provider Driver if it is not the same as LB VIP subnet")
		}
	}
	if len(skipped) == 0 {
		return nil
	}
	return unsupported(ovnName, "OVN provider does not support monitor options, so following members skipped: %s", repr(skipped))
}

func (ovn) createMonitor(m *monitor) *fault {
	if m.Type == "UDP-CONNECT" || m.Type == "TCP" {
		return nil
	}
	return unsupported(ovnName, "OVN provider does not support %s health monitor type. Supported types: UDP-CONNECT, TCP", m.Type)
}

func (ovn) createPolicy(*listener) *fault {
	return unimplemented(ovnName, "This provider does not support creating l7policies.")
}

// createAll does not check monitors, policies and the members' subnets.
func (o ovn) createAll(listeners []*listener, pools []*pool, members []*member) *fault {
	for _, l := range listeners {
		if bad := o.createListener(l); bad != nil {
			return bad
		}
	}
	for _, p := range pools {
		if bad := o.createPool(p); bad != nil {
			return bad
		}
	}
	for _, m := range members {
		if m.MonitorAddress != nil || m.MonitorPort != nil {
			return o.monitored(true, true)
		}
	}
	return nil
}

func (ovn) failover() *fault {
	return unsupported(ovnName, "OVN provider does not support loadbalancer failover")
}

func (ovn) flavors() (map[string]string, *fault) {
	return nil, unimplemented(ovnName, "This provider does not support getting the supported flavor metadata.")
}

func (ovn) zones() (map[string]string, *fault) {
	return nil, unimplemented(ovnName, "This provider does not support getting the supported availability zone metadata.")
}

// neutronRefuses is the answer to a VIP that Neutron refuses. The client library appends the
// request's ID.
func (c *call) neutronRefuses(provider string, err error) *fault {
	return driverError(provider, fmt.Sprintf("%v\nNeutron server returns request_ids: ['req-%s']", err, c.o.NewID()))
}

// amphora is octavia 11.0.0: api/drivers/amphora_driver/v2/driver.py.
type amphora struct{}

func (amphora) name() string { return amphoraName }

// vip is network/drivers/neutron/allowed_address_pairs.py, allocate_vip.
func (amphora) vip(c *call, lb *loadBalancer) *fault {
	if lb.VIPPortID != "" {
		return nil
	}
	address, _ := netip.ParseAddr(lb.VIPAddress)
	id, address, subnet, err := c.o.Networks.MakePort(VIPPort{
		ProjectID: lb.ProjectID, NetworkID: lb.VIPNetworkID, SubnetID: lb.VIPSubnetID, Address: address,
		Name: "octavia-lb-" + lb.ID, DeviceOwner: "Octavia", DeviceID: "lb-" + lb.ID, Down: true,
	})
	if err != nil {
		return c.neutronRefuses(amphoraName, err)
	}
	lb.VIPPortID, lb.VIPAddress, lb.VIPSubnetID, lb.ownsPort = id, address.String(), subnet, true
	return nil
}

func (amphora) createListener(*listener) *fault { return nil }
func (amphora) updateListener(values) *fault    { return nil }

func (a amphora) createPool(p *pool) *fault { return a.algorithm(p.Algorithm) }

func (amphora) algorithm(name string) *fault {
	if slices.Contains([]string{"ROUND_ROBIN", "SOURCE_IP", "LEAST_CONNECTIONS"}, name) {
		return nil
	}
	return unsupported(amphoraName, "Amphora provider does not support %s algorithm.", name)
}

func (a amphora) updatePool(in values) *fault {
	if in["lb_algorithm"] == nil {
		return nil
	}
	return a.algorithm(in.text("lb_algorithm"))
}

func (a amphora) createMember(c *call, p *pool, m *member) *fault { return a.batch(c, p, []*member{m}) }

func (amphora) updateMember(*call, *pool, *member, values) *fault { return nil }

func (amphora) batch(c *call, p *pool, all []*member) *fault {
	if p.Protocol != "UDP" && p.Protocol != "SCTP" || len(c.usersOf(p.ID)) == 0 {
		return nil
	}
	lb, _ := c.loadBalancers.Get(p.LoadBalancerID)
	for _, m := range all {
		if isIPv6(m.Address) != isIPv6(lb.VIPAddress) {
			return unsupported(amphoraName, "This provider doesn't support mixing IPv4 and IPv6 addresses "+
				"for its VIP and members in %s load balancers.", p.Protocol)
		}
	}
	return nil
}

func (amphora) createMonitor(*monitor) *fault { return nil }

func (amphora) createPolicy(l *listener) *fault {
	if l.Protocol == "HTTP" || l.Protocol == "TERMINATED_HTTPS" {
		return nil
	}
	return unsupported(amphoraName, "%s protocol listeners do not support L7 policies", l.Protocol)
}

// createAll refuses nothing: the worker receives the request unchecked.
func (amphora) createAll([]*listener, []*pool, []*member) *fault { return nil }

func (amphora) failover() *fault { return nil }

func (amphora) flavors() (map[string]string, *fault) {
	return map[string]string{
		"loadbalancer_topology": "The load balancer topology. One of: SINGLE - One amphora per load balancer. ACTIVE_STANDBY - Two amphora per load balancer.",
		"compute_flavor":        "The compute driver flavor ID.",
		"amp_image_tag":         "The amphora image tag.",
	}, nil
}

func (amphora) zones() (map[string]string, *fault) {
	return map[string]string{
		"compute_zone":       "The compute availability zone.",
		"management_network": "The management network ID for the amphora.",
		"valid_vip_networks": "List of network IDs that are allowed for VIP use. " +
			"This overrides/replaces the list of allowed networks configured in `octavia.conf`.",
	}, nil
}
