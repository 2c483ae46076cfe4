// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// CreateRouter implements sdn.Routers.
func (c *Cloud) CreateRouter(ctx context.Context, owner sdn.Owner, spec sdn.RouterSpec) (sdn.OwnRouter, error) {
	return in(c, spec.ProjectID, func(r sdn.OwnRouter) []string { return []string{r.ID} }, func(s Session) (sdn.OwnRouter, error) { return s.CreateRouter(ctx, owner, spec) })
}

// Router implements sdn.Routers.
func (c *Cloud) Router(ctx context.Context, id string) (sdn.OwnRouter, error) {
	return read(ctx, c, Network, id, func(r sdn.OwnRouter) string { return r.ProjectID }, func(s Session) (sdn.OwnRouter, error) { return s.Router(ctx, id) })
}

// ListRouters implements sdn.Routers.
func (c *Cloud) ListRouters(ctx context.Context) ([]sdn.RouterSummary, error) {
	return list(c, func(r sdn.RouterSummary) string { return r.ID }, func(r sdn.RouterSummary) string { return r.ProjectID },
		func(k *credential) ([]sdn.RouterSummary, error) { return k.ListRouters(ctx) })
}

// UpdateRouter implements sdn.Routers.
func (c *Cloud) UpdateRouter(ctx context.Context, id string, u sdn.RouterUpdate) (sdn.OwnRouter, error) {
	return read(ctx, c, Network, id, nil, func(s Session) (sdn.OwnRouter, error) { return s.UpdateRouter(ctx, id, u) })
}

// DeleteRouter implements sdn.Routers.
func (c *Cloud) DeleteRouter(ctx context.Context, id string) error {
	return c.remove(ctx, Network, id, func(s Session) error { return s.DeleteRouter(ctx, id) })
}
