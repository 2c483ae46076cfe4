// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package shard plans which controller process, or replica, owns which keys. A key hashes to one of 128
// buckets. One object of the API server, the table, says who owns each bucket. Each replica has a Lease, and
// renews it.
//
// A View is what one replica knows. What happens is told to it by its methods, and Next returns what is
// to be done. The caller does that without waiting for it, and tells the View the results. It calls Next
// after each event, and at least ten times a second.
//
// Two replicas never begin work on a bucket at once:
//
//   - The table is written with its version. So each version of it has one owner for a bucket.
//   - A living owner gives a bucket away after work on it has ended (Close, Lose, Write).
//   - A bucket is taken from an owner only if that owner's Lease is gone, and was not renewed for as long as
//     Others. The owner itself begins no work later than Own after it has sent the last renewal that its watch has
//     shown. All clocks may be wrong by a tenth: 1.1 · Own < 0.9 · Others.
//
// Times are those of one clock of the replica's machine that goes on while the machine is suspended. No time of
// another machine is used.
package shard

import "time"

// Times of the protocol.
const (
	Period = 1500 * time.Millisecond // from one renewal to the next
	Try    = 1200 * time.Millisecond // how long a renewal may take, and any other request
	Own    = 4 * time.Second         // how long a replica works after it has sent its last renewal
	Others = 5 * time.Second         // after that a Lease that was not renewed is broken
	// Foreigners is how long a leader of an earlier version is waited for that renews no more.
	Foreigners = 30 * time.Second
	// Patience is how long a replica that leaves waits for its work to end.
	Patience = 75 * time.Second
)

// View is what one replica knows of the members and the table. Make it with New. It is not safe for concurrent
// use.
type View struct {
	active int    // how many members this replica is configured to let own buckets
	uid    string // of the own Lease; empty before Joined
	why    string // why the process must end; empty: it goes on

	members map[string]seen
	gone    map[string]time.Duration // members that are no more, and since when they did not renew
	table   Table                    // the newest that is known
	shown   uint64                   // the version of the table that the watch has shown
	changed time.Duration            // when it has shown that
	wrote   time.Duration            // when the last own write of the table was answered
	listed  bool                     // the watch has shown the own Lease
	placed  map[string]Set           // what each member should own; nil: to be found

	writing *Table // under way
	need    uint64 // the version that the watch must show before the next write: the last one was refused
	unsure  bool   // the last write had no answer, and may still be executed

	sent     time.Duration // when the last renewal was sent
	answered []renewal     // those that the watch has not shown
	renewing bool
	failed   bool          // the last renewal
	deadline time.Duration // until then work is begun
	healthy  time.Duration // since when each renewal has succeeded

	leaving, told, removing bool // the replica leaves; its Lease says so; it is being deleted
	left                    time.Duration

	// The state of the buckets of this replica. Each is in one set, or in none.
	opening, open, closing, losing, drained Set
	crashed                                 Set // those that their last owner has not given away
}

// renewal is one that has succeeded.
type renewal struct {
	version string // of the Lease
	sent    time.Duration
}

// seen is a member, and when it was last seen to change.
type seen struct {
	Member
	changed  time.Duration
	breaking bool
}

// Steps is what a replica is to do, each part at once and without waiting for the others. Zero values are
// nothing to do.
type Steps struct {
	Renew   bool     // the own Lease, within Try; then Renewed or NotRenewed
	Leaving bool     // the renewal says that the replica leaves
	Break   []Member // delete these Leases if they have the UID and the version; then Broke
	Open    Set      // wait until the caches show what earlier owners wrote; then Passed
	Close   Set      // begin no work on them
	Lose    Set      // no work on them is running, or another replica is the owner: forget them; then Lost
	Write   *Table   // if the table has its Version; 0: create it. Within Try; then Wrote or NotWritten
	Remove  bool     // delete the own Lease if it has the own UID; then Removed
	End     string   // why the process must end, at once; empty: it goes on
}

// New returns the View of a replica that has not joined. active is the configured number of members that own
// buckets, the oldest ones; 0 is all.
func New(active int) *View {
	return &View{active: active, members: map[string]seen{}, gone: map[string]time.Duration{}}
}

// SetActive changes the configured number of members that own buckets. It counts while this replica owns
// bucket 0.
func (v *View) SetActive(n int) { v.active, v.placed = n, nil }

// Joined says that the own Lease was created, by a request that was sent at a time. former is the UID of the
// Lease of that name which the replica has deleted, if there was one: its process is known to have ended.
func (v *View) Joined(uid, former string, sent time.Duration) {
	v.uid, v.sent, v.deadline, v.healthy, v.changed = uid, sent, sent+Own, sent, sent
	if former != "" {
		v.gone[former] = sent - Others
	}
}

// Renewed says that a renewal has succeeded, and the new version of the Lease.
//
// The deadline moves when the watch shows that version: a replica whose watch hangs would not see that its Lease or the
// table is gone.
func (v *View) Renewed(version string, now time.Duration, leaving bool) {
	if v.failed || now >= v.deadline {
		v.healthy = now
	}
	v.renewing, v.failed, v.told = false, false, v.told || leaving
	v.answered = append(v.answered, renewal{version, v.sent})
	v.extend()
}

// extend moves the deadline to that of the last renewal that the watch has shown.
func (v *View) extend() {
	for i, r := range v.answered {
		if r.version == v.members[v.uid].Version {
			v.deadline, v.answered = r.sent+Own, v.answered[i+1:]
			return
		}
	}
}

// NotRenewed says that a renewal has failed, or had no answer in time. gone means that the API server does
// not have the Lease, or has another one of that name.
func (v *View) NotRenewed(gone bool) {
	if v.renewing, v.failed = false, true; gone {
		v.why = "the Lease of this replica is gone: others thought it dead, or somebody has deleted it"
	}
}

// Saw says what the watch shows: all members, and the table. relisted means that changes since the last time may
// not have been shown one by one.
func (v *View) Saw(members []Member, table Table, relisted bool, now time.Duration) {
	last := v.members
	v.placed = nil
	v.members = make(map[string]seen, len(members))
	for _, m := range members {
		s, known := last[m.UID]
		if !known || s.Version != m.Version {
			s = seen{Member: m, changed: now}
		}
		v.members[m.UID] = s
	}
	for uid, s := range last {
		if relisted { // it may have been renewed since
			s.changed = now
		}
		v.went(uid, s.changed)
	}
	for uid := range table.Owners { // its Lease was gone before the watch has begun
		v.went(uid, now)
	}
	if _, there := v.members[v.uid]; there {
		v.listed = true
		v.extend()
	} else if v.listed {
		v.NotRenewed(true)
	}
	// What the watch shows may be older than an own write; it is not after it has shown a renewal sent later.
	if v.table.Version != 0 && table.Version == 0 && (v.shown != 0 || v.deadline-Own > v.wrote) {
		v.why = deleted
	}
	if table.Version != v.shown {
		v.shown, v.changed = table.Version, now
	}
	v.know(table)
}

// went notes that a member has not renewed since a time, if it is no member any more.
func (v *View) went(uid string, since time.Duration) {
	_, is := v.members[uid]
	if _, known := v.gone[uid]; !is && !known {
		v.gone[uid] = since
	}
}

// know takes a table over, if it is newer than the one known.
func (v *View) know(table Table) {
	if table.Version <= v.table.Version {
		return
	}
	if v.table.Version != 0 && !v.table.Foreign && !table.Foreign && table.Creator != v.table.Creator {
		v.why = deleted // and the watch has shown the next one only
	}
	news := table.Owners[v.uid].Minus(v.table.Owners[v.uid])
	for uid, set := range v.table.Owners {
		if _, gone := v.gone[uid]; gone {
			v.crashed = v.crashed.Or(news.And(set))
		}
	}
	if v.table.Version == 0 || v.table.Foreign { // nobody knows what became of the last owners
		v.crashed = v.crashed.Or(news)
	}
	v.table, v.unsure, v.placed = table, false, nil // with its old version the last own write is refused
	v.crashed = v.crashed.And(table.Owners[v.uid])
}

// Broke says that the Lease of a member was deleted; or that it was not, as it was renewed, or as there was no answer.
func (v *View) Broke(uid string, deleted bool, now time.Duration) {
	s, is := v.members[uid]
	if !is {
		return
	}
	if s.breaking = false; !deleted {
		s.changed = now
	}
	if v.members[uid] = s; deleted {
		v.placed = nil
		delete(v.members, uid)
		v.went(uid, s.changed)
	}
}

// Passed says that the caches show what earlier owners of buckets wrote. It returns the buckets on which
// work may begin now, and those of them that their last owner has not given away: requests of it may still
// be executed.
func (v *View) Passed(buckets Set) (begin, crashed Set) {
	begin = buckets.And(v.opening)
	v.opening, v.open = v.opening.Minus(begin), v.open.Or(begin)
	crashed = v.crashed.And(begin)
	v.crashed = v.crashed.Minus(begin)
	return begin, crashed
}

// Lost says that buckets were forgotten.
func (v *View) Lost(buckets Set) {
	lost := buckets.And(v.losing)
	v.losing, v.drained = v.losing.Minus(lost), v.drained.Or(lost)
}

// Wrote says that the table was written, and its new version.
func (v *View) Wrote(version uint64, now time.Duration) {
	t := *v.writing
	t.Version = version
	v.writing, v.unsure, v.wrote = nil, false, now
	v.know(t)
}

// NotWritten says that the table was not written. refused means that it had another version; otherwise there
// was no answer, or another error.
func (v *View) NotWritten(refused bool) {
	if base := v.writing.Version; refused {
		v.need = base + 1
	} else {
		v.unsure = v.table.Version == base
	}
	v.writing = nil
}

// Leave says that the process is to end after it has given all away.
func (v *View) Leave(now time.Duration) {
	if !v.leaving {
		v.leaving, v.left, v.placed = true, now, nil
	}
}

// Removed says that the own Lease was deleted, or not.
func (v *View) Removed(deleted bool) {
	if v.removing = false; deleted {
		v.why = left
	}
}

const (
	left    = "it has given all away"
	deleted = "somebody has deleted the table of the replicas"
)

// Left reports whether the replica has given all away.
func (v *View) Left() bool { return v.why == left }

// Deadline returns until when work is begun.
func (v *View) Deadline() time.Duration { return v.deadline }

// Holding reports whether this replica works on all buckets.
func (v *View) Holding() bool { return v.open == All() }

// Owners returns the number of members that own buckets.
func (v *View) Owners() int { return len(v.table.Owners) }

// UID returns the UID of the own Lease; empty before Joined.
func (v *View) UID() string { return v.uid }

// NameOf returns the name of a member; empty if there is none with the UID.
func (v *View) NameOf(uid string) string { return v.members[uid].Name }

// Leader returns the name of the owner of bucket 0; empty if it is not known.
func (v *View) Leader() string { return v.NameOf(v.table.Owner(0)) }

// Next returns what is to be done now. busy are the buckets with running work. The View expects that it is done:
// no step is returned twice before its result was told.
func (v *View) Next(busy Set, now time.Duration) (s Steps) {
	if v.why == "" && v.leaving && now-v.left >= Patience {
		v.why = "its work has not ended in time"
	}
	if v.why != "" || v.uid == "" {
		return Steps{End: v.why}
	}
	v.renew(&s, now)
	want := v.places()
	v.move(&s, want[v.uid], busy, now)
	if now >= v.deadline {
		return s
	}
	v.accuse(&s, now)
	if v.writing != nil || !v.listed || v.shown < v.need {
		return s
	}
	next, due := v.next(want, now)
	if due {
		v.writing, s.Write = next, next
	}
	rest := v.opening.Or(v.open).Or(v.closing).Or(v.losing).Or(v.table.Owners[v.uid])
	if v.leaving && v.told && !due && !v.removing && rest == (Set{}) {
		s.Remove, v.removing = true, true
	}
	return s
}

// accuse breaks the Leases that were not renewed. It does not while the API server may be away: nobody can
// renew then.
func (v *View) accuse(s *Steps, now time.Duration) {
	if v.renewing || v.failed {
		return
	}
	for uid, m := range v.members {
		if uid != v.uid && !m.breaking && now-max(m.changed, v.healthy) >= Others {
			m.breaking = true
			v.members[uid] = m
			s.Break = append(s.Break, m.Member)
		}
	}
}

// renew plans the next renewal.
func (v *View) renew(s *Steps, now time.Duration) {
	after := Period
	if v.failed || v.leaving && !v.told {
		after = Period / 5
	}
	if !v.renewing && now-v.sent >= after {
		s.Renew, s.Leaving = true, v.leaving
		v.renewing, v.sent = true, now
	}
}

// places returns which buckets each member should own.
func (v *View) places() map[string]Set {
	if v.placed != nil {
		return v.placed
	}
	list := make([]Member, 0, len(v.members))
	for uid, m := range v.members {
		m.Leaving = m.Leaving || uid == v.uid && v.leaving
		list = append(list, m.Member)
	}
	active := v.table.Active
	if v.table.Version == 0 || v.table.Foreign {
		active = v.active
	}
	v.placed = place(list, active)
	return v.placed
}

// move plans what happens to the own buckets. want are those that this replica should own.
func (v *View) move(s *Steps, want, busy Set, now time.Duration) {
	mine := v.table.Owners[v.uid]
	s.Lose = v.open.Or(v.closing).Minus(mine) // another replica is the owner: nothing is waited for
	s.Close = s.Lose
	v.open, v.closing = v.open.And(mine), v.closing.And(mine)
	v.opening, v.drained = v.opening.And(mine), v.drained.And(mine)
	if now < v.deadline && v.listed && (!v.leaving || v.told) {
		closing := v.open.Minus(want)
		v.open, v.closing, s.Close = v.open.Minus(closing), v.closing.Or(closing), s.Close.Or(closing)
		v.drained, v.opening = v.drained.Or(v.opening.Minus(want)), v.opening.And(want)
		if v.writing == nil && !v.unsure { // no write that gives them may be executed yet
			v.drained = v.drained.Minus(want)
		}
		idle := mine.Minus(v.opening).Minus(v.open).Minus(v.closing).Minus(v.losing).Minus(v.drained)
		s.Open = idle.And(want)
		v.opening, v.drained = v.opening.Or(s.Open), v.drained.Or(idle.Minus(want))
	}
	ended := v.closing.Minus(busy)
	v.closing = v.closing.Minus(ended)
	s.Lose = s.Lose.Or(ended)
	v.losing = v.losing.Or(s.Lose)
}
