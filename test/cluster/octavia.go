// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

// LoadBalancers returns the load balancers in Octavia that bear a cluster's mark, by ID.
// A cloud without Octavia has none.
func (c *Cluster) LoadBalancers(ctx context.Context, clusterID string) (map[string]loadbalancers.LoadBalancer, error) {
	if c.Octavia == nil {
		return nil, nil
	}
	pages, err := loadbalancers.List(c.Octavia, loadbalancers.ListOpts{}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing load balancers: %w", err)
	}
	all, err := loadbalancers.ExtractLoadBalancers(pages)
	if err != nil {
		return nil, fmt.Errorf("listing load balancers: %w", err)
	}
	own := map[string]loadbalancers.LoadBalancer{}
	for _, lb := range all {
		if slices.Contains(lb.Tags, "kuryr.cluster="+clusterID) || strings.Contains(lb.Description, "kuryr.cluster="+clusterID) {
			own[lb.ID] = lb
		}
	}
	return own, nil
}

// FloatingIPs returns the floating IPs in Neutron that bear a cluster's mark, by ID.
func (c *Cluster) FloatingIPs(ctx context.Context, clusterID string) (map[string]floatingips.FloatingIP, error) {
	pages, err := floatingips.List(c.Neutron, floatingips.ListOpts{}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing floating IPs: %w", err)
	}
	all, err := floatingips.ExtractFloatingIPs(pages)
	if err != nil {
		return nil, fmt.Errorf("listing floating IPs: %w", err)
	}
	own := map[string]floatingips.FloatingIP{}
	for _, ip := range all {
		if strings.Contains(ip.Description, "kuryr.cluster="+clusterID) {
			own[ip.ID] = ip
		}
	}
	return own, nil
}

// Listeners returns the listeners of a load balancer, by <protocol>:<port>.
func (c *Cluster) Listeners(ctx context.Context, loadBalancer string) (map[string]listeners.Listener, error) {
	pages, err := listeners.List(c.Octavia, listeners.ListOpts{LoadbalancerID: loadBalancer}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing listeners of load balancer %s: %w", loadBalancer, err)
	}
	all, err := listeners.ExtractListeners(pages)
	if err != nil {
		return nil, fmt.Errorf("listing listeners of load balancer %s: %w", loadBalancer, err)
	}
	by := map[string]listeners.Listener{}
	for _, l := range all {
		by[l.Protocol+":"+strconv.Itoa(l.ProtocolPort)] = l
	}
	return by, nil
}

// Members returns the members of a pool as IP:port, sorted, with their IDs.
func (c *Cluster) Members(ctx context.Context, pool string) (addresses []string, ids map[string]string, err error) {
	pages, err := pools.ListMembers(c.Octavia, pool, pools.ListMembersOpts{}).AllPages(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("listing members of pool %s: %w", pool, err)
	}
	all, err := pools.ExtractMembers(pages)
	if err != nil {
		return nil, nil, fmt.Errorf("listing members of pool %s: %w", pool, err)
	}
	ids = map[string]string{}
	for _, m := range all {
		address := net.JoinHostPort(m.Address, strconv.Itoa(m.ProtocolPort))
		addresses = append(addresses, address)
		ids[address] = m.ID
	}
	slices.Sort(addresses)
	return addresses, ids, nil
}

// VIPs returns the load balancers that have a port in Neutron for their VIP, by ID:
// the OVN provider names the port after them.
func (c *Cluster) VIPs(ctx context.Context) (map[string]ports.Port, error) {
	pages, err := ports.List(c.Neutron, ports.ListOpts{}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing Neutron ports: %w", err)
	}
	all, err := ports.ExtractPorts(pages)
	if err != nil {
		return nil, fmt.Errorf("listing Neutron ports: %w", err)
	}
	vips := map[string]ports.Port{}
	for _, p := range all {
		if id, is := strings.CutPrefix(p.Name, "ovn-lb-vip-"); is {
			vips[id] = p
		}
	}
	return vips, nil
}
