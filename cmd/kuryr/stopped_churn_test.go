// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
)

// churn makes and deletes pods and Services until ctx ends, and plugs ports as the daemons do.
func (b *stopBed) churn(ctx context.Context, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	for n := 0; kube.Pause(ctx, 100*time.Millisecond); n++ {
		b.tryTo(b.changePods(n, rng))
		if n%8 == 0 {
			b.tryTo(b.changeServices(n, rng))
		}
		b.tryTo(b.plug())
	}
}

func (b *stopBed) tryTo(err error) {
	if err != nil && b.t.Context().Err() == nil {
		b.fault("the test's own change: %v", err)
	}
}

// changePods makes or deletes a pod.
func (b *stopBed) changePods(n int, rng *rand.Rand) error {
	var pods corev1.PodList
	if err := b.client.List(b.t.Context(), &pods); err != nil {
		return err
	}
	if len(pods.Items) > 4+rng.IntN(20) {
		return b.client.Delete(b.t.Context(), &pods.Items[rng.IntN(len(pods.Items))], client.GracePeriodSeconds(0))
	}
	return b.client.Create(b.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", n)},
		Spec:       corev1.PodSpec{NodeName: fmt.Sprint("n", rng.IntN(nodes)), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
}

// changeServices makes, changes or deletes a Service.
func (b *stopBed) changeServices(n int, rng *rand.Rand) error {
	namespace := client.InNamespace(fmt.Sprint("s", rng.IntN(namespaces)))
	var list corev1.ServiceList
	if err := b.client.List(b.t.Context(), &list, namespace); err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(s corev1.Service) bool { return !s.DeletionTimestamp.IsZero() })
	if len(list.Items) < 2 {
		return b.makeService(string(namespace), fmt.Sprint("s", n))
	}
	s := &list.Items[rng.IntN(len(list.Items))]
	if rng.IntN(3) == 0 {
		return b.client.Delete(b.t.Context(), s)
	}
	patch := fmt.Sprintf(`{"spec":{"ports":[{"port":%d,"protocol":"TCP"}]}}`, 80+n)
	return b.client.Patch(b.t.Context(), s, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// makeService makes a Service, and what says where its endpoint is.
func (b *stopBed) makeService(namespace, name string) error {
	return errors.Join(
		b.client.Create(b.t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}),
		b.client.Create(b.t.Context(), &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.255.9"}}},
			Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
		}))
}

// plug says what the daemons would: ports of pods that live are plugged, one a pod, and others are not.
func (b *stopBed) plug() error {
	var pods corev1.PodList
	var ports v1.KuryrPortList
	if err := b.client.List(b.t.Context(), &ports); err != nil {
		return err
	}
	if err := b.client.List(b.t.Context(), &pods); err != nil {
		return err
	}
	wants := map[types.UID]bool{}
	for i := range pods.Items {
		wants[pods.Items[i].UID] = true
	}
	for i := range ports.Items {
		p := &ports.Items[i]
		if p.Status.Attachment != nil && p.Spec.PodRef != nil && wants[p.Spec.PodRef.UID] {
			delete(wants, p.Spec.PodRef.UID)
			continue
		}
		at := "null"
		switch {
		case p.Status.Attachment != nil:
		case p.Spec.PodRef != nil && p.Status.Phase == v1.PortBound && wants[p.Spec.PodRef.UID]:
			delete(wants, p.Spec.PodRef.UID)
			at = `{"containerID":"c","interface":"eth0","since":"2026-01-01T00:00:00Z"}`
		default:
			continue
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"attachment":`+at+`}}`))
		if err := b.client.Status().Patch(b.t.Context(), p, patch, client.FieldOwner("kuryr-daemon")); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// inCloudOf returns the IDs of what Neutron or Octavia has of a kind.
func (b *stopBed) inCloudOf(kind, query string) (ids []string) {
	path := "/networking/v2.0/" + kind
	if strings.HasPrefix(kind, "lbaas/") {
		path = "/load-balancer/v2/" + kind
	}
	var list map[string][]struct{ ID string }
	b.ask(http.MethodGet, path+"?fields=id&"+query, nil, &list)
	for _, found := range list {
		for _, f := range found {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// unevenServices returns what is not at rest: each Service has one load balancer, which is ready.
func (b *stopBed) unevenServices() (out []string) {
	var services corev1.ServiceList
	var balancers v1.KuryrLoadBalancerList
	b.must(b.client.List(b.t.Context(), &services))
	b.must(b.client.List(b.t.Context(), &balancers))
	named := map[string]bool{}
	for i := range balancers.Items {
		klb := &balancers.Items[i]
		if !balancer.IsReady(klb) || !klb.DeletionTimestamp.IsZero() {
			out = append(out, fmt.Sprintf("KuryrLoadBalancer %s/%s is not ready", klb.Namespace, klb.Name))
		}
		for _, id := range balancer.Named(klb) {
			named[id] = true
		}
	}
	if there := b.inCloudOf("lbaas/loadbalancers", ""); len(there) != len(named) {
		out = append(out, fmt.Sprintf("%d load balancers in the cloud, and status names %d", len(there), len(named)))
	}
	n := 0
	for i := range services.Items {
		if strings.HasPrefix(services.Items[i].Namespace, "s") {
			n++
		}
	}
	if n > len(balancers.Items) {
		out = append(out, fmt.Sprintf("%d Services, and %d KuryrLoadBalancers", n, len(balancers.Items)))
	}
	return out
}
