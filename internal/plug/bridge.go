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

// bridge plugs ports into a Linux bridge. It makes a missing bridge.
type bridge struct{ set *Set }

var _ Driver = (*bridge)(nil)

func (b *bridge) Plug(ctx context.Context, i Interface) error {
	br, err := b.ensure(i)
	if err != nil {
		return err
	}
	if b.set.claim(ctx, i, bridgeWiring{br}) {
		if b.set.wired.CompareAndDelete(i.PortID, i.ContainerID) {
			return nil
		}
		return b.set.announce(ctx, i)
	}
	if err := b.set.plug(ctx, i, layout{mtu: br.Attrs().MTU}, bridgeWiring{br}); err != nil {
		return err
	}
	return b.set.announce(ctx, i)
}

// Wait returns at once: a bridge passes a port's traffic from the start.
func (b *bridge) Wait(context.Context, Interface) error { return nil }

func (b *bridge) Unplug(ctx context.Context, i Interface) error {
	return b.set.unplug(ctx, i, bridgeWiring{})
}

func (b *bridge) Check(ctx context.Context, i Interface) error {
	h, err := openNetlink()
	if err != nil {
		return err
	}
	defer h.Close()
	br, err := b.find(h, b.name(i))
	if err != nil {
		return err
	}
	if br == nil {
		return fmt.Errorf("there is no bridge %s: %w", b.name(i), ErrDataPath)
	}
	return b.set.check(ctx, i, layout{}, bridgeWiring{br})
}

func (b *bridge) name(i Interface) string {
	if i.Bridge != "" {
		return i.Bridge
	}
	return b.set.config.Bridge
}

// ensure returns the bridge of i, and makes it and brings it up if needed.
func (b *bridge) ensure(i Interface) (netlink.Link, error) {
	h, err := openNetlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	name := b.name(i)
	br, err := b.find(h, name)
	if err != nil {
		return nil, err
	}
	if br == nil {
		if br, err = b.create(h, name, b.set.mtu(i, layout{})); err != nil {
			return nil, err
		}
	}
	if br.Attrs().Flags&net.FlagUp == 0 {
		if err := b.raise(h, br); err != nil {
			return nil, err
		}
	}
	return br, nil
}

// raise brings the bridge up. If the bridge has no address, like Kuryr's own, it keeps the node's
// own stack off it. Otherwise the node would be a neighbour of all pods through it.
func (b *bridge) raise(h *netlink.Handle, br netlink.Link) error {
	name := br.Attrs().Name
	addresses, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(br, netlink.FAMILY_ALL) })
	if err == nil && len(addresses) == 0 {
		err = muteBridge(name)
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
func (b *bridge) create(h *netlink.Handle, name string, mtu int) (netlink.Link, error) {
	if !deviceName(name) {
		return nil, fmt.Errorf("name %q of the bridge: %w", name, ErrInvalid)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("making bridge %s: %w: %w", name, err, ErrDataPath)
	}
	br, err := b.find(h, name)
	if err == nil && br == nil {
		err = fmt.Errorf("bridge %s was removed meanwhile: %w", name, ErrDataPath)
	}
	return br, err
}

func (b *bridge) find(h *netlink.Handle, name string) (netlink.Link, error) {
	l, err := device(h, name)
	if err == nil && l != nil && l.Type() != "bridge" {
		return nil, fmt.Errorf("device %s is no Linux bridge but of type %s: %w", name, l.Type(), ErrDataPath)
	}
	return l, err
}

// bridgeWiring connects a device to one bridge.
type bridgeWiring struct{ bridge netlink.Link }

// attach makes the device a port of the bridge, in hairpin mode: packets may leave by the port
// they came from. A pod may then reach itself by an address of a Service.
func (w bridgeWiring) attach(_ context.Context, node netlink.Link) error {
	h, err := openNetlink()
	if err != nil {
		return err
	}
	defer h.Close()
	if node.Attrs().MasterIndex != w.bridge.Attrs().Index {
		if err := h.LinkSetMaster(node, w.bridge); err != nil {
			return fmt.Errorf("plugging %s into %s: %w: %w", node.Attrs().Name, w.bridge.Attrs().Name, err, ErrDataPath)
		}
	}
	if err := h.LinkSetHairpin(node, true); err != nil {
		return fmt.Errorf("plugging %s into %s: %w: %w", node.Attrs().Name, w.bridge.Attrs().Name, err, ErrDataPath)
	}
	return nil
}

// detach has nothing to do: a deleted device leaves its bridge.
func (w bridgeWiring) detach(context.Context, Interface, netlink.Link) error { return nil }

func (w bridgeWiring) attached(_ context.Context, node netlink.Link) error {
	a := node.Attrs()
	switch {
	case a.MasterIndex != w.bridge.Attrs().Index:
		return fmt.Errorf("device %s is not on bridge %s", a.Name, w.bridge.Attrs().Name)
	case a.Flags&net.FlagUp == 0:
		return fmt.Errorf("device %s is down", a.Name)
	}
	return nil
}

// kept reports whether the device is wired: a bridge port with a carrier passes traffic.
func (w bridgeWiring) kept(ctx context.Context, node netlink.Link) (bool, error) {
	if err := w.attached(ctx, node); err != nil {
		return false, err
	}
	return node.Attrs().OperState == netlink.OperUp, nil
}

// forget takes the device off the bridge for a moment. Otherwise the bridge would remember three
// things about it for minutes, all from the pod's packets, and send other pods' packets there: the
// MAC addresses that it has seen, the multicast groups with listeners, and whether there is a
// multicast router. It also removes i's addresses from the node's connection tracking, which routed
// packets pass, and bridged packets may pass (br_netfilter).
func (w bridgeWiring) forget(ctx context.Context, i Interface, node netlink.Link) error {
	h, err := openNetlink()
	if err != nil {
		return err
	}
	defer h.Close()
	err = h.LinkSetNoMaster(node)
	if err == nil {
		err = h.LinkSetMasterByIndex(node, node.Attrs().MasterIndex)
	}
	if err == nil {
		err = h.LinkSetHairpin(node, true)
	}
	if err != nil {
		return fmt.Errorf("plugging %s into its bridge again: %w", node.Attrs().Name, err)
	}
	return forgetConnections(ctx, i)
}
