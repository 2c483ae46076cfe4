// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

type wireNetwork struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Description string    `json:"description"`
	ProjectID   string    `json:"project_id"`
	MTU         int       `json:"mtu"`
	Subnets     []string  `json:"subnets"`
	Created     time.Time `json:"created_at"` // zero: this Neutron does not tell
}

// Key implements session.Listable.
func (w wireNetwork) Key() string { return w.ID }

type wholeNetwork struct {
	Network wireNetwork `json:"network"`
}

const networkMissing = "NetworkNotFound"

// CreateNetwork implements sdn.Networks, with one request. The mark is in the description: tags
// cannot be given as one is made. Only administrators may choose another project than the
// credential's.
func (b *Neutron) CreateNetwork(ctx context.Context, owner sdn.Owner, spec sdn.NetworkSpec) (sdn.Network, error) {
	description, err := session.Mark{Cluster: b.config.ClusterID, Owner: owner}.Description()
	if err != nil {
		return sdn.Network{}, err
	}
	body := object{"name": spec.Name, "description": description}
	if spec.ProjectID != "" {
		body["project_id"] = spec.ProjectID
	}
	var out wholeNetwork
	err = b.Do(ctx, session.Request{
		Method: http.MethodPost, Path: []string{"networks"}, Body: object{"network": body}, Out: &out,
		Fields: map[string]sdn.Field{"HTTPBadRequest": sdn.FieldProject},
	})
	if err != nil {
		return sdn.Network{}, err
	}
	b.nets.addNetwork(out.Network.ID)
	return networkOf(out.Network), nil
}

func networkOf(w wireNetwork) sdn.Network {
	return sdn.Network{ID: w.ID, Name: w.Name, Owner: session.ParseMark(w.Description).Owner, ProjectID: w.ProjectID, MTU: w.MTU}
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
	var legs []surveyedLeg
	var subnetsErr, legsErr error
	var both sync.WaitGroup
	both.Go(func() { subnets, subnetsErr = b.subnetsIn(ctx, id) })
	both.Go(func() { legs, legsErr = b.legsIn(ctx, id) })
	both.Wait()
	if err := session.First(subnetsErr, legsErr); err != nil {
		return sdn.Network{}, err
	}
	for _, s := range subnets {
		if session.ParseMark(s.Description).Cluster != b.config.ClusterID {
			continue
		}
		b.nets.addSubnet(s.ID, id)
		one, err := subnetOf(s)
		if err != nil {
			return sdn.Network{}, err
		}
		one.RouterIDs = routersIn(legs, s.ID)
		out.Subnets = append(out.Subnets, one)
	}
	slices.SortFunc(out.Subnets, sdn.CompareSubnets)
	return out, nil
}

var networkFields = []string{"id", "name", "description", "project_id", "mtu", "subnets"}

// readNetwork reads any network.
func (b *Neutron) readNetwork(ctx context.Context, id string) (wireNetwork, error) {
	if id == "" {
		return wireNetwork{}, fmt.Errorf("the request names no network: %w", sdn.ErrNotFound)
	}
	var body wholeNetwork
	err := b.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"networks", id}, Query: url.Values{"fields": networkFields}, Out: &body, Subject: networkMissing,
	})
	return body.Network, err
}

// ownNetwork reads a network of this cluster.
func (b *Neutron) ownNetwork(ctx context.Context, id string) (wireNetwork, error) {
	w, err := b.readNetwork(ctx, id)
	if errors.Is(err, sdn.ErrNotFound) {
		b.nets.dropNetwork(id)
	}
	if err != nil {
		return wireNetwork{}, err
	}
	if session.ParseMark(w.Description).Cluster != b.config.ClusterID {
		b.nets.dropNetwork(id)
		return wireNetwork{}, fmt.Errorf("it has no mark of cluster %s: %w", b.config.ClusterID, sdn.ErrNotFound)
	}
	b.nets.addNetwork(id)
	return w, nil
}

// GivenNetwork implements sdn.Networks, with two requests at the same time.
func (b *Neutron) GivenNetwork(ctx context.Context, id string, subnetIDs []string) (sdn.Network, error) {
	var w wireNetwork
	var subnets []wireSubnet
	var networkErr, subnetsErr error
	var both sync.WaitGroup
	both.Go(func() { w, networkErr = b.readNetwork(ctx, id) })
	both.Go(func() {
		subnets, subnetsErr = readChosen[wireSubnet](ctx, b, "subnets", "id", subnetIDs, nil, subnetFields...)
	})
	both.Wait()
	if errors.Is(networkErr, sdn.ErrNotFound) {
		return sdn.Network{}, &sdn.InvalidError{Field: sdn.FieldNetwork, Value: id, Err: fmt.Errorf("network %s is not there, or the credential does not see it: %w", id, sdn.ErrInvalid)}
	}
	if err := session.First(networkErr, subnetsErr); err != nil {
		return sdn.Network{}, err
	}
	out := networkOf(w)
	if session.ParseMark(w.Description).Cluster != b.config.ClusterID {
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

// ListNetworks implements sdn.Networks. Neutron has no filter for a part of the description, so
// all networks that the credential sees are listed, with few fields.
func (b *Neutron) ListNetworks(ctx context.Context) ([]sdn.NetworkSummary, error) {
	before := b.nets.networkIDs()
	r := session.Request{Path: []string{"networks"}, Query: byID(nil, []string{"id", "name", "description", "project_id", "created_at"}), Subject: networkMissing}
	all, err := session.ReadAll(ctx, b.Client, r, func(w wireNetwork) bool { return session.ParseMark(w.Description).Cluster == b.config.ClusterID })
	if err != nil {
		return nil, err
	}
	out := make([]sdn.NetworkSummary, len(all))
	for i, w := range all {
		out[i] = sdn.NetworkSummary{ID: w.ID, Name: w.Name, Owner: session.ParseMark(w.Description).Owner, ProjectID: w.ProjectID, Created: w.Created}
		b.nets.addNetwork(w.ID)
	}
	for _, id := range before {
		if !slices.ContainsFunc(all, func(w wireNetwork) bool { return w.ID == id }) {
			b.nets.dropNetwork(id)
		}
	}
	return out, nil
}

// passing are the device owners of ports that no network keeps: legs, which Kuryr removes, and the
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
	_, err := b.ownNetwork(ctx, id)
	if err == nil {
		err = b.Do(ctx, session.Request{Method: http.MethodDelete, Path: []string{"networks", id}, Subject: networkMissing})
	}
	if err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return err
	}
	b.nets.dropNetwork(id)
	b.details.forgetNetwork(id)
	return nil
}

// ownNets are networks and subnets whose mark this process has seen, so that making something in
// them needs no look at it first. A list of networks corrects it.
type ownNets struct {
	mu       sync.Mutex
	networks map[string]bool
	subnets  map[string]string // network by subnet
}

func newOwnNets() *ownNets {
	return &ownNets{networks: map[string]bool{}, subnets: map[string]string{}}
}

func (o *ownNets) addNetwork(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.networks[id] = true
}

func (o *ownNets) addSubnet(id, networkID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subnets[id] = networkID
}

func (o *ownNets) hasNetwork(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.networks[id]
}

func (o *ownNets) hasSubnet(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.subnets[id]
	return ok
}

func (o *ownNets) networkIDs() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]string, 0, len(o.networks))
	for id := range o.networks {
		out = append(out, id)
	}
	return out
}

// dropNetwork forgets a network and its subnets.
func (o *ownNets) dropNetwork(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.networks, id)
	for subnet, network := range o.subnets {
		if network == id {
			delete(o.subnets, subnet)
		}
	}
}

func (o *ownNets) dropSubnet(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.subnets, id)
}

type wireSubnetPool struct {
	Pool struct {
		ID        string `json:"id"`
		IPVersion int    `json:"ip_version"`
	} `json:"subnetpool"`
}

// SubnetPool implements sdn.SubnetPools, with one request.
func (b *Neutron) SubnetPool(ctx context.Context, id string) (sdn.SubnetPool, error) {
	var out wireSubnetPool
	err := b.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"subnetpools", id}, Query: url.Values{"fields": {"id", "ip_version"}}, Out: &out, Subject: "SubnetPoolNotFound",
	})
	if errors.Is(err, sdn.ErrNotFound) {
		return sdn.SubnetPool{}, &sdn.InvalidError{Field: sdn.FieldSubnetPool, Value: id, Err: fmt.Errorf("subnet pool %s is not there, or the credential does not see it: %w", id, sdn.ErrInvalid)}
	}
	return sdn.SubnetPool{ID: out.Pool.ID, IPVersion: out.Pool.IPVersion}, err
}
