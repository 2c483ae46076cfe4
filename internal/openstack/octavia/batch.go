// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// memberChange is what has to be done to the members of a pool.
type memberChange struct {
	stay    []sdn.Member // with the names that they should have
	fresh   []sdn.Member
	renamed []sdn.Member // those of stay that get another name, with IDs
	again   []sdn.Member // those of stay that are sent again: the provider may not know them
	gone    []sdn.Member // to be removed, with IDs
}

func changeOf(now []wireMember, add, remove []sdn.Member) memberChange {
	c := memberChange{fresh: slices.Clone(add)}
	for _, w := range now {
		m := memberOf(w)
		i := slices.IndexFunc(add, sameMember(m))
		switch {
		case i >= 0: // its subnet cannot be changed
			c.fresh = slices.DeleteFunc(c.fresh, sameMember(m))
			switch {
			case m.Provisioning != "" && m.Provisioning != sdn.ProvisioningActive:
				m.Name = add[i].Name
				c.again = append(c.again, m)
			case m.Name != add[i].Name:
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

// ways says how the members of a pool can be changed.
type ways struct {
	most   int  // members that one request may make the provider work at
	all    bool // it also works at those that stay and those that are removed, as OVN's driver does
	single bool // the API has no requests for several members
}

// singleCost is how many members of a batch take as long as a request for a single member: 1.1
// s of OVN's driver.
const singleCost = 3

// maxSingles is how many members one call changes one by one.
const maxSingles = 20

// batch is what one call does of a change: it sends the pool all its members, or changes some
// of them one by one.
type batch struct {
	put    []sdn.Member // nil: one by one
	worked int          // how many members the provider works at for that
	single []single
	more   bool // some of the change is left to do
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

// next plans the next call. The pool never has fewer members than it has now or should have,
// whichever is less. So it removes no more members than are added in their place, plus those
// that are too many.
//
// Changes one by one are quicker for a small part of a pool, and the only way for a pool that
// is too large for one request.
//
// OVN's driver is never sent an empty pool. Where OVN has lost all members, the driver finds
// nothing to do, and the load balancer stays PENDING_UPDATE for ever (3.0.0).
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
	if last := w.all && len(c.stay)+add == 0 && remove == len(c.gone); last && remove == 1 {
		return c.oneByOne()
	} else if last && remove > 1 {
		remove--
	}
	slow := worked > w.most || singleCost*(add+remove+len(c.renamed)) < worked
	if w.single || w.all && slow && c.canBeSingle() {
		return c.oneByOne()
	}
	put := make([]sdn.Member, 0, len(c.stay)+add+len(c.gone)-remove)
	put = append(append(append(put, c.stay...), c.fresh[:add]...), c.gone[remove:]...)
	return batch{put: put, worked: worked, more: add < len(c.fresh) || remove < len(c.gone)}
}

// canBeSingle reports whether OVN's driver accepts the renaming of the members one by one: it
// fails for a member without a subnet. Members that the provider may not know are sent with all
// others.
func (c memberChange) canBeSingle() bool {
	return len(c.again) == 0 && !slices.ContainsFunc(c.renamed, func(m sdn.Member) bool { return m.SubnetID == "" })
}

// oneByOne adds and removes in turns: the removed members most likely do not answer any more.
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

func (c memberChange) isNothing() bool {
	return len(c.fresh)+len(c.renamed)+len(c.again)+len(c.gone) == 0
}
