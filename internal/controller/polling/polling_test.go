// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package polling

import (
	"context"
	"slices"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestPartOfAList: a list that lacks the load balancers of a project wakes those that are done, and
// those that it does not show: their visits find out.
func TestPartOfAList(t *testing.T) {
	now, done := time.Unix(1000, 0), []string(nil)
	partial := &sdn.PartialError{Lacks: map[string]error{"red": sdn.ErrLogin}}
	list := func(context.Context) ([]sdn.LoadBalancerSummary, error) {
		return []sdn.LoadBalancerSummary{{ID: "done", Provisioning: sdn.ProvisioningActive}, {ID: "busy", Provisioning: sdn.ProvisioningCreating}}, partial
	}
	w := NewWaiter(list, func() time.Time { return now }, func(req ctrl.Request) { done = append(done, req.Name) })
	for _, id := range []string{"done", "busy", "red"} {
		w.Add(id, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: id}})
	}
	for range 2 {
		if err := w.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	slices.Sort(done)
	if want := []string{"done", "red"}; !slices.Equal(done, want) {
		t.Errorf("woken: %q, want %q", done, want)
	}
}

// TestTurnsInALine: the load balancer of a project that asked first is next. Projects do not wait for
// each other.
func TestTurnsInALine(t *testing.T) {
	var m Turns
	req := func(name string) ctrl.Request {
		return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: name}}
	}
	for _, step := range []struct {
		project, name string
		want          bool
	}{{"red", "a", true}, {"red", "a", true}, {"red", "b", false}, {"red", "c", false}, {"red", "d", false}, {"blue", "x", true}} {
		if got := m.Take(step.project, req(step.name)); got != step.want {
			t.Errorf("Take(%s, %s) = %v, want %v", step.project, step.name, got, step.want)
		}
	}
	for _, step := range []struct{ done, next string }{{"c", ""}, {"a", "b"}, {"b", "d"}, {"d", ""}, {"x", ""}} {
		if next, is := m.Done(req(step.done)); is != (step.next != "") || is && next != req(step.next) {
			t.Errorf("Done(%s) = %s, %v, want %q", step.done, next.Name, is, step.next)
		}
	}
	if len(m.all) != 0 {
		t.Errorf("after all are done Turns still has %v", m.all)
	}
}
