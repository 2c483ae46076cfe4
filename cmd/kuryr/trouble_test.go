// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kuryr-go/kuryr/internal/controller"
)

func apiServer(t *testing.T) client.Client {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("SKIPPED: needs kube-apiserver and etcd in the folder that KUBEBUILDER_ASSETS names; 'make envtest' builds them and says so")
	}
	env := &envtest.Environment{}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each faulty file becomes an Event of its own on the controller's pod, which
// the API server takes however much there is to say.
func TestRefusalIsAnEventOnThePod(t *testing.T) {
	c := apiServer(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kuryr-controller-1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	var complaints []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { complaints = append(complaints, args) }, funcr.Options{}))
	faults := []string{"line 8: pools.min: min 3 is above max 2", "line 9: " + strings.Repeat("ü", 600) + "!"}
	for _, fault := range faults {
		tellPod(ctx, c, configurationRefused, errors.New(fault)) // in no pod
	}
	t.Setenv("POD_NAMESPACE", pod.Namespace)
	t.Setenv("POD_NAME", pod.Name)
	for _, fault := range faults {
		tellPod(ctx, c, configurationRefused, errors.New(fault))
	}
	tellPod(ctx, c, servicesNotServed, errors.New("the controller may not list services"))
	if len(complaints) > 0 {
		t.Errorf("tellPod logged %q", complaints)
	}
	var list eventsv1.EventList
	if err := c.List(t.Context(), &list, client.InNamespace(pod.Namespace)); err != nil {
		t.Fatal(err)
	}
	var notes []string
	var others []string
	for _, e := range list.Items {
		if e.Reason == "ServicesNotServed" {
			others = append(others, e.Note)
		}
		if e.Reason != "ConfigurationRefused" {
			continue
		}
		if notes = append(notes, e.Note); e.Regarding.UID != pod.UID || e.Type != corev1.EventTypeWarning {
			t.Errorf("Event of type %s on %v, want a Warning on %s", e.Type, e.Regarding, pod.UID)
		}
	}
	if len(others) != 1 || others[0] != "the controller may not list services" {
		t.Errorf("Events of Services that are not served: %q", others)
	}
	if len(notes) != len(faults) {
		t.Fatalf("%d Events, want %d: %q", len(notes), len(faults), notes)
	}
	for _, says := range []string{"min 3 is above max 2", "line 9: ü"} {
		if !strings.Contains(strings.Join(notes, "\n"), says) {
			t.Errorf("Events %q do not say %q", notes, says)
		}
	}
}
