// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// unfinished is the prefix of the keys of load balancers that are shown as done before the objects
// below them, see Unfinished. The key of a load balancer changes whenever one of these is done.
const unfinished = "unfinished "

// unchangedTimes is after how many pauses without a change nobody is at work any more. OVN's provider
// reports a state again after 75 s at most (8.0.0, helper.py, _update_status_to_octavia); a pause is 30 s.
const unchangedTimes = 3

// Unfinished returns the load balancers that accept changes while the provider is still at work on
// the objects below them, see sdn.Features.ChildrenLater, and when to read them again. If these
// objects have not changed for three times pause, who was at work has died, and they are for Mending: a
// change that meets another one under way may leave the load balancer PENDING_UPDATE for ever.
func (m *Attempts) Unfinished(have []sdn.LoadBalancer, f sdn.Features, now time.Time, pause time.Duration) (ids []string, again time.Duration) {
	current := map[string]bool{}
	for i := range have {
		lb := &have[i]
		pending := pendingBelow(lb)
		if len(pending) == 0 || !f.ChildrenLater || busy(lb.Provisioning) {
			continue
		}
		key := fmt.Sprintf("%s%s %d %s", unfinished, lb.ID, len(pending), pending[0])
		if current[key] = true; m.Times(key) == 0 {
			m.Note(key, now, Pauses{unchangedTimes * pause, unchangedTimes * pause}, "")
		}
		if m.Waits(key, now) == 0 {
			continue
		}
		next := min(max(now.Sub((*m)[key].First), time.Second/2), 5*time.Second)
		if ids = append(ids, lb.ID); again == 0 || next < again {
			again = next
		}
	}
	maps.DeleteFunc(*m, func(key string, _ *Attempt) bool { return strings.HasPrefix(key, unfinished) && !current[key] })
	return ids, again
}

// pendingBelow returns the objects below a load balancer that are being changed.
func pendingBelow(lb *sdn.LoadBalancer) (ids []string) {
	note := func(id string, p sdn.Provisioning) {
		if busy(p) {
			ids = append(ids, id)
		}
	}
	for _, l := range lb.Listeners {
		if note(l.ID, l.Provisioning); l.Pool != nil {
			note(l.Pool.ID, l.Pool.Provisioning)
			for _, m := range l.Pool.Members {
				note(m.ID, m.Provisioning)
			}
		}
	}
	return ids
}
