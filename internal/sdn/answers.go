// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"
)

// Answers keeps what the SDN has answered, by key. Concurrent callers with the same key share one
// request, which outlives them: a context that ends frees its caller only. The zero value is ready for
// use. It waits for each answer, and keeps no errors. The methods are safe for concurrent use.
type Answers[K comparable, V any] struct {
	// KeepError returns how long an error counts as the answer. failures is the number of errors since
	// the last success. nil: an error is for the callers that share the request.
	KeepError func(err error, failures int) time.Duration
	// Patience is how long callers wait, from the beginning of the request: then they get a
	// PendingError. Zero: until their contexts end.
	Patience time.Duration
	Now      func() time.Time // nil: time.Now

	mu  sync.Mutex // not held during requests
	all map[K]*answer[V]
}

// Always is the age of an answer that counts until it is forgotten.
const Always = time.Duration(math.MaxInt64)

// answer is a request and its answer.
type answer[V any] struct {
	began time.Time
	done  chan struct{} // closed once the fields below are final

	value    V
	err      error
	failures int
	until    time.Time // when the answer ceases to count; zero: never
}

func (a *answer[V]) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func (a *answer[V]) counts(now time.Time) bool {
	return a.ended() && (a.until.IsZero() || now.Before(a.until))
}

// Get returns the kept answer. If none counts, it sends a request, whose answer counts for age. Zero:
// it is for the callers that share the request. A caller whose context ends gets ErrUnavailable.
func (a *Answers[K, V]) Get(ctx context.Context, key K, age time.Duration, ask func(context.Context) (V, error)) (none V, _ error) {
	one := a.request(ctx, key, age, ask)
	var impatient <-chan time.Time
	if a.Patience > 0 && !one.ended() {
		timer := time.NewTimer(a.Patience - a.now().Sub(one.began))
		defer timer.Stop()
		impatient = timer.C
	}
	select {
	case <-one.done:
		return one.value, one.err
	case <-ctx.Done():
		return none, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	case <-impatient:
		return none, &PendingError{What: fmt.Sprintf("the cloud's answer about %v", key), Retry: a.Patience}
	}
}

// request returns the answer that counts, or the one that is on its way. If there is neither, it asks.
func (a *Answers[K, V]) request(ctx context.Context, key K, age time.Duration, ask func(context.Context) (V, error)) *answer[V] {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, one := a.now(), &answer[V]{began: a.now(), done: make(chan struct{})}
	if old := a.all[key]; old != nil {
		if !old.ended() || old.counts(now) {
			return old
		}
		one.failures = old.failures
	}
	const after = 10 * time.Minute // until then the number of failures is of interest
	maps.DeleteFunc(a.all, func(_ K, old *answer[V]) bool { return old.ended() && !old.counts(now.Add(-after)) })
	a.set(key, one)
	go func() {
		value, err := ask(context.WithoutCancel(ctx)) // requests have deadlines of their own
		a.mu.Lock()
		defer a.mu.Unlock()
		one.finish(value, err, a.now(), age, a.KeepError)
		if !one.counts(a.now()) && a.all[key] == one {
			delete(a.all, key)
		}
	}()
	return one
}

func (a *answer[V]) finish(value V, err error, now time.Time, age time.Duration, keep func(error, int) time.Duration) {
	if a.failures++; err == nil {
		a.failures = 0
	} else if age = 0; keep != nil {
		age = keep(err, a.failures)
	}
	if a.value, a.err = value, err; age != Always {
		a.until = now.Add(age)
	}
	close(a.done)
}

// set stores an answer. a.mu is held.
func (a *Answers[K, V]) set(key K, one *answer[V]) {
	if a.all == nil {
		a.all = map[K]*answer[V]{}
	}
	a.all[key] = one
}

func (a *Answers[K, V]) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

// Fresh returns the answer that counts, which may be an error, and asks nothing. ok is false if there
// is none.
func (a *Answers[K, V]) Fresh(key K) (value V, ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.all[key]; one != nil && one.counts(a.now()) {
		return one.value, true, one.err
	}
	return value, false, nil
}

// Keep keeps a value as the answer, for as long as age.
func (a *Answers[K, V]) Keep(key K, value V, age time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := &answer[V]{done: make(chan struct{})}
	one.finish(value, nil, a.now(), age, nil)
	a.set(key, one)
}

// Forget drops the answers that which selects by key and value. The value is zero if the answer is an
// error, or is on its way: callers that wait for it get it, and later ones ask again.
func (a *Answers[K, V]) Forget(which func(K, V) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.all, func(key K, one *answer[V]) bool {
		var value V
		if one.ended() && one.err == nil {
			value = one.value
		}
		return which(key, value)
	})
}

// ForgetErrors lets the SDN be asked again where it has answered with an error.
func (a *Answers[K, V]) ForgetErrors() {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.all, func(_ K, one *answer[V]) bool { return one.ended() && one.err != nil })
}
