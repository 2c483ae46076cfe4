// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/test/cluster"
)

const steady = 3 // Services that are there all the time, while their pods come and go

// outageLabel marks the namespaces that come and go.
var outageLabel = map[string]string{"kuryr-e2e": "outage"}

// prepare leaves the test with Services that answer, two pods of cluster DNS, and a pod
// that asks them.
func (o *outage) prepare() {
	o.t.Helper()
	if err := o.Client.DeleteAllOf(o.t.Context(), &corev1.Namespace{}, client.MatchingLabels(outageLabel)); err != nil {
		var left corev1.NamespaceList // the API server deletes namespaces one by one only
		if err := o.Client.List(o.t.Context(), &left, client.MatchingLabels(outageLabel)); err != nil {
			o.t.Fatal(err)
		}
		for i := range left.Items {
			_ = o.Client.Delete(o.t.Context(), &left.Items[i])
		}
	}
	o.scale("kube-system", "coredns", 2)
	o.t.Cleanup(func() { o.scale("kube-system", "coredns", 1) })
	from := o.inPod(o.on(o.t, "n1", "client"))
	for i := range steady {
		name := fmt.Sprintf("steady-%d", i)
		pods := o.servers(o.t, name, 2)
		svc := o.service(o.t, name, func(s *corev1.ServiceSpec) {
			if i == 0 {
				s.Type = corev1.ServiceTypeLoadBalancer
			}
		})
		from.all(o.t, svc.Spec.ClusterIP, pods)
	}
}

// scale has a deployment of so many pods; nobody waits for them.
func (o *outage) scale(namespace, name string, replicas int) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, replicas))
	if err := o.Client.Patch(context.WithoutCancel(o.t.Context()), d, patch); err != nil {
		o.t.Errorf("scaling deployment %s/%s: %v", namespace, name, err)
	}
}

// rollPods changes the number of the steady Services' pods, and deletes one now and then.
// What fails is tried again: the API server may be what is away.
func (o *outage) rollPods(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("steady-%d", rand.IntN(steady))
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, 1+rand.IntN(4)))
		_ = o.Client.Patch(ctx, d, patch)
		pause(ctx, 2*time.Second)
		var pods corev1.PodList
		if o.Client.List(ctx, &pods, client.InNamespace(o.namespace), client.MatchingLabels{"app": name}) == nil && len(pods.Items) > 0 {
			_ = o.Client.Delete(ctx, &pods.Items[rand.IntN(len(pods.Items))])
		}
		pause(ctx, 2*time.Second)
	}
}

// namespaces has one after the other, each with a deployment and a Service, which go with
// it. Two of those that are to go may still be there when the next one comes.
func (o *outage) namespaces(ctx context.Context, slot int) {
	var leaving []string
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("outage-%d-%d-%d", slot, n, rand.IntN(1_000_000))
		for o.makeNamespace(ctx, name) != nil && ctx.Err() == nil {
			pause(ctx, time.Second)
		}
		pause(ctx, time.Duration(5+rand.IntN(15))*time.Second)
		leaving = append(leaving, name)
		for leaving = o.leave(leaving); len(leaving) > 2 && ctx.Err() == nil; leaving = o.leave(leaving) {
			pause(ctx, time.Second)
		}
	}
	for end := time.Now().Add(patience); time.Now().Before(end); pause(o.t.Context(), time.Second) {
		o.leave(leaving)
		if !slices.ContainsFunc(leaving, func(name string) bool { return !o.asked(name) }) {
			return
		}
	}
}

// leave asks for the deletion of namespaces, and returns those that are still there.
func (o *outage) leave(names []string) (left []string) {
	for _, name := range names {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := o.Client.Delete(o.t.Context(), namespace); !apierrors.IsNotFound(err) {
			left = append(left, name)
		}
	}
	return left
}

// asked reports whether a namespace is being deleted, or gone.
func (o *outage) asked(name string) bool {
	namespace := &corev1.Namespace{}
	err := o.Client.Get(o.t.Context(), client.ObjectKey{Name: name}, namespace)
	return apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil
}

func (o *outage) makeNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: outageLabel}}
	labels := map[string]string{"app": "web"}
	replicas := int32(2)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: cluster.Template(labels, ""),
	}}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
	}}
	var err error
	for _, object := range []client.Object{namespace, d, svc} {
		err = errors.Join(err, client.IgnoreAlreadyExists(o.Client.Create(ctx, object)))
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
