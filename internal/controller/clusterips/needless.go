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
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// needless reports whether the cloud has none of a holder's load balancers any more. A credential
// that has lost a role may be shown none in a list, so each of them is read.
func (r *Reconciler) needless(ctx context.Context, holder *corev1.Service) (bool, error) {
	if !r.mu.TryLock() {
		return false, errAsking
	}
	defer r.mu.Unlock()
	listed, err := r.loadBalancers(ctx)
	if errors.Is(err, sdn.ErrNoService) {
		return true, nil // the cloud has no load balancers at all
	}
	if err != nil {
		return false, err
	}
	ids := strings.Split(holder.Annotations[v1.HeldLoadBalancersAnnotation], ",")
	if slices.ContainsFunc(listed, func(lb sdn.LoadBalancerSummary) bool {
		return lb.Provisioning != sdn.ProvisioningDeleted && slices.Contains(ids, lb.ID)
	}) {
		return false, nil
	}
	for _, id := range ids {
		lb, err := r.get(ctx, id)
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

// errAsking: another worker is asking the cloud at this moment.
var errAsking = errors.New("the cloud has not answered yet")

// loadBalancers returns one list for all holders that need it at about the same time. The caller
// holds mu.
func (r *Reconciler) loadBalancers(ctx context.Context) ([]sdn.LoadBalancerSummary, error) {
	if r.at.IsZero() || time.Since(r.at) >= r.backoff.Quota/3 {
		r.listed, r.failed = r.list(ctx)
		r.at = time.Now()
	}
	if r.failed != nil {
		return nil, fmt.Errorf("listing load balancers: %w", r.failed)
	}
	return r.listed, nil
}
