// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// running runs a task that takes a second. It returns the times at which the task began, counted
// from the start.
func running(t *testing.T, period func() time.Duration, early <-chan struct{}) (runs func() []time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	began, done := time.Now(), make(chan error)
	var at []time.Duration
	every := kube.Every("test", period, func(context.Context) error {
		at = append(at, time.Since(began))
		time.Sleep(time.Second)
		return errors.New("a run that fails is no reason for none")
	}, early)
	if e, says := any(every).(manager.LeaderElectionRunnable); says && !e.NeedLeaderElection() { // the default is true
		t.Error("every replica would run the task")
	}
	go func() { done <- every.Start(ctx) }()
	return func() []time.Duration {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return at
	}
}

func TestEveryRunsOnceAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := running(t, func() time.Duration { return 10 * time.Second }, nil)
		time.Sleep(33 * time.Second)
		if got, want := runs(), []time.Duration{10 * time.Second, 21 * time.Second, 32 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("runs after %v, want %v", got, want)
		}
	})
}

func TestEveryRunsEarlyWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early := kube.NewSignal()
		runs := running(t, func() time.Duration { return kube.Never }, early)
		time.Sleep(time.Hour)
		early.Send()
		time.Sleep(time.Second / 2)
		early.Send() // while the task runs: it runs again
		early.Send()
		time.Sleep(time.Hour)
		if got, want := runs(), []time.Duration{time.Hour, time.Hour + time.Second}; !slices.Equal(got, want) {
			t.Errorf("runs after %v, want %v", got, want)
		}
	})
}

// A change of the configuration also applies to a wait that has begun.
func TestEveryFollowsItsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var period atomic.Int64
		period.Store(int64(time.Hour))
		runs := running(t, func() time.Duration { return time.Duration(period.Load()) }, nil)
		time.Sleep(time.Minute)
		period.Store(int64(30 * time.Second))
		time.Sleep(3 * time.Second)
		if got := runs(); len(got) != 1 || got[0] < time.Minute || got[0] > 62*time.Second {
			t.Errorf("runs after %v, want one within 2 s of the new period", got)
		}
	})
}

// A period of zero ends with the context, too.
func TestEveryEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	every := kube.Every("test", func() time.Duration { return 0 }, func(context.Context) error {
		if runs++; runs == 3 {
			cancel()
		}
		return nil
	}, nil)
	if err := every.Start(ctx); err != nil || runs != 3 {
		t.Errorf("%d runs and error %v, want 3 and none", runs, err)
	}
}
