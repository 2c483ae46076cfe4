// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import "slices"

// Caller is who makes a request, as the token says. The zero Caller is nobody:
// a request without a token, which only version discovery may be.
type Caller struct {
	UserID, UserName string
	ProjectID        string // empty if the token has no project
	ProjectName      string
	DomainID         string   // of the user
	Roles            []string // names, such as admin, member, reader; not to be changed
}

// Admin says whether the caller sees and may change what is others'.
func (c Caller) Admin() bool { return c.Has("admin") }

// Has says whether the caller has the role of that name.
func (c Caller) Has(role string) bool { return slices.Contains(c.Roles, role) }
