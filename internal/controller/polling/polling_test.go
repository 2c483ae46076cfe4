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
