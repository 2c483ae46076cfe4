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

// Mending is what is done about objects in ERROR, and about objects that cannot be deleted. It
// begins at the gentlest level that may help, and goes up a level when that was tried often
// enough. What still serves clients is mended last, slowly, and one thing at a time. What
// serves no client passes all levels in less than a minute.
type Mending struct {
	// Remedies are to be carried out now. Each is one step of this plan.
	Remedies []Remedy
	// Again is the time until the next remedy; 0: when the cloud has changed.
	Again time.Duration
	// Faults describes the broken objects. Tried describes the attempts and what comes next.
	// Both are for people.
	Faults, Tried []string
	// Spent says that everything was tried as often as it may be, until Until.
	Spent bool
	Until time.Time
}

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

// mender plans the mending of one KuryrLoadBalancer.
type mender struct {
	Mending
	plan  *Plan
	m     *Attempts
	now   time.Time
	pause time.Duration
	taken bool // this plan already has a remedy above LevelMember
}

// Mending returns what to do now about the faults of a plan. pause is the first pause where
// clients are served all the same; all other pauses are in proportion. It deletes from m what
// was cured.
func (p *Plan) Mending(m *Attempts, now time.Time, pause time.Duration) Mending {
	d := &mender{plan: p, m: m, now: now, pause: pause}
	if !p.looked {
		p.Faults, p.looked = append(p.Faults, p.resisting(*m, now, pause)...), true
	}
	all := slices.Clone(p.Faults)
	d.cure()
	d.forget()
	slices.SortStableFunc(all, func(a, b Fault) int { // what serves no client comes first
		return cmp.Or(rank(a.Serves)-rank(b.Serves), int(d.level(&a).at)-int(d.level(&b).at))
	})
	spent := len(all) > 0
	for i := range all {
		at := d.level(&all[i])
		d.consider(&all[i], at)
		spent = spent && at.spent && at.wait > 0
	}
	d.Spent = spent && len(d.Remedies) == 0
	if d.Spent {
		d.Until = now.Add(d.Again)
	}
	return d.Mending
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
func (d *mender) level(f *Fault) rung {
	r := rung{at: levels, spent: true}
	for l := f.Level; l < levels && r.spent; l++ {
		if f.steps[l] == nil {
			continue
		}
		key, tries := f.key(l), d.tries(f, l)
		if a := (*d.m)[key]; a != nil && a.Away && l == LevelLoadBalancer && a.Target == Target(f.steps[l]) { // it was not deleted
			a.Times, a.Next, a.Away = a.Times-1, d.now, false
		}
		times := d.m.Times(key)
		r.total += times
		r.wait = max(r.wait, d.m.Waits(key, d.now))
		r.at, r.times, r.tries, r.spent = l, times, tries, times >= tries
	}
	if r.at == levels {
		return r
	}
	if r.spent {
		r.wait = max(0, (*d.m)[f.key(r.at)].Next.Add(d.rest(f, r)).Sub(d.now))
	}
	r.wait = max(r.wait, d.m.Waits(relapsed+f.key(r.at), d.now), d.patience(f), d.m.spares(f, f.removal, d.now, d.pause))
	return r
}

// rest returns how long the last level rests when all levels were tried often enough.
func (d *mender) rest(f *Fault, at rung) time.Duration {
	pauses := Pauses{restLeast * d.pause, restTimes * d.pause}
	if d.slow(f, at.at) {
		pauses = Pauses{restTimes * d.pause, restMost * restTimes * d.pause}
	}
	return pauses.After(at.times - at.tries + 1)
}

// patience returns how long an object that is shown as being changed is left alone. A load
// balancer and the objects below it are not read at one moment, so a change may still be under
// way.
func (d *mender) patience(f *Fault) time.Duration {
	if !f.Pending {
		return 0
	}
	key := pending + f.What
	if d.m.Times(key) == 0 {
		pause := d.pause / quickMost
		if f.Serves && f.Level > LevelMember {
			pause = 2 * d.pause
		}
		d.m.Note(key, d.now, Pauses{pause, pause}, "")
	}
	return d.m.Waits(key, d.now)
}

func (d *mender) tries(f *Fault, l Level) int {
	switch {
	case l == LevelFailover && f.Port == "":
		return triesFailover
	case d.slow(f, l):
		return triesSlow[l]
	}
	return triesQuick[l]
}

// slow reports whether clients are served all the same by the object that a level makes anew.
func (d *mender) slow(f *Fault, l Level) bool {
	if f.Serves || l < LevelFailover {
		return f.Serves
	}
	at := d.plan.placeAt(f.VIP)
	return at != nil && f.Port != "" && at.servesBeside(f.Port)
}

// consider plans the remedy of a fault, if it is its turn.
func (d *mender) consider(f *Fault, at rung) {
	d.Faults = append(d.Faults, f.What)
	if at.at == levels {
		d.Tried = append(d.Tried, f.What+f.where()+": Kuryr cannot repair it")
		return
	}
	switch {
	case at.wait > 0:
		d.later(at.wait)
		if again := d.m.longest(f.removal, d.now); again > 0 {
			d.later(again)
		}
		d.Tried = append(d.Tried, fmt.Sprintf("%s%s: %s. At %s Kuryr tries to %s",
			f.What, f.where(), d.tried(f), d.now.Add(at.wait).UTC().Format(time.RFC3339), at.at))
		return
	case !d.free(f, at.at):
		d.later(d.pause)
		d.Tried = append(d.Tried, fmt.Sprintf("%s%s: Kuryr repairs another object first, then it tries to %s", f.What, f.where(), at.at))
		return
	}
	d.taken = d.taken || at.at > LevelMember
	r := Remedy{Step: f.steps[at.at], Fault: *f, Level: at.at, Try: at.times + 1, Of: at.tries, key: f.key(at.at), pause: d.after(f, at)}
	r.Replaces = at.at > LevelMember && at.at != LevelFailover && d.slow(f, at.at)
	d.Remedies = append(d.Remedies, r)
	d.Tried = append(d.Tried, r.Tell())
}

func (d *mender) later(wait time.Duration) {
	if d.Again == 0 || wait < d.Again {
		d.Again = wait
	}
}

// tried describes the attempts to mend a fault, and how many there were.
func (d *mender) tried(f *Fault) string {
	var all []string
	for _, key := range f.removal {
		if a := (*d.m)[key]; a != nil && len(all) == 0 {
			all = append(all, a.inVain("delete it"))
		}
	}
	for l := f.Level; l < levels; l++ {
		if a := (*d.m)[f.key(l)]; a != nil && a.Times > 0 {
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
func (d *mender) free(f *Fault, l Level) bool {
	switch {
	case l == LevelMember:
		return true
	case d.taken:
		return false
	case l < LevelFailover:
		return !f.Serves || !d.plan.makes()
	}
	return !slices.ContainsFunc(d.plan.places, func(other place) bool { return other.vip != f.VIP && d.holdsUp(&other, f) })
}

// holdsUp reports whether the load balancer at f's address must stay untouched because the
// other address does not serve. If neither address serves, they are mended in turn: the second
// one when the first serves, or when everything was tried there.
func (d *mender) holdsUp(other *place, f *Fault) bool {
	switch begun := d.m.Times(mendKey(other.vip, "", LevelFailover))+d.m.Times(mendKey(other.vip, "", LevelLoadBalancer)) > 0; {
	case other.serves():
		return false
	case f.Serves, !other.active && !other.broken:
		return true
	default:
		return begun && !d.exhausted(other.vip)
	}
}

// exhausted reports whether everything that Kuryr can do at an address was done, for now.
func (d *mender) exhausted(vip string) bool {
	found := false
	for i := range d.plan.Faults {
		f := &d.plan.Faults[i]
		if f.VIP != vip {
			continue
		}
		if at := d.level(f); !at.spent || at.wait == 0 {
			return false
		}
		found = true
	}
	return found
}

// makes reports whether the plan creates something or finds a load balancer busy.
func (p *Plan) makes() bool {
	return len(p.Busy) > 0 || slices.ContainsFunc(p.Steps, func(s Step) bool {
		switch s.(type) {
		case CreateLoadBalancer, CreateListener, CreatePool:
			return true
		}
		return false
	})
}

func (p *Plan) placeAt(vip string) *place {
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
func (d *mender) after(f *Fault, at rung) time.Duration {
	if f.Serves {
		return Pauses{d.pause, restTimes * d.pause}.After(at.total + 1)
	}
	pause := Pauses{d.pause / quickLeast, d.pause / quickMost}.After(at.total + 1)
	if at.at < LevelFailover && at.times+1 >= at.tries && d.slow(f, LevelLoadBalancer) {
		pause = max(pause, d.pause/besideShare)
	}
	return pause
}
