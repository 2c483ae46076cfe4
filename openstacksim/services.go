// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"cmp"
	"errors"
	"net/netip"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/dial"
	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
	"github.com/kuryr-go/kuryr/openstacksim/internal/lbaasv2"
	"github.com/kuryr-go/kuryr/openstacksim/internal/neutron"
	"github.com/kuryr-go/kuryr/openstacksim/internal/octavia"
)

// makeServices puts Neutron and Octavia in.
func (c *Cloud) makeServices() {
	c.neutron = neutron.New(neutron.Options{
		URL: c.o.URL + networkPath, NewID: c.ids.UUID, Now: c.o.Now, After: c.timers.after, Hosts: c.o.Hosts, OVS: c.o.OVS, Quota: c.o.Quota, Policy: c.o.Policy, Later: c.later(),
		Active: func(string) (time.Duration, bool) { return c.panel.Active() },
	})
	c.network = c.neutron
	c.octavia = octavia.New(octavia.Options{
		URL: c.o.URL + balancerPath, NewID: c.ids.UUID, Now: c.o.Now, After: c.timers.after, Networks: vips{c.neutron}, Amphora: c.o.Amphora, Later: c.later(),
		Delay: func(kind, _, action string) (time.Duration, string) { return c.panel.Settle(kind, action) },
	})
	c.balancer = c.octavia
	if c.o.LBaaSv2 {
		c.makeLBaaS()
	}
}

func (c *Cloud) later() bool { return c.o.Release != Releases[0] }

// makeLBaaS has Neutron serve load balancers itself.
func (c *Cloud) makeLBaaS() {
	c.lbaas = lbaasv2.New(lbaasv2.Options{
		NewID: c.ids.UUID, After: c.timers.after, Networks: oldVIPs{vips{c.neutron}}, Quota: c.o.Quota["loadbalancer"],
		Delay: func(kind, _, action string) (time.Duration, string) { return c.panel.Settle(kind, action) },
	})
}

// oldVIPs is what LBaaS v2 needs of the rest of Neutron.
type oldVIPs struct{ vips }

// MakePort makes a VIP's port. It returns a refusal unchanged.
func (v oldVIPs) MakePort(p lbaasv2.VIPPort) (string, netip.Addr, error) {
	id, address, _, err := v.Service.MakePort(neutron.VIPPort{
		ProjectID: p.ProjectID, NetworkID: p.NetworkID, SubnetID: p.SubnetID, Address: p.Address,
		Name: p.Name, DeviceOwner: p.DeviceOwner, DeviceID: p.DeviceID,
	})
	var refusal *neutron.RefusedError
	if errors.As(err, &refusal) {
		err = &lbaasv2.RefusedError{Status: refusal.Status, Type: refusal.Type, Message: refusal.Message}
	}
	return id, address, err
}

// Plug sets whether a node has plugged the port: a plugged port becomes ACTIVE if it is bound,
// otherwise DOWN.
func (c *Cloud) Plug(portID string, plugged bool) error { return c.neutron.Plug(portID, plugged) }

// SetAgent sets whether the agent of one of Options.Hosts is alive. Ports are not bound to a host
// whose agent is dead; those that are bound stay so.
func (c *Cloud) SetAgent(host string, alive bool) error { return c.neutron.SetAgent(host, alive) }

// vips is what Octavia needs of Neutron.
type vips struct{ *neutron.Service }

// MakePort makes a VIP's port. A refusal is an *octavia.RefusedError.
func (v vips) MakePort(p octavia.VIPPort) (id string, address netip.Addr, subnetID string, err error) {
	id, address, subnetID, err = v.Service.MakePort(neutron.VIPPort{
		ProjectID: p.ProjectID, NetworkID: p.NetworkID, SubnetID: p.SubnetID, Address: p.Address,
		Name: p.Name, DeviceOwner: p.DeviceOwner, DeviceID: p.DeviceID, Down: p.Down,
	})
	var refusal *neutron.RefusedError
	if errors.As(err, &refusal) {
		err = &octavia.RefusedError{Status: refusal.Status, Message: refusal.Message}
	}
	return id, address, subnetID, err
}

func (v vips) Subnet(who keystone.Caller, id string) (networkID string, cidr netip.Prefix, ok bool) {
	networkID, cidr, _, ok = v.Service.Subnet(id)
	return networkID, cidr, ok && v.Shows(who, "subnet", id)
}

func (v vips) NetworkSubnets(who keystone.Caller, networkID string) []string {
	if !v.Shows(who, "network", networkID) {
		return nil
	}
	return v.Service.NetworkSubnets(networkID)
}

func (v vips) Port(who keystone.Caller, id string) (octavia.Port, bool) {
	p, ok := v.Service.Port(id)
	ok = ok && v.Shows(who, "port", id)
	out := octavia.Port{NetworkID: p.NetworkID, DeviceID: p.DeviceID}
	for _, a := range p.Addresses {
		out.Addresses = append(out.Addresses, octavia.PortAddress{SubnetID: a.SubnetID, Address: a.Address})
	}
	return out, ok
}

// guess fills in values that a fault would name and the request does not.
func (c *Cloud) guess(f *dial.Facts) {
	if f.Subnet == "" && f.Network != "" {
		if subnets := c.neutron.NetworkSubnets(f.Network); len(subnets) > 0 {
			f.Subnet = subnets[0]
		}
	}
	if f.Address == "" {
		if _, cidr, _, ok := c.neutron.Subnet(f.Subnet); ok {
			f.Address = cidr.Masked().Addr().Next().Next().String()
		}
	}
	f.Address = cmp.Or(f.Address, "0.0.0.0")
}
