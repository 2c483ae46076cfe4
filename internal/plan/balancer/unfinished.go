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
// below them, see Unfinished. A key has the objects that are not done, so another one begins when
// something changes. If these stay after a change of others, the first one is found again.
const unfinished = "unfinished "

// Unfinished returns the load balancers that accept changes while the provider is still at work on
// the objects below them, see sdn.Features.ChildrenLater, and when to read them again. If these
// objects have not changed for a pause, who was at work has died, and they are for Mending. A change
// that meets another one under way may leave the load balancer PENDING_UPDATE for ever.
func (m *Attempts) Unfinished(have []sdn.LoadBalancer, f sdn.Features, now time.Time, pause time.Duration) (ids []string, again time.Duration) {
	current := map[string]bool{}
	for i := range have {
		lb := &have[i]
		pending := pendingBelow(lb)
		if len(pending) == 0 || !f.ChildrenLater {
			continue
		}
		current[lb.ID] = true
		if busy(lb.Provisioning) {
			continue
		}
		key := fmt.Sprintf("%s%s %d %s", unfinished, lb.ID, len(pending), pending[0])
		if m.Times(key) == 0 {
			m.Note(key, now, Pauses{pause, pause}, "")
		}
		if m.Waits(key, now) == 0 {
			continue
		}
		next := min(max(now.Sub((*m)[key].First), time.Second/2), 5*time.Second)
		if ids = append(ids, lb.ID); again == 0 || next < again {
			again = next
		}
	}
	maps.DeleteFunc(*m, func(key string, _ *Attempt) bool {
		of, is := strings.CutPrefix(key, unfinished)
		return is && !current[strings.Fields(of)[0]]
	})
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
