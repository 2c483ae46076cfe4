// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Remedy is a step that may repair something.
type Remedy struct {
	Step
	Fault
	// Replaces says that the step deletes what serves clients: something has to show first that it
	// can be created again.
	Replaces bool
	pause    time.Duration
}

// Tell describes the remedy for people.
func (r *Remedy) Tell() string {
	return fmt.Sprintf("%s: Kuryr tries to %s (try %d)", r.What, r.Step, r.Try)
}

// Tried notes that a remedy was carried out, or that the cloud refused it: why is the refusal.
// A failure during an outage of the cloud must not be noted. After a new load balancer, the
// attempts below it are forgotten: nothing was tried on the new one.
func (m *Attempts) Tried(r *Remedy, now time.Time, why string) {
	if r.Level == LevelLoadBalancer {
		for l := range LevelFailover {
			m.Forget(repairKey(r.Fault.VIP, "", l))
		}
	}
	m.Forget(unfinished + r.Fault.LoadBalancerID + " ") // the provider has begun again
	m.Forget(begun + fingerprint(r.Step))
	key := r.Fault.key(r.Level)
	m.Note(key, now, Pauses{r.pause, r.pause}, why)
	a := (*m)[key]
	if a.Replaced, a.Away = "", false; r.Replaces {
		a.Replaced = Target(r.Step)
	}
	(*m)[key] = a
}

// Begin notes that a remedy was begun, until it is Tried, and reports whether it had begun before.
func (m *Attempts) Begin(r *Remedy, now time.Time) (before bool) {
	return m.Note(begun+fingerprint(r.Step), now, Pauses{}, "") > 1
}

// triesQuick and triesSlow are the attempts at each level before the next level. The first is
// where no client is served, the second where clients are served all the same. A failover interrupts
// them for a moment.
var (
	triesQuick = [levels]int{2, 2, 3, 3}
	triesSlow  = [levels]int{5, 3, 1, 1}
)

// Pauses, as shares or multiples of the first pause where clients are served.
const (
	quickLeast, quickMost = 30, 6 // its shares, where no client is served: first and longest pause
	restLeast, restTimes  = 8, 30 // its multiples when all was tried: first and longest rest
	restMost              = 24    // longest rest of what serves, in units of restTimes
)

// repairing begins the keys of repairs. A load balancer gets a new ID each time it is made anew, so the
// keys have its address.
const repairing = "repair "

// anyPort is in the keys of load balancers that are repaired for a port. A load balancer in ERROR has
// other keys: it is repaired once it is ACTIVE.
const anyPort = "any"

func (f *Fault) key(l Level) string {
	if l >= LevelFailover && f.Port != "" {
		return repairKey(f.VIP, anyPort, l)
	}
	return repairKey(f.VIP, f.Port, l)
}

func repairKey(vip, port string, l Level) string {
	return fmt.Sprintf("%s%s %d %s", repairing, vip, l, port)
}

// repair plans what is done about objects in ERROR, and about objects that cannot be deleted. It
// begins at the gentlest level that may help, and goes up a level when that was tried often
// enough. What still serves clients is repaired last, slowly, and one thing at a time. What serves no
// client passes all levels in less than a minute. Attempts at what works again are forgotten.
func (p *planner) repair() {
	p.forgetRemovals()
	p.cure()
	rank := func(f *Fault) Level { // what serves no client comes first
		if f.Serves {
			return levels + f.Level
		}
		return f.Level
	}
	for i := range p.faults {
		p.faults[i].turn = p.turn(&p.faults[i])
	}
	slices.SortStableFunc(p.faults, func(a, b Fault) int { return cmp.Compare(rank(&a), rank(&b)) })
	p.Spent = len(p.faults) > 0
	for i := range p.faults {
		p.consider(&p.faults[i])
		p.Spent = p.Spent && p.faults[i].over()
	}
	p.Spent = p.Spent && len(p.Remedies) == 0
}

// cure forgets the attempts where everything works again, and where nothing is wanted any more. If
// something soon breaks again, its repair begins at the gentlest level. The pause is longer each time,
// at each level that had to be tried, and is forgotten after a time without a fault.
func (p *planner) cure() {
	all := p.well()
	for key, a := range p.Attempts {
		parts := strings.Split(key, " ") // as repairKey makes it
		if !strings.HasPrefix(key, repairing) {
			continue
		}
		switch well, wanted := all[parts[1]+" "+parts[3]]; {
		case !wanted, a.Times == 0 && p.in.Now.Sub(a.Next) > 2*restTimes*p.in.Pause:
			delete(p.Attempts, key)
		case a.Times > 0 && well:
			least := p.in.Pause
			if parts[2] == fmt.Sprint(LevelAgain) {
				least /= quickLeast
			}
			p.Attempts[key] = Attempt{Cures: a.Cures + 1, Next: p.in.Now.Add(Pauses{least, restMost * restTimes * p.in.Pause}.After(a.Cures + 1))}
		}
	}
}

// well returns whether ports work, by address and port. Those that are not wanted are missing, unless they
// still exist.
func (p *planner) well() map[string]bool {
	all := map[string]bool{}
	for _, at := range p.places {
		// A load balancer that is ACTIVE with all ports has left its own ERROR, even if no wanted member
		// is behind a port yet: the endpoints may have changed while it was created.
		all[at.vip()+" "], all[at.vip()+" "+anyPort] = at.isThere(), at.serves()
		for i := range at.ports {
			all[at.vip()+" "+at.ports[i].name()] = at.active && at.ports[i].serves
		}
		for i := 0; at.have != nil && i < len(at.have.Listeners); i++ {
			all[at.vip()+" "+at.have.Listeners[i].ID] = false
		}
	}
	for _, f := range p.faults {
		if f.Port != "" {
			all[f.VIP+" "+anyPort], all[f.VIP+" "+f.Port] = false, false
		}
	}
	return all
}

// turn is the level at which a fault is repaired next.
type turn struct {
	Level  Level
	slow   bool // clients are served all the same by what this level makes anew
	wait   time.Duration
	Try    int    // the number of the next attempt at this level
	Of     int    // how often it may be tried
	total  int    // attempts at all levels
	failed string // why the last one was refused; empty: it was accepted, and had no effect
	spent  bool   // all levels were tried often enough
}

// over reports whether everything that Kuryr can do was done, for now.
func (t *turn) over() bool { return t.spent && t.wait > 0 }

// turn returns where a fault is repaired next: at the gentlest level that was not tried often
// enough, else at the last level.
func (p *planner) turn(f *Fault) turn {
	t := turn{spent: true}
	for l := Level(0); l < levels && t.spent; l++ {
		if f.steps[l] == nil {
			continue
		}
		a := p.Attempts[f.key(l)]
		if a.Away && l == LevelLoadBalancer && a.Replaced == Target(f.steps[l]) { // it was not deleted
			a.Times, a.Next, a.Away = a.Times-1, p.in.Now, false
			p.Attempts[f.key(l)] = a
		}
		t.Level, t.slow, t.Try, t.Of = l, f.serves(l), a.Times+1, triesQuick[l]
		if t.slow {
			t.Of = triesSlow[l]
		}
		t.spent = t.Try > t.Of
		t.total, t.failed = t.total+a.Times, cmp.Or(a.Failed, t.failed)
		t.wait = max(t.wait, p.Attempts.Waits(f.key(l), p.in.Now))
	}
	if t.spent {
		pauses := Pauses{restLeast * p.in.Pause, restTimes * p.in.Pause}
		if t.slow {
			pauses = Pauses{restTimes * p.in.Pause, restMost * restTimes * p.in.Pause}
		}
		t.wait = max(0, p.Attempts[f.key(t.Level)].Next.Add(pauses.After(t.Try-t.Of)).Sub(p.in.Now))
	}
	return t
}

// serves reports whether clients are served all the same by the object that a level makes anew.
func (f *Fault) serves(l Level) bool {
	return f.Serves || l >= LevelFailover && f.Port != "" && f.at.servesBeside(f.Port)
}

// consider plans the remedy of a fault, if it is its turn.
func (p *planner) consider(f *Fault) {
	p.Broken = append(p.Broken, f.What)
	switch {
	case f.wait > 0:
		p.wake(f.wait)
		so := fmt.Sprintf("%s: repairs that did not help: %d", f.What, f.total)
		if f.failed != "" {
			so += " (last error: " + f.failed + ")"
		}
		p.Tried = append(p.Tried, fmt.Sprintf("%s. At %s Kuryr tries to %s", so, p.in.Now.Add(f.wait).UTC().Format(time.RFC3339), f.steps[f.Level]))
	case !p.free(f):
		p.wake(p.in.Pause)
		p.Tried = append(p.Tried, fmt.Sprintf("%s: Kuryr repairs another object first, then it tries to %s", f.What, f.steps[f.Level]))
	default:
		r := Remedy{Step: f.steps[f.Level], Fault: *f, pause: p.after(f)}
		r.Replaces = f.slow && (f.Level == LevelPort || f.Level == LevelLoadBalancer)
		p.Remedies = append(p.Remedies, r)
		p.Tried = append(p.Tried, r.Tell())
	}
}

// free reports whether a fault may be repaired beside what else is under way. What is sent again
// interrupts no client, so it always may. Of all else, one object at a time is made anew. An
// object that serves is made anew only if nothing is missing: a cloud that cannot create one
// object must not lose another. A load balancer stays untouched while the other address does not serve.
// If neither serves, the second one is repaired when the first serves, or when all was tried there.
func (p *planner) free(f *Fault) bool {
	switch {
	case f.Level == LevelAgain:
		return true
	case slices.ContainsFunc(p.Remedies, func(r Remedy) bool { return r.Level > LevelAgain }):
		return false
	case f.Level == LevelPort:
		return !f.Serves || p.isThere()
	}
	own := slices.Index(p.places, f.at)
	for i, other := range p.places {
		missing := !other.active && !other.broken()
		soon := slices.ContainsFunc(p.faults, func(f Fault) bool { return f.at == other && !f.over() })
		if i != own && !other.serves() && (f.Serves || missing || i < own && soon) {
			return false
		}
	}
	return true
}

// after returns the pause between an attempt and the next.
func (p *planner) after(f *Fault) time.Duration {
	if f.Serves {
		return Pauses{p.in.Pause, restTimes * p.in.Pause}.After(f.total + 1)
	}
	return Pauses{p.in.Pause / quickLeast, p.in.Pause / quickMost}.After(f.total + 1)
}
