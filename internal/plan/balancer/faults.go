// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Level says how much of a load balancer is made anew to mend a part of it.
type Level int

// A fault that one level does not mend is mended at the next.
const (
	LevelMember Level = iota
	LevelPool
	LevelListener     // with its pool
	LevelFailover     // the provider makes the load balancer anew, with all that is below it
	LevelLoadBalancer // at the same address, with the same floating IP
	levels
)

// String describes what a level does.
func (l Level) String() string {
	return [...]string{
		"send the members to the provider again", "recreate the pool", "recreate the listener and its pool",
		"fail over the load balancer", "recreate the load balancer at the same address",
	}[l]
}

// Fault is an object that does not work and that no other step of the plan mends.
type Fault struct {
	LoadBalancerID, VIP string
	Port                string // as TCP:53; empty: the load balancer itself is broken
	What                string // the broken object, for people
	Level               Level  // the gentlest level that may help
	Pending             bool   // shown as being changed, below a load balancer that is not
	Serves              bool   // clients are served all the same, or nothing is to be served
	reached             bool   // clients are served
	steps               steps
	members             []string // keys of the removals of broken members
	removal             []string // keys of the removal that the cloud does not do
}

// steps are the steps that mend a port, by level; nil: the level has no step.
type steps [levels]Step

// place is an address that is to have a load balancer.
type place struct {
	vip, id string // id is empty without a load balancer
	active  bool   // it accepts changes
	broken  bool   // it is in ERROR
	ports   []portState
}

// portState is the state of a port that is wanted.
type portState struct {
	name    string
	pool    string // ID
	well    bool   // all of it exists, and none is in ERROR
	serves  bool   // an endpoint is reached, or the port has no endpoint
	reached bool   // an endpoint is reached
	steps   steps
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

// placeOf returns the state of the load balancer at a place; have is nil if it has none.
func placeOf(want, have *sdn.LoadBalancer, f sdn.Features) place {
	p := place{vip: want.VIP.IP}
	if have != nil {
		p.broken = have.Provisioning == sdn.ProvisioningError
		p.id, p.active = have.ID, have.Provisioning == sdn.ProvisioningActive || have.Provisioning == ""
	}
	for i := range want.Listeners {
		w := &want.Listeners[i]
		s := portState{name: portName(w)}
		if have != nil {
			if j := slices.IndexFunc(have.Listeners, func(l sdn.Listener) bool { return keyOf(&l) == keyOf(w) }); j >= 0 {
				s.look(w, &have.Listeners[j])
				s.steps = stepsOf(have, &have.Listeners[j], f)
			}
		}
		p.ports = append(p.ports, s)
	}
	return p
}

// look notes the state of a listener that is wanted like this.
func (s *portState) look(want, have *sdn.Listener) {
	if have.Pool == nil {
		return
	}
	s.pool = have.Pool.ID
	if failed(have.Provisioning) || failed(have.Pool.Provisioning) {
		return
	}
	s.well = !isBroken(have.Provisioning) && !isBroken(have.Pool.Provisioning)
	wanted := map[memberKey]bool{}
	for i := range want.Pool.Members {
		wanted[keyOfMember(&want.Pool.Members[i])] = true
	}
	s.serves = len(wanted) == 0
	for i := range have.Pool.Members {
		switch m := &have.Pool.Members[i]; {
		case isBroken(m.Provisioning):
			s.well = false
		case wanted[keyOfMember(m)]:
			s.serves, s.reached = true, true
		}
	}
	s.well = s.well && s.serves
}

// stepsOf returns the steps that make a port anew, without the one for its members alone.
func stepsOf(lb *sdn.LoadBalancer, l *sdn.Listener, f sdn.Features) steps {
	const because = "it cannot be repaired in place"
	var s steps
	if l.Pool != nil {
		s[LevelPool] = DeletePool{lb.ID, l.Pool.ID, because}
	}
	s[LevelListener] = DeleteListener{lb.ID, l.ID, because, false}
	if f.FailOver {
		s[LevelFailover] = FailOver{lb.ID}
	}
	s[LevelLoadBalancer] = DeleteLoadBalancer{ID: lb.ID, Because: because}
	return s
}

// faults finds what is in ERROR at a place.
func faults(p *place, want, have *sdn.LoadBalancer, f sdn.Features) (all []Fault) {
	if have.Provisioning == sdn.ProvisioningError {
		return []Fault{brokenBalancer(p, have, f)}
	}
	for i := range want.Listeners {
		w := &want.Listeners[i]
		for j := range have.Listeners {
			if h := &have.Listeners[j]; keyOf(h) == keyOf(w) {
				if fault, is := brokenListener(h); is {
					fault.LoadBalancerID, fault.VIP, fault.Port = have.ID, p.vip, portName(w)
					fault.Serves, fault.reached = p.ports[i].serves, p.ports[i].reached
					s := p.ports[i].steps
					if fault.Level == LevelMember {
						s[LevelMember] = renewal(have.ID, w, h)
						fault.members = memberKeys(have.ID, h)
					}
					fault.steps = s
					all = append(all, fault)
				}
				break
			}
		}
	}
	return all
}

// brokenBalancer is the fault of a load balancer in ERROR. If it still serves and can be failed
// over, it is not made anew: the cloud may have no room for another.
func brokenBalancer(p *place, lb *sdn.LoadBalancer, f sdn.Features) Fault {
	fault := Fault{LoadBalancerID: lb.ID, VIP: p.vip, What: "load balancer " + lb.ID, Level: LevelFailover, Serves: mayServe(lb)}
	if f.FailOver {
		fault.steps[LevelFailover] = FailOver{lb.ID}
	}
	if !fault.Serves || !f.FailOver {
		fault.steps[LevelLoadBalancer] = DeleteLoadBalancer{ID: lb.ID, Because: "it is in ERROR"}
	}
	return fault
}

// mayServe reports whether clients may be served by a load balancer that is in ERROR: by its operating
// status, some or all of it works.
func mayServe(lb *sdn.LoadBalancer) bool {
	return slices.Contains([]string{"ONLINE", "DEGRADED", "DRAINING", "NO_MONITOR"}, lb.Operating)
}

func brokenListener(l *sdn.Listener) (Fault, bool) {
	switch {
	case isBroken(l.Provisioning):
		return Fault{What: "listener " + l.ID, Level: LevelListener, Pending: busy(l.Provisioning)}, true
	case l.Pool == nil:
	case isBroken(l.Pool.Provisioning):
		return Fault{What: "pool " + l.Pool.ID, Level: LevelPool, Pending: busy(l.Pool.Provisioning)}, true
	default:
		var names []string
		pending := true
		for _, m := range brokenMembers(l) {
			names = append(names, cmp.Or(m.Name, m.IP))
			pending = pending && busy(m.Provisioning)
		}
		if len(names) > 0 {
			return Fault{What: "member " + first(names), Level: LevelMember, Pending: pending}, true
		}
	}
	return Fault{}, false
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

// resisting returns the faults of removals that were tried again and again and are still
// needed. While clients are served, such a step is repeated with growing pauses. Then it is
// taken out of the plan, except for members to add. It forgets removals that are not needed
// any more.
func (p *planner) resisting() (all []Fault) {
	m, now, pause := p.Attempts, p.in.Now, p.in.Pause
	var steps []Step
	for _, s := range p.Steps {
		f, keys := Fault{}, removals(s)
		is := len(keys) > 0 && !slices.ContainsFunc(keys, func(key string) bool { return m.Times(key) < resistsAfter })
		if is {
			f, is = p.faultOf(s)
		}
		if is {
			f.What += ", which the cloud does not delete"
			f.removal = keys
			all = append(all, f)
		}
		if c, changes := s.(ChangeMembers); is && changes && len(c.Add) > 0 {
			c.Remove = nil
			steps = append(steps, c)
		} else if !is || m.spares(&f, keys, now, pause) > 0 && m.longest(keys, now) == 0 {
			steps = append(steps, s)
		}
	}
	p.Steps = steps
	for i := range p.faults { // to send the members again did not help
		f := &p.faults[i]
		if f.Level == LevelMember && slices.ContainsFunc(f.members, func(key string) bool { return m.Times(key) >= resistsAfter }) &&
			m.spares(f, f.members, now, pause) == 0 {
			f.Level = LevelPool
		}
	}
	for key := range m {
		if strings.HasPrefix(key, removing) && !p.present[key] {
			delete(m, key)
		}
	}
	return all
}

// spares returns for how long an object that serves is not made anew although a part of it
// is not deleted: the deletion may succeed later. The time begins with the first deletion.
func (m Attempts) spares(f *Fault, keys []string, now time.Time, pause time.Duration) time.Duration {
	first := now
	for _, key := range keys {
		if a := m[key]; a != nil && a.First.Before(first) {
			first = a.First
		}
	}
	if !f.reached || len(keys) == 0 {
		return 0
	}
	return max(0, first.Add(restTimes*pause).Sub(now))
}

// longest returns the longest wait of these keys.
func (m Attempts) longest(keys []string, now time.Time) (wait time.Duration) {
	for _, key := range keys {
		wait = max(wait, m.Waits(key, now))
	}
	return wait
}

// note notes which objects of a load balancer exist, by the keys of their removals.
func (p *planner) note(lb *sdn.LoadBalancer) {
	for i := range lb.Listeners {
		l := &lb.Listeners[i]
		p.present[listenerRemoval(lb.ID, l.ID)] = true
		if l.Pool != nil {
			for j := range l.Pool.Members {
				p.present[memberRemoval(lb.ID, l.Pool.ID, &l.Pool.Members[j])] = true
			}
		}
	}
}

func listenerRemoval(lb, id string) string { return removing + lb + " listener " + id }

func memberRemoval(lb, pool string, m *sdn.Member) string {
	return fmt.Sprintf("%s%s member %s %s %d", removing, lb, pool, plain(m.IP), m.Port)
}

// memberKeys returns the keys of the removals of broken members.
func memberKeys(lb string, l *sdn.Listener) (keys []string) {
	for _, m := range brokenMembers(l) {
		keys = append(keys, memberRemoval(lb, l.Pool.ID, &m))
	}
	return keys
}

// faultOf returns what has to be mended if a removal does not work.
func (p *planner) faultOf(s Step) (Fault, bool) {
	i := slices.IndexFunc(p.places, func(a place) bool { return a.id != "" && a.id == Target(s) })
	if i < 0 {
		return Fault{}, false
	}
	at := &p.places[i]
	f := Fault{LoadBalancerID: at.id, VIP: at.vip}
	switch s := s.(type) {
	case DeleteListener:
		f.Port, f.What, f.Level, f.Serves = s.ID, "listener "+s.ID, LevelFailover, true
		f.reached = slices.ContainsFunc(at.ports, func(s portState) bool { return s.reached })
		f.steps[LevelLoadBalancer] = DeleteLoadBalancer{ID: at.id, Because: "its listener cannot be deleted"}
		return f, true
	case ChangeMembers:
		for _, port := range at.ports {
			if port.pool == s.PoolID {
				f.Port, f.What, f.Level, f.Serves = port.name, "member "+s.Remove[0].Name, LevelPool, port.serves
				f.steps, f.reached = port.steps, port.reached
				return f, true
			}
		}
	}
	return f, false
}

// resistsAfter is after how many removals an object counts as one that cannot be deleted.
const resistsAfter = 3

// removing begins the keys of removals.
const removing = "remove "

// removals returns the keys of what a step removes.
func removals(s Step) (keys []string) {
	switch s := s.(type) {
	case DeleteListener:
		keys = append(keys, listenerRemoval(s.LoadBalancerID, s.ID))
	case ChangeMembers:
		for i := range s.Remove {
			keys = append(keys, memberRemoval(s.LoadBalancerID, s.PoolID, &s.Remove[i]))
		}
	}
	return keys
}
