// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// tenant is one of the bed's projects with a router, a subnet pool and a security group
// of its own.
type tenant struct{ project, router, cidr, group string }

func tenantOf(name string) tenant {
	get := func(what string) string { return os.Getenv("TENANT_" + name + "_" + what) }
	return tenant{get("PROJECT"), get("ROUTER"), get("CIDR"), get("SG")}
}

// Two tenants on routers of their own, one with two namespaces: ports and networks are in
// their projects. Tenants reach themselves, and not each other until a rule names the
// other. Their own Services work, too.
func TestTenantsOnTheirRouters(t *testing.T) {
	long(t)
	a, b := tenantOf("A"), tenantOf("B")
	f := withNetworks(t, project(a.project), mode(v1.NetworkNamespace))
	second := f.beside(t, "second", project(a.project), mode(v1.NetworkNamespace))
	other := f.beside(t, "b", project(b.project), mode(v1.NetworkNamespace))

	pods := f.pods(t, "a", "b")
	third, stranger := second.on(t, "n2", "c"), other.on(t, "n2", "d")
	kns := f.network(t)
	f.isMade(t, kns, v1.NetworkNamespace, a.cidr, a.router, a.project)
	f.inNetwork(t, kns, pods...)
	second.inNetwork(t, second.network(t), third)
	other.isMade(t, other.network(t), v1.NetworkNamespace, b.cidr, b.router, b.project)
	other.inNetwork(t, other.network(t), stranger)
	f.haveGroups(t, pods, a.group)
	other.haveGroups(t, []*corev1.Pod{stranger}, b.group)
	all(t, append(f.routed(t, pods[0], stranger),
		f.between(pods[0], pods[1]), f.between(pods[1], pods[0]), f.between(pods[0], third), f.between(third, pods[1]))...)

	all(t, f.apart(pods[0], stranger), f.apart(stranger, pods[0]), f.apart(stranger, third))
	f.lets(t, a, stranger)
	all(t, f.between(stranger, pods[0]), f.apart(pods[0], stranger))
	f.lets(t, b, pods[0])
	all(t, f.between(stranger, pods[0]), f.between(pods[0], stranger))

	if !f.hasServices(t) {
		return
	}
	servers := f.servers(t, "web", 2)
	svc := f.service(t, "web")
	f.areIn(t, f.realised(t, svc), a.project)
	f.inPod(pods[0]).all(t, svc.Spec.ClusterIP, servers)
}

// A tenant on the cluster's router: its load balancers and floating IPs are in its
// project, too, and serve pods of its namespaces, nodes and the outside. The project of a
// namespace with pods stays.
func TestTenantWithServices(t *testing.T) {
	long(t)
	c := tenantOf("C")
	f := withNetworks(t, project(c.project), mode(v1.NetworkNamespace))
	f.needsOctavia(t)
	second := f.beside(t, "second", project(c.project), mode(v1.NetworkNamespace))
	client, neighbour := f.on(t, "n1", "client"), second.on(t, "n2", "neighbour")
	f.isMade(t, f.network(t), v1.NetworkNamespace, families("NAMESPACE_POOL_CIDR"), os.Getenv("ROUTER"), c.project)

	servers := f.servers(t, "web", 2)
	f.haveGroups(t, servers, c.group)
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	klb := f.realised(t, svc)
	public := f.ingress(t, svc)
	f.areIn(t, klb, c.project)
	f.floatsIn(t, public, c.project)
	for _, from := range []asker{f.inPod(client), f.inPod(neighbour), f.byNode("n2")} {
		from.all(t, svc.Spec.ClusterIP, servers)
	}
	asker(outside).all(t, public, servers)
	f.annotationStays(t, tenantOf("B").project)
}

// annotationStays checks that a namespace with pods stays in its project, and that this
// is told.
func (f *fixture) annotationStays(t testing.TB, other string) {
	t.Helper()
	before := f.network(t)
	f.annotate(t, v1.ProjectAnnotation, other)
	f.plans(t, "False", v1.ProjectAnnotation, other)
	f.told(t, v1.ProjectAnnotation, other)
	f.inNetwork(t, before, f.on(t, "n1", "later"))
	f.annotate(t, v1.ProjectAnnotation, before.Spec.ProjectID)
	eventually(t, func() error {
		if c := meta.FindStatusCondition(f.network(t).Status.Conditions, v1.ConditionPlanned); c != nil && c.Status == metav1.ConditionFalse {
			return fmt.Errorf("KuryrNetwork %s says %+v, although its namespace has its project again", f.namespace, c)
		}
		return nil
	})
}

// lets has a tenant's security group let a pod in.
func (f *fixture) lets(t testing.TB, to tenant, from *corev1.Pod) {
	t.Helper()
	rule := must(rules.Create(t.Context(), f.Neutron, rules.CreateOpts{
		SecGroupID: to.group, ProjectID: to.project, Direction: rules.DirIngress, EtherType: rules.EtherType4,
		RemoteIPPrefix: from.Status.PodIP + "/32",
	}).Extract())(t)
	t.Cleanup(func() {
		err := rules.Delete(context.Background(), f.Neutron, rule.ID).ExtractErr()
		if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			t.Error(err)
		}
	})
}

// areIn checks that a Service's load balancer and VIP port are in a project.
func (f *fixture) areIn(t testing.TB, klb *v1.KuryrLoadBalancer, project string) {
	t.Helper()
	id := must(f.clusterID(t.Context()))(t)
	lbs, vips := must(f.LoadBalancers(t.Context(), id))(t), must(f.VIPs(t.Context()))(t)
	for _, lb := range klb.Status.LoadBalancers {
		if got := lbs[lb.ID].ProjectID; got != project {
			t.Errorf("load balancer %s is in project %q, want %s", lb.ID, got, project)
		}
		if got := vips[lb.ID].ProjectID; got != project {
			t.Errorf("the VIP port of load balancer %s is in project %q, want %s", lb.ID, got, project)
		}
	}
}

// floatsIn checks that a floating IP is in a project.
func (f *fixture) floatsIn(t testing.TB, public, project string) {
	t.Helper()
	id := must(f.clusterID(t.Context()))(t)
	var seen []string
	for _, ip := range must(f.FloatingIPs(t.Context(), id))(t) {
		if ip.FloatingIP == public && ip.ProjectID == project {
			return
		}
		seen = append(seen, fmt.Sprintf("%s in %s", ip.FloatingIP, ip.ProjectID))
	}
	t.Errorf("the cluster's floating IPs are %s, want %s in %s", strings.Join(seen, ", "), public, project)
}

// A namespace of another project without a network of its own is in the common network,
// with its ports and load balancers in its project.
func TestSharedNetworkOfAnotherProject(t *testing.T) {
	long(t)
	a := tenantOf("A")
	f := withNetworks(t, project(a.project))
	pods := f.pods(t, "a", "b")
	kns := f.network(t)
	if kns.Spec.Mode != v1.NetworkShared || kns.Spec.ProjectID != a.project {
		t.Errorf("KuryrNetwork has spec %+v, want mode shared of project %s", kns.Spec, a.project)
	}
	for _, pod := range pods {
		port := must(f.portOf(t, pod))(t)
		if port.ProjectID != a.project || port.NetworkID != os.Getenv("POD_NET") {
			t.Errorf("pod %s has a port of project %s in network %s, want %s, %s", pod.Name, port.ProjectID, port.NetworkID, a.project, os.Getenv("POD_NET"))
		}
	}
	all(t, f.between(pods[0], pods[1]), f.between(pods[1], pods[0]))
}
