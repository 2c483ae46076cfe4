// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

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
		var a sdn.Answers[string, int]
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
		if got, ok, _ := a.Fresh("a"); ok {
			t.Errorf("Fresh(a) at its age: %d, want none", got)
		}
		get("at its age", "a", 3)
		a.Forget(func(key string, value int) bool { return key == "a" && value == 3 })
		get("after Forget", "a", 4)
		get("after Forget of another", "b", 2)
		a.Keep("b", 20, time.Minute)
		get("after Keep", "b", 20)
	})
}

func TestAnswersKeepNoFailure(t *testing.T) {
	var a sdn.Answers[string, int]
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
	var a sdn.Answers[string, error]
	for range 2 {
		got, err := a.Get(t.Context(), "a", time.Minute, func(context.Context) (error, error) { return nil, nil })
		if got != nil || err != nil {
			t.Errorf("Get of an answer that is nil: %v, %v, want nil, nil", got, err)
		}
	}
}

func TestAnswersShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a sdn.Answers[string, int]
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

// An error counts for as long as KeepError says, which is told how many there were.
func TestAnswersKeepErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := sdn.Answers[string, int]{KeepError: func(_ error, failures int) time.Duration { return time.Duration(failures) * time.Second }}
		c := cloud{err: sdn.ErrForbidden}
		get := func(what string, want int) {
			t.Helper()
			if _, err := a.Get(t.Context(), "a", sdn.Always, c.ask); !errors.Is(err, c.err) || c.asked != want {
				t.Errorf("Get %s: %v after %d requests, want %v after %d", what, err, c.asked, c.err, want)
			}
		}
		get("first", 1)
		get("again", 1)
		if _, ok, err := a.Fresh("a"); !ok || !errors.Is(err, sdn.ErrForbidden) {
			t.Errorf("Fresh after an error: %t, %v, want ErrForbidden", ok, err)
		}
		time.Sleep(time.Second)
		get("after a second", 2)
		time.Sleep(time.Second)
		get("a second after the second error", 2)
		a.ForgetErrors()
		get("after ForgetErrors", 3)
		c.err = nil
		time.Sleep(time.Second)
		get("after the cloud permits it", 4)
		time.Sleep(time.Hour)
		get("an hour later", 4)
	})
}

// A request that takes long holds up none of its callers for longer than the patience.
func TestAnswersPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := sdn.Answers[string, int]{Patience: time.Second}
		c := cloud{takes: 3 * time.Second}
		began := time.Now()
		for range 2 {
			_, err := a.Get(t.Context(), "a", sdn.Always, c.ask)
			if pending := new(sdn.PendingError); !errors.As(err, &pending) || pending.Retry != time.Second || time.Since(began) != time.Second {
				t.Errorf("Get of a slow answer: %v after %s, want a PendingError after a second", err, time.Since(began))
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got, err := a.Get(t.Context(), "a", sdn.Always, c.ask); got != 1 || err != nil {
			t.Errorf("Get after the answer: %d, %v, want the answer to request 1", got, err)
		}
	})
}

// A request on its way when its key is forgotten answers those that wait for it, and nobody else.
func TestAnswersForgetRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a sdn.Answers[string, int]
		c := cloud{takes: time.Second}
		var all errgroup.Group
		for want := range 2 {
			all.Go(func() error {
				if got, err := a.Get(t.Context(), "a", sdn.Always, c.ask); got != want+1 || err != nil {
					t.Errorf("Get: %d, %v, want the answer to request %d", got, err, want+1)
				}
				return nil
			})
			synctest.Wait()
			a.Forget(func(key string, _ int) bool { return key == "a" && want == 0 })
		}
		_ = all.Wait()
		if got, ok, _ := a.Fresh("a"); got != 2 || !ok {
			t.Errorf("Fresh: %d, %t, want the answer to request 2", got, ok)
		}
	})
}
