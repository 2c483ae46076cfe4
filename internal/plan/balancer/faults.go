// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Level says how much of a load balancer a repair touches.
type Level int

// A fault that one level does not repair is repaired at the next. A part of a Service port is sent
// again, then the port is recreated. If that does not help, its load balancer is failed over, where
// the provider can do so, and then recreated.
const (
	LevelAgain        Level = iota // members are sent to the provider again, or a deletion is
	LevelPort                      // the listener is recreated with its pool and members
	LevelFailover                  // the provider makes the load balancer anew, with all that is below it
	LevelLoadBalancer              // it is recreated at the same address, with the same floating IP
	levels
)

// Fault is an object that does not work and that no other step of the plan repairs.
type Fault struct {
	Step                       // the repair whose turn it is
	LoadBalancerID, VIP string // where the fault is
	Port                string // as TCP:53; empty: the load balancer itself is in ERROR
	What                string // the broken object, for people
	Serves              bool   // clients are served all the same, or nothing is to be served
	Level               Level  // of the step
	Try, Of             int    // the number of the next attempt at this level, and how often it may be tried
	// Replaces says that the step deletes what serves clients: something has to show first that it
	// can be created again.
	Replaces bool

	at     *place
	steps  [levels]Step  // nil: the level has no step
	wait   time.Duration // until the step may be tried
	pause  time.Duration // after it
	total  int           // attempts at its levels up to this one that are not forgotten: Attempts.Tried
	failed string        // why the last one was refused; empty: it was accepted, and had no effect
	spent  bool          // everything that Kuryr can do was done, for now
}

// place is an address that is to have a load balancer.
type place struct {
	want   *sdn.LoadBalancer
	have   *sdn.LoadBalancer // nil: it has none
	active bool              // it accepts changes
	ports  []portState
}

// portState is the state of a port that is wanted.
type portState struct {
	want    *sdn.Listener
	have    *sdn.Listener // nil: it has none
	serves  bool          // an endpoint is reached, or the port has no endpoint
	reached bool          // an endpoint is reached
	member  bool          // an endpoint is a member
}

func (p *place) vip() string { return p.want.VIP.IP }

// broken reports whether the load balancer is in ERROR.
func (p *place) broken() bool {
	return p.have != nil && p.have.Provisioning == sdn.ProvisioningError
}

// isThere reports whether the place has a load balancer with all its ports.
func (p *place) isThere() bool {
	return p.active && !slices.ContainsFunc(p.ports, func(s portState) bool { return !s.isThere() })
}

// serves reports whether each port of a place serves.
func (p *place) serves() bool {
	return p.active && !slices.ContainsFunc(p.ports, func(s portState) bool { return !s.serves })
}

// hasMember reports whether an endpoint of any port is a member, or no port has one. A load balancer in
// ERROR accepts no change: when all endpoints were replaced, it serves nobody, whatever its status says.
func (p *place) hasMember() bool {
	return slices.ContainsFunc(p.ports, func(s portState) bool { return s.member }) ||
		!slices.ContainsFunc(p.ports, func(s portState) bool { return len(s.want.Pool.Members) > 0 })
}

func (s *portState) name() string { return fmt.Sprintf("%s:%d", s.want.Protocol, s.want.Port) }

func (s *portState) isThere() bool { return s.have != nil && s.have.Pool != nil }

// inspect returns the state of the load balancer at an address, and notes what is in ERROR there; have
// is nil if the address has none.
func (p *planner) inspect(want, have *sdn.LoadBalancer) *place {
	at := &place{want: want, have: have}
	left := have == nil || slices.Contains(p.left, have.ID)
	at.active = !left && (have.Provisioning == sdn.ProvisioningActive || have.Provisioning == "")
	for i := range want.Listeners {
		s := portState{want: &want.Listeners[i]}
		if have != nil {
			s.find(have)
		}
		if s.have != nil && at.active {
			p.faultBelow(at, &s)
		}
		at.ports = append(at.ports, s)
	}
	if at.broken() && !left {
		p.fault(at, "load balancer "+have.ID, "", "", mayServe(have) && at.hasMember(), nil)
	}
	return at
}

// find looks for a wanted port at a load balancer, and whether it serves there.
func (s *portState) find(lb *sdn.LoadBalancer) {
	i := slices.IndexFunc(lb.Listeners, func(l sdn.Listener) bool { return l.Protocol == s.want.Protocol && l.Port == s.want.Port })
	if i < 0 {
		return
	}
	s.have = &lb.Listeners[i]
	if !s.isThere() {
		return
	}
	wanted := byKey(s.want.Pool.Members)
	endpoints := slices.DeleteFunc(slices.Clone(s.have.Pool.Members), func(m sdn.Member) bool { return wanted[keyOfMember(&m)] == nil })
	s.member = len(endpoints) > 0
	if failed(s.have.Provisioning) || failed(s.have.Pool.Provisioning) {
		return
	}
	s.reached = slices.ContainsFunc(endpoints, func(m sdn.Member) bool { return !isBroken(m.Provisioning) })
	s.serves = s.reached || len(wanted) == 0
}

// faultBelow notes what is in ERROR of a port. Broken members are sent to the provider again, including
// those that are not wanted: a provider that does not know a member cannot delete it either. What a
// person has disabled is no fault before it is enabled again: to recreate it would enable it.
func (p *planner) faultBelow(at *place, s *portState) {
	var what string
	var again Step
	pool := s.have.Pool
	switch {
	case at.have.Disabled || s.have.Disabled || pool != nil && pool.Disabled:
		return
	case isBroken(s.have.Provisioning):
		what = "listener " + s.have.ID
	case pool == nil:
		return
	case isBroken(pool.Provisioning):
		what = "pool " + pool.ID
	default:
		renew := RenewMembers{Below: Below{LoadBalancerID: at.have.ID}, PoolID: pool.ID, Pool: pool.Name}
		var names []string
		for _, m := range pool.Members {
			if isBroken(m.Provisioning) {
				names = append(names, cmp.Or(m.Name, m.IP))
				renew.Members = append(renew.Members, sdn.Member{Name: m.Name, IP: m.IP, Port: m.Port, SubnetID: m.SubnetID})
			}
		}
		if len(names) == 0 {
			return
		}
		what, again = "member "+first(names), renew
	}
	p.fault(at, what, s.name(), s.have.ID, s.serves, again)
}

// fault notes a fault with the steps that may repair it. port is empty for a load balancer in ERROR,
// listener for what is not below a wanted one. again repeats what may have failed, if not nil. A load
// balancer in ERROR that still serves and can be failed over is not made anew: the cloud may have no room
// for another. Nor is one of which a person has disabled a part: the new one would be enabled.
func (p *planner) fault(at *place, what, port, listener string, serves bool, again Step) {
	const because = "to recreate it"
	id := at.have.ID
	f := Fault{LoadBalancerID: id, VIP: at.vip(), Port: port, What: what + " at " + at.vip(), Serves: serves, at: at}
	f.steps[LevelAgain] = again
	if listener != "" {
		f.What = fmt.Sprintf("%s of port %s at %s", what, port, at.vip())
		f.steps[LevelPort] = DeleteListener{Below{LoadBalancerID: id}, listener, because}
	}
	if p.in.Features.FailOver {
		f.steps[LevelFailover] = FailOver{id}
	}
	off := at.have.Disabled || slices.ContainsFunc(parts(at.have), func(q part) bool { return q.disabled && q.pool == "" })
	if !off && (port != "" || !serves || !p.in.Features.FailOver) {
		f.steps[LevelLoadBalancer] = DeleteLoadBalancer{ID: id, Because: because}
	}
	if slices.ContainsFunc(f.steps[:], func(s Step) bool { return s != nil }) {
		p.faults = append(p.faults, f)
	}
}

// mayServe reports whether clients may be served by a load balancer that is in ERROR: by its operating
// status, some or all of it works.
func mayServe(lb *sdn.LoadBalancer) bool {
	return slices.Contains([]string{"ONLINE", "DEGRADED", "DRAINING", "NO_MONITOR"}, lb.Operating)
}

// failed reports whether an object does not serve. A busy one most likely does.
func failed(p sdn.Provisioning) bool {
	return p == sdn.ProvisioningError || p == sdn.ProvisioningDeleted
}

// isBroken reports whether an object below a load balancer that accepts changes does not work.
// It is in ERROR, or the worker of Octavia that was to change it has died.
func isBroken(p sdn.Provisioning) bool { return p == sdn.ProvisioningError || busy(p) }

// removing begins the keys of removals.
const removing = "remove "

// resistsAfter is after how many removals an object counts as one that cannot be deleted.
const resistsAfter = 3

// Removed notes a removal that was carried out or refused. From these notes the next plan knows
// what cannot be deleted.
func (m *Attempts) Removed(s Step, now time.Time, least time.Duration, why string) {
	var ids []string
	switch s := s.(type) {
	case DeleteListener:
		ids = append(ids, s.ID)
	case ChangeMembers:
		for i := range s.Remove {
			if len(s.Add) == 0 { // else the additions may be why it is refused
				ids = append(ids, s.Remove[i].ID)
			}
		}
	}
	for _, id := range ids {
		m.Note(removing+id, now, Pauses{least, 1024 * least}, why)
	}
}

// resists reports whether the removal of an object was tried often enough, and is still needed. Then it
// is a fault, whose repair begins with that removal. Nothing else is made anew for it where clients are
// served before the removal was repeated for a quarter of an hour.
func (p *planner) resists(id string) bool { return p.Attempts[removing+id].Times >= resistsAfter }

// forgetRemovals forgets removals of what no longer exists.
func (p *planner) forgetRemovals() {
	exist := map[string]bool{}
	for i := range p.in.Trees {
		for _, part := range parts(&p.in.Trees[i]) {
			exist[removing+part.id] = true
		}
	}
	p.Attempts.keep(removing, exist)
}
