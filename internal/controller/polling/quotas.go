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

// Quotas knows the quotas that have refused a request. Of all requests that wait for the same
// quota, one at a time is sent, once a pause, in turns. So their number does not raise the rate of
// requests; it makes the wait of each longer.
//
// A request for less than every refused size need not wait. When a request succeeds, two more may
// be sent at once. Its methods are safe for concurrent use.
type Quotas struct {
	pause time.Duration
	now   func() time.Time
	wake  func(ctrl.Request)

	mu  sync.Mutex
	all map[Quota]*shortage
}

// Quota names a quota of a project.
type Quota struct{ What, Project string }

// shortage is what is known of an exhausted quota.
type shortage struct {
	until time.Time // no request is sent before
	least int       // the smallest refused size
	leave int       // how many requests may be sent all the same, as there was room
	queue []queued
}

// queued is a waiting request, with the cloud's last error for it. The error is errTurn if the
// request was not sent yet.
type queued struct {
	req ctrl.Request
	err error
}

// longestTurn bounds, in pauses, how long a waiting request is not asked again for its turn. The
// requests before it may have left the queue.
const longestTurn = 10

// QueuedError is an ErrQuota of a request that waits for its turn.
type QueuedError struct {
	Err   error
	After time.Duration // time until its turn
	Sent  bool          // the request has just been sent
}

func (e *QueuedError) Error() string { return e.Err.Error() }
func (e *QueuedError) Unwrap() error { return e.Err }

// errTurn is the error of a request that was not sent.
var errTurn = fmt.Errorf("the quota refused an earlier request, and Kuryr repeats one request at a time: %w", sdn.ErrQuota)

// NewQuotas returns Quotas that let one request a pause be sent. wake requeues a request that may
// be sent.
func NewQuotas(pause time.Duration, now func() time.Time, wake func(ctrl.Request)) *Quotas {
	return &Quotas{pause: pause, now: now, wake: wake, all: map[Quota]*shortage{}}
}

// Ask sends a request that takes size of a quota, if it is the turn of req. Otherwise it returns a
// QueuedError.
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

// turn reserves a turn for a request, or returns why the request must wait.
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
	case !now.Before(s.until): // the new pause is for all other requests, too
		s.until = now.Add(q.pause)
		return nil
	}
	return s.wait(req, now, q.pause)
}

// Waits returns why a request must not be sent now; nil if it may be sent.
func (q *Quotas) Waits(of Quota, req ctrl.Request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, now := q.all[of], q.now()
	if s == nil || s.leave > 0 || !now.Before(s.until) {
		return nil
	}
	return s.wait(req, now, q.pause)
}

// wait adds a request to the queue. It returns the request's error and the time until its turn.
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

// refused records that the quota has no room. The next request is sent after a pause.
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

// made records that the quota had room.
func (q *Quotas) made(of Quota, req ctrl.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.all[of]; s != nil {
		s.leave += 2
		q.leaves(of, s, req)
		q.wakeFirst(s, 2)
	}
}

// leaves removes a request from a queue. Once the queue is empty, any request may be sent.
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

// Forget removes a request from all queues.
func (q *Quotas) Forget(req ctrl.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for of, s := range q.all {
		q.leaves(of, s, req)
	}
}

// Freed records that a resource was deleted, which may make room. One request may be sent for each
// exhausted quota.
func (q *Quotas) Freed(req ctrl.Request) {
	q.Forget(req)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.all {
		s.leave = max(s.leave, 1)
		q.wakeFirst(s, 1)
	}
}
