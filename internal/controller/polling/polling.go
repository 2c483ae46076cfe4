// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package polling is what the reconcilers of load balancers share of the cloud, so that
// what is asked of it does not grow with their number: one list for all that wait for a
// busy load balancer (Waiter), one answer for all who ask for the same list at the same
// time (Shared), one change of provider at a time (Turns), one request of those that a quota
// refuses (Quotas), who has which floating IP (Holders), and a look at each load
// balancer once an interval, spread over it (Drift). It has clocks of its own, requeues
// by functions that it is given, and plans and changes nothing.
package polling

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Waiter waits for busy load balancers, for all with one list, and wakes
// those who have asked when one is done or gone.
type Waiter struct {
	list func(context.Context) ([]sdn.LoadBalancerSummary, error)
	done func(ctrl.Request)
	now  func() time.Time

	mu   sync.Mutex
	busy map[string]waiting // by ID
	kick chan struct{}      // holds one token: there is something to wait for
}

type waiting struct {
	req   ctrl.Request
	since time.Time
}

// How long it is between two lists: soon after a change, as OVN's are done in less
// than a second, and later while nothing comes of it, as an amphora boots for
// minutes. A list that takes long is not asked for all the time.
const (
	waitSoonest = 100 * time.Millisecond
	waitLatest  = 5 * time.Second
	waitShare   = 4 // times as long as a list takes it is left alone
)

// NewWaiter returns a Waiter that lists nothing before Run; done is called for each
// request whose load balancer is done or gone.
func NewWaiter(list func(context.Context) ([]sdn.LoadBalancerSummary, error), now func() time.Time, done func(ctrl.Request)) *Waiter {
	return &Waiter{list: list, now: now, done: done, busy: map[string]waiting{}, kick: make(chan struct{}, 1)}
}

// Add waits for a load balancer from now on.
func (w *Waiter) Add(id string, req ctrl.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[id] = waiting{req, w.now()}
	balancersBusy.Set(float64(len(w.busy)))
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// WaitsFor returns a load balancer that is being waited for, and since when; empty if
// there is none.
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

// Busy returns all load balancers that are being waited for.
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

// Run lists while anything is busy, until ctx ends.
func (w *Waiter) Run(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("loadbalancers")
	var due, rested time.Time // when to list next, and before when not to
	for {
		var tick <-chan time.Time
		if w.any() {
			tick = time.After(due.Sub(w.now()))
		} else {
			due = time.Time{}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.kick: // somebody new does not wait for as long as those before
			soon := later(w.now().Add(waitSoonest), rested)
			due = outcome.Earlier(due, soon)
			continue
		case <-tick:
		}
		start := w.now()
		listed, err := w.list(ctx)
		end := w.now()
		rested = end.Add(min(waitLatest, waitShare*end.Sub(start)))
		if err == nil {
			w.told(listed, start)
		} else if ctx.Err() == nil {
			log.Info("could not ask which load balancers are done", "error", err.Error())
			rested = end.Add(waitLatest)
		}
		due = later(end.Add(w.gap()), rested)
	}
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

// gap returns how long to wait before the next list: for the youngest, as it is
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

// told takes from those who were waited for before the list began those that it
// shows to be done.
func (w *Waiter) told(listed []sdn.LoadBalancerSummary, began time.Time) {
	states := make(map[string]sdn.Provisioning, len(listed))
	for _, lb := range listed {
		states[lb.ID] = lb.Provisioning
	}
	var done []ctrl.Request
	w.mu.Lock()
	for id, v := range w.busy {
		if v.since.After(began) {
			continue
		}
		switch states[id] { // empty: gone
		case "", sdn.ProvisioningActive, sdn.ProvisioningError, sdn.ProvisioningDeleted:
			delete(w.busy, id)
			done = append(done, v.req)
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
	Help: "Load balancers that the cloud is at work on and that are waited for.",
})

func init() { metrics.Registry.MustRegister(balancersBusy) }

// Shared lets those who ask at the same time share an answer: one that began when
// they had asked, so that it shows all that was so then. The zero value is ready.
type Shared[T any] struct {
	mu      sync.Mutex
	current *question[T] // has begun
	next    *question[T] // has not
}

type question[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Get asks, or waits for who asks next. What it returns is not to be changed.
func (s *Shared[T]) Get(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	q, before := s.next, s.current
	mine := q == nil
	if mine {
		q = &question[T]{done: make(chan struct{})}
		s.next = q
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
	s.current, s.next = q, nil
	s.mu.Unlock()
	defer close(q.done)
	q.value, q.err = ask(ctx)
	return q.value, q.err
}

// SharedByProject shares the lists of floating IPs of each project.
type SharedByProject struct {
	mu  sync.Mutex
	all map[string]*Shared[[]sdn.FloatingIP]
}

// Get is Shared.Get for the floating IPs of a project.
func (s *SharedByProject) Get(ctx context.Context, project string, ask func(context.Context, string) ([]sdn.FloatingIP, error)) ([]sdn.FloatingIP, error) {
	s.mu.Lock()
	if s.all == nil {
		s.all = map[string]*Shared[[]sdn.FloatingIP]{}
	}
	if s.all[project] == nil {
		s.all[project] = &Shared[[]sdn.FloatingIP]{}
	}
	one := s.all[project]
	s.mu.Unlock()
	return one.Get(ctx, func(ctx context.Context) ([]sdn.FloatingIP, error) { return ask(ctx, project) })
}

// MovePatience is how long one load balancer that changes its provider keeps all
// others from doing so: a provider that does not work takes few Services down until
// somebody notices. An amphora takes minutes to boot.
const MovePatience = 10 * time.Minute

// Turns has load balancers change their provider one at a time. They do not serve
// meanwhile, as an address can be had once, and an edit of the configuration is
// about all of them. Its methods are safe for concurrent use; the zero value is
// ready.
type Turns struct {
	mu      sync.Mutex
	who     ctrl.Request // zero: nobody
	since   time.Time
	waiting []ctrl.Request // in the order in which they have asked
}

// Take reports whether it is a load balancer's turn; it is until done is called.
// Else it waits in a line.
func (m *Turns) Take(req ctrl.Request, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	free := m.who == (ctrl.Request{}) || now.Sub(m.since) >= MovePatience
	switch {
	case m.who == req:
		return true
	case free:
		m.who, m.since = req, now
		m.waiting = slices.DeleteFunc(m.waiting, func(w ctrl.Request) bool { return w == req })
		return true
	case !slices.Contains(m.waiting, req):
		m.waiting = append(m.waiting, req)
	}
	return false
}

// Done says that a load balancer is as it is to be, or gone. It returns who may be
// next, if it was its turn.
func (m *Turns) Done(req ctrl.Request) (next ctrl.Request, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = slices.DeleteFunc(m.waiting, func(w ctrl.Request) bool { return w == req })
	if m.who != req {
		return next, false
	}
	m.who = ctrl.Request{}
	if len(m.waiting) == 0 {
		return next, false
	}
	return m.waiting[0], true
}

// busyFor is how long it is remembered that a provider is busy with a change after it
// has answered: then it is tried again, as it may have got quicker.
const busyFor = time.Hour

// BusyProviders are those that were seen to refuse a change as the one before, which
// they have accepted, keeps them busy: amphora's do so, OVN's does not. Its methods are
// safe for concurrent use; the zero value is ready.
type BusyProviders struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Seen notes that a provider has refused a change as it was busy with the one before.
func (b *BusyProviders) Seen(provider string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last = map[string]time.Time{}
	}
	b.last[provider] = now
}

// Is reports whether a provider was seen to be busy so, within the last hour.
func (b *BusyProviders) Is(provider string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, ok := b.last[provider]
	return ok && now.Sub(last) < busyFor
}
