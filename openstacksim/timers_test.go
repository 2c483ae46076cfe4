// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestTimers(t *testing.T) {
	var text bytes.Buffer
	timers := newTimers(slog.New(slog.NewTextHandler(&text, nil)))
	begun, finish := make(chan struct{}), make(chan struct{})
	finished, late := false, false
	timers.after(time.Hour, func() { late = true })
	timers.after(1, func() { panic("spoiled") })
	timers.after(1, func() { close(begun); <-finish; finished = true })
	<-begun
	for waiting := true; waiting; time.Sleep(time.Millisecond) { // until the one that panics has begun, too
		timers.mu.Lock()
		waiting = len(timers.pending) > 1
		timers.mu.Unlock()
	}
	go close(finish)
	timers.close()
	if len(timers.pending) != 0 || !finished || late {
		t.Errorf("after close: %d pending, the running one finished: %v, the later one ran: %v", len(timers.pending), finished, late)
	}
	if !strings.Contains(text.String(), "panic=spoiled") {
		t.Errorf("no panic in the log: %s", &text)
	}
	timers.after(1, func() { t.Error("ran after close") })
	if len(timers.pending) != 0 {
		t.Error("something is pending after close")
	}
	timers.close()
}
