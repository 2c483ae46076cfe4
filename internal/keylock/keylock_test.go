// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keylock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// A key has one holder at a time, and no lock is left when none is held.
func TestOneHolderForEachKey(t *testing.T) {
	var locks Locks[int]
	var counts [3]int // the race detector sees two writers of one
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			release, err := locks.Take(t.Context(), i%3)
			if err != nil {
				t.Error(err)
				return
			}
			counts[i%3]++
			release()
			release()
		})
	}
	all.Wait()
	if counts != [3]int{100, 100, 100} || len(locks.held) > 0 {
		t.Errorf("got %v and %d locks, want 100 each and none", counts, len(locks.held))
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	var locks Locks[string]
	release, ok := locks.Try("a")
	if again, free := locks.Try("a"); !ok || free || again != nil {
		t.Fatalf("Try of a free lock: %v, of a taken one: %v", ok, free)
	}
	cause := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := locks.Take(ctx, "a"); !errors.Is(err, cause) {
		t.Errorf("Take of a taken lock: got %v, want the context's cause", err)
	}
	release()
	if _, free := locks.Try("a"); !free {
		t.Error("a released lock is not free")
	}
}

// Interrupt ends the context of an interruptible holder, and no other.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks Locks[string]
		ctx, release, err := locks.TakeInterruptible(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New("superseded")
		taken := make(chan func())
		go func() {
			release, _ := locks.Interrupt(t.Context(), "a", cause)
			taken <- release
		}()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), cause) {
			t.Errorf("the holder's context ended with %v, want %v", context.Cause(ctx), cause)
		}
		release()
		release = <-taken
		go func() {
			release, _ := locks.Interrupt(t.Context(), "a", cause)
			taken <- release
		}()
		synctest.Wait() // it waits, as the holder is not interruptible
		release()
		(<-taken)()
	})
}
