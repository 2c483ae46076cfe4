// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// A floating IP that Kuryr did not create is found in the project of its Service's namespace, and
// its loss is noticed there, too. Only projects with such floating IPs cost a list.
func TestFloatingIPsOfOtherProjects(t *testing.T) {
	const pods, public = "pods", "public"
	cloud := memory.New(
		memory.Subnet{ID: pods, NetworkID: pods, Prefix: netip.MustParsePrefix("10.1.0.0/24")},
		memory.Subnet{ID: public, NetworkID: public, Prefix: netip.MustParsePrefix("203.0.113.0/24"), External: true},
	)
	backend := cloud.Backend("cluster")
	r := &loadBalancers{LoadBalancerOptions: LoadBalancerOptions{FloatingIPs: backend, Settings: settings.NewLive(settings.Settings{Services: config.Services{ProjectID: "common"}})}}
	objects := map[ctrl.Request]*v1.KuryrLoadBalancer{}
	var summaries []sdn.LoadBalancerSummary
	lent := map[string]sdn.FloatingIP{}
	for _, project := range []string{"red", "blue", "blue"} {
		name := project + string(rune('a'+len(objects)))
		owner := sdn.Owner{Kind: sdn.KindLoadBalancer, Namespace: "default", Name: name}
		lb, err := backend.CreateLoadBalancer(t.Context(), owner, sdn.LoadBalancer{Name: name, ProjectID: project, Provider: "ovn", VIP: v1.VIPAddress{SubnetID: pods}})
		if err != nil {
			t.Fatal(err)
		}
		klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.KuryrLoadBalancerSpec{ProjectID: project}}
		klb.Status.LoadBalancers = []v1.LoadBalancerStatus{{ID: lb.ID, PortID: lb.VIPPortID, ProjectID: project}}
		klb.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}}
		request := sdn.FloatingIPRequest{ProjectID: project, NetworkID: public, PortID: lb.VIPPortID}
		if project == "red" {
			f := cloud.AddForeignFloatingIP(request)
			lent[name], klb.Status.PublicIP = f, &v1.PublicIPStatus{ID: f.ID, IP: f.Address}
		} else if f, err := backend.CreateFloatingIP(t.Context(), owner, request); err == nil {
			klb.Status.PublicIP = &v1.PublicIPStatus{ID: f.ID, IP: f.Address, Made: true}
			klb.Spec.PublicIP = &v1.PublicIPSpec{NetworkID: public}
		} else {
			t.Fatal(err)
		}
		objects[kube.RequestOf(klb)] = klb
		summaries = append(summaries, sdn.LoadBalancerSummary{ID: lb.ID, Owner: owner, VIPPortID: lb.VIPPortID, Provisioning: sdn.ProvisioningActive})
	}
	look := func() []ctrl.Request {
		t.Helper()
		all, err := r.listFloating(t.Context(), objects)
		if err != nil || len(all) != len(objects) {
			t.Fatalf("listed %v, %v; want %d floating IPs, each once", all, err, len(objects))
		}
		return r.missing(objects, shown{balancers: summaries, floating: all})
	}
	if differ := look(); len(differ) > 0 {
		t.Errorf("%v differ from the cloud, want none", differ)
	}
	if n := cloud.Calls(memory.ListFloatingIPs); n != 2 {
		t.Errorf("%d lists, want one for the configured project and one for red", n)
	}
	for _, f := range lent {
		if err := backend.Dissociate(t.Context(), f.ID, f.PortID); err != nil {
			t.Fatal(err)
		}
	}
	if differ := look(); len(differ) != 1 || differ[0].Name != "reda" {
		t.Errorf("%v differ from the cloud, want reda, which has lost its floating IP", differ)
	}
}
