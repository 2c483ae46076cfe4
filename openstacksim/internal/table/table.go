// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package table keeps the rows of one kind of resource. It answers the list calls of an OpenStack
// service: filters, order, pages, and selected fields. A row is a struct; its fields have their
// JSON names.
package table

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Table holds rows by ID. The caller serialises access: reading methods may run in parallel, but
// not with a writing one. After Put a row belongs to the table. Callers that change a row must
// not change its ID.
type Table[T any] struct {
	id   func(*T) string
	byID map[string]*T
	rows []*T // in the order of their IDs
}

// New returns an empty table. id returns the ID of a row.
func New[T any](id func(*T) string) *Table[T] {
	return &Table[T]{id: id, byID: map[string]*T{}}
}

// Get returns the row with an ID.
func (t *Table[T]) Get(id string) (*T, bool) {
	row, ok := t.byID[id]
	return row, ok
}

// Len returns the number of rows.
func (t *Table[T]) Len() int { return len(t.rows) }

// Put adds row, or replaces the row with the same ID.
func (t *Table[T]) Put(row *T) {
	id := t.id(row)
	i, there := t.search(id)
	if there {
		t.rows[i] = row
	} else {
		t.rows = slices.Insert(t.rows, i, row)
	}
	t.byID[id] = row
}

// Delete removes the row with an ID, if it exists.
func (t *Table[T]) Delete(id string) {
	if i, there := t.search(id); there {
		t.rows = slices.Delete(t.rows, i, i+1)
		delete(t.byID, id)
	}
}

func (t *Table[T]) search(id string) (int, bool) {
	return slices.BinarySearchFunc(t.rows, id, func(row *T, id string) int { return strings.Compare(t.id(row), id) })
}

// All iterates over the rows in the order of their IDs.
func (t *Table[T]) All() iter.Seq[*T] { return slices.Values(t.rows) }

// Query is the query of a list call.
type Query struct {
	// Filters: each named field must have one of its values, written as in a URL. Unknown fields
	// are ignored.
	Filters map[string][]string
	Sort    []Key  // then by ID
	Limit   int    // the most rows; 0 is all
	Marker  string // ID of the row before the page
	Reverse bool   // the page ends before Marker instead, in the same order
}

// Key is a field to sort by.
type Key struct {
	Field string
	Desc  bool
}

// MarkerError reports that no row has the marker's ID.
type MarkerError struct{ Marker string }

func (e *MarkerError) Error() string { return fmt.Sprintf("no row with the marker's ID %q", e.Marker) }

// FieldError reports that rows lack a field to sort by.
type FieldError struct{ Field string }

func (e *FieldError) Error() string { return fmt.Sprintf("no field %q to sort by", e.Field) }

// Select returns one page of the rows that pass the filters and keep, and whether more follow. A
// nil keep passes all rows. The error is a *MarkerError or a *FieldError.
func (t *Table[T]) Select(q Query, keep func(*T) bool) (rows []*T, more bool, err error) {
	order, err := ordered[T](q.Sort)
	if err != nil {
		return nil, false, err
	}
	marker, found := t.byID[q.Marker]
	if q.Marker != "" && !found {
		return nil, false, &MarkerError{q.Marker}
	}
	rows = t.matching(q, keep, order == nil)
	if order != nil {
		// Stable, so that the ID decides between equal rows.
		slices.SortStableFunc(rows, order)
	}
	if q.Reverse {
		slices.Reverse(rows)
	}
	if marker != nil {
		rows = rows[t.after(rows, marker, order, q.Reverse):]
	}
	if q.Limit > 0 && len(rows) > q.Limit {
		rows, more = rows[:q.Limit], true
	}
	if q.Reverse {
		slices.Reverse(rows)
	}
	return rows, more, nil
}

// matching returns the rows that pass, in the order of their IDs. If the query asks for that
// order, it skips the rows of earlier pages. It then also stops one row after this page.
func (t *Table[T]) matching(q Query, keep func(*T) bool, byID bool) []*T {
	from, enough := 0, 0
	if byID && !q.Reverse {
		enough = q.Limit
		if q.Marker != "" {
			from, _ = t.search(q.Marker)
		}
	}
	tests := filters[T](q.Filters)
	out := []*T{}
	for _, row := range t.rows[from:] {
		if !passes(row, tests) || keep != nil && !keep(row) {
			continue
		}
		out = append(out, row)
		if enough > 0 && len(out) > enough+1 { // the marker's own row may be among them
			break
		}
	}
	return out
}

func passes[T any](row *T, tests []func(*T) bool) bool {
	for _, test := range tests {
		if !test(row) {
			return false
		}
	}
	return true
}

// after returns where the rows after the marker begin. The filters may have removed the marker
// itself.
func (t *Table[T]) after(rows []*T, marker *T, order func(a, b *T) int, reverse bool) int {
	compare := func(a, b *T) int {
		c := 0
		if order != nil {
			c = order(a, b)
		}
		if c = cmp.Or(c, strings.Compare(t.id(a), t.id(b))); reverse {
			return -c
		}
		return c
	}
	i, found := slices.BinarySearchFunc(rows, marker, compare)
	if found {
		i++
	}
	return i
}

func ordered[T any](keys []Key) (func(a, b *T) int, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var each []func(a, b *T) int
	for _, k := range keys {
		f, ok := columnsOf[T]()[k.Field]
		if !ok {
			return nil, &FieldError{k.Field}
		}
		each = append(each, func(a, b *T) int {
			c := compareValues(f.of(a), f.of(b))
			if k.Desc {
				return -c
			}
			return c
		})
	}
	return func(a, b *T) int {
		for _, compare := range each {
			if c := compare(a, b); c != 0 {
				return c
			}
		}
		return 0
	}, nil
}
