// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package nft writes package nodeport's table into the kernel, as Kuryr's own nftables tables: ip
// kuryr-services and ip6 kuryr-services. Traffic to a frontend gets another destination and is
// masqueraded. Other traffic is not touched, and a family without frontends has no table. For host
// ports on 127.0.0.1 it opens the loopback, and drops packets of other hosts to it.
//
// It sends netlink messages itself: the image has no nft, and the few messages are shorter than a
// library for all of them.
package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// Tables are those in the network namespace of the process. They are kept by one
// goroutine; the zero value is ready.
type Tables struct {
	// Opened is a file, which outlives the process, for the names of the devices that
	// have route_localnet from here. Empty: they are remembered by the process.
	Opened string

	devices []string
	built   [2]bool                                                        // since the process began, for each of families
	stale   [2][]translation                                               // of which the kernel still has connections
	end     func(ctx context.Context, f family, stale []translation) error // nil: as the kernel can
}

// Change is what Ensure has done.
type Change struct {
	Added, Removed int // frontends; one that leads elsewhere now is both
	Built          int // tables that were made anew as a whole
	// Failed are the families, IPv4 and IPv6, whose table is not as it should be.
	Failed [2]bool
	// Loopback is why host ports may not answer at 127.0.0.1, or why the loopback is
	// open although none do. It is tried again with each Ensure.
	Loopback error
	// Unforgotten is the reason why UDP connections of former frontends continue. Each Ensure tries
	// again; the tables are right meanwhile.
	Unforgotten error
}

// Ensure makes the kernel's tables equal to want. The first call replaces them. Later calls change
// elements, and replace tables that another program has deleted or changed. A family changes in one
// transaction, and does not depend on the other's success. The error concerns tables only.
func (t *Tables) Ensure(ctx context.Context, want nodeport.Table) (Change, error) {
	var all Change
	var errs []error
	if len(want.Family(false)) == 0 {
		all.Loopback = t.closeLoopback(nil) // the table, which goes, has kept it
	}
	for i, f := range families {
		c, err := t.ensure(ctx, i, want.Family(f.v6))
		if err != nil {
			all.Failed[i] = true
			errs = append(errs, fmt.Errorf("keeping table %s %s: %w", f.name, tableName, err))
		}
		all.Added, all.Removed, all.Built = all.Added+c.Added, all.Removed+c.Removed, all.Built+c.Built
		all.Unforgotten = errors.Join(all.Unforgotten, c.Unforgotten)
	}
	if len(want.Family(false)) > 0 && !all.Failed[0] {
		all.Loopback = t.openLoopback(want)
	}
	return all, errors.Join(errs...)
}

func (t *Tables) ensure(ctx context.Context, i int, want nodeport.Table) (Change, error) {
	f := families[i]
	there, err := f.exists()
	if err != nil {
		return Change{}, err
	}
	if !there && len(want) == 0 {
		var c Change
		t.forget(ctx, &c, i, nil) // what could not be ended when the table went
		return c, nil
	}
	intact, have := false, content(nil)
	if there {
		have, intact = f.read()
	}
	wanted := f.content(want)
	c, err := t.bring(i, intact, have, wanted)
	if err != nil {
		t.built[i] = false // the current content is unknown
		return Change{}, err
	}
	f.count(&c, have, wanted)
	t.forget(ctx, &c, i, f.translations(have, wanted))
	return c, nil
}

// maxStale bounds how many translations are remembered where they cannot be ended.
const maxStale = 10_000

func (t *Tables) forget(ctx context.Context, c *Change, i int, more []translation) {
	end := t.end
	if end == nil {
		end = func(ctx context.Context, f family, stale []translation) error { return f.forget(ctx, stale) }
	}
	stale := append(t.stale[i], more...)
	stale = stale[max(0, len(stale)-maxStale):]
	if c.Unforgotten = end(ctx, families[i], stale); c.Unforgotten == nil {
		stale = nil
	}
	t.stale[i] = stale
}

// bring turns the table into what is wanted, by its elements if the rest of it is
// intact.
func (t *Tables) bring(i int, intact bool, have, wanted content) (Change, error) {
	f := families[i]
	if !slices.ContainsFunc(wanted, func(set map[string]element) bool { return len(set) > 0 }) {
		t.built[i] = false
		return Change{}, commit(f.number, []message{{f.what("removing"), unix.NFT_MSG_DELTABLE, 0, text(unix.NFTA_TABLE_NAME, tableName)}})
	}
	if intact && t.built[i] {
		messages := f.change(have, wanted)
		if len(messages) == 0 || commit(f.number, messages) == nil {
			return Change{}, nil
		} // otherwise it differs from what was read
	}
	t.built[i] = true
	return Change{Built: 1}, commit(f.number, f.build(wanted))
}

func (f family) exists() (bool, error) {
	tables, err := dump(f.number, message{what: "listing tables", typ: unix.NFT_MSG_GETTABLE})
	found := false
	for _, body := range tables {
		attributes(body, func(typ int, data []byte) {
			found = found || typ == unix.NFTA_TABLE_NAME && string(bytes.TrimRight(data, "\x00")) == tableName
		})
	}
	return found, err
}

// read returns the elements of the table as it is, as far as it can be read, and
// whether it is as build makes it, elements apart.
func (f family) read() (have content, intact bool) {
	rules, err := dump(f.number, message{what: "reading its rules", typ: unix.NFT_MSG_GETRULE, body: text(unix.NFTA_RULE_TABLE, tableName)})
	var comments []string
	for _, body := range rules {
		note := "" // of another program's rule
		attributes(body, func(typ int, data []byte) {
			if typ == unix.NFTA_RULE_USERDATA {
				note = string(attr(typ, data))
			}
		})
		comments = append(comments, note)
	}
	have, failed := f.readElements()
	return have, err == nil && failed == nil && slices.Equal(comments, f.comments())
}

func (f family) readElements() (content, error) {
	var all content
	for _, s := range f.sets() {
		found, err := dump(f.number, message{what: "reading set " + s.name, typ: unix.NFT_MSG_GETSETELEM,
			body: join(text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName), text(unix.NFTA_SET_ELEM_LIST_SET, s.name))})
		if err != nil {
			return nil, err
		}
		elements := map[string]element{}
		for _, body := range found {
			attributes(body, func(typ int, list []byte) {
				if typ == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
					attributes(list, func(_ int, e []byte) { readElement(e, elements) })
				}
			})
		}
		all = append(all, elements)
	}
	return all, nil
}

func readElement(b []byte, into map[string]element) {
	var key, value string
	attributes(b, func(typ int, data []byte) {
		attributes(data, func(kind int, data []byte) {
			switch {
			case kind != unix.NFTA_DATA_VALUE:
			case typ == unix.NFTA_SET_ELEM_KEY:
				key = string(data)
			case typ == unix.NFTA_SET_ELEM_DATA:
				value = string(data)
			}
		})
	})
	into[key] = element{value: value}
}

// perMessage is how many elements one message has: an attribute takes 64 KiB, an
// element up to some 200 bytes.
const perMessage = 200

// change returns the messages that turn one content into another.
func (f family) change(have, want content) []message {
	var messages []message
	for i, s := range f.sets() {
		had := have.of(i)
		gone, added := differences(had, want[i]), differences(want[i], had)
		messages = append(messages, s.edit(f.what("removing elements of %s", s.name), unix.NFT_MSG_DELSETELEM, 0, gone, nil)...)
		messages = append(messages, s.edit(f.what("adding elements to %s", s.name), unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE|unix.NLM_F_EXCL, added, want[i])...)
	}
	return messages
}

// differences returns the keys of a that b has not, or not with that value, in order.
func differences(a, b map[string]element) []string {
	var keys []string
	for key, e := range a {
		if other, there := b[key]; !there || other.value != e.value {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (s set) edit(what string, typ, flags int, keys []string, with map[string]element) []message {
	var messages []message
	for part := range slices.Chunk(keys, perMessage) {
		var list [][]byte
		for _, key := range part {
			e := [][]byte{data(unix.NFTA_SET_ELEM_KEY, []byte(key))}
			if v := with[key]; v.value != "" {
				e = append(e, data(unix.NFTA_SET_ELEM_DATA, []byte(v.value)))
			}
			if v := with[key]; v.comment != "" {
				e = append(e, comment(unix.NFTA_SET_ELEM_USERDATA, v.comment))
			}
			list = append(list, nested(unix.NFTA_LIST_ELEM, e...))
		}
		messages = append(messages, message{what, typ, flags, join(
			text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName), text(unix.NFTA_SET_ELEM_LIST_SET, s.name),
			nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, list...),
		)})
	}
	return messages
}

// count counts the frontends that were changed.
func (f family) count(c *Change, have, want content) {
	for i := range frontends {
		had := have.of(i)
		c.Removed += len(differences(had, want[i]))
		c.Added += len(differences(want[i], had))
	}
}

// translations are those that were another way before.
func (f family) translations(have, want content) []translation {
	var all []translation
	for i := range frontends {
		had := have.of(i)
		all = append(all, f.stale(differences(had, want[i]), had, true)...)
		all = append(all, f.stale(differences(want[i], had), want[i], false)...)
	}
	return all
}

// Forwarding reports whether the node passes on packets of a family that are not
// its own, without which only its own processes get to Services by the tables.
func (*Tables) Forwarding(v6 bool) (bool, error) {
	f := families[slices.IndexFunc(families, func(f family) bool { return f.v6 == v6 })]
	content, err := os.ReadFile(f.forwarded)
	if err != nil {
		return false, fmt.Errorf("reading whether the node forwards packets: %w", err)
	}
	return !bytes.Equal(bytes.TrimSpace(content), []byte("0")), nil
}
