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

// before returns the KuryrLoadBalancer, as namespace/name, that has precedence for the floating
// IP address that this one asks for; empty if none has.
func (v *visit) before(ctx context.Context) (string, error) {
	if v.klb.Spec.PublicIP == nil || v.klb.Spec.PublicIP.Address == "" {
		return "", nil
	}
	all, err := kube.LoadBalancers(ctx, v.client)
	if err != nil {
		return "", err
	}
	first := balancer.Before(v.klb, slices.Collect(maps.Values(all)), func(o *v1.KuryrLoadBalancer) bool {
		return v.holders.Has(o, v.klb.Spec.PublicIP.Address)
	})
	if first == nil {
		return "", nil
	}
	return first.Namespace + "/" + first.Name, nil
}
