// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/supply"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// pools plans: it is the one writer of the KuryrPorts' specs of a pool. It
// knows no SDN; what it wants of it goes to supply, and comes back as ports
// that have arrived.
type pools struct {
	Options
	client   client.Client
	live     client.Reader // past the cache
	memory   *memory
	sites    *sites
	grants   memberGroups
	supply   *supply.Supply
	events   events.EventRecorder
	wake     *kube.Queue[pool.Ref]
	followed func() // is told that the settings have changed
}

func newPools(mgr ctrl.Manager, o Options, queue *kube.Queue[pool.Ref], supply *supply.Supply, grants memberGroups, followed func()) *pools {
	r := &pools{
		Options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), memory: newMemory(o.Now), supply: supply, grants: grants,
		events: mgr.GetEventRecorder("kuryr-controller"), wake: queue, followed: followed,
	}
	parents := newParents(r.Options, r.client, r.events, r.wakeNode)
	r.sites = &sites{client: r.client, settings: r.Settings, parents: parents}
	return r
}

// memberGroups knows what security groups a port is to have besides those of its pod,
// as a member of load balancers.
type memberGroups interface {
	Of(ctx context.Context, port *v1.KuryrPort) ([]string, error)
}

// staleAfter is how long the cache may take to show a write before the API
// server is asked whether there is still something to wait for.
const staleAfter = 10 * time.Second

// Reconcile makes the plan for one pool and carries it out.
func (r *pools) Reconcile(ctx context.Context, req pool.Ref) (ctrl.Result, error) {
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
	r.note(v, &a, room)
	r.ask(v, a)
	err = r.write(ctx, v, &a)
	r.score(v, &a)
	r.tell(v, givenTo(&a))
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
	return ctrl.Result{RequeueAfter: sooner(a.Wake, outcome.Earlier(again, nextLook(room, v, now)), now)}, nil
}

// sooner returns how long it is until the earlier of two times, zero if both are.
func sooner(a, b, now time.Time) time.Duration {
	if a = outcome.Earlier(a, b); a.IsZero() {
		return 0
	}
	return max(a.Sub(now), time.Millisecond)
}

// behind returns how long to wait at most for the cache to show the pool's own
// last writes: planned without them, a port would be bound or made twice. The
// events that show them come here, so nothing is lost by waiting.
func (r *pools) behind(ctx context.Context, req pool.Ref) (time.Duration, error) {
	writes, since := r.memory.pending(req)
	for name, w := range writes {
		if w.unsure {
			var err error
			if w, err = r.settle(ctx, req, name); err != nil {
				return 0, err
			}
		}
		shown, err := r.shows(ctx, r.client, name, w)
		if err != nil {
			return 0, err
		}
		if !shown && r.Now().Sub(since) >= staleAfter {
			// Written, and then deleted before the cache ever saw it?
			var port v1.KuryrPort
			err := r.live.Get(ctx, client.ObjectKey{Name: name}, &port)
			if client.IgnoreNotFound(err) != nil {
				return 0, fmt.Errorf("looking whether KuryrPort %s is still there: %w", name, err)
			}
			shown = apierrors.IsNotFound(err)
		}
		if shown {
			r.memory.shown(req, name)
			delete(writes, name)
		}
	}
	if len(writes) == 0 {
		return 0, nil
	}
	return max(staleAfter-r.Now().Sub(since), time.Second), nil
}

// settle asks the API server what there is of a KuryrPort after a write that
// ended with an error. Any error may hide a write that was carried out: also a
// conflict or an object that exists already may be that of an earlier try.
func (r *pools) settle(ctx context.Context, req pool.Ref, name string) (write, error) {
	var port v1.KuryrPort
	err := r.live.Get(ctx, client.ObjectKey{Name: name}, &port)
	if client.IgnoreNotFound(err) != nil {
		return write{}, fmt.Errorf("looking what became of KuryrPort %s: %w", name, err)
	}
	var holder types.UID
	if ref := port.Spec.PodRef; ref != nil {
		holder = ref.UID
	}
	was, _ := r.memory.pending(req)
	if uid := was[name].pod; uid != "" && uid == holder {
		r.memory.with(req, func(p *poolMemory) { p.serve(uid, r.Now()) })
	}
	w := r.memory.settled(req, name, port.ResourceVersion, holder)
	if w.version != "" { // else the port that it was to be the object of has still arrived
		r.supply.Recorded(req, name)
	}
	return w, nil
}

// shows reports whether a write is to be seen in what reader reads.
func (r *pools) shows(ctx context.Context, reader client.Reader, name string, w write) (bool, error) {
	var port v1.KuryrPort
	err := reader.Get(ctx, client.ObjectKey{Name: name}, &port, kube.ReadOnly)
	switch {
	case apierrors.IsNotFound(err):
		return w.version == "", nil
	case err != nil:
		return false, fmt.Errorf("reading KuryrPort %s: %w", name, err)
	case w.version == "":
		return !port.DeletionTimestamp.IsZero(), nil
	}
	return !kube.Older(port.ResourceVersion, w.version), nil
}

// ask gives to the SDN's side what the plan wants of it.
func (r *pools) ask(v *view, a pool.Actions) {
	if v.key != nil { // without one nobody wants anything
		r.supply.Wish(v.req, *v.key, a.Want, max(1, v.state.Levels.Batch), v.asked)
	}
	for _, l := range a.Restore {
		r.supply.Restore(v.req, v.site.parent, l.Port, l.Pod, v.pods[l.Pod].Status.PodIPs)
	}
	var discard, keep []string
	for _, id := range a.Discard {
		// One that was looked up for a pod that still runs, if only to its end, is
		// plugged: the pod's annotation keeps it until then.
		if pod := v.pods[v.arrived[id].Pod]; pod != nil && !pool.Finished(pod) {
			keep = append(keep, id)
		} else {
			discard = append(discard, id)
		}
	}
	r.supply.Recorded(v.req, keep...)
	if len(discard) > 0 {
		r.supply.Discard(v.req, discard)
	}
}
