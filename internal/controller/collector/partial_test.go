// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// halfCloud has resources that no object names, and nothing that an object names. Its lists lack the
// projects that are failing.
type halfCloud struct {
	sdn.LoadBalancers
	sdn.FloatingIPs
	sdn.SecurityGroups
	sdn.Networks
	sdn.Routers
	sdn.Ports
	failing error
}

func left(kind string) sdn.Owner { return sdn.Owner{Kind: kind, Namespace: "left", Name: "left"} }

func (h halfCloud) ListLoadBalancers(context.Context) ([]sdn.LoadBalancerSummary, error) {
	return []sdn.LoadBalancerSummary{{ID: "lb", Owner: left(sdn.KindLoadBalancer), Provisioning: sdn.ProvisioningActive}}, h.failing
}

func (h halfCloud) LeftVIPs(context.Context, string, string) (map[string]v1.VIPAddress, error) {
	return map[string]v1.VIPAddress{"vip": {IP: "10.0.0.9", SubnetID: "vips"}}, h.failing
}

func (h halfCloud) ListFloatingIPs(context.Context, string) ([]sdn.FloatingIP, error) {
	return []sdn.FloatingIP{{ID: "ip", Owner: left(sdn.KindLoadBalancer)}}, h.failing
}

func (h halfCloud) ListSecurityGroups(context.Context) ([]sdn.SecurityGroup, error) {
	return []sdn.SecurityGroup{{ID: "group", Owner: left(sdn.KindLoadBalancer)}}, h.failing
}

func (h halfCloud) ListNetworks(context.Context) ([]sdn.NetworkSummary, error) {
	return []sdn.NetworkSummary{{ID: "net", Owner: left(sdn.KindNetwork)}}, h.failing
}

func (h halfCloud) ListRouters(context.Context) ([]sdn.RouterSummary, error) {
	return []sdn.RouterSummary{{ID: "router", Owner: left(sdn.KindNetwork)}}, h.failing
}

func (h halfCloud) ListPorts(context.Context) ([]sdn.PortSummary, error) {
	return []sdn.PortSummary{{ID: "port", Owner: left(sdn.KindPool)}}, h.failing
}

// idle is a supply that has nothing under way, member groups that are all known, and a
// cloud that shows all.
type idle struct{ sdn.Visibility }

func (idle) Sees(context.Context, string, string) error { return nil }

func (idle) Knows() (ports, busy map[string]bool) { return map[string]bool{}, nil }
func (idle) Adopt(pool.Ref, sdn.Port)             {}
func (idle) Freed(pool.Ref)                       {}
func (idle) Known() bool                          { return true }
func (idle) Lost(*v1.KuryrLoadBalancer) bool      { return false }

// ofProject returns one object of each kind that is ready in a project. Its name is the project's.
func ofProject(project string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: project, Name: project}
	ready := []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}}
	klb := &v1.KuryrLoadBalancer{ObjectMeta: meta, Spec: v1.KuryrLoadBalancerSpec{ProjectID: project, SourceRangesAtMembers: true}}
	klb.Status.LoadBalancers = []v1.LoadBalancerStatus{{ID: "lb-" + project, PortID: "vip-" + project, ProjectID: project}}
	klb.Status.PublicIP, klb.Spec.PublicIP = &v1.PublicIPStatus{ID: "ip-" + project, Made: true}, &v1.PublicIPSpec{}
	klb.Status.SecurityGroupID, klb.Status.Conditions = "group-"+project, ready
	kn := &v1.KuryrNetwork{ObjectMeta: meta, Spec: v1.KuryrNetworkSpec{Mode: v1.NetworkFlat, ProjectID: project, Router: &v1.NetworkRouter{}}}
	kn.Status.NetworkID, kn.Status.RouterID, kn.Status.Conditions = "net-"+project, "router-"+project, ready
	port := &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: project}, Spec: v1.KuryrPortSpec{ProjectID: project}}
	return []client.Object{klb, kn, port}
}

// While the credential of one project fails, the others are compared: what is left over is found, and
// what they have lost. Nothing of that project is missing, as its part of the list is.
func TestListsWithoutOneProject(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(slices.Concat(ofProject("red"), ofProject("blue"))...).Build()
	live := settings.NewLive(settings.Settings{Services: config.Services{SubnetIDs: []string{"vips"}, SourceRangesBySecurityGroups: true}})
	refused := &sdn.PartialError{Lacks: map[string]error{"red": sdn.ErrLogin}}
	looks := func(cloud halfCloud) map[string]func(context.Context) (Findings, error) {
		balancers := &loadBalancers{LoadBalancerOptions: LoadBalancerOptions{Cloud: cloud, FloatingIPs: cloud, Settings: live, Shards: kube.Alone{}}, client: c}
		groups := &securityGroups{GroupOptions: GroupOptions{Cloud: cloud, Settings: live, Members: idle{}}, client: c}
		nets := &networks{NetworkOptions: NetworkOptions{Cloud: cloud, Settings: live}, client: c, network: &Kind{}, router: &Kind{}}
		all := &ports{PortOptions: PortOptions{
			Cloud: cloud, Settings: live, Shards: kube.Alone{}, Supply: idle{}, Visibility: idle{},
		}, client: c}
		return map[string]func(context.Context) (Findings, error){"load balancers": balancers.look, "security groups": groups.look, "networks": nets.look, "ports": all.look}
	}
	unnamed := map[string][]string{"load balancers": {"ip", "lb", "vip"}, "security groups": {"group"}, "networks": {"net", "router"}, "ports": {"port"}}
	for _, failing := range []bool{false, true} {
		cloud, lost := halfCloud{}, []string{"blue", "red"}
		if failing {
			cloud.failing, lost = refused, []string{"blue"}
		}
		for kind, look := range looks(cloud) {
			t.Run(fmt.Sprintf("%s, failing: %v", kind, failing), func(t *testing.T) {
				found, err := look(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var ids, names []string
				for _, r := range found.Unnamed {
					ids = append(ids, r.ID)
				}
				if slices.Sort(ids); !slices.Equal(ids, unnamed[kind]) {
					t.Errorf("left over are %q, want %q", ids, unnamed[kind])
				}
				for _, req := range found.Differ {
					names = append(names, req.Name)
				}
				slices.Sort(names)
				if names = slices.Compact(names); !slices.Equal(names, lost) {
					t.Errorf("%q have lost something, want %q", names, lost)
				}
				if (sdn.Partial(found.Unsure) != nil) != failing {
					t.Errorf("unsure: %v", found.Unsure)
				}
			})
		}
	}
}

// A floating IP keeps its mark while the load balancer that it serves may be hidden. Without load
// balancers on its port it is somebody else's.
func TestFloatingIPOfAHiddenLoadBalancer(t *testing.T) {
	r := &loadBalancers{floating: &Kind{}, balancer: &Kind{}}
	is := shown{floating: []sdn.FloatingIP{{ID: "ip", Owner: left(sdn.KindLoadBalancer), PortID: "vip"}}}
	if found := r.unnamed(is, nil); len(found) != 1 || !found[0].Elsewhere {
		t.Errorf("with all load balancers listed: %v, want the floating IP, which somebody else uses", found)
	}
	is.balancersLack = &sdn.PartialError{Lacks: map[string]error{"red": sdn.ErrLogin}}
	if found := r.unnamed(is, nil); len(found) > 0 {
		t.Errorf("with a project's load balancers hidden: %v, want none", found)
	}
	is.floating[0].PortID = ""
	if found := r.unnamed(is, nil); len(found) != 1 {
		t.Errorf("on no port: %v, want the floating IP", found)
	}
}
