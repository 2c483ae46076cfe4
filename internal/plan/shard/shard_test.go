// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// at is a time of the tests: machines have been up for a while.
const at = time.Hour

// joined returns the View of replica "a", which shares the table with "b", and has all its own buckets open.
func joined(t *testing.T, active int, names ...string) (*View, []Member) {
	t.Helper()
	var members []Member
	for i, name := range names {
		members = append(members, Member{UID: name, Name: name, Created: int64(i), Version: "1"})
	}
	v := New(active)
	v.Joined("a", "", at)
	v.Saw(members, Table{Version: 1, Active: active, Owners: place(members, active)}, true, at)
	s := v.Next(Set{}, at)
	if begin, _ := v.Passed(s.Open); begin != v.table.Owners["a"] {
		t.Fatalf("began work on %v", begin)
	}
	return v, members
}

// A bucket that is to be given is not worked on again as long as a write that gives it may be executed.
func TestWriteWithoutAnAnswer(t *testing.T) {
	v, members := joined(t, 0, "a", "b")
	third := Member{UID: "c", Name: "c", Created: 3, Version: "1"}
	v.Saw(append(members, third), v.table, false, at)
	s := v.Next(Set{}, at)
	giving := s.Close
	if giving == (Set{}) || s.Lose != giving || s.Write != nil {
		t.Fatalf("for a third replica: %+v", s)
	}
	v.Lost(giving)
	s = v.Next(Set{}, at)
	if s.Write == nil || s.Write.Owners["c"] != giving {
		t.Fatalf("gives %+v", s.Write)
	}
	first := *s.Write
	v.Saw(members, v.table, false, at) // the third is gone
	v.NotWritten(false)
	if s = v.Next(Set{}, at); s.Open != (Set{}) || s.Write == nil || s.Write.Version != first.Version {
		t.Fatalf("after a write without an answer: %+v", s)
	}
	v.Wrote(2, at)
	if s = v.Next(Set{}, at); s.Open != giving {
		t.Errorf("opens %v, want %v", s.Open, giving)
	}
}

// Without a table nobody knows what others own: a new one waits until they have noticed.
func TestTableThatIsGone(t *testing.T) {
	v := New(0)
	v.Joined("a", "", at)
	a, b := Member{UID: "a", Name: "a", Version: "1"}, Member{UID: "b", Name: "b", Version: "1"}
	after := func(v *View, members ...Member) time.Duration {
		for now := at; now < at+Patience; now += time.Second {
			v.sent, v.deadline = now, now+Own
			for i := range members {
				members[i].Version = fmt.Sprint(now)
			}
			v.Renewed(fmt.Sprint(now), now, false)
			v.Saw(members, Table{}, false, now)
			if s := v.Next(Set{}, now); s.Write != nil {
				if len(s.Write.Owners) != len(members) {
					t.Errorf("wrote %+v", s.Write)
				}
				return now - at
			}
		}
		return Patience
	}
	if took := after(v, a, b); took != Others {
		t.Errorf("wrote a table after %s, want %s", took, Others)
	}
	v = New(0)
	v.Joined("a", "", at)
	if took := after(v, a); took != Others {
		t.Errorf("the only replica wrote a table after %s, want %s", took, Others)
	}
	v.Wrote(1, at)
	s := v.Next(Set{}, at+Others)
	if begin, crashed := v.Passed(s.Open); begin != All() || crashed != All() { // nobody knows the last owners
		t.Errorf("gained %v, of them crashed %v", begin, crashed)
	}
}

// A replica whose watch hangs knows the table that it has made by the answer only. It ends when that is gone, or another
// is in its place; not by what the watch shows of the time before.
func TestTableThatTheWatchHasNotShown(t *testing.T) {
	for name, then := range map[string]Table{
		"is gone":    {},
		"is another": {Version: 81, Creator: "b", Owners: map[string]Set{"a": All()}},
	} {
		v, a := New(0), Member{UID: "a", Name: "a", Version: "1"}
		renewed := func(now time.Duration, table Table) string {
			v.sent, a.Version = now, now.String()
			v.Renewed(a.Version, now, false)
			v.Saw([]Member{a}, table, false, now)
			s := v.Next(Set{}, now)
			if s.Write != nil {
				v.Wrote(56, now)
			}
			return s.End
		}
		v.Joined("a", "", at)
		now := at
		for ; v.table.Version == 0 && now < at+Patience; now += time.Second {
			renewed(now, Table{})
		}
		v.Saw([]Member{a}, Table{}, false, now)
		if s := v.Next(Set{}, now); s.End != "" || v.table.Owners["a"] != All() {
			t.Errorf("after it has made a table: %+v, and %+v", v.table, s)
		}
		if end := renewed(now+time.Second, then); end != deleted {
			t.Errorf("a table that the watch has not shown %s: the replica ends for %q", name, end)
		}
	}
}

// Work that runs keeps a bucket; nothing new begins meanwhile.
func TestRunningWorkKeepsABucket(t *testing.T) {
	v, members := joined(t, 0, "a", "b")
	v.Saw(append(members, Member{UID: "c", Name: "c", Created: 3}), v.table, false, at)
	busy := All()
	s := v.Next(busy, at)
	if s.Close == (Set{}) || s.Lose != (Set{}) {
		t.Fatalf("with work: %+v", s)
	}
	closing := s.Close
	if s = v.Next(busy.Minus(closing), at); s.Lose != closing || s.Close != (Set{}) {
		t.Errorf("when it has ended: %+v, want to lose %v", s, closing)
	}
}

// Two replicas of three share what the third owned when it crashes; they know that it has not given that.
func TestCrash(t *testing.T) {
	v, members := joined(t, 0, "a", "b", "c")
	now := at
	for range 4 {
		now += Period
		v.Next(Set{}, now)
		v.Renewed(fmt.Sprint(now), now, false)
		members[0].Version, members[1].Version = fmt.Sprint(now), fmt.Sprint(now)
		v.Saw(members, v.table, false, now)
	}
	s := v.Next(Set{}, now)
	if len(s.Break) != 1 || s.Break[0].UID != "c" || s.Break[0].Version != "1" {
		t.Fatalf("after %s: %+v", now-at, s)
	}
	v.Broke("c", true, now)
	s = v.Next(Set{}, now)
	lost := v.table.Owners["c"]
	if s.Write == nil || s.Write.Owners["a"].Or(s.Write.Owners["b"]) != All() {
		t.Fatalf("writes %+v", s.Write)
	}
	v.Wrote(2, at)
	s = v.Next(Set{}, now)
	if begin, crashed := v.Passed(s.Open); begin == (Set{}) || crashed != begin || begin.Minus(lost) != (Set{}) {
		t.Errorf("gained %v, of them crashed %v", begin, crashed)
	}
}

// Placement moves little, and gives no replica much more than its part.
func TestPlacement(t *testing.T) {
	most, moved := 0, 0
	for i := range 200 {
		var three []Member
		for j := range 3 {
			three = append(three, Member{UID: fmt.Sprint(j), Name: fmt.Sprintf("kuryr-controller-%x-%d", i*7919, j), Created: int64(j)})
		}
		two, all := place(three[:2], 0), place([]Member{three[2], three[0], three[1]}, 0)
		var sum Set
		for uid, set := range all {
			if sum.And(set) != (Set{}) {
				t.Fatal("two members should own a bucket")
			}
			sum, most = sum.Or(set), max(most, set.Len())
			moved += two[uid].Minus(set).Len()
		}
		if sum != All() {
			t.Fatalf("nobody should own %v", All().Minus(sum))
		}
		if one := place(three, 1); one["0"] != All() {
			t.Fatalf("with one active replica the oldest should own all: %v", one)
		}
	}
	if most > 43 || moved > 200*48 {
		t.Errorf("the most is %d buckets, a third replica moves %d of 128 on average", most, moved/200)
	}
	t.Logf("the most is %d buckets, a third replica moves %d of 128 on average", most, moved/200)
}

// Processes of two versions share a table: a bucket never changes.
func TestBucketsNeverChange(t *testing.T) {
	for key, want := range map[[2]string]int{{"node", "worker-1"}: 102, {"node", "worker-2"}: 24, {"namespace", "default"}: 12, {"task", "networks"}: 77} {
		if got := Bucket(key[0], key[1]); got != want {
			t.Errorf("%v is in bucket %d, want %d", key, got, want)
		}
	}
	var count [Buckets]int
	for i := range 10000 {
		count[Bucket("node", fmt.Sprintf("worker-%d.example.org", i))]++
	}
	for b, n := range count {
		if n < 40 || n > 130 {
			t.Errorf("bucket %d has %d of 10000 nodes", b, n)
		}
	}
}

func FuzzTable(f *testing.F) {
	text, err := json.Marshal(Table{Owners: map[string]Set{"a": All().Minus(Set{}.With(5))}, Active: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"owners":{"a":"ff"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var first, second Table
		if json.Unmarshal(text, &first) != nil {
			return
		}
		again, err := json.Marshal(first)
		if err == nil {
			err = json.Unmarshal(again, &second)
		}
		if err != nil || !same(&first, &second) {
			t.Errorf("%s became %s: %v", text, again, err)
		}
	})
}
