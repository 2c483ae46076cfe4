// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package orphan compares two lists that should agree, the cloud's resources of this cluster and
// the cluster's objects, and decides which resources have no owner for good. It is pure: the caller
// reads and deletes.
package orphan

import (
	"slices"
	"time"
)

// Collector remembers resources without an owner, and since when. Every look must be reported to
// it. The zero value is ready. It is for one goroutine at a time.
type Collector struct {
	since map[string]time.Time
}

// Observe takes the IDs without an owner in a look at the time now. It returns those that a look at
// least grace earlier and every look in between found so, too: an ID that has an owner once starts
// again. Each look returns an ID until it is no longer found. The result is sorted.
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
