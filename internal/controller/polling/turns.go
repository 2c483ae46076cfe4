// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package polling

import (
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

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

func (b *BusyProviders) Seen(provider string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last = map[string]time.Time{}
	}
	b.last[provider] = now
}

func (b *BusyProviders) Is(provider string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, ok := b.last[provider]
	return ok && now.Sub(last) < busyFor
}
