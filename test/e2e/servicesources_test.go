// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// stranger is a client outside of the cluster's subnets, on the network of the floating
// IPs.
func stranger(ctx context.Context, script string) (string, error) {
	return cluster.OnMachine(ctx, "ip", "netns", "exec", "kuryr-bed", "sh", "-c", script)
}

// strangersIP is the address by which endpoints see the stranger.
func strangersIP(t testing.TB) string {
	t.Helper()
	inside, _, _ := strings.Cut(os.Getenv("EXT_CIDR"), "/")
	inside = inside[:strings.LastIndex(inside, ".")+1] + "250"
	ip := must(stranger(t.Context(), "ip -o -4 route get "+inside+` | sed -n 's/.* src \([^ ]*\).*/\1/p'`))(t)
	if ip == "" {
		t.Fatalf("network namespace kuryr-bed has no address on the way to %s", inside)
	}
	return ip
}

// With services.sourceRangesBySecurityGroups a Service of OVN's provider is public for
// its source ranges and for the cluster's own subnets, and for nobody else; without, it
// is not public. Its security group goes with it.
func TestSourceRangesBySecurityGroups(t *testing.T) {
	if os.Getenv("KURYR_BED_KIND") == "sim" {
		t.Skip("SKIPPED: the bed's OpenStack is simulated, and filters no packets")
	}
	f := withServices(t)
	from := strangersIP(t)
	group := f.insideGroup(t)
	f.change(t, func(document map[string]any) { // pods that run keep what they have
		document["pods"].(map[string]any)["securityGroupIDs"] = []string{group}
	})
	t.Cleanup(func() { f.removePods(t) }) // or the group is in use
	pods := f.servers(t, "web", 2)
	inside, node := f.inPod(f.on(t, "n1", "inside")), f.byNode("n1")
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) {
		s.Type, s.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{from + "/32"}
	})
	f.closedWithout(t, svc, "services.sourceRangesBySecurityGroups")

	f.change(t, func(document map[string]any) {
		document["services"].(map[string]any)["sourceRangesBySecurityGroups"] = true
	})
	public := f.ingress(t, svc)
	fence := f.realised(t, svc).Status.SecurityGroupID
	f.haveGroups(t, pods, group, fence)
	asker(stranger).all(t, public, pods)
	node.all(t, public, pods)
	nobody(t, outside, get("http://"+public+"/hostname"))
	inside.all(t, svc.Spec.ClusterIP, pods)

	f.becomes(t, svc, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} })
	nobody(t, stranger, get("http://"+public+"/hostname"))
	for range 3 { // it stays so
		if out, err := stranger(t.Context(), get("http://"+public+"/hostname")); err == nil && !strings.Contains(out, "curl:") {
			t.Errorf("a client out of the ranges is answered %q", out)
		}
	}
	node.all(t, public, pods)
	inside.all(t, svc.Spec.ClusterIP, pods)
	if now := f.ingress(t, svc); now != public {
		t.Errorf("floating IP %s has become %s as the ranges changed", public, now)
	}

	f.becomes(t, svc, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = nil })
	asker(stranger).all(t, public, pods)

	if err := f.Client.Delete(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	f.goes(t, svc, fence)
	f.haveGroups(t, pods, group)
}

// closedWithout waits until a Service is said to have no floating IP for want of an
// option, and has none.
func (f *fixture) closedWithout(t testing.TB, svc *corev1.Service, option string) {
	t.Helper()
	klb := f.realised(t, svc)
	said := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionSupported)
	if said == nil || said.Status != metav1.ConditionFalse || !strings.Contains(said.Message, option) {
		t.Errorf("condition Supported of %s is %+v, want one that names %s", klb.Name, said, option)
	}
	if klb.Status.PublicIP != nil || klb.Status.SecurityGroupID != "" {
		t.Errorf("%s has floating IP %+v and group %q, want neither", klb.Name, klb.Status.PublicIP, klb.Status.SecurityGroupID)
	}
	f.shows(t, svc, func(ingress []corev1.LoadBalancerIngress) error {
		if len(ingress) > 0 {
			return fmt.Errorf("Service %s shows %+v", svc.Name, ingress)
		}
		return nil
	})
}

// insideGroup makes a security group that lets in what is inside, and nobody else. All
// pods can have it: they reach each other, and nodes them.
func (f *fixture) insideGroup(t testing.TB) string {
	t.Helper()
	group := f.closedGroup(t)
	for _, name := range []string{"POD_CIDR", "SERVICE_CIDR", "NODE_CIDR"} {
		if _, err := rules.Create(t.Context(), f.Neutron, rules.CreateOpts{
			SecGroupID: group, Direction: rules.DirIngress, EtherType: rules.EtherType4, RemoteIPPrefix: os.Getenv(name),
		}).Extract(); err != nil {
			t.Fatalf("letting in %s: %v", name, err)
		}
	}
	return group
}

// removePods deletes the test's pods.
func (f *fixture) removePods(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, kind := range []client.Object{&appsv1.Deployment{}, &corev1.Pod{}} {
		if err := f.Client.DeleteAllOf(ctx, kind, client.InNamespace(f.namespace), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Errorf("deleting the test's pods: %v", err)
		}
	}
}

// haveGroups waits until the ports of pods have just these groups.
func (f *fixture) haveGroups(t testing.TB, pods []*corev1.Pod, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() error {
		for _, pod := range pods {
			port, err := f.portOf(t, pod)
			if err != nil {
				return err
			}
			if got := slices.Sorted(slices.Values(port.SecurityGroups)); !slices.Equal(got, want) {
				return fmt.Errorf("the port of pod %s has groups %v, want %v", pod.Name, got, want)
			}
		}
		return nil
	})
}

// goes waits until neither a Service nor its KuryrLoadBalancer nor its security group is
// left.
func (f *fixture) goes(t testing.TB, svc *corev1.Service, group string) {
	t.Helper()
	eventually(t, func() error {
		for _, o := range []client.Object{&corev1.Service{}, &v1.KuryrLoadBalancer{}} {
			if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(svc), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s is still there: %w", o, svc.Name, errors.Join(errNotYet, err))
			}
		}
		if _, err := groups.Get(t.Context(), f.Neutron, group).Extract(); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			return fmt.Errorf("security group %s is still there: %w", group, errors.Join(errNotYet, err))
		}
		return nil
	})
}
