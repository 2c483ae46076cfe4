// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/polling"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

func (r *Reconciler) moved(req ctrl.Request) {
	if next, is := r.moves.Done(req); is {
		r.wake.Add(next)
	}
}

// turn returns what is to be in the cloud for now: with the provider that serves, as
// long as it is not this one's turn to change it, or the other one is not to be had.
// Ports and endpoints are kept up to date meanwhile.
func (r *Reconciler) turn(ctx context.Context, klb *v1.KuryrLoadBalancer, trees []sdn.LoadBalancer, o *round) (*v1.KuryrLoadBalancer, error) {
	from := balancer.Moves(klb, trees, balancer.Named(klb))
	if from == "" {
		return klb, nil
	}
	_, err := r.features(ctx, klb, trees)
	if err == nil && r.moves.Take(kube.RequestOf(klb), r.now()) {
		return klb, nil
	}
	now := *klb
	now.Spec.Provider, o.deferred, o.again = from, from, max(o.again, polling.MovePatience/10)
	return &now, err
}

// provider returns that of a load balancer that the round has seen.
func (o *round) provider(id string) string {
	for i := range o.trees {
		if o.trees[i].ID == id {
			return o.trees[i].Provider
		}
	}
	return ""
}

// leaveStubborn takes out of a plan what the cloud has accepted and not done: an
// update for good, as it is most likely a default of the cloud that differs, all
// else, and who may come in, for a while. Endless updates would keep a load balancer
// busy for ever.
func (r *Reconciler) leaveStubborn(ctx context.Context, m *memory, plan *balancer.Plan, o *round) {
	if len(m.stubborn) == 0 {
		return
	}
	still := map[string]*balancer.Attempt{}
	for key, a := range m.stubborn {
		if strings.HasPrefix(key, balancer.Replacing) { // what comes of it is there two looks later
			still[key] = a
		}
	}
	stubborn := func(s balancer.Step) bool {
		key := balancer.Fingerprint(s)
		a := m.stubborn[key]
		if a == nil {
			return false
		}
		still[key] = a
		if a.Failed != "" && a.Next.After(r.now()) {
			o.noted = append(o.noted, a.Failed)
			return true
		}
		if a.Failed != "" || a.Times < balancer.IneffectiveAfter {
			return false
		}
		o.open(s)
		if balancer.Leaves(s) {
			ctrl.LoggerFrom(ctx).V(1).Info("leaving a load balancer as the cloud keeps it", "step", s.String())
			o.left = append(o.left, s.String())
			return true
		}
		if wait := a.Next.Sub(r.now()); wait > 0 {
			o.refused = append(o.refused, s.String())
			o.again = wait
			return true
		}
		return false
	}
	plan.Steps, plan.Last = slices.DeleteFunc(plan.Steps, stubborn), slices.DeleteFunc(plan.Last, stubborn)
	m.stubborn = still
}

// unmarked notes that a mark could not be written, if that is the step: nobody who is
// served by the load balancer is to wait for it.
func (r *Reconciler) unmarked(m *memory, s balancer.Step, err error, o *round) bool {
	if _, is := s.(balancer.MarkLoadBalancer); !is {
		return false
	}
	m.stubborn.Did(balancer.Fingerprint(s), r.now(), r.backoff.Min)
	m.stubborn[balancer.Fingerprint(s)].Failed = err.Error()
	o.noted = append(o.noted, err.Error())
	return true
}
