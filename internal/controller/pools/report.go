// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/sites"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// explain describes an error of the SDN for a reader of the pool or of its pods.
func explain(err error, v *view) string {
	return outcome.Of(outcome.Port, err).Explain("{node}", v.req.Node)
}

// tell writes an Event on each waiting pod, once for each reason: what the pod waits for. If no
// pod waits and the pool lacks free ports, the Event is on the pool's object. given are the
// pods that get a port by this plan.
func (r *Reconciler) tell(v *view, given map[v1.Claim]bool) {
	err := v.known.Failure
	if err == nil {
		r.memory.with(v.req, func(p *poolMemory) {
			if _, known := p.reported[reportedFailure]; known {
				p.reported[reportedFailure] = "" // the next failure is another one
			}
		})
		return
	}
	reason := outcome.Of(outcome.Port, err).Reason
	if len(v.waiting) == 0 && lacksFree(v) {
		r.tellPool(v, reportedFailure, reason, reason, "CreatePort", "The pool lacks free ports: "+outcome.Cut(explain(err, v)))
	}
	for _, pod := range v.waiting {
		if !given[v1.Claim{UID: pod.UID, Interface: pool.Interface}] {
			r.tellPod(v, pod, reason, reason, "The pod waits for a port: "+outcome.Cut(explain(err, v)))
		}
	}
}

// tellRefused writes an Event on pods that get no port because their node cannot run them.
func (r *Reconciler) tellRefused(v *view) {
	for _, pod := range v.refused {
		_, why := kube.NodeTakes(v.site.Node)
		r.tellPod(v, pod, why, v1.ReasonNodeTakesNoMore,
			fmt.Sprintf("The pod gets no port, as node %s cannot run it: %s. Delete the pod, or let the scheduler choose its node", v.req.Node, why))
	}
}

// tellPod writes an Event on a pod without a port, unless its last one had the same cause.
func (r *Reconciler) tellPod(v *view, pod *corev1.Pod, why, reason, note string) {
	if news, _ := r.news(v, string(pod.UID), why); news {
		r.events.Eventf(kube.Reference(pod, "Pod"), nil, corev1.EventTypeWarning, reason, "CreatePort", "%s", note)
	}
}

// tellMisplaced writes an Event on pods with a plugged port whose parent port is not their
// node's any more: no traffic passes. When the list of such ports changes, all of them get an
// Event again.
func (r *Reconciler) tellMisplaced(v *view) {
	var hit []*v1.KuryrPort
	var names []string
	for i := range v.state.Ports {
		if p := &v.state.Ports[i]; p.Misplaced && p.Live && p.Attached {
			hit, names = append(hit, v.ports[p.Name]), append(names, p.Name)
		}
	}
	slices.Sort(names)
	if news, _ := r.news(v, reportedMachine, strings.Join(names, " ")); !news {
		return
	}
	for _, port := range hit {
		r.events.Eventf(kube.Reference(kube.PodOf(port.Spec.PodRef), "Pod"), nil, corev1.EventTypeWarning, v1.ReasonParentPortChanged, "FindParentPort",
			"The pod has no network: its port %s needs parent port %s, but node %s is now a machine with port %s. Delete the pod so that it gets another port",
			port.Name, port.Spec.VIF.ParentPortID, v.req.Node, v.site.Parent)
	}
}

// tellRoutes finds routes of the subnets that the pool's pods do not get. The pool's condition names
// them, and an Event of one pod after each change: what a person has to correct is the subnet.
func (r *Reconciler) tellRoutes(v *view) {
	var port *v1.KuryrPort
	for i := range v.state.Ports {
		if p := &v.state.Ports[i]; p.Live && (port == nil || p.Name < port.Name) {
			port = v.ports[p.Name]
		}
	}
	if port == nil {
		return
	}
	_, leftOut := port.Spec.VIF.PodRoutes()
	v.leftOut = strings.Join(leftOut, "; ")
	if news, _ := r.news(v, reportedRoutes, v.leftOut); news && v.leftOut != "" {
		r.events.Eventf(kube.Reference(kube.PodOf(port.Spec.PodRef), "Pod"), nil, corev1.EventTypeWarning, v1.ReasonRoutesLeftOut, "BindPort",
			"The pod's network works without a part of the subnet's host routes. Correct them with openstack subnet set: %s", outcome.Cut(v.leftOut))
	}
}

// news notes what was reported of a kind, or to a pod, and returns whether it differs from the last
// time, and whether there was none.
func (r *Reconciler) news(v *view, kind, what string) (is, first bool) {
	r.memory.with(v.req, func(p *poolMemory) {
		before, known := p.reported[kind]
		is, first = before != what, !known
		p.reported[kind] = what
	})
	return is, first
}

// report writes the pool's object: its spec by the settings, its status by the plan. It returns
// when to plan again; zero is never.
//
// The object is deleted when the pool has had neither ports nor pods for a while. Without that
// delay, a node with few pods would create and delete it all the time. An object that is
// deleted while it is needed is created again.
func (r *Reconciler) report(ctx context.Context, v *view, wrote bool) (time.Time, error) {
	if !r.needed(v) {
		again, expired := r.idle(v)
		switch {
		case v.object == nil || wrote && !expired:
			return again, nil
		case expired:
			return time.Time{}, r.drop(ctx, v)
		}
		// Without this the status would show the last port until the object is deleted.
		next, err := r.count(ctx, v)
		return outcome.Earlier(again, next), err
	}
	r.memory.with(v.req, func(p *poolMemory) { p.idle = time.Time{} })
	if object := r.shaped(v); v.object == nil || v.current && !equality.Semantic.DeepEqual(v.object, object) {
		return time.Time{}, r.shape(ctx, v, object) // its event requeues the pool
	}
	if wrote {
		return time.Time{}, nil // the events of the writes requeue the pool
	}
	return r.count(ctx, v)
}

// needed reports whether the pool needs an object. A pool without a key does not: its object
// was deleted after the settings no longer led to it.
func (r *Reconciler) needed(v *view) bool {
	if v.key == nil {
		return false
	}
	s := &v.state
	return len(s.Ports)+len(s.Pods)+len(s.Unrecorded)+s.InFlight > 0 || s.Levels.Min > 0 && !s.NodeGone
}

// idle returns when the pool will have been unneeded for long enough, and whether it has been
// already. The pool of a deleted node is deleted at once. A pool to which the settings no
// longer lead stays as long as others: if one of its ports is found again, the port is plugged
// by the pool's key.
func (r *Reconciler) idle(v *view) (until time.Time, expired bool) {
	now := time.Now()
	r.memory.with(v.req, func(p *poolMemory) {
		if p.idle.IsZero() {
			p.idle = now
		}
		until = p.idle.Add(r.PoolIdle)
		p.gauge(v.counts)
	})
	if v.object == nil {
		if len(v.ports) == 0 && r.Supply.Forget(v.req) {
			r.memory.forget(v.req)
		}
		return time.Time{}, false
	}
	return until, v.state.NodeGone || !now.Before(until)
}

// drop deletes the pool's object.
func (r *Reconciler) drop(ctx context.Context, v *view) error {
	err := r.client.Delete(ctx, v.object.DeepCopy(), client.Preconditions{UID: &v.object.UID})
	if err = kube.Lost(err); err != nil {
		return fmt.Errorf("deleting KuryrPortPool %s: %w", v.req.Pool, err)
	}
	ctrl.LoggerFrom(ctx).Info("deleted unused KuryrPortPool")
	return nil
}

// spec returns the pool's spec by the settings. The levels of a pool to which they do not lead are 0.
func (r *Reconciler) spec(v *view) v1.KuryrPortPoolSpec {
	l := v.levels
	spec := v1.KuryrPortPoolSpec{
		Key: *v.key, Min: int32(l.Min), Max: int32(l.Max), Batch: int32(max(1, l.Batch)),
		TTL: metav1.Duration{Duration: l.TTL}, Cooldown: metav1.Duration{Duration: l.Cooldown},
	}
	if !v.current {
		spec.Min, spec.Max, spec.TTL, spec.Cooldown = 0, 0, metav1.Duration{}, metav1.Duration{}
	}
	return spec
}

// shaped returns the pool's object with the levels of the settings. The object of a node that
// is a virtual machine names the node: see NodeAnnotation.
func (r *Reconciler) shaped(v *view) *v1.KuryrPortPool {
	object := &v1.KuryrPortPool{ObjectMeta: metav1.ObjectMeta{Name: v.req.Pool}, Spec: r.spec(v)}
	if v.object != nil {
		object = v.object.DeepCopy()
		object.Spec = r.spec(v)
		object.Spec.Key = v.object.Spec.Key // it is fixed, and at most its spelling differs
	}
	if v.current && v.site.Parent != "" {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1.NodeAnnotation, string(v.site.Node.UID))
		// An earlier version's object has only the first annotation. An upgrade alone writes
		// nothing: the second annotation is added when something else is written.
		if _, said := object.Annotations[v1.MachineAnnotation]; said || v.object == nil || !equality.Semantic.DeepEqual(v.object, object) {
			metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1.MachineAnnotation, sites.MachineOf(v.site.Node))
		}
	}
	return object
}

// shape creates the pool's object, or writes its levels: those of the settings replace what a
// person has written.
func (r *Reconciler) shape(ctx context.Context, v *view, object *v1.KuryrPortPool) error {
	if v.object == nil {
		if err := r.client.Create(ctx, object, kube.OwnerPool); err != nil {
			return fmt.Errorf("creating KuryrPortPool %s: %w", v.req.Pool, err)
		}
		return nil
	}
	if err := r.client.Patch(ctx, object, client.MergeFrom(v.object), kube.OwnerPool); err != nil {
		return fmt.Errorf("setting the levels of KuryrPortPool %s: %w", v.req.Pool, err)
	}
	return nil
}

// count writes the status if it has changed. A change of counts alone waits until StatusGap
// after the last write: each pod changes the counts several times.
func (r *Reconciler) count(ctx context.Context, v *view) (time.Time, error) {
	status := r.status(v)
	var last time.Time
	r.memory.with(v.req, func(p *poolMemory) {
		p.gauge(v.counts)
		last = p.status
	})
	if equality.Semantic.DeepEqual(status, v.object.Status) {
		return time.Time{}, nil
	}
	now := time.Now()
	if next := last.Add(r.StatusGap); now.Before(next) && sameConditions(status.Conditions, v.object.Status.Conditions) {
		return next, nil
	}
	r.memory.with(v.req, func(p *poolMemory) { p.status = now })
	_, err := kube.ApplyStatus(ctx, r.client, v.object, "KuryrPortPool", &status, kube.OwnerPool)
	return time.Time{}, err
}

// status returns the pool's status by the state that was planned with.
func (r *Reconciler) status(v *view) v1.KuryrPortPoolStatus {
	s := v1.KuryrPortPoolStatus{
		Available: int32(v.counts.Available), Bound: int32(v.counts.Bound), Recycling: int32(v.counts.Recycling),
		WaitingPods: int32(v.counts.Waiting), Total: int32(len(v.ports)),
		LastRefill: v.object.Status.LastRefill,
	}
	if !v.known.Refilled.IsZero() {
		s.LastRefill = &metav1.Time{Time: v.known.Refilled.Truncate(time.Second)}
	}
	s.Conditions = slices.Clone(v.object.Status.Conditions)
	r.conditions(v, &s)
	return s
}

// conditions sets the conditions. They change only if what they say changes.
func (r *Reconciler) conditions(v *view, s *v1.KuryrPortPoolStatus) {
	put := func(kind string, is bool, reason, message string) {
		kube.SetCondition(&s.Conditions, kind, is, reason, message, v.object.Generation, time.Now())
	}
	switch {
	// The answer to an earlier process counts until the cloud answers this one.
	case v.known.Failure == nil && r.unanswered(v):
	case v.known.Failure == nil:
		message := "The SDN gives the ports that are asked for."
		if v.leftOut != "" {
			message += " Pods do not get all host routes of the subnets: " + outcome.Cut(v.leftOut)
		}
		put(v1.ConditionReady, true, v1.ReasonReady, message)
	default:
		put(v1.ConditionReady, false, outcome.Of(outcome.Port, v.known.Failure).Reason, explain(v.known.Failure, v))
	}
	r.roomConditions(v, put)
	if s.WaitingPods > 0 || s.Recycling > 0 || v.state.InFlight > 0 {
		put(v1.ConditionProgressing, true, "Working", "Kuryr is creating or returning ports.")
	} else {
		put(v1.ConditionProgressing, false, "Settled", "Every pod has its port.")
	}
}

// unanswered reports whether the pool lacks free ports, and the cloud has not answered this
// process yet.
func (r *Reconciler) unanswered(v *view) bool {
	first := false
	r.memory.with(v.req, func(p *poolMemory) { first = p.status.IsZero() })
	return (first || v.state.InFlight > 0) && lacksFree(v) && meta.IsStatusConditionFalse(v.object.Status.Conditions, v1.ConditionReady)
}

// lacksFree reports whether a pool has fewer free ports than its minimum, or than its
// annotation asks for.
func lacksFree(v *view) bool {
	return v.counts.Available < max(v.state.Levels.Min, v.state.Levels.Fill)
}

// roomConditions sets the conditions about quota and subnets: whether they have room for the
// ports that the pool lacks.
func (r *Reconciler) roomConditions(v *view, put func(kind string, is bool, reason, message string)) {
	scarce := v.known.Room.Scarce
	if !lacksFree(v) {
		scarce = nil
	}
	for _, c := range []struct {
		kind, reason, fine string
		subnet             bool
	}{
		{v1.ConditionOverQuota, v1.ReasonOverQuota, "No quota stands in the way.", false},
		{v1.ConditionSubnetExhausted, v1.ReasonSubnetExhausted, "No subnet lacks addresses.", true},
	} {
		switch {
		case outcome.Of(outcome.Port, v.known.Failure).Reason == c.reason:
			put(c.kind, true, c.reason, explain(v.known.Failure, v))
		case scarce != nil && scarce.Scope.Subnet == c.subnet:
			put(c.kind, true, v1.ReasonScarce, scarce.Text+". Kuryr keeps the rest for pods, and does not refill the pool until there is more")
		default:
			put(c.kind, false, v1.ReasonReady, c.fine)
		}
	}
}

// sameConditions reports whether two lists agree, apart from Progressing, which changes with
// each pod.
func sameConditions(a, b []metav1.Condition) bool {
	for _, kind := range []string{v1.ConditionReady, v1.ConditionOverQuota, v1.ConditionSubnetExhausted} {
		x, y := meta.FindStatusCondition(a, kind), meta.FindStatusCondition(b, kind)
		if x == nil || y == nil || x.Status != y.Status || x.Reason != y.Reason {
			return false
		}
	}
	return true
}

// The metrics are summed over all pools, so that their number does not grow with the nodes. A
// pool's own counts are in its KuryrPortPool.
var (
	bindSeconds = kube.Metrics.NewHistogram(prometheus.HistogramOpts{
		Name:    "kuryr_pod_bind_seconds",
		Help:    "From the controller seeing a pod scheduled to the pod's KuryrPort being bound.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})
	portsByState    = kube.GaugeOf("state", "kuryr_ports", "KuryrPorts by state, over all pools.")
	podsWaiting     = kube.Gauge("kuryr_pods_waiting", "Scheduled pods without a port, over all pools.")
	poolHits        = kube.Counter("kuryr_pool_hits_total", "Pods that found a port of their pool ready.")
	poolMisses      = kube.Counter("kuryr_pool_misses_total", "Pods that had to wait for a port.")
	poolWaitSeconds = kube.Metrics.NewHistogram(prometheus.HistogramOpts{
		Name:    "kuryr_pool_wait_seconds",
		Help:    "How long pods that found no port ready waited for one.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
	})
)

// gauge replaces a pool's share of the metrics.
func (p *poolMemory) gauge(to pool.Count) {
	from := p.levels
	p.levels = to
	portsByState.WithLabelValues("available").Add(float64(to.Available - from.Available))
	portsByState.WithLabelValues("bound").Add(float64(to.Bound - from.Bound))
	portsByState.WithLabelValues("recycling").Add(float64(to.Recycling - from.Recycling))
	podsWaiting.Add(float64(to.Waiting - from.Waiting))
}
