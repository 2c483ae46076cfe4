// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import "strings"

// cure forgets the attempts where everything works again. If that soon breaks again, mending
// begins at the gentlest level. The pause is longer each time, at each level that had to be
// tried.
func (p *planner) cure() {
	for i := range p.places {
		at := &p.places[i]
		if !at.active {
			continue
		}
		all := true
		for _, port := range at.ports {
			if all = all && port.well; port.well {
				p.cured(at.vip, port.name, false)
			}
		}
		// A load balancer that is ACTIVE with all ports has left its own ERROR, even if no wanted member
		// is behind a port yet: the endpoints may have changed while it was created.
		if all || at.isThere() {
			p.cured(at.vip, "", !all)
		}
	}
}

// cured forgets the attempts at a port, or at a load balancer; with own only those against the load
// balancer's own ERROR.
func (p *planner) cured(vip, port string, own bool) {
	for l := range levels {
		key := mendKey(vip, port, l)
		if a := p.Attempts[key]; a == nil || own && !a.Own {
			continue
		}
		delete(p.Attempts, key)
		least := p.in.Pause
		if l == LevelMember {
			least /= quickLeast
		}
		p.Attempts.Note(relapsed+key, p.in.Now, Pauses{least, restMost * restTimes * p.in.Pause}, "")
	}
}

// forget forgets what no longer matters: ports and addresses that are not wanted any more, and
// cures of long ago.
func (p *planner) forget() {
	wanted := map[string]bool{}
	for _, at := range p.places {
		for l := range levels {
			wanted[mendKey(at.vip, "", l)] = true
			for _, port := range at.ports {
				wanted[mendKey(at.vip, port.name, l)] = true
			}
		}
	}
	there := map[string]bool{}
	for _, f := range p.faults {
		there[pending+f.What] = f.Pending
	}
	for key, a := range p.Attempts {
		plain, relapse := strings.CutPrefix(key, relapsed)
		old := relapse && p.in.Now.Sub(a.Next) > 2*restTimes*p.in.Pause
		if old || strings.HasPrefix(plain, mending) && !wanted[plain] || strings.HasPrefix(key, pending) && !there[key] {
			delete(p.Attempts, key)
		}
	}
}
