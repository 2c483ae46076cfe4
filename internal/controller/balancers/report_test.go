// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"fmt"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestPauses: what is not supported is asked again soon, as the backend may have
// learned it; and rarely if that is not so. Nobody is open for longer than need be.
func TestPauses(t *testing.T) {
	r := &Reconciler{backoff: outcome.Backoff{Min: time.Second, Max: 10 * time.Second, Quota: 30 * time.Second, Rejected: time.Minute}}
	refused := fmt.Errorf("updating: %w", sdn.ErrUnsupported)
	for _, tc := range []struct {
		name string
		o    round
		want time.Duration
	}{
		{"not supported", round{err: refused, refusals: 1}, time.Second},
		{"not supported, again and again", round{err: refused, refusals: learning + 1}, time.Minute},
		{"no such service", round{err: fmt.Errorf("%w: %w", sdn.ErrNoService, sdn.ErrUnsupported), refusals: 1}, time.Minute},
		{"busy", round{waiting: "lb"}, stuckAfter},
		{"busy, and open", round{waiting: "lb", within: 7 * time.Second}, 7 * time.Second},
		{"rejected, and open", round{err: sdn.ErrInvalid, within: 7 * time.Second}, 7 * time.Second},
	} {
		res, err := r.next(&tc.o)
		if err != nil || res.RequeueAfter != tc.want {
			t.Errorf("%s: next = %v, %v, want %v", tc.name, res.RequeueAfter, err, tc.want)
		}
	}
}
