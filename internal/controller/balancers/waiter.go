// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// waiter knows the busy load balancers that KuryrLoadBalancers wait for. One list is sent for all of
// them, so the number of requests does not depend on their number. Its methods are safe for concurrent
// use.
type waiter struct {
	added  kube.Signal // a load balancer was added
	rested time.Time   // no list is sent before; only listBusy uses it

	mu    sync.Mutex
	busy  map[string]waiting // by ID of the load balancer
	pause time.Duration      // from the end of one run of listBusy to the next
}

type waiting struct {
	req   ctrl.Request
	since time.Time // when the load balancer became busy
	added time.Time // lists that began earlier say nothing about it
}

// The time between two lists. It is short after a change, as a load balancer of OVN is done in less
// than a second. It doubles while nothing changes, as an amphora boots for minutes. A slow list is
// followed by a longer pause.
const (
	waitSoonest = 100 * time.Millisecond
	waitLatest  = 5 * time.Second
	waitShare   = 4 // pause after a list, in durations of that list
)

// add waits for a load balancer that has been busy since that time. If it is waited for already, it
// stays so. add returns since when it has been busy.
func (w *waiter) add(id string, req ctrl.Request, since, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was, is := w.busy[id]; is && was.req == req {
		return was.since
	}
	w.busy[id], w.pause = waiting{req, since, now}, waitSoonest
	balancersBusy.Set(float64(len(w.busy)))
	w.added.Send()
	return since
}

// lose stops waiting for the load balancers of lost requests.
func (w *waiter) lose(lost func(ctrl.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.busy, func(_ string, v waiting) bool { return lost(v.req) })
	balancersBusy.Set(float64(len(w.busy)))
}

// of returns the load balancers that a request waits for, and since when the first of them has been
// busy. It has been busy longest.
func (w *waiter) of(req ctrl.Request) (ids []string, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, v := range w.busy {
		if v.req == req {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { // always the same one first: the status names it
		return cmp.Or(w.busy[a].since.Compare(w.busy[b].since), cmp.Compare(a, b))
	})
	if len(ids) > 0 {
		since = w.busy[ids[0]].since
	}
	return ids, since
}

// period returns the time until the next run of listBusy.
func (w *waiter) period() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.busy) == 0 {
		return kube.Never
	}
	return w.pause
}

// done forgets the busy load balancers that a list shows to be done, and returns their requests. It
// ignores load balancers that were added after the list began.
func (w *waiter) done(listed []sdn.LoadBalancerSummary, began time.Time) (done []ctrl.Request) {
	states := make(map[string]sdn.Provisioning, len(listed))
	for _, lb := range listed {
		states[lb.ID] = lb.Provisioning
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pause = min(waitLatest, 2*w.pause)
	for id, v := range w.busy {
		if v.added.After(began) {
			continue
		}
		switch states[id] { // empty: it is gone, as the list lacks it
		case "", sdn.ProvisioningActive, sdn.ProvisioningError, sdn.ProvisioningDeleted:
			delete(w.busy, id)
			done = append(done, v.req)
		case sdn.ProvisioningCreating, sdn.ProvisioningDeleting:
		}
	}
	balancersBusy.Set(float64(len(w.busy)))
	return done
}

// listBusy lists load balancers if any of them is busy, and requeues the KuryrLoadBalancers that wait
// for one that has become active, is in ERROR or is gone. It also runs for each added load balancer: a
// new one is not to wait as long as older ones.
func (r *Reconciler) listBusy(ctx context.Context) error {
	w := &r.wait
	if w.period() == kube.Never || !kube.Pause(ctx, max(waitSoonest, w.rested.Sub(r.Now()))) {
		return nil
	}
	start := r.Now()
	listed, err := r.Cloud.LoadBalancers.ListLoadBalancers(ctx)
	// A load balancer that the list lacks is requeued as a missing one: its reconciliation finds out.
	end := r.Now()
	if w.rested = end.Add(waitLatest); err != nil && sdn.Partial(err) == nil {
		return fmt.Errorf("cannot read which load balancers are still busy: %w", err)
	}
	w.rested = end.Add(min(waitLatest, waitShare*end.Sub(start)))
	for _, req := range w.done(listed, start) {
		r.wake.Add(req)
	}
	return nil
}
