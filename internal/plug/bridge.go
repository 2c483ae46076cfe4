// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bridge is the wiring by a Linux bridge, which it makes if it is missing.
type bridge struct{ set *Set }

func (b bridge) prepare(_ context.Context, p pair) (layout, error) {
	br, err := b.find(p)
	if err != nil {
		return layout{}, err
	}
	if br == nil {
		if br, err = b.create(p); err != nil {
			return layout{}, err
		}
	}
	if br.Attrs().Flags&net.FlagUp == 0 {
		err = b.raise(p.node, br)
	}
	return layout{mtu: br.Attrs().MTU}, err
}

func (bridge) layout(context.Context, Interface) (layout, error) { return layout{}, nil }

// wait returns at once: a bridge passes a port's traffic from the start.
func (bridge) wait(context.Context, Interface) error { return nil }

// raise brings the bridge up. If the bridge has no address, like Kuryr's own, it keeps the node's
// own stack off it. Otherwise the node would be a neighbour of all pods through it.
func (bridge) raise(h *netlink.Handle, br netlink.Link) error {
	name := br.Attrs().Name
	addresses, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(br, netlink.FAMILY_ALL) })
	if err == nil && len(addresses) == 0 {
		// Not rp_filter: with br_netfilter, replies of a local pod by a host port or node port are checked as
		// if they came in by the bridge's own device, and would be refused. So IPv4 packets of a pod to the
		// bridge's own MAC address come in, and the node's own firewall must decide about them.
		err = mute(name, muteSysctls[:2])
	}
	if err == nil {
		err = h.LinkSetUp(br)
	}
	if err != nil {
		return fmt.Errorf("bringing bridge %s up: %w", name, err)
	}
	return nil
}

// create makes the bridge, or returns the one that another call has made meanwhile.
func (b bridge) create(p pair) (netlink.Link, error) {
	name := b.set.bridge(p.i)
	if !deviceName(name) {
		return nil, fmt.Errorf("name %q of the bridge: %w", name, ErrInvalid)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, b.set.mtu(p.i, layout{})
	if err := p.node.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("making bridge %s: %w: %w", name, err, ErrDataPath)
	}
	return b.existing(p)
}

// find returns the bridge of p, or nil if it does not exist.
func (b bridge) find(p pair) (netlink.Link, error) {
	l, err := device(p.node, b.set.bridge(p.i))
	if err == nil && l != nil && l.Type() != "bridge" {
		return nil, fmt.Errorf("device %s is no Linux bridge but of type %s: %w", l.Attrs().Name, l.Type(), ErrDataPath)
	}
	return l, err
}

func (b bridge) existing(p pair) (netlink.Link, error) {
	br, err := b.find(p)
	if err == nil && br == nil {
		err = fmt.Errorf("there is no bridge %s: %w", b.set.bridge(p.i), ErrDataPath)
	}
	return br, err
}

// attach makes the device a port of the bridge, in hairpin mode: packets may leave by the port
// they came from. A pod may then reach itself by an address of a Service.
func (b bridge) attach(_ context.Context, p pair, node netlink.Link) error {
	br, err := b.existing(p)
	if err != nil {
		return err
	}
	if node.Attrs().MasterIndex != br.Attrs().Index {
		err = p.node.LinkSetMaster(node, br)
	}
	if err == nil {
		err = p.node.LinkSetHairpin(node, true)
	}
	if err != nil {
		return fmt.Errorf("plugging %s into %s: %w: %w", node.Attrs().Name, br.Attrs().Name, err, ErrDataPath)
	}
	return nil
}

// detach has nothing to do: a deleted device leaves its bridge.
func (bridge) detach(context.Context, pair, netlink.Link, bool) error { return nil }

func (b bridge) attached(_ context.Context, p pair, node netlink.Link) error {
	br, err := b.existing(p)
	a := node.Attrs()
	switch {
	case err != nil:
		return err
	case br.Attrs().Flags&net.FlagUp == 0:
		return fmt.Errorf("bridge %s is down", br.Attrs().Name)
	case a.MasterIndex != br.Attrs().Index:
		return fmt.Errorf("device %s is not on bridge %s", a.Name, br.Attrs().Name)
	case a.Flags&net.FlagUp == 0:
		return fmt.Errorf("device %s is down", a.Name)
	}
	return nil
}

// kept reports whether the device is wired: a bridge port with a carrier passes traffic.
func (b bridge) kept(ctx context.Context, p pair, node netlink.Link) (bool, error) {
	if err := b.attached(ctx, p, node); err != nil {
		return false, err
	}
	return node.Attrs().OperState == netlink.OperUp, nil
}

// forget takes the device off the bridge for a moment. Otherwise the bridge would remember three
// things about it for minutes, all from the pod's packets, and send other pods' packets there: the
// MAC addresses that it has seen, the multicast groups with listeners, and whether there is a
// multicast router. It also removes the port's addresses from the node's connection tracking, which
// routed packets pass, and bridged packets may pass (br_netfilter).
func (bridge) forget(ctx context.Context, p pair, node netlink.Link) error {
	err := p.node.LinkSetNoMaster(node)
	if err == nil {
		err = p.node.LinkSetMasterByIndex(node, node.Attrs().MasterIndex)
	}
	if err == nil {
		err = p.node.LinkSetHairpin(node, true)
	}
	if err != nil {
		return fmt.Errorf("plugging %s into its bridge again: %w", node.Attrs().Name, err)
	}
	return forgetConnections(ctx, p.i)
}
