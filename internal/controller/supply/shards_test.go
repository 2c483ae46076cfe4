// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

func bucketsOf(nodes ...string) (set shard.Set) {
	for _, n := range nodes {
		set = set.With(shard.Bucket("node", n))
	}
	return set
}

// gated returns a Supply behind a gate, with a queue that plans nothing.
func gated(t *testing.T, cloud *slowCloud) (*Supply, *shards.Gate) {
	cloud.underWay, cloud.most = map[string]int{}, map[string]int{}
	gate, o := shards.NewGate(nil), options(cloud)
	o.Shards = gate
	s := New(o)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		s.create(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return s, gate
}

// ask is a plan that wants a port for one pod.
func ask(s *Supply, node string) pool.Ref {
	r, key := on(node, "s")
	known := s.Snapshot(r, &key, nil)
	_ = s.RecordPlan(r, Planned{Key: &key, Lacks: 1, Want: pool.Demand{Waiting: 1}, Batch: 1, Asked: known.Asked})
	return r
}

// A request begins only on an own node that stays. The node is left when a plan has recorded the
// ports, or 2 s after the answer; a failure has nothing to record.
func TestRequestsKeepTheirNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &slowCloud{call: time.Second}
		s, gate := gated(t, cloud)
		requests := func(want int) {
			t.Helper()
			if _, n, _ := cloud.counts(); n != want {
				t.Errorf("%d requests, want %d", n, want)
			}
		}
		busy := func(want bool) {
			t.Helper()
			if is := gate.Busy().Len() > 0; is != want {
				t.Errorf("work is under way: %v, want %v", is, want)
			}
		}
		r := ask(s, "n")
		pass(time.Minute)
		requests(0)
		busy(false)
		gate.Open(t.Context(), bucketsOf("n"), false)
		ask(s, "n")
		pass(time.Millisecond)
		busy(true)
		gate.Close(bucketsOf("n"))
		pass(time.Second)
		requests(1)
		busy(true)
		if !s.Unfinished(r) {
			t.Error("a pool with unrecorded ports is finished")
		}
		ask(s, "n") // the node is to be given away: the demand is dropped
		pass(500 * time.Millisecond)
		requests(1)
		s.Recorded(r, "port-1")
		busy(false)

		gate.Open(t.Context(), bucketsOf("n"), false)
		if known := s.Snapshot(r, nil, nil); known.Hold.IsZero() || known.Failure != nil {
			t.Errorf("hold %v, failure %v; want a plan to ask again a moment later, and no failure", known.Hold, known.Failure)
		}
		pass(2 * time.Second)
		ask(s, "n")
		pass(2900 * time.Millisecond)
		requests(2)
		busy(true)
		pass(200 * time.Millisecond) // nobody has recorded it
		busy(false)

		gate.Close(bucketsOf("n"))
		gate.Lose(bucketsOf("n"))
		if known := s.Snapshot(r, nil, nil); len(known.Unrecorded) > 0 || known.Asked > 0 {
			t.Errorf("known of a lost node: %v, asked %d", known.Unrecorded, known.Asked)
		}
		gate.Open(t.Context(), bucketsOf("n"), false)
		cloud.fail = func(string) error { return context.DeadlineExceeded }
		ask(s, "n")
		pass(1100 * time.Millisecond)
		requests(3)
		busy(false)
	})
}

// A process takes its share of the places, and of the room that is left for refills.
func TestShareOfLimits(t *testing.T) {
	gate := shards.NewGate(nil)
	o := options(&slowCloud{})
	o.Shards = gate
	s := New(o)
	_, key := on("n", "s")
	var open shard.Set
	for b := range shard.Buckets {
		switch open = open.With(b); b + 1 {
		case 1, shard.Buckets / 2, shard.Buckets:
		default:
			continue
		}
		gate.Open(t.Context(), open, false)
		want := max(1, 4*(b+1)/shard.Buckets)
		if got := s.places(&key, false); got != want {
			t.Errorf("%d of %d keys: %d requests at once on a subnet, want %d", b+1, shard.Buckets, got, want)
		}
	}
	for _, tc := range []struct {
		n     int
		share float64
		want  int
	}{{7, 1, 7}, {math.MaxInt, 1, math.MaxInt}, {7, 0.5, 3}, {1, 0.5, 0}, {-7, 0.5, -3}} {
		if got := part(tc.n, tc.share); got != tc.want {
			t.Errorf("%g of %d is %d, want %d", tc.share, tc.n, got, tc.want)
		}
	}
	cloud := &slowCloud{limit: 100, made: 79}
	c := newCapacity(options(cloud))
	if got := c.refill(t.Context(), &key, c.admit(&key, 10), 0, 0.5); got != 8 {
		t.Errorf("a refill by half of the keys takes %d of 16 spare ports, want 8", got)
	}
	var _ kube.Shards = gate
}

// Pods of another process wait for room: own pools give up free ports for them, once, and no refill takes
// the room that is freed.
func TestFreePortsServePodsElsewhere(t *testing.T) {
	gate, o := shards.NewGate(nil), options(&slowCloud{limit: 100, made: 95})
	o.Shards = gate
	s := New(o)
	gate.Open(t.Context(), bucketsOf("own"), false)
	mine, key := on("own", "s")
	other, otherKey := on("other", "s")
	_ = s.RecordPlan(mine, Planned{Key: &key, Free: 5})
	quota := sdn.Scope{ID: key.ProjectID}
	for range 2 { // each write of the status says it again
		s.WaitElsewhere(other, &otherKey, quota, 2)
	}
	known := s.Snapshot(mine, &key, nil)
	if known.Keep != 3 || known.Room.Scarce == nil {
		t.Errorf("the pool keeps %d of 5 free ports, room %+v; want 3, and scarce room", known.Keep, known.Room)
	}
	if n := s.waiting(quota); n != 2 {
		t.Errorf("%d pods are to find room before a refill, want 2", n)
	}
	s.WaitElsewhere(other, &otherKey, quota, 0)
	if n := s.waiting(quota); n != 0 || len(s.others) != 0 {
		t.Errorf("%d pods wait of %d pools, want none", n, len(s.others))
	}
	s.WaitElsewhere(other, &otherKey, quota, 1)
	gate.Open(t.Context(), bucketsOf("other"), false)
	if n := s.waiting(quota); n != 0 {
		t.Errorf("%d pods wait by what the last owner said, want none", n)
	}
}
