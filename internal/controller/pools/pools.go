// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package pools plans: it decides which pod gets which port (pure, in plan/pool) and
// is the one writer of the specs of KuryrPorts and of KuryrPortPools. Its key is a pool
// with its node, so that a shard of the controller that owns a node has all pools that
// may want a pod of it. What it wants of the SDN goes to supply and comes back as ports
// that have arrived; applying specs is left to package ports.
//
// A pool is planned when something that its plan depends on changes: pods, KuryrPorts,
// the pool's object, nodes, namespaces, the settings, what supply has brought, and times
// that an earlier plan has named. Pools are planned at the same time, each by one worker.
package pools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/sites"
	"github.com/kuryr-go/kuryr/internal/controller/supply"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Reconciler plans: it is the one writer of the KuryrPorts' specs of a pool. What
// it wants of the SDN goes to supply, and comes back as ports that have arrived; but
// for the port of the virtual machine that a node is (parentport.go).
type Reconciler struct {
	Options
	client  client.Client
	live    client.Reader // past the cache
	memory  *memory
	sites   *sites.Sites
	subnets *subnets
	events  events.EventRecorder

	changed <-chan struct{} // sent to when the settings have changed
}

// Options is what the planner needs. All but Hosts and Details have to be given.
type Options struct {
	Hosts     sdn.Hosts     // nil: no node can be a virtual machine
	Details   sdn.Details   // nil: what subnets are like is not asked
	Look      time.Duration // between two looks at that
	Settings  *settings.Live
	Supply    *supply.Supply
	Groups    memberGroups
	Queue     *kube.Queue[pool.Ref] // of pools to plan
	Followed  func()                // is told that the settings have changed; does not wait
	Backoff   outcome.Backoff
	PoolIdle  time.Duration // a pool without ports and pods goes after it
	StatusGap time.Duration // between two writes of a pool's counts
	Now       func() time.Time
}

// New returns a Reconciler that is to be added to mgr with Setup.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	r := &Reconciler{
		Options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), memory: newMemory(o.Now),
		events: mgr.GetEventRecorder("kuryr-controller"), changed: o.Settings.Follow(),
	}
	r.sites = sites.New(sites.Options{
		Client: r.client, Hosts: o.Hosts, Settings: o.Settings, Backoff: o.Backoff, Events: r.events, Found: r.wakeNode,
		Counted: func(pods int) { podsWaiting.Add(float64(pods)) }, Now: o.Now,
	})
	r.subnets = &subnets{cloud: o.Details, settings: o.Settings, every: o.Look, changed: r.wakeAll, known: map[string]v1.VIF{}}
	return r
}

// Saw reports whether this process has seen the pod of a pool's port, alive or gone.
func (r *Reconciler) Saw(req pool.Ref, uid types.UID) bool { return r.memory.saw(req, uid) }

// Writing returns the KuryrPorts that are written and that the cache may not show yet.
func (r *Reconciler) Writing() []string { return r.memory.writing() }

// memberGroups knows what security groups a port is to have besides those of its pod,
// as a member of load balancers.
type memberGroups interface {
	Of(ctx context.Context, port *v1.KuryrPort) ([]string, error)
}

// Reconcile makes the plan for one pool and carries it out.
func (r *Reconciler) Reconcile(ctx context.Context, req pool.Ref) (ctrl.Result, error) {
	if wait, err := r.behind(ctx, req); wait > 0 || err != nil {
		return ctrl.Result{RequeueAfter: wait}, err
	}
	v, err := r.observe(ctx, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.Now()
	r.fill(v)
	room := r.survey(v)
	a := pool.Plan(v.state, now)
	v.counts = a.Levels
	if len(v.refused) > 0 { // a pod of another pool may make room on the node
		a.Wake = outcome.Earlier(a.Wake, now.Add(refusedAgain))
	}
	r.note(v, &a, room)
	r.ask(v, a)
	err = r.write(ctx, v, &a)
	r.score(v, &a)
	r.tell(v, givenTo(&a))
	r.tellMisplaced(v)
	r.tellRefused(v)
	if err != nil {
		return kube.Retry(err)
	}
	r.squeezed(v, &a)
	if err := r.filled(ctx, v, a.Filled); err != nil {
		return kube.Retry(err)
	}
	again, err := r.report(ctx, v, a.Writes())
	if err != nil {
		return kube.Retry(err)
	}
	return ctrl.Result{RequeueAfter: outcome.Sooner(a.Wake, outcome.Earlier(again, nextLook(room, v, now)), now)}, nil
}

// refusedAgain is how long pods that their node cannot run are left alone.
const refusedAgain = 10 * time.Second

// ask gives to the SDN's side what the plan wants of it.
func (r *Reconciler) ask(v *view, a pool.Actions) {
	if v.key != nil { // without one nobody wants anything
		r.Supply.Wish(v.req, *v.key, a.Want, max(1, v.state.Levels.Batch), v.asked)
	}
	for _, l := range a.Restore {
		r.Supply.Restore(v.req, v.site.Parent, l.Port, l.Pod, v.pods[l.Pod.UID].Status.PodIPs)
	}
	var discard, keep []string
	for _, id := range a.Discard {
		// One that was looked up for a pod that still runs, if only to its end, is
		// plugged: the pod's annotation keeps it until then.
		if pod := v.pods[v.arrived[id].Pod.UID]; pod != nil && !pool.Finished(pod) {
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

// What a pool's object is told, once each time.
const (
	toldFailure = "failure"
	toldFill    = "fill"
	toldMachine = "machine" // its pods are
)

// fill takes up what somebody asked the pool's object for.
func (r *Reconciler) fill(v *view) {
	value, asked := fillOf(v.object)
	if !asked {
		r.memory.with(v.req, func(p *poolMemory) { delete(p.toldPool, toldFill) })
		return
	}
	n, err := pool.ParseFill(value)
	if err == nil && !v.current {
		err = errors.New("pods get no ports of this pool as the configuration is now: fill the one that they get them of")
	}
	if err == nil {
		v.state.Levels.Fill = n
		return
	}
	r.tellPool(v, toldFill, value, v1.ReasonFillRefused, "FillPool", err.Error())
}

func fillOf(object *v1.KuryrPortPool) (value string, asked bool) {
	if object == nil {
		return "", false
	}
	value, asked = object.Annotations[v1.FillAnnotation]
	return value, asked
}

// tellPool says something on the pool's object, once for each what.
func (r *Reconciler) tellPool(v *view, kind, what, reason, action, note string) {
	if v.object == nil {
		return
	}
	var told bool
	r.memory.with(v.req, func(p *poolMemory) {
		told = p.toldPool[kind] == what
		p.toldPool[kind] = what
	})
	if !told {
		r.events.Eventf(kube.Reference(v.object, "KuryrPortPool"), nil, corev1.EventTypeWarning, reason, action, "%s", note)
	}
}

// filled takes the wish off the pool's object once it has come true, if it still
// is the same.
func (r *Reconciler) filled(ctx context.Context, v *view, reached bool) error {
	value, asked := fillOf(v.object)
	if !asked || value != "0" && !reached {
		return nil
	}
	object := v.object.DeepCopy()
	delete(object.Annotations, v1.FillAnnotation)
	err := r.client.Patch(ctx, object, client.MergeFromWithOptions(v.object, client.MergeFromWithOptimisticLock{}), kube.OwnerPool)
	if err = kube.Lost(err); err != nil {
		return fmt.Errorf("taking %s off KuryrPortPool %s: %w", v1.FillAnnotation, v.req.Pool, err)
	}
	ctrl.LoggerFrom(ctx).Info("filled pool as asked for", "free", value)
	return nil
}

// poolChanged lets pass what a plan looks at of a pool's object: not its status.
var poolChanged = predicate.TypedFuncs[*v1.KuryrPortPool]{
	UpdateFunc: func(e event.TypedUpdateEvent[*v1.KuryrPortPool]) bool {
		before, _ := fillOf(e.ObjectOld)
		after, _ := fillOf(e.ObjectNew)
		return e.ObjectOld.Generation != e.ObjectNew.Generation || before != after
	},
}

// survey tells the plan of v what is known of the room that there is.
func (r *Reconciler) survey(v *view) supply.Standing {
	if v.key == nil {
		return supply.Standing{}
	}
	s, squeeze := r.Supply.Survey(v.req, v.key)
	v.state.Scarce = s.Scarce != nil || s.Full != nil
	if s.Full != nil && v.state.Hold.Before(s.Until) {
		v.state.Hold = s.Until
	}
	v.state.Squeeze = squeeze
	return s
}

// note remembers of a plan what other pools and the metrics want to know, and
// what pods wait for if that is room, whoever was told that there is none.
func (r *Reconciler) note(v *view, a *pool.Actions, s supply.Standing) {
	given := givenTo(a)
	v.episode, v.failure = r.Supply.Settle(v.req, supply.Planned{
		Key: v.key, Free: max(0, a.Levels.Available-len(a.Bind)-a.Squeezed),
		Lacks: len(v.state.Pods) - len(given) - v.state.InFlight, Wishes: a.Want != (pool.Wish{}), Room: s,
	})
	r.memory.with(v.req, func(p *poolMemory) { p.turnedAway(v, given) })
	if s.Full != nil {
		for _, idle := range r.Supply.Squeeze(s.Full.Scope) {
			r.Queue.Add(idle)
		}
	}
}

// givenTo returns the pods that get a port by a plan.
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

// turnedAway counts pods that a plan has no port for, each once.
func (p *poolMemory) turnedAway(v *view, given map[v1.Claim]bool) {
	waiting := map[v1.Claim]bool{}
	for i := range v.state.Pods {
		claim := v.state.Pods[i].Ref.Claim()
		waiting[claim] = true
		if p.lot[claim] == 0 && !given[claim] {
			poolMisses.Inc()
			p.lot[claim] = missed
		}
	}
	keep(p.lot, func(c v1.Claim) bool { return waiting[c] })
}

// serve counts a pod that has got its port.
func (p *poolMemory) serve(c v1.Claim, now time.Time) {
	switch p.lot[c] {
	case missed:
		poolWaitSeconds.Observe(now.Sub(p.seen[c]).Seconds())
	case served:
	default:
		poolHits.Inc()
	}
	p.lot[c] = served
}

// score counts the pods that were given a port by a plan that has been carried
// out, as far as that is known. Of others it is when the API server was asked.
func (r *Reconciler) score(v *view, a *pool.Actions) {
	now := r.Now()
	r.memory.with(v.req, func(p *poolMemory) {
		for _, b := range slices.Concat(a.Bind, a.Adopt) {
			if w, written := p.writes[b.Port]; b.Pod != nil && written && !w.unsure && w.claim == b.Pod.Claim() {
				p.serve(w.claim, now)
			}
		}
	})
}

// squeezed notes that a plan has given up what others asked for, as far as there
// was any.
func (r *Reconciler) squeezed(v *view, a *pool.Actions) {
	if v.state.Squeeze > 0 {
		r.Supply.GaveUp(v.req, v.state.Squeeze, a.Squeezed)
	}
}

// nextLook returns when to plan again for the sake of room, zero for never: when it
// is to be looked for anew, and when what went wrong may be forgotten.
func nextLook(s supply.Standing, v *view, now time.Time) time.Time {
	var at time.Time
	if s.Scarce != nil {
		at = s.Again
	}
	if v.failure != nil && v.state.Hold.After(now) {
		at = outcome.Earlier(at, v.state.Hold)
	}
	return at
}
