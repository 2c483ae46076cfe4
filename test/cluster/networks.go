// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/mtu"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
)

// Network is a Neutron network with its largest packet.
type Network struct {
	networks.Network
	mtu.NetworkMTUExt
}

// Networks returns the networks in Neutron that bear a cluster's mark, by ID.
func (c *Cluster) Networks(ctx context.Context, clusterID string) (map[string]Network, error) {
	pages, err := networks.List(c.Neutron, networks.ListOpts{}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing networks: %w", err)
	}
	var all []Network
	if err := networks.ExtractNetworksInto(pages, &all); err != nil {
		return nil, fmt.Errorf("listing networks: %w", err)
	}
	own := map[string]Network{}
	for _, n := range all {
		if marked(n.Description, n.Tags, clusterID) {
			own[n.ID] = n
		}
	}
	return own, nil
}

// Subnets returns the subnets in Neutron that bear a cluster's mark, by ID.
func (c *Cluster) Subnets(ctx context.Context, clusterID string) (map[string]subnets.Subnet, error) {
	pages, err := subnets.List(c.Neutron, subnets.ListOpts{}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing subnets: %w", err)
	}
	all, err := subnets.ExtractSubnets(pages)
	if err != nil {
		return nil, fmt.Errorf("listing subnets: %w", err)
	}
	own := map[string]subnets.Subnet{}
	for _, s := range all {
		if marked(s.Description, s.Tags, clusterID) {
			own[s.ID] = s
		}
	}
	return own, nil
}

// Routers returns the routers in Neutron that bear a cluster's mark, by ID.
func (c *Cluster) Routers(ctx context.Context, clusterID string) (map[string]routers.Router, error) {
	pages, err := routers.List(c.Neutron, routers.ListOpts{}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing routers: %w", err)
	}
	all, err := routers.ExtractRouters(pages)
	if err != nil {
		return nil, fmt.Errorf("listing routers: %w", err)
	}
	own := map[string]routers.Router{}
	for _, r := range all {
		if marked(r.Description, r.Tags, clusterID) {
			own[r.ID] = r
		}
	}
	return own, nil
}

// RouterInterfaces returns the subnets that a router has an interface in, each with its address there.
func (c *Cluster) RouterInterfaces(ctx context.Context, router string) (map[string]string, error) {
	pages, err := ports.List(c.Neutron, ports.ListOpts{DeviceID: router}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the ports of router %s: %w", router, err)
	}
	all, err := ports.ExtractPorts(pages)
	if err != nil {
		return nil, fmt.Errorf("listing the ports of router %s: %w", router, err)
	}
	ifaces := map[string]string{}
	for _, p := range all {
		if !strings.HasPrefix(p.DeviceOwner, "network:router_interface") {
			continue
		}
		for _, ip := range p.FixedIPs {
			ifaces[ip.SubnetID] = ip.IPAddress
		}
	}
	return ifaces, nil
}

// PortsOf returns the ports of a network that pods have or may get.
func (c *Cluster) PortsOf(ctx context.Context, network string) ([]Port, error) {
	all, err := c.KuryrPorts(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p Port) bool { return p.NetworkID != network }), nil
}

func marked(description string, tags []string, clusterID string) bool {
	mark := "kuryr.cluster=" + clusterID
	return strings.Contains(description, mark) || slices.Contains(tags, mark)
}
