// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"
)

// locks are named locks. A caller can wait for a lock with a context, and can ask its holder to
// release it. The zero value is ready.
type locks struct {
	mu   sync.Mutex
	held map[string]*holder
}

type holder struct {
	free   chan struct{}
	cancel context.CancelCauseFunc // nil: the holder must not be interrupted
}

// acquire takes the lock. The context that it returns ends when another caller interrupts the
// holder. It returns the cause of ctx if ctx ends before.
func (l *locks) acquire(ctx context.Context, name string) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	release, err := l.take(ctx, name, &holder{free: make(chan struct{}), cancel: cancel}, nil)
	if err != nil {
		cancel(nil)
		return nil, nil, err
	}
	return ctx, func() { cancel(nil); release() }, nil
}

// interrupt takes the lock. If a caller of acquire holds it, that caller's context ends with
// cause.
func (l *locks) interrupt(ctx context.Context, name string, cause error) (func(), error) {
	return l.take(ctx, name, &holder{free: make(chan struct{})}, cause)
}

// try takes the lock if it is free.
func (l *locks) try(name string) (release func(), ok bool) {
	h := &holder{free: make(chan struct{})}
	if l.claim(name, h) != h {
		return nil, false
	}
	return l.releaser(name, h), true
}

func (l *locks) take(ctx context.Context, name string, h *holder, interrupt error) (func(), error) {
	for {
		other := l.claim(name, h)
		if other == h {
			return l.releaser(name, h), nil
		}
		if interrupt != nil && other.cancel != nil {
			other.cancel(interrupt)
		}
		select {
		case <-other.free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claim returns the holder of the lock: h, if it was free.
func (l *locks) claim(name string, h *holder) *holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.held[name]; other != nil {
		return other
	}
	if l.held == nil {
		l.held = map[string]*holder{}
	}
	l.held[name] = h
	return h
}

func (l *locks) releaser(name string, h *holder) func() {
	return sync.OnceFunc(func() {
		l.mu.Lock()
		delete(l.held, name)
		l.mu.Unlock()
		close(h.free)
	})
}
