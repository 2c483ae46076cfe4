// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Maker makes what a first start needs and the configuration does not name: network and subnets of
// pods and of cluster IPs, their interfaces on a router, and a security group of pods with its rules. What
// it has made before is found by its name. All fields except DryRun must be set.
type Maker struct {
	Cloud      sdn.Installer
	Kubernetes client.Reader
	Config     *config.Config // Make writes the IDs into it
	RouterID   string         // empty: networks.routerID, or the project's only router
	PodRanges  []netip.Prefix // of the subnets of pods, one for each address family
	DryRun     bool           // nothing is made
	// Tell is called for each thing, in order. The ID is empty for an interface, a rule, and what a dry run
	// would make.
	Tell func(s sdn.Setup, id string, made bool)

	missing int // things that a dry run would make
}

// Names of what Make makes.
const (
	podsName     = "kuryr-pods"
	servicesName = "kuryr-services"
)

// Make makes what is missing. It may be repeated, also after an error: it goes on where it stopped.
// Missing is how many things a dry run has not made.
func (m *Maker) Make(ctx context.Context) (missing int, err error) {
	ranges := readServiceCIDRs(ctx, m.Kubernetes)
	nodes := readNodes(ctx, m.Kubernetes, m.Config)
	if err := errors.Join(ranges.Err, nodes.Err); err != nil {
		return 0, err
	}
	for _, p := range m.PodRanges {
		for _, r := range ranges.Value {
			if p.Overlaps(wider(r)) {
				return 0, fmt.Errorf("the range of pods %s overlaps with %s, the subnet of the cluster IPs %s: give another one by --pods-range", p, wider(r), r)
			}
		}
		for _, n := range nodes.Value {
			if i := slices.IndexFunc(n.Addresses, p.Contains); i >= 0 {
				return 0, fmt.Errorf("the range of pods %s has the address %s of node %s: give another one by --pods-range", p, n.Addresses[i], n.Name)
			}
		}
	}
	router, err := m.router(ctx)
	if err != nil {
		return 0, err
	}
	pods, services := &m.Config.Pods, &m.Config.Services
	if len(pods.SubnetIDs) == 0 {
		var plans []sdn.Setup
		for _, p := range m.PodRanges {
			plans = append(plans, sdn.Setup{Kind: sdn.SetupSubnet, Name: podsName, ProjectID: pods.ProjectID, Prefix: p})
		}
		if pods.SubnetIDs, err = m.subnets(ctx, router, podsName, pods.ProjectID, plans); err != nil {
			return 0, err
		}
	}
	if len(services.SubnetIDs) == 0 {
		var plans []sdn.Setup
		for _, r := range ranges.Value {
			plans = append(plans, subnetOfRange(r, services.ProjectID))
		}
		if services.SubnetIDs, err = m.subnets(ctx, router, servicesName, services.ProjectID, plans); err != nil {
			return 0, err
		}
	}
	if len(pods.SecurityGroupIDs) == 0 {
		from := slices.Concat(m.PodRanges, ranges.Value)
		for _, n := range nodes.Value {
			for _, a := range n.Addresses {
				from = append(from, netip.PrefixFrom(a, a.BitLen()))
			}
		}
		err = m.group(ctx, from)
	}
	return m.missing, err
}

func (m *Maker) router(ctx context.Context) (string, error) {
	if id := cmp.Or(m.RouterID, m.Config.Networks.RouterID); id != "" {
		return id, nil
	}
	id, err := m.Cloud.FindSetup(ctx, sdn.Setup{Kind: sdn.SetupRouter})
	if errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid) {
		return "", fmt.Errorf("choosing a router: %w. Name one by --router (openstack router list), or make one (openstack router create NAME)", err)
	}
	return id, err
}

// subnets makes a network with subnets, and the subnets' interfaces.
func (m *Maker) subnets(ctx context.Context, router, name, project string, plans []sdn.Setup) ([]string, error) {
	if len(plans) == 0 {
		return nil, nil
	}
	network, err := m.ensure(ctx, sdn.Setup{Kind: sdn.SetupNetwork, Name: name, ProjectID: project})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range plans {
		s.NetworkID = network
		id, err := m.ensure(ctx, s)
		if err != nil {
			return ids, err
		}
		if id != "" {
			ids = append(ids, id)
		}
		if _, err := m.ensure(ctx, sdn.Setup{Kind: sdn.SetupRouterInterface, RouterID: router, SubnetID: id, Prefix: s.Prefix}); err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// group makes a security group that lets prefixes in.
func (m *Maker) group(ctx context.Context, from []netip.Prefix) error {
	id, err := m.ensure(ctx, sdn.Setup{Kind: sdn.SetupGroup, Name: podsName, ProjectID: m.Config.Pods.ProjectID})
	if err != nil {
		return err
	}
	if id != "" {
		m.Config.Pods.SecurityGroupIDs = []string{id}
	}
	for _, p := range from {
		if _, err := m.ensure(ctx, sdn.Setup{Kind: sdn.SetupRule, GroupID: id, Prefix: p}); err != nil {
			return err
		}
	}
	return nil
}

// ensure makes a thing, unless it exists. A thing in another one that a dry run has not made is
// missing, too.
func (m *Maker) ensure(ctx context.Context, s sdn.Setup) (string, error) {
	inside := map[sdn.SetupKind]string{sdn.SetupSubnet: s.NetworkID, sdn.SetupRouterInterface: s.SubnetID, sdn.SetupRule: s.GroupID}
	if in, ok := inside[s.Kind]; !ok || in != "" {
		id, err := m.Cloud.FindSetup(ctx, s)
		if err == nil {
			m.Tell(s, id, false)
			return id, nil
		}
		if !errors.Is(err, sdn.ErrNotFound) {
			return "", err
		}
	}
	if m.DryRun {
		m.missing++
		m.Tell(s, "", true)
		return "", nil
	}
	id, err := m.Cloud.MakeSetup(ctx, s)
	if err != nil {
		return "", err
	}
	m.Tell(s, id, true)
	return id, nil
}

// wider returns a prefix of twice the size.
func wider(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(p.Addr(), max(0, p.Bits()-1)).Masked()
}

// subnetOfRange is the subnet of a range of cluster IPs: twice as large, so that the gateway and the
// addresses that Neutron gives to others are in the other half.
func subnetOfRange(r netip.Prefix, project string) sdn.Setup {
	whole := wider(r)
	other := netip.PrefixFrom(whole.Addr(), r.Bits())
	if other == r.Masked() {
		other = netip.PrefixFrom(network.Last(r).Next(), r.Bits())
	}
	gateway := network.Last(other).Prev()
	return sdn.Setup{
		Kind: sdn.SetupSubnet, Name: servicesName, ProjectID: project, Prefix: whole, Gateway: gateway,
		Pool: sdn.AddressRange{First: other.Addr().Next(), Last: gateway.Prev()},
	}
}
