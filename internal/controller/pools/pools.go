// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package pools plans which pod gets which port (plan/pool decides that). It is the one writer
// of KuryrPortPools and of the specs of KuryrPorts. The key of its queue is a pool with its
// node. So the process that owns a node has all pools that may want a pod of that node. Events of
// other nodes are dropped. When a node is lost, what is known of its pools is forgotten. Package supply sends the requests to the SDN; its results are unrecorded ports. Package
// ports applies the specs.
//
// A pool is planned when its pods, KuryrPorts, object, node, namespaces or settings change,
// when supply has a result, and at a time that an earlier plan has set. Pools are planned in
// parallel, each pool by one worker.
package pools

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/sites"
	"github.com/kuryr-go/kuryr/internal/controller/supply"
	"github.com/kuryr-go/kuryr/internal/keylock"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Reconciler plans pools, and writes their objects and their KuryrPorts' specs.
type Reconciler struct {
	Options
	client  client.Client
	live    client.Reader // past the cache
	memory  *memory
	claims  keylock.Locks[v1.Claim] // pods that a plan may give a port
	sites   *sites.Sites
	further sites.Subnets
	subnets *subnets
	events  events.EventRecorder
}

// Options are the parts that the planner needs. All but Hosts and Details must be given.
type Options struct {
	Shards   kube.Shards
	Hosts    sdn.Hosts     // nil: no node can be a virtual machine
	Details  sdn.Details   // nil: changes of subnets are not seen
	Look     time.Duration // between two reads of the subnets
	Settings *settings.Live
	Networks *kube.Networks
	Supply   *supply.Supply
	Groups   memberGroups
	Queue    *kube.Queue[pool.Ref] // of pools to plan
	// CheckPorts has the collector compare ports. It is sent after a change of the settings.
	CheckPorts kube.Signal
	Backoff    outcome.Backoff
	PoolIdle   time.Duration // a pool without ports and pods is deleted after this time
	StatusGap  time.Duration // between two writes of a pool's counts
}

// New returns a Reconciler. Setup adds it to mgr.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	r := &Reconciler{
		Options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), memory: newMemory(),
		events: mgr.GetEventRecorder("kuryr-controller"), further: sites.Subnets{Settings: o.Settings, Networks: o.Networks},
		subnets: &subnets{cloud: o.Details, settings: o.Settings, known: map[string]v1.VIF{}, suspects: map[string]bool{}},
	}
	r.sites = sites.New(sites.Options{
		Shards: o.Shards, Client: r.client, Hosts: o.Hosts, Settings: o.Settings, Networks: o.Networks, Backoff: o.Backoff, Events: r.events,
		Pools: r, Gauge: podsWaiting,
	})
	o.Networks.Follow(r.sites.Waiting.Moved)
	o.Shards.Follow(nil, r.memory.lost)
	return r
}

// memberGroups knows which security groups a port should have as a member of load balancers,
// besides those of its pod.
type memberGroups interface {
	Of(ctx context.Context, port *v1.KuryrPort) ([]string, error)
}

// Unfinished implements kube.Unfinished: supply has requests for the pool in flight, or ports that a plan
// has not recorded yet.
func (r *Reconciler) Unfinished(req pool.Ref) bool { return r.Supply.Unfinished(req) }

// Reconcile makes the plan for one pool and carries it out.
func (r *Reconciler) Reconcile(ctx context.Context, req pool.Ref) (ctrl.Result, error) {
	v := &view{
		req: req, ports: map[string]*v1.KuryrPort{}, pods: map[types.UID]*corev1.Pod{},
		groups: map[string][]string{}, memberGroups: map[string][]string{},
	}
	defer func() {
		for _, end := range v.claims {
			end()
		}
	}()
	switch err := r.observe(ctx, v); {
	case errors.Is(err, errLate):
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	now := time.Now()
	r.fill(v)
	state := v.state
	if keep := v.known.Keep; keep >= 0 && !v.unsure { // pods of other pools lack room
		state.Levels.Min, state.Levels.Fill, state.Levels.TTL = min(state.Levels.Min, keep), 0, 0
	}
	a := pool.Plan(state, now)
	v.counts = a.Levels
	if len(v.refused) > 0 { // a pod of another pool may make room on the node
		a.Wake = outcome.Earlier(a.Wake, now.Add(refusedAgain))
	}
	if v.claimedElsewhere { // no event reports the end of a claim without a port
		a.Wake = outcome.Earlier(a.Wake, now.Add(claimedAgain))
	}
	given := givenTo(&a)
	v.known.Failure = r.Supply.RecordPlan(v.req, supply.Planned{
		Key: v.key, Free: a.Kept, Lacks: len(v.state.Pods) - len(given) - v.state.InFlight,
		Want: a.Want, Batch: v.state.Levels.Batch, Asked: v.known.Asked,
	})
	r.memory.with(req, func(p *poolMemory) {
		for claim, pod := range p.pods {
			pod.missed = pod.missed || !given[claim]
		}
	})
	r.ask(v, a)
	err := r.write(ctx, v, &a)
	r.tell(v, given)
	r.tellMisplaced(v)
	r.tellRoutes(v)
	r.tellRefused(v)
	if err != nil {
		return kube.Retry(err)
	}
	if err := r.filled(ctx, v, a.Filled); err != nil {
		return kube.Retry(err)
	}
	again, err := r.report(ctx, v, a.Writes())
	if err != nil {
		return kube.Retry(err)
	}
	return ctrl.Result{RequeueAfter: outcome.Sooner(a.Wake, outcome.Earlier(again, nextLook(v, now)), now)}, nil
}

// The times between two checks of pods that their node cannot run, and of those that another pool
// has claimed.
const (
	refusedAgain = 10 * time.Second
	claimedAgain = time.Second
)

// ask has supply look up and delete the single ports of a plan.
func (r *Reconciler) ask(v *view, a pool.Actions) {
	for _, l := range a.Restore {
		r.Supply.Restore(v.req, v.site.Parent, l.Port, l.Pod, v.pods[l.Pod.UID].Status.PodIPs)
	}
	var discard, keep []string
	for _, id := range a.Discard {
		// A port that was looked up for a pod stays plugged as long as the pod runs: the pod's
		// annotation keeps the port until then.
		if pod := v.pods[v.known.Unrecorded[id].Pod.UID]; pod != nil && !pool.Finished(pod) {
			keep = append(keep, id)
		} else {
			discard = append(discard, id)
		}
	}
	r.Supply.Recorded(v.req, keep...)
	if len(discard) > 0 {
		r.Supply.Discard(v.req, discard)
	}
}

// The kinds of Events on a pool's object. Each fact has one Event. For a failure, the object's
// condition Ready is the memory, so a restart repeats no Event; poolMemory.reported has what the status
// does not show yet. The other kinds have no condition of their own: their Events are repeated once
// after a restart, as long as the fact is true.
const (
	reportedFailure = "failure"
	reportedFill    = "fill"
	reportedMachine = "machine" // the Events are on its pods
	reportedRoutes  = "routes"  // the Event is on a pod
	reportedTwice   = "twice"   // no Event: the other pools were requeued
)

var reportedKinds = []string{reportedFailure, reportedFill, reportedMachine, reportedRoutes, reportedTwice}

// fill reads the annotation that asks the pool for more free ports.
func (r *Reconciler) fill(v *view) {
	value, asked := fillOf(v.object)
	if !asked {
		r.memory.with(v.req, func(p *poolMemory) { delete(p.reported, reportedFill) })
		return
	}
	n, err := pool.ParseFill(value)
	if err == nil && !v.current {
		err = errors.New("with the current configuration no pod gets ports of this pool: fill the pool that the pods use")
	}
	if err == nil {
		v.state.Levels.Fill = n
		return
	}
	r.tellPool(v, reportedFill, value, v1.ReasonFillRefused, "FillPool", err.Error())
}

// fillOf returns the annotation that asks a pool for free ports.
func fillOf(object *v1.KuryrPortPool) (value string, asked bool) {
	if object == nil {
		return "", false
	}
	value, asked = object.Annotations[v1.FillAnnotation]
	return value, asked
}

// tellPool writes an Event on the pool's object, unless the last one of this kind had the same
// content.
func (r *Reconciler) tellPool(v *view, kind, what, reason, action, note string) {
	if v.object == nil {
		return
	}
	ready := meta.FindStatusCondition(v.object.Status.Conditions, v1.ConditionReady)
	news, first := r.news(v, kind, what)
	reported := first && kind == reportedFailure && ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == reason
	if news && !reported {
		r.events.Eventf(kube.Reference(v.object, "KuryrPortPool"), nil, corev1.EventTypeWarning, reason, action, "%s", note)
	}
}

// filled removes the annotation that asked for free ports once the pool has them, unless the
// annotation has changed.
func (r *Reconciler) filled(ctx context.Context, v *view, reached bool) error {
	value, asked := fillOf(v.object)
	if !asked || value != "0" && !reached {
		return nil
	}
	object := v.object.DeepCopy()
	delete(object.Annotations, v1.FillAnnotation)
	err := r.client.Patch(ctx, object, client.MergeFromWithOptions(v.object, client.MergeFromWithOptimisticLock{}), kube.OwnerPool)
	if err = kube.Lost(err); err != nil {
		return fmt.Errorf("removing annotation %s from KuryrPortPool %s: %w", v1.FillAnnotation, v.req.Pool, err)
	}
	ctrl.LoggerFrom(ctx).Info("filled pool as requested", "free", value)
	return nil
}

// givenTo returns the pods to which a plan gives a port.
func givenTo(a *pool.Actions) map[v1.Claim]bool {
	out := map[v1.Claim]bool{}
	for _, list := range [][]pool.Binding{a.Bind, a.Adopt} {
		for _, b := range list {
			if b.Pod != nil {
				out[b.Pod.Claim()] = true
			}
		}
	}
	return out
}

// nextLook returns when to plan again because of room or of a failure: at the next check of
// scarce room, or at the end of a backoff. Zero is never.
func nextLook(v *view, now time.Time) time.Time {
	at := v.known.Room.Again
	if v.known.Failure != nil && v.state.Hold.After(now) {
		at = outcome.Earlier(at, v.state.Hold)
	}
	return at
}
