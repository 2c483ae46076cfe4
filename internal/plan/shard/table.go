// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"maps"
	"slices"
)

// Member is the Lease of a replica, as the API server has it.
type Member struct {
	UID     string // of the Lease. A process has one UID as long as it owns anything
	Name    string // the replica's identity
	Created int64  // when the Lease was created, in any unit; older members are before younger ones
	Version string // resourceVersion of the Lease; it changes with each renewal
	Leaving bool   // the replica gives all that it owns away
}

// Table says who owns the buckets. The zero value is a table that does not exist.
type Table struct {
	Owners map[string]Set `json:"owners"` // by UID of the member; sets of members never overlap
	Active int            `json:"active"` // how many members own buckets, the oldest ones; 0: all

	Version uint64 `json:"-"` // resourceVersion; 0: the table does not exist
	// Foreign is a table that says nothing: the Lease by which earlier versions elected a leader, or one
	// that a person has spoiled. Held means that such a leader may live.
	Foreign, Held bool `json:"-"`
}

// Owner returns the UID that owns a bucket; empty if none does.
func (t *Table) Owner(b int) string {
	for uid, set := range t.Owners {
		if set.Has(b) {
			return uid
		}
	}
	return ""
}

// give returns the table with buckets given to a member, or to nobody if uid is empty.
func (t *Table) give(buckets Set, uid string) Table {
	next := *t
	if buckets == (Set{}) {
		return next
	}
	next.Owners = map[string]Set{}
	for u, set := range t.Owners {
		if rest := set.Minus(buckets); rest.Len() > 0 {
			next.Owners[u] = rest
		}
	}
	if uid != "" {
		next.Owners[uid] = next.Owners[uid].Or(buckets)
	}
	return next
}

// place returns which buckets each member should own, by UID: by rendezvous hashing of the names, so that a
// member that joins or leaves moves little besides its own part, and at most ⌈Buckets/n⌉ each, so
// that no member has much more than its part. A process that starts again under its name gets the same.
func place(members []Member, active int) map[string]Set {
	list := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Leaving })
	slices.SortFunc(list, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.UID, b.UID))
	})
	if active > 0 && len(list) > active {
		list = list[:active]
	}
	seeds, sets := make([]uint64, len(list)), make([]Set, len(list))
	for i := range list {
		seeds[i] = hash(offset, list[i].Name)
	}
	out := make(map[string]Set, len(list))
	if len(list) == 0 {
		return out
	}
	most := (Buckets + len(list) - 1) / len(list)
	for b := range Buckets {
		best, weight := -1, uint64(0)
		for i, seed := range seeds {
			if w := mix(seed + uint64(b)*0x9e3779b97f4a7c15); sets[i].Len() < most && (best < 0 || w > weight) {
				best, weight = i, w
			}
		}
		sets[best] = sets[best].With(b)
	}
	for i := range list {
		out[list[i].UID] = sets[i]
	}
	return out
}

// same reports whether two tables say the same.
func same(a, b *Table) bool { return a.Active == b.Active && maps.Equal(a.Owners, b.Owners) }
