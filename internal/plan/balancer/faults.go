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
// again, then the port is recreated. If that does not help, the same is done to its load balancer.
const (
	LevelAgain        Level = iota // members are sent to the provider again, or a deletion is
	LevelPort                      // the listener is recreated with its pool and members
	LevelFailover                  // the provider makes the load balancer anew, with all that is below it
	LevelLoadBalancer              // it is recreated at the same address, with the same floating IP
	levels
)

// Fault is an object that does not work and that no other step of the plan repairs.
type Fault struct {
	LoadBalancerID, VIP string
	Port                string       // as TCP:53; empty: the load balancer itself is in ERROR
	What                string       // the broken object, for people
	Serves              bool         // clients are served all the same, or nothing is to be served
	steps               [levels]Step // nil: the level has no step
}

// does describes what a level does.
func (f *Fault) does(l Level) string {
	if _, renews := f.steps[LevelAgain].(RenewMembers); l == LevelAgain && !renews {
		return "delete it"
	}
	return [...]string{
		"send the members to the provider again", "recreate the listener and its pool",
		"fail over the load balancer", "recreate the load balancer at the same address",
	}[l]
}

// place is an address that is to have a load balancer.
type place struct {
	vip, id string // id is empty without a load balancer
	active  bool   // it accepts changes
	broken  bool   // it is in ERROR
	ports   []portState
}

// portState is the state of a port that is wanted.
type portState struct {
	name           string
	listener, pool string // IDs; empty: missing
	serves         bool   // an endpoint is reached, or the port has no endpoint
	reached        bool   // an endpoint is reached
}

// serves reports whether each port of a place serves.
func (p *place) serves() bool {
	return p.active && !slices.ContainsFunc(p.ports, func(s portState) bool { return !s.serves })
}

// isThere reports whether the place has a load balancer with all its ports.
func (p *place) isThere() bool {
	return p.active && !slices.ContainsFunc(p.ports, func(s portState) bool { return s.pool == "" })
}

// servesBeside reports whether a port other than this one serves.
func (p *place) servesBeside(port string) bool {
	return slices.ContainsFunc(p.ports, func(s portState) bool { return s.name != port && s.pool != "" && s.serves })
}

func portName(l *sdn.Listener) string { return fmt.Sprintf("%s:%d", l.Protocol, l.Port) }

// inspect notes the state of the load balancer at an address, and what is in ERROR there; have is nil
// if the address has none.
func (p *planner) inspect(want, have *sdn.LoadBalancer) {
	at := place{vip: want.VIP.IP}
	if have != nil {
		at.id, at.broken = have.ID, have.Provisioning == sdn.ProvisioningError
		at.active = (have.Provisioning == sdn.ProvisioningActive || have.Provisioning == "") && !slices.Contains(p.left, at.id)
	}
	for i := range want.Listeners {
		w := &want.Listeners[i]
		s := portState{name: portName(w)}
		if have != nil {
			if j := slices.IndexFunc(have.Listeners, func(l sdn.Listener) bool { return l.Protocol == w.Protocol && l.Port == w.Port }); j >= 0 {
				s.look(w, &have.Listeners[j])
				p.faultBelow(&at, &s, w, &have.Listeners[j])
			}
		}
		at.ports = append(at.ports, s)
	}
	if at.broken && !slices.Contains(p.left, at.id) {
		p.faults = append(p.faults, p.fault(&at, "", "", "load balancer "+at.id, mayServe(have)))
	}
	p.places = append(p.places, at)
}

// look notes the state of a listener that is wanted like this.
func (s *portState) look(want, have *sdn.Listener) {
	s.listener = have.ID
	if have.Pool == nil {
		return
	}
	s.pool = have.Pool.ID
	if failed(have.Provisioning) || failed(have.Pool.Provisioning) {
		return
	}
	wanted := map[memberKey]bool{}
	for i := range want.Pool.Members {
		wanted[keyOfMember(&want.Pool.Members[i])] = true
	}
	s.reached = slices.ContainsFunc(have.Pool.Members, func(m sdn.Member) bool { return wanted[keyOfMember(&m)] && !isBroken(m.Provisioning) })
	s.serves = s.reached || len(wanted) == 0
}

// faultBelow notes what is in ERROR of a port, if its load balancer accepts changes.
func (p *planner) faultBelow(at *place, s *portState, want, have *sdn.Listener) {
	members := brokenMembers(have)
	f := p.fault(at, s.name, s.listener, "", s.serves)
	switch {
	case !at.active:
		return
	case isBroken(have.Provisioning):
		f.What = "listener " + have.ID
	case have.Pool != nil && isBroken(have.Pool.Provisioning):
		f.What = "pool " + have.Pool.ID
	case len(members) > 0:
		var names []string
		for _, m := range members {
			names = append(names, cmp.Or(m.Name, m.IP))
		}
		f.What, f.steps[LevelAgain] = "member "+first(names), renewal(at.id, want, have)
	default:
		return
	}
	p.faults = append(p.faults, f)
}

// fault returns a fault with the steps that may repair it. port is empty for a load balancer in ERROR,
// listener for what is not below a wanted one. A load balancer in ERROR that still serves and can be
// failed over is not made anew: the cloud may have no room for another.
func (p *planner) fault(at *place, port, listener, what string, serves bool) Fault {
	const because = "it cannot be repaired in place"
	f := Fault{LoadBalancerID: at.id, VIP: at.vip, Port: port, What: what, Serves: serves}
	if listener != "" {
		f.steps[LevelPort] = DeleteListener{at.id, listener, because, false}
	}
	if p.in.Features.FailOver {
		f.steps[LevelFailover] = FailOver{at.id}
	}
	if port != "" || !serves || !p.in.Features.FailOver {
		f.steps[LevelLoadBalancer] = DeleteLoadBalancer{ID: at.id, Because: because}
	}
	return f
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

func brokenMembers(l *sdn.Listener) (broken []sdn.Member) {
	if l.Pool != nil {
		for _, m := range l.Pool.Members {
			if isBroken(m.Provisioning) {
				broken = append(broken, m)
			}
		}
	}
	return broken
}

// renewal sends the broken members of a pool to the provider again, including those that are
// not wanted: a provider that does not know a member cannot delete it either.
func renewal(lb string, want, have *sdn.Listener) Step {
	s := RenewMembers{LoadBalancerID: lb, PoolID: have.Pool.ID, Pool: have.Pool.Name}
	for _, m := range brokenMembers(have) {
		for i := range want.Pool.Members {
			if w := &want.Pool.Members[i]; keyOfMember(w) == keyOfMember(&m) {
				m.Name = w.Name
			}
		}
		s.Members = append(s.Members, sdn.Member{Name: m.Name, IP: m.IP, Port: m.Port, SubnetID: m.SubnetID})
	}
	return s
}

// removing begins the keys of removals.
const removing = "remove "

// resistsAfter is after how many removals an object counts as one that cannot be deleted.
const resistsAfter = 3

// Removed notes a removal that was carried out or refused. From these notes the next plan knows
// what cannot be deleted.
func (m *Attempts) Removed(s Step, now time.Time, least time.Duration, why string) {
	if c, is := s.(ChangeMembers); is && len(c.Add) > 0 {
		return // the additions may be why it is refused
	}
	for _, id := range removals(s) {
		m.Note(removing+id, now, Pauses{least, 1024 * least}, why)
	}
}

// resisting takes the removals out of the plan that were tried again and again and are still needed: they
// are faults. Members to add are added all the same. It forgets removals of what no longer exists.
func (p *planner) resisting() {
	var steps []Step
	for _, s := range p.Steps {
		f, is := p.resists(s)
		if is {
			p.faults = append(p.faults, f)
		}
		if c, changes := s.(ChangeMembers); is && changes && len(c.Add) > 0 {
			c.Remove = nil
			steps = append(steps, c)
		} else if !is {
			steps = append(steps, s)
		}
	}
	p.Steps = steps
	exist := map[string]bool{}
	for i := range p.in.Trees {
		for _, l := range p.in.Trees[i].Listeners {
			exist[removing+l.ID] = true
			if l.Pool != nil {
				for _, m := range l.Pool.Members {
					exist[removing+m.ID] = true
				}
			}
		}
	}
	p.Attempts.keep(removing, exist)
}

// resists returns the fault of a removal that does not work. Nothing else is made anew for it where
// clients are served before the removal was repeated for a quarter of an hour.
func (p *planner) resists(s Step) (f Fault, is bool) {
	ids := removals(s)
	i := slices.IndexFunc(p.places, func(a place) bool { return a.id != "" && a.id == Target(s) })
	if i < 0 || len(ids) == 0 || slices.ContainsFunc(ids, func(id string) bool { return p.Attempts.Times(removing+id) < resistsAfter }) {
		return f, false
	}
	at := &p.places[i]
	switch s := s.(type) {
	case DeleteListener:
		reached := slices.ContainsFunc(at.ports, func(s portState) bool { return s.reached })
		f = p.fault(at, s.ID, "", "listener "+s.ID+", which the cloud does not delete", reached)
		f.steps[LevelAgain] = s
	case ChangeMembers:
		j := slices.IndexFunc(at.ports, func(port portState) bool { return port.pool == s.PoolID })
		if j < 0 {
			return f, false
		}
		port := &at.ports[j]
		f = p.fault(at, port.name, port.listener, "member "+s.Remove[0].Name+", which the cloud does not delete", port.reached)
		s.Add = nil
		f.steps[LevelAgain] = s
	}
	return f, true
}

// removals returns the IDs of what a step removes.
func removals(s Step) (ids []string) {
	switch s := s.(type) {
	case DeleteListener:
		ids = append(ids, s.ID)
	case ChangeMembers:
		for i := range s.Remove {
			ids = append(ids, s.Remove[i].ID)
		}
	}
	return ids
}
