// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// checks are those of all load balancers: each is checked once an interval, with all objects below it.
// A check finds what a person or another program has changed in the cloud. The first check is an
// interval after the start, as serving comes first. Only one goroutine uses checks.
type checks struct {
	left     []*v1.KuryrLoadBalancer // to be checked before all are checked again; read-only
	all      int                     // how many all are
	requests int                     // what the last check may need
}

// checkShare bounds the requests for checks: they are at most one part in checkShare of those that may
// be sent. Changes need the rest, and check for themselves.
const checkShare = 5

// pause returns the time between two checks. They are spread over the interval. They take longer than
// that if all of them would need more requests than their share.
func (c *checks) pause(s *settings.Settings) time.Duration {
	pause := settings.CheckInterval(s.Services.CheckInterval.Duration) / time.Duration(max(1, c.all))
	if perSecond := s.Neutron.RequestsPerSec; perSecond > 0 {
		pause = max(pause, time.Duration(float64(c.requests)*checkShare/perSecond*float64(time.Second)))
	}
	return pause
}

// checkNext requests the check of one own load balancer after the other, always in the same order.
func (r *Reconciler) checkNext(ctx context.Context) error {
	c := &r.checks
	if len(c.left) == 0 {
		all, err := kube.LoadBalancers(ctx, r.client)
		if err != nil {
			return err
		}
		maps.DeleteFunc(all, func(req ctrl.Request, _ *v1.KuryrLoadBalancer) bool { return !r.owns(req) })
		c.left = slices.SortedFunc(maps.Values(all), func(a, b *v1.KuryrLoadBalancer) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		c.all, c.requests = len(all), 0
	}
	if len(c.left) > 0 {
		next := c.left[0]
		// The most requests that a check needs: the load balancer, its listeners, its pools, their states,
		// the members and the monitor of each pool, and the security group.
		c.left, c.requests = c.left[1:], len(next.Spec.VIPs)*(4+2*len(next.Spec.Listeners))+1
		r.RequestCheck(kube.RequestOf(next), false)
	}
	return nil
}
