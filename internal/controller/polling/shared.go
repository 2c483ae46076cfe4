// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package polling

import (
	"context"
	"sync"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Shared lets those who ask at the same time share an answer: one that began when
// they had asked, so that it shows all that was so then. The zero value is ready.
type Shared[T any] struct {
	mu      sync.Mutex
	current *question[T] // has begun
	next    *question[T] // has not
}

type question[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Get asks, or waits for who asks next. What it returns is not to be changed.
func (s *Shared[T]) Get(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	q, before := s.next, s.current
	mine := q == nil
	if mine {
		q = &question[T]{done: make(chan struct{})}
		s.next = q
	}
	s.mu.Unlock()
	if !mine {
		select {
		case <-q.done:
			return q.value, q.err
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
	if before != nil {
		<-before.done
	}
	s.mu.Lock()
	s.current, s.next = q, nil
	s.mu.Unlock()
	defer close(q.done)
	q.value, q.err = ask(ctx)
	return q.value, q.err
}

// SharedByProject shares the lists of floating IPs of each project.
type SharedByProject struct {
	mu  sync.Mutex
	all map[string]*Shared[[]sdn.FloatingIP]
}

func (s *SharedByProject) Get(ctx context.Context, project string, ask func(context.Context, string) ([]sdn.FloatingIP, error)) ([]sdn.FloatingIP, error) {
	s.mu.Lock()
	if s.all == nil {
		s.all = map[string]*Shared[[]sdn.FloatingIP]{}
	}
	if s.all[project] == nil {
		s.all[project] = &Shared[[]sdn.FloatingIP]{}
	}
	one := s.all[project]
	s.mu.Unlock()
	return one.Get(ctx, func(ctx context.Context) ([]sdn.FloatingIP, error) { return ask(ctx, project) })
}
