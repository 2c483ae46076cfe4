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
