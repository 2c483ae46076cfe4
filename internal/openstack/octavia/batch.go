// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// memberChange is what has to be done to the members of a pool.
type memberChange struct {
	stay    []sdn.Member // with the names that they are to have
	fresh   []sdn.Member
	renamed []sdn.Member // those of stay that have another name, with IDs
	gone    []sdn.Member // with IDs
}

func changeOf(now []wireMember, add, remove []sdn.Member) memberChange {
	c := memberChange{fresh: slices.Clone(add)}
	for _, w := range now {
		m := memberOf(w)
		i := slices.IndexFunc(add, sameMember(m))
		switch {
		case i >= 0: // its subnet cannot be changed
			c.fresh = slices.DeleteFunc(c.fresh, sameMember(m))
			if m.Name != add[i].Name {
				m.Name = add[i].Name
				c.renamed = append(c.renamed, m)
			}
		case slices.ContainsFunc(remove, sameMember(m)):
			c.gone = append(c.gone, m)
			continue
		}
		c.stay = append(c.stay, m)
	}
	return c
}

func sameMember(a sdn.Member) func(sdn.Member) bool {
	return func(b sdn.Member) bool { return a.IP == b.IP && a.Port == b.Port }
}

// ways is how the members of a pool can be changed.
type ways struct {
	most   int  // members that one request may have the provider work at
	all    bool // it works at those that stay and go, too, as OVN's driver does
	single bool // there are no requests for several
}

// maxSingles members are changed one by one in one call.
const maxSingles = 20

// batch is what one call does of a change: it tells the pool all its members, or
// changes some of them one by one.
type batch struct {
	put    []sdn.Member // nil: one by one
	worked int          // at how many members the provider works for that
	single []single
	more   bool // something is left to do
}

// single is the change of one member.
type single struct {
	how    singly
	member sdn.Member
}

type singly int

const (
	added singly = iota
	renamed
	removed
)

// next plans the next call. Whatever the change, it never leaves the pool with fewer
// members than it has or is to have, whichever is less: of those that go as many may as
// others come in their place, and as there are too many. One by one is quicker for
// little of a pool, and all that there is for one that is too large.
func (c memberChange) next(w ways) batch {
	there, room := len(c.stay)+len(c.gone), w.most
	if w.all {
		room = max(0, w.most-there)
	}
	add := min(len(c.fresh), room)
	remove := min(len(c.gone), add+max(0, len(c.gone)-len(c.fresh)))
	worked := add
	if w.all {
		worked += there
	}
	slow := worked > w.most || singleCost*(add+remove+len(c.renamed)) < worked
	if w.single || w.all && slow && c.canBeSingle() {
		return c.oneByOne()
	}
	put := make([]sdn.Member, 0, len(c.stay)+add+len(c.gone)-remove)
	put = append(append(append(put, c.stay...), c.fresh[:add]...), c.gone[remove:]...)
	return batch{put: put, worked: worked, more: add < len(c.fresh) || remove < len(c.gone)}
}

// canBeSingle reports whether OVN's driver takes the renaming of the members: it
// stumbles over one that names no subnet.
func (c memberChange) canBeSingle() bool {
	return !slices.ContainsFunc(c.renamed, func(m sdn.Member) bool { return m.SubnetID == "" })
}

// oneByOne adds and removes in turns: those that go are most likely dead already.
func (c memberChange) oneByOne() (b batch) {
	for i := range max(len(c.fresh), len(c.gone)) {
		if i < len(c.fresh) {
			b.single = append(b.single, single{added, c.fresh[i]})
		}
		if i < len(c.gone) {
			b.single = append(b.single, single{removed, c.gone[i]})
		}
	}
	for _, m := range c.renamed {
		b.single = append(b.single, single{renamed, m})
	}
	if b.more = len(b.single) > maxSingles; b.more {
		b.single = b.single[:maxSingles]
	}
	return b
}

func (c memberChange) isNothing() bool { return len(c.fresh)+len(c.renamed)+len(c.gone) == 0 }
