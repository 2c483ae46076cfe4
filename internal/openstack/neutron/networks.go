// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

type wireNetwork struct {
	resource
	MTU      int32    `json:"mtu"`
	Subnets  []string `json:"subnets"`
	External bool     `json:"router:external"`
	Up       bool     `json:"admin_state_up"`
	Secure   *bool    `json:"port_security_enabled"` // nil: this Neutron has no such switch, and ports have groups
	Type     string   `json:"provider:network_type"` // this and the next: for administrators
	Physical string   `json:"provider:physical_network"`
}

// CreateNetwork implements sdn.Networks, with one request. Only administrators may choose another
// project than the credential's.
func (b *Neutron) CreateNetwork(ctx context.Context, owner sdn.Owner, spec sdn.NetworkSpec) (sdn.Network, error) {
	body, err := b.newBody(owner, spec.Name, spec.ProjectID)
	if err != nil {
		return sdn.Network{}, err
	}
	r := networkKind.request(http.MethodPost, "", body)
	r.Fields = map[string]sdn.Field{"HTTPBadRequest": sdn.FieldProject}
	w, err := send[wireNetwork](ctx, b.Client, networkKind, r)
	if err != nil {
		return sdn.Network{}, err
	}
	b.nets.Store(w.ID, true)
	return networkOf(w), nil
}

func networkOf(w wireNetwork) sdn.Network {
	return sdn.Network{ID: w.ID, Name: w.Name, Owner: w.mark().Owner, ProjectID: w.ProjectID, MTU: int(w.MTU)}
}

// Network implements sdn.Networks. Subnets and interfaces of routers are read at the same time. A
// network without subnets costs one request.
func (b *Neutron) Network(ctx context.Context, id string) (sdn.Network, error) {
	w, err := b.ownNetwork(ctx, id)
	if err != nil {
		return sdn.Network{}, err
	}
	out := networkOf(w)
	if len(w.Subnets) == 0 {
		return out, nil
	}
	var subnets []wireSubnet
	var ifaces []wirePort
	var subnetsErr, ifacesErr error
	var both sync.WaitGroup
	both.Go(func() { subnets, subnetsErr = b.subnetsIn(ctx, id) })
	both.Go(func() { ifaces, ifacesErr = b.ifacesIn(ctx, id) })
	both.Wait()
	if err := cmp.Or(subnetsErr, ifacesErr); err != nil {
		return sdn.Network{}, err
	}
	for _, s := range subnets {
		if s.mark().Cluster != b.Config.ClusterID {
			continue
		}
		b.nets.Store(s.ID, true)
		one, err := subnetOf(s)
		if err != nil {
			return sdn.Network{}, err
		}
		one.RouterIDs = routersIn(ifaces, s.ID)
		out.Subnets = append(out.Subnets, one)
	}
	slices.SortFunc(out.Subnets, sdn.CompareSubnets)
	return out, nil
}

var networkFields = []string{"id", "name", "description", "project_id", "mtu", "subnets"}

// ownNetwork reads a network of this cluster.
func (b *Neutron) ownNetwork(ctx context.Context, id string) (wireNetwork, error) {
	w, err := getOwn[wireNetwork](ctx, b, networkKind, id, networkFields...)
	if errors.Is(err, sdn.ErrNotFound) {
		b.nets.Delete(id)
	}
	if err != nil {
		return wireNetwork{}, err
	}
	b.nets.Store(id, true)
	return w, nil
}

// GivenNetwork implements sdn.Networks, with two requests.
func (b *Neutron) GivenNetwork(ctx context.Context, id string, subnetIDs []string) (sdn.Network, error) {
	w, err := get[wireNetwork](ctx, b, networkKind, id, networkFields...)
	if errors.Is(err, sdn.ErrNotFound) {
		return sdn.Network{}, &sdn.InvalidError{Field: sdn.FieldNetwork, Value: id, Err: fmt.Errorf("network %s is not there, or the credential does not see it: %w", id, sdn.ErrInvalid)}
	}
	if err != nil {
		return sdn.Network{}, err
	}
	subnets, err := readChosen[wireSubnet](ctx, b, "subnets", "id", subnetIDs, nil, subnetFields...)
	if err != nil {
		return sdn.Network{}, err
	}
	out := networkOf(w)
	if w.mark().Cluster != b.Config.ClusterID {
		out.Owner = sdn.Owner{}
	}
	for _, want := range subnetIDs {
		i := slices.IndexFunc(subnets, func(s wireSubnet) bool { return sdn.SameID(s.ID, want) && s.NetworkID == w.ID })
		if i < 0 {
			return sdn.Network{}, &sdn.InvalidError{Field: sdn.FieldSubnet, Value: want, Err: fmt.Errorf("subnet %s is not in network %s, or the credential does not see it: %w", want, id, sdn.ErrInvalid)}
		}
		one, err := subnetOf(subnets[i])
		if err != nil {
			return sdn.Network{}, err
		}
		out.Subnets = append(out.Subnets, one)
	}
	slices.SortFunc(out.Subnets, sdn.CompareSubnets)
	return out, nil
}

// ListNetworks implements sdn.Networks.
func (b *Neutron) ListNetworks(ctx context.Context) ([]sdn.NetworkSummary, error) {
	return b.summaries(ctx, networkKind)
}

type wireSummary struct {
	resource
	Created time.Time `json:"created_at"` // zero: this Neutron does not tell
}

// summaries lists the networks or routers of this cluster.
func (b *Neutron) summaries(ctx context.Context, k kind) ([]sdn.NetworkSummary, error) {
	all, err := listOwn[wireSummary](ctx, b, k, nil, "id", "name", "description", "project_id", "created_at")
	if err != nil {
		return nil, err
	}
	out := make([]sdn.NetworkSummary, len(all))
	for i, w := range all {
		out[i] = sdn.NetworkSummary{ID: w.ID, Name: w.Name, Owner: w.mark().Owner, ProjectID: w.ProjectID, Created: w.Created}
	}
	return out, nil
}

// passing are the device owners of ports that no network keeps: interfaces, which Kuryr removes, and the
// ports of DHCP and metadata, which Neutron deletes with the network.
var passing = append([]string{"network:dhcp", "network:distributed", "network:router_centralized_snat"}, routerOwners...)

// InUse implements sdn.Networks. Neutron cannot filter by what a port is not. It shows ports of all
// projects to the project that owns the network.
func (b *Neutron) InUse(ctx context.Context, networkID string) ([]sdn.PortUse, error) {
	all, err := readChosen[wirePort](ctx, b, "ports", "network_id", []string{networkID}, nil, "id", "device_owner", "description")
	if err != nil {
		return nil, err
	}
	var out []sdn.PortUse
	for _, w := range all {
		if !slices.Contains(passing, w.DeviceOwner) {
			out = append(out, sdn.PortUse{ID: w.ID, DeviceOwner: w.DeviceOwner, Own: b.ours(w)})
		}
	}
	slices.SortFunc(out, func(x, y sdn.PortUse) int { return strings.Compare(x.ID, y.ID) })
	return out, nil
}

// DeleteNetwork implements sdn.Networks. Neutron deletes the subnets, too. The mark is always read:
// there is one deletion in the life of a network, and none can be undone.
func (b *Neutron) DeleteNetwork(ctx context.Context, id string) error {
	w, err := b.ownNetwork(ctx, id)
	if err == nil {
		err = b.Do(ctx, networkKind.request(http.MethodDelete, id, nil))
	}
	if err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return err
	}
	for _, gone := range append(w.Subnets, id) {
		b.nets.Delete(gone)
	}
	b.details.forgetNetwork(id)
	return nil
}

// SubnetPool implements sdn.SubnetPools, with one request.
func (b *Neutron) SubnetPool(ctx context.Context, id string) (sdn.SubnetPool, error) {
	w, err := get[wirePool](ctx, b, subnetPoolKind, id, "id", "ip_version")
	if errors.Is(err, sdn.ErrNotFound) {
		return sdn.SubnetPool{}, &sdn.InvalidError{Field: sdn.FieldSubnetPool, Value: id, Err: fmt.Errorf("subnet pool %s is not there, or the credential does not see it: %w", id, sdn.ErrInvalid)}
	}
	return sdn.SubnetPool{ID: w.ID, IPVersion: w.IPVersion}, err
}
