// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
)

// namespaced makes a namespace if there is none. It stays: nobody here would finish
// its deletion.
func namespaced(t *testing.T, name string) {
	t.Helper()
	apitest.Need(t)
	err := server.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func newService(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "tls", Port: 443}}},
	}
}

func newEndpoints(namespace, service string, ips ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}, {Name: new("tls"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8443))},
		},
	}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s
}

// Which Services are listed, and how one is named.
func TestServicesAreFound(t *testing.T) {
	namespaced(t, "found-a")
	namespaced(t, "found-b")
	if out, err := kuryr(t, "services", "list", "-n", "found-a"); err != nil || !strings.Contains(out, "There are no Services in namespace found-a") {
		t.Errorf("list without Services: %q, %v", out, err)
	}
	create(t, newService("found-a", "web"))
	create(t, newService("found-a", "shop"))
	create(t, newService("found-b", "api"))
	create(t, newEndpoints("found-b", "api", "10.1.0.1"))
	out, err := kuryr(t, "services", "list", "-n", "found-a", "-o", "name")
	if want := "service/shop\nservice/web\n"; err != nil || out != want {
		t.Errorf("list -o name: %q, %v, want %q", out, err, want)
	}
	out, err = kuryr(t, "services", "list", "-A")
	for _, want := range []string{"NAMESPACE", "found-a     shop ", "found-b     api ", "NotPlanned"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("list -A does not say %q: %v\n%s", want, err, out)
		}
	}
	for _, args := range [][]string{{"found-b/api"}, {"api", "-n", "found-b"}, {"service/api", "-n", "found-b"}, {"svc/api", "-n", "found-b"}, {"klb/api", "-n", "found-b"}} {
		out, err := kuryr(t, append([]string{"services", "show"}, args...)...)
		if err != nil || !strings.Contains(out, "found-b/api\n") || !strings.Contains(out, "services.subnetIDs") {
			t.Errorf("show %v: %v\n%s", args, err, out)
		}
	}
	for name, want := range map[string]string{
		"api":   "there is no Service default/api; 'kubectl kuryr services list -A' lists the existing ones",
		"a/b/c": "write NAME or NAMESPACE/NAME",
		"pod/":  "write NAME or NAMESPACE/NAME",
	} {
		if out, err := kuryr(t, "services", "show", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("show %s: %q, %v, want %q", name, out, err, want)
		}
	}
	out, err = kuryr(t, cobra.ShellCompRequestCmd, "--kubeconfig", kubeconfig, "-n", "found-a", "services", "show", "")
	if err != nil || !strings.Contains(out, "shop\nweb\n") {
		t.Errorf("completion of Services: %v\n%s", err, out)
	}
	if out, err := kuryr(t, "services", "list", "-o", "csv"); err == nil {
		t.Errorf("list -o csv: %q, want an error", out)
	}
}

// With a real controller: what the cloud has for a Service is told, and what its
// planner says; and what is missing as long as somebody else has taken it away.
func TestServicesOfAController(t *testing.T) {
	apitest.Need(t)
	t.Cleanup(func() { leave(t) })
	cloud := startController(t, true)
	namespaced(t, "live")
	web := newService("live", "web")
	web.Spec.Type = corev1.ServiceTypeLoadBalancer
	web.Annotations = map[string]string{"loadbalancer.openstack.org/connection-limits": "5"}
	create(t, web)
	create(t, newEndpoints("live", "web", "10.1.0.11", "10.1.0.12"))
	var klb v1.KuryrLoadBalancer
	eventually(t, "the Service is in the cloud, and its planner has spoken", func() bool {
		key := client.ObjectKeyFromObject(web)
		return server.Get(t.Context(), key, web) == nil && len(web.Status.Conditions) > 0 && server.Get(t.Context(), key, &klb) == nil &&
			meta.IsStatusConditionTrue(klb.Status.Conditions, v1.ConditionReady) && klb.Status.PublicIP != nil && len(klb.Status.Members) == 4
	})
	out, err := kuryr(t, "services", "list", "-n", "live")
	for _, want := range []string{"web ", "LoadBalancer", klb.Status.PublicIP.IP, "ACTIVE", "4/4", "Ready,UnknownAnnotation"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("list does not say %q: %v\n%s", want, err, out)
		}
	}
	eventually(t, "all is shown", func() bool {
		out, err = kuryr(t, "services", "show", "live/web")
		return err == nil && strings.Contains(out, "UnknownAnnotation   service/live/web")
	})
	for _, want := range []string{
		"4/4 in sync", "connection-limit", klb.Status.LoadBalancers[0].ID, klb.Status.Members[0].ID, klb.Status.PublicIP.ID,
		"TCP:443", "10.1.0.12:8443",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("show does not say %q:\n%s", want, out)
		}
	}
	if n := len(cloud.LoadBalancers()); n != 2 {
		t.Errorf("the cloud has %d load balancers, want those of web and of default/kubernetes", n)
	}
	misses(t, web)
}

// misses shows a Service whose new ports the cloud does not have: its provider takes
// no SCTP.
func misses(t *testing.T, web *corev1.Service) {
	t.Helper()
	sctp := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ports":[{"name":"http","port":80},{"name":"s","port":7,"protocol":"SCTP"}]}}`))
	if err := server.Patch(t.Context(), web, sctp); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(regexp.QuoteMeta(web.Spec.ClusterIP) + ` +SCTP:7 +s +missing`)
	var out string
	var err error
	eventually(t, "what is missing is shown: "+want.String(), func() bool {
		out, err = kuryr(t, "services", "show", "live/web")
		return err == nil && want.MatchString(out)
	})
}

// leave takes the finalizers off what is left, which nobody else does once the
// controller has ended.
func leave(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	for key, o := range map[client.ObjectKey][]client.Object{
		{Namespace: "live", Name: "web"}:           {&corev1.Service{}, &v1.KuryrLoadBalancer{}},
		{Namespace: "default", Name: "kubernetes"}: {&corev1.Service{}, &v1.KuryrLoadBalancer{}},
	} {
		for i := range o {
			o[i].SetNamespace(key.Namespace)
			o[i].SetName(key.Name)
			if err := client.IgnoreNotFound(server.Patch(ctx, o[i], free)); err != nil {
				t.Error(err)
			}
		}
		if err := client.IgnoreNotFound(server.Delete(ctx, o[1])); err != nil {
			t.Error(err)
		}
	}
}

// That the API server does not know KuryrLoadBalancers is said for people.
func TestServicesWithoutTheirKind(t *testing.T) {
	gone := fmt.Errorf("listing: %w", &meta.NoKindMatchError{})
	if err := explain("listing KuryrLoadBalancers", gone); !strings.Contains(err.Error(), "an older one is") {
		t.Errorf("explain: %v", err)
	}
}
