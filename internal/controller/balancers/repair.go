// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// heal carries out the steps that package balancer plans against an ERROR. A refusal by the
// cloud is one attempt and no error of the round: the next attempt or a pause follows. A step
// that a busy load balancer has stopped half way is no attempt: it continues when the load
// balancer is done. A failure during an outage of the cloud is no attempt either.
func (v *reconciliation) heal(ctx context.Context, plan *balancer.Actions) error {
	var failed error
	for i := range plan.Remedies {
		if r := &plan.Remedies[i]; r.Replaces {
			may, err := v.mayReplace(ctx, plan.Want[slices.IndexFunc(plan.Want, func(lb sdn.LoadBalancer) bool { return lb.VIP.IP == r.VIP })])
			if failed = errors.Join(failed, err); !may {
				v.round.again = sooner(v.round.again, v.Mend/6) // without a request to the cloud
				continue
			}
		}
		v.round.again = sooner(v.round.again, v.Backoff.Min) // the next plan says when the next attempt is due
		failed = errors.Join(failed, v.remedy(ctx, &plan.Remedies[i]))
	}
	if v.round.Replacement.Waits == "" {
		v.memory.trees = nil // the load balancer may have left ERROR by itself
	}
	return failed
}

// remedy carries out one step, and notes its outcome.
func (v *reconciliation) remedy(ctx context.Context, r *balancer.Fault) error {
	did := len(v.round.did)
	v.round.stopped = false
	err := v.steps(ctx, []balancer.Step{r.Step})
	why := ""
	switch {
	case err != nil && !isRefusal(err):
		return err
	case err != nil:
		why = err.Error()
	case v.round.Blocked != "":
		v.round.Blocked, why = "", "Octavia refuses it, as the load balancer is busy"
		v.memory.attempts.NotBusy()
	}
	if !v.memory.attempts.Begin(r, v.Now()) {
		v.event(v1.ReasonLoadBalancerInError, "MendLoadBalancer", "ERROR in Octavia: "+r.Tell())
		balancersMended.Inc()
	}
	if why != "" || !v.round.stopped || len(v.round.did) > did { // else it is continued
		v.memory.attempts.Tried(r, v.Now(), why)
	}
	return nil
}

// isRefusal reports whether the cloud has answered and refused a request, for another reason
// than a quota or missing rights.
func isRefusal(err error) bool {
	for _, other := range []error{sdn.ErrUnavailable, sdn.ErrQuota, sdn.ErrForbidden, sdn.ErrUnsupported, sdn.ErrNotFound, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, other) {
			return false
		}
	}
	return err != nil && !errors.As(err, new(*sdn.PendingError))
}

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
func (v *reconciliation) mayReplace(ctx context.Context, want sdn.LoadBalancer) (bool, error) {
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
func (v *reconciliation) turn(ctx context.Context, trees []sdn.LoadBalancer) (*v1.KuryrLoadBalancer, error) {
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
func (v *reconciliation) unmarked(s balancer.Step, err error) bool {
	if _, is := s.(balancer.MarkLoadBalancer); !is {
		return false
	}
	v.memory.attempts.Did(s, v.Now(), v.Backoff.Min, err.Error())
	v.round.Failed = append(v.round.Failed, err.Error())
	return true
}
