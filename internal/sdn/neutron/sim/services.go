// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"net/http"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn/neutron/sim/dial"
	"github.com/kuryr-go/kuryr/internal/sdn/neutron/sim/identity"
	"github.com/kuryr-go/kuryr/internal/sdn/neutron/sim/network"
)

// makeServices puts Neutron and Octavia in.
func (c *Cloud) makeServices() {
	c.neutron = network.New(network.Options{
		URL: c.o.URL + networkPath, NewID: c.ids.UUID, Now: c.o.Now, After: c.after, Hosts: c.o.Hosts, Quota: c.o.Quota,
		Active: func(string) (time.Duration, bool) { return c.panel.Active() },
	})
	c.network = c.neutron
	c.balancer = absent{}
}

// Plug says that a node has plugged the port, or unplugged it: it becomes ACTIVE
// if it is bound, or DOWN.
func (c *Cloud) Plug(portID string, plugged bool) error { return c.neutron.Plug(portID, plugged) }

// absent is a service that is not there.
type absent struct{}

func (absent) Handle(w http.ResponseWriter, r *http.Request, _ identity.Caller) { http.NotFound(w, r) }

// guess fills in what a fault would name and the request does not.
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
