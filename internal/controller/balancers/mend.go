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
func (v *visit) heal(ctx context.Context, plan *balancer.Plan, want []sdn.LoadBalancer) error {
	m := v.round.mending
	var failed error
	held := false
	for i := range m.Remedies {
		if r := &m.Remedies[i]; r.Replaces {
			may, err := v.mayReplace(ctx, want[slices.IndexFunc(want, func(lb sdn.LoadBalancer) bool { return lb.VIP.IP == r.Fault.VIP })])
			if failed = errors.Join(failed, err); !may {
				held = true
				continue
			}
		}
		failed = errors.Join(failed, v.remedy(ctx, &m.Remedies[i]))
	}
	if v.round.waits == "" {
		v.memory.forgetTrees() // the load balancer may have left ERROR by itself
	}
	after := plan.Mending(&v.memory.attempts, v.now(), v.mend)
	if v.again(after.Again); held {
		v.again(v.mend / 6) // without a request to the cloud
	} else if len(after.Remedies) > 0 {
		v.round.again = v.backoff.Min
	}
	if len(m.Remedies) == 0 {
		v.round.mending = after
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
	case v.round.blocked != "":
		v.round.blocked, why = "", "Octavia refuses it, as the load balancer is busy"
		v.memory.attempts.NotBusy()
	case v.round.stopped && len(v.round.did) == did:
		v.tellRemedy(r)
		return nil
	}
	v.tellRemedy(r)
	v.memory.attempts.Tried(r, v.now(), why)
	return nil
}

// tellRemedy warns on the Service when an attempt to mend something begins.
func (v *visit) tellRemedy(r *balancer.Remedy) {
	if !v.memory.attempts.Begin(r, v.now()) {
		v.event(v1.ReasonLoadBalancerInError, "MendLoadBalancer", "ERROR in Octavia: "+r.Tell())
		balancersMended.Inc()
	}
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

// leaveRefused removes from want the members that the cloud has refused.
func (v *visit) leaveRefused(want []sdn.LoadBalancer) {
	why, again := balancer.LeaveRefused(want, v.memory.attempts, v.now())
	v.round.refusedMembers, v.round.partial = why, again > 0
	v.again(again)
}

// noteDisabled notes what a person has disabled in the cloud. The cloud is read again soon, as
// no event reports that it is enabled again.
func (v *visit) noteDisabled(all []balancer.Disabled) {
	for _, d := range all {
		if d.Member {
			v.round.disabledMembers = append(v.round.disabledMembers, d)
		} else {
			v.round.disabled = append(v.round.disabled, d)
		}
	}
	if len(v.round.disabled) > 0 {
		v.memory.forgetTrees()
	}
}
