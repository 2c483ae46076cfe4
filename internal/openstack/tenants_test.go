// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
	"github.com/kuryr-go/kuryr/internal/sdn/tenants"
	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// bindingPolicy lets members bind ports, as a cloud that gives no admin has to, and see how many
// addresses are taken.
var bindingPolicy = map[string]string{
	"create_port:binding:host_id": "@", "get_port:binding:host_id": "@", "get_port:binding:vif_type": "@", "get_port:binding:vif_details": "@",
	"get_network_ip_availability": "@", "create_floatingip:floating_ip_address": "@",
}

// tenantCloud is a simulator with a main credential and those of the projects red and blue. None of
// them is an administrator.
type tenantCloud struct {
	*tenants.Cloud
	sim       *openstacksim.Cloud
	file      string
	red, blue string // IDs of projects
}

func newTenantCloud(t *testing.T, change ...func(*[]tenants.Tenant)) *tenantCloud {
	t.Helper()
	c := &tenantCloud{sim: openstacksim.Start(t, func(o *openstacksim.Options) { o.Policy = bindingPolicy })}
	c.red, c.blue = c.sim.AddTenant("red"), c.sim.AddTenant("blue")
	c.file = c.sim.CloudsFile(t)
	main, err := openstack.New(t.Context(), openstack.Config{ClusterID: "cluster", Cloud: "tenant", CloudsFile: c.file, RequestsPerSecond: 1000})
	must(t, err)
	listed := []tenants.Tenant{{ProjectID: c.red, Cloud: "red"}, {ProjectID: c.blue, Cloud: "blue"}}
	for _, f := range change {
		f(&listed)
	}
	c.Cloud = tenants.New(tenants.Options{
		Main: main, Tenants: func() []tenants.Tenant { return listed },
		Open: func(t tenants.Tenant) tenants.Session { return main.As(t.Cloud, t.ProjectID) },
	})
	return c
}

var tenantOwner = sdn.Owner{Kind: sdn.KindNetwork, Namespace: "team", Name: "team"}

// make makes a network with a subnet and a port in a project; an empty one is the main one.
func (c *tenantCloud) make(t *testing.T, project, prefix string) (sdn.Network, sdn.Port) {
	t.Helper()
	n, err := c.CreateNetwork(t.Context(), tenantOwner, sdn.NetworkSpec{Name: "uid/team", ProjectID: project})
	must(t, err)
	s, err := c.CreateSubnet(t.Context(), tenantOwner, sdn.SubnetSpec{NetworkID: n.ID, Name: "uid/team", ProjectID: project, IPVersion: 4, Prefix: netip.MustParsePrefix(prefix)})
	must(t, err)
	ports, err := c.CreatePorts(t.Context(), sdn.Owner{Kind: sdn.KindPool, Name: "pool"}, sdn.PortRequest{ProjectID: project, NetworkID: n.ID, SubnetIDs: []string{s.ID}, Host: "node1"}, 1)
	must(t, err)
	return n, ports[0]
}

// TestTenants: without an administrator each project's resources are made and deleted by its own
// user, in its own project, and the lists have all of them.
func TestTenants(t *testing.T) {
	c := newTenantCloud(t)
	networks, ports := map[string]sdn.Network{}, map[string]sdn.Port{}
	for project, prefix := range map[string]string{c.red: "10.1.0.0/24", c.blue: "10.2.0.0/24", "": "10.3.0.0/24"} {
		networks[project], ports[project] = c.make(t, project, prefix)
	}
	if all, err := c.ListNetworks(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("ListNetworks: %v, %v; want 3", all, err)
	}
	if all, err := c.ListPorts(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("ListPorts: %v, %v; want 3", all, err)
	}
	for project, n := range networks {
		if project != "" && n.ProjectID != project {
			t.Errorf("the network of project %s is in %s", project, n.ProjectID)
		}
		if used, err := c.InUse(t.Context(), n.ID); err != nil || len(used) != 1 || used[0].ID != ports[project].ID {
			t.Errorf("InUse: %v, %v; want port %s", used, err, ports[project].ID)
		}
		must(t, c.DeletePort(t.Context(), ports[project].ID))
		must(t, c.DeleteNetwork(t.Context(), n.ID))
	}
	writers := map[string]string{"red": "red", "blue": "blue", "tenant": "k8s"} // names of projects, by user
	for _, call := range c.sim.Calls() {
		if call.Service == "network" && call.Write() && call.Status >= 300 {
			t.Errorf("%s %s by %s: %d", call.Method, call.Path, call.User, call.Status)
		}
		if want := writers[call.User]; call.Service == "network" && call.Project != want {
			t.Errorf("%s %s by %s in project %s, want %s", call.Method, call.Path, call.User, call.Project, want)
		}
	}
	if left := c.sim.Objects(); left["ports"] != 0 || left["networks"] != 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestRefusedCredential: a disabled project, another password and a credential of another project
// concern that project only, and say so. It is well again once the credential is.
func TestRefusedCredential(t *testing.T) {
	c := newTenantCloud(t, func(all *[]tenants.Tenant) { (*all)[1].Cloud = "kuryr" }) // an administrator of k8s
	n, _ := c.make(t, c.red, "10.1.0.0/24")
	request := sdn.NetworkSpec{Name: "uid/team", ProjectID: c.blue}
	_, err := c.CreateNetwork(t.Context(), tenantOwner, request)
	if k8s, _ := c.sim.Project("k8s"); !errors.Is(err, sdn.ErrLogin) || !strings.Contains(err.Error(), k8s) || !strings.Contains(err.Error(), "projects[].cloud: kuryr") {
		t.Errorf("CreateNetwork with the credential of another project: %v, want ErrLogin that names that project and the field", err)
	}
	if _, err := c.ListNetworks(t.Context()); !errors.Is(sdn.ErrorIn(c.blue, err), sdn.ErrLogin) || sdn.ErrorIn(c.red, err) != nil {
		t.Errorf("ListNetworks: %v, want an error of blue only", err)
	}
	must(t, c.sim.SetProject("red", false))
	if _, err := c.Network(t.Context(), n.ID); !errors.Is(err, sdn.ErrLogin) || strings.Contains(err.Error(), openstacksim.Password) {
		t.Errorf("Network of a disabled project: %v, want ErrLogin", err)
	}
	if err := c.DeletePort(t.Context(), "5f1c5aac-0000-4000-8000-000000000001"); !errors.Is(err, sdn.ErrLogin) {
		t.Errorf("DeletePort of a port that red may have: %v, want ErrLogin", err)
	}
	survey := c.SurveyNetworks(t.Context(), sdn.NetworkQuery{ProjectIDs: []string{"", c.red}, KnownProjectIDs: []string{c.red}})
	if !errors.Is(survey.Credentials[c.red], sdn.ErrLogin) || survey.Quotas[c.red].Err == nil || survey.Quotas[""].Err != nil {
		t.Errorf("SurveyNetworks: credentials %v, quotas %v", survey.Credentials, survey.Quotas)
	}
	if _, err := c.ListPorts(t.Context()); sdn.ErrorIn("", err) != nil {
		t.Errorf("the main credential's ports: %v", err)
	}
}

// TestCredentialIsReadAgain: the file is read at each login, so another password needs no restart.
func TestCredentialIsReadAgain(t *testing.T) {
	c := newTenantCloud(t)
	n, _ := c.make(t, c.red, "10.1.0.0/24")
	must(t, c.sim.SetPassword("red", "rotated"))
	text, err := os.ReadFile(c.file)
	must(t, err)
	at := strings.Index(string(text), "username: red")
	changed := string(text[:at]) + strings.Replace(string(text[at:]), openstacksim.Password, "rotated", 1)
	must(t, os.WriteFile(c.file, []byte(changed), 0o600))
	c.sim.RevokeTokens()
	if _, err := c.Network(t.Context(), n.ID); err != nil {
		t.Errorf("Network after the password and clouds.yaml have changed: %v", err)
	}
}

// TestContractTenants runs the contract with the credentials of two projects, none of which is an
// administrator's: all that the contract makes is in one of them.
func TestContractTenants(t *testing.T) {
	unplugged, err := dial.Parse([]byte("{ports: [{active: never}]}")) // no node plugs them
	must(t, err)
	sim := openstacksim.Start(t, func(o *openstacksim.Options) { o.Dials, o.Policy = unplugged, bindingPolicy })
	project := sim.AddTenant("red")
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", sim.CloudsFile(t))
	world := newReal(t)
	world.project = project
	target := world.target(t)
	backend := func(t *testing.T, cluster string) *tenants.Cloud {
		return tenantBackend(t, cluster, tenants.Tenant{ProjectID: project, Cloud: "red"})
	}
	cluster := "contract-" + project[:12]
	target.Backend, target.Other = backend(t, cluster), backend(t, cluster+"-other")
	target.Fresh = func(t *testing.T) sdn.Backend { return backend(t, cluster) }
	sdntest.Run(t, func(*testing.T) sdntest.Target { return target })
}

// TestContractOfServicesTenants is TestContractTenants for the roles that Services need: its two
// projects have a credential each.
func TestContractOfServicesTenants(t *testing.T) {
	sim := openstacksim.Start(t, func(o *openstacksim.Options) { o.Policy = bindingPolicy })
	red, blue := sim.AddTenant("red"), sim.AddTenant("blue")
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", sim.CloudsFile(t))
	world := newRealServices(t, false)
	world.project, world.wreck = red, simulated{sim}
	target := world.target(t, "ovn")
	must(t, networks.Update(t.Context(), world.client, world.network, networks.UpdateOpts{Shared: gophercloud.Enabled}).Err)
	backend := func(t *testing.T, cluster string) sdntest.Services {
		return tenantBackend(t, cluster, tenants.Tenant{ProjectID: red, Cloud: "red"}, tenants.Tenant{ProjectID: blue, Cloud: "blue"})
	}
	cluster := "contract-" + red[:12]
	target.Second, target.Backend, target.Other = blue, backend(t, cluster), backend(t, cluster+"-other")
	target.Fresh = func(t *testing.T) sdntest.Services { return backend(t, cluster) }
	sdntest.RunServices(t, func(*testing.T) sdntest.ServiceTarget { return target })
	for _, call := range sim.Calls() {
		if call.Service == "load-balancer" && call.Write() && call.User != "kuryr" && call.User != call.Project {
			t.Errorf("%s %s by %s in project %s", call.Method, call.Path, call.User, call.Project)
		}
	}
}

// tenantBackend is the backend of a cluster with the credentials of tenants.
func tenantBackend(t *testing.T, cluster string, all ...tenants.Tenant) *tenants.Cloud {
	t.Helper()
	main, err := openstack.New(t.Context(), openstack.Config{ClusterID: cluster, Cloud: "tenant", PageSize: pageSize, RequestsPerSecond: 5000})
	must(t, err)
	return tenants.New(tenants.Options{
		Main: main, Tenants: func() []tenants.Tenant { return all },
		Open: func(t tenants.Tenant) tenants.Session { return main.As(t.Cloud, t.ProjectID) },
	})
}
