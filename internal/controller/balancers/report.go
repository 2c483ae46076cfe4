// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// report writes the status, if it has changed, and returns when to continue.
func (v *reconciliation) report(ctx context.Context) (ctrl.Result, error) {
	v.memory.leaving = v.leaves()
	if away(v.round.err) && len(v.round.did)+len(v.round.moved)+len(v.round.Broken) == 0 && balancer.IsReady(v.klb) && !v.memory.leaving {
		return v.next() // nothing was requested: the status is most likely still true
	}
	v.noteAway(ctx)
	before := v.klb.Status
	if err := v.write(ctx, v.describe); err != nil {
		return kube.Retry(err)
	}
	if slices.ContainsFunc(before.LoadBalancers, func(lb v1.LoadBalancerStatus) bool { return !slices.Contains(balancer.Named(v.klb), lb.ID) }) {
		v.retryRefused(ctx)
	}
	v.emitEvents(&before) // after the write: a reader of the Event finds the status that it is about
	v.measure()
	if v.settled() {
		v.memory.attempts.Settled()
	}
	if !balancer.HoldsTurn(v.klb, v.result()) {
		v.replaced(v.req)
	}
	return v.next()
}

// noteAway notes whether the cloud answers. Octavia may answer reads while it can change nothing:
// Neutron, Keystone or its message queue is away. Changes that work after the cloud was away for some
// seconds show that this is over. What was tried meanwhile for other objects proves nothing.
func (v *reconciliation) noteAway(ctx context.Context) {
	switch since := v.memory.away; {
	case away(v.round.err) && since.IsZero() && !errors.Is(v.round.err, sdn.ErrFenced):
		v.memory.away = v.Now()
	case v.round.err == nil && !since.IsZero() && (len(v.round.did) > 0 || v.settled()):
		if v.memory.away = (time.Time{}); v.Now().Sub(since) >= v.Mend/6 {
			ctrl.LoggerFrom(ctx).Info("a part of the cloud was away, and is back: what is not ready is tried again", "since", since)
			v.back.Send()
		}
	}
}

// away reports whether an error says only that the cloud did not answer.
func away(err error) bool { return errors.Is(err, sdn.ErrUnavailable) }

// learning is how often in a row a request that is not supported is retried soon. The backend
// usually learns what is not supported, and the next plan does without it. What it does not
// learn must not delay the service of other load balancers.
const learning = 5

// unsupported is the key of these requests among the attempts.
const unsupported = "unsupported"

// next returns what the queue should do after a round.
func (v *reconciliation) next() (ctrl.Result, error) {
	if left, open := v.tolerated(); open && !v.memory.leaving {
		v.round.within = sooner(v.round.within, left)
	}
	res, err := v.pause()
	if err == nil {
		res.RequeueAfter = sooner(res.RequeueAfter, v.round.within)
	}
	return res, err
}

// sooner returns the shorter of two pauses; 0 or less is none.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(0, b)
	}
	return a
}

// pause returns when to continue after a round. An object that waits for a load balancer is
// queued when that is done.
func (v *reconciliation) pause() (ctrl.Result, error) {
	switch o := outcome.Of(outcome.LoadBalancer, v.round.err); {
	case away(v.round.err): // whatever else has failed, the cloud may answer soon
		return v.Backoff.Again(v.round.err)
	case errors.Is(v.round.err, errTaken):
		return ctrl.Result{RequeueAfter: v.Backoff.Quota}, nil
	case o.Reason == v1.ReasonNotSupported && v.memory.attempts[unsupported].Times <= learning:
		return ctrl.Result{RequeueAfter: v.Backoff.Min}, nil
	case o.Reason == v1.ReasonRejected && v.round.withoutRefused:
		return ctrl.Result{RequeueAfter: v.Backoff.Min}, nil
	case v.round.err != nil:
		return v.Backoff.Result(o)
	case v.round.Waiting.ID != "":
		return ctrl.Result{RequeueAfter: max(0, v.Stuck-v.Now().Sub(v.round.Waiting.Since))}, nil // then it is reported
	case v.round.again > 0:
		return ctrl.Result{RequeueAfter: v.round.again}, nil
	case !v.settled():
		return ctrl.Result{RequeueAfter: v.Backoff.Quota}, nil
	}
	return ctrl.Result{}, nil
}

// isStuck reports whether a load balancer is busy for so long that it is reported.
func (v *reconciliation) isStuck() bool {
	return v.round.Waiting.ID != "" && v.Now().Sub(v.round.Waiting.Since) >= v.Stuck
}

// write changes the status, if that says anything new. Nothing else writes a status. Most is
// written at the end of a reconciliation. What the next process must find if this one is stopped is
// written earlier.
func (v *reconciliation) write(ctx context.Context, change func(*v1.KuryrLoadBalancerStatus)) error {
	status := v.klb.Status.DeepCopy()
	change(status)
	_, err := v.objects.Report(ctx, v.klb, &v.klb.Status, status)
	if err == nil {
		v.klb.Status = *status
	}
	return err
}

// set sets a condition of a status.
func (v *reconciliation) set(s *v1.KuryrLoadBalancerStatus, c balancer.Condition) {
	kube.SetCondition(&s.Conditions, c.Type, c.Is, c.Reason, outcome.Cut(c.Text), v.klb.Generation, v.Now())
}

// emitEvents sends Events to the Service for what the status says and the status before did not say.
func (v *reconciliation) emitEvents(before *v1.KuryrLoadBalancerStatus) {
	status := &v.klb.Status
	for kind, action := range map[string]string{v1.ConditionReady: "ApplyLoadBalancer", v1.ConditionSupported: "PlanLoadBalancer"} {
		was, is := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(status.Conditions, kind)
		if kind == v1.ConditionReady && v.settled() && balancer.ListsMore(before.NotChanged, status.NotChanged) {
			v.event(v1.ReasonNotChanged, action, is.Message)
		}
		if is == nil || is.Status == metav1.ConditionTrue || is.Reason == v1.ReasonPending || is.Reason == deleting || is.Reason == v1.ReasonLoadBalancerInError && !v.round.Spent && !v.memory.leaving {
			continue
		}
		same := was != nil && was.Status == is.Status && was.Reason == is.Reason
		if kind == v1.ConditionSupported {
			same = same && !balancer.ListsMore(before.Unsupported, status.Unsupported)
		} else {
			same = same && was.ObservedGeneration == is.ObservedGeneration
		}
		if !same {
			v.event(is.Reason, action, is.Message)
		}
	}
}

// event warns on the Service, or on the KuryrLoadBalancer if no Service owns it. Kubernetes
// merges Events that differ in their text alone, and keeps the first text. The Event names the
// version of the KuryrLoadBalancer, so that it is not merged.
func (v *reconciliation) event(reason, action, note string) {
	about := kube.Reference(v.klb, "KuryrLoadBalancer")
	about.ResourceVersion = v.klb.ResourceVersion
	v.events.Eventf(serviceOf(v.klb), about, corev1.EventTypeWarning, reason, action, "%s", outcome.Cut(note))
}

// serviceOf names the Service of a KuryrLoadBalancer in an Event.
func serviceOf(klb *v1.KuryrLoadBalancer) *corev1.ObjectReference {
	for _, o := range klb.OwnerReferences {
		if o.Kind == "Service" {
			return &corev1.ObjectReference{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: klb.Namespace, Name: o.Name, UID: o.UID}
		}
	}
	return kube.Reference(klb, "KuryrLoadBalancer")
}

// reportDrift reports that the cloud differs from the status, before Kuryr mends it.
func (v *reconciliation) reportDrift(ctx context.Context, drift []string) error {
	balancerDrifts.Inc()
	note := "The cloud was changed by somebody else. Kuryr changes it back: " + strings.Join(drift, "; ")
	v.event(v1.ReasonDrift, "CheckLoadBalancer", note)
	return v.write(ctx, func(s *v1.KuryrLoadBalancerStatus) {
		v.set(s, balancer.Condition{Type: v1.ConditionInSync, Reason: v1.ReasonDrift, Text: note})
		v.set(s, balancer.Progress(v.klb, v.result()))
	})
}

// learned reports whether Kuryr's knowledge of the provider has changed since the status was written. A
// difference is not drift then.
func (v *reconciliation) learned() bool {
	said := meta.FindStatusCondition(v.klb.Status.Conditions, v1.ConditionSupported)
	return v.round.Asked && said != nil && !slices.Equal(v.klb.Status.Unsupported, balancer.Unsupported(v.round.Problems))
}

// checked reports drift: the load balancers differ although the KuryrLoadBalancer has not
// changed. The status says so before the first step against it. It returns false if a difference
// would be no drift.
func (v *reconciliation) checked(ctx context.Context, plan *balancer.Actions) (bool, error) {
	if !v.memory.checkRequested {
		return false, nil
	}
	v.memory.checkRequested = false
	ready := meta.FindStatusCondition(v.klb.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.ObservedGeneration != v.klb.Generation || ready.Reason != v1.ReasonReady || v.learned() {
		return false, nil
	}
	var drift []string
	for _, s := range slices.Concat(plan.Steps, plan.Last) {
		if !v.memory.attempts.HasFailed(s) { // else it was reported
			drift = append(drift, s.String())
		}
	}
	for i := range plan.Remedies {
		if r := &plan.Remedies[i]; !r.Replaces { // it is not carried out at once
			drift = append(drift, r.String())
		}
	}
	for i := range v.round.Trees { // by somebody else, as Kuryr found nothing to do before
		if lb := &v.round.Trees[i]; lb.Provisioning == sdn.ProvisioningDeleting && slices.Contains(balancer.Named(v.klb), lb.ID) {
			drift = append(drift, "create load balancer "+lb.Name+", once the deletion of "+lb.ID+" is complete")
		}
	}
	if len(drift) == 0 {
		return true, nil
	}
	return true, v.reportDrift(ctx, drift)
}

var (
	balancerStages = kube.Metrics.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kuryr_loadbalancer_stage_seconds",
		Help: "From the controller seeing what a KuryrLoadBalancer asks for, to a new one's load balancers being ACTIVE (stage active), " +
			"and to the cloud having all of it, members included (stage synced).",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900},
	}, []string{"stage"})
	writes = kube.CounterOf([]string{"change", "result"}, "kuryr_loadbalancer_writes_total",
		"Changes of load balancers, what is below them, floating IPs and security groups that the cloud was asked for, by how that went: "+
			"ok, Pending (the load balancer is busy: it is asked again), or the reason why not, as conditions have it.")
	balancersBusy   = kube.Gauge("kuryr_loadbalancers_busy", "Load balancers in PENDING_* that Kuryr waits for.")
	balancerDrifts  = kube.Counter("kuryr_loadbalancer_drifts_total", "Comparisons of a load balancer with the cloud that found it changed by somebody else.")
	balancersMended = kube.Counter("kuryr_loadbalancer_mends_total", "Repairs of load balancers, or of parts of them, that were in ERROR.")
)

// count counts a change that the cloud was asked for, by its result, and returns the result.
func count(change string, err error) error {
	result := "ok"
	if err != nil {
		result = outcome.Of(outcome.LoadBalancer, err).Reason
	}
	writes.WithLabelValues(change, result).Inc()
	return err
}

// stages are the times that are measured.
type stages struct {
	generation int64     // the last one that was begun
	begun      time.Time // when it was begun; zero: it has been in the cloud
	born       time.Time // when a new object was begun; zero: its load balancers have been ACTIVE
}

// begin notes the time when a generation is first seen. If an earlier process had it ready, finding
// it so is no stage.
func (v *reconciliation) begin() {
	if m := v.memory; m.generation != v.klb.Generation {
		m.generation, m.begun = v.klb.Generation, v.Now()
	}
	if balancer.IsReady(v.klb) {
		v.memory.begun = time.Time{}
	}
}

// measure observes how long the stages took.
func (v *reconciliation) measure() {
	observe := func(stage string, since *time.Time) {
		if !since.IsZero() {
			balancerStages.WithLabelValues(stage).Observe(v.Now().Sub(*since).Seconds())
			*since = time.Time{}
		}
	}
	if v.round.Seen && len(v.round.Trees) >= len(v.klb.Spec.VIPs) && len(v.round.did) == 0 && v.round.Waiting.ID == "" {
		observe("active", &v.memory.born)
	}
	if v.settled() {
		observe("synced", &v.memory.begun)
	}
}
