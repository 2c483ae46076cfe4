// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"sync"
	"time"

	"github.com/kuryr-go/kuryr/internal/keylock"
)

// sharedList lets one request answer all callers that want the same list at the same time. Unlike
// with singleflight, the request began after each of its callers asked. So the answer is not older
// than the question. The last list of each project stays in memory. The zero value is ready for use. It
// is safe for concurrent use.
type sharedList[T any] struct {
	locks keylock.Locks[string] // by project
	last  sync.Map              // by project: the last *listing[T]
}

type listing[T any] struct {
	began time.Time
	all   []T
	err   error
}

// get lists what a project has, or returns a list of another caller. The caller must not change the
// list.
func (s *sharedList[T]) get(ctx context.Context, project string, list func(context.Context, string) ([]T, error)) ([]T, error) {
	asked := time.Now()
	release, err := s.locks.Take(ctx, project)
	if err != nil {
		return nil, err
	}
	defer release()
	if last, has := s.last.Load(project); has && last.(*listing[T]).began.After(asked) {
		return last.(*listing[T]).all, last.(*listing[T]).err
	}
	next := &listing[T]{began: time.Now()}
	next.all, next.err = list(ctx, project)
	s.last.Store(project, next)
	return next.all, next.err
}
