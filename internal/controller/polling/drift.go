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

// Drift has each load balancer, with all that is below it, looked at once an interval,
// spread over it: somebody may have changed it in the cloud.
type Drift struct {
	client   client.Client
	settings *settings.Live
	suspect  func(req ctrl.Request, doubt bool)
	looking  func(ctrl.Request) bool // its last look is not done
	wake     func(ctrl.Request)
}

// NewDrift returns a Drift that looks at nothing before Look. suspect and wake request a
// look at one KuryrLoadBalancer; looking reports whether the last one is not done.
func NewDrift(c client.Client, s *settings.Live, suspect func(ctrl.Request, bool), looking func(ctrl.Request) bool, wake func(ctrl.Request)) *Drift {
	return &Drift{client: c, settings: s, suspect: suspect, looking: looking, wake: wake}
}

// Look has each KuryrLoadBalancer looked at once an interval, until ctx ends. The
// first look is an interval after the start: serving comes first. They are spread
// over all of it, in the order of their names, so that each is looked at as often;
// over more than that if they would take too many of the requests that may be sent.
// One whose last look is not done is not asked for another.
func (r *Drift) Look(ctx context.Context) error {
	interval := func() time.Duration { return settings.CheckInterval(r.settings.Load().Services.CheckInterval.Duration) }
	for rest := true; !rest || kube.Await(ctx, interval); {
		all, err := kube.LoadBalancers(ctx, r.client)
		if rest = err != nil || len(all) == 0; rest {
			continue
		}
		for _, req := range slices.SortedFunc(maps.Keys(all), byName) {
			looks := !r.looking(req)
			if looks {
				r.suspect(req, false)
				r.wake(req)
			}
			gap := func() time.Duration {
				even := interval() / time.Duration(len(all))
				if !looks {
					return even
				}
				return max(even, r.cost(all[req]))
			}
			if !kube.Await(ctx, gap) {
				return nil
			}
		}
	}
	return nil
}

// lookShare is what part of the requests that may be sent is for such looks at most:
// what is to be changed needs the rest, and looks at itself.
const lookShare = 5

// cost is how long a look takes of what may be sent.
func (r *Drift) cost(klb *v1.KuryrLoadBalancer) time.Duration {
	perSecond := r.settings.Load().RequestsPerSecond
	if perSecond <= 0 {
		return 0
	}
	return time.Duration(float64(lookRequests(klb)) * lookShare / perSecond * float64(time.Second))
}

// lookRequests is how many requests a look at a KuryrLoadBalancer is, of the backend
// that needs the most: a load balancer, its listeners, its pools and their states, and
// the members and the monitor of each pool; and its security group.
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
