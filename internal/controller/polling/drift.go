// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package polling

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// Drift requests a check of each load balancer, with all objects below it, once an interval. The
// checks are spread over the interval. A check finds what a person or another program has changed
// in the cloud.
type Drift struct {
	client       client.Client
	settings     *settings.Live
	requestCheck func(req ctrl.Request, statusIncomplete bool)
	looking      func(ctrl.Request) bool // reports whether the last check is not done
	wake         func(ctrl.Request)

	// Only Look uses the following fields.
	all  map[ctrl.Request]*v1.KuryrLoadBalancer // the load balancers of this interval
	left []ctrl.Request                         // those of them without a check in this interval
	gap  func() time.Duration                   // time until the next check
}

// NewDrift returns a Drift that requests no check before Look. requestCheck and wake request a
// check of one KuryrLoadBalancer. looking reports whether its last check is not done.
func NewDrift(c client.Client, s *settings.Live, requestCheck func(ctrl.Request, bool), looking func(ctrl.Request) bool, wake func(ctrl.Request)) *Drift {
	return &Drift{client: c, settings: s, requestCheck: requestCheck, looking: looking, wake: wake}
}

// Look requests a check of each KuryrLoadBalancer once an interval, until ctx ends. The first check
// is an interval after the start: serving comes first.
//
// The checks are spread over the interval in the order of the names, so that each load balancer is
// checked equally often. They take longer than the interval if they would need too many of the
// requests that Kuryr may send. A load balancer whose last check is not done is skipped.
func (r *Drift) Look(ctx context.Context) error {
	r.gap = r.interval
	return kube.Every("drift", func() time.Duration { return r.gap() }, r.next, nil)(ctx)
}

func (r *Drift) interval() time.Duration {
	return settings.CheckInterval(r.settings.Load().Services.CheckInterval.Duration)
}

// next requests a check of one KuryrLoadBalancer, and sets the time until the next one.
func (r *Drift) next(ctx context.Context) (err error) {
	if len(r.left) == 0 {
		r.gap = r.interval
		if r.all, err = kube.LoadBalancers(ctx, r.client); err != nil || len(r.all) == 0 {
			return err
		}
		r.left = slices.SortedFunc(maps.Keys(r.all), byName)
	}
	req := r.left[0]
	r.left = r.left[1:]
	looks := !r.looking(req)
	if looks {
		r.requestCheck(req, false)
		r.wake(req)
	}
	r.gap = func() time.Duration {
		even := r.interval() / time.Duration(len(r.all))
		if !looks {
			return even
		}
		return max(even, r.cost(r.all[req]))
	}
	return nil
}

// lookShare bounds the requests for such checks: they are at most one part in lookShare of those
// that may be sent. Changes need the rest, and check for themselves.
const lookShare = 5

// cost is how long one check uses the share of requests for checks.
func (r *Drift) cost(klb *v1.KuryrLoadBalancer) time.Duration {
	perSecond := r.settings.Load().RequestsPerSecond
	if perSecond <= 0 {
		return 0
	}
	return time.Duration(float64(lookRequests(klb)) * lookShare / perSecond * float64(time.Second))
}

// lookRequests is the number of requests that a check of a KuryrLoadBalancer needs, with the
// backend that needs the most. It counts the load balancer, its listeners, its pools, their states,
// and the members and the monitor of each pool. The security group is one more.
func lookRequests(klb *v1.KuryrLoadBalancer) int {
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

func byName(a, b ctrl.Request) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
