// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import "slices"

// right is a right that depends on the roles of a token: octavia 11.0.0, policies/base.py. The
// rules from before Wallaby still apply in addition to the new ones, because oslo.policy's
// enforce_new_defaults is off. So a plain admin has admin rights here, too, and
// load-balancer_member does not require member.
type right int

const (
	mayRead right = iota
	mayReadAll
	mayWrite
	mayReadQuota
	mayReadQuotas
	mayWriteQuota
	mayAdmin
)

func (c *call) may(r right, project string) bool {
	own := project != "" && project == c.who.ProjectID
	admin := c.has("admin", "load-balancer_admin")
	observer := admin || c.has("load-balancer_global_observer")
	switch r {
	case mayRead:
		return observer || own && c.has("load-balancer_observer", "load-balancer_member")
	case mayReadAll:
		return observer
	case mayWrite:
		return admin || own && c.has("load-balancer_member")
	case mayReadQuota:
		return observer || c.has("load-balancer_quota_admin") || own && c.has("load-balancer_observer", "load-balancer_member")
	case mayReadQuotas:
		return observer || c.has("load-balancer_quota_admin")
	case mayWriteQuota:
		return admin || c.has("load-balancer_quota_admin")
	case mayAdmin:
	}
	return admin
}

func (c *call) has(roles ...string) bool {
	return slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(c.who.Roles, r) })
}

// allow refuses callers without the right.
func (c *call) allow(r right, project string) *fault {
	if c.may(r, project) {
		return nil
	}
	return forbidden
}

// scope returns the project whose resources a list shows; "" is all projects.
func (c *call) scope(one, all right) (string, *fault) {
	asked := c.r.URL.Query().Get("project_id")
	if c.may(all, asked) {
		return asked, nil
	}
	if asked == "" {
		asked = c.who.ProjectID
	}
	return asked, c.allow(one, asked)
}
