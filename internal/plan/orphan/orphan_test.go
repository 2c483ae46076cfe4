// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package orphan_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/plan/orphan"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestObserve follows one collector through looks at the cloud, grace 60s.
func TestObserve(t *testing.T) {
	t.Parallel()
	var c orphan.Collector
	for _, look := range []struct {
		at      int // seconds
		nobodys []string
		want    []string
		why     string
	}{
		{0, []string{"a", "b"}, nil, "seen for the first time"},
		{59, []string{"b", "a", "c"}, nil, "within the grace"},
		{60, []string{"b", "c"}, []string{"b"}, "b has been nobody's for 60s; a is somebody's now"},
		{120, []string{"c", "b", "a", "b"}, []string{"b", "c"}, "b could not be deleted; a starts anew"},
		{180, []string{"a"}, []string{"a"}, "a has been nobody's since 120s"},
		{240, nil, nil, "none left"},
	} {
		got := c.Observe(look.nobodys, noon.Add(time.Duration(look.at)*time.Second), time.Minute)
		if diff := cmp.Diff(look.want, got); diff != "" {
			t.Errorf("Observe after %d s (%s) (-want +got):\n%s", look.at, look.why, diff)
		}
	}
}

// TestOneLookIsNeverEnough: whatever the grace, also none, a single look
// condemns nothing.
func TestOneLookIsNeverEnough(t *testing.T) {
	t.Parallel()
	var c orphan.Collector
	if got := c.Observe([]string{"a"}, noon, 0); got != nil {
		t.Errorf("Observe at the first look, no grace = %v, want none", got)
	}
	if got := c.Observe([]string{"a"}, noon, 0); len(got) != 1 {
		t.Errorf("Observe at the second look, no grace = %v, want a", got)
	}
}

// TestObserveAgainstHistory compares the collector with all of its history,
// searched anew for every look.
func TestObserveAgainstHistory(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	ids := []string{"a", "b", "c", "d"}
	var c orphan.Collector
	var history []map[string]bool
	var times []time.Time
	now := noon
	for range 2000 {
		now = now.Add(time.Duration(r.IntN(40)) * time.Second)
		look := map[string]bool{}
		var nobodys []string
		for _, id := range ids {
			if r.IntN(6) > 0 {
				look[id] = true
				nobodys = append(nobodys, id)
			}
		}
		history, times = append(history, look), append(times, now)
		var want []string
		for _, id := range ids {
			first := len(history)
			for first > 0 && history[first-1][id] {
				first--
			}
			if first < len(history)-1 && now.Sub(times[first]) >= time.Minute {
				want = append(want, id)
			}
		}
		if diff := cmp.Diff(want, c.Observe(nobodys, now, time.Minute)); diff != "" {
			t.Fatalf("Observe (-want +got):\n%s", diff)
		}
	}
}
