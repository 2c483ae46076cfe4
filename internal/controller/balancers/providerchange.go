// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// movePatience is how long one load balancer that changes its provider keeps all
// others from doing so: a provider that does not work takes few Services down until
// somebody notices. An amphora takes minutes to boot.
const movePatience = 10 * time.Minute

// moves has load balancers change their provider one at a time. They do not serve
// meanwhile, as an address can be had once, and an edit of the configuration is
// about all of them. Its methods are safe for concurrent use; the zero value is
// ready.
type moves struct {
	mu      sync.Mutex
	who     ctrl.Request // zero: nobody
	since   time.Time
	waiting []ctrl.Request // in the order in which they have asked
}

// take reports whether it is a load balancer's turn; it is until done is called.
// Else it waits in a line.
func (m *moves) take(req ctrl.Request, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	free := m.who == (ctrl.Request{}) || now.Sub(m.since) >= movePatience
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

// done says that a load balancer is as it is to be, or gone. It returns who may be
// next, if it was its turn.
func (m *moves) done(req ctrl.Request) (next ctrl.Request, is bool) {
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

func (r *Reconciler) moved(req ctrl.Request) {
	if next, is := r.moves.done(req); is {
		r.wake.Add(next)
	}
}

// turn returns what is to be in the cloud for now: with the provider that serves, as
// long as it is not this one's turn to change it, or the other one is not to be had.
// Ports and endpoints are kept up to date meanwhile.
func (r *Reconciler) turn(ctx context.Context, klb *v1.KuryrLoadBalancer, trees []sdn.LoadBalancer, o *round) (*v1.KuryrLoadBalancer, error) {
	from := balancer.Moves(klb, trees, balancer.Named(klb))
	if from == "" {
		return klb, nil
	}
	_, err := r.features(ctx, klb, trees)
	if err == nil && r.moves.take(kube.RequestOf(klb), r.now()) {
		return klb, nil
	}
	now := *klb
	now.Spec.Provider, o.deferred, o.again = from, from, max(o.again, movePatience/10)
	return &now, err
}

// busyFor is how long it is remembered that a provider is busy with a change after it
// has answered: then it is tried again, as it may have got quicker.
const busyFor = time.Hour

// busyProviders are those that were seen to refuse a change as the one before, which
// they have accepted, keeps them busy: amphora's do so, OVN's does not. Its methods are
// safe for concurrent use; the zero value is ready.
type busyProviders struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (b *busyProviders) seen(provider string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last = map[string]time.Time{}
	}
	b.last[provider] = now
}

func (b *busyProviders) is(provider string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, ok := b.last[provider]
	return ok && now.Sub(last) < busyFor
}

// provider returns that of a load balancer that the round has seen.
func (o *round) provider(id string) string {
	for i := range o.trees {
		if o.trees[i].ID == id {
			return o.trees[i].Provider
		}
	}
	return ""
}
