// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package orphan decides which things are gone for good from one of two lists
// that ought to agree: what the cloud has for this cluster, and what the
// cluster knows. It is pure; looking and deleting is left to the caller.
package orphan

import (
	"slices"
	"time"
)

// Collector remembers what has been seen to belong to nobody, and since when.
// It is to be told of every look. The zero value is ready; one goroutine at a
// time may use it.
type Collector struct {
	since map[string]time.Time
}

// Observe is told which IDs a look at the time now found to belong to nobody,
// and returns those that a look at least grace earlier found so too, and every
// look in between: what somebody claims only once starts anew. An ID is
// returned by every look until it is no longer found. The result is sorted.
func (c *Collector) Observe(nobodys []string, now time.Time, grace time.Duration) []string {
	since := make(map[string]time.Time, len(nobodys))
	var due []string
	for _, id := range nobodys {
		first, seen := c.since[id]
		if !seen {
			first = now
		}
		if _, twice := since[id]; !twice && seen && now.Sub(first) >= grace {
			due = append(due, id)
		}
		since[id] = first
	}
	c.since = since
	slices.Sort(due)
	return due
}
