// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package outcome_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
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

// Whoever is told that something is not supported is not sent to look for a wrong ID.
func TestExplainWhatIsNotSupported(t *testing.T) {
	for err, advised := range map[error]bool{
		sdn.ErrInvalid: true,
		fmt.Errorf("%w: %w: ports behind a bridge", sdn.ErrUnsupported, sdn.ErrInvalid): false,
	} {
		text := outcome.Explain(err, "n1")
		if got := strings.Contains(text, "subnetIDs"); got != advised || outcome.Reason(err) != v1.ReasonRejected {
			t.Errorf("%v is %s: %q; want Rejected, and advice: %t", err, outcome.Reason(err), text, advised)
		}
	}
}
