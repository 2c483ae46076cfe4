// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"fmt"
	"strings"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// users are those that there are from the start, and their project.
var users = []struct{ name, project string }{{"admin", "admin"}, {"kuryr", "k8s"}, {"tenant", "k8s"}}

// Clouds is a clouds.yaml with a cloud for each user: admin, who may do all;
// kuryr, who is admin in project k8s; tenant, who is a member there.
func (c *Cloud) Clouds() []byte {
	password := c.o.Password
	if password == "" {
		password = keystone.Password
	}
	var b strings.Builder
	b.WriteString("clouds:\n")
	for _, u := range users {
		fmt.Fprintf(&b, "  %s:\n    region_name: %s\n    auth:\n      auth_url: %s/v3\n      username: %s\n      password: %q\n"+
			"      project_name: %s\n      user_domain_name: Default\n      project_domain_name: Default\n",
			u.name, keystone.Region, c.o.URL+identityPath, u.name, password, u.project)
	}
	return []byte(b.String())
}
