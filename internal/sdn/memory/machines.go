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

// Machine is the port of a virtual machine that is a node. It counts for no quota.
type Machine struct {
	PortID   string
	SubnetID string
	Address  string
	Trunk    bool   // the port has one
	Project  string // of the port; empty: that of all credentials
	Server   string // that the port is plugged into
}

// Pair is what a machine's port may send and get besides its own addresses.
type Pair struct{ IP, MAC string }

// AddMachine makes the port of a virtual machine, or gives one that is there another
// address.
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

// RemoveMachine removes the port of a virtual machine, with its trunk. The ports
// that it carried stay, and nothing carries them.
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

// SetMaxPairs lets a machine's port have n address pairs; negative is any number.
// It is 10 at first, as on a Neutron that nobody has configured.
func (c *Cloud) SetMaxPairs(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = n
}

// AddPair is somebody's adding an address pair by hand.
func (c *Cloud) AddPair(portID string, p Pair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pairs[portID] = append(c.pairs[portID], p)
}

// Pairs returns the address pairs of a machine's port, in the order of their coming.
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

// What follows is called with the lock held.

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
	macvlan = "macvlan" // ports of this type pass their parent by its address pairs
	unbound = "unbound" // that of ports that are nowhere
)

func byPairs(r sdn.PortRequest) bool { return r.ParentPortID != "" && r.VIFType == macvlan }

// carry makes p, which has its addresses, a port of r's parent.
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

// leave takes a port from whatever carries it.
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
