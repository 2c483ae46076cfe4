// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

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
	client *session.Client
	age    time.Duration
	flight singleflight.Group

	mu       sync.Mutex
	subnets  map[string]session.Aged[subnet]
	networks map[string]session.Aged[int32] // MTU
	// singly are networks with an IPv6 subnet whose addresses are made of MAC addresses:
	// Neutron 21 answers 500 to a bulk request for ports there, as it chooses addresses
	// before MAC addresses.
	singly map[string]session.Aged[bool]
}

func newDetails(c *session.Client, age time.Duration) *details {
	return &details{client: c, age: age, subnets: map[string]session.Aged[subnet]{}, networks: map[string]session.Aged[int32]{}, singly: map[string]session.Aged[bool]{}}
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
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range subnets {
		delete(d.subnets, s.id)
		delete(d.networks, s.networkID)
	}
}

// forgetNetwork has a network and its subnets read again when next needed.
func (d *details) forgetNetwork(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.networks, id)
	for subnetID, kept := range d.subnets {
		if kept.Value.networkID == id {
			delete(d.subnets, subnetID)
		}
	}
}

func (d *details) subnet(ctx context.Context, id string) (subnet, error) {
	if kept, ok := d.fresh(id); ok {
		return kept, nil
	}
	// Several callers share one read, so the read does not end with one caller's context. The
	// requests have their own deadlines.
	result := d.flight.DoChan(id, func() (any, error) { return d.read(context.WithoutCancel(ctx), id) })
	select {
	case r := <-result:
		if r.Err != nil {
			return subnet{}, fmt.Errorf("reading subnet %s: %w", id, r.Err)
		}
		return r.Val.(subnet), nil
	case <-ctx.Done():
		return subnet{}, fmt.Errorf("reading subnet %s: %w", id, session.Unanswered(ctx, ctx.Err()))
	}
}

func (d *details) fresh(id string) (subnet, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept, ok := d.subnets[id]
	return kept.Value, ok && time.Since(kept.Read) < d.age
}

func (d *details) read(ctx context.Context, id string) (subnet, error) {
	if kept, ok := d.fresh(id); ok { // read by another since it was asked for
		return kept, nil
	}
	var body subnetBody
	err := d.client.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"subnets", id}, Out: &body, Creates: true,
		Query: url.Values{"fields": {"network_id", "cidr", "gateway_ip", "host_routes"}},
	})
	if err != nil {
		return subnet{}, err
	}
	s := subnet{id: id, networkID: body.Subnet.NetworkID}
	if s.prefix, err = netip.ParsePrefix(body.Subnet.CIDR); err != nil {
		return subnet{}, fmt.Errorf("%w: Neutron's answer has an invalid CIDR: %w", sdn.ErrUnavailable, err)
	}
	if body.Subnet.Gateway != nil {
		s.gateway = *body.Subnet.Gateway
	}
	for _, r := range body.Subnet.HostRoutes {
		s.routes = append(s.routes, v1.Route{Destination: r.Destination, Gateway: r.NextHop})
	}
	if s.mtu, err = d.mtu(ctx, s.networkID); err != nil {
		return subnet{}, fmt.Errorf("reading its network %s: %w", s.networkID, err)
	}
	d.mu.Lock()
	d.subnets[id] = session.Aged[subnet]{Value: s, Read: time.Now()}
	d.mu.Unlock()
	return s, nil
}

func (d *details) mtu(ctx context.Context, networkID string) (int32, error) {
	d.mu.Lock()
	kept, ok := d.networks[networkID]
	d.mu.Unlock()
	if ok && time.Since(kept.Read) < d.age {
		return kept.Value, nil
	}
	var body networkBody
	err := d.client.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"networks", networkID}, Out: &body, Query: url.Values{"fields": {"mtu"}}, Creates: true,
	})
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	d.networks[networkID] = session.Aged[int32]{Value: body.Network.MTU, Read: time.Now()}
	d.mu.Unlock()
	return body.Network.MTU, nil
}

// isSingly reports whether ports are made one by one in a network.
func (d *details) isSingly(networkID string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := d.singly[networkID]
	return kept.Value && time.Since(kept.Read) < d.age
}

// learnSingly asks, after Neutron has stumbled over a bulk request, whether the network is one
// of those where it does, and reports whether that is news.
func (d *details) learnSingly(ctx context.Context, networkID string) bool {
	if d.isSingly(networkID) {
		return false
	}
	var body struct {
		Subnets []struct {
			Mode *string `json:"ipv6_address_mode"`
		} `json:"subnets"`
	}
	err := d.client.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"subnets"}, Query: url.Values{"network_id": {networkID}, "fields": {"ipv6_address_mode"}}, Out: &body, Creates: true,
	})
	for _, s := range body.Subnets {
		if err == nil && s.Mode != nil && *s.Mode != "dhcpv6-stateful" {
			d.mu.Lock()
			d.singly[networkID] = session.Aged[bool]{Value: true, Read: time.Now()}
			d.mu.Unlock()
			return true
		}
	}
	return false
}
