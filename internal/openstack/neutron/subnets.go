// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

type wireSubnet struct {
	resource
	NetworkID  string      `json:"network_id"`
	IPVersion  int         `json:"ip_version"`
	CIDR       string      `json:"cidr"`
	Gateway    string      `json:"gateway_ip"` // null: there is none
	PoolID     string      `json:"subnetpool_id"`
	DNSServers []string    `json:"dns_nameservers"`
	HostRoutes []wireRoute `json:"host_routes"`
	Ranges     []struct {
		Start netip.Addr
		End   netip.Addr
	} `json:"allocation_pools"`
	Created time.Time `json:"created_at"` // zero: this Neutron does not tell
}

var subnetFields = []string{
	"id", "network_id", "description", "ip_version", "cidr", "gateway_ip", "subnetpool_id", "dns_nameservers", "host_routes", "created_at",
}

// CreateSubnet implements sdn.Networks, with one request in a network that this process knows.
//
// DHCP is off, because nodes address pods. An IPv6 subnet has neither ipv6_address_mode nor
// ipv6_ra_mode: Neutron then chooses each address as for IPv4, not by the MAC address, and its
// routers send no advertisements. Pods need none: the CNI plugin gives them the gateway as default
// route. But a virtual machine in the subnet would have to be told its route.
func (b *Neutron) CreateSubnet(ctx context.Context, owner sdn.Owner, spec sdn.SubnetSpec) (sdn.OwnSubnet, error) {
	body, err := b.newBody(owner, spec.Name, spec.ProjectID)
	if err != nil {
		return sdn.OwnSubnet{}, err
	}
	if _, ok := b.nets.Load(spec.NetworkID); !ok {
		_, err := b.ownNetwork(ctx, spec.NetworkID)
		if errors.Is(err, sdn.ErrNotFound) {
			return sdn.OwnSubnet{}, &sdn.InvalidError{Field: sdn.FieldNetwork, Value: spec.NetworkID, Err: fmt.Errorf("network %s is not there, or not this cluster's: %w", spec.NetworkID, sdn.ErrInvalid)}
		}
		if err != nil {
			return sdn.OwnSubnet{}, err
		}
	}
	addSpec(body, spec)
	w, err := send[wireSubnet](ctx, b.Client, subnetKind, subnetKind.request(http.MethodPost, "", body))
	if err != nil {
		return sdn.OwnSubnet{}, b.explainSubnet(ctx, spec, err)
	}
	b.nets.Store(w.ID, true)
	return subnetOf(w)
}

// addSpec adds a subnet's fields to the body of its creation. Neutron chooses the gateway in a prefix
// of a pool: the request cannot name an address of a prefix that is not known yet.
func addSpec(body object, spec sdn.SubnetSpec) {
	maps.Copy(body, updateOf(spec.SubnetUpdate))
	body["network_id"], body["ip_version"], body["enable_dhcp"] = spec.NetworkID, spec.IPVersion, false
	if spec.Prefix.IsValid() {
		prefix := spec.Prefix.Masked()
		body["cidr"], body["gateway_ip"] = prefix.String(), prefix.Addr().Next().String()
		return
	}
	body["subnetpool_id"] = spec.PoolID
	if spec.PrefixLength != 0 {
		body["prefixlen"] = spec.PrefixLength
	}
}

func updateOf(u sdn.SubnetUpdate) object {
	servers := make([]string, 0, len(u.DNSServers))
	for _, s := range u.DNSServers {
		servers = append(servers, s.String())
	}
	return object{"dns_nameservers": servers, "host_routes": wireRoutes(u.Routes)}
}

func subnetOf(w wireSubnet) (sdn.OwnSubnet, error) {
	out := sdn.OwnSubnet{ID: w.ID, NetworkID: w.NetworkID, IPVersion: w.IPVersion, PoolID: w.PoolID, Created: w.Created}
	out.Routes = routesOf(w.HostRoutes)
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
	err := b.Do(ctx, subnetKind.request(http.MethodPut, id, updateOf(u)))
	if errors.Is(err, sdn.ErrNotFound) {
		b.nets.Delete(id)
	}
	b.details.forget([]subnet{{id: id}})
	return err
}

// DeleteSubnet implements sdn.Networks. The mark is always read, as in DeleteNetwork.
func (b *Neutron) DeleteSubnet(ctx context.Context, id string) error {
	b.nets.Delete(id)
	err := b.ownSubnet(ctx, id)
	if err == nil {
		err = b.Do(ctx, subnetKind.request(http.MethodDelete, id, nil))
	}
	if err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return err
	}
	b.nets.Delete(id)
	b.details.forget([]subnet{{id: id}})
	return nil
}

// ownSubnet checks that a subnet is this cluster's. It asks only if it is not known.
func (b *Neutron) ownSubnet(ctx context.Context, id string) error {
	if _, ok := b.nets.Load(id); ok {
		return nil
	}
	_, err := getOwn[wireSubnet](ctx, b, subnetKind, id, "id", "description")
	if err == nil {
		b.nets.Store(id, true)
	}
	return err
}
