// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// strangers is a project that Kuryr does not use, listedProject one that its configuration lists.
const strangers, listedProject = "strangers-project", "listed-project"

func listProject(s *settings.Settings) { s.Projects = []config.Project{{ProjectID: listedProject}} }

// Somebody else has made a network and a router with the mark of a namespace, before Kuryr did. A
// controller that looks for the namespace's own by their mark, as their names are lost, does not
// take these. It reports them, and leaves them alone. After the namespace it deletes those in a project that it uses.
func TestForeignNetworkAndRouter(t *testing.T) {
	for _, project := range []string{strangers, listedProject} {
		t.Run(project, func(t *testing.T) {
			b := newRouterBed(t, listProject)
			b.makeNamespace(b.namespace, nil)
			ns := &corev1.Namespace{}
			if err := b.client.Get(t.Context(), client.ObjectKey{Name: b.namespace}, ns); err != nil {
				t.Fatal(err)
			}
			owner, name := sdn.Owner{Kind: sdn.KindNetwork, Namespace: b.namespace, Name: b.namespace}, sdn.NetworkName(string(ns.UID), b.namespace)
			network, err := b.cloud.Backend("cluster").CreateNetwork(t.Context(), owner, sdn.NetworkSpec{Name: name, ProjectID: project})
			if err != nil {
				t.Fatal(err)
			}
			router, err := b.cloud.Backend("cluster").CreateRouter(t.Context(), owner, sdn.RouterSpec{Name: name, ProjectID: project, Gateway: sdn.Gateway{NetworkID: outsideNet}})
			if err != nil {
				t.Fatal(err)
			}
			b.start()
			pod := b.waiting(b.namespace, "first")
			own := b.ready(b.namespace).Status
			b.stop()
			kn := b.kn(b.namespace)
			kn.Status = v1.KuryrNetworkStatus{}
			if err := b.client.Status().Update(t.Context(), kn); err != nil {
				t.Fatal(err)
			}
			b.start()
			if got := b.ready(b.namespace).Status; got.NetworkID != own.NetworkID || got.RouterID != own.RouterID {
				t.Errorf("the namespace has network %s and router %s, want its own %s and %s; %s and %s are of project %s",
					got.NetworkID, got.RouterID, own.NetworkID, own.RouterID, network.ID, router.ID, project)
			}
			b.mentions("the Event", b.eventOn(b.namespace, v1.ReasonForeignMark), project, "projects")
			b.never("something is deleted while the namespace is there", func() bool { return len(b.owned()) != 2 || len(b.cloud.Routers()) != 2 })
			b.delete(pod)
			b.delete(ns)
			b.deleteNetworkOf(b.namespace)
			left := 1
			if project == listedProject { // it may be left from when the namespace was in that project
				left = 0
			}
			b.eventually("what is in Kuryr's projects is deleted", func() bool { return len(b.owned()) == left && len(b.cloud.Routers()) == left })
			b.never("the network or the router of a stranger is deleted", func() bool { return len(b.owned()) != left || len(b.cloud.Routers()) != left })
		})
	}
}

// Somebody else has made a load balancer and a floating IP with the mark of a Service.
func TestForeignLoadBalancerAndFloatingIP(t *testing.T) {
	for _, project := range []string{strangers, listedProject} {
		t.Run(project, func(t *testing.T) {
			b := balancerBed(t)
			b.set(listProject)
			owner := sdn.Owner{Kind: sdn.KindLoadBalancer, Namespace: "default", Name: "web"}
			as := b.cloud.Backend("cluster")
			lb, err := as.CreateLoadBalancer(t.Context(), owner, sdn.LoadBalancer{Name: "x", ProjectID: project, VIP: v1.VIPAddress{IP: "10.96.0.99", SubnetID: serviceSubnet}})
			if err != nil {
				t.Fatal(err)
			}
			ip, err := as.CreateFloatingIP(t.Context(), owner, sdn.FloatingIPRequest{ProjectID: project, NetworkID: publicNetwork})
			if err != nil {
				t.Fatal(err)
			}
			b.start()
			klb := b.balancer("web", public)
			b.eventually("the Service has a load balancer and a floating IP", func() bool {
				klb = b.klb("web")
				return len(klb.Status.LoadBalancers) > 0 && klb.Status.PublicIP != nil
			})
			if klb.Status.LoadBalancers[0].ID == lb.ID || klb.Status.PublicIP.ID == ip.ID {
				t.Errorf("the Service has load balancer %s and floating IP %s, want its own; %s and %s are of another project", klb.Status.LoadBalancers[0].ID, klb.Status.PublicIP.ID, lb.ID, ip.ID)
			}
			b.mentions("the Event", b.eventOn("web", v1.ReasonForeignMark), project, "projects")
			b.delete(klb)
			left := 1
			if project == listedProject { // it may be left from when the namespace was in that project
				left = 0
			}
			b.eventually("what is in Kuryr's projects is deleted", func() bool { return len(b.cloud.LoadBalancers()) == left && len(b.cloud.FloatingIPs()) == left })
			b.never("those of a stranger are deleted", func() bool { return len(b.cloud.LoadBalancers()) != left || len(b.cloud.FloatingIPs()) != left })
		})
	}
}

// What has the mark of an object that does not exist is deleted where Kuryr makes things, and nowhere
// else. That is so for each kind.
func TestLeftoversOfStrangers(t *testing.T) {
	b := newRouterBed(t, listProject, func(s *settings.Settings) { s.Services.SourceRangesBySecurityGroups = true })
	b.balancing = true
	b.cloud.AddSubnet(memory.Subnet{ID: serviceSubnet, NetworkID: network, Prefix: netip.MustParsePrefix("10.96.0.0/12"), MTU: 1442})
	as, ctx := b.cloud.Backend("cluster"), t.Context()
	of := func(kind string) sdn.Owner { return sdn.Owner{Kind: kind, Namespace: "gone", Name: "gone"} }
	made := map[string][]string{} // by project
	for i, project := range []string{strangers, listedProject} {
		add := func(id string, err error) {
			if err != nil {
				t.Fatal(err)
			}
			made[project] = append(made[project], id)
		}
		n, err := as.CreateNetwork(ctx, of(sdn.KindNetwork), sdn.NetworkSpec{Name: "u/gone", ProjectID: project})
		add(n.ID, err)
		r, err := as.CreateRouter(ctx, of(sdn.KindNetwork), sdn.RouterSpec{Name: "u/gone", ProjectID: project, Gateway: sdn.Gateway{NetworkID: outsideNet}})
		add(r.ID, err)
		lb, err := as.CreateLoadBalancer(ctx, of(sdn.KindLoadBalancer), sdn.LoadBalancer{Name: "x", ProjectID: project, VIP: v1.VIPAddress{IP: []string{"10.96.0.98", "10.96.0.99"}[i], SubnetID: serviceSubnet}})
		add(lb.ID, err)
		f, err := as.CreateFloatingIP(ctx, of(sdn.KindLoadBalancer), sdn.FloatingIPRequest{ProjectID: project, NetworkID: outsideNet})
		add(f.ID, err)
		g, err := as.EnsureSecurityGroup(ctx, of(sdn.KindLoadBalancer), sdn.SecurityGroup{Name: "x", ProjectID: project})
		add(g.ID, err)
		p, err := as.CreatePorts(ctx, sdn.Owner{Kind: sdn.KindPool, Name: "gone"}, sdn.PortRequest{ProjectID: project, SubnetIDs: []string{subnet}, Host: node}, 1)
		add(p[0].ID, err)
	}
	b.start()
	left := func(project string) (n int) {
		for _, id := range made[project] {
			if inCloud(t.Context(), as, id) {
				n++
			}
		}
		return n
	}
	b.eventually("all of the listed project is deleted", func() bool { return left(listedProject) == 0 })
	b.never("something of a stranger is deleted", func() bool { return left(strangers) != len(made[strangers]) })
}

// inCloud reports whether a resource of any kind exists.
func inCloud(ctx context.Context, b *memory.Backend, id string) bool {
	_, network := b.Network(ctx, id)
	_, router := b.Router(ctx, id)
	_, balancer := b.LoadBalancer(ctx, id)
	_, port := b.Port(ctx, id)
	addresses, _ := b.ListFloatingIPs(ctx, "")
	groups, _ := b.ListSecurityGroups(ctx)
	for _, f := range addresses {
		if f.ID == id {
			return true
		}
	}
	for _, g := range groups {
		if g.ID == id {
			return true
		}
	}
	return network == nil || router == nil || balancer == nil || port == nil
}

// A pod's annotation, which its author writes, names a port of a stranger on the pod's node.
func TestAnnotationNamesThePortOfAStranger(t *testing.T) {
	b := idleBed(t)
	b.start()
	own := b.bound(b.pod("first"))
	b.stop()
	ports, err := b.cloud.Backend("cluster").CreatePorts(t.Context(), sdn.Owner{Kind: sdn.KindPool, Name: own.Spec.Pool},
		sdn.PortRequest{ProjectID: strangers, SubnetIDs: []string{subnet}, SecurityGroupIDs: []string{group}, Host: node}, 1)
	if err != nil {
		t.Fatal(err)
	}
	pod := b.pod("second", func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1.VIFAnnotation: v1.FormatVIFs(map[string]string{"eth0": ports[0].ID})}
	})
	b.start()
	if port := b.bound(pod); port.Name == ports[0].ID {
		t.Errorf("the pod has port %s of project %s", port.Name, strangers)
	}
	b.mentions("the Event", b.eventOn(own.Spec.Pool, v1.ReasonForeignMark), ports[0].ID, strangers)
}
