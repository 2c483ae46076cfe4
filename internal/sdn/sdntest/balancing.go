// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"context"
	"errors"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// balancing makes each call about load balancers and returns the errors.
func (f services) balancing(ctx context.Context) map[string]error {
	return map[string]error{
		"Features":           second(f.Backend.Features(ctx, f.Provider)),
		"CreateLoadBalancer": second(f.Backend.CreateLoadBalancer(ctx, f.owner, f.wanted())),
		"LoadBalancer":       second(f.Backend.LoadBalancer(ctx, MissingID)),
		"ListLoadBalancers":  second(f.Backend.ListLoadBalancers(ctx)),
		"MarkLoadBalancer":   f.Backend.MarkLoadBalancer(ctx, MissingID, f.owner),
		"DeleteLoadBalancer": f.Backend.DeleteLoadBalancer(ctx, MissingID),
		"FailOver":           f.Backend.FailOver(ctx, MissingID),
		"CreateListener":     second(f.Backend.CreateListener(ctx, MissingID, f.listener("TCP", 80, 0))),
		"UpdateListener":     f.Backend.UpdateListener(ctx, MissingID, MissingID, sdn.Listener{Protocol: "TCP"}),
		"DeleteListener":     f.Backend.DeleteListener(ctx, MissingID, MissingID),
		"CreatePool":         second(f.Backend.CreatePool(ctx, MissingID, MissingID, sdn.Pool{})),
		"UpdatePool":         f.Backend.UpdatePool(ctx, MissingID, MissingID, sdn.Pool{}),
		"DeletePool":         f.Backend.DeletePool(ctx, MissingID, MissingID),
		"ChangeMembers":      f.Backend.ChangeMembers(ctx, MissingID, MissingID, []sdn.Member{f.member(1)}, nil),
	}
}

// firstOfAll makes the load balancer from which the backend learns the default provider. It
// returns the features of that provider.
func (f services) firstOfAll() sdn.Features {
	f.t.Helper()
	made, err := f.tryBalancer(f.wanted(f.listener("TCP", 80, 1)))
	if err != nil || made.Provider == "" || len(made.Listeners) != 0 {
		f.t.Fatalf("CreateLoadBalancer while the default provider is not known = %+v, %v; want a bare one and its provider", made, err)
	}
	f.must("DeleteLoadBalancer", func() error { return f.Backend.DeleteLoadBalancer(f.ctx(), made.ID) })
	features, err := f.Backend.Features(f.ctx(), "")
	if err != nil || features.Unsure || features.Provider != made.Provider {
		f.t.Fatalf("Features after a load balancer of provider %s was made without naming one = %+v, %v", made.Provider, features, err)
	}
	return features
}

// noLoadBalancers checks that a cloud without load balancers differs from an unavailable one.
// Callers that wait for the deletion of a load balancer then stop waiting.
func noLoadBalancers(t *testing.T, f services) {
	if f.Without == nil {
		t.Skip("there is no cloud without load balancers at hand")
	}
	f.Backend = f.Without(t)
	for call, err := range f.balancing(f.ctx()) {
		if !errors.Is(err, sdn.ErrNoService) || !errors.Is(err, sdn.ErrUnsupported) || errors.Is(err, sdn.ErrUnavailable) {
			t.Errorf("%s of a cloud without load balancers: %v, want ErrNoService", call, err)
		}
	}
}

func servicesCancelled(t *testing.T, f services) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	calls := f.balancing(ctx)
	delete(calls, "Features") // its answer may be known already
	for call, err := range map[string]error{
		"CreateFloatingIP": second(f.Backend.CreateFloatingIP(ctx, f.owner, f.floatingRequest(""))),
		"ListFloatingIPs":  second(f.Backend.ListFloatingIPs(ctx, f.ProjectID)),
		"Associate":        f.Backend.Associate(ctx, MissingID, MissingID),
		"Dissociate":       f.Backend.Dissociate(ctx, MissingID, MissingID),
		"DeleteFloatingIP": f.Backend.DeleteFloatingIP(ctx, MissingID, ""),
		"Subnet":           second(f.Backend.Subnet(ctx, f.Subnet.ID)),
	} {
		calls[call] = err
	}
	for call, err := range calls {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v, want context.Canceled", call, err)
		}
	}
	if got := f.mine(); len(got) != 0 {
		t.Errorf("cancelled calls have left %d load balancers", len(got))
	}
}

// balancerTagsAreLost simulates a person's script that replaces all tags by its own.
func balancerTagsAreLost(t *testing.T, f services) {
	lb := f.balancer(f.wanted(f.listener("TCP", 80, 1)))
	if !f.Cloud.LoseTags(t, lb.ID) {
		t.Skip("load balancers of this cloud have no tags")
	}
	for what, b := range map[string]Services{"the same process": f.Backend, "another one": f.Fresh(t)} {
		if got, ok := f.listed(b)[lb.ID]; !ok || got.Owner != f.owner {
			t.Errorf("ListLoadBalancers of %s shows %+v (%t), want it with its owner", what, got, ok)
		}
		got, err := b.LoadBalancer(f.ctx(), lb.ID)
		if err != nil || got.Owner != f.owner || !got.Unmarked || len(got.Listeners) != 1 {
			t.Errorf("LoadBalancer of %s = %+v, %v; want it Unmarked, with its owner", what, got, err)
		}
	}
	if err := f.Other.MarkLoadBalancer(f.ctx(), lb.ID, f.owner); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("MarkLoadBalancer of another cluster: %v, want ErrNotFound", err)
	}
	for range 2 {
		f.must("MarkLoadBalancer", func() error { return f.Backend.MarkLoadBalancer(f.ctx(), lb.ID, f.owner) })
	}
	if got := f.active(lb.ID); got.Unmarked || got.Owner != f.owner {
		t.Errorf("LoadBalancer after MarkLoadBalancer = %+v", got)
	}
	f.Cloud.LoseTags(t, lb.ID)
	f.must("DeleteLoadBalancer", func() error { return f.Backend.DeleteLoadBalancer(f.ctx(), lb.ID) })
	if _, ok := f.listed(f.Backend)[lb.ID]; ok {
		t.Error("it is there after DeleteLoadBalancer")
	}
}
