// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

// Port is a Neutron port with its binding.
type Port struct {
	ports.Port
	portsbinding.PortsBindingExt
}

// Port returns a port of Neutron's by its ID.
func (c *Cluster) Port(ctx context.Context, id string) (Port, error) {
	var p Port
	if err := ports.Get(ctx, c.Neutron, id).ExtractInto(&p); err != nil {
		return Port{}, fmt.Errorf("reading Neutron port %s: %w", id, err)
	}
	return p, nil
}

// KuryrPorts returns all ports in Neutron that Kuryr could have made.
func (c *Cluster) KuryrPorts(ctx context.Context) ([]Port, error) {
	pages, err := ports.List(c.Neutron, ports.ListOpts{DeviceOwner: "compute:kuryr"}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing Neutron ports: %w", err)
	}
	var all []Port
	if err := ports.ExtractPortsInto(pages, &all); err != nil {
		return nil, fmt.Errorf("listing Neutron ports: %w", err)
	}
	return all, nil
}
