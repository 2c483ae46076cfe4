// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

const (
	interfaceMissing = "RouterInterfaceNotFoundForSubnet"
	gatewayOwner     = "network:router_gateway"
)

// AddRouterInterface implements sdn.Networks, with one request for a subnet that this process knows. Neutron's
// refusal has one type for an interface that is there already, and for an overlap: only then the
// router's interfaces are read.
func (b *Neutron) AddRouterInterface(ctx context.Context, routerID, subnetID string) error {
	if err := b.ownSubnet(ctx, subnetID); errors.Is(err, sdn.ErrNotFound) {
		return &sdn.InvalidError{Field: sdn.FieldSubnet, Value: subnetID, Err: fmt.Errorf("subnet %s is not there, or not this cluster's: %w", subnetID, sdn.ErrInvalid)}
	} else if err != nil {
		return err
	}
	err := b.changeRouterInterface(ctx, routerID, "add_router_interface", subnetID, "")
	if sdn.FieldOf(err) == sdn.FieldSubnet { // it is not there any more
		b.nets.Delete(subnetID)
	}
	if errors.Is(err, sdn.ErrQuota) { // of the cloud's plugin, or of the ports of the router's project
		return fmt.Errorf("%w: %w", sdn.ErrRouterFull, err)
	}
	if !errors.Is(err, sdn.ErrInvalid) || sdn.FieldOf(err) != "" {
		return err
	}
	return b.explainRouterInterface(ctx, routerID, subnetID, err)
}

func (b *Neutron) changeRouterInterface(ctx context.Context, routerID, verb, subnetID, subject string) error {
	if routerID == "" {
		return &sdn.InvalidError{Field: sdn.FieldRouter, Err: fmt.Errorf("the request names no router: %w", sdn.ErrInvalid)}
	}
	return b.Do(ctx, session.Request{
		Method: http.MethodPut, Path: []string{"routers", routerID, verb}, Body: object{"subnet_id": subnetID}, Subject: subject,
	})
}

// explainRouterInterface finds out why a router did not get an interface: nil if it has it.
func (b *Neutron) explainRouterInterface(ctx context.Context, routerID, subnetID string, err error) error {
	ifaces, unread := readChosen[wirePort](ctx, b, "ports", "device_id", []string{routerID},
		url.Values{"device_owner": append([]string{gatewayOwner}, routerOwners...)}, "id", "device_id", "device_owner", "network_id", "fixed_ips")
	if unread != nil {
		return unread
	}
	ids := []string{subnetID}
	for _, l := range ifaces {
		for _, ip := range l.FixedIPs {
			if ip.SubnetID == subnetID && l.DeviceOwner != gatewayOwner {
				return nil
			}
			ids = append(ids, ip.SubnetID)
		}
	}
	subnets, unread := readChosen[wireSubnet](ctx, b, "subnets", "id", ids, nil, "id", "cidr")
	if unread != nil {
		return unread
	}
	i := slices.IndexFunc(subnets, func(s wireSubnet) bool { return s.ID == subnetID })
	if i < 0 {
		return &sdn.InvalidError{Field: sdn.FieldSubnet, Value: subnetID, Err: err}
	}
	own, _ := netip.ParsePrefix(subnets[i].CIDR)
	for _, s := range slices.Delete(subnets, i, i+1) {
		if p, bad := netip.ParsePrefix(s.CIDR); bad == nil && p.Overlaps(own) {
			return fmt.Errorf("%s %w with %s of subnet %s, which router %s has an interface in: %s", own, sdn.ErrOverlap, p, s.ID, routerID, err.Error())
		}
	}
	return &sdn.InvalidError{Field: sdn.FieldRouter, Value: routerID, Err: err}
}

// RemoveRouterInterface implements sdn.Networks.
func (b *Neutron) RemoveRouterInterface(ctx context.Context, routerID, subnetID string) error {
	err := b.ownSubnet(ctx, subnetID)
	if err == nil {
		err = b.changeRouterInterface(ctx, routerID, "remove_router_interface", subnetID, interfaceMissing)
	}
	// A router or subnet that is not shown may still be there. Then the network cannot be deleted,
	// and that says so.
	gone := errors.Is(err, sdn.ErrNotFound) || sdn.FieldOf(err) == sdn.FieldRouter || sdn.FieldOf(err) == sdn.FieldSubnet
	if gone {
		return nil
	}
	return err
}

// ifacesIn lists the interfaces of all routers in a network.
func (b *Neutron) ifacesIn(ctx context.Context, networkID string) ([]wirePort, error) {
	return readChosen[wirePort](ctx, b, "ports", "network_id", []string{networkID}, url.Values{"device_owner": routerOwners},
		"id", "device_id", "network_id", "fixed_ips")
}

// routersIn are the routers with an interface in a subnet, sorted.
func routersIn(ifaces []wirePort, subnetID string) (ids []string) {
	for _, l := range ifaces {
		if slices.ContainsFunc(l.FixedIPs, func(ip wireIP) bool { return ip.SubnetID == subnetID }) {
			ids = append(ids, l.DeviceID)
		}
	}
	return distinct(ids)
}

// RouterAddresses implements sdn.Networks. Neutron shows them to the router's project and to
// administrators only.
func (b *Neutron) RouterAddresses(ctx context.Context, routerID string) ([]netip.Addr, error) {
	w, err := get[wireRouter](ctx, b, routerKind, routerID, "external_gateway_info")
	if errors.Is(err, sdn.ErrNotFound) {
		err = &sdn.InvalidError{Field: sdn.FieldRouter, Value: routerID, Err: fmt.Errorf("router %q is not there, or the credential does not see it: %w", routerID, sdn.ErrInvalid)}
	}
	return routerOf(w).Addresses, err
}
