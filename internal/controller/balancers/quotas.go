// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// quotas are what the cloud has refused as over quota. Of all that wait for the same, one
// at a time asks, once a pause, in turns: so what is asked for does not grow with their
// number, and the pause of each does. One that asks for less than all that were refused
// need not wait. When there is room again two go on for each that has got some. Its
// methods are safe for concurrent use.
type quotas struct {
	pause time.Duration
	now   func() time.Time
	wake  func(ctrl.Request)

	mu  sync.Mutex
	all map[quota]*shortage
}

// quota is what there may be no room for.
type quota struct{ what, project string }

// shortage is what is known of a quota that is full.
type shortage struct {
	until time.Time // nobody asks up to then
	least int       // the smallest that was refused
	leave int       // how many may ask nevertheless, as there was room
	queue []queued
}

// queued is who waits, and what the cloud said when it asked last; nil: it has not.
type queued struct {
	req ctrl.Request
	err error
}

// longestTurn bounds for how many pauses one that waits is not asked again what its turn
// is: those before it may have gone.
const longestTurn = 10

// queuedError is an ErrQuota of one that waits for its turn to ask again.
type queuedError struct {
	err   error
	after time.Duration
	sent  bool // it has just asked
}

func (e *queuedError) Error() string { return e.err.Error() }
func (e *queuedError) Unwrap() error { return e.err }

// errTurn is what one is told that has not asked itself.
var errTurn = fmt.Errorf("the cloud has refused others, and one at a time asks again: %w", sdn.ErrQuota)

// ask sends a request that takes size of a quota, if it is the turn of who asks.
func (q *quotas) ask(of quota, req ctrl.Request, size int, request func() error) error {
	if size <= 0 {
		return request()
	}
	if err := q.turn(of, req, size); err != nil {
		return err
	}
	err := request()
	switch {
	case errors.Is(err, sdn.ErrQuota):
		return q.refused(of, req, size, err)
	case err == nil:
		q.made(of, req)
	}
	return err
}

// turn takes leave to ask, or says why not.
func (q *quotas) turn(of quota, req ctrl.Request, size int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, now := q.all[of], q.now()
	switch {
	case s == nil || size < s.least:
		return nil
	case s.leave > 0:
		s.leave--
		return nil
	case !now.Before(s.until): // for all others, too
		s.until = now.Add(q.pause)
		return nil
	}
	return s.wait(req, now, q.pause)
}

// waits says why a request is not to ask now; nil if it may.
func (q *quotas) waits(of quota, req ctrl.Request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, now := q.all[of], q.now()
	if s == nil || s.leave > 0 || !now.Before(s.until) {
		return nil
	}
	return s.wait(req, now, q.pause)
}

// wait has a request in the queue and says what it is told, and when it is to come again.
func (s *shortage) wait(req ctrl.Request, now time.Time, pause time.Duration) *queuedError {
	i := s.place(req)
	if i < 0 {
		i = len(s.queue)
		s.queue = append(s.queue, queued{req, errTurn})
	}
	after := s.until.Sub(now) + time.Duration(i)*pause
	return &queuedError{err: s.queue[i].err, after: min(after, longestTurn*pause)}
}

func (s *shortage) place(req ctrl.Request) int {
	return slices.IndexFunc(s.queue, func(w queued) bool { return w.req == req })
}

// refused notes that there is no room, and has the next one ask after a pause.
func (q *quotas) refused(of quota, req ctrl.Request, size int, err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.all[of]
	if s == nil {
		s = &shortage{least: math.MaxInt}
		if q.all == nil {
			q.all = map[quota]*shortage{}
		}
		q.all[of] = s
	}
	now := q.now()
	s.until, s.least, s.leave = now.Add(q.pause), min(s.least, size), 0
	if i := s.place(req); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.queue = append(s.queue, queued{req, err})
	waits := s.wait(req, now, q.pause)
	waits.sent = true
	return waits
}

// made notes that there was room.
func (q *quotas) made(of quota, req ctrl.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.all[of]; s != nil {
		s.leave += 2
		q.leaves(of, s, req)
		q.wakeFirst(s, 2)
	}
}

// leaves takes a request out of a queue. Where nobody waits any more, everybody may ask.
func (q *quotas) leaves(of quota, s *shortage, req ctrl.Request) {
	if i := s.place(req); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	if len(s.queue) == 0 {
		delete(q.all, of)
	}
}

func (q *quotas) wakeFirst(s *shortage, n int) {
	for _, w := range s.queue[:min(n, len(s.queue))] {
		q.wake(w.req)
	}
}

// forget notes that a request waits for nothing.
func (q *quotas) forget(req ctrl.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for of, s := range q.all {
		q.leaves(of, s, req)
	}
}

// freed notes that something has gone, which makes room, maybe: of all that is full, one
// asks again.
func (q *quotas) freed(req ctrl.Request) {
	q.forget(req)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.all {
		s.leave = max(s.leave, 1)
		q.wakeFirst(s, 1)
	}
}

// needs returns what a step takes of a quota, and how much; 0 if it takes none.
func needs(klb *v1.KuryrLoadBalancer, step balancer.Step) (quota, int) {
	of := func(l *sdn.Listener) int {
		if l.Pool == nil {
			return 1
		}
		return 1 + len(l.Pool.Members)
	}
	size := 0
	switch s := step.(type) {
	case balancer.CreateLoadBalancer:
		size = 1
		for i := range s.LoadBalancer.Listeners {
			size += of(&s.LoadBalancer.Listeners[i])
		}
	case balancer.CreateListener:
		size = of(&s.Listener)
	case balancer.CreatePool:
		size = 1 + len(s.Pool.Members)
	case balancer.ChangeMembers:
		size = max(0, len(s.Add)-len(s.Remove))
	case balancer.CreateFloatingIP:
		return addressQuota(klb), 1
	}
	return quota{fmt.Sprintf("%T", step), klb.Spec.ProjectID}, size
}

// addressQuota is that of the floating IPs that a KuryrLoadBalancer may have one of.
func addressQuota(klb *v1.KuryrLoadBalancer) quota {
	what := "floating IP"
	if klb.Spec.PublicIP != nil {
		what += " of " + klb.Spec.PublicIP.NetworkID + "/" + klb.Spec.PublicIP.SubnetID
	}
	return quota{what, klb.Spec.ProjectID}
}

// within sends the request of a step once there may be room for it.
func (r *Reconciler) within(klb *v1.KuryrLoadBalancer, step balancer.Step, request func() error) error {
	of, size := needs(klb, step)
	return r.quotas.ask(of, kube.RequestOf(klb), size, request)
}
