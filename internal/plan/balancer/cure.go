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
			all = all && port.well
			for l := range levels {
				if port.well {
					d.cured(at.vip, port.name, l)
				}
			}
		}
		for l := range levels { // of a load balancer's own ERROR it is cured without a wanted member, too: endpoints change
			if a := (*d.m)[mendKey(at.vip, "", l)]; all || a != nil && a.Own && at.isThere() {
				d.cured(at.vip, "", l)
			}
		}
	}
}

func (d *mender) cured(vip, port string, l Level) {
	key := mendKey(vip, port, l)
	if (*d.m)[key] == nil {
		return
	}
	delete(*d.m, key)
	least := d.pause
	if l == LevelMember {
		least /= quickLeast
	}
	d.m.Note(relapsed+key, d.now, Pauses{least, restMost * restTimes * d.pause}, "")
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
