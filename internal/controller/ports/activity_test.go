// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// inventory is an SDN that only lists.
type inventory struct {
	sdn.Ports
	mu     sync.Mutex
	listed []sdn.PortSummary
	calls  int
}

func (i *inventory) ListPorts(context.Context) ([]sdn.PortSummary, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls++
	return i.listed, nil
}

// set makes ports of the inventory, and returns how often it was asked before.
func (i *inventory) set(listed ...sdn.PortSummary) (calls int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	calls, i.calls, i.listed = i.calls, 0, listed
	return calls
}

// TestActivityIsAskedForLessAndLess: a port that never becomes active costs a
// list now and then, and does not make the next one wait.
func TestActivityIsAskedForLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cloud := &inventory{}
		var seen []string
		a := &activity{cloud: cloud, memory: newPortMemory(), seen: func(r ctrl.Request) { seen = append(seen, r.Name) }}
		go func() { _ = a.run(ctx) }()
		pass := func(d time.Duration) (calls int) {
			time.Sleep(d)
			synctest.Wait()
			return cloud.set()
		}
		if n := pass(time.Minute); n != 0 {
			t.Errorf("%d lists in a minute in which no port waits, want none", n)
		}
		a.memory.awaitActive("stuck", true)
		if n := pass(10 * time.Second); n < 3 {
			t.Errorf("%d lists in the first 10 s, want 3 at least", n)
		}
		pass(time.Minute)
		if n := pass(10 * time.Minute); n > 21 {
			t.Errorf("%d lists in 10 minutes for a port that stays inactive, want one each 30 s", n)
		}
		a.memory.awaitActive("next", true)
		cloud.set(sdn.PortSummary{ID: "next", Active: true}, sdn.PortSummary{ID: "stuck"})
		if pass(3 * time.Second); len(seen) != 1 || seen[0] != "next" {
			t.Errorf("seen active within 3 s: %q, want the next port", seen)
		}
	})
}
