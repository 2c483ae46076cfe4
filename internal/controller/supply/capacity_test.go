// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestOverQuotaIsNotHot: hundreds of pools that lack ports send as few requests as a few pools.
// A port that another user of the cloud gives back brings one more at once.
func TestOverQuotaIsNotHot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &slowCloud{call: 50 * time.Millisecond, limit: 110}
		w := newCrowd(t, cloud)
		for i := range 200 {
			w.change(fmt.Sprint("n-", i), fmt.Sprint("s-", i%3), func(m *member) { m.waiting, m.min = 2, 5 })
		}
		pass(time.Minute)
		made, before, rooms := cloud.counts()
		if made != 110 {
			t.Fatalf("%d ports made, want all 110", made)
		}
		pass(time.Hour)
		_, requests, asked := cloud.counts()
		if n := requests - before; n > 8*120+20 { // as many as may be at once, each 30 s
			t.Errorf("%d requests for ports in an hour in which there was no room", n)
		}
		if n := asked - rooms; n > 3*120*2 {
			t.Errorf("asked %d times in an hour how much room there is", n)
		}
		cloud.change(func() { cloud.gone++ })
		r, _ := on("n-7", "s-1")
		w.s.Freed(r)
		pass(time.Second)
		made, after, _ := cloud.counts()
		if made != 111 || after > requests+8 {
			t.Errorf("after a port was given back: %d ports made with %d requests, want 111 and few", made, after-requests)
		}
		cloud.change(func() { cloud.limit = 1000 })
		pass(2 * time.Minute)
		if made, _, _ = cloud.counts(); made < 400 {
			t.Errorf("with room for all %d ports made, want 400 at least", made)
		}
	})
}

// TestRefillsLeaveRoomForPods: refills ask seldom for the room, and continue when it grows.
func TestRefillsLeaveRoomForPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &slowCloud{call: 50 * time.Millisecond, limit: 100}
		w := newCrowd(t, cloud)
		for i := range 20 {
			w.change(fmt.Sprint("n-", i), "s", func(m *member) { m.min = 10 })
		}
		pass(9 * time.Minute)
		made, _, rooms := cloud.counts()
		if made != 95 {
			t.Errorf("%d ports made to be kept, want 95 of 100", made)
		}
		if rooms > 6 {
			t.Errorf("asked %d times in nine minutes how much room there is", rooms)
		}
		w.change("other", "s", func(m *member) { m.waiting = 5 })
		pass(2 * time.Second)
		_, _, asked := cloud.counts()
		if got := w.of("other", "s").served; len(got) != 5 || asked != rooms {
			t.Errorf("%d of 5 pods served, asked %d times for room; want all with what was left", len(got), asked-rooms)
		}
		cloud.change(func() { cloud.limit = 1000 })
		pass(40 * time.Minute)
		if made, _, _ = cloud.counts(); made != 205 {
			t.Errorf("%d ports made when there was room again, want 205", made)
		}
	})
}

// TestRefillTakesWhatFits: a refill that fits only in part is made in part, and takes no more
// room than that.
func TestRefillTakesWhatFits(t *testing.T) {
	for _, tc := range []struct{ left, waiting, want int }{
		{100, 0, 10}, {15, 0, 10}, {12, 0, 7}, {12, 9, 3}, {6, 0, 1}, {5, 0, 0}, {0, 0, 0},
	} {
		cloud := &slowCloud{limit: 100, made: 100 - tc.left}
		c := newCapacity(options(cloud))
		_, key := on("n", "s")
		n := c.admit(&key, 10)
		if got := c.refill(t.Context(), &key, n, tc.waiting, 1); n != 10 || got != tc.want {
			t.Errorf("%d left, %d pods wait: %d of %d ports, want %d of 10", tc.left, tc.waiting, got, n, tc.want)
		}
		if got := c.rooms[sdn.Scope{}].taken; got != tc.want {
			t.Errorf("%d left, %d pods wait: room taken for %d ports, want %d", tc.left, tc.waiting, got, tc.want)
		}
	}
}

// TestRefusalIsAskedAbout: after a refusal the room is asked for, even if it was asked for a
// moment before, for a refill. Another user of the cloud has it now. It is not asked for again
// with each refusal.
func TestRefusalIsAskedAbout(t *testing.T) {
	cloud := &slowCloud{limit: 100, made: 50}
	c := newCapacity(options(cloud))
	_, key := on("n", "s")
	c.refill(t.Context(), &key, c.admit(&key, 10), 0, 1)
	cloud.change(func() { cloud.made = 100 })
	for range 3 {
		var full *sdn.QuotaError
		_, err := c.ended(t.Context(), &key, c.admit(&key, 1), 0, fmt.Errorf("creating 1 ports: %w", sdn.ErrQuota))
		if !errors.As(err, &full) || full.Text != "100 of 100 ports of the project are used" {
			t.Errorf("a refusal is reported as %q, want with how many ports of 100 are used", err)
		}
	}
	if _, _, rooms := cloud.counts(); rooms != 2 {
		t.Errorf("asked %d times how much room there is, want twice", rooms)
	}
}

// TestRoomThatIsNotShown: where the SDN does not report the room, a refusal counts. It counts
// for that kind of room, and until a port is given back or for a while.
func TestRoomThatIsNotShown(t *testing.T) {
	cloud := &slowCloud{hidden: true}
	_, key := on("n", "s")
	_, elsewhere := on("n", "other")
	_, owned := on("n", "s")
	owned.ProjectID = "p"
	for _, tc := range []struct {
		err   error
		scope sdn.Scope
		text  string
	}{
		{sdn.ErrAddresses, sdn.Scope{Subnet: true, ID: "s"}, "subnet s has no address left"},
		{sdn.ErrProjectQuota, sdn.Scope{ID: "p"}, "the quota of ports of project p is used up"},
	} {
		c := newCapacity(options(cloud))
		var full *sdn.QuotaError
		found, err := c.ended(t.Context(), &owned, c.admit(&owned, 2), 0, fmt.Errorf("creating 2 ports: %w", tc.err))
		if !errors.As(err, &full) || full.Scope != tc.scope || full.Text != tc.text {
			t.Errorf("%v is reported as %v, want %q of %+v", tc.err, err, tc.text, tc.scope)
			continue
		}
		if s := c.standing(&owned); s.Full == nil || s.Full.Scope != tc.scope || s.Scarce == nil {
			t.Errorf("%v: the pool stands at %+v, want it full and scarce of %+v", tc.err, s, tc.scope)
		}
		if s := c.standing(&elsewhere); s.Full != nil || s.Scarce != nil {
			t.Errorf("%v: a pool of another project and subnet stands at %+v, want room", tc.err, s)
		}
		if found == nil || *found != tc.scope {
			t.Errorf("%v: found %v full, want %+v", tc.err, found, tc.scope)
		}
		if again, _ := c.ended(t.Context(), &owned, 0, 0, tc.err); again != nil {
			t.Errorf("%v: refused once more, %+v is found full again", tc.err, *again)
		}
		if n := c.admit(&owned, 2); n != 0 {
			t.Errorf("%v: %d ports asked for at once again", tc.err, n)
		}
		c.freed(&owned)
		if n := c.admit(&owned, 2); n != 1 {
			t.Errorf("%v: %d ports asked for after one was given back, want 1", tc.err, n)
		}
	}
	c := newCapacity(options(cloud))
	_, err := c.ended(t.Context(), &key, c.admit(&key, 1), 0, fmt.Errorf("a trunk has no VLAN left: %w", sdn.ErrQuota))
	if s := c.standing(&key); errors.As(err, new(*sdn.QuotaError)) || s.Full != nil {
		t.Errorf("what is full is neither project nor subnet: %v, %+v; want no word of these", err, s)
	}
}

// TestRoomWithoutEnd: an unused IPv6 subnet has room for as many ports as a number can express,
// also when one more is given back.
func TestRoomWithoutEnd(t *testing.T) {
	o := options(nil)
	o.Capacity = reported{"s": {Limit: math.MaxInt}}
	c := newCapacity(o)
	_, key := on("n", "s")
	if err := c.learn(t.Context(), &key); err != nil {
		t.Fatal(err)
	}
	c.freed(&key)
	if got := c.rooms[sdn.Scope{Subnet: true, ID: "s"}].left; got != math.MaxInt {
		t.Errorf("%d addresses are left after one was given back, want %d", got, math.MaxInt)
	}
}

// TestGiveUp: idle pools of the project give up the ports that pods lack, the fullest first,
// and no more. They do so until there is room again.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(nil)
		o.Capacity = nil
		m := New(o)
		project := sdn.Scope{ID: "p"}
		key := func(project string) *v1.PoolKey { return &v1.PoolKey{ProjectID: project, SubnetIDs: []string{"s"}} }
		plan := func(name string, p Planned) { m.RecordPlan(pool.Ref{Pool: name}, p) }
		plan("idle-a", Planned{Key: key("p"), Free: 3})
		plan("idle-b", Planned{Key: key("p"), Free: 4})
		plan("other", Planned{Key: key("q"), Free: 9})
		_, _ = m.capacity.ended(t.Context(), key("p"), m.capacity.admit(key("p"), 1), 0, sdn.ErrProjectQuota)
		want := func(when string, want map[string]int) {
			t.Helper()
			got := map[string]int{}
			for _, name := range []string{"waits", "idle-a", "idle-b", "other"} {
				got[name] = m.Snapshot(pool.Ref{Pool: name}, key(map[bool]string{true: "q", false: "p"}[name == "other"]), nil).Keep
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: free ports to keep (-want +got):\n%s", when, diff)
			}
		}
		plan("waits", Planned{Key: key("p"), Lacks: 5, Free: 1})
		want("five pods wait", map[string]int{"waits": -1, "idle-a": 2, "idle-b": 0, "other": -1})
		plan("waits", Planned{Key: key("p"), Lacks: 5, Free: 1})
		want("the same pods wait", map[string]int{"waits": -1, "idle-a": 2, "idle-b": 0, "other": -1})
		plan("waits", Planned{Key: key("p"), Lacks: 6, Free: 1})
		want("another pod waits", map[string]int{"waits": -1, "idle-a": 1, "idle-b": 0, "other": -1})
		if got := m.waiting(project); got != 6 {
			t.Errorf("%d pods wait, want 6", got)
		}
		time.Sleep(scarceFor)
		want("there may be room", map[string]int{"waits": -1, "idle-a": -1, "idle-b": -1, "other": -1})
	})
}

// A port that is about to be deleted may not be taken over.
func TestLeavingPortsAreKnown(t *testing.T) {
	m := New(options(nil))
	m.Discard(pool.Ref{}, []string{"a", "b"})
	m.left("b")
	if ports, _ := m.Knows(); !ports["a"] || ports["b"] {
		t.Errorf("known are %v, want a alone", ports)
	}
}

// TestNoMoreThanThereIsRoomFor: a bulk request is for no more ports than the SDN has just
// reported room for: Neutron 21 keeps the addresses of a refused one. One port is requested in
// any case, and an old report limits nothing.
func TestNoMoreThanThereIsRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(nil)
		o.Capacity = reported{"s1": {Used: 4, Limit: 10}}
		c := newCapacity(o)
		_, key := on("n1", "s1")
		if err := c.learn(t.Context(), &key); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{6, 1} {
			if got := c.admit(&key, 8); got != want {
				t.Errorf("of 8 ports in a subnet with room for 6, %d are asked for, want %d", got, want)
			}
		}
		time.Sleep(askBeforeRefill)
		if got := c.admit(&key, 8); got != 8 {
			t.Errorf("a minute later %d of 8 ports are asked for, want all", got)
		}
	})
}

// What is known of subnets that come and go does not add up.
func TestSubnetsThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCapacity(options(&slowCloud{}))
		for i := range 1000 {
			key := &v1.PoolKey{SubnetIDs: []string{fmt.Sprint("subnet-", i)}}
			n := c.admit(key, 1)
			_, _ = c.ended(t.Context(), key, n, n, nil)
		}
		if len(c.rooms) > 10 {
			t.Errorf("%d scopes are known of 1000 subnets that came and went, want those in use", len(c.rooms))
		}
	})
}
