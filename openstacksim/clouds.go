// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// ClientConfig has everything that a client needs to log in by password. The fields have the names
// of clouds.yaml.
type ClientConfig struct {
	AuthURL           string // of Keystone, with /v3
	Username          string
	Password          string
	ProjectName       string
	UserDomainName    string
	ProjectDomainName string
	RegionName        string
}

// user is a user, and the project that it logs in to.
type user struct{ name, project string }

// users are the initial users, and their projects.
var users = []user{{"admin", "admin"}, {"kuryr", "k8s"}, {"tenant", "k8s"}}

// ClientConfig returns what the user admin logs in with, to project admin. For
// another user that Clouds has, change Username and ProjectName. With gophercloud,
// which this package does not import:
//
//	login := cloud.ClientConfig()
//	provider, err := openstack.AuthenticatedClient(ctx, gophercloud.AuthOptions{
//		IdentityEndpoint: login.AuthURL,
//		Username:         login.Username,
//		Password:         login.Password,
//		DomainName:       login.UserDomainName,
//		TenantName:       login.ProjectName,
//		AllowReauth:      true,
//	})
//	…
//	network, err := openstack.NewNetworkV2(provider, gophercloud.EndpointOpts{Region: login.RegionName})
//
// DomainName is the domain of user and project there; all that exist from the start
// are in the same.
func (c *Cloud) ClientConfig() ClientConfig { return c.logins()[0] }

// logins are the logins of users.
func (c *Cloud) logins() []ClientConfig {
	var all []ClientConfig
	for _, u := range append(slices.Clone(users), c.tenants.users()...) {
		all = append(all, ClientConfig{
			AuthURL: c.o.URL + identityPath + "/v3", Username: u.name, Password: c.o.Password, ProjectName: u.project,
			UserDomainName: "Default", ProjectDomainName: "Default", RegionName: keystone.Region,
		})
	}
	return all
}

// Clouds returns a clouds.yaml with a cloud for each user: admin, with all rights, which is
// ClientConfig's; kuryr, who is admin in project k8s; tenant, who is a member there; and each of
// AddTenant.
func (c *Cloud) Clouds() []byte {
	var b strings.Builder
	b.WriteString("clouds:\n")
	for _, l := range c.logins() {
		fmt.Fprintf(&b, "  %s:\n    region_name: %s\n    auth:\n      auth_url: %s\n      username: %s\n      password: %q\n"+
			"      project_name: %s\n      user_domain_name: %s\n      project_domain_name: %s\n",
			l.Username, l.RegionName, l.AuthURL, l.Username, l.Password, l.ProjectName, l.UserDomainName, l.ProjectDomainName)
	}
	return []byte(b.String())
}
