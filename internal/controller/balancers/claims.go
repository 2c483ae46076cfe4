// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"maps"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
)

// before returns the KuryrLoadBalancer, as namespace/name, that comes before another for
// the floating IP that it asks for by its address; empty if none does.
func (r *Reconciler) before(ctx context.Context, klb *v1.KuryrLoadBalancer) (string, error) {
	if klb.Spec.PublicIP == nil || klb.Spec.PublicIP.Address == "" {
		return "", nil
	}
	all, err := kube.LoadBalancers(ctx, r.client)
	if err != nil {
		return "", err
	}
	first := balancer.Before(klb, slices.Collect(maps.Values(all)), func(o *v1.KuryrLoadBalancer) bool {
		return r.held.Has(o, klb.Spec.PublicIP.Address)
	})
	if first == nil {
		return "", nil
	}
	return first.Namespace + "/" + first.Name, nil
}
