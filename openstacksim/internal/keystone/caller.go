// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import "slices"

// Caller is the user behind a token. The zero Caller stands for a request without a token, which
// is allowed for version discovery only.
type Caller struct {
	UserID, UserName string
	ProjectID        string // empty if the token has no project
	ProjectName      string
	DomainID         string   // of the user
	Roles            []string // names, such as admin, member, reader; read-only
}

// Admin reports whether the caller may see and change the resources of other users.
func (c Caller) Admin() bool { return c.Has("admin") }

// Has reports whether the caller has the role of that name.
func (c Caller) Has(role string) bool { return slices.Contains(c.Roles, role) }
