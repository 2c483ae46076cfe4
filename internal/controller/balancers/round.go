// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// reconciliation is one Reconcile of one KuryrLoadBalancer.
type reconciliation struct {
	*Reconciler
	req    ctrl.Request
	klb    *v1.KuryrLoadBalancer // a copy, as the last own write left it
	memory *memory
	round  round
}

// leaves reports whether the object is being deleted.
func (v *reconciliation) leaves() bool { return !v.klb.DeletionTimestamp.IsZero() }

// apply brings the cloud in line, or deletes what the object has there.
func (v *reconciliation) apply(ctx context.Context) (ctrl.Result, error) {
	if v.leaves() {
		return v.release(ctx)
	}
	if !v.objects.Held(v.klb) {
		// The finalizer is added before the first request. An object without it has nothing in
		// the cloud, unless a person has removed the finalizer.
		if v.memory.generation == 0 && reflect.ValueOf(v.klb.Status).IsZero() {
			v.memory.nothingCreated, v.memory.noAddress, v.memory.born = true, true, v.Now()
		}
		if err := v.objects.Hold(ctx, v.klb); err != nil {
			return kube.Retry(err)
		}
	}
	if rest, again, err := v.atRest(ctx); err != nil {
		return v.Backoff.Again(err)
	} else if rest {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return v.bring(ctx)
}

// atRest reports whether nothing is to be done: the status says that this generation is in the
// cloud and names every part of it. It asks the cloud only for the features of a provider that
// cannot do everything, or for source ranges at members. again is when to ask anew, if the
// answer may be different then.
func (v *reconciliation) atRest(ctx context.Context) (rest bool, again time.Duration, err error) {
	s := &v.klb.Status
	ready := meta.FindStatusCondition(s.Conditions, v1.ConditionReady)
	if ready == nil && v.memory.trees != nil { // a person has emptied the status
		v.memory.forgetCloud()
	}
	if v.memory.checkRequested || v.memory.statusIncomplete || ready == nil || ready.Status != "True" || ready.ObservedGeneration != v.klb.Generation ||
		!meta.IsStatusConditionFalse(s.Conditions, v1.ConditionProgressing) {
		return false, 0, nil
	}
	features, all := balancer.Everything(), meta.IsStatusConditionTrue(s.Conditions, v1.ConditionSupported)
	if !all || v.klb.Spec.SourceRangesAtMembers {
		f, err := v.features(ctx, v.klb, v.memory.trees)
		if err != nil && !all {
			return false, 0, err
		}
		if features = f; err != nil { // whether a security group is needed is not known
			features = balancer.Everything()
			features.Unsure = true
		}
	}
	want, _ := balancer.Want(v.klb, features)
	public, described, again, err := v.coveredAs(ctx, features)
	if err != nil {
		return false, 0, err
	}
	switch covers := balancer.Covers(s, want, public); {
	case covers && described:
		return true, again, nil
	case covers && s.SecurityGroupID != "": // the status is complete
		return false, 0, nil
	}
	// A person has removed something from the status: read what the cloud has.
	v.memory.forgetCloud()
	return false, 0, nil
}

// bring does one round: it closes what must not be public, reads the cloud, has package balancer plan,
// carries out the plan and reports. Closing comes before any request to Octavia, which may be slow or
// unavailable.
func (v *reconciliation) bring(ctx context.Context) (ctrl.Result, error) {
	v.begin()
	v.round.err = errors.Join(v.unpublish(ctx), v.enforceRanges(ctx))
	if !v.allBusy() {
		v.round.err = v.converge(ctx)
		if errors.Is(v.round.err, sdn.ErrUnsupported) {
			v.memory.attempts.Note(unsupported, v.Now(), balancer.Pauses{}, "")
		} else {
			v.memory.attempts.Forget(unsupported)
		}
	} else if v.round.err == nil && len(v.round.moved) == 0 && meta.IsStatusConditionTrue(v.klb.Status.Conditions, v1.ConditionProgressing) && !v.isStuck() {
		return v.next() // the status says so already
	}
	return v.report(ctx)
}

// allBusy reports whether the object has all its load balancers, and waits for each of them.
func (v *reconciliation) allBusy() bool {
	ids, since := v.wait.of(v.req)
	if len(ids) == 0 || v.overdue() {
		return false
	}
	v.round.Waiting.ID, v.round.Waiting.Since, v.round.busy = ids[0], since, ids
	idle := func(id string) bool { return !slices.Contains(ids, id) }
	return balancer.NamesAll(v.klb) && !slices.ContainsFunc(balancer.Named(v.klb), idle) // else one is to be made
}

// converge reads the cloud, plans and carries out the plan. What hinders a part of the plan does not
// stop the rest.
func (v *reconciliation) converge(ctx context.Context) error {
	in, hindered, err := v.observe(ctx)
	if err != nil {
		return v.unread(ctx, err)
	}
	plan := balancer.Next(in)
	v.note(&plan)
	if err := v.guardRanges(ctx, plan.Open); err != nil {
		return err
	}
	checking, err := v.checked(ctx, &plan)
	if err != nil {
		return err
	}
	err = v.carryOut(ctx, &plan, hindered)
	if checking && len(v.round.moved) > 0 {
		err = errors.Join(err, v.reportDrift(ctx, v.round.moved))
	}
	return err
}

// observe reads all that a plan depends on, and makes the security group that keeps the source ranges.
// hindered is why the plan is not for the whole spec.
func (v *reconciliation) observe(ctx context.Context) (in balancer.Input, hindered, err error) {
	if v.round.Trees, err = v.look(ctx); err != nil {
		return in, nil, err
	}
	v.round.Seen = true
	spec, deferred := v.turn(ctx, v.round.Trees)
	if v.round.Features, err = v.features(ctx, spec, v.round.Trees); err != nil {
		return in, nil, err
	}
	spec, notKept := v.keepByGroup(ctx, spec, v.round.Features)
	v.round.notYetClosed = notKept != nil && !balancer.Open(v.klb)
	return balancer.Input{
		LoadBalancer: spec, Trees: v.round.Trees, Features: v.round.Features, Attempts: v.memory.attempts, Busy: v.round.busy, Now: v.Now(), Pause: v.Mend,
	}, errors.Join(deferred, notKept), nil
}

// note takes over what a plan says of the round, and waits for the load balancers that are busy.
func (v *reconciliation) note(plan *balancer.Actions) {
	v.memory.attempts, v.round.Report, v.round.Asked = plan.Attempts, plan.Report, !v.round.Features.Unsure
	v.round.Address.Withheld = plan.Withholds
	v.round.again = sooner(v.round.again, plan.Wake)
	v.awaitChildren(plan.Unfinished, plan.Reread)
	for _, id := range plan.Busy {
		v.awaitStill(id)
	}
	if len(plan.Busy) > 0 || v.round.IsDisabled() { // no event reports that it is enabled again
		v.memory.trees = nil
	}
}

// carryOut carries out a plan; failed is the error of earlier parts of the round.
func (v *reconciliation) carryOut(ctx context.Context, plan *balancer.Actions, failed error) error {
	if v.round.Address.Withheld { // first, before clients outside the source ranges can come in
		failed = errors.Join(failed, v.locate(ctx, plan.Want))
	}
	failed = errors.Join(failed, v.steps(ctx, plan.Steps))
	if !away(failed) && len(plan.Broken) > 0 {
		failed = errors.Join(failed, v.heal(ctx, plan))
	}
	if !v.round.Address.Placed {
		failed = errors.Join(failed, v.locate(ctx, plan.Want))
	}
	if !away(failed) && len(plan.Last) > 0 && !v.round.Replacement.Begun { // else its trial is needed
		failed = errors.Join(failed, v.steps(ctx, plan.Last))
	}
	return failed
}

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
func (v *reconciliation) result() *balancer.Result {
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
func (v *reconciliation) settled() bool { return v.result().IsSettled() }

// deleting is the reason of the conditions of a KuryrLoadBalancer whose deletion takes its time.
const deleting = "Deleting"

// describe writes the result of a round into a status. That of a KuryrLoadBalancer in deletion
// says why the object still exists.
func (v *reconciliation) describe(s *v1.KuryrLoadBalancerStatus) {
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
func (v *reconciliation) failed() string {
	if errors.Is(v.round.err, errTaken) {
		return v.round.err.Error() + ". Release the address in the cloud, or create the Service again to get another cluster IP"
	}
	text := outcome.Of(outcome.LoadBalancer, v.round.err).Explain()
	if errors.Is(v.round.err, outcome.ErrNotPermitted) && v.isStuck() {
		text += fmt.Sprintf(". Load balancer %s has been busy in Octavia since %s", v.round.Waiting.ID, v.round.Waiting.Since.UTC().Format(time.RFC3339))
	}
	return text
}
