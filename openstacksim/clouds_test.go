// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"go.yaml.in/yaml/v4"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// authOptions is what the comment of Cloud.ClientConfig shows.
func authOptions(login openstacksim.ClientConfig) gophercloud.AuthOptions {
	return gophercloud.AuthOptions{
		IdentityEndpoint: login.AuthURL,
		Username:         login.Username,
		Password:         login.Password,
		DomainName:       login.UserDomainName,
		TenantName:       login.ProjectName,
		AllowReauth:      true,
	}
}

// ClientConfig has what the first cloud of Clouds has, whatever the password.
func TestClientConfigIsTheFirstCloud(t *testing.T) {
	c := openstacksim.Start(t, func(o *openstacksim.Options) { o.Password = `a "b": \c #` })
	var file struct{ Clouds yaml.Node }
	if err := yaml.Unmarshal(c.Clouds(), &file); err != nil {
		t.Fatal(err)
	}
	var first struct {
		Region string `yaml:"region_name"`
		Auth   struct {
			AuthURL           string `yaml:"auth_url"`
			Username          string `yaml:"username"`
			Password          string `yaml:"password"`
			ProjectName       string `yaml:"project_name"`
			UserDomainName    string `yaml:"user_domain_name"`
			ProjectDomainName string `yaml:"project_domain_name"`
		}
	}
	name := file.Clouds.Content[0].Value
	if err := file.Clouds.Content[1].Decode(&first); err != nil {
		t.Fatal(err)
	}
	in := first.Auth
	want := openstacksim.ClientConfig{AuthURL: in.AuthURL, Username: in.Username, Password: in.Password, ProjectName: in.ProjectName,
		UserDomainName: in.UserDomainName, ProjectDomainName: in.ProjectDomainName, RegionName: first.Region}
	login := c.ClientConfig()
	if diff := cmp.Diff(want, login); diff != "" || name != login.Username {
		t.Errorf("Clouds has first %s, and not what ClientConfig has (-clouds.yaml +ClientConfig):\n%s", name, diff)
	}
	auth, endpoint, _, err := clouds.Parse(clouds.WithCloudName(name), clouds.WithLocations(c.CloudsFile(t)))
	if err != nil {
		t.Fatal(err)
	}
	if auth.IdentityEndpoint != login.AuthURL || auth.Password != login.Password || auth.TenantName != login.ProjectName || endpoint.Region != login.RegionName {
		t.Errorf("gophercloud reads %+v, region %s of clouds.yaml, ClientConfig is %+v", auth, endpoint.Region, login)
	}
	provider := must[*gophercloud.ProviderClient](t)(openstack.AuthenticatedClient(t.Context(), authOptions(login)))
	n := service(t)(openstack.NewNetworkV2(provider, gophercloud.EndpointOpts{Region: login.RegionName}))
	must[*networks.Network](t)(networks.Create(t.Context(), n, networks.CreateOpts{Name: "n"}).Extract())
}

// For another user two fields change.
func TestClientConfigOfAnotherUser(t *testing.T) {
	c := openstacksim.Start(t)
	login := c.ClientConfig()
	login.Username, login.ProjectName = "tenant", "k8s"
	provider := must[*gophercloud.ProviderClient](t)(openstack.AuthenticatedClient(t.Context(), authOptions(login)))
	n := service(t)(openstack.NewNetworkV2(provider, gophercloud.EndpointOpts{Region: login.RegionName}))
	network := must[*networks.Network](t)(networks.Create(t.Context(), n, networks.CreateOpts{Name: "n"}).Extract())
	if project, ok := c.Project("k8s"); !ok || network.ProjectID != project {
		t.Errorf("the network is of project %s, k8s is %s, %v", network.ProjectID, project, ok)
	}
	if _, ok := c.Project("none"); ok {
		t.Error("there is a project none")
	}
}

func TestRevokeTokens(t *testing.T) {
	c := openstacksim.Start(t)
	k := as(t, c, "admin", "admin")
	k.must(200, http.MethodGet, projectsPath, "")
	c.RevokeTokens()
	k.must(401, http.MethodGet, projectsPath, "")
}
