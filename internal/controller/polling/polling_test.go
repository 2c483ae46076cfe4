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

// TestMovesInALine: the load balancer that asked first is next. One that takes too long does not
// stop the others.
func TestMovesInALine(t *testing.T) {
	var m Turns
	now := time.Unix(0, 0)
	req := func(name string) ctrl.Request {
		return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: name}}
	}
	for _, step := range []struct {
		name  string
		after time.Duration
		want  bool
	}{
		{"a", 0, true}, {"a", 0, true}, {"b", 0, false}, {"c", 0, false}, {"b", time.Second, false},
		{"c", MovePatience, true}, // a has had its time
		{"b", MovePatience + time.Second, false},
	} {
		if got := m.Take(req(step.name), now.Add(step.after)); got != step.want {
			t.Errorf("take(%s) after %s = %v, want %v", step.name, step.after, got, step.want)
		}
	}
	if next, is := m.Done(req("a")); is {
		t.Errorf("done(a) = %s although it was no longer its turn", next)
	}
	if next, is := m.Done(req("c")); !is || next != req("b") {
		t.Errorf("done(c) = %s, %v, want b", next, is)
	}
	if !m.Take(req("b"), now) {
		t.Error("it is b's turn, and it does not get it")
	}
	if next, is := m.Done(req("b")); is {
		t.Errorf("done(b) = %s although nobody waits", next)
	}
}
