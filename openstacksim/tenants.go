// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"fmt"
	"slices"
	"sync"
)

// tenants are the users of AddTenant.
type tenants struct {
	mu  sync.Mutex
	all []user
}

func (t *tenants) users() []user {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.all)
}

// AddTenant adds a project, and a user of the same name who is a member of it and may have load
// balancers there. Clouds has the user from then on. It returns the ID of the project.
func (c *Cloud) AddTenant(name string) (projectID string) {
	id := c.identity.AddTenant(name, c.o.Password)
	c.tenants.mu.Lock()
	defer c.tenants.mu.Unlock()
	c.tenants.all = append(c.tenants.all, user{name, name})
	return id
}

// SetProject enables or disables the project of that name. Keystone accepts no token of a disabled
// project and issues none.
func (c *Cloud) SetProject(name string, enabled bool) error {
	if !c.identity.SetProject(name, enabled) {
		return fmt.Errorf("enabling or disabling project %q: there is none", name)
	}
	return nil
}

// SetPassword gives a user another password. Tokens stay valid: see RevokeTokens.
func (c *Cloud) SetPassword(user, password string) error {
	if !c.identity.SetPassword(user, password) {
		return fmt.Errorf("setting the password of user %q: there is none", user)
	}
	return nil
}
