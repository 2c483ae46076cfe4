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
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

type wireSubnet struct {
	ID          string      `json:"id"`
	NetworkID   string      `json:"network_id"`
	Description string      `json:"description"`
	IPVersion   int         `json:"ip_version"`
	CIDR        string      `json:"cidr"`
	Gateway     string      `json:"gateway_ip"` // null: there is none
	PoolID      string      `json:"subnetpool_id"`
	DNSServers  []string    `json:"dns_nameservers"`
	HostRoutes  []wireRoute `json:"host_routes"`
	Created     time.Time   `json:"created_at"` // zero: this Neutron does not tell
}

// Key implements session.Listable.
func (w wireSubnet) Key() string { return w.ID }

type wholeSubnet struct {
	Subnet wireSubnet `json:"subnet"`
}

var subnetFields = []string{
	"id", "network_id", "description", "ip_version", "cidr", "gateway_ip", "subnetpool_id", "dns_nameservers", "host_routes", "created_at",
}

const subnetMissing = "SubnetNotFound"

// CreateSubnet implements sdn.Networks, with one request in a network that this process knows.
//
// DHCP is off, because nodes address pods. An IPv6 subnet has neither ipv6_address_mode nor
// ipv6_ra_mode: Neutron then chooses each address as for IPv4, not by the MAC address, and its
// routers send no advertisements. Pods need none: the CNI plugin gives them the gateway as default
// route. But a virtual machine in the subnet would have to be told its route.
func (b *Neutron) CreateSubnet(ctx context.Context, owner sdn.Owner, spec sdn.SubnetSpec) (sdn.OwnSubnet, error) {
	description, err := session.Mark{Cluster: b.config.ClusterID, Owner: owner}.Description()
	if err != nil {
		return sdn.OwnSubnet{}, err
	}
	if !b.nets.hasNetwork(spec.NetworkID) {
		_, err := b.ownNetwork(ctx, spec.NetworkID)
		if errors.Is(err, sdn.ErrNotFound) {
			return sdn.OwnSubnet{}, &sdn.InvalidError{Field: sdn.FieldNetwork, Value: spec.NetworkID, Err: fmt.Errorf("network %s is not there, or not this cluster's: %w", spec.NetworkID, sdn.ErrInvalid)}
		}
		if err != nil {
			return sdn.OwnSubnet{}, err
		}
	}
	var out wholeSubnet
	err = b.Do(ctx, session.Request{
		Method: http.MethodPost, Path: []string{"subnets"}, Body: object{"subnet": newSubnet(spec, description)}, Out: &out,
	})
	if err != nil {
		return sdn.OwnSubnet{}, b.explainSubnet(ctx, spec, err)
	}
	b.nets.addSubnet(out.Subnet.ID, spec.NetworkID)
	return subnetOf(out.Subnet)
}

// newSubnet is the body of a creating call. Neutron chooses the gateway in a prefix of a pool: the
// request cannot name an address of a prefix that is not known yet.
func newSubnet(spec sdn.SubnetSpec, description string) object {
	body := updateOf(spec.SubnetUpdate)
	body["network_id"], body["name"], body["description"] = spec.NetworkID, spec.Name, description
	body["ip_version"], body["enable_dhcp"] = spec.IPVersion, false
	if spec.ProjectID != "" {
		body["project_id"] = spec.ProjectID
	}
	if spec.Prefix.IsValid() {
		prefix := spec.Prefix.Masked()
		body["cidr"], body["gateway_ip"] = prefix.String(), prefix.Addr().Next().String()
		return body
	}
	body["subnetpool_id"] = spec.PoolID
	if spec.PrefixLength != 0 {
		body["prefixlen"] = spec.PrefixLength
	}
	return body
}

func updateOf(u sdn.SubnetUpdate) object {
	servers, routes := make([]string, 0, len(u.DNSServers)), make([]wireRoute, 0, len(u.Routes))
	for _, s := range u.DNSServers {
		servers = append(servers, s.String())
	}
	for _, r := range u.Routes {
		routes = append(routes, wireRoute{Destination: r.Destination, NextHop: r.Gateway})
	}
	return object{"dns_nameservers": servers, "host_routes": routes}
}

func subnetOf(w wireSubnet) (sdn.OwnSubnet, error) {
	out := sdn.OwnSubnet{ID: w.ID, NetworkID: w.NetworkID, IPVersion: w.IPVersion, PoolID: w.PoolID, Created: w.Created}
	var err error
	if out.Prefix, err = netip.ParsePrefix(w.CIDR); err != nil {
		return sdn.OwnSubnet{}, fmt.Errorf("%w: Neutron's prefix of subnet %s: %w", sdn.ErrUnavailable, w.ID, err)
	}
	out.Gateway, _ = netip.ParseAddr(w.Gateway)
	for _, s := range w.DNSServers {
		if a, err := netip.ParseAddr(s); err == nil {
			out.DNSServers = append(out.DNSServers, a)
		}
	}
	for _, r := range w.HostRoutes {
		out.Routes = append(out.Routes, v1.Route{Destination: r.Destination, Gateway: r.NextHop})
	}
	return out, nil
}

// explainSubnet says more of a refused subnet than Neutron, whose answer has the same type for
// many faults. So the other subnets of the network are read: once, and only after a refusal.
func (b *Neutron) explainSubnet(ctx context.Context, spec sdn.SubnetSpec, err error) error {
	if !errors.Is(err, sdn.ErrInvalid) || sdn.FieldOf(err) != "" {
		return err
	}
	if !spec.Prefix.IsValid() {
		return &sdn.InvalidError{Field: sdn.FieldSubnetPool, Value: spec.PoolID, Err: err}
	}
	others, unread := b.subnetsIn(ctx, spec.NetworkID)
	if unread != nil {
		return unread
	}
	for _, o := range others {
		if p, bad := netip.ParsePrefix(o.CIDR); bad == nil && p.Overlaps(spec.Prefix) {
			return fmt.Errorf("%s %w with %s of subnet %s: %s", spec.Prefix, sdn.ErrOverlap, p, o.ID, err.Error())
		}
	}
	return &sdn.InvalidError{Field: sdn.FieldSubnet, Value: spec.Prefix.String(), Err: err}
}

// subnetsIn lists the subnets of a network, whoever made them.
func (b *Neutron) subnetsIn(ctx context.Context, networkID string) ([]wireSubnet, error) {
	return readChosen[wireSubnet](ctx, b, "subnets", "network_id", []string{networkID}, nil, subnetFields...)
}

// UpdateSubnet implements sdn.Networks.
func (b *Neutron) UpdateSubnet(ctx context.Context, id string, u sdn.SubnetUpdate) error {
	if err := b.ownSubnet(ctx, id); err != nil {
		return err
	}
	err := b.Do(ctx, session.Request{
		Method: http.MethodPut, Path: []string{"subnets", id}, Body: object{"subnet": updateOf(u)}, Subject: subnetMissing,
	})
	if errors.Is(err, sdn.ErrNotFound) {
		b.nets.dropSubnet(id)
	}
	b.details.forget([]subnet{{id: id}})
	return err
}

// DeleteSubnet implements sdn.Networks. The mark is always read, as in DeleteNetwork.
func (b *Neutron) DeleteSubnet(ctx context.Context, id string) error {
	b.nets.dropSubnet(id)
	err := b.ownSubnet(ctx, id)
	if err == nil {
		err = b.Do(ctx, session.Request{Method: http.MethodDelete, Path: []string{"subnets", id}, Subject: subnetMissing})
	}
	if err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return err
	}
	b.nets.dropSubnet(id)
	b.details.forget([]subnet{{id: id}})
	return nil
}

// ownSubnet checks that a subnet is this cluster's. It asks only if it is not known.
func (b *Neutron) ownSubnet(ctx context.Context, id string) error {
	if b.nets.hasSubnet(id) {
		return nil
	}
	if id == "" {
		return fmt.Errorf("the request names no subnet: %w", sdn.ErrNotFound)
	}
	var body wholeSubnet
	err := b.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"subnets", id}, Query: url.Values{"fields": {"id", "network_id", "description"}}, Out: &body, Subject: subnetMissing,
	})
	if err != nil {
		return err
	}
	if session.ParseMark(body.Subnet.Description).Cluster != b.config.ClusterID {
		return fmt.Errorf("it has no mark of cluster %s: %w", b.config.ClusterID, sdn.ErrNotFound)
	}
	b.nets.addSubnet(id, body.Subnet.NetworkID)
	return nil
}
