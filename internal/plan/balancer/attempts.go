// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Attempts is the only memory of what was tried for a KuryrLoadBalancer: how often, why it did
// not help, and when it may be tried again. A restart forgets it, and begins with the gentlest
// attempt again. The time is an argument of each method. It is not safe for concurrent use.
type Attempts map[string]Attempt

// Attempt is what is known of one thing that was tried.
type Attempt struct {
	Times    int
	Next     time.Time // it may not be tried before
	Failed   string    // why it failed; empty: it was accepted, and had no effect
	Cures    int       // how often it was tried before, and helped
	Replaced string    // the load balancer of what it has deleted while that served; empty: none
	Away     bool      // the cloud was away since
}

// Pauses are the times between attempts: Least after the first, then twice as long each time,
// at most Most.
type Pauses struct{ Least, Most time.Duration }

// After returns the pause after this number of attempts.
func (p Pauses) After(times int) time.Duration {
	pause := p.Least
	for ; times > 1 && pause < p.Most; times-- {
		pause *= 2
	}
	return min(pause, p.Most)
}

// Note notes an attempt and returns how many there were.
func (m *Attempts) Note(key string, now time.Time, pauses Pauses, why string) int {
	a := (*m)[key]
	a.Times++
	a.Next, a.Failed = now.Add(pauses.After(a.Times)), why
	m.set(key, a)
	return a.Times
}

func (m *Attempts) set(key string, a Attempt) {
	if *m == nil {
		*m = Attempts{}
	}
	(*m)[key] = a
}

// Waits returns how long something may not be tried; 0 if it may be now.
func (m Attempts) Waits(key string, now time.Time) time.Duration {
	return max(0, m[key].Next.Sub(now))
}

// Forgive forgets what an outage of the cloud may have caused. Attempts that have replaced what serves stay:
// a cloud that comes and goes would otherwise have it replaced each time. See turn.
func (m Attempts) Forgive() {
	maps.DeleteFunc(m, func(_ string, a Attempt) bool { return a.Replaced == "" })
	for key, a := range m {
		a.Away = true
		m[key] = a
	}
}

// Forget forgets all keys with a prefix.
func (m Attempts) Forget(prefix string) { m.keep(prefix, nil) }

// keep forgets the keys with a prefix that are not among those to keep.
func (m Attempts) keep(prefix string, keys map[string]bool) {
	maps.DeleteFunc(m, func(key string, _ Attempt) bool { return strings.HasPrefix(key, prefix) && !keys[key] })
}

// Prefixes of the keys of attempts; those of repairs are in repair.go.
const (
	doing       = "step "        // a step that was carried out
	refusedBusy = "busy "        // a step that a load balancer, shown as done, refuses as busy
	begun       = "begun "       // a repair that a busy load balancer has stopped half way
	unfit       = "floating IP " // a floating IP that the cloud does not associate
)

// Did notes a step that was carried out. If the next plan still needs the step, this note shows
// that it had no effect. why is the failure of a step whose failure does no harm; else empty. least is
// the pause after the first time; it doubles.
func (m *Attempts) Did(s Step, now time.Time, least time.Duration, why string) int {
	return m.Note(fingerprint(s), now, Pauses{2 * least, 1024 * least}, why)
}

// Rests returns how long a step may not be requested again, as earlier requests had no effect.
func (m Attempts) Rests(s Step, now time.Time) time.Duration {
	if key := fingerprint(s); m[key].Times >= ineffectiveAfter {
		return m.Waits(key, now)
	}
	return 0
}

// RefusedAsBusyAfter is how often in a row a load balancer that is shown as done may refuse a
// step as busy. Another client of Octavia may make it busy that fast. More often, the state
// does not end, as when a pool of LBaaS v2 is used by a person's policy. To wait for its end
// would mean some requests a second for ever.
const RefusedAsBusyAfter = 10

// RefusedAsBusy notes that a load balancer refused a step as busy, and reports whether that was
// more often than it may. A step that gets further each time is another step each time.
func (m *Attempts) RefusedAsBusy(s Step, now time.Time) bool {
	key := refusedBusy + fingerprint(s)
	if (*m)[key].Times == 0 {
		m.Forget(refusedBusy)
	}
	return m.Note(key, now, Pauses{}, "") > RefusedAsBusyAfter
}

// NotBusy notes that a load balancer accepts changes.
func (m Attempts) NotBusy() { m.Forget(refusedBusy) }

// Unfit notes a floating IP that the cloud does not associate with this port as this generation
// asks for it, and for how long it is not tried again.
func (m *Attempts) Unfit(a Associate, generation int64, now time.Time, pause time.Duration, why string) {
	m.Forget(unfit)
	m.Note(unfitKey(a, generation), now, Pauses{pause, pause}, why)
}

// WhyUnfit returns why steps about a floating IP may not be carried out; empty if they may.
func (m Attempts) WhyUnfit(steps []Step, generation int64, now time.Time) string {
	for _, s := range steps {
		if a, is := s.(Associate); is {
			if key := unfitKey(a, generation); m.Waits(key, now) > 0 {
				return m[key].Failed
			}
		}
	}
	return ""
}

// unfitKey has the port: a load balancer that is created anew has another.
func unfitKey(a Associate, generation int64) string {
	return fmt.Sprint(unfit, a.ID, " ", a.PortID, " ", generation)
}

// Settled forgets what no longer matters once everything is as wanted.
func (m Attempts) Settled() {
	m.Forget(replacing)
	m.Forget(refusedBusy)
	m.Forget(begun)
}

// HasFailed reports whether a step is still needed because it has failed.
func (m Attempts) HasFailed(s Step) bool {
	return m[fingerprint(s)].Failed != ""
}

// replacing begins the key of a step that makes room for another load balancer. The key has the
// address and the reason: each load balancer that is made has another ID.
const replacing = "replace "

// fingerprint returns the key of a step. It is a hash, as a step may have thousands of members.
func fingerprint(s Step) string {
	if d, is := s.(DeleteLoadBalancer); is && d.Instead != "" {
		return replacing + d.Instead + ": " + d.Because
	}
	content, err := json.Marshal(s)
	if err != nil { // steps are plain data
		return doing + s.String()
	}
	return fmt.Sprintf("%s%T %x", doing, s, sha256.Sum256(content))
}

// ineffectiveAfter is after how many times a step counts as one that the cloud does not carry
// out.
const ineffectiveAfter = 2

// leaveIneffective takes the steps out of a plan that the cloud has accepted and not carried
// out. An update is left out for good: most likely the cloud has another default. All other
// steps, and changes of source ranges, are left out for a while. Endless updates would keep a
// load balancer busy for ever.
func (p *planner) leaveIneffective() {
	needed := map[string]bool{}
	leaves := func(s Step) bool {
		key := fingerprint(s)
		needed[key] = true
		return p.leaves(s, p.Attempts[key])
	}
	p.Steps, p.Last = slices.DeleteFunc(p.Steps, leaves), slices.DeleteFunc(p.Last, leaves)
	p.Attempts.keep(doing, needed)
}

func (p *planner) leaves(s Step, a Attempt) bool {
	switch wait := a.Next.Sub(p.in.Now); {
	case a.Failed != "":
		if wait > 0 {
			p.Failed = append(p.Failed, a.Failed)
		}
		return wait > 0
	case a.Times < ineffectiveAfter:
		return false
	case MayDiffer(s):
		p.AcceptedAsIs = append(p.AcceptedAsIs, s)
	case wait > 0:
		p.NotApplied = append(p.NotApplied, s)
		p.wake(wait)
	default:
		return false
	}
	p.Withholds = p.Withholds || Narrows(s)
	return true
}

// MayDiffer reports whether the cloud may keep its own value for what a step changes.
func MayDiffer(s Step) bool {
	switch s := s.(type) {
	case UpdateListener:
		return !s.Ranges
	case UpdatePool:
		return true
	}
	return false
}

// refusing begins the keys of members that the cloud refuses.
const refusing = "refuse "

func refusal(m *sdn.Member) string {
	return fmt.Sprintf("%s%s %d %s", refusing, plain(m.IP), m.Port, m.SubnetID)
}

// RefusedMembers notes that the cloud has refused to add members as invalid. named are the
// members that the refusal names, if any. Else the second half of the members waits for a
// moment, so that the next request adds the first half. A member that is refused alone waits
// for pause, twice as long each time. So a few requests add all others.
func (m *Attempts) RefusedMembers(add, named []sdn.Member, now time.Time, moment, pause time.Duration, why string) {
	if len(named) == 0 && len(add) > 1 {
		for i := (len(add) + 1) / 2; i < len(add); i++ {
			key := refusal(&add[i])
			m.set(key, Attempt{Times: (*m)[key].Times, Next: now.Add(moment)})
		}
		return
	}
	if len(named) == 0 {
		named = add
	}
	for i := range named {
		m.Note(refusal(&named[i]), now, Pauses{pause, 30 * pause}, why)
	}
}

// Accepted forgets refusals of members that the cloud has accepted since.
func (m Attempts) Accepted(add []sdn.Member) {
	for i := range add {
		delete(m, refusal(&add[i]))
	}
}

// leaveRefused removes the members that the cloud has refused from what is wanted, for a while.
func (p *planner) leaveRefused() {
	wanted := map[string]bool{}
	for i := range p.Want {
		for j := range p.Want[i].Listeners {
			pool := p.Want[i].Listeners[j].Pool
			pool.Members = slices.DeleteFunc(pool.Members, func(member sdn.Member) bool {
				key := refusal(&member)
				wait := p.Attempts.Waits(key, p.in.Now)
				if wait > 0 && p.Attempts[key].Failed != "" && !wanted[key] {
					p.RefusedMembers = append(p.RefusedMembers, fmt.Sprintf("endpoint %s, port %d: %s", member.IP, member.Port, p.Attempts[key].Failed))
				}
				wanted[key] = true
				if wait > 0 {
					p.Partial = true
					p.wake(wait)
				}
				return wait > 0
			})
		}
	}
	p.Attempts.keep(refusing, wanted)
}
