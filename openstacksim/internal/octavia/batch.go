// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

// batch is a PUT of all members of a pool.
type batch struct {
	pool                *pool
	made, changed, gone []*member
	in                  map[*member]values // the requested values of changed members
	additive            bool
}

// putMembers is octavia 11.0.0, api/v2/controllers/member.py, MembersController.put. It changes
// all members or none.
func (c *call) putMembers(p *pool, body values) (answer, *fault) {
	members, bad := membersOf(body)
	if bad != nil {
		return answer{}, bad
	}
	b := &batch{pool: p, in: map[*member]values{}, additive: truth(c.r.URL.Query().Get("additive_only"))}
	if bad := c.allow(mayWrite, p.ProjectID); bad != nil {
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
	fresh, bad := c.sort(b, members)
	if bad != nil {
		return answer{}, bad
	}
	if len(fresh)+len(b.changed)+len(b.gone) == 0 {
		return answer{status: 202}, nil
	}
	if bad := c.makeAll(b, fresh); bad != nil {
		return answer{}, bad
	}
	if bad := d.batch(c, p, b.told()); bad != nil {
		return answer{}, bad
	}
	if c.death == RolledBack {
		c.rollBack(b)
		return answer{status: 202}, nil
	}
	c.commit(b, hold)
	return answer{status: 202}, nil
}

func membersOf(body values) ([]values, *fault) {
	if !body.given("members") {
		return nil, crash("'UnsetType' object is not iterable")
	}
	if body.null("members") {
		return nil, crash("'NoneType' object is not iterable")
	}
	out := body.objects("members")
	for _, m := range out {
		if m == nil {
			return nil, crash("'NoneType' object has no attribute 'address'")
		}
	}
	return out, nil
}

type place struct {
	address string
	port    int64
}

func placeOf(in values) place {
	port, _ := in["protocol_port"].(int64)
	return place{in.text("address"), port}
}

// sort finds which members are new, which stay, and which are deleted.
func (c *call) sort(b *batch, members []values) (fresh []values, bad *fault) {
	old := map[place]*member{}
	for _, m := range c.membersOf(b.pool.ID) {
		old[place{m.Address, int64(m.ProtocolPort)}] = m
	}
	asked := map[place]bool{}
	for _, in := range members {
		at := placeOf(in)
		asked[at] = true
		m, known := old[at]
		switch {
		case !known:
			if bad := reserved(in); bad != nil {
				return nil, bad
			}
			fresh = append(fresh, in)
		default:
			_, twice := b.in[m]
			if twice && c.o.Later { // octavia 16.0.0
				return nil, invalid("Member must be updated only once in the same request.")
			}
			if !twice {
				b.changed = append(b.changed, m)
			}
			b.in[m] = in
		}
	}
	for _, m := range c.membersOf(b.pool.ID) {
		if !asked[place{m.Address, int64(m.ProtocolPort)}] {
			b.gone = append(b.gone, m)
		}
	}
	return fresh, nil
}

func (c *call) makeAll(b *batch, fresh []values) *fault {
	more := len(fresh)
	if !b.additive {
		more -= len(b.gone)
	}
	if more > 0 && c.overQuota("member", b.pool.ProjectID, more) {
		return quotaMet("Member")
	}
	seen := map[place]bool{}
	for _, in := range fresh {
		if bad := c.subnetKnown(in); bad != nil {
			return bad
		}
		m, bad := c.newMember(b.pool, in)
		if bad != nil {
			return bad
		}
		if at := placeOf(in); seen[at] {
			return refuse(409, "Another member on this pool is already using ip %s on protocol_port %d", at.address, at.port)
		}
		seen[placeOf(in)] = true
		b.made = append(b.made, m)
	}
	return nil
}

// told returns the members that the provider receives. Deleted members are missing, unless the
// request is additive.
func (b *batch) told() []*member {
	out := append([]*member{}, b.made...)
	for _, m := range b.changed {
		next := *m
		b.fill(&next, b.in[m])
		out = append(out, &next)
	}
	if b.additive {
		out = append(out, b.gone...)
	}
	return out
}

// fill sets the given values, and defaults for the others. The subnet stays.
func (b *batch) fill(m *member, in values) {
	subnet := m.SubnetID
	apply(m, in.without("project_id", "tenant_id"))
	m.tidy(in)
	if !in.given("subnet_id") {
		m.SubnetID = subnet
	}
}

func (c *call) commit(b *batch, hold lock) {
	c.hold(hold)
	for _, m := range b.made {
		c.members.Put(m)
	}
	for _, m := range b.changed {
		b.fill(m, b.in[m])
		c.settle(&m.base, pendingUpdate)
	}
	if !b.additive {
		for _, m := range b.gone {
			c.settle(&m.base, pendingDelete)
		}
	}
	s := c.Service
	if s.recent(hold.lb) {
		parts := s.parts(b)
		if len(parts) == 0 {
			return
		}
		c.begin("member", b.pool.ID, "update", func() { s.told(b.pool, parts[0]) }, func() { s.failBatch(b, hold) }, func() {
			for _, part := range parts[1:] {
				s.told(b.pool, part)
			}
		})
		return
	}
	if s.noticed(b) {
		c.begin("member", b.pool.ID, "update", func() { s.endBatch(b, hold) }, func() { s.failBatch(b, hold) })
	}
}

func (s *Service) endBatch(b *batch, hold lock) {
	for _, m := range b.made {
		s.settle(&m.base, active)
		s.joined(b.pool, m)
	}
	for _, m := range b.changed {
		m.lost = false // the provider creates a member that it receives and does not know
		s.settle(&m.base, active)
		report(m)
	}
	if !b.additive {
		for _, m := range b.gone {
			if !s.isLost(b.pool, m) { // otherwise the member stays PENDING_DELETE
				s.left(b.pool, m)
			}
		}
	}
	s.release(hold)
}

func (s *Service) failBatch(b *batch, hold lock) {
	for _, group := range [][]*member{b.made, b.changed, b.gone} {
		for _, m := range group {
			if m.ProvisioningStatus != active {
				s.settle(&m.base, failed)
				m.OperatingStatus = failed
			}
		}
	}
	s.release(hold)
}
