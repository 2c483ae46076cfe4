// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package outcome

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Pauses is the rate limiter of a queue: the pause before an object whose reconcile failed is
// reconciled again grows with each failure. Its methods are safe for concurrent use.
type Pauses[request comparable] struct {
	workqueue.TypedRateLimiter[request]

	mu   sync.Mutex
	kept map[request]bool // requests whose next Forget is ignored
}

// Limiter returns the rate limiter of a queue for objects whose last reconcile failed. The
// library's own limiter doubles up to 1000 s. After an outage of some minutes pods would wait for
// as long again.
func Limiter[request comparable](b Backoff) *Pauses[request] {
	return &Pauses[request]{
		TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[request](5*time.Millisecond, b.Max),
		kept:             map[request]bool{},
	}
}

// Keep is called in a reconcile that ends without a try and without an error, because the cache is
// behind. The library takes that for a success and forgets the failures before it. While each
// failure writes a status that the cache shows later than the first pause, the pause would never
// grow.
func (p *Pauses[request]) Keep(r request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[r] = true
}

// Forget ends the growth of a request's pause, unless Keep was called for the request since.
func (p *Pauses[request]) Forget(r request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept[r] {
		delete(p.kept, r)
		return
	}
	p.TypedRateLimiter.Forget(r)
}
