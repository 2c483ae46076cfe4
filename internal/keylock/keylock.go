// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package keylock has a mutex for each key, as for each port or each object. A mutex exists only
// while it is held.
package keylock

import (
	"context"
	"sync"
)

// Locks are mutexes by key. The zero value is ready. It is safe for concurrent use. A release may be
// called more than once.
type Locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]*holder
}

type holder struct {
	released chan struct{}
	cancel   context.CancelCauseFunc // nil: the holder must not be interrupted
}

// Take waits for the lock. It returns the cause of ctx if ctx ends before.
func (l *Locks[K]) Take(ctx context.Context, key K) (release func(), err error) {
	return l.take(ctx, key, nil, nil)
}

// TakeInterruptible is Take for a holder that Interrupt ends: the context that it returns ends then.
func (l *Locks[K]) TakeInterruptible(ctx context.Context, key K) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	release, err := l.take(ctx, key, cancel, nil)
	if err != nil {
		cancel(nil)
		return nil, nil, err
	}
	return ctx, func() { cancel(nil); release() }, nil
}

// Interrupt is Take. The context of an interruptible holder ends with cause.
func (l *Locks[K]) Interrupt(ctx context.Context, key K, cause error) (release func(), err error) {
	return l.take(ctx, key, nil, cause)
}

// Try takes the lock if it is free. Otherwise release is nil.
func (l *Locks[K]) Try(key K) (release func(), ok bool) {
	release, other := l.claim(key, nil)
	return release, other == nil
}

func (l *Locks[K]) take(ctx context.Context, key K, cancel context.CancelCauseFunc, interrupt error) (func(), error) {
	for {
		release, other := l.claim(key, cancel)
		if other == nil {
			return release, nil
		}
		if interrupt != nil && other.cancel != nil {
			other.cancel(interrupt)
		}
		select {
		case <-other.released:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claim takes the lock, or returns who holds it.
func (l *Locks[K]) claim(key K, cancel context.CancelCauseFunc) (release func(), other *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.held[key]; other != nil {
		return nil, other
	}
	if l.held == nil {
		l.held = map[K]*holder{}
	}
	h := &holder{released: make(chan struct{}), cancel: cancel}
	l.held[key] = h
	return sync.OnceFunc(func() {
		l.mu.Lock()
		delete(l.held, key)
		l.mu.Unlock()
		close(h.released)
	}), nil
}
