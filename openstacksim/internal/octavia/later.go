// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

// This file is what ovn-octavia-provider 8.0.0 does otherwise than 3.0.0 once the answer has been
// sent: helper.py.

// recent reports whether 8.0.0 serves a load balancer.
func (s *Service) recent(lb *loadBalancer) bool { return s.o.Later && lb.Provider == ovnName }

// deaf reports whether no change of a member of that protocol ends, nor the creation of a monitor.
// The provider asks Octavia for all listeners and pools by the IDs that OVN has of them, to which
// it adds ":D" if they are disabled, and fails at the first that Octavia does not have:
// _get_current_operating_statuses.
func (s *Service) deaf(lb *loadBalancer, protocol string) bool {
	if !s.recent(lb) {
		return false
	}
	for _, l := range s.listenersOf(lb.ID) {
		if l.Protocol == protocol && !l.AdminStateUp {
			return true
		}
	}
	for _, p := range s.poolsOf(lb.ID) {
		if p.Protocol == protocol && !p.AdminStateUp {
			return true
		}
	}
	return lb.torn
}

// tell is _get_current_operating_statuses: a change of one member reports all that OVN has of its
// protocol, as ACTIVE.
func (s *Service) tell(lb *loadBalancer, protocol string) {
	pools, members := map[string]string{}, 0
	for _, p := range s.poolsOf(lb.ID) {
		if p.Protocol == protocol && p.ProvisioningStatus != pendingCreate {
			known, wrong := s.tellMembers(p)
			members += known
			pools[p.ID] = health(wrong, known)
		}
	}
	all := []string{}
	for _, p := range s.poolsOf(lb.ID) {
		if status, ok := pools[p.ID]; ok {
			if members == 0 {
				status = offline
			}
			pools[p.ID], p.OperatingStatus = status, status
			s.settle(&p.base, active)
		}
	}
	for _, l := range s.listenersOf(lb.ID) {
		if l.Protocol == protocol && l.ProvisioningStatus != pendingCreate {
			l.OperatingStatus = worst(pools[deref(l.DefaultPoolID)])
			all = append(all, l.OperatingStatus)
			s.settle(&l.base, active)
		}
	}
	lb.OperatingStatus = worst(all...)
	if !lb.AdminStateUp {
		lb.OperatingStatus = offline
	}
	s.settle(&lb.base, active)
}

// tellMembers returns how many members of a pool OVN has, and how many of these are in ERROR. Octavia
// writes PENDING_DELETE for a list of members after the provider's first report; observed.
func (s *Service) tellMembers(p *pool) (known, wrong int) {
	for _, m := range s.membersOf(p.ID) {
		if m.ProvisioningStatus == pendingCreate {
			continue
		}
		known++
		if m.OperatingStatus == failed {
			wrong++
		}
		if m.ProvisioningStatus != pendingDelete {
			s.settle(&m.base, active)
		}
	}
	return known, wrong
}

func health(wrong, known int) string {
	switch {
	case wrong == 0:
		return online
	case wrong < known:
		return degraded
	}
	return failed
}

// worst returns the status of what has parts of these statuses.
func worst(parts ...string) string {
	for _, status := range []string{failed, degraded} {
		if contains(parts, status) {
			return status
		}
	}
	return online
}

// told ends a change of a member or monitor of p with change, unless the provider is deaf or p has
// been deleted since.
func (s *Service) told(p *pool, change func()) {
	lb, _ := s.loadBalancers.Get(p.LoadBalancerID)
	if _, there := s.pools.Get(p.ID); !there || s.deaf(lb, p.Protocol) {
		return
	}
	change()
	s.tell(lb, p.Protocol)
}

// parts are the ends of a batch of members. The first already shows the load balancer as ACTIVE.
func (s *Service) parts(b *batch) (all []func()) {
	for _, m := range b.made {
		all = append(all, func() {
			s.settle(&m.base, active)
			s.joined(b.pool, m)
		})
	}
	for _, m := range b.changed {
		all = append(all, func() {
			m.lost = false // the provider creates a member that it receives and does not know
			s.settle(&m.base, active)
			report(m)
		})
	}
	for _, m := range b.gone {
		switch {
		case b.additive:
			all = append(all, func() {})
		case !m.lost: // otherwise nothing deletes it
			all = append(all, func() { s.members.Delete(m.ID) })
		}
	}
	return all
}

// tear is _lb_delete with a member in OVN that the provider cannot end the deletion of: the load
// balancer goes into ERROR, without its listeners. Each attempt takes one member from OVN. It
// reports whether there was one.
func (s *Service) tear(lb *loadBalancer) bool {
	for _, p := range s.poolsOf(lb.ID) {
		for _, m := range s.membersOf(p.ID) {
			if m.lost || !s.deaf(lb, p.Protocol) {
				continue
			}
			for _, l := range s.listenersOf(lb.ID) {
				s.dropListener(l)
			}
			m.lost, lb.torn = true, true
			s.settle(&lb.base, failed)
			lb.OperatingStatus = failed
			return true
		}
	}
	return false
}
