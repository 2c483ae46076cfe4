// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestListsWithAnUntagged: as long as a load balancer has lost its tags, and takes none,
// as it is busy or in ERROR, it is read by itself: the lists stay those of the cluster,
// and show it, and that it has gone.
func TestListsWithAnUntagged(t *testing.T) {
	f := newFront(t)
	r := f.services(t)
	target := r.target(t, "ovn")
	b, ctx := target.Backend, t.Context()
	var whole atomic.Int64
	f.before = func(_ http.ResponseWriter, r *http.Request, _ object) bool {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/lbaas/loadbalancers") && !r.URL.Query().Has("tags") {
			whole.Add(1)
		}
		return false
	}
	list := func() map[string]sdn.LoadBalancerSummary {
		t.Helper()
		all, err := b.ListLoadBalancers(ctx)
		must(t, err)
		out := map[string]sdn.LoadBalancerSummary{}
		for _, s := range all {
			out[s.ID] = s
		}
		return out
	}
	first, err := b.CreateLoadBalancer(ctx, serviceOwner, balanced(target, "10.252.0.200", 1, 1))
	must(t, err)
	second, err := b.CreateLoadBalancer(ctx, serviceOwner, balanced(target, "10.252.0.201", 1, 1))
	must(t, err)
	list()
	if !target.Cloud.LoseTags(t, first.ID) {
		t.Fatal("the simulator has no tags")
	}
	list() // which sees that one is missing
	whole.Store(0)
	for range 5 {
		if got := list()[first.ID]; got.Owner != serviceOwner || got.Provisioning == "" {
			t.Errorf("the list shows %+v of a load balancer without tags", got)
		}
	}
	if n := whole.Load(); n > 0 {
		t.Errorf("%d lists of all load balancers of the cloud, want none", n)
	}
	sick := f.before
	f.before = func(w http.ResponseWriter, r *http.Request, o object) bool {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/lbaas/loadbalancers/"+first.ID) {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		return sick(w, r, o)
	}
	if got := list(); got[first.ID].Owner != serviceOwner || got[second.ID].Owner != serviceOwner {
		t.Errorf("when one cannot be read by itself the list shows %+v", got)
	}
	f.before = sick
	if err := b.DeleteLoadBalancer(ctx, first.ID); !errors.As(err, new(*sdn.PendingError)) {
		t.Errorf("DeleteLoadBalancer: %v, want a PendingError", err)
	}
	for all := list(); len(all) != 1 || all[second.ID].ID == ""; all = list() {
		time.Sleep(time.Millisecond)
	}
	must(t, r.sweepBalancers(ctx))
	for len(list()) > 0 {
		time.Sleep(time.Millisecond)
	}
}
