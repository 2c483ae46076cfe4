// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

type wireRouter struct {
	resource
	Up      bool         `json:"admin_state_up"`
	Gateway *wireGateway `json:"external_gateway_info"`
	Routes  []wireRoute  `json:"routes"`
}

type wireGateway struct {
	NetworkID string   `json:"network_id"`
	SNAT      *bool    `json:"enable_snat"`
	Addresses []wireIP `json:"external_fixed_ips"`
}

var routerFields = []string{"id", "name", "description", "project_id", "external_gateway_info", "routes"}

// Refusals by Neutron. A BadRequest is about the gateway: its network is not external, or overlaps
// with a subnet behind the router. Only of a new router, an HTTPBadRequest is about another project
// than the credential's.
var (
	routerRefusals  = map[string]sdn.Field{"BadRequest": sdn.FieldExternalNetwork, "HTTPBadRequest": sdn.FieldProject}
	gatewayRefusals = map[string]sdn.Field{
		"BadRequest": sdn.FieldExternalNetwork, "HTTPBadRequest": sdn.FieldExternalNetwork, "InvalidRoutes": sdn.FieldRouterRoutes,
	}
	routeRefusals = map[string]sdn.Field{
		"InvalidRoutes": sdn.FieldRouterRoutes, "RoutesExhausted": sdn.FieldRouterRoutes, "HTTPBadRequest": sdn.FieldRouterRoutes,
	}
)

// CreateRouter implements sdn.Routers, with one request. Neutron takes no routes with it.
func (b *Neutron) CreateRouter(ctx context.Context, owner sdn.Owner, spec sdn.RouterSpec) (sdn.OwnRouter, error) {
	body, err := b.newBody(owner, spec.Name, spec.ProjectID)
	if err != nil {
		return sdn.OwnRouter{}, err
	}
	body["external_gateway_info"] = gatewayBody(spec.Gateway)
	r := routerKind.request(http.MethodPost, "", body)
	r.Fields = routerRefusals
	w, err := send[wireRouter](ctx, b.Client, routerKind, r)
	if err != nil {
		return sdn.OwnRouter{}, gatewayError(spec.Gateway, err)
	}
	return routerOf(w), nil
}

func gatewayBody(g sdn.Gateway) object {
	body := object{"network_id": g.NetworkID}
	if g.SNAT != nil {
		body["enable_snat"] = *g.SNAT
	}
	return body
}

// gatewayError explains why a router did not get a gateway. What has no addresses left is its
// external network. A missing network is shown as such; the field is another one for networks.
func gatewayError(g sdn.Gateway, err error) error {
	switch {
	case errors.Is(err, sdn.ErrAddresses):
		return fmt.Errorf("%w: network %s: %w", sdn.ErrExternalAddresses, g.NetworkID, err)
	case errors.Is(err, sdn.ErrForbidden) && g.SNAT != nil:
		return fmt.Errorf("%w to %t: %w", sdn.ErrSNATForbidden, *g.SNAT, err)
	case sdn.FieldOf(err) == sdn.FieldNetwork:
		return &sdn.InvalidError{Field: sdn.FieldExternalNetwork, Value: g.NetworkID, Err: err}
	}
	return err
}

func routerOf(w wireRouter) sdn.OwnRouter {
	out := sdn.OwnRouter{ID: w.ID, Name: w.Name, Owner: w.mark().Owner, ProjectID: w.ProjectID, Routes: routesOf(w.Routes)}
	if w.Gateway != nil {
		out.Gateway = sdn.Gateway{NetworkID: w.Gateway.NetworkID, SNAT: w.Gateway.SNAT}
		out.Addresses = addressesOf(w.Gateway.Addresses)
	}
	return out
}

// addressesOf returns addresses, IPv4 first.
func addressesOf(all []wireIP) (out []netip.Addr) {
	for _, a := range all {
		if ip, err := netip.ParseAddr(a.IP); err == nil {
			out = append(out, ip)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// Router implements sdn.Routers.
func (b *Neutron) Router(ctx context.Context, id string) (sdn.OwnRouter, error) {
	w, err := getOwn[wireRouter](ctx, b, routerKind, id, routerFields...)
	if err != nil {
		return sdn.OwnRouter{}, err
	}
	return routerOf(w), nil
}

// ListRouters implements sdn.Routers.
func (b *Neutron) ListRouters(ctx context.Context) ([]sdn.RouterSummary, error) {
	return b.summaries(ctx, routerKind)
}

// UpdateRouter implements sdn.Routers. The mark is read first: an update is rare. Neutron refuses a
// gateway if the next hop of a route is in no network of the router then, and routes by way of a
// gateway that is not there yet. Only then, and if other routes are wanted, routes are removed before
// the gateway changes. What fails is undone.
func (b *Neutron) UpdateRouter(ctx context.Context, id string, u sdn.RouterUpdate) (sdn.OwnRouter, error) {
	was, err := b.Router(ctx, id)
	if err != nil {
		return was, err
	}
	is := was
	if u.Gateway != nil {
		is, err = b.putGateway(ctx, id, *u.Gateway)
		if u.Routes != nil && sdn.FieldOf(err) == sdn.FieldRouterRoutes && !slices.Equal(*u.Routes, was.Routes) {
			if is, err = b.putRoutes(ctx, id, nil); err == nil {
				is, err = b.putGateway(ctx, id, *u.Gateway)
			}
		}
	}
	if err == nil && u.Routes != nil && len(*u.Routes)+len(is.Routes) > 0 {
		is, err = b.putRoutes(ctx, id, *u.Routes)
	}
	if err != nil && u.Gateway != nil {
		return b.restore(ctx, was, u, err)
	}
	return is, err
}

// restore gives a router back what it had before an update that failed, and returns the failure.
// Neutron deletes a gateway before it makes one in another network, and switches SNAT on before it
// refuses to move the gateway of floating IPs. A router without routes may have lost them when an
// earlier update was interrupted. So it gets those that are wanted.
func (b *Neutron) restore(ctx context.Context, was sdn.OwnRouter, u sdn.RouterUpdate, failed error) (sdn.OwnRouter, error) {
	is, err := b.Router(ctx, was.ID)
	lost := is.Gateway.NetworkID != was.Gateway.NetworkID || is.Gateway.SNAT != nil && *is.Gateway.SNAT != *was.Gateway.SNAT
	if err == nil && was.Gateway.NetworkID != "" && lost {
		back := sdn.Gateway{NetworkID: was.Gateway.NetworkID}
		if u.Gateway.SNAT != nil { // the credential may choose
			back.SNAT = was.Gateway.SNAT
		}
		is, err = b.putGateway(ctx, was.ID, back)
	}
	routes := was.Routes
	if len(routes) == 0 && u.Routes != nil {
		routes = *u.Routes
	}
	if err == nil && !slices.Equal(is.Routes, routes) {
		is, err = b.putRoutes(ctx, was.ID, routes)
	}
	if err != nil {
		failed = fmt.Errorf("%w. The router has lost its gateway or its routes %v, and Kuryr cannot restore them yet: %w", failed, routes, err)
	}
	return is, failed
}

func (b *Neutron) putGateway(ctx context.Context, id string, g sdn.Gateway) (sdn.OwnRouter, error) {
	is, err := b.putRouter(ctx, id, object{"external_gateway_info": gatewayBody(g)}, gatewayRefusals)
	if err != nil {
		err = gatewayError(g, err)
	}
	return is, err
}

func (b *Neutron) putRoutes(ctx context.Context, id string, all []v1.Route) (sdn.OwnRouter, error) {
	return b.putRouter(ctx, id, object{"routes": wireRoutes(all)}, routeRefusals)
}

func (b *Neutron) putRouter(ctx context.Context, id string, body object, fields map[string]sdn.Field) (sdn.OwnRouter, error) {
	r := routerKind.request(http.MethodPut, id, body)
	r.Fields = fields
	w, err := send[wireRouter](ctx, b.Client, routerKind, r)
	return routerOf(w), err
}

// DeleteRouter implements sdn.Routers. Neutron deletes the gateway, too. The mark is always read.
func (b *Neutron) DeleteRouter(ctx context.Context, id string) error {
	_, err := b.Router(ctx, id)
	if err == nil {
		err = b.Do(ctx, routerKind.request(http.MethodDelete, id, nil))
	}
	return session.IgnoreNotFound(err)
}
