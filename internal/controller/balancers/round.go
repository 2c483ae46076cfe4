// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"errors"
	"fmt"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
)

// round is what one round has found and done.
type round struct {
	balancer.Result

	busy           []string // load balancers that were already waited for: they are left out
	unfinished     []string // load balancers with children that are still being changed: likewise
	did            []string // steps that were carried out
	moved          []string // steps about the floating IP that were carried out
	stopped        bool     // a busy load balancer has stopped a step, maybe half way
	withoutRefused bool     // the next plan leaves out members that were just refused
	ensured        ensuredGroup
	notYetClosed   bool // the source ranges are not kept in the cloud yet
	err            error
	again          time.Duration // when the next round begins, at the latest; 0: when something changes
	within         time.Duration // likewise, also while a load balancer is busy
}

// open notes that a step which narrows the source ranges was not carried out.
func (o *round) open(s balancer.Step) {
	if balancer.Narrows(s) {
		o.Address.Withheld, o.Address.Placed = true, false
	}
}

// result returns the result of the round as it is now.
func (v *visit) result() *balancer.Result {
	r := &v.round.Result
	r.Changed, r.Failure = len(v.round.did) > 0, nil
	if err := v.round.err; err != nil {
		r.Failure = &balancer.Failure{Reason: outcome.Of(outcome.LoadBalancer, err).Reason, Text: v.failed()}
	}
	if r.Waiting.Stuck = v.isStuck(); v.leaves() {
		if at, ever := v.releaseAt(); ever {
			r.Waiting.Release = at
		}
	}
	r.Group.State = v.groupState(v.klb.Status.SecurityGroupState, r.Group.ID, v.round.ensured.wanted)
	return r
}

// settled reports whether the round has found the cloud as wanted.
func (v *visit) settled() bool { return v.result().IsSettled() }

// deleting is the reason of the conditions of a KuryrLoadBalancer whose deletion takes its time.
const deleting = "Deleting"

// describe writes the result of a round into a status. That of a KuryrLoadBalancer in deletion
// says why the object still exists.
func (v *visit) describe(s *v1.KuryrLoadBalancerStatus) {
	r := v.result()
	if !v.leaves() {
		for _, c := range balancer.Describe(s, v.klb, r) {
			v.set(s, c)
		}
		return
	}
	const text = "The load balancer is being deleted."
	reason, message := balancer.Unready(v.klb, r)
	if reason == v1.ReasonPending {
		reason, message = deleting, text
	}
	s.WaitingFor = r.Waiting.Status()
	v.set(s, balancer.Condition{Type: v1.ConditionReady, Reason: reason, Text: message})
	v.set(s, balancer.Condition{Type: v1.ConditionProgressing, Is: true, Reason: deleting, Text: text})
}

// failed describes the error, and what does not end in Octavia if its cluster IP cannot be held.
func (v *visit) failed() string {
	if errors.Is(v.round.err, errTaken) {
		return v.round.err.Error() + ". Release the address in the cloud, or create the Service again to get another cluster IP"
	}
	text := outcome.Of(outcome.LoadBalancer, v.round.err).Explain()
	if errors.Is(v.round.err, outcome.ErrNotPermitted) && v.isStuck() {
		text += fmt.Sprintf(". Load balancer %s has been busy in Octavia since %s", v.round.Waiting.ID, v.round.Waiting.Since.UTC().Format(time.RFC3339))
	}
	return text
}
