// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// Each load balancer is checked once an interval, with all objects below it. A check finds what a
// person or another program has changed in the cloud.

// checks bounds the requests of all checks. The zero value is ready for use. It is safe for concurrent
// use.
type checks struct {
	mu   sync.Mutex
	next time.Time // when the requests of the checks so far have used their share
}

// reserve adds a check that uses the share of checks for that time, and returns when all checks so far
// have used it.
func (c *checks) reserve(takes time.Duration, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next.Before(now) {
		c.next = now
	}
	c.next = c.next.Add(takes)
	return c.next
}

// nextCheck is when a load balancer is checked, by the interval that was configured then.
type nextCheck struct {
	interval time.Duration
	at       time.Time
}

// due reports whether a check is due, and returns the time until the one after it. The first check is
// between one interval and two after the start, or after the interval has changed: serving comes
// first, and the checks of all load balancers are spread. The checks take longer than the interval if
// they would need too many of the requests that Kuryr may send.
func (n *nextCheck) due(interval, takes time.Duration, now time.Time, all *checks) (due bool, again time.Duration) {
	if n.interval != interval {
		n.interval, n.at = interval, now.Add(wait.Jitter(interval, 1))
	} else if due = !now.Before(n.at); due {
		n.at = now.Add(interval)
		if at := all.reserve(takes, now); at.After(n.at) {
			n.at = at
		}
	}
	return due, n.at.Sub(now)
}

// planCheck has this visit read the cloud if a check is due. It returns the time until the next one.
func (v *visit) planCheck() time.Duration {
	live := v.Settings.Load()
	takes := time.Duration(0)
	if perSecond := live.Neutron.RequestsPerSec; perSecond > 0 {
		takes = time.Duration(float64(checkRequests(v.klb)) * checkShare / perSecond * float64(time.Second))
	}
	due, again := v.memory.check.due(settings.CheckInterval(live.Services.CheckInterval.Duration), takes, v.Now(), &v.checks)
	if due {
		v.memory.checkRequested = true
		v.memory.forgetTrees()
	}
	return again
}

// followInterval visits all KuryrLoadBalancers after a change of the settings, as the interval may have
// changed.
func (r *Reconciler) followInterval(ctx context.Context) error {
	r.wakeAll(ctx, func(*v1.KuryrLoadBalancer) bool { return true })
	return nil
}

// checkShare bounds the requests for such checks: they are at most one part in checkShare of those
// that may be sent. Changes need the rest, and check for themselves.
const checkShare = 5

// checkRequests is the number of requests that a check of a KuryrLoadBalancer needs, with the
// backend that needs the most. It counts the load balancer, its listeners, its pools, their states,
// and the members and the monitor of each pool. The security group is one more.
func checkRequests(klb *v1.KuryrLoadBalancer) int {
	each := 4
	for i := range klb.Spec.Listeners {
		if each++; klb.Spec.Listeners[i].Monitor != nil {
			each++
		}
	}
	all := each * len(klb.Spec.VIPs)
	if klb.Status.SecurityGroupID != "" {
		all++
	}
	return all
}
