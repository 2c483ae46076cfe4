// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ahead is a clock that is ahead of the real one.
type ahead struct{ by time.Duration }

func (a ahead) Now() time.Time                  { return time.Now().Add(a.by) }
func (a ahead) Since(t time.Time) time.Duration { return a.Now().Sub(t) }

// selected is a Service whose port has a name, and whose EndpointSlices Kubernetes makes.
func selected(svc *corev1.Service) {
	svc.Spec.Selector, svc.Spec.Ports = map[string]string{"app": "web"}, []corev1.ServicePort{{Name: "http", Port: 80}}
}

// ofKubernetes makes an EndpointSlice one of Kubernetes' controller for a Service of that UID.
func ofKubernetes(s *discoveryv1.EndpointSlice, uid types.UID) *discoveryv1.EndpointSlice {
	s.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: uid, Controller: new(true)}}
	s.Ports[0].Name = new("http")
	return s
}

func portNamed(name string) map[string]any {
	return map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"name": name, "port": 80, "protocol": "TCP", "targetPort": 80}}}}
}

func slicePortNamed(name string) map[string]any {
	return map[string]any{"ports": []any{map[string]any{"name": name, "port": 8080, "protocol": "TCP"}}}
}

// plannedName waits until the plan of web has a port of that name.
func (b *serviceBed) plannedName(name string) {
	b.t.Helper()
	b.eventually("the port is planned as "+name, func() bool { return b.balancerOf("web").Spec.Listeners[0].Name == name })
}

// TestServicePortRenamed: a port of a Service gets another name, and the EndpointSlice follows later.
// The members stay meanwhile, also over a restart of the controller. An endpoint that leaves the
// EndpointSlice is removed nevertheless.
func TestServicePortRenamed(t *testing.T) {
	b := newServiceBed(t)
	b.clock = ahead{time.Hour} // Kubernetes' controller may need that long
	b.launch()
	svc := b.service("web", selected)
	s := ofKubernetes(newSlice("web", "web-1", "10.1.0.5", "10.1.0.6", "10.1.0.7"), svc.UID)
	b.create(s)
	b.members("web", "10.1.0.5", "10.1.0.6", "10.1.0.7")
	b.patch(svc, portNamed("web"))
	b.plannedName("web")
	b.members("web", "10.1.0.5", "10.1.0.6", "10.1.0.7")
	b.stop()
	b.launch()
	b.patch(s, map[string]any{"endpoints": endpointsAt("10.1.0.5", "10.1.0.6")})
	b.members("web", "10.1.0.5", "10.1.0.6")
	b.patch(s, slicePortNamed("web"))
	b.patch(s, map[string]any{"endpoints": endpointsAt("10.1.0.5", "10.1.0.8")})
	b.members("web", "10.1.0.5", "10.1.0.8")
	if c := b.planned(svc); c != nil {
		t.Errorf("the Service has the condition %+v, want none", c)
	}
}

// TestServicePortRenamedByAPerson: the port of a hand-written EndpointSlice does not follow. Its
// endpoints stay members for a minute. Then the Service reports the name, without another event.
func TestServicePortRenamedByAPerson(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web", func(svc *corev1.Service) { svc.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}} })
	s := newSlice("web", "web-1", "10.1.0.5")
	s.Ports[0].Name = new("http")
	b.create(s)
	b.members("web", "10.1.0.5")
	b.patch(svc, portNamed("web"))
	b.plannedName("web")
	b.members("web", "10.1.0.5")
	b.stop()
	b.clock = ahead{58 * time.Second}
	b.launch()
	b.members("web")
	b.eventually("it is reported", func() bool { return b.planned(svc) != nil })
	b.mentions("the condition", b.planned(svc).Message, `EndpointSlice web-1`, `"http" (TCP)`)
	b.patch(s, slicePortNamed("web"))
	b.members("web", "10.1.0.5")
	b.eventually("nothing is reported any more", func() bool { return b.planned(svc) == nil })
}

// TestSliceOfEarlierService: an EndpointSlice of a deleted Service gives its endpoints to no new
// Service of the same name.
func TestSliceOfEarlierService(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	b.create(ofKubernetes(newSlice("web", "web-old", "10.1.0.5"), "earlier"))
	svc := b.service("web", selected)
	b.create(ofKubernetes(newSlice("web", "web-new", "10.1.0.6"), svc.UID))
	b.members("web", "10.1.0.6")
}
