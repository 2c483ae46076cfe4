// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Plan says what to do in state s at the time now. Carried out in full, and
// with nothing else happening, plans come to rest at one port for each pod and
// Min free ones. What it promises of every plan, at rest or not:
//   - no port goes to two pods and no pod gets two ports;
//   - no port that has an object is deleted but through that;
//   - a port leaves a pod only if that is gone or finished, and has been
//     unplugged or has lost its node; of a lost node no port is used again.
//     One that the SDN has lost leaves a living pod, too, unless it is plugged;
//   - no more than Max ports are kept free, but for those that waiting pods
//     are about to get.
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

	waiting   []Pod     // without a port, oldest first
	ready     []Port    // free, fit for a pod, longest free first
	resting   []Port    // free, not yet fit
	returning []Port    // held by nobody any more, unplugged
	spare     []Arrival // for whoever needs it
	restored  map[types.UID]string

	uncovered int // pods that nothing is under way for
	soon      int // kept ports that a waiting pod will have in a moment
	kept      int // free ports that stay
}

// sort takes the state apart and counts it.
func (p *planner) sort() {
	extra := p.extra()
	held := map[types.UID]bool{}
	for _, port := range sorted(p.Ports, longestFree) {
		p.sortPort(port, extra[port.Name], held)
	}
	for _, pod := range sorted(p.Pods, byAge) {
		if !held[pod.Ref.UID] {
			held[pod.Ref.UID] = true
			p.waiting = append(p.waiting, pod)
		}
	}
	p.sortArrived()
	p.a.Levels.Waiting = len(p.waiting)
}

// sortArrived leaves out what has an object: that was written, and the answer
// lost. Such a port may be in use; it is for the object to say what becomes of it.
func (p *planner) sortArrived() {
	written := map[string]bool{}
	for _, port := range p.Ports {
		written[port.Name] = true
	}
	p.restored = map[types.UID]string{}
	for _, a := range sorted(p.Arrived, func(a, b Arrival) int { return strings.Compare(a.ID, b.ID) }) {
		switch {
		case written[a.ID]:
		case a.For == "":
			p.spare = append(p.spare, a)
		case p.restored[a.For] == "":
			p.restored[a.For] = a.ID
		default:
			p.a.Discard = append(p.a.Discard, a.ID)
		}
	}
}

func (p *planner) sortPort(port Port, extra bool, held map[types.UID]bool) {
	count := &p.a.Levels
	if port.Pod != "" && port.Live && port.useless() && !port.Deleting {
		held[port.Pod] = true // waits until the object is gone
		count.Recycling++
		p.a.Delete = append(p.a.Delete, port.Name)
		return
	}
	if port.Pod != "" && port.Live && !extra && !port.Deleting {
		count.Bound++
		held[port.Pod] = true
		p.repair(port)
		return
	}
	if port.Pod != "" && port.Live && port.Deleting {
		// Deleted by hand: the pod waits for the port to be put back, not
		// for another, until the object is gone.
		held[port.Pod] = true
	}
	switch {
	case port.Deleting:
		count.Recycling++
	case port.Pod != "":
		count.Recycling++
		p.release(port)
	case port.Failed:
		count.Recycling++
		p.a.Delete = append(p.a.Delete, port.Name)
	case port.Ready && !port.Drifted && p.rested(port):
		count.Available++
		p.ready = append(p.ready, port)
	default:
		count.Recycling++
		p.resting = append(p.resting, port)
	}
}

// release takes a port back whose pod needs it no more. While it is plugged
// there is nothing to do: its daemon will say when it is not.
func (p *planner) release(port Port) {
	switch {
	case port.Attached && !p.NodeGone:
	case port.Failed:
		p.a.Delete = append(p.a.Delete, port.Name)
	default:
		p.returning = append(p.returning, port)
	}
}

func (p *planner) repair(port Port) {
	if port.Drifted {
		p.a.Repair = append(p.a.Repair, port.Name)
	}
}

// extra finds ports beyond the first of a pod. There are none unless two
// controllers have worked at once. A plugged one is the one to keep.
func (p *planner) extra() map[string]bool {
	first := map[types.UID]Port{}
	extra := map[string]bool{}
	for _, port := range sorted(p.Ports, func(a, b Port) int { return strings.Compare(a.Name, b.Name) }) {
		if port.Pod == "" || !port.Live || port.useless() || port.Deleting {
			continue
		}
		other, ok := first[port.Pod]
		switch {
		case !ok:
			first[port.Pod] = port
		case port.Attached && !other.Attached:
			extra[other.Name] = true
			first[port.Pod] = port
		default:
			extra[port.Name] = true
		}
	}
	return extra
}

// clear is the plan for a pool without a node: nothing new, nothing kept.
func (p *planner) clear() {
	for _, ports := range [][]Port{p.returning, p.ready, p.resting} {
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

// restore sees to pods that had a port whose object is gone: such a port may
// still be plugged, so no other will do while it may be there.
func (p *planner) restore() {
	var rest []Pod
	for _, pod := range p.waiting {
		id := p.restored[pod.Ref.UID]
		switch {
		case id != "":
			delete(p.restored, pod.Ref.UID)
			p.adopt(id, &pod.Ref)
		case pod.Restore == "":
			rest = append(rest, pod)
		case p.Restoring[pod.Restore]:
		case p.now.Before(p.Hold):
			p.wake(p.Hold)
		default:
			p.a.Restore = append(p.a.Restore, Lookup{pod.Restore, pod.Ref.UID})
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

// match gives the free ports to the waiting pods, oldest pod first.
func (p *planner) match() {
	for len(p.waiting) > 0 {
		ref := &p.waiting[0].Ref
		switch {
		case len(p.ready) > 0:
			p.a.Bind = append(p.a.Bind, Binding{Port: p.ready[0].Name, Pod: ref})
			p.ready = p.ready[1:]
		case len(p.spare) > 0:
			p.adopt(p.spare[0].ID, ref)
			p.spare = p.spare[1:]
		default:
			p.uncovered = max(0, len(p.waiting)-p.InFlight)
			return
		}
		p.waiting = p.waiting[1:]
	}
}

// keep decides over the ports that are free now: those that Min and the waiting
// pods need stay, others for TTL and up to Max. The ones that cost nothing to
// keep come first; among these the last used, so that the others grow old.
func (p *planner) keep() {
	needed := p.Levels.Min + p.uncovered
	if p.Levels.Max > 0 {
		needed = min(needed, max(p.Levels.Max, p.uncovered))
	}
	for _, port := range slices.Backward(p.ready) {
		if !p.stays(needed, port.Since) {
			p.a.Delete = append(p.a.Delete, port.Name)
		}
	}
	for _, a := range p.spare {
		if p.stays(needed, p.now) {
			p.adopt(a.ID, nil)
		} else {
			p.a.Discard = append(p.a.Discard, a.ID)
		}
	}
	for _, port := range slices.Backward(p.resting) {
		if !p.stays(needed, port.Since) {
			p.a.Delete = append(p.a.Delete, port.Name)
			continue
		}
		p.repair(port)
		if p.rested(port) {
			p.soon++
		} else {
			p.wake(port.Since.Add(p.Levels.Cooldown))
		}
	}
	for _, port := range p.returning {
		if !p.stays(needed, p.now) {
			p.a.Delete = append(p.a.Delete, port.Name)
			continue
		}
		p.a.Recycle = append(p.a.Recycle, port.Name)
		if p.Levels.Cooldown <= 0 {
			p.soon++
		}
	}
}

// stays reports whether a port that has been free since then stays so, and
// counts it if it does.
func (p *planner) stays(needed int, since time.Time) bool {
	expires := since.Add(p.Levels.TTL)
	switch {
	case p.kept < needed:
	case p.Levels.Max > 0 && p.kept >= p.Levels.Max:
		return false
	case !p.now.Before(expires):
		return false
	default:
		p.wake(expires)
	}
	p.kept++
	return true
}

// create asks for what pods and Min still lack.
func (p *planner) create() {
	soon := min(p.soon, p.uncovered)
	reserve := p.kept - soon + max(0, p.InFlight-len(p.waiting))
	want := Wish{Waiting: p.uncovered - soon, Spare: max(0, p.Levels.Min-reserve)}
	if want == (Wish{}) {
		return
	}
	if p.now.Before(p.Hold) {
		p.wake(p.Hold)
		return
	}
	p.a.Want = want
}

func (p *planner) adopt(id string, ref *v1.PodReference) {
	p.a.Adopt = append(p.a.Adopt, Binding{Port: id, Pod: ref})
}

func (p *planner) rested(port Port) bool {
	return port.Rested || !p.now.Before(port.Since.Add(p.Levels.Cooldown))
}

func (p *planner) wake(at time.Time) {
	if p.a.Wake.IsZero() || at.Before(p.a.Wake) {
		p.a.Wake = at
	}
}
