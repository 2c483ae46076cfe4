// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// sort takes the state apart and counts it.
func (p *planner) sort() {
	theirs := p.theirs()
	held := make(map[v1.Claim]bool, len(theirs))
	for _, port := range sorted(p.Ports, longestFree) {
		p.sortPort(port, !port.Pod.IsZero() && theirs[port.Pod] != port.Name, held)
	}
	var without []Pod
	for _, pod := range p.Pods {
		if !held[pod.Ref.Claim()] {
			without = append(without, pod)
		}
	}
	for _, pod := range sorted(without, byAge) {
		if !held[pod.Ref.Claim()] {
			held[pod.Ref.Claim()] = true
			p.waiting = append(p.waiting, pod)
		}
	}
	p.sortUnrecorded()
	p.a.Levels.Waiting = len(p.waiting)
}

// sortUnrecorded drops made ports that have an object: the object was written, and the answer was
// lost. Such a port may be in use; its object decides.
func (p *planner) sortUnrecorded() {
	if len(p.Unrecorded) == 0 {
		return // mostly; a pool of thousands is not put into a map for nothing
	}
	written := map[string]bool{}
	for _, port := range p.Ports {
		written[port.Name] = true
	}
	p.restored = map[v1.Claim]string{}
	for _, a := range sorted(p.Unrecorded, func(a, b Unrecorded) int { return strings.Compare(a.ID, b.ID) }) {
		switch {
		case written[a.ID]:
		case a.For.IsZero():
			p.spare = append(p.spare, a)
		case p.restored[a.For] == "":
			p.restored[a.For] = a.ID
		default:
			p.a.Discard = append(p.a.Discard, a.ID)
		}
	}
}

// sortPort decides over a port that a pod needs, and passes on the others. extra says that its pod has
// another port.
func (p *planner) sortPort(port Port, extra bool, held map[v1.Claim]bool) {
	count := &p.a.Levels
	if !port.Pod.IsZero() && port.Live && port.useless() && !port.Deleting {
		held[port.Pod] = true // waits until the object is gone
		count.Recycling++
		p.a.Delete = append(p.a.Delete, port.Name)
		return
	}
	if !port.Pod.IsZero() && port.Live && port.Misplaced && !port.Attached && !port.Deleting {
		// Taken from the pod first: deleted under it, it would be put back.
		held[port.Pod] = true
		count.Recycling++
		p.a.Recycle = append(p.a.Recycle, port.Name)
		return
	}
	if !port.Pod.IsZero() && port.Live && !extra && !port.Deleting {
		count.Bound++
		held[port.Pod] = true
		p.repair(port)
		return
	}
	if !port.Pod.IsZero() && port.Live && port.Deleting {
		// Deleted by hand: the pod waits for the port to be put back, not
		// for another, until the object is gone.
		held[port.Pod] = true
	}
	switch {
	case port.Deleting:
		count.Recycling++
	case !port.Pod.IsZero():
		count.Recycling++
		p.release(port)
	default:
		p.sortFree(port)
	}
}

// sortFree sorts a port without a pod by when a pod may get it.
func (p *planner) sortFree(port Port) {
	count := &p.a.Levels
	switch {
	case port.Failed:
		count.Recycling++
		p.a.Delete = append(p.a.Delete, port.Name)
	case !port.Rested && port.Since.After(p.now):
		// A process whose clock was ahead returned it, or the clock was set back. The real time is
		// unknown: the port rests from now on, and the new time is written.
		count.Recycling++
		p.returning = append(p.returning, port)
	case port.Ready && !port.Drifted && p.rested(port):
		count.Available++
		p.ready = append(p.ready, port)
	case p.rested(port):
		count.Recycling++
		p.settling = append(p.settling, port)
	default:
		count.Recycling++
		p.cooling = append(p.cooling, port)
	}
}

// release takes back a port whose pod no longer needs it. Nothing happens while it is plugged: its
// daemon reports when it is unplugged.
func (p *planner) release(port Port) {
	switch {
	case port.Attached && !p.NodeGone:
	case port.Failed:
		p.a.Delete = append(p.a.Delete, port.Name)
	default:
		p.returning = append(p.returning, port)
	}
}

// repair writes the security groups of a port that has others.
func (p *planner) repair(port Port) {
	if port.Drifted {
		p.a.Repair = append(p.a.Repair, port.Name)
	}
}

// theirs finds the port of each living pod. Further ports of the pod are extra: they exist only if
// two controllers have worked at once. A plugged port is kept. The plans of two pools that have a port of
// one pod choose the same one, if they see the same. If one sees an older state, its write fails: it
// carries the version of the port that it returns.
func (p *planner) theirs() map[v1.Claim]string {
	theirs, plugged := map[v1.Claim]string{}, map[v1.Claim]bool{}
	for _, ports := range [][]Port{p.Ports, p.Elsewhere} {
		for _, port := range ports {
			if port.Pod.IsZero() || !port.Live || port.useless() || port.Deleting {
				continue
			}
			other, ok := theirs[port.Pod]
			if was := plugged[port.Pod]; !ok || port.Attached && !was || port.Attached == was && port.Name < other {
				theirs[port.Pod], plugged[port.Pod] = port.Name, port.Attached
			}
		}
	}
	return theirs
}

// fit returns when a free port's cooldown is over.
func (p *planner) fit(port Port) time.Time {
	if port.Rested {
		return port.Since
	}
	return port.Since.Add(p.Levels.Cooldown)
}

// rested reports whether a free port's cooldown is over.
func (p *planner) rested(port Port) bool {
	return port.Rested || !p.now.Before(p.fit(port))
}

// maxFill is how many free ports a pool may be asked to have, as spec.min.
const maxFill = 10000

// ParseFill reads the annotation that asks for free ports.
func ParseFill(value string) (int, error) {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil || n > maxFill {
		return 0, fmt.Errorf("%s is %.40q: write a number from 0 to %d, as in \"20\"", v1.FillAnnotation, value, maxFill)
	}
	return int(n), nil
}
