// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var _ sdn.Routers = (*Backend)(nil)

// SetRouterQuota sets the quota of routers, of all in the cloud; negative is no quota.
func (c *Cloud) SetRouterQuota(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.routerQuota = n
}

// ForbidSNAT sets whether the credential may say whether a router translates addresses.
func (c *Cloud) ForbidSNAT(forbidden bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noSNAT = forbidden
}

// RouterItem is a router that a backend made, and its cluster.
type RouterItem struct {
	Cluster          string
	Router           sdn.OwnRouter
	RouterInterfaces int
}

// Routers returns all routers that backends made, sorted by ID.
func (c *Cloud) Routers() (all []RouterItem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.routers {
		if r.cluster != "" {
			all = append(all, RouterItem{Cluster: r.cluster, Router: r.shown(), RouterInterfaces: len(r.ifaces)})
		}
	}
	slices.SortFunc(all, func(a, b RouterItem) int { return strings.Compare(a.Router.ID, b.Router.ID) })
	return all
}

// HasRouter reports whether there is a router of that ID, of anybody.
func (c *Cloud) HasRouter(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.routers[id] != nil
}

// EditRouter changes SNAT and routes of a router behind the backends' backs.
func (c *Cloud) EditRouter(id string, edit func(*sdn.OwnRouter)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.routers[id]; r != nil {
		edit(&r.own)
	}
}

// CreateRouter implements sdn.Routers.
func (b *Backend) CreateRouter(ctx context.Context, owner sdn.Owner, spec sdn.RouterSpec) (sdn.OwnRouter, error) {
	return answer(ctx, b, CreateRouter, func() (sdn.OwnRouter, error) {
		c := b.cloud
		if spec.ProjectID != "" && len(c.projects) > 0 && !c.projects[spec.ProjectID] {
			return sdn.OwnRouter{}, refused(sdn.FieldProject, spec.ProjectID, "creating router %s", spec.Name)
		}
		if c.routerQuota >= 0 && len(c.routers) >= c.routerQuota {
			return sdn.OwnRouter{}, fmt.Errorf("creating router %s: quota of %d routers: %w", spec.Name, c.routerQuota, sdn.ErrProjectQuota)
		}
		r := &router{cluster: b.cluster, created: c.now(), ifaces: map[string]bool{}, needed: map[string]bool{}, room: -1}
		r.own = sdn.OwnRouter{Name: spec.Name, Owner: owner, ProjectID: spec.ProjectID}
		if err := c.setGateway(r, spec.Gateway); err != nil {
			return sdn.OwnRouter{}, fmt.Errorf("creating router %s: %w", spec.Name, err)
		}
		r.id = c.nextID()
		r.own.ID = r.id
		c.routers[r.id] = r
		return r.shown(), nil
	})
}

// Router implements sdn.Routers.
func (b *Backend) Router(ctx context.Context, id string) (sdn.OwnRouter, error) {
	return answer(ctx, b, GetRouter, func() (sdn.OwnRouter, error) {
		r, err := b.ownRouter(id)
		if err != nil {
			return sdn.OwnRouter{}, fmt.Errorf("reading router %s: %w", id, err)
		}
		return r.shown(), nil
	})
}

// ListRouters implements sdn.Routers. The result is sorted by ID.
func (b *Backend) ListRouters(ctx context.Context) ([]sdn.RouterSummary, error) {
	return answer(ctx, b, ListRouters, func() ([]sdn.RouterSummary, error) {
		var out []sdn.RouterSummary
		for _, r := range b.cloud.routers {
			if r.cluster == b.cluster {
				out = append(out, sdn.RouterSummary{ID: r.id, Name: r.own.Name, Owner: r.own.Owner, ProjectID: r.own.ProjectID, Created: r.created})
			}
		}
		slices.SortFunc(out, func(x, y sdn.RouterSummary) int { return strings.Compare(x.ID, y.ID) })
		return out, nil
	})
}

// UpdateRouter implements sdn.Routers. Like Neutron's, a change of gateway and routes is several calls
// to the cloud: each of them has its hooks, and any of them may fail.
func (b *Backend) UpdateRouter(ctx context.Context, id string, u sdn.RouterUpdate) (sdn.OwnRouter, error) {
	was, err := b.changeRouter(ctx, id, nil, nil)
	if err != nil {
		return was, err
	}
	is := was
	if u.Gateway != nil {
		is, err = b.changeRouter(ctx, id, u.Gateway, nil)
		if u.Routes != nil && sdn.FieldOf(err) == sdn.FieldRouterRoutes && !slices.Equal(*u.Routes, was.Routes) {
			if is, err = b.changeRouter(ctx, id, nil, &[]v1.Route{}); err == nil {
				is, err = b.changeRouter(ctx, id, u.Gateway, nil)
			}
		}
	}
	if err == nil && u.Routes != nil {
		is, err = b.changeRouter(ctx, id, nil, u.Routes)
	}
	if err == nil || u.Gateway == nil {
		return is, err
	}
	is, lost := b.changeRouter(ctx, id, nil, nil)
	if lost == nil && was.Gateway.NetworkID != "" && is.Gateway.NetworkID != was.Gateway.NetworkID {
		is, lost = b.changeRouter(ctx, id, &sdn.Gateway{NetworkID: was.Gateway.NetworkID}, nil)
	}
	if len(was.Routes) == 0 && u.Routes != nil {
		was.Routes = *u.Routes
	}
	if lost == nil && !slices.Equal(is.Routes, was.Routes) {
		is, lost = b.changeRouter(ctx, id, nil, &was.Routes)
	}
	if lost != nil {
		err = fmt.Errorf("%w. The router has lost its gateway or its routes %v: %w", err, was.Routes, lost)
	}
	return is, err
}

// changeRouter is one call to the cloud about a router: with neither a gateway nor routes it reads it.
func (b *Backend) changeRouter(ctx context.Context, id string, gateway *sdn.Gateway, routes *[]v1.Route) (sdn.OwnRouter, error) {
	c, is := b.cloud, sdn.OwnRouter{}
	effect := func() error {
		r, err := b.ownRouter(id)
		if err == nil && gateway != nil {
			err = c.moveGateway(r, *gateway)
		}
		if err == nil && routes != nil {
			if err = c.reached(r, r.own.Gateway.NetworkID, *routes); err == nil {
				r.own.Routes = append([]v1.Route(nil), *routes...)
			}
		}
		if err != nil {
			return fmt.Errorf("updating router %s: %w", id, err)
		}
		is = r.shown()
		return nil
	}
	if gateway == nil && routes == nil {
		if err := ctx.Err(); err != nil {
			return is, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return is, effect()
	}
	err := c.do(ctx, UpdateRouter, effect)
	return is, err
}

// DeleteRouter implements sdn.Routers.
func (b *Backend) DeleteRouter(ctx context.Context, id string) error {
	return b.cloud.do(ctx, DeleteRouter, func() error {
		r := b.cloud.routers[id]
		if r == nil || r.cluster != b.cluster {
			return nil
		}
		if len(r.ifaces) > 0 {
			return fmt.Errorf("deleting router %s, which has %d interfaces: %w", id, len(r.ifaces), sdn.ErrConflict)
		}
		b.cloud.dropGateway(r)
		delete(b.cloud.routers, id)
		return nil
	})
}

// The caller of the functions below holds the lock.

func (b *Backend) ownRouter(id string) (*router, error) {
	if r := b.cloud.routers[id]; r != nil && r.cluster == b.cluster {
		return r, nil
	}
	return nil, sdn.ErrNotFound
}

// shown returns a router that a backend made as the cloud shows it.
func (r *router) shown() sdn.OwnRouter {
	out := r.own
	out.Routes, out.Addresses = slices.Clone(r.own.Routes), slices.Clone(r.addresses)
	return out
}

// setGateway gives a router an address in each IP family of an external network. A router without a
// wish translates addresses.
func (c *Cloud) setGateway(r *router, g sdn.Gateway) error {
	if g.SNAT != nil && c.noSNAT {
		return fmt.Errorf("%w to %t", sdn.ErrSNATForbidden, *g.SNAT)
	}
	snat := g.SNAT == nil || *g.SNAT
	if r.own.Gateway.NetworkID == g.NetworkID && len(r.addresses) > 0 {
		r.own.Gateway.SNAT = &snat
		return nil
	}
	first, err := c.external(sdn.FloatingIPRequest{NetworkID: g.NetworkID})
	if err != nil {
		return err
	}
	subnets := []Subnet{first}
	for _, s := range c.subnets {
		if s.External && s.NetworkID == g.NetworkID && s.Prefix.Addr().Is4() != first.Prefix.Addr().Is4() {
			subnets = append(subnets, s)
			break
		}
	}
	var addresses []netip.Addr
	for _, s := range subnets {
		a, err := c.freeAddress(s)
		if err != nil {
			return fmt.Errorf("%w: network %s: %w", sdn.ErrExternalAddresses, g.NetworkID, err)
		}
		addresses = append(addresses, netip.MustParseAddr(a.IP))
	}
	c.dropGateway(r)
	for i, s := range subnets {
		c.used[addressKey{s.ID, addresses[i].String()}] = true
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	r.addresses, r.own.Gateway = addresses, sdn.Gateway{NetworkID: g.NetworkID, SNAT: &snat}
	return nil
}

func (c *Cloud) dropGateway(r *router) {
	for _, a := range r.addresses {
		for id, s := range c.subnets {
			if s.NetworkID == r.own.Gateway.NetworkID && s.Prefix.Contains(a) {
				delete(c.used, addressKey{id, a.String()})
			}
		}
	}
	r.addresses, r.own.Gateway = nil, sdn.Gateway{}
}

// moveGateway is setGateway for a router that may have routes. As in Neutron, a router that cannot get
// a gateway in another network is left without one.
func (c *Cloud) moveGateway(r *router, g sdn.Gateway) error {
	if _, err := c.external(sdn.FloatingIPRequest{NetworkID: g.NetworkID}); err != nil {
		return err
	}
	if err := c.reached(r, g.NetworkID, r.own.Routes); err != nil {
		return err
	}
	err := c.setGateway(r, g)
	if errors.Is(err, sdn.ErrExternalAddresses) {
		c.dropGateway(r)
	}
	return err
}

// reached checks that all next hops are in networks of a router whose gateway is in a network.
func (c *Cloud) reached(r *router, networkID string, routes []v1.Route) error {
	for _, route := range routes {
		if !c.neighbours(r, networkID, route.Gateway) {
			return refused(sdn.FieldRouterRoutes, route.Gateway, "no network of the router has the gateway of a route")
		}
	}
	return nil
}

// neighbours reports whether an address is in a network that a router is in, with a gateway in a network.
func (c *Cloud) neighbours(r *router, networkID, address string) bool {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	for id, s := range c.subnets {
		if (r.ifaces[id] || s.NetworkID == networkID) && s.Prefix.Contains(a) {
			return true
		}
	}
	return false
}
