// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import "time"

// change is the provider's work after the answer has been sent.
type change struct {
	delay time.Duration
	end   func() // runs with the service's lock held
}

// begin starts the provider's work on an object. It ends by good or by bad. More steps follow good,
// each after as long again.
func (c *call) begin(kind, id, action string, good, bad func(), more ...func()) {
	if c.death == Killed {
		return
	}
	delay, outcome := c.o.Delay(kind, id, action)
	switch outcome {
	case "STUCK":
		return
	case "ERROR":
		c.later = append(c.later, change{delay, bad})
	default:
		for i, step := range append([]func(){good}, more...) {
			c.later = append(c.later, change{time.Duration(i+1) * delay, step})
		}
	}
}

// lock holds the objects that no other request may change during a change of a child: octavia
// 11.0.0, db/repositories.py, test_and_set_lb_and_listeners_prov_status.
type lock struct {
	lb        *loadBalancer
	listeners []*listener
	pool      *pool
	policy    *policy
}

// free refuses a change during another one, or if the parent is in ERROR.
func (l lock) free() *fault {
	switch {
	case l.pool != nil && l.pool.ProvisioningStatus != active:
		return immutable("Pool", l.pool.ID)
	case l.policy != nil && l.policy.ProvisioningStatus != active:
		return immutable("L7Policy", l.policy.ID)
	case l.lb.ProvisioningStatus != active:
		return immutable("Load Balancer", l.lb.ID)
	}
	return nil
}

func (l lock) all() []*base {
	out := []*base{&l.lb.base}
	for _, li := range l.listeners {
		out = append(out, &li.base)
	}
	if l.pool != nil {
		out = append(out, &l.pool.base)
	}
	if l.policy != nil {
		out = append(out, &l.policy.base)
	}
	return out
}

func (c *call) hold(l lock) {
	for _, b := range l.all() {
		b.ProvisioningStatus = pendingUpdate
		c.touch(b)
	}
}

func (s *Service) release(l lock) {
	for _, b := range l.all() {
		if b.ProvisioningStatus == pendingUpdate {
			s.settle(b, active)
		}
	}
	s.observe(l.lb)
}

func (s *Service) settle(b *base, status string) {
	b.ProvisioningStatus = status
	s.touch(b)
}

// fail ends a failed change of a child, as both providers do. The child is in ERROR; its parents
// can be changed again.
func (s *Service) fail(b *base, l lock) {
	s.settle(b, failed)
	b.OperatingStatus = failed
	s.release(l)
}

// work changes the child b under l. It takes l now. Later it runs done and releases l. A nil done
// only sets b to ACTIVE.
func (c *call) work(kind, action string, b *base, l lock, done func()) {
	c.hold(l)
	switch action {
	case "delete":
		c.settle(b, pendingDelete)
	case "update":
		c.settle(b, pendingUpdate)
	}
	s := c.Service
	end := func() {
		if action != "delete" {
			s.settle(b, active)
		}
		if done != nil {
			done()
		}
		s.release(l)
	}
	good := end
	if s.recent(l.lb) && (kind == "member" || kind == "healthmonitor" && action == "create") {
		good = func() { s.told(l.pool, end) }
	}
	c.begin(kind, b.ID, action, good, func() { s.fail(b, l) })
}

// upDown returns the operating status for an admin state.
func upDown(up bool) string {
	if up {
		return online
	}
	return offline
}

// observe sets the operating statuses of a load balancer with amphorae, as their heartbeats do:
// octavia 11.0.0, amphorae/drivers/health/heartbeat_udp.py. With OVN each change sets them.
func (s *Service) observe(lb *loadBalancer) {
	if lb.Provider != amphoraName || lb.ProvisioningStatus == deleted {
		return
	}
	if lb.ProvisioningStatus == active {
		lb.OperatingStatus = upDown(lb.AdminStateUp)
	}
	for _, l := range s.listenersOf(lb.ID) {
		if l.ProvisioningStatus == active {
			l.OperatingStatus = upDown(l.AdminStateUp && lb.AdminStateUp)
		}
	}
	for _, p := range s.poolsOf(lb.ID) {
		if p.ProvisioningStatus == active {
			p.OperatingStatus = upDown(p.AdminStateUp && len(s.usersOf(p.ID)) > 0)
		}
		s.observeMembers(p)
	}
}

func (s *Service) observeMembers(p *pool) {
	for _, m := range s.membersOf(p.ID) {
		switch {
		case m.ProvisioningStatus != active:
		case !m.AdminStateUp:
			m.OperatingStatus = offline
		case p.HealthMonitorID == nil:
			m.OperatingStatus = noMonitor
		case m.Weight == 0:
			m.OperatingStatus = draining
		default:
			m.OperatingStatus = online
		}
	}
}
