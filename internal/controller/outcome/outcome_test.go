// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package outcome_test

import (
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// What stays a conflict is asked less and less.
func TestConflictsAreNoHotLoop(t *testing.T) {
	b := outcome.Backoff{Min: time.Second, Max: 10 * time.Second}
	if first, later := b.Delay(sdn.ErrConflict, 1), b.Delay(sdn.ErrConflict, 20); first > 100*time.Millisecond || later != b.Max {
		t.Errorf("after the first conflict %s, after the twentieth %s; want 100ms at most and %s", first, later, b.Max)
	}
}

// A node that the SDN knows by another name costs ports made and deleted once a minute; an
// agent that restarts keeps pods waiting no longer than it takes.
func TestUnusableHostsAreAskedForLessAndLess(t *testing.T) {
	b := outcome.Backoff{Min: time.Second, Max: 10 * time.Second, Rejected: time.Minute}
	for n, want := range map[int]time.Duration{1: time.Second, 4: 8 * time.Second, 20: time.Minute} {
		if got := b.Delay(sdn.ErrUnbound, n); got != want {
			t.Errorf("after failure %d in a row: %s, want %s", n, got, want)
		}
	}
}
