// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// cloud counts what it is asked. It answers with the number of the request.
type cloud struct {
	asked int
	takes time.Duration
	err   error
}

func (c *cloud) ask(ctx context.Context) (int, error) {
	c.asked++
	n := c.asked
	time.Sleep(c.takes)
	return n, errors.Join(c.err, ctx.Err())
}

func TestAnswersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a session.Answers[string, int]
		var c cloud
		get := func(what, key string, want int) {
			t.Helper()
			if got, err := a.Get(t.Context(), key, time.Minute, c.ask); got != want || err != nil {
				t.Errorf("Get(%s) %s: %d, %v, want the answer to request %d", key, what, got, err, want)
			}
		}
		get("first", "a", 1)
		time.Sleep(time.Minute - time.Nanosecond)
		get("before its age", "a", 1)
		get("first", "b", 2)
		time.Sleep(time.Nanosecond)
		if got, ok := a.Fresh("a", time.Minute); ok {
			t.Errorf("Fresh(a) at its age: %d, want none", got)
		}
		get("at its age", "a", 3)
		a.Forget(func(key string, value int) bool { return key == "a" && value == 3 })
		get("after Forget", "a", 4)
		get("after Forget of another", "b", 2)
		a.Keep("b", 20)
		get("after Keep", "b", 20)
	})
}

func TestAnswersKeepNoFailure(t *testing.T) {
	var a session.Answers[string, int]
	c := cloud{err: sdn.ErrForbidden}
	if _, err := a.Get(t.Context(), "a", time.Minute, c.ask); !errors.Is(err, sdn.ErrForbidden) {
		t.Errorf("Get while the cloud refuses: %v, want ErrForbidden", err)
	}
	c.err = nil
	if got, err := a.Get(t.Context(), "a", time.Minute, c.ask); got != 2 || err != nil {
		t.Errorf("Get after a failure: %d, %v, want the answer to request 2", got, err)
	}
}

// An answer may be an error, and nil.
func TestAnswersKeepVerdicts(t *testing.T) {
	var a session.Answers[string, error]
	for range 2 {
		got, err := a.Get(t.Context(), "a", time.Minute, func(context.Context) (error, error) { return nil, nil })
		if got != nil || err != nil {
			t.Errorf("Get of an answer that is nil: %v, %v, want nil, nil", got, err)
		}
	}
}

func TestAnswersShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a session.Answers[string, int]
		c := cloud{takes: time.Second}
		var all errgroup.Group
		leaves, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		all.Go(func() error {
			if _, err := a.Get(leaves, "a", time.Minute, c.ask); !errors.Is(err, sdn.ErrUnavailable) {
				t.Errorf("Get of a caller that leaves before the answer: %v, want ErrUnavailable", err)
			}
			return nil
		})
		synctest.Wait()
		for range 3 {
			all.Go(func() error {
				if got, err := a.Get(t.Context(), "a", time.Minute, c.ask); got != 1 || err != nil {
					t.Errorf("Get after the caller that has asked left: %d, %v, want the answer to request 1", got, err)
				}
				return nil
			})
		}
		_ = all.Wait()
	})
}
