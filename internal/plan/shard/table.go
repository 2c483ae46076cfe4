// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"
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
	// Creator is the UID of the member that made it. One makes one table in its life: a table of another
	// creator is another table.
	Creator string `json:"creator,omitempty"`

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

// next returns the table that this replica should write, and whether it differs from the one that is.
func (v *View) next(want map[string]Set, now time.Duration) (*Table, bool) {
	next := v.table
	quiet := now - max(v.changed, v.healthy)
	switch {
	case next.Held && quiet < Foreigners:
		return nil, false
	case next.Foreign:
		next.Foreign, next.Held, next.Active, next.Creator = false, false, v.active, v.uid
	case next.Version == 0 && quiet < Others: // somebody may have deleted it: all owners end
		return nil, false
	case next.Version == 0:
		next.Active, next.Creator = v.active, v.uid
	}
	given := All()
	for uid, set := range next.Owners {
		since, gone := v.gone[uid]
		if uid == v.uid {
			set = set.Minus(v.drained)
		} else if _, is := v.members[uid]; !is && gone && now-since >= Others {
			continue // its owner has not worked on it since it could renew no more
		}
		given = given.Minus(set)
	}
	next = next.give(given, "")
	for uid, set := range want {
		next = next.give(given.And(set), uid)
	}
	if next.Owners[v.uid].Has(0) {
		next.Active = v.active
	}
	return &next, v.unsure || !same(&next, &v.table)
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

// Buckets is the number of buckets that all keys are divided into. It never changes: processes of two
// versions share a table.
const Buckets = 128

// Set is a set of buckets.
type Set [Buckets / 64]uint64

// All returns the set of all buckets.
func All() Set { return Set{^uint64(0), ^uint64(0)} }

// Has reports whether a bucket is in the set.
func (s Set) Has(b int) bool { return s[b/64]>>(b%64)&1 == 1 }

// Len returns the number of buckets in the set.
func (s Set) Len() int { return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) }

// And returns the buckets that both sets have.
func (s Set) And(t Set) Set { return Set{s[0] & t[0], s[1] & t[1]} }

// Or returns the buckets that one of the sets has.
func (s Set) Or(t Set) Set { return Set{s[0] | t[0], s[1] | t[1]} }

// Minus returns the buckets that t does not have.
func (s Set) Minus(t Set) Set { return Set{s[0] &^ t[0], s[1] &^ t[1]} }

// With returns the set with a bucket.
func (s Set) With(b int) Set {
	s[b/64] |= 1 << (b % 64)
	return s
}

// MarshalText implements encoding.TextMarshaler: 32 hexadecimal digits, the highest bucket first.
func (s Set) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x%016x", s[1], s[0]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Set) UnmarshalText(text []byte) error {
	var raw [Buckets / 8]byte
	if n, err := hex.Decode(raw[:], text[:min(len(text), 2*len(raw)+1)]); err != nil || n != len(raw) || len(text) != 2*len(raw) {
		return fmt.Errorf("%q is no set of %d buckets", text, Buckets)
	}
	s[1], s[0] = binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	return nil
}

// Bucket returns the bucket of a key. As Buckets, it never changes.
func Bucket(kind, name string) int {
	return int(mix(hash(hash(hash(offset, kind), "/"), name)) % Buckets)
}

const offset = 14695981039346656037

// hash continues an FNV-1a hash with a text.
func hash(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// mix spreads the last characters of a hashed text over all bits, as names differ in their ends.
func mix(h uint64) uint64 {
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return h ^ h>>32
}
