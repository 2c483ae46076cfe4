// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import "net/netip"

func (c *call) routeMembers(p *pool, rest []string) *controller {
	if len(rest) == 0 {
		return &controller{
			get: func() (answer, *fault) {
				if bad := c.allow(mayRead, p.ProjectID); bad != nil {
					return answer{}, bad
				}
				return list(c, c.members, "members", "", func(m *member) bool { return m.PoolID == p.ID }, c.viewMember)
			}, extra: true, remove: lacking("id"),
			post:  &bodied{argument: "member_", root: "MemberRootPOST", do: func(in values) (answer, *fault) { return c.createMember(p, in) }},
			put:   &bodied{argument: "members_", root: "MembersRootPUT", optional: true, do: func(in values) (answer, *fault) { return c.putMembers(p, in) }},
			names: []string{"additive_only"},
		}
	}
	id := rest[0]
	return &controller{
		get: func() (answer, *fault) {
			m, bad := c.member(p, id, mayRead)
			if bad != nil {
				return answer{}, bad
			}
			return c.one("member", c.viewMember(m), rest)
		}, extra: true,
		post:   misplaced("member_", "MemberRootPOST", id),
		put:    &bodied{argument: "member_", root: "MemberRootPUT", do: func(in values) (answer, *fault) { return c.updateMember(p, id, in) }},
		remove: func() (answer, *fault) { return c.deleteMember(p, id) },
	}
}

func (c *call) member(p *pool, id string, r right) (*member, *fault) {
	m, ok := c.members.Get(id)
	if !ok {
		return nil, notFound("Member", id)
	}
	if bad := c.allow(r, m.ProjectID); bad != nil {
		return nil, bad
	}
	if m.PoolID != p.ID {
		return nil, notFound("Member", id)
	}
	return m, nil
}

// holdMembers returns the lock for a change of p's members.
func (c *call) holdMembers(p *pool) lock {
	lb, _ := c.loadBalancers.Get(p.LoadBalancerID)
	return lock{lb: lb, listeners: c.usersOf(p.ID), pool: p}
}

// reserved refuses the address of the metadata service, which Octavia reserves by default.
func reserved(in values) *fault {
	address := in.text("address")
	if in.null("address") {
		return crash("None does not appear to be an IPv4 or IPv6 address")
	}
	if a, err := netip.ParseAddr(address); err == nil && a == netip.AddrFrom4([4]byte{169, 254, 169, 254}) {
		return notOption(address, "member address")
	}
	return nil
}

func (c *call) createMember(p *pool, body values) (answer, *fault) {
	in, bad := below(body, "member", "project_id")
	if bad != nil {
		return answer{}, bad
	}
	if bad := c.allow(mayWrite, p.ProjectID); bad != nil {
		return answer{}, bad
	}
	if bad := reserved(in); bad != nil {
		return answer{}, bad
	}
	if bad := c.subnetKnown(in); bad != nil {
		return answer{}, bad
	}
	hold := c.holdMembers(p)
	d, bad := c.driver(hold.lb.Provider)
	if bad != nil {
		return answer{}, bad
	}
	if c.overQuota("member", p.ProjectID, 1) {
		return answer{}, quotaMet("Member")
	}
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	m, bad := c.newMember(p, in)
	if bad == nil {
		bad = d.createMember(c, p, m)
	}
	if bad != nil {
		return answer{}, bad
	}
	c.members.Put(m)
	s := c.Service
	c.work("member", "create", &m.base, hold, func() { s.joined(p, m) })
	return answer{201, record{"member": c.viewMember(m)}}, nil
}

func (c *call) subnetKnown(in values) *fault {
	id := in.text("subnet_id")
	if id == "" {
		return nil
	}
	if _, known := c.subnet(id); !known {
		return refuse(400, "Subnet %s not found.", id)
	}
	return nil
}

// newMember makes a member without storing it.
func (c *call) newMember(p *pool, in values) (*member, *fault) {
	if bad := reserved(in); bad != nil {
		return nil, bad
	}
	if in.null("protocol_port") { // the database refuses it
		return nil, crash("Something unknown went wrong")
	}
	port, _ := in["protocol_port"].(int64)
	for _, m := range c.membersOf(p.ID) {
		if m.Address == in.text("address") && int64(m.ProtocolPort) == port {
			return nil, refuse(409, "Another member on this pool is already using ip %s on protocol_port %d", m.Address, port)
		}
	}
	// octavia 16.0.0: api/v2/controllers/member.py; no flavor of the simulator allows it.
	if in.flag("request_sriov") {
		return nil, refuse(400, "The load balancer flavor does not allow SR-IOV member ports.")
	}
	m := &member{PoolID: p.ID, Weight: 1, VNICType: "normal"}
	m.base = c.fresh(p.ProjectID)
	apply(m, in.without("project_id", "tenant_id"))
	m.tidy(in)
	m.OperatingStatus = noMonitor
	if p.HealthMonitorID != nil {
		m.OperatingStatus = offline
	}
	return m, nil
}

// tidy replaces null by the values that it stands for.
func (m *member) tidy(in values) {
	if in.null("weight") {
		m.Weight = 1
	}
	if m.Tags == nil {
		m.Tags = []string{}
	}
}

// joined is ovn-octavia-provider 3.0.0, helper.py, member_create.
func (s *Service) joined(p *pool, m *member) {
	p.OperatingStatus = online
	report(m)
	if !m.AdminStateUp {
		m.OperatingStatus = offline
	}
	if lb, ok := s.loadBalancers.Get(p.LoadBalancerID); ok && s.watched(lb, p) && (m.AdminStateUp || !s.recent(lb)) {
		m.OperatingStatus = failed // see createMonitor's end
	}
}

// report sets the operating status of a member without a monitor.
func report(m *member) {
	m.OperatingStatus = noMonitor
	if !m.AdminStateUp {
		m.OperatingStatus = offline
	}
}

// watched reports whether OVN has a health check on the load balancer for p's protocol.
func (s *Service) watched(lb *loadBalancer, p *pool) bool {
	if lb.Provider != ovnName {
		return false
	}
	for _, other := range s.poolsOf(lb.ID) {
		if other.Protocol == p.Protocol && other.HealthMonitorID != nil {
			return true
		}
	}
	return false
}

func (c *call) updateMember(p *pool, id string, body values) (answer, *fault) {
	m, bad := c.member(p, id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	in, bad := below(body, "member", "backup")
	if bad != nil {
		return answer{}, bad
	}
	hold := c.holdMembers(p)
	d, bad := c.driver(hold.lb.Provider)
	if bad != nil {
		return answer{}, bad
	}
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	if bad := d.updateMember(c, p, m, in); bad != nil {
		return answer{}, bad
	}
	apply(m, in)
	m.tidy(in)
	s := c.Service
	c.work("member", "update", &m.base, hold, func() {
		if in.given("admin_state_up") {
			report(m)
		} else if s.recent(hold.lb) {
			m.OperatingStatus = noMonitor
		}
	})
	return answer{200, record{"member": c.viewMember(m)}}, nil
}

func (c *call) deleteMember(p *pool, id string) (answer, *fault) {
	m, bad := c.member(p, id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	hold := c.holdMembers(p)
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	s := c.Service
	if c.death == RolledBack {
		m.lost = true
		return answer{status: 204}, nil
	}
	lost := s.isLost(p, m) && !s.recent(hold.lb)
	c.work("member", "delete", &m.base, hold, func() {
		if lost { // ovn-octavia-provider 3.0.0: "Member … not found in the pool"
			s.settle(&m.base, failed)
			return
		}
		s.left(p, m)
	})
	return answer{status: 204}, nil
}

func (s *Service) left(p *pool, m *member) {
	s.members.Delete(m.ID)
	p.OperatingStatus = upDown(len(s.membersOf(p.ID)) > 0)
}
