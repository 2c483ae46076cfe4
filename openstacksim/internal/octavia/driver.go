// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"errors"
	"fmt"
	"net/http"
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
	createAll(listeners []*listener, pools []*pool, monitors []*monitor, members []*member) *fault
	failover() *fault
	flavors() (map[string]string, *fault)
	zones() (map[string]string, *fault)
}

// driver returns an enabled provider: octavia 11.0.0, api/drivers/driver_factory.py.
func (s *Service) driver(name string) (driver, *fault) {
	switch {
	case name == ovnName:
		return ovn{s.o.Later}, nil
	case (name == amphoraName || name == "") && s.o.Amphora:
		return amphora{s.o.Later}, nil
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

// ovn is ovn-octavia-provider 3.0.0: driver.py. If later, it is 8.0.0.
type ovn struct{ later bool }

func (ovn) name() string { return ovnName }

// vip always makes the port, even if the user gave one. Neutron then refuses the address, which
// becomes a 500. The port has neither device_owner nor device_id.
func (o ovn) vip(c *call, lb *loadBalancer) *fault {
	address, _ := netip.ParseAddr(lb.VIPAddress)
	id, address, subnet, err := c.o.Networks.MakePort(VIPPort{
		ProjectID: lb.ProjectID, NetworkID: lb.VIPNetworkID, SubnetID: lb.VIPSubnetID, Address: address,
		Name: "ovn-lb-vip-" + lb.ID,
	})
	if err != nil {
		return o.refused(c, err)
	}
	lb.VIPPortID, lb.VIPAddress, lb.VIPSubnetID, lb.ownsPort = id, address.String(), subnet, true
	if !o.later {
		lb.AdditionalVIPs = []additionalVIP{} // the provider does not implement them
		return nil
	}
	for i := range lb.AdditionalVIPs {
		v := &lb.AdditionalVIPs[i]
		address, _ := netip.ParseAddr(v.IPAddress)
		id, address, _, err := c.o.Networks.MakePort(VIPPort{
			ProjectID: lb.ProjectID, NetworkID: lb.VIPNetworkID, SubnetID: v.SubnetID, Address: address,
			Name: fmt.Sprintf("ovn-lb-vip-additional-%d-%s", i+1, lb.ID),
		})
		if err != nil { // helper.py, create_vip_port
			for _, made := range append(lb.morePorts, lb.VIPPortID) {
				_ = c.o.Networks.RemovePort(made)
			}
			return o.refused(c, err)
		}
		v.IPAddress, lb.morePorts = address.String(), append(lb.morePorts, id)
	}
	return nil
}

// refused is the answer to a VIP that Neutron refuses. openstacksdk, which 8.0.0 uses, does not
// append the request's ID to Neutron's words.
func (o ovn) refused(c *call, err error) *fault {
	if o.later {
		return driverError(ovnName, err.Error())
	}
	return c.neutronRefuses(ovnName, err)
}

// affinity fails for other types than SOURCE_IP, because 8.0.0 asks a dictionary for its type:
// _check_for_supported_session_persistence.
func (o ovn) affinity(kind string) *fault {
	if !o.later || kind == "" || kind == "SOURCE_IP" {
		return nil
	}
	return driverError(ovnName, "'dict' object has no attribute 'type'")
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
	bad := o.protocol(p.Protocol)
	if bad == nil {
		bad = o.algorithm(p.Algorithm)
	}
	if bad == nil && p.Persistence != nil {
		bad = o.affinity(p.Persistence.Type)
	}
	return bad
}

func (o ovn) updatePool(in values) *fault {
	if in.given("lb_algorithm") {
		if bad := o.algorithm(str(in["lb_algorithm"])); bad != nil {
			return bad
		}
	}
	return o.affinity(in.object("session_persistence").text("type"))
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
	if !lb.takes(m.Address) {
		return ovnMixed
	}
	if m.SubnetID == nil && !c.inVIPSubnet(lb, m.Address) {
		return unsupported(ovnName, "Subnet is required, or Loadbalancer associated with Pool must have a subnet, "+
			"for Member creation with OVN Provider Driver if it is not the same as LB VIP subnet")
	}
	return nil
}

var ovnMixed = unsupported(ovnName, "OVN provider does not support mixing IPv4/IPv6 configuration within the same Load Balancer.")

// takes reports whether a member's address is of the VIPs' family, or these are of both:
// _ip_version_differs.
func (lb *loadBalancer) takes(address string) bool {
	mixed := slices.ContainsFunc(lb.AdditionalVIPs, func(v additionalVIP) bool { return isIPv6(v.IPAddress) != isIPv6(lb.VIPAddress) })
	return mixed || isIPv6(address) == isIPv6(lb.VIPAddress)
}

func (c *call) inVIPSubnet(lb *loadBalancer, address string) bool {
	a, err := netip.ParseAddr(address)
	_, cidr, ok := c.o.Networks.Subnet(octavia, lb.VIPSubnetID)
	return err == nil && ok && cidr.Contains(a)
}

// updateMember of 3.0.0 answers 500 for a member that was made without a subnet. The driver checks
// whether the new address is in the VIP's subnet, but a change has no new address. The message is
// that of netaddr 0.8.0.
func (o ovn) updateMember(_ *call, _ *pool, m *member, in values) *fault {
	if m.SubnetID == nil && !o.later {
		return driverError(ovnName, "failed to detect a valid IP address from Unset")
	}
	return o.monitored(in["monitor_address"], in["monitor_port"])
}

func (o ovn) batch(c *call, p *pool, all []*member) *fault {
	lb, _ := c.loadBalancers.Get(p.LoadBalancerID)
	skipped := []any{}
	for _, m := range all {
		switch {
		case o.later && (m.MonitorAddress != nil || m.MonitorPort != nil):
			return unsupported(ovnName, "OVN provider does not support monitor options")
		case o.later && !lb.takes(m.Address):
			return ovnMixed
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

// createAll does not check policies and the members' subnets, nor monitors before 8.0.0.
func (o ovn) createAll(listeners []*listener, pools []*pool, monitors []*monitor, members []*member) *fault {
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
	for _, m := range monitors {
		if bad := o.createMonitor(m); bad != nil && o.later {
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
type amphora struct{ later bool }

func (amphora) name() string { return amphoraName }

// vip is network/drivers/neutron/allowed_address_pairs.py, allocate_vip.
func (a amphora) vip(c *call, lb *loadBalancer) *fault {
	if lb.VIPPortID != "" {
		return nil
	}
	address, _ := netip.ParseAddr(lb.VIPAddress)
	id, address, subnet, err := c.o.Networks.MakePort(VIPPort{
		ProjectID: lb.ProjectID, NetworkID: lb.VIPNetworkID, SubnetID: lb.VIPSubnetID, Address: address,
		Name: "octavia-lb-" + lb.ID, DeviceOwner: "Octavia", DeviceID: "lb-" + lb.ID, Down: true,
	})
	var refused *RefusedError
	switch {
	case a.later && errors.As(err, &refused) && refused.Status == http.StatusBadRequest:
		return driverError(amphoraName, "BadRequestException: 400")
	case err != nil && a.later: // openstacksdk's words, without Neutron's
		return driverError(amphoraName, "ConflictException: 409")
	case err != nil:
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
func (amphora) createAll([]*listener, []*pool, []*monitor, []*member) *fault { return nil }

func (amphora) failover() *fault { return nil }

func (a amphora) flavors() (map[string]string, *fault) {
	known := map[string]string{
		"loadbalancer_topology": "The load balancer topology. One of: SINGLE - One amphora per load balancer. ACTIVE_STANDBY - Two amphora per load balancer.",
		"compute_flavor":        "The compute driver flavor ID.",
		"amp_image_tag":         "The amphora image tag.",
	}
	if a.later {
		known["sriov_vip"] = "When true, the VIP port will be created using an SR-IOV VF port."
		known["allow_member_sriov"] = "When true, users can request a member port be SR-IOV enabled at member creation time."
	}
	return known, nil
}

func (amphora) zones() (map[string]string, *fault) {
	return map[string]string{
		"compute_zone":       "The compute availability zone.",
		"management_network": "The management network ID for the amphora.",
		"valid_vip_networks": "List of network IDs that are allowed for VIP use. " +
			"This overrides/replaces the list of allowed networks configured in `octavia.conf`.",
	}, nil
}
