// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Machine is the port of a virtual machine that is a node. It does not count against the quota.
type Machine struct {
	PortID   string
	SubnetID string
	Address  string
	Trunk    bool   // the port is the parent of a trunk
	Project  string // of the port; empty: the project of all credentials
	Server   string // the server that the port is plugged into
}

// Pair is an address pair of a machine's port.
type Pair struct{ IP, MAC string }

// AddMachine makes the port of a virtual machine, or gives an existing one another address.
func (c *Cloud) AddMachine(m Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hostsAt[addressKey{m.SubnetID, m.Address}] = m.PortID
	c.used[addressKey{m.SubnetID, m.Address}] = true
	c.machines[m.PortID] = m
	if c.pairs[m.PortID] == nil {
		c.pairs[m.PortID] = []Pair{}
	}
	if m.Trunk && c.trunks[m.PortID] == nil {
		c.trunks[m.PortID] = map[string]int32{}
	}
}

// RemoveMachine removes the port of a virtual machine, with its trunk. The ports that it carried
// stay, without a parent.
func (c *Cloud) RemoveMachine(portID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, id := range c.hostsAt {
		if id == portID {
			delete(c.hostsAt, k)
			delete(c.used, k)
		}
	}
	delete(c.machines, portID)
	delete(c.pairs, portID)
	delete(c.trunks, portID)
	for _, p := range c.ports {
		if p.VIF.ParentPortID == portID {
			p.VIF.Type, p.VIF.ParentPortID, p.VIF.VLANID, p.Active = unbound, "", 0, false
		}
	}
}

// SetMaxPairs sets how many address pairs a machine's port may have; negative is any number. The
// default is 10, as in an unconfigured Neutron.
func (c *Cloud) SetMaxPairs(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = n
}

// AddPair adds an address pair as a person does by hand.
func (c *Cloud) AddPair(portID string, p Pair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pairs[portID] = append(c.pairs[portID], p)
}

// Pairs returns the address pairs of a machine's port, oldest first.
func (c *Cloud) Pairs(portID string) []Pair {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pairs[portID])
}

// ParentPort implements sdn.Hosts.
func (b *Backend) ParentPort(ctx context.Context, m sdn.Machine) (string, error) {
	var id string
	err := b.cloud.do(ctx, ParentPort, func() (err error) {
		if id, err = b.cloud.parentPort(m); err != nil {
			return fmt.Errorf("looking for the port with address %s in subnets %q: %w", m.Address, m.SubnetIDs, err)
		}
		return nil
	})
	return id, err
}

// The caller of the functions below holds the lock.

func (c *Cloud) parentPort(m sdn.Machine) (string, error) {
	ip, err := netip.ParseAddr(m.Address)
	if err != nil {
		return "", fmt.Errorf("%w: %w", sdn.ErrInvalid, err)
	}
	var found []string
	for k, id := range c.hostsAt {
		is := c.machines[id]
		if k.ip != ip.String() || m.Trunk && !is.Trunk || m.ServerID != "" && m.ServerID != is.Server || m.ProjectID != is.Project {
			continue
		}
		if len(m.SubnetIDs) == 0 || slices.Contains(m.SubnetIDs, k.subnet) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return "", sdn.ErrNotFound
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d ports have it: %w", len(found), sdn.ErrInvalid)
}

const (
	macvlan = "macvlan" // ports of this type reach the network through their parent's address pairs
	unbound = "unbound" // the type of ports without a host
)

func byPairs(r sdn.PortRequest) bool { return r.ParentPortID != "" && r.VIFType == macvlan }

// carry makes p a port of r's parent. p has its addresses already.
func (c *Cloud) carry(p *port, r sdn.PortRequest) error {
	p.Host, p.VIF.ParentPortID = "", r.ParentPortID
	if !byPairs(r) {
		p.VIF.Type, p.VIF.VLANID = "vlan", c.freeVLAN(r.ParentPortID)
		c.trunks[r.ParentPortID][p.ID] = p.VIF.VLANID
		return nil
	}
	more := pairsOf(p.VIF)
	if have := len(c.pairs[r.ParentPortID]); c.most >= 0 && have+len(more) > c.most {
		return fmt.Errorf("port %s has %d of %d address pairs: %w", r.ParentPortID, have, c.most, sdn.ErrQuota)
	}
	p.VIF.Type, p.Active = macvlan, true
	c.pairs[r.ParentPortID] = append(c.pairs[r.ParentPortID], more...)
	return nil
}

func pairsOf(vif v1.VIF) []Pair {
	var out []Pair
	for _, a := range vif.Addresses {
		ip := netip.MustParseAddr(a.IP)
		out = append(out, Pair{IP: netip.PrefixFrom(ip, ip.BitLen()).String(), MAC: vif.MACAddress})
	}
	return out
}

// leave removes a port from its trunk or from its parent's address pairs.
func (c *Cloud) leave(p *port) {
	for _, subports := range c.trunks {
		delete(subports, p.ID)
	}
	if p.VIF.Type == macvlan {
		own := pairsOf(p.VIF)
		id := p.VIF.ParentPortID
		c.pairs[id] = slices.DeleteFunc(c.pairs[id], func(q Pair) bool { return slices.Contains(own, q) })
	}
}
