// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Tell describes the repair for people.
func (f *Fault) Tell() string {
	return fmt.Sprintf("%s: Kuryr tries to %s (try %d)", f.What, f.Step, f.Try)
}

// Tried notes that a repair was carried out, or that the cloud refused it: why is the refusal.
// A failure during an outage of the cloud must not be noted. After an attempt to recreate the load
// balancer, accepted or refused, the attempts below it are forgotten: nothing was tried on a new one.
func (m *Attempts) Tried(f *Fault, now time.Time, why string) {
	if f.Level == LevelLoadBalancer {
		for l := range LevelFailover {
			m.Forget(repairKey(f.VIP, "", l))
		}
	}
	m.Forget(unfinished + f.LoadBalancerID + " ") // the provider has begun again
	m.Forget(begun + fingerprint(f.Step))
	key := f.key(f.Level)
	m.Note(key, now, Pauses{f.pause, f.pause}, why)
	a := (*m)[key]
	if a.Replaced, a.Away = "", false; f.Replaces {
		a.Replaced = Target(f.Step)
	}
	(*m)[key] = a
}

// Begin notes that a repair was begun, until it is Tried, and reports whether it had begun before.
func (m *Attempts) Begin(f *Fault, now time.Time) (before bool) {
	return m.Note(begun+fingerprint(f.Step), now, Pauses{}, "") > 1
}

// triesQuick and triesSlow are the attempts at each level before the next level. The first is
// where no client is served, the second where clients are served all the same. A failover interrupts
// them for a moment.
var (
	triesQuick = [levels]int{LevelAgain: 2, LevelPort: 2, LevelFailover: 3, LevelLoadBalancer: 3}
	triesSlow  = [levels]int{LevelAgain: 5, LevelPort: 3, LevelFailover: 1, LevelLoadBalancer: 1}
)

// Pauses, as shares or multiples of the first pause where clients are served, Input.Pause. In brackets
// what they are with its usual 30 s.
const (
	quickLeast, quickMost = 30, 6 // its shares, where no client is served: first and longest pause (1 s, 5 s)
	restLeast, restTimes  = 8, 30 // its multiples when all was tried: first and longest rest (4 min, 15 min)
	restMost              = 24    // longest rest of what serves, in units of restTimes (6 h)
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
// client passes all levels in less than a minute, besides the time that Octavia takes. When all was
// tried, the last level is tried again after each rest, without end. Attempts at what works again are
// forgotten.
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
		p.schedule(&p.faults[i])
	}
	slices.SortStableFunc(p.faults, func(a, b Fault) int { return cmp.Compare(rank(&a), rank(&b)) })
	for i := range p.faults {
		p.consider(&p.faults[i])
	}
	p.Spent = len(p.faults) > 0 && !slices.ContainsFunc(p.faults, func(f Fault) bool { return !f.spent })
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

// schedule finds how and when a fault is repaired next: at the gentlest level that was not tried often
// enough, else at the last level.
func (p *planner) schedule(f *Fault) {
	slow := false
	f.spent = true
	for l := Level(0); l < levels && f.spent; l++ {
		if f.steps[l] == nil {
			continue
		}
		a := p.Attempts[f.key(l)]
		if a.Away && l == LevelLoadBalancer && a.Replaced == Target(f.steps[l]) { // it was not deleted
			a.Times, a.Next, a.Away = a.Times-1, p.in.Now, false
			p.Attempts[f.key(l)] = a
		}
		f.Step, f.Level, f.Try, f.Of = f.steps[l], l, a.Times+1, triesQuick[l]
		if slow = f.serves(l); slow {
			f.Of = triesSlow[l]
		}
		f.Replaces = slow && (l == LevelPort || l == LevelLoadBalancer)
		f.spent = f.Try > f.Of
		f.total, f.failed = f.total+a.Times, cmp.Or(a.Failed, f.failed)
		f.wait = max(f.wait, p.Attempts.Waits(f.key(l), p.in.Now))
	}
	if f.spent {
		rest := Pauses{restLeast * p.in.Pause, restTimes * p.in.Pause}
		if slow {
			rest = Pauses{restTimes * p.in.Pause, restMost * restTimes * p.in.Pause}
		}
		f.wait = max(0, p.Attempts[f.key(f.Level)].Next.Add(rest.After(f.Try-f.Of)).Sub(p.in.Now))
		f.spent = f.wait > 0
	}
	pauses := Pauses{p.in.Pause / quickLeast, p.in.Pause / quickMost}
	if f.Serves {
		pauses = Pauses{p.in.Pause, restTimes * p.in.Pause}
	}
	f.pause = pauses.After(f.total + 1)
}

// serves reports whether clients are served all the same by the object that a level makes anew.
func (f *Fault) serves(l Level) bool {
	beside := func(s portState) bool { return s.name() != f.Port && s.serves }
	return f.Serves || l >= LevelFailover && f.Port != "" && slices.ContainsFunc(f.at.ports, beside)
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
		p.Tried = append(p.Tried, fmt.Sprintf("%s. At %s Kuryr tries to %s", so, p.in.Now.Add(f.wait).UTC().Format(time.RFC3339), f.Step))
	case !p.free(f):
		p.wake(p.in.Pause)
		p.Tried = append(p.Tried, fmt.Sprintf("%s: Kuryr repairs another object first, then it tries to %s", f.What, f.Step))
	default:
		p.Remedies = append(p.Remedies, *f)
		p.Tried = append(p.Tried, f.Tell())
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
	case slices.ContainsFunc(p.Remedies, func(r Fault) bool { return r.Level > LevelAgain }):
		return false
	case f.Level == LevelPort:
		return !f.Serves || !slices.ContainsFunc(p.places, func(a *place) bool { return !a.isThere() && !a.broken() })
	}
	own := slices.Index(p.places, f.at)
	for i, other := range p.places {
		missing := !other.active && !other.broken()
		soon := slices.ContainsFunc(p.faults, func(f Fault) bool { return f.at == other && !f.spent })
		if i != own && !other.serves() && (f.Serves || missing || i < own && soon) {
			return false
		}
	}
	return true
}

// Brake says why klb must not delete what serves, to create it again; empty if it may. all are the
// KuryrLoadBalancers of the cluster. While the cloud refuses to create a load balancer in the project,
// or does not answer, it may not create the next one either. While one is being replaced, it is not
// known. Only statuses are read, so each process comes to the same answer. Two that do not see each other's
// status yet both begin, by a trial; once the cloud has created that, they ask again.
func Brake(klb *v1.KuryrLoadBalancer, all []*v1.KuryrLoadBalancer) string {
	why := ""
	say := func(format string, args ...any) { // the same text each time, in whatever order all are
		text := fmt.Sprintf(format, args...)
		why = min(text, cmp.Or(why, text))
	}
	for _, o := range all {
		if o.Namespace == klb.Namespace && o.Name == klb.Name || o.Spec.ProjectID != klb.Spec.ProjectID || !o.DeletionTimestamp.IsZero() {
			continue
		}
		name := o.Namespace + "/" + o.Name
		ready := meta.FindStatusCondition(o.Status.Conditions, v1.ConditionReady)
		switch {
		case IsReplaced(o) && !(IsReplaced(klb) && klb.Namespace+"/"+klb.Name < name): // a change of projects may bring two together
			say("Kuryr replaces one load balancer of a project at a time, now that of %s", name)
		case ready != nil && ready.Status != metav1.ConditionTrue && !NamesAll(o) && slices.Contains(uncreated, ready.Reason):
			say("the cloud does not create the load balancer of %s (%s)", name, ready.Reason)
		}
	}
	return why
}

// uncreated are the reasons for a missing load balancer that any other one of the project may meet, too.
var uncreated = []string{v1.ReasonOverQuota, v1.ReasonUnavailable, v1.ReasonBackendError, v1.ReasonForbidden}

// IsReplaced reports whether the status says that a load balancer that serves is being replaced.
func IsReplaced(klb *v1.KuryrLoadBalancer) bool {
	c := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionProgressing)
	return c != nil && c.Reason == v1.ReasonReplacing
}

// NamesAll reports whether the status names a load balancer for each VIP.
func NamesAll(klb *v1.KuryrLoadBalancer) bool {
	return !slices.ContainsFunc(klb.Spec.VIPs, func(vip v1.VIPAddress) bool { return !names(&klb.Status, vip) })
}

// Trial returns an empty load balancer like want at any other address of its subnet. Whether the cloud
// can create want is known only from such a trial: quotas have no usage that Kuryr may read, and a
// provider that fails shows it at a creation. It has no listeners: OVN's provider leaves the port of the
// VIP in Neutron if it refuses one, and without an address nobody finds that port.
func Trial(want sdn.LoadBalancer) sdn.LoadBalancer {
	want.Listeners = nil
	want.Name, want.VIP.IP = want.Name[:min(len(want.Name), longestName-len(trialSuffix))]+trialSuffix, ""
	return want
}

// TrialIn returns the trial of want among the load balancers of its owner, nil if there is none, and
// whether it has failed: it is in ERROR, or has another provider, which proves nothing.
func TrialIn(have []sdn.LoadBalancer, want sdn.LoadBalancer) (trial *sdn.LoadBalancer, failed bool) {
	name := Trial(want).Name
	i := slices.IndexFunc(have, func(lb sdn.LoadBalancer) bool {
		return lb.Name == name && lb.Provisioning != sdn.ProvisioningDeleted
	})
	if i < 0 {
		return nil, false
	}
	lb := &have[i]
	return lb, lb.Provisioning == sdn.ProvisioningError || !busy(lb.Provisioning) && want.Provider != "" && !sdn.SameProvider(lb.Provider, want.Provider)
}

const trialSuffix = "/trial"
