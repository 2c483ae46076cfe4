// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"
	"net/url"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// call is one request at work; the service's lock is held.
type call struct {
	*Service
	who     keystone.Caller
	request *http.Request // nil if the service calls itself
	parsed  url.Values    // its query
	undos   []func()
	laters  []later
	kept    []func()
}

type later struct {
	after time.Duration
	do    func(*call)
}

// admin reports whether the caller may do what Neutron keeps for administrators.
func (c *call) admin() bool { return c.who.Admin() }

// owns reports whether what belongs to the project is the caller's.
func (c *call) owns(project string) bool { return c.admin() || project == c.who.ProjectID }

// later has f run once the answer is made and d has passed, with the lock taken
// again. If the request is refused, f does not run.
func (c *call) later(d time.Duration, f func(*call)) { c.laters = append(c.laters, later{d, f}) }

// undo has f run if the request is refused in the end; the last one first.
func (c *call) undo(f func()) { c.undos = append(c.undos, f) }

// stays has f run if the request is refused, once all else is undone: what the
// real service does before it refuses, and does not take back.
func (c *call) stays(f func()) { c.kept = append(c.kept, f) }

// rollback undoes what the call has done so far.
func (c *call) rollback() {
	for i := len(c.undos) - 1; i >= 0; i-- {
		c.undos[i]()
	}
	for _, f := range c.kept {
		f()
	}
	c.undos, c.laters, c.kept = nil, nil, nil
}

// stamp is the time as Neutron writes it.
func (c *call) stamp() string { return c.Now().UTC().Format("2006-01-02T15:04:05Z") }
