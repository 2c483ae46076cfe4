// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/polling"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

func (r *Reconciler) moved(req ctrl.Request) {
	if next, is := r.moves.Done(req); is {
		r.wake.Add(next)
	}
}

// turn returns the spec to apply for now. It keeps the serving provider as long as it is not
// this object's turn to change it, or the other provider is not available. Meanwhile ports and
// endpoints are kept up to date.
func (v *visit) turn(ctx context.Context, trees []sdn.LoadBalancer) (*v1.KuryrLoadBalancer, error) {
	from := balancer.Moves(v.klb, trees, balancer.Named(v.klb))
	if from == "" {
		return v.klb, nil
	}
	_, err := v.features(ctx, v.klb, trees)
	if err == nil && v.moves.Take(v.req, v.now()) {
		return v.klb, nil
	}
	now := *v.klb
	now.Spec.Provider, v.round.deferred, v.round.again = from, from, max(v.round.again, polling.MovePatience/10)
	return &now, err
}

// leaveIneffective removes from a plan the steps that the cloud accepts and does not carry out.
func (v *visit) leaveIneffective(ctx context.Context, plan *balancer.Plan) {
	left := plan.LeaveIneffective(v.memory.attempts, v.now())
	for _, s := range slices.Concat(left.AcceptedAsIs, left.NotApplied) {
		v.round.open(s)
	}
	for _, s := range left.AcceptedAsIs {
		ctrl.LoggerFrom(ctx).V(1).Info("Octavia accepted a change without applying it, and Kuryr does not repeat it", "step", s.String())
		v.round.acceptedAsIs = append(v.round.acceptedAsIs, s.String())
	}
	for _, s := range left.NotApplied {
		v.round.notApplied, v.round.again = append(v.round.notApplied, s.String()), left.Again
	}
	v.round.noted = append(v.round.noted, left.Failed...)
}

// unmarked notes that Octavia could not write the mark of a load balancer, if that is the step.
// Clients of the load balancer must not wait for a mark.
func (v *visit) unmarked(s balancer.Step, err error) bool {
	if _, is := s.(balancer.MarkLoadBalancer); !is {
		return false
	}
	v.memory.attempts.CouldNot(s, v.now(), v.backoff.Min, err.Error())
	v.round.noted = append(v.round.noted, err.Error())
	return true
}
