// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/tenants"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// credentialBed is a netBed on a simulated OpenStack that gives no admin: the main credential is a
// member of project k8s, and projects red and blue have credentials of their own. Each has a router.
type credentialBed struct {
	*netBed
	api      *openstacksim.Cloud
	projects map[string]string // IDs, by the name of the user
}

func newCredentialBed(t *testing.T) *credentialBed {
	t.Helper()
	b := &credentialBed{netBed: newNetBed(t, "flat"), projects: map[string]string{}}
	b.api = openstacksim.Start(t, func(o *openstacksim.Options) {
		o.Hosts = []string{node}
		o.Policy = map[string]string{
			"create_port:binding:host_id": "@", "get_port:binding:host_id": "@", "get_port:binding:vif_type": "@", "get_port:binding:vif_details": "@",
		}
	})
	admin := &openstackCloud{t: t, api: b.api, cluster: clusterID}
	admin.logIn()
	b.projects["tenant"], _ = b.api.Project("k8s")
	routers := map[string]string{}
	for _, name := range []string{"tenant", "red", "blue"} {
		if name != "tenant" {
			b.projects[name] = b.api.AddTenant(name)
		}
		routers[name] = admin.make("router", map[string]any{"name": name, "project_id": b.projects[name]})
	}
	net := admin.make("network", map[string]any{"name": "pods"})
	subnet := admin.make("subnet", map[string]any{"network_id": net, "cidr": "10.1.0.0/16", "ip_version": 4})
	b.set(func(s *settings.Settings) {
		s.Pods.SubnetIDs, s.Pods.SecurityGroupIDs, s.Networks.RouterID = []string{subnet}, nil, routers["tenant"]
		s.Projects = []config.Project{
			{ProjectID: b.projects["red"], Cloud: "red", RouterID: routers["red"]},
			{ProjectID: b.projects["blue"], Cloud: "blue", RouterID: routers["blue"]},
		}
	})
	main, err := openstack.New(t.Context(), openstack.Config{ClusterID: clusterID, Cloud: "tenant", CloudsFile: b.api.CloudsFile(t), RequestsPerSecond: 1000})
	if err != nil {
		t.Fatal(err)
	}
	b.whole = tenants.New(tenants.Options{
		Main: main, Named: controller.NewProjects(b.client).Named,
		Tenants: func() []tenants.Tenant { return controller.Tenants(b.settings.Load().Projects) },
		Open:    func(t tenants.Tenant) tenants.Session { return main.As(t.Cloud, t.ProjectID) },
	})
	b.api.Reset()
	return b
}

// of makes a namespace in the project of a user, with a pod.
func (b *credentialBed) of(user string) (namespace string, pod *corev1.Pod) {
	b.t.Helper()
	namespace = b.namespace + "-" + user
	var annotations map[string]string
	if user != "tenant" {
		annotations = map[string]string{v1.ProjectAnnotation: b.projects[user]}
	}
	b.makeNamespace(namespace, annotations)
	return namespace, b.podIn(namespace, user)
}

func (b *credentialBed) podIn(namespace, name string) *corev1.Pod {
	b.t.Helper()
	return b.pod(name, func(p *corev1.Pod) { p.Namespace = namespace })
}

// wrong returns the changes of the cloud that a user made with a token of another project, and those
// that were refused.
func (b *credentialBed) wrong() (all []string) {
	for _, c := range b.api.Calls() {
		if c.Service == "network" && c.Write() && (c.Project != map[string]string{"tenant": "k8s", "red": "red", "blue": "blue"}[c.User] || c.Status >= 300) {
			all = append(all, fmt.Sprintf("%s %s by %s in %s: %d", c.Method, c.Path, c.User, c.Project, c.Status))
		}
	}
	return all
}

// wrote returns what each user has changed, by verb and resource.
func (b *credentialBed) wrote() map[string][]string {
	all := map[string][]string{}
	for _, c := range b.api.Calls() {
		if c.Service == "network" && c.Write() {
			all[c.User] = append(all[c.User], c.Method+" "+c.Resource)
		}
	}
	for _, calls := range all {
		slices.Sort(calls)
	}
	return all
}

// TestCredentialsOfTenants: everything of a namespace is made and deleted by the user of its project,
// in its project, and nobody is an administrator.
func TestCredentialsOfTenants(t *testing.T) {
	b := newCredentialBed(t)
	b.start()
	users := []string{"tenant", "red", "blue"}
	namespaces, pods := map[string]string{}, map[string]*corev1.Pod{}
	for _, user := range users {
		namespaces[user], pods[user] = b.of(user)
	}
	for _, user := range users {
		port := b.bound(pods[user])
		if kn := b.ready(namespaces[user]); port.Spec.NetworkID != kn.Status.NetworkID || user != "tenant" && port.Spec.ProjectID != b.projects[user] {
			t.Errorf("the port of %s is in project %s and network %s, want %s and %s", user, port.Spec.ProjectID, port.Spec.NetworkID, b.projects[user], kn.Status.NetworkID)
		}
	}
	want := []string{"POST networks", "POST ports", "POST subnets", "PUT routers/{id}/add_router_interface"}
	for user, calls := range b.wrote() {
		if !slices.Equal(calls, want) {
			t.Errorf("user %s has made %q, want %q", user, calls, want)
		}
	}
	for _, user := range users {
		b.delete(pods[user])
		b.deleteNetworkOf(namespaces[user])
	}
	b.eventually("the cloud has nothing left of the namespaces", func() bool {
		left := b.api.Objects()
		return left["networks"] == 1 && left["subnets"] == 1 && left["ports"] == 0
	})
	if wrong := b.wrong(); len(wrong) > 0 {
		t.Errorf("by the wrong user, or in the wrong project, or refused:\n%s", strings.Join(wrong, "\n"))
	}
}

// TestDisabledProject: the namespaces of a project that is disabled say so, and the others go on.
func TestDisabledProject(t *testing.T) {
	b := newCredentialBed(t)
	b.start()
	red, pod := b.of("red")
	b.bound(pod)
	if err := b.api.SetProject("red", false); err != nil {
		t.Fatal(err)
	}
	b.podIn(red, "late")
	_, other := b.of("blue")
	b.mentions("Event", b.eventOn("late", v1.ReasonForbidden), b.projects["red"], "projects[].cloud: red", "Secret")
	b.bound(other)
	// A new namespace of the project has no network, and an Event.
	second := red + "-2"
	b.makeNamespace(second, map[string]string{v1.ProjectAnnotation: b.projects["red"]})
	b.podIn(second, "second")
	b.eventually("the KuryrNetwork of the second namespace says why", func() bool { return b.reason(second, v1.ConditionReady) == v1.ReasonForbidden })
	if c := meta.FindStatusCondition(b.kn(second).Status.Conditions, v1.ConditionReady); !hasWords(c.Message, b.projects["red"], "projects[].cloud: red") || strings.Contains(c.Message, openstacksim.Password) {
		t.Errorf("the condition says %q", c.Message)
	}
	b.eventOn(second, v1.ReasonForbidden)
	// Its network is made when the project is enabled again, though the credential does not see the common network.
	if err := b.api.SetProject("red", true); err != nil {
		t.Fatal(err)
	}
	b.ready(second)
}

// TestOrphansWhileACredentialFails: a port that nobody names is deleted though the credential of
// another project fails. The ports of that project are not lost.
func TestOrphansWhileACredentialFails(t *testing.T) {
	b := newCredentialBed(t)
	b.start()
	_, red := b.of("red")
	_, blue := b.of("blue")
	kept, like := b.bound(red), b.bound(blue)
	if err := b.api.SetProject("red", false); err != nil {
		t.Fatal(err)
	}
	made, err := b.whole.CreatePorts(t.Context(), sdn.Owner{Kind: sdn.KindPool, Name: "gone"}, sdn.PortRequest{
		ProjectID: like.Spec.ProjectID, NetworkID: like.Spec.NetworkID, SubnetIDs: b.subnetsOf(blue.Namespace), Host: node,
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	b.eventually("the port that nobody names is deleted", func() bool {
		listed, err := b.whole.ListPorts(t.Context()) // with an error, for project red
		return err != nil && !slices.ContainsFunc(listed, func(p sdn.PortSummary) bool { return p.ID == made[0].ID })
	})
	if p := b.portOf(red); p == nil || p.Name != kept.Name || p.Lost() {
		t.Errorf("the pod of the failing project has %+v, want its port %s", p, kept.Name)
	}
	for _, c := range b.api.Calls() {
		if c.Method == http.MethodDelete && c.User != "blue" {
			t.Errorf("%s %s by %s", c.Method, c.Path, c.User)
		}
	}
}

// subnetsOf returns the subnets of the network of a namespace.
func (b *credentialBed) subnetsOf(namespace string) (ids []string) {
	for _, s := range b.kn(namespace).Status.Subnets {
		ids = append(ids, s.ID)
	}
	return ids
}
