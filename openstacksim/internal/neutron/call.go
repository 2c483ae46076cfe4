// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"
	"net/url"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// call is one request in progress. The service's lock is held.
type call struct {
	*Service
	who     keystone.Caller
	request *http.Request // nil for calls by the service itself
	parsed  url.Values    // the parsed query
	undos   []func()
	laters  []later
	kept    []func()
	bulk    bool     // the request makes several resources
	orphan  *fault   // the parent of a resource, whose project a rule checks, does not exist
	taken   []func() // functions that take again the addresses that the call has taken
}

type later struct {
	after time.Duration
	do    func(*call)
}

// admin reports whether the caller has the rights of an administrator.
func (c *call) admin() bool { return c.who.Admin() }

// owns reports whether the caller may act for the project.
func (c *call) owns(project string) bool { return c.admin() || project == c.who.ProjectID }

// later runs f after the answer and after d, with the lock held. If the request is refused, f
// does not run.
func (c *call) later(d time.Duration, f func(*call)) { c.laters = append(c.laters, later{d, f}) }

// undo runs f if the request is refused. The last registered function runs first.
func (c *call) undo(f func()) { c.undos = append(c.undos, f) }

// stays runs f if the request is refused, after everything else is undone. It models changes that
// the real service makes before it refuses, and does not undo.
func (c *call) stays(f func()) { c.kept = append(c.kept, f) }

// rollback undoes the changes of the call so far.
func (c *call) rollback() {
	for i := len(c.undos) - 1; i >= 0; i-- {
		c.undos[i]()
	}
	for _, f := range c.kept {
		f()
	}
	c.undos, c.laters, c.kept = nil, nil, nil
}

// stamp returns the current time in Neutron's format.
func (c *call) stamp() string { return c.Now().UTC().Format("2006-01-02T15:04:05Z") }
