// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// DeleteLoadBalancer implements sdn.LoadBalancers. Octavia deletes everything with one request,
// including the VIP's port.
func (b *Octavia) DeleteLoadBalancer(ctx context.Context, id string) error {
	_, err := b.ownBalancer(ctx, id)
	if err == nil && b.dialect.single {
		err = b.emptyBalancer(ctx, id)
	}
	if err == nil {
		err = b.Do(ctx, session.Request{
			To: b.dialect.service, Method: http.MethodDelete, Path: []string{"lbaas", "loadbalancers", id}, Query: b.dialect.deletion, Subject: id,
		})
	}
	switch {
	case errors.Is(err, sdn.ErrNotFound):
		b.balancers.drop(id)
		return nil
	case err != nil:
		return err
	}
	return &sdn.PendingError{What: "the deletion of load balancer " + id, Retry: session.BusyRetry}
}

// FailOver implements sdn.LoadBalancers.
func (b *Octavia) FailOver(ctx context.Context, id string) error {
	w, err := b.readBalancer(ctx, id)
	if err != nil {
		return err
	}
	f, err := b.features(ctx, w.Provider, "")
	if err != nil {
		return err
	}
	if !f.FailOver {
		return fmt.Errorf("failover is %w by provider %s", sdn.ErrUnsupported, f.Provider)
	}
	err = b.lb(ctx, http.MethodPut, id, nil, nil, "loadbalancers", id, "failover")
	if errors.Is(err, sdn.ErrForbidden) { // Octavia's own policy wants an admin
		err = fmt.Errorf("failover is %w for this credential (%s)", sdn.ErrUnsupported, err.Error())
	}
	b.balancers.learn(err, w.Provider, failing)
	return err
}
