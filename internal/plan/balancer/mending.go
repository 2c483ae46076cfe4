// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Remedy is a step that may mend something.
type Remedy struct {
	Step
	Fault   Fault
	Level   Level
	Try, Of int
	// Replaces says that the step deletes what serves clients: something has to show first that it
	// can be created again.
	Replaces bool
	pause    time.Duration
	key      string
}

// Tell describes the remedy for people.
func (r *Remedy) Tell() string {
	return fmt.Sprintf("%s%s: Kuryr tries to %s (try %d)", r.Fault.What, r.Fault.where(), r.Level, r.Try)
}

func (f *Fault) where() string {
	if f.Port == "" || f.Level == LevelFailover {
		return " at " + f.VIP
	}
	return fmt.Sprintf(" of port %s at %s", f.Port, f.VIP)
}

// Tried notes that a remedy was carried out, or that the cloud refused it: why is the refusal.
// A failure during an outage of the cloud must not be noted. After a new load balancer, the
// attempts below it are forgotten: nothing was tried on the new one.
func (m *Attempts) Tried(r *Remedy, now time.Time, why string) {
	if r.Level == LevelLoadBalancer {
		below, itself := mending+r.Fault.VIP+" ", mendKey(r.Fault.VIP, "", 0)
		maps.DeleteFunc(*m, func(key string, _ *Attempt) bool {
			return strings.HasPrefix(key, below) && !strings.HasPrefix(key, itself[:len(itself)-1])
		})
	}
	m.Forget(begun + fingerprint(r.Step))
	m.Note(r.key, now, Pauses{r.pause, r.pause}, why)
	a := (*m)[r.key]
	a.Serves, a.Own, a.Target, a.Away = r.Replaces, r.Fault.Port == "", Target(r.Step), false
}

// Begin notes that a remedy was begun, until it is Tried, and reports whether it had begun before.
// A busy load balancer may stop it several times, also after a part of it.
func (m *Attempts) Begin(r *Remedy, now time.Time) (before bool) {
	return m.Note(begun+fingerprint(r.Step), now, Pauses{}, "") > 1
}

// Removed notes a removal that was carried out or refused. From these notes the next plan knows
// what cannot be deleted.
func (m *Attempts) Removed(s Step, now time.Time, least time.Duration, why string) {
	if c, is := s.(ChangeMembers); is && len(c.Add) > 0 {
		return // the additions may be why it is refused
	}
	for _, key := range removals(s) {
		m.Note(key, now, Pauses{least, 1024 * least}, why)
	}
}

// triesQuick and triesSlow are the attempts at each level before the next level. The first is
// where no client is served, the second where clients are served all the same.
var (
	triesQuick = [levels]int{2, 2, 2, 1, 3}
	triesSlow  = [levels]int{5, 3, 3, 1, 1}
)

// triesFailover is the same for the failover of a load balancer that is in ERROR itself.
const triesFailover = 3

// mend plans what is done about objects in ERROR, and about objects that cannot be deleted. It
// begins at the gentlest level that may help, and goes up a level when that was tried often
// enough. What still serves clients is mended last, slowly, and one thing at a time. What serves no
// client passes all levels in less than a minute. Attempts at what was cured are forgotten.
func (p *planner) mend() {
	p.faults = append(p.faults, p.resisting()...)
	all := slices.Clone(p.faults)
	p.cure()
	p.forget()
	slices.SortStableFunc(all, func(a, b Fault) int { // what serves no client comes first
		return cmp.Or(rank(a.Serves)-rank(b.Serves), int(p.level(&a).at)-int(p.level(&b).at))
	})
	spent := len(all) > 0
	for i := range all {
		at := p.level(&all[i])
		p.consider(&all[i], at)
		spent = spent && at.spent && at.wait > 0
	}
	p.Spent = spent && len(p.Remedies) == 0
}

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Prefixes of the keys of what is mended. A load balancer gets a new ID each time it is made
// anew, so the keys have its address.
const (
	mending  = "mend "
	relapsed = "relapse "
	pending  = "pending "
)

func (f *Fault) key(l Level) string {
	if l >= LevelFailover {
		return mendKey(f.VIP, "", l)
	}
	return mendKey(f.VIP, f.Port, l)
}

func mendKey(vip, port string, l Level) string {
	return fmt.Sprintf("%s%s %s %d", mending, vip, port, l)
}

// rung is the level at which a fault is mended next.
type rung struct {
	at    Level
	wait  time.Duration // 0: now
	times int           // how often this level was tried
	tries int           // how often it may be tried
	total int           // attempts at all levels
	spent bool          // all levels were tried often enough
}

// level returns where a fault is mended next: at the gentlest level that was not tried often
// enough, else at the last level.
func (p *planner) level(f *Fault) rung {
	r := rung{at: levels, spent: true}
	for l := f.Level; l < levels && r.spent; l++ {
		if f.steps[l] == nil {
			continue
		}
		key, tries := f.key(l), p.tries(f, l)
		if a := p.Attempts[key]; a != nil && a.Away && l == LevelLoadBalancer && a.Target == Target(f.steps[l]) { // it was not deleted
			a.Times, a.Next, a.Away = a.Times-1, p.in.Now, false
		}
		times := p.Attempts.Times(key)
		r.total += times
		r.wait = max(r.wait, p.Attempts.Waits(key, p.in.Now))
		r.at, r.times, r.tries, r.spent = l, times, tries, times >= tries
	}
	if r.at == levels {
		return r
	}
	if r.spent {
		r.wait = max(0, p.Attempts[f.key(r.at)].Next.Add(p.rest(f, r)).Sub(p.in.Now))
	}
	r.wait = max(r.wait, p.Attempts.Waits(relapsed+f.key(r.at), p.in.Now), p.patience(f), p.Attempts.spares(f, f.removal, p.in.Now, p.in.Pause))
	return r
}

// rest returns how long the last level rests when all levels were tried often enough.
func (p *planner) rest(f *Fault, at rung) time.Duration {
	pauses := Pauses{restLeast * p.in.Pause, restTimes * p.in.Pause}
	if p.slow(f, at.at) {
		pauses = Pauses{restTimes * p.in.Pause, restMost * restTimes * p.in.Pause}
	}
	return pauses.After(at.times - at.tries + 1)
}

// patience returns how long an object that is shown as being changed is left alone. A load
// balancer and the objects below it are not read at one moment, so a change may still be under
// way.
func (p *planner) patience(f *Fault) time.Duration {
	if !f.Pending {
		return 0
	}
	key := pending + f.What
	if p.Attempts.Times(key) == 0 {
		pause := p.in.Pause / quickMost
		if f.Serves && f.Level > LevelMember {
			pause = 2 * p.in.Pause
		}
		p.Attempts.Note(key, p.in.Now, Pauses{pause, pause}, "")
	}
	return p.Attempts.Waits(key, p.in.Now)
}

func (p *planner) tries(f *Fault, l Level) int {
	switch {
	case l == LevelFailover && f.Port == "":
		return triesFailover
	case p.slow(f, l):
		return triesSlow[l]
	}
	return triesQuick[l]
}

// slow reports whether clients are served all the same by the object that a level makes anew.
func (p *planner) slow(f *Fault, l Level) bool {
	if f.Serves || l < LevelFailover {
		return f.Serves
	}
	at := p.placeAt(f.VIP)
	return at != nil && f.Port != "" && at.servesBeside(f.Port)
}

// consider plans the remedy of a fault, if it is its turn.
func (p *planner) consider(f *Fault, at rung) {
	p.Broken = append(p.Broken, f.What)
	if at.at == levels {
		p.Tried = append(p.Tried, f.What+f.where()+": Kuryr cannot repair it")
		return
	}
	switch {
	case at.wait > 0:
		p.later(at.wait)
		if again := p.Attempts.longest(f.removal, p.in.Now); again > 0 {
			p.later(again)
		}
		p.Tried = append(p.Tried, fmt.Sprintf("%s%s: %s. At %s Kuryr tries to %s",
			f.What, f.where(), p.tried(f), p.in.Now.Add(at.wait).UTC().Format(time.RFC3339), at.at))
		return
	case !p.free(f, at.at):
		p.later(p.in.Pause)
		p.Tried = append(p.Tried, fmt.Sprintf("%s%s: Kuryr repairs another object first, then it tries to %s", f.What, f.where(), at.at))
		return
	}
	p.taken = p.taken || at.at > LevelMember
	r := Remedy{Step: f.steps[at.at], Fault: *f, Level: at.at, Try: at.times + 1, Of: at.tries, key: f.key(at.at), pause: p.after(f, at)}
	r.Replaces = at.at > LevelMember && at.at != LevelFailover && p.slow(f, at.at)
	p.Remedies = append(p.Remedies, r)
	p.Tried = append(p.Tried, r.Tell())
}

func (p *planner) later(wait time.Duration) {
	if p.Repair == 0 || wait < p.Repair {
		p.Repair = wait
	}
}

// tried describes the attempts to mend a fault, and how many there were.
func (p *planner) tried(f *Fault) string {
	var all []string
	for _, key := range f.removal {
		if a := p.Attempts[key]; a != nil && len(all) == 0 {
			all = append(all, a.inVain("delete it"))
		}
	}
	for l := f.Level; l < levels; l++ {
		if a := p.Attempts[f.key(l)]; a != nil && a.Times > 0 {
			all = append(all, a.inVain(l.String()))
		}
	}
	if len(all) == 0 {
		return "it was repaired a short time ago"
	}
	return strings.Join(all, ", ")
}

// inVain says how often an attempt was made without effect, and why.
func (a *Attempt) inVain(what string) string {
	tries := "1 try"
	if a.Times != 1 {
		tries = fmt.Sprintf("%d tries", a.Times)
	}
	text := fmt.Sprintf("%s to %s did not help", tries, what)
	if a.Failed != "" {
		text += " (last error: " + a.Failed + ")"
	}
	return text
}

// free reports whether a fault may be mended beside what else is under way. Members in ERROR
// serve no client, so they always may. Of all else, one object at a time is made anew. An
// object that serves is made anew only if nothing is missing: a cloud that cannot create one
// object must not lose another.
func (p *planner) free(f *Fault, l Level) bool {
	switch {
	case l == LevelMember:
		return true
	case p.taken:
		return false
	case l < LevelFailover:
		return !f.Serves || !p.makes()
	}
	return !slices.ContainsFunc(p.places, func(other place) bool { return other.vip != f.VIP && p.holdsUp(&other, f) })
}

// holdsUp reports whether the load balancer at f's address must stay untouched because the
// other address does not serve. If neither address serves, they are mended in turn: the second
// one when the first serves, or when everything was tried there.
func (p *planner) holdsUp(other *place, f *Fault) bool {
	switch begun := p.Attempts.Times(mendKey(other.vip, "", LevelFailover))+p.Attempts.Times(mendKey(other.vip, "", LevelLoadBalancer)) > 0; {
	case other.serves():
		return false
	case f.Serves, !other.active && !other.broken:
		return true
	default:
		return begun && !p.exhausted(other.vip)
	}
}

// exhausted reports whether everything that Kuryr can do at an address was done, for now.
func (p *planner) exhausted(vip string) bool {
	found := false
	for i := range p.faults {
		f := &p.faults[i]
		if f.VIP != vip {
			continue
		}
		if at := p.level(f); !at.spent || at.wait == 0 {
			return false
		}
		found = true
	}
	return found
}

// makes reports whether the plan creates something or finds a load balancer busy.
func (p *planner) makes() bool {
	return len(p.Busy) > 0 || slices.ContainsFunc(p.Steps, func(s Step) bool {
		switch s.(type) {
		case CreateLoadBalancer, CreateListener, CreatePool:
			return true
		}
		return false
	})
}

func (p *planner) placeAt(vip string) *place {
	if i := slices.IndexFunc(p.places, func(a place) bool { return a.vip == vip }); i >= 0 {
		return &p.places[i]
	}
	return nil
}

// Pauses, as shares or multiples of the first pause where clients are served.
const (
	quickLeast, quickMost = 30, 6 // its shares, where no client is served: first and longest pause
	besideShare           = 3     // its share, before the next level, where other ports are served
	restLeast, restTimes  = 8, 30 // its multiples when all was tried: first and longest rest
	restMost              = 24    // longest rest of what serves, in units of restTimes
)

// after returns the pause between an attempt and the next.
func (p *planner) after(f *Fault, at rung) time.Duration {
	if f.Serves {
		return Pauses{p.in.Pause, restTimes * p.in.Pause}.After(at.total + 1)
	}
	pause := Pauses{p.in.Pause / quickLeast, p.in.Pause / quickMost}.After(at.total + 1)
	if at.at < LevelFailover && at.times+1 >= at.tries && p.slow(f, LevelLoadBalancer) {
		pause = max(pause, p.in.Pause/besideShare)
	}
	return pause
}
