// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"fmt"
	"maps"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// replaced ends the turn of a KuryrLoadBalancer to replace what serves.
func (r *Reconciler) replaced(req ctrl.Request) {
	r.turns.Range(func(project, who any) bool {
		if who == req {
			r.turns.Delete(project)
		}
		return true
	})
}

// mayReplace reports whether a load balancer that serves, or a part of it, may be deleted to be
// created again as want. One load balancer of a project at a time may, and only after the cloud has
// created a trial. The status says so before the first request, so that a restart keeps the turn.
func (v *visit) mayReplace(ctx context.Context, want sdn.LoadBalancer) (bool, error) {
	key := "trial " + want.VIP.IP
	if v.memory.attempts.Waits(key, v.Now()) > 0 { // the next one's own trial shows whether that is common
		v.round.Replacement.Waits = "the last load balancer that the cloud created as a trial ended in ERROR, or has another provider"
		return false, nil
	}
	all, err := kube.LoadBalancers(ctx, v.client)
	if err != nil {
		return false, err
	}
	if v.round.Replacement.Waits = balancer.Brake(v.klb, slices.Collect(maps.Values(all))); v.round.Replacement.Waits != "" {
		return false, nil
	}
	// The cache may not show the status that another one has just written.
	if who, _ := v.turns.LoadOrStore(v.klb.Spec.ProjectID, v.req); who != v.req {
		v.round.Replacement.Waits = "Kuryr replaces one load balancer of a project at a time"
		return false, nil
	}
	v.round.Replacement.Begun = true
	if err := v.write(ctx, func(s *v1.KuryrLoadBalancerStatus) {
		c := balancer.Progress(v.klb, v.result())
		c.Is, c.Reason = true, v1.ReasonReplacing
		v.set(s, c)
	}); err != nil {
		return false, err
	}
	switch trial, failed := balancer.TrialIn(v.round.Trees, want); {
	case trial == nil:
	case failed:
		v.memory.attempts.Note(key, v.Now(), balancer.Pauses{Least: v.Mend, Most: 30 * v.Mend}, "")
		return false, v.steps(ctx, []balancer.Step{balancer.DeleteLoadBalancer{ID: trial.ID, Because: "it was a trial"}})
	default:
		return trial.Provisioning == sdn.ProvisioningActive, nil // else it is waited for
	}
	if owned, err := v.owned(ctx); err != nil || len(owned) > len(v.round.Trees) { // one of an earlier process
		v.memory.statusIncomplete = true
		return false, err
	}
	if err := v.steps(ctx, []balancer.Step{balancer.CreateLoadBalancer{LoadBalancer: balancer.Trial(want)}}); err != nil {
		return false, fmt.Errorf("a load balancer that serves is replaced once the cloud can create another one as a trial: %w", err)
	}
	return false, nil
}

// turn returns the spec to apply for now. It keeps the serving provider as long as it may not be
// changed, or the other provider is not available. Meanwhile ports and endpoints are kept up to date.
func (v *visit) turn(ctx context.Context, trees []sdn.LoadBalancer) (*v1.KuryrLoadBalancer, error) {
	from := balancer.Moves(v.klb, trees, balancer.Named(v.klb))
	if from == "" {
		return v.klb, nil
	}
	features, err := v.features(ctx, v.klb, trees)
	want, _ := balancer.Want(v.klb, features)
	may := err == nil
	for i := range want {
		if may {
			may, err = v.mayReplace(ctx, want[i])
		}
	}
	if may {
		return v.klb, nil
	}
	now := *v.klb
	now.Spec.Provider, v.round.Replacement.Deferred, v.round.again = from, from, max(v.round.again, v.Mend/6)
	return &now, err
}

// unmarked notes that Octavia could not write the mark of a load balancer, if that is the step.
// Clients of the load balancer must not wait for a mark.
func (v *visit) unmarked(s balancer.Step, err error) bool {
	if _, is := s.(balancer.MarkLoadBalancer); !is {
		return false
	}
	v.memory.attempts.Did(s, v.Now(), v.Backoff.Min, err.Error())
	v.round.Failed = append(v.round.Failed, err.Error())
	return true
}
