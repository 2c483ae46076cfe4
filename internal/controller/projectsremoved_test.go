// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// toldPod reports whether an Event on a pod has a reason and a word.
func (b *netBed) toldPod(pod *corev1.Pod, reason, word string) bool {
	var list eventsv1.EventList
	if err := b.client.List(b.t.Context(), &list, client.InNamespace(pod.Namespace)); err != nil {
		b.t.Fatal(err)
	}
	return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.UID == pod.UID && e.Reason == reason && hasWords(e.Note, word)
	})
}

// makeTenant creates a namespace of tenant red, by a label.
func (b *netBed) makeTenant(name string, annotations map[string]string) {
	b.t.Helper()
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"tenant": "red"}}})
}

// A namespace whose project the configuration does not list any more is not in the common project,
// also if the configuration lists none at all, and also after a restart: pods of one that names the
// project wait, and pods of one that a label put there stay where the others of the namespace are.
func TestAProjectThatIsRemoved(t *testing.T) {
	for name, left := range map[string][]config.Project{"one of two": {{ProjectID: "blue-project"}}, "the only one": nil} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %t", name, restart), func(t *testing.T) {
				b := newNetBed(t, "shared", func(s *settings.Settings) {
					s.Projects = append([]config.Project{{ProjectID: "red-project", NamespaceSelector: labelled("tenant", "red")}}, left...)
				})
				b.start()
				named, selected := b.namespace, b.namespace+"-selected"
				b.makeNamespace(named, map[string]string{v1.ProjectAnnotation: "red-project"})
				b.makeTenant(selected, nil)
				for _, namespace := range []string{named, selected} {
					if port := b.bound(b.pod("first", inNamespace(namespace))); port.Spec.ProjectID != "red-project" {
						t.Fatalf("the first pod of %s is in project %q, want red-project", namespace, port.Spec.ProjectID)
					}
				}
				if restart {
					b.stop()
				}
				b.set(func(s *settings.Settings) { s.Projects = left })
				if restart {
					b.start()
				}
				second := b.pod("second", inNamespace(named))
				if port := b.bound(b.pod("second", inNamespace(selected))); port.Spec.ProjectID != "red-project" {
					t.Errorf("the second pod of the selected namespace is in project %q, want that of the first, red-project", port.Spec.ProjectID)
				}
				b.eventually("the pod says why it waits", func() bool { return b.toldPod(second, v1.ReasonNotAllowed, "red-project") })
				if port := b.portOf(second); port != nil {
					t.Errorf("the second pod of the namespace that names red-project has a port in project %q, want none", port.Spec.ProjectID)
				}
				other := b.namespace + "-other"
				b.makeNamespace(other, nil)
				b.bound(b.pod("first", inNamespace(other)))
			})
		}
	}
}

// A namespace that names a project or a network gets no port in a cluster whose configuration never
// listed any, until the annotation is corrected.
func TestAnAnnotationWithoutProjectsAndNetworks(t *testing.T) {
	for _, annotation := range []string{v1.ProjectAnnotation, v1.NetworkAnnotation} {
		t.Run(annotation, func(t *testing.T) {
			b := newNetBed(t, "shared")
			b.start()
			b.makeNamespace(b.namespace, map[string]string{annotation: "foreign"})
			pod := b.pod("first", inNamespace(b.namespace))
			b.eventually("the pod says why it waits", func() bool { return b.toldPod(pod, v1.ReasonNotAllowed, annotation) })
			if port := b.portOf(pod); port != nil {
				t.Errorf("the pod has a port in network %s, want none", port.Spec.NetworkID)
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, annotation)
			if err := b.client.Patch(t.Context(), namespaceOf(b.namespace), client.RawPatch(types.MergePatchType, patch)); err != nil {
				t.Fatal(err)
			}
			b.bound(pod)
		})
	}
}

// A Service of a namespace whose project the configuration does not list any more gets no load
// balancer in the common project.
func TestServicesOfARemovedProject(t *testing.T) {
	b := tenantBed(t)
	b.tenant("svc-red", red)
	b.served(b.serviceIn("svc-red", "web"))
	b.current.Projects = nil
	b.settings.Set(b.current)
	later := b.serviceIn("svc-red", "later")
	b.eventually("the Service says why it waits", func() bool {
		c := b.planned(later)
		return c != nil && c.Reason == v1.ReasonNotAllowed && hasWords(c.Message, v1.ProjectAnnotation, red)
	})
	if got, want := b.inProjects(), []string{"balancer svc-red/web d"}; !slices.Equal(got, want) {
		t.Errorf("the cloud has %q, want %q", got, want)
	}
}
