// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package polling

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Quotas are what the cloud has refused as over quota. Of all that wait for the same, one
// at a time asks, once a pause, in turns: so what is asked for does not grow with their
// number, and the pause of each does. One that asks for less than all that were refused
// need not wait. When there is room again two go on for each that has got some. Its
// methods are safe for concurrent use.
type Quotas struct {
	pause time.Duration
	now   func() time.Time
	wake  func(ctrl.Request)

	mu  sync.Mutex
	all map[Quota]*shortage
}

// Quota is what there may be no room for.
type Quota struct{ What, Project string }

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

// QueuedError is an ErrQuota of one that waits for its turn to ask again.
type QueuedError struct {
	Err   error
	After time.Duration // until its turn
	Sent  bool          // it has just asked
}

func (e *QueuedError) Error() string { return e.Err.Error() }
func (e *QueuedError) Unwrap() error { return e.Err }

// errTurn is what one is told that has not asked itself.
var errTurn = fmt.Errorf("the cloud has refused others, and one at a time asks again: %w", sdn.ErrQuota)

// NewQuotas returns Quotas that ask once a pause, and wake who may go on.
func NewQuotas(pause time.Duration, now func() time.Time, wake func(ctrl.Request)) *Quotas {
	return &Quotas{pause: pause, now: now, wake: wake, all: map[Quota]*shortage{}}
}

// Ask sends a request that takes size of a quota, if it is the turn of who asks.
func (q *Quotas) Ask(of Quota, req ctrl.Request, size int, request func() error) error {
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
func (q *Quotas) turn(of Quota, req ctrl.Request, size int) error {
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

// Waits says why a request is not to ask now; nil if it may.
func (q *Quotas) Waits(of Quota, req ctrl.Request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, now := q.all[of], q.now()
	if s == nil || s.leave > 0 || !now.Before(s.until) {
		return nil
	}
	return s.wait(req, now, q.pause)
}

// wait has a request in the queue and says what it is told, and when it is to come again.
func (s *shortage) wait(req ctrl.Request, now time.Time, pause time.Duration) *QueuedError {
	i := s.place(req)
	if i < 0 {
		i = len(s.queue)
		s.queue = append(s.queue, queued{req, errTurn})
	}
	after := s.until.Sub(now) + time.Duration(i)*pause
	return &QueuedError{Err: s.queue[i].err, After: min(after, longestTurn*pause)}
}

func (s *shortage) place(req ctrl.Request) int {
	return slices.IndexFunc(s.queue, func(w queued) bool { return w.req == req })
}

// refused notes that there is no room, and has the next one ask after a pause.
func (q *Quotas) refused(of Quota, req ctrl.Request, size int, err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.all[of]
	if s == nil {
		s = &shortage{least: math.MaxInt}
		q.all[of] = s
	}
	now := q.now()
	s.until, s.least, s.leave = now.Add(q.pause), min(s.least, size), 0
	if i := s.place(req); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.queue = append(s.queue, queued{req, err})
	waits := s.wait(req, now, q.pause)
	waits.Sent = true
	return waits
}

// made notes that there was room.
func (q *Quotas) made(of Quota, req ctrl.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.all[of]; s != nil {
		s.leave += 2
		q.leaves(of, s, req)
		q.wakeFirst(s, 2)
	}
}

// leaves takes a request out of a queue. Where nobody waits any more, everybody may ask.
func (q *Quotas) leaves(of Quota, s *shortage, req ctrl.Request) {
	if i := s.place(req); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	if len(s.queue) == 0 {
		delete(q.all, of)
	}
}

func (q *Quotas) wakeFirst(s *shortage, n int) {
	for _, w := range s.queue[:min(n, len(s.queue))] {
		q.wake(w.req)
	}
}

// Forget notes that a request waits for nothing.
func (q *Quotas) Forget(req ctrl.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for of, s := range q.all {
		q.leaves(of, s, req)
	}
}

// Freed notes that something has gone, which makes room, maybe: of all that is full, one
// asks again.
func (q *Quotas) Freed(req ctrl.Request) {
	q.Forget(req)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.all {
		s.leave = max(s.leave, 1)
		q.wakeFirst(s, 1)
	}
}
