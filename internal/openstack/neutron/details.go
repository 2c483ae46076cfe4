// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// subnet is what a port takes over from its subnet and network. It is not changed.
type subnet struct {
	id        string
	networkID string
	prefix    netip.Prefix
	gateway   string // empty: none
	routes    []v1.Route
	mtu       int32 // of the network
}

// details keeps what subnets and networks say, for a while: one read serves all
// ports made in that time.
type details struct {
	client   *session.Client
	age      time.Duration
	subnets  sdn.Answers[string, subnet]
	networks sdn.Answers[string, int32] // MTU
}

// Details implements sdn.Details.
func (b *Neutron) Details(ctx context.Context, subnetID string) (v1.VIF, error) {
	s, err := b.details.subnet(ctx, subnetID)
	if err != nil {
		return v1.VIF{}, err
	}
	vif := portOf(wirePort{FixedIPs: []wireIP{{SubnetID: s.id}}}, []subnet{s}).VIF
	return v1.VIF{MTU: vif.MTU, Addresses: vif.Addresses, Routes: vif.Routes}, nil
}

// all returns the details of these subnets, in order.
func (d *details) all(ctx context.Context, ids []string) ([]subnet, error) {
	out := make([]subnet, 0, len(ids))
	for _, id := range ids {
		s, err := d.subnet(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// forget has these subnets, and their networks, read again when next needed.
func (d *details) forget(subnets []subnet) {
	for _, s := range subnets {
		d.subnets.Forget(func(id string, _ subnet) bool { return id == s.id })
		d.networks.Forget(func(id string, _ int32) bool { return id == s.networkID })
	}
}

// forgetNetwork has a network and its subnets read again when next needed.
func (d *details) forgetNetwork(id string) {
	d.networks.Forget(func(networkID string, _ int32) bool { return networkID == id })
	d.subnets.Forget(func(_ string, s subnet) bool { return s.networkID == id })
}

func (d *details) subnet(ctx context.Context, id string) (subnet, error) {
	s, err := d.subnets.Get(ctx, id, d.age, func(ctx context.Context) (subnet, error) { return d.read(ctx, id) })
	if err != nil {
		return subnet{}, fmt.Errorf("reading subnet %s: %w", id, err)
	}
	return s, nil
}

func (d *details) read(ctx context.Context, id string) (subnet, error) {
	w, err := getNamed[wireSubnet](ctx, d.client, subnetKind, id, "network_id", "cidr", "gateway_ip", "host_routes")
	if err != nil {
		return subnet{}, err
	}
	s := subnet{id: id, networkID: w.NetworkID, gateway: w.Gateway, routes: routesOf(w.HostRoutes)}
	if s.prefix, err = netip.ParsePrefix(w.CIDR); err != nil {
		return subnet{}, fmt.Errorf("%w: Neutron's answer has an invalid CIDR: %w", sdn.ErrUnavailable, err)
	}
	s.mtu, err = d.networks.Get(ctx, s.networkID, d.age, func(ctx context.Context) (int32, error) {
		w, err := getNamed[wireNetwork](ctx, d.client, networkKind, s.networkID, "mtu")
		return w.MTU, err
	})
	if err != nil {
		return subnet{}, fmt.Errorf("reading its network %s: %w", s.networkID, err)
	}
	return s, nil
}
