// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package polling is what the reconcilers of load balancers share of the cloud, so that
// what is asked of it does not grow with their number: one list for all that wait for a
// busy load balancer (Waiter), one answer for all who ask for the same list at the same
// time (Shared), one change of provider at a time (Turns), and a look at each load
// balancer once an interval, spread over it (Drift). It has clocks of its own, requeues
// by functions that it is given, and plans and changes nothing.
package polling

import (
	"context"
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
