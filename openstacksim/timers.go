// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// timers are pending changes. They are safe for concurrent use.
type timers struct {
	log  *slog.Logger
	done chan struct{} // closed by close

	mu      sync.Mutex
	closed  bool
	last    int // the last key of pending
	pending map[int]*time.Timer
	running sync.WaitGroup
}

func newTimers(log *slog.Logger) *timers {
	return &timers{log: log, done: make(chan struct{}), pending: map[int]*time.Timer{}}
}

// after runs f after d, in its own goroutine, or at once.
func (t *timers) after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.last++
	n := t.last
	t.pending[n] = time.AfterFunc(d, func() {
		if t.begin(n) {
			defer t.running.Done()
			t.run(f)
		}
	})
}

// begin reports whether a due change may still run. It then counts as running.
func (t *timers) begin(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pending, n)
	if t.closed {
		return false
	}
	t.running.Add(1)
	return true
}

// run logs a panic of f, which would otherwise end the process without a report.
func (t *timers) run(f func()) {
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("what was to follow a call panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// close cancels what is pending, and waits for what is running. A running change must not call it.
func (t *timers) close() {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		close(t.done)
	}
	for _, timer := range t.pending {
		timer.Stop()
	}
	clear(t.pending)
	t.mu.Unlock()
	t.running.Wait()
}
