// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Answers keeps what the cloud has answered, by what was asked. The zero value is ready for use. Its
// methods are safe for concurrent use.
type Answers[K comparable, V any] struct {
	flight singleflight.Group
	mu     sync.Mutex // not held during requests
	kept   map[K]aged[V]
}

type aged[V any] struct {
	value V
	since time.Time
}

// Get returns the kept answer if it is younger than age. Otherwise it asks, and keeps the answer
// unless that is an error. Concurrent callers with the same key share one request, see Share.
func (a *Answers[K, V]) Get(ctx context.Context, key K, age time.Duration, ask func(context.Context) (V, error)) (V, error) {
	if kept, ok := a.Fresh(key, age); ok {
		return kept, nil
	}
	return Share(ctx, &a.flight, fmt.Sprint(key), func(ctx context.Context) (V, error) {
		if kept, ok := a.Fresh(key, age); ok { // another caller's request has ended since
			return kept, nil
		}
		value, err := ask(ctx)
		if err == nil {
			a.Keep(key, value)
		}
		return value, err
	})
}

// Fresh returns the kept answer, and asks nothing. ok is false if there is none younger than age.
func (a *Answers[K, V]) Fresh(key K, age time.Duration) (value V, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if kept, known := a.kept[key]; known && time.Since(kept.since) < age {
		return kept.value, true
	}
	return value, false
}

// Keep keeps an answer.
func (a *Answers[K, V]) Keep(key K, value V) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept == nil {
		a.kept = map[K]aged[V]{}
	}
	a.kept[key] = aged[V]{value, time.Now()}
}

// Forget drops the kept answers that which selects.
func (a *Answers[K, V]) Forget(which func(K, V) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.kept, func(key K, kept aged[V]) bool { return which(key, kept.value) })
}

// Share calls ask once for all concurrent callers with the same key. The call does not end with one
// caller's context: its requests have deadlines of their own. A caller whose context ends gets
// ErrUnavailable.
func Share[V any](ctx context.Context, flight *singleflight.Group, key string, ask func(context.Context) (V, error)) (V, error) {
	result := flight.DoChan(key, func() (any, error) { return ask(context.WithoutCancel(ctx)) })
	select {
	case r := <-result:
		value, _ := r.Val.(V) // V may be an interface, and the value nil
		return value, r.Err
	case <-ctx.Done():
		var none V
		return none, Unanswered(ctx, ctx.Err())
	}
}
