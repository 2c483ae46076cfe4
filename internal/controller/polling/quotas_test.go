// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package polling

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestQuotaTurns: of many requests over a quota, one at a time is sent, in turns. A request for
// less does not wait for those for more. When there is room, all are served.
func TestQuotaTurns(t *testing.T) {
	const pause = 30 * time.Second
	now := time.Unix(0, 0)
	var woken []ctrl.Request
	q := NewQuotas(pause, func() time.Time { return now }, func(r ctrl.Request) { woken = append(woken, r) })
	of := Quota{"load balancers", "p"}
	req := func(i int) ctrl.Request {
		return ctrl.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprint("web-", i)}}
	}
	asked, room := 0, 0
	try := func(i, size int) error {
		return q.Ask(of, req(i), size, func() error {
			if asked++; room >= size {
				room -= size
				return nil
			}
			return fmt.Errorf("no room for web-%d: %w", i, sdn.ErrQuota)
		})
	}
	after := func(err error) time.Duration {
		t.Helper()
		var turn *QueuedError
		if !errors.As(err, &turn) || !errors.Is(err, sdn.ErrQuota) {
			t.Fatalf("error %v, want one of the queue that is an ErrQuota", err)
		}
		return turn.After
	}
	const n = 50
	for i := range n {
		if got, want := after(try(i, 2)), pause*time.Duration(min(i+1, int(longestTurn))); got != want {
			t.Errorf("web-%d is to come again after %s, want %s", i, got, want)
		}
	}
	if asked != 1 {
		t.Fatalf("%d have asked, want one for all", asked)
	}
	for range 5 {
		now = now.Add(pause)
		for i := range n {
			_ = try(i, 2)
		}
	}
	if asked != 6 {
		t.Errorf("%d have asked in five pauses, want one in each", asked-1)
	}
	if err := try(n, 1); err == nil || asked != 7 {
		t.Errorf("one that asks for less has %v, and %d have asked", err, asked)
	}
	room = 3 * n // there is room now
	now = now.Add(pause)
	if err := try(7, 2); err != nil || len(woken) != 2 {
		t.Errorf("with room web-7 has %v, and %d others are woken, want 2", err, len(woken))
	}
	made := map[ctrl.Request]bool{req(7): true}
	for len(woken) > 0 {
		next := woken[0]
		if woken = woken[1:]; made[next] {
			continue
		}
		made[next] = q.Ask(of, next, 2, func() error { return nil }) == nil
	}
	for i := range n + 1 {
		if !made[req(i)] {
			t.Errorf("web-%d has not had its turn", i)
		}
	}
	if len(q.all) > 0 {
		t.Errorf("something is kept although nobody waits: %v", q.all)
	}
}

// TestQuotaFreed: a deleted resource makes room for the first waiting request.
func TestQuotaFreed(t *testing.T) {
	now := time.Unix(0, 0)
	var woken []ctrl.Request
	q := NewQuotas(time.Minute, func() time.Time { return now }, func(r ctrl.Request) { woken = append(woken, r) })
	of := Quota{"load balancers", ""}
	a, b := ctrl.Request{NamespacedName: types.NamespacedName{Name: "a"}}, ctrl.Request{NamespacedName: types.NamespacedName{Name: "b"}}
	full := func() error { return sdn.ErrQuota }
	_, _ = q.Ask(of, a, 1, full), q.Ask(of, b, 1, full)
	q.Freed(ctrl.Request{NamespacedName: types.NamespacedName{Name: "gone"}})
	if !slices.Equal(woken, []ctrl.Request{a}) {
		t.Errorf("woken are %v, want the first that waits", woken)
	}
	if err := q.Ask(of, a, 1, func() error { return nil }); err != nil {
		t.Errorf("it may not ask: %v", err)
	}
}

// A full quota of one project makes no request of another project wait.
func TestQuotaOfAProject(t *testing.T) {
	now := time.Unix(0, 0)
	q := NewQuotas(time.Minute, func() time.Time { return now }, func(ctrl.Request) {})
	req := ctrl.Request{NamespacedName: types.NamespacedName{Name: "web"}}
	full := func() error { return sdn.ErrQuota }
	if err := q.Ask(Quota{"load balancers", "red"}, req, 1, full); !errors.Is(err, sdn.ErrQuota) {
		t.Fatalf("Ask in the full project: %v, want ErrQuota", err)
	}
	asked := 0
	count := func() error { asked++; return nil }
	_ = q.Ask(Quota{"load balancers", "red"}, ctrl.Request{NamespacedName: types.NamespacedName{Name: "other"}}, 1, count)
	if err := q.Ask(Quota{"load balancers", "blue"}, req, 1, count); err != nil || asked != 1 {
		t.Errorf("Ask in another project: %v, and %d requests were sent; want that one alone", err, asked)
	}
}
