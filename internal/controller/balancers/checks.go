// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// Each load balancer is checked once an interval, with all objects below it. A check finds what a
// person or another program has changed in the cloud.

// nextCheck is when a load balancer is checked, by the interval that was configured then.
type nextCheck struct {
	interval time.Duration
	at       time.Time
}

// due reports whether a check is due, and returns the time until the one after it. The first check is
// between one interval and two after the start, or after the interval has changed: serving comes
// first, and the checks of all load balancers are spread. The checks take longer than the interval if
// all of them would need more requests than share allows.
func (n *nextCheck) due(interval time.Duration, requests int, now time.Time, share *rate.Limiter) (due bool, again time.Duration) {
	if n.interval != interval {
		n.interval, n.at = interval, now.Add(wait.Jitter(interval, 1))
	} else if due = !now.Before(n.at); due {
		n.at = now.Add(max(interval, share.ReserveN(now, min(requests, share.Burst())).DelayFrom(now)))
	}
	return due, n.at.Sub(now)
}

// planCheck has this visit read the cloud if a check is due. It returns the time until the next one.
func (v *visit) planCheck() time.Duration {
	live, share := v.Settings.Load(), rate.Inf
	if perSecond := live.Neutron.RequestsPerSec; perSecond > 0 {
		share = rate.Limit(perSecond / checkShare)
	}
	v.checks.SetLimitAt(v.Now(), share)
	due, again := v.memory.check.due(settings.CheckInterval(live.Services.CheckInterval.Duration), checkRequests(v.klb), v.Now(), v.checks)
	if due {
		v.memory.trees, v.memory.checkRequested = nil, true
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

// checkBurst is how many requests of checks may be ahead of their share: more than a check needs.
const checkBurst = 1000

// checkRequests is the most requests that a check of a KuryrLoadBalancer needs. It counts the load
// balancer, its listeners, its pools, their states, the members and the monitor of each pool, and the
// security group.
func checkRequests(klb *v1.KuryrLoadBalancer) int {
	return len(klb.Spec.VIPs)*(4+2*len(klb.Spec.Listeners)) + 1
}
