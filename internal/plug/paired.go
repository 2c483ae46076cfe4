// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
)

// paired plugs ports by a device pair, whose node's end a wiring connects to the data path.
type paired struct {
	set *Set
	wiring
}

var _ Driver = paired{}

// wiring is what differs between the data paths of pairs. All methods may be repeated.
type wiring interface {
	// prepare makes the data path ready for attach, if it is not ready yet.
	prepare(ctx context.Context, p pair) (layout, error)
	// layout returns what prepare returns, and changes nothing.
	layout(ctx context.Context, i Interface) (layout, error)
	// attach connects the node's end to the data path.
	attach(ctx context.Context, p pair, node netlink.Link) error
	// wait returns after the data path passes the port's traffic, or at once if the data path does
	// not report that.
	wait(ctx context.Context, i Interface) error
	// detach disconnects the device. node is nil if the device no longer exists. If plugging is set,
	// the next device of the same name follows.
	detach(ctx context.Context, p pair, node netlink.Link, plugging bool) error
	// attached returns nil if attach has nothing to do, otherwise why it has.
	attached(ctx context.Context, p pair, node netlink.Link) error
}

// layout is what the data path requires of the pair.
type layout struct {
	mtu int  // limit; 0: none
	raw bool // the sandbox must compute checksums
}

func (d paired) Plug(ctx context.Context, i Interface) error {
	return between(i, func(ns netns, h *netlink.Handle) error {
		p := pair{h, i}
		if k, ok := d.wiring.(keeper); ok && d.set.claim(ctx, p, ns, k) {
			return nil
		}
		l, err := d.prepare(ctx, p)
		if err != nil {
			return err
		}
		return d.plug(ctx, p, ns, l)
	})
}

// plug connects the pair. If anything is wrong, it makes the pair again: there are many incomplete
// states, and one complete state.
func (d paired) plug(ctx context.Context, p pair, ns netns, l layout) error {
	node, m, err := p.find()
	if err != nil {
		return err
	}
	if node != nil && m.is(p.i) && d.set.intact(ns, p.i, l, node, m.on) == nil {
		return d.connect(ctx, p, node)
	}
	if err := d.detach(ctx, p, node, true); err != nil {
		return err
	}
	if node != nil {
		if err := p.remove(node); err != nil {
			return err
		}
	}
	if node, err = p.create(ns, d.set.mtu(p.i, l)); err != nil {
		return err
	}
	if err := d.connect(ctx, p, node); err != nil {
		return err
	}
	if p.i.ContainerID != parkingName {
		d.set.made.Add(1)
	}
	return inSandbox(ns, p.i, l.raw, sandbox.configure)
}

// connect brings the node's end up, and keeps the node's own stack off it. It does not undo later
// changes by a binding driver.
func (d paired) connect(ctx context.Context, p pair, node netlink.Link) error {
	if _, ours := d.wiring.(keeper); ours || node.Attrs().Flags&net.FlagUp == 0 {
		if err := mute(node.Attrs().Name, muteSysctls); err != nil {
			return err
		}
	}
	if err := p.node.LinkSetUp(node); err != nil {
		return fmt.Errorf("bringing %s up: %w", node.Attrs().Name, err)
	}
	return d.attach(ctx, p, node)
}

// mtu returns the smallest limit, or 0 without any limit: the kernel's choice.
func (s *Set) mtu(i Interface, l layout) int {
	mtu := 0
	for _, bound := range []int{i.MTU, s.config.MTU, l.mtu} {
		if bound > 0 && (mtu == 0 || bound < mtu) {
			mtu = bound
		}
	}
	return min(mtu, maxMTUVeth)
}

func (s *Set) intact(ns netns, i Interface, l layout, node netlink.Link, on bool) error {
	if on && l.raw {
		// The device on top may leave checksums to the far end, which computes them.
		lot, err := s.parking.open()
		if err == nil {
			err = lot.ns.do(func() error { return verifyChecksumInSoftware(node.Attrs().Name) })
		}
		if err != nil && !errors.Is(err, ErrCannotPark) { // parking was switched off since; the pod keeps its device
			return err
		}
	}
	return inSandbox(ns, i, l.raw && !on, func(b sandbox) error { return b.verify(node, on) })
}

// Wait also announces the port to its neighbours, unless Plug could do that already.
func (d paired) Wait(ctx context.Context, i Interface) error {
	if d.set.wired.CompareAndDelete(i.PortID, i.ContainerID) {
		return nil
	}
	if err := d.wait(ctx, i); err != nil {
		return err
	}
	return between(i, func(ns netns, h *netlink.Handle) error {
		if err := carrier(ctx, h, HostDevice(i.PortID)); err != nil {
			return err
		}
		return inSandbox(ns, i, false, sandbox.announce)
	})
}

// Unplug needs no network namespace: the sandbox's end is deleted with the node's, and if the
// sandbox is gone, both ends are. A port from the parking returns there, unless that fails.
func (d paired) Unplug(ctx context.Context, i Interface) error {
	h, err := openNetlink()
	if err != nil {
		return err
	}
	defer h.Close()
	p := pair{h, i}
	node, m, err := p.find()
	if err != nil && !errors.Is(err, errForeign) {
		return err
	}
	if node != nil && m != (mark{}) && m.sandbox != i.ContainerID {
		return nil // another sandbox has the port by now
	}
	d.set.wired.Delete(i.PortID)
	if k, ok := d.wiring.(keeper); ok && node != nil && m.on {
		err := d.set.release(ctx, p, node, k)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errSharedZone) { // that is so with each port
			logr.FromContextOrDiscard(ctx).Info("removing a device in place of parking it", "port", i.PortID, "reason", err.Error())
		}
	}
	if err := d.detach(ctx, p, node, false); err != nil {
		return err
	}
	if node == nil {
		return nil
	}
	return p.remove(node)
}

func (d paired) Check(ctx context.Context, i Interface) error {
	l, err := d.layout(ctx, i)
	if err != nil {
		return err
	}
	return between(i, func(ns netns, h *netlink.Handle) error {
		p := pair{h, i}
		node, m, err := p.find()
		switch {
		case err != nil:
			return err
		case node == nil:
			return fmt.Errorf("there is no device %s", HostDevice(i.PortID))
		case !m.is(i):
			return fmt.Errorf("device %s is another sandbox's: %q", HostDevice(i.PortID), node.Attrs().Alias)
		}
		if err := d.set.intact(ns, i, l, node, m.on); err != nil {
			return err
		}
		if _, ours := d.wiring.(keeper); ours {
			if err := muted(node.Attrs().Name); err != nil {
				return err
			}
		}
		return d.attached(ctx, p, node)
	})
}
