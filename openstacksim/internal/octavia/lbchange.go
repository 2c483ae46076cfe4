// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import "slices"

// choose returns the provider, by flavor or name. It checks flavor and zone.
func (c *call) choose(lb *loadBalancer, in values) (driver, *fault) {
	name := ovnName
	byFlavor := ""
	if in.given("flavor_id") {
		f, ok := c.flavors.Get(in.text("flavor_id"))
		switch {
		case !ok:
			return nil, invalid("Invalid flavor_id.")
		case !f.Enabled:
			return nil, refuse(400, "The selected flavor is not allowed in this deployment: %s", f.ID)
		}
		if p, ok := c.flavorProfiles.Get(f.ProfileID); ok {
			byFlavor, name = p.Provider, p.Provider
		}
	}
	if in.given("availability_zone") {
		z, ok := c.zones.Get(in.text("availability_zone"))
		switch {
		case !ok:
			return nil, invalid("Invalid availability zone.")
		case !z.Enabled:
			return nil, refuse(400, "The selected availability_zone is not allowed in this deployment: %s", z.Name)
		}
	}
	if in.given("provider") {
		if byFlavor != "" && byFlavor != in.text("provider") {
			return nil, refuse(400, "Flavor '%s' is not compatible with provider '%s'", in.text("flavor_id"), str(in["provider"]))
		}
		name = in.text("provider")
	}
	d, bad := c.driver(name)
	if bad == nil {
		lb.Provider = d.name()
	}
	return d, bad
}

func (c *call) zoneAccepts(d driver, lb *loadBalancer) *fault {
	if lb.AvailabilityZone == nil {
		return nil
	}
	if _, bad := d.zones(); bad != nil {
		return unimplemented(d.name(), "This provider does not support validating availability zones.")
	}
	return nil
}

func (c *call) updateLoadBalancer(id string, body values) (answer, *fault) {
	lb, bad := c.loadBalancer(id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	in, bad := below(body, "loadbalancer", "vip_qos_policy_id")
	if bad != nil {
		return answer{}, bad
	}
	if policy := in.text("vip_qos_policy_id"); policy != "" {
		return answer{}, refuse(400, "qos_policy %s not found.", policy)
	}
	if lb.ProvisioningStatus != active {
		return answer{}, pendingState(lb)
	}
	apply(lb, in)
	if in.given("tags") && lb.Tags == nil {
		lb.Tags = []string{}
	}
	if lb.VIPGroups == nil {
		lb.VIPGroups = []string{}
	}
	c.settle(&lb.base, pendingUpdate)
	s := c.Service
	c.begin("loadbalancer", id, "update", func() {
		s.settle(&lb.base, active)
		if in.given("admin_state_up") {
			lb.OperatingStatus = upDown(lb.AdminStateUp)
		}
		s.observe(lb)
	}, func() {
		s.settle(&lb.base, failed)
		lb.OperatingStatus = failed
	})
	return answer{200, record{"loadbalancer": c.viewLoadBalancer(lb)}}, nil
}

func pendingState(lb *loadBalancer) *fault {
	return refuse(409, "Invalid state %s of loadbalancer resource %s", lb.ProvisioningStatus, lb.ID)
}

func (c *call) deleteLoadBalancer(id string) (answer, *fault) {
	lb, bad := c.loadBalancer(id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	if !truth(c.r.URL.Query().Get("cascade")) && len(c.listenersOf(id))+len(c.poolsOf(id)) > 0 {
		return answer{}, invalid("Cannot delete Load Balancer %s - it has children", id)
	}
	if lb.ProvisioningStatus != active && lb.ProvisioningStatus != failed {
		return answer{}, pendingState(lb)
	}
	c.settle(&lb.base, pendingDelete)
	s := c.Service
	c.begin("loadbalancer", id, "delete", func() { s.bury(lb) }, func() {
		s.settle(&lb.base, failed)
		lb.OperatingStatus = failed
	})
	return answer{status: 204}, nil
}

// bury removes a load balancer with everything below it and the VIP's port.
func (s *Service) bury(lb *loadBalancer) {
	if s.tear(lb) {
		return
	}
	for _, l := range s.listenersOf(lb.ID) {
		s.dropListener(l)
	}
	for _, p := range s.poolsOf(lb.ID) {
		s.dropPool(p)
	}
	for _, id := range lb.morePorts {
		_ = s.o.Networks.RemovePort(id)
	}
	if lb.ownsPort {
		if err := s.o.Networks.RemovePort(lb.VIPPortID); err != nil {
			s.settle(&lb.base, failed) // ovn-octavia-provider 3.0.0: helper.py, lb_delete
			lb.OperatingStatus = failed
			return
		}
	}
	s.settle(&lb.base, deleted)
	lb.OperatingStatus = offline
}

func (c *call) failOver(id string) (answer, *fault) {
	lb, bad := c.loadBalancer(id, mayAdmin)
	if bad != nil {
		return answer{}, bad
	}
	d, bad := c.driver(lb.Provider)
	if bad != nil {
		return answer{}, bad
	}
	if !slices.Contains([]string{active, failed}, lb.ProvisioningStatus) {
		return answer{}, pendingState(lb)
	}
	if bad := d.failover(); bad != nil {
		return answer{}, bad
	}
	c.settle(&lb.base, pendingUpdate)
	s := c.Service
	c.begin("loadbalancer", id, "update", func() {
		s.settle(&lb.base, active)
		s.observe(lb)
	}, func() { s.settle(&lb.base, failed) })
	return answer{status: 202}, nil
}

func (c *call) statusOf(id string) (answer, *fault) {
	lb, bad := c.loadBalancer(id, mayRead)
	if bad != nil {
		return answer{}, bad
	}
	return answer{200, record{"statuses": record{"loadbalancer": c.viewStatus(lb)}}}, nil
}

// stats are all zero, because the simulator passes no traffic.
var stats = record{"stats": record{"bytes_in": 0, "bytes_out": 0, "active_connections": 0, "total_connections": 0, "request_errors": 0}}

func (c *call) statsOf(id string) (answer, *fault) {
	if _, bad := c.loadBalancer(id, mayRead); bad != nil {
		return answer{}, bad
	}
	return answer{200, stats}, nil
}
