// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// TestWritesByStatus: the rights of the manifests allow no change of a pod's or a Service's spec.
// With them the controller annotates pods, and adds and removes its finalizers of Services. It
// takes over the fields that an earlier release has written through the objects themselves. In the
// end each field has one manager.
func TestWritesByStatus(t *testing.T) {
	o := newOlder(t)
	o.install()
	o.grant(everything)
	o.whole = true
	o.launch()
	pod := o.pod("web-0")
	o.bound(pod)
	o.eventually("the pod is annotated", func() bool { return o.annotation(pod) != "" })
	want := o.annotation(pod)
	o.annotateAsBefore(pod, "[]")
	o.eventually("the annotation is written again", func() bool { return o.annotation(pod) == want })
	if by := o.managersOf(pod, v1.VIFAnnotation); len(by) != 1 || by[0] != "kuryr-annotation of status" {
		t.Errorf("the annotation is managed by %q, want kuryr-annotation of status alone", by)
	}

	svc := o.service("web")
	if err := o.client.Patch(t.Context(), svc.DeepCopy(), mergePatch(t, map[string]any{
		"metadata": map[string]any{"finalizers": []string{v1.ServiceFinalizer}},
	}), kube.OwnerService); err != nil {
		t.Fatal(err)
	}
	other := o.service("other")
	for _, s := range []*corev1.Service{svc, other} {
		o.slice(s.Name, s.Name+"-1", "10.1.0.5")
		o.eventually("Service "+s.Name+" has a load balancer", func() bool {
			return len(o.now(s).Finalizers) == 1 && o.balancerOf(s.Name) != nil
		})
		if by := o.managersOf(s, v1.ServiceFinalizer); len(by) != 1 {
			t.Errorf("the finalizer of Service %s is managed by %q, want one", s.Name, by)
		}
	}
	for _, s := range []*corev1.Service{svc, other} {
		o.delete(s)
		o.eventually("Service "+s.Name+" is gone", func() bool { return o.now(s) == nil })
	}
	for _, q := range o.asked.about("pods/", "services/") {
		if verb, _, _ := strings.Cut(q, " "); verb != "GET" && !strings.HasSuffix(q, "/status") {
			t.Errorf("asked %s", q)
		}
	}
}

// annotateAsBefore annotates a pod like the releases that could patch pods.
func (o *older) annotateAsBefore(pod *corev1.Pod, value string) {
	o.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	u.SetNamespace(pod.Namespace)
	u.SetName(pod.Name)
	u.SetAnnotations(map[string]string{v1.VIFAnnotation: value})
	if err := o.client.Apply(o.t.Context(), client.ApplyConfigurationFromUnstructured(u), kube.OwnerAnnotation, client.ForceOwnership); err != nil {
		o.t.Fatal(err)
	}
}

// managersOf returns the managers of fields whose name contains word.
func (o *older) managersOf(obj client.Object, word string) (names []string) {
	o.t.Helper()
	now := obj.DeepCopyObject().(client.Object)
	if err := o.client.Get(o.t.Context(), client.ObjectKeyFromObject(obj), now); err != nil {
		o.t.Fatal(err)
	}
	for _, m := range now.GetManagedFields() {
		if m.FieldsV1 != nil && strings.Contains(m.FieldsV1.String(), word) {
			names = append(names, m.Manager+" of "+m.Subresource)
		}
	}
	return names
}
