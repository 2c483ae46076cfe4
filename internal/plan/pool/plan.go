// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"hash/fnv"
	"math"
	"slices"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Plan returns the actions for state s at the time now. If they are executed completely and nothing
// else happens, plans end at one port for each pod and Min free ports, and then have no actions.
// Every plan guarantees:
//   - no port goes to two pods and no pod gets two ports;
//   - a port with an object is deleted only through the object;
//   - a port leaves a pod only if the pod is gone or finished, and the port is
//     unplugged or has lost its node; no port of a lost node is used again.
//     A port that the SDN has lost, or that belongs to a former machine of its
//     node, also leaves a living pod, unless it is plugged;
//   - a returned port rests for Cooldown before another pod gets it;
//   - at most Max ports are kept free, except those that waiting pods are
//     about to get;
//   - no usable free port is deleted that Min or a waiting pod needs;
//   - ports that waiting pods or Min lack are requested once: not while ports
//     for them are in flight, made, or about to be usable.
func Plan(s State, now time.Time) Actions {
	p := planner{State: s, now: now}
	p.sort()
	if s.NodeGone {
		p.clear()
		return p.a
	}
	p.restore()
	p.match()
	p.keep()
	p.create()
	return p.a
}

// planner is a plan being made: the state, taken apart.
type planner struct {
	State
	now time.Time
	a   Actions

	waiting   []Pod        // without a port, oldest first
	ready     []Port       // free, fit for a pod, longest free first
	settling  []Port       // free, fit as soon as the SDN has them in order
	cooling   []Port       // free, fit after their cooldown
	returning []Port       // held by nobody any more, unplugged
	spare     []Unrecorded // for whoever needs it
	restored  map[v1.Claim]string

	left   int // pods that get no port by this plan
	needed int // free ports to keep in any case
	limit  int // free ports to keep at most
	kept   int // free ports that stay
	soon   int // of them, those about to be fit
}

// clear is the plan for a pool without a node: nothing new, nothing kept.
func (p *planner) clear() {
	for _, ports := range [][]Port{p.returning, p.ready, p.settling, p.cooling} {
		for _, port := range ports {
			p.a.Delete = append(p.a.Delete, port.Name)
		}
	}
	for _, a := range p.spare {
		p.a.Discard = append(p.a.Discard, a.ID)
	}
	for _, id := range p.restored {
		p.a.Discard = append(p.a.Discard, id)
	}
	slices.Sort(p.a.Delete)
	slices.Sort(p.a.Discard)
}

// restore handles pods whose port's object is gone. Such a port may still be plugged, so no other
// port will do as long as it may exist.
func (p *planner) restore() {
	var rest []Pod
	for _, pod := range p.waiting {
		id := p.restored[pod.Ref.Claim()]
		switch {
		case id != "":
			delete(p.restored, pod.Ref.Claim())
			p.adopt(id, &pod)
		case pod.Restore == "":
			rest = append(rest, pod)
		case p.Restoring[pod.Restore]:
		case p.now.Before(p.Hold):
			p.wake(p.Hold)
		default:
			p.a.Restore = append(p.a.Restore, Lookup{pod.Restore, pod.Ref.Claim()})
		}
	}
	p.waiting = rest
	// Found, but the pod has gone meanwhile: it may have been plugged, so it is
	// not for the next.
	for _, id := range p.restored {
		p.a.Discard = append(p.a.Discard, id)
	}
	slices.Sort(p.a.Discard)
}

// match gives the free ports to the waiting pods, oldest pod first, see give. A port that
// has no object yet has the pool's security groups, and is written down together
// with its pod: one with other groups gets it only once it is there to be changed.
func (p *planner) match() {
	settling, reserved := len(p.settling), 0
	now := min(len(p.waiting), len(p.ready))
	p.give(p.waiting[:now])
	for _, pod := range p.waiting[now:] {
		switch {
		case pod.Groups == nil && len(p.spare) > reserved:
			p.adopt(p.spare[0].ID, &pod)
			p.spare = p.spare[1:]
			continue
		case pod.Groups == nil:
		case settling > 0:
			settling--
		case len(p.spare) > reserved:
			reserved++
		}
		p.left++
	}
}

// give gives each of pods a usable free port; there are as many. A pod whose groups a port has gets
// the port that has been free longest, which costs the SDN nothing. The others get the rest, first
// ports with the pool's groups, because the SDN's switches may use a port's former groups for a
// moment.
func (p *planner) give(pods []Pod) {
	got, taken := make([]*Port, len(pods)), make([]bool, len(p.ready))
	take := func(i int, fits func(groups []string) bool) {
		for k := 0; k < len(p.ready) && got[i] == nil; k++ {
			if !taken[k] && fits(p.ready[k].Groups) {
				got[i], taken[k] = &p.ready[k], true
			}
		}
	}
	for i := range pods {
		take(i, func(groups []string) bool {
			return (groups == nil) == (pods[i].Groups == nil) && slices.Equal(groups, pods[i].Groups)
		})
	}
	for i := range pods {
		take(i, func(groups []string) bool { return groups == nil })
		take(i, func([]string) bool { return true })
		p.a.Bind = append(p.a.Bind, Binding{Port: got[i].Name, Pod: &pods[i].Ref, Groups: pods[i].Groups})
	}
	var rest []Port
	for i := range p.ready {
		if !taken[i] {
			rest = append(rest, p.ready[i])
		}
	}
	p.ready = rest
}

// keep decides over the ports that are free now. Ports that Min and waiting pods need stay; others
// stay for TTL, up to Max. Ports that cost nothing to keep come first; among these the last used,
// so that the others grow old.
func (p *planner) keep() {
	p.measure()
	for _, port := range slices.Backward(p.ready) {
		p.stayOrGo(port)
	}
	p.a.Filled = p.Levels.Fill > 0 && p.kept >= p.capped(p.Levels.Fill)
	for _, a := range p.spare {
		if p.stays(a.ID, p.now) {
			p.adopt(a.ID, nil)
			p.soon++
		} else {
			p.a.Discard = append(p.a.Discard, a.ID)
		}
	}
	for _, port := range slices.Backward(p.settling) {
		if p.stayOrGo(port) {
			p.repair(port)
			p.soon += soonFit(port)
		}
	}
	for _, port := range slices.Backward(p.cooling) {
		if p.stayOrGo(port) {
			p.repair(port)
			p.wake(p.fit(port))
		}
	}
	for _, port := range p.returning {
		if !p.stays(port.Name, p.now) {
			p.a.Delete = append(p.a.Delete, port.Name)
			continue
		}
		p.a.Recycle = append(p.a.Recycle, port.Name)
		if p.Levels.Cooldown <= 0 {
			p.soon++
		}
	}
	p.a.Kept = p.kept
}

// measure computes how many free ports to keep. The need of waiting pods is not limited.
func (p *planner) measure() {
	soon := len(p.spare)
	for _, port := range p.settling {
		soon += soonFit(port)
	}
	if p.Levels.Cooldown <= 0 {
		soon += len(p.returning)
	}
	soon = min(soon, p.left)
	demand := soon + max(0, p.left-soon-p.InFlight)
	p.limit = math.MaxInt
	if p.Levels.Max > 0 {
		p.limit = p.Levels.Max
	}
	p.needed = min(p.floor()+demand, max(p.limit, demand))
}

// soonFit is 1 for a port that a waiting pod may count on: not for one that the
// SDN fails to put in order, perhaps for long.
func soonFit(port Port) int {
	if port.Stuck {
		return 0
	}
	return 1
}

// floor is how many free ports the pool is to have.
func (p *planner) floor() int { return p.capped(max(p.Levels.Min, p.Levels.Fill)) }

// capped limits a number of free ports to Max.
func (p *planner) capped(n int) int {
	if p.Levels.Max > 0 {
		return min(n, p.Levels.Max)
	}
	return n
}

// stayOrGo deletes a free port unless it stays.
func (p *planner) stayOrGo(port Port) bool {
	if p.stays(port.Name, port.Since) {
		return true
	}
	p.a.Delete = append(p.a.Delete, port.Name)
	return false
}

// stays reports whether a port that has been free since then stays so, and
// counts it if it does.
func (p *planner) stays(name string, since time.Time) bool {
	expires := since.Add(spread(p.Levels.TTL, name))
	switch {
	case p.kept < p.needed:
	case p.kept >= p.limit:
		return false
	case !p.now.Before(expires):
		return false
	default:
		p.wake(expires)
	}
	p.kept++
	return true
}

// spread lengthens ttl by up to a fifth, for each port by another part, so that
// what became free at once is not deleted at once.
func spread(ttl time.Duration, name string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return ttl + ttl/100*time.Duration(h.Sum32()%20)
}

// create requests the ports that pods and Min still lack.
func (p *planner) create() {
	soon := min(p.soon, p.left)
	coming := min(p.InFlight, p.left-soon)
	want := Demand{Waiting: p.left - soon - coming}
	if !p.Scarce {
		want.Spare = max(0, p.floor()-(p.kept-soon+p.InFlight-coming))
	}
	if want == (Demand{}) {
		return
	}
	if p.now.Before(p.Hold) {
		p.wake(p.Hold)
		return
	}
	p.a.Want = want
}

// adopt records a port, bound to pod if that is not nil.
func (p *planner) adopt(id string, pod *Pod) {
	b := Binding{Port: id}
	if pod != nil {
		b.Pod, b.Groups = &pod.Ref, pod.Groups
	}
	p.a.Adopt = append(p.a.Adopt, b)
}

// wake has the next plan made at that time at the latest.
func (p *planner) wake(at time.Time) {
	if p.a.Wake.IsZero() || at.Before(p.a.Wake) {
		p.a.Wake = at
	}
}
