// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import "strings"

// cure forgets the attempts where everything works again. If that soon breaks again, mending
// begins at the gentlest level. The pause is longer each time, at each level that had to be
// tried.
func (d *mender) cure() {
	for i := range d.plan.places {
		at := &d.plan.places[i]
		if !at.active {
			continue
		}
		all := true
		for _, port := range at.ports {
			if all = all && port.well; port.well {
				d.cured(at.vip, port.name, false)
			}
		}
		// A load balancer that is ACTIVE with all ports has left its own ERROR, even if no wanted member
		// is behind a port yet: the endpoints may have changed while it was created.
		if all || at.isThere() {
			d.cured(at.vip, "", !all)
		}
	}
}

// cured forgets the attempts at a port, or at a load balancer; with own only those against the load
// balancer's own ERROR.
func (d *mender) cured(vip, port string, own bool) {
	for l := range levels {
		key := mendKey(vip, port, l)
		if a := (*d.m)[key]; a == nil || own && !a.Own {
			continue
		}
		delete(*d.m, key)
		least := d.pause
		if l == LevelMember {
			least /= quickLeast
		}
		d.m.Note(relapsed+key, d.now, Pauses{least, restMost * restTimes * d.pause}, "")
	}
}

// forget forgets what no longer matters: ports and addresses that are not wanted any more, and
// cures of long ago.
func (d *mender) forget() {
	wanted := map[string]bool{}
	for _, at := range d.plan.places {
		for l := range levels {
			wanted[mendKey(at.vip, "", l)] = true
			for _, port := range at.ports {
				wanted[mendKey(at.vip, port.name, l)] = true
			}
		}
	}
	there := map[string]bool{}
	for _, f := range d.plan.Faults {
		there[pending+f.What] = f.Pending
	}
	for key, a := range *d.m {
		plain, relapse := strings.CutPrefix(key, relapsed)
		old := relapse && d.now.Sub(a.Next) > 2*restTimes*d.pause
		if old || strings.HasPrefix(plain, mending) && !wanted[plain] || strings.HasPrefix(key, pending) && !there[key] {
			delete(*d.m, key)
		}
	}
}
