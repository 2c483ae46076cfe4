// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// visit is one Reconcile of one KuryrLoadBalancer.
type visit struct {
	*Reconciler
	req    ctrl.Request
	klb    *v1.KuryrLoadBalancer // a copy, as the last own write left it
	memory *memory
	round  round
}

// leaves reports whether the object is being deleted.
func (v *visit) leaves() bool { return !v.klb.DeletionTimestamp.IsZero() }

// apply brings the cloud in line, or deletes what the object has there.
func (v *visit) apply(ctx context.Context) (ctrl.Result, error) {
	if v.leaves() {
		return v.release(ctx)
	}
	if !v.objects.Held(v.klb) {
		// The finalizer is added before the first request. An object without it has nothing in
		// the cloud, unless a person has removed the finalizer.
		if v.memory.generation == 0 && blank(v.klb) {
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
func (v *visit) atRest(ctx context.Context) (rest bool, again time.Duration, err error) {
	s := &v.klb.Status
	ready := meta.FindStatusCondition(s.Conditions, v1.ConditionReady)
	if ready == nil && v.memory.seen { // a person has emptied the status
		v.memory.forgetCloud()
		v.memory.statusIncomplete = true
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
	v.memory.statusIncomplete = true
	return false, 0, nil
}

// bring does one round and reports.
func (v *visit) bring(ctx context.Context) (ctrl.Result, error) {
	v.begin()
	v.round.err = errors.Join(v.unpublish(ctx), v.keepOut(ctx))
	if v.allBusy() {
		if v.round.err == nil && len(v.round.moved) == 0 && meta.IsStatusConditionTrue(v.klb.Status.Conditions, v1.ConditionProgressing) && !v.isStuck() {
			return v.next() // the status says so already
		}
		return v.report(ctx)
	}
	v.round.err = v.converge(ctx)
	if errors.Is(v.round.err, sdn.ErrUnsupported) {
		v.memory.attempts.Note(unsupported, v.Now(), balancer.Pauses{}, "")
	} else {
		v.memory.attempts.Forget(unsupported)
	}
	return v.report(ctx)
}

// allBusy reports whether the object has all its load balancers, and waits for each of them.
func (v *visit) allBusy() bool {
	ids, since := v.wait.of(v.req)
	if len(ids) == 0 || v.overdue() {
		return false
	}
	v.round.Waiting.ID, v.round.Waiting.Since, v.round.busy = ids[0], since, ids
	idle := func(id string) bool { return !slices.Contains(ids, id) }
	return balancer.NamesAll(v.klb) && !slices.ContainsFunc(balancer.Named(v.klb), idle) // else one is to be made
}

// converge reads the cloud, plans and carries out the plan.
func (v *visit) converge(ctx context.Context) error {
	trees, err := v.look(ctx)
	if err != nil {
		return v.unread(ctx, err)
	}
	v.round.Trees, v.round.Seen = trees, true
	spec, hindered := v.turn(ctx, trees)
	features, err := v.features(ctx, spec, trees)
	if err != nil {
		return v.unread(ctx, err)
	}
	spec, notKept := v.keepByGroup(ctx, spec, features)
	plan := balancer.Next(balancer.Input{
		LoadBalancer: spec, Trees: trees, Features: features, Attempts: v.memory.attempts, Busy: v.round.busy, Now: v.Now(), Pause: v.Mend,
	})
	v.memory.attempts, v.round.Report, v.round.Asked, v.round.Features = plan.Attempts, plan.Report, !features.Unsure, features
	v.round.Address.Withheld = plan.Withholds
	v.again(plan.Wake)
	v.awaitChildren(plan.Unfinished, plan.Reread)
	if v.round.IsDisabled() { // no event reports that it is enabled again
		v.memory.forgetTrees()
	}
	if err := v.guardRanges(ctx, plan.Open); err != nil {
		return err
	}
	v.round.notYetClosed = v.round.notYetClosed || notKept != nil && !balancer.Open(v.klb)
	checking, err := v.checked(ctx, &plan)
	if err != nil {
		return err
	}
	for _, id := range plan.Busy {
		v.awaitStill(id)
		v.memory.forgetTrees()
	}
	err = v.carryOut(ctx, &plan, errors.Join(hindered, notKept))
	if checking && len(v.round.moved) > 0 {
		err = errors.Join(err, v.tellDrift(ctx, v.round.moved))
	}
	return err
}

// carryOut carries out a plan; failed is the error of earlier parts of the round.
func (v *visit) carryOut(ctx context.Context, plan *balancer.Actions, failed error) error {
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
