// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// heal carries out the steps that package balancer plans against an ERROR. A refusal by the
// cloud is one attempt and no error of the round: the next attempt or a pause follows. A step
// that a busy load balancer has stopped half way is no attempt: it continues when the load
// balancer is done. A failure during an outage of the cloud is no attempt either.
func (v *visit) heal(ctx context.Context, plan *balancer.Actions) error {
	var failed error
	for i := range plan.Remedies {
		if r := &plan.Remedies[i]; r.Replaces {
			may, err := v.mayReplace(ctx, plan.Want[slices.IndexFunc(plan.Want, func(lb sdn.LoadBalancer) bool { return lb.VIP.IP == r.Fault.VIP })])
			if failed = errors.Join(failed, err); !may {
				v.again(v.Mend / 6) // without a request to the cloud
				continue
			}
		}
		v.again(v.Backoff.Min) // the next plan says when the next attempt is due
		failed = errors.Join(failed, v.remedy(ctx, &plan.Remedies[i]))
	}
	if v.round.Replacement.Waits == "" {
		v.memory.forgetTrees() // the load balancer may have left ERROR by itself
	}
	return failed
}

// remedy carries out one step, and notes its outcome.
func (v *visit) remedy(ctx context.Context, r *balancer.Remedy) error {
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

// again has the next round begin after a pause at the latest; 0 is no pause.
func (v *visit) again(pause time.Duration) {
	if pause > 0 && (v.round.again == 0 || pause < v.round.again) {
		v.round.again = pause
	}
}
