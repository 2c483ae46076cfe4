// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package clusterips

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// needless reports whether the cloud has none of a holder's load balancers any more. A credential
// that has lost a role may be shown none in a list, so each of them is read.
func (r *Reconciler) needless(ctx context.Context, holder *corev1.Service) (bool, error) {
	listed, err := r.listed.Get(ctx, struct{}{}, listAge(r.Backoff), r.Cloud.ListLoadBalancers)
	if errors.Is(err, sdn.ErrNoService) {
		return true, nil // the cloud has no load balancers at all
	}
	if err != nil {
		return false, fmt.Errorf("listing load balancers: %w", err)
	}
	ids := strings.Split(holder.Annotations[v1.HeldLoadBalancersAnnotation], ",")
	if slices.ContainsFunc(listed, func(lb sdn.LoadBalancerSummary) bool {
		return lb.Provisioning != sdn.ProvisioningDeleted && slices.Contains(ids, lb.ID)
	}) {
		return false, nil
	}
	for _, id := range ids {
		lb, err := r.Cloud.LoadBalancer(ctx, id)
		if errors.Is(err, sdn.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("reading load balancer %s: %w", id, err)
		}
		if lb.Provisioning != sdn.ProvisioningDeleted {
			return false, nil
		}
	}
	return true, nil
}

// listAge is how long a list of load balancers is used for all holders that need one.
func listAge(b outcome.Backoff) time.Duration { return b.Quota / 3 }
