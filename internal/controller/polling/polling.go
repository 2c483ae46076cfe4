// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package polling is what the reconcilers of load balancers share of the cloud. It keeps the number
// of requests independent of the number of load balancers:
//
// Waiter sends one list for all busy load balancers that a reconciler waits for. Shared sends one
// request for all callers that want the same answer. Quotas lets one request at a time try again
// after the cloud has refused it as over quota. Outage sends one probe while a service of the cloud
// does not answer. Holders knows which load balancer has which floating IP. Drift requests a check of
// each load balancer once an interval, spread over the interval.
//
// The package has its own clocks. It requeues requests through functions that it is given. It plans
// nothing and changes nothing in the cloud.
package polling

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Waiter waits for busy load balancers, with one list for all of them. It requeues the request of a
// load balancer that has become active, is in ERROR or is gone.
type Waiter struct {
	list func(context.Context) ([]sdn.LoadBalancerSummary, error)
	done func(ctrl.Request)
	now  func() time.Time

	// The next list is due at due, and not before rested. Only Run uses the two.
	due, rested time.Time
	added       kube.Signal // a load balancer was added

	mu    sync.Mutex
	busy  map[string]waiting // by ID of the load balancer
	fresh bool               // a load balancer was added since the last step of Run
}

type waiting struct {
	req   ctrl.Request
	since time.Time // when the load balancer became busy
	added time.Time // lists that began earlier say nothing about it
}

// The time between two lists. It is short after a change, as a load balancer of OVN is done in less
// than a second. It grows while nothing changes, as an amphora boots for minutes. A slow list is
// followed by a longer pause.
const (
	waitSoonest = 100 * time.Millisecond
	waitLatest  = 5 * time.Second
	waitShare   = 4 // pause after a list, in durations of that list
)

// NewWaiter returns a Waiter that lists nothing before Run. It calls done for each request whose
// load balancer is no longer busy, or is gone.
func NewWaiter(list func(context.Context) ([]sdn.LoadBalancerSummary, error), now func() time.Time, done func(ctrl.Request)) *Waiter {
	return &Waiter{list: list, now: now, done: done, busy: map[string]waiting{}, added: kube.NewSignal()}
}

// Add waits for a load balancer that is busy from now on.
func (w *Waiter) Add(id string, req ctrl.Request) { w.AddSince(id, req, w.now()) }

// AddSince waits for a load balancer that has been busy since that time.
func (w *Waiter) AddSince(id string, req ctrl.Request, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[id], w.fresh = waiting{req, since, w.now()}, true
	balancersBusy.Set(float64(len(w.busy)))
	w.added.Send()
}

// Forget stops waiting for the load balancers of a request.
func (w *Waiter) Forget(req ctrl.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.busy, func(_ string, v waiting) bool { return v.req == req })
	balancersBusy.Set(float64(len(w.busy)))
}

// WaitsFor returns the load balancer of a request that has been busy longest, and since when. It
// returns an empty ID if the Waiter waits for none.
func (w *Waiter) WaitsFor(req ctrl.Request) (id string, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, v := range w.busy {
		if v.req == req && (id == "" || v.since.Before(since)) {
			id, since = k, v.since
		}
	}
	return id, since
}

// Busy returns the load balancers of a request that the Waiter waits for.
func (w *Waiter) Busy(req ctrl.Request) (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, v := range w.busy {
		if v.req == req {
			ids = append(ids, k)
		}
	}
	return ids
}

// Run lists load balancers while any of them is busy, until ctx ends.
func (w *Waiter) Run(ctx context.Context) error {
	left := kube.Never // time from the end of the last step until a list is due
	step := func(ctx context.Context) error {
		err := w.step(ctx)
		if left = kube.Never; !w.due.IsZero() {
			left = w.due.Sub(w.now())
		}
		return err
	}
	return kube.Every("loadbalancers", func() time.Duration { return left }, step, w.added)(ctx)
}

// step sends a list if one is due, and sets when the next is due. It also runs for each added load
// balancer: a new one is not to wait as long as older ones.
func (w *Waiter) step(ctx context.Context) error {
	start := w.now()
	if w.takeFresh() {
		w.due = outcome.Earlier(w.due, later(start.Add(waitSoonest), w.rested))
	}
	if !w.any() {
		w.due = time.Time{}
	}
	if w.due.IsZero() || start.Before(w.due) {
		return nil
	}
	listed, err := w.list(ctx)
	end := w.now()
	// A load balancer that the list lacks is requeued as a missing one: its visit finds out.
	if err != nil && sdn.Partial(err) == nil {
		w.rested = end.Add(waitLatest)
		w.due = w.rested
		return fmt.Errorf("cannot read which load balancers are still busy: %w", err)
	}
	w.noteListed(listed, start)
	w.rested = end.Add(min(waitLatest, waitShare*end.Sub(start)))
	w.due = later(end.Add(w.gap()), w.rested)
	return nil
}

// takeFresh reports whether a load balancer was added since the last call of takeFresh.
func (w *Waiter) takeFresh() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := w.fresh
	w.fresh = false
	return is
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *Waiter) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.busy) > 0
}

// gap returns the time until the next list. The youngest busy load balancer sets it, as that one is
// the likeliest to be done.
func (w *Waiter) gap() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := waitLatest
	for _, v := range w.busy {
		gap = min(gap, max(waitSoonest, w.now().Sub(v.since)))
	}
	return gap
}

// noteListed forgets the busy load balancers that a list shows to be done, and requeues their requests.
// It ignores load balancers that were added after the list began.
func (w *Waiter) noteListed(listed []sdn.LoadBalancerSummary, began time.Time) {
	states := make(map[string]sdn.Provisioning, len(listed))
	for _, lb := range listed {
		states[lb.ID] = lb.Provisioning
	}
	var done []ctrl.Request
	w.mu.Lock()
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
	w.mu.Unlock()
	for _, req := range done {
		w.done(req)
	}
}

var balancersBusy = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "kuryr_loadbalancers_busy",
	Help: "Load balancers in PENDING_* that Kuryr waits for.",
})

func init() { metrics.Registry.MustRegister(balancersBusy) }

// Shared lets one request answer all callers that want the same answer at the same time. Unlike
// with singleflight, the request began after each of its callers asked. So the answer is not older
// than the question. The zero value is ready for use. It is safe for concurrent use.
type Shared[K comparable, T any] struct {
	mu  sync.Mutex
	all map[K]*requests[T]
}

// requests are the requests for one key.
type requests[T any] struct {
	current *request[T] // has begun
	next    *request[T] // has not begun
}

type request[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Get sends a request, or waits for the next request of another caller. The caller must not change
// the value: callers share it.
func (s *Shared[K, T]) Get(ctx context.Context, key K, send func(context.Context, K) (T, error)) (T, error) {
	s.mu.Lock()
	of := s.all[key]
	if of == nil {
		of = &requests[T]{}
		if s.all == nil {
			s.all = map[K]*requests[T]{}
		}
		s.all[key] = of
	}
	q, before := of.next, of.current
	mine := q == nil
	if mine {
		q = &request[T]{done: make(chan struct{})}
		of.next = q
	}
	s.mu.Unlock()
	if !mine {
		select {
		case <-q.done:
			return q.value, q.err
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
	if before != nil {
		<-before.done
	}
	s.mu.Lock()
	of.current, of.next = q, nil
	s.mu.Unlock()
	defer func() {
		close(q.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		if of.current == q && of.next == nil {
			delete(s.all, key)
		}
	}()
	q.value, q.err = send(ctx, key)
	return q.value, q.err
}
