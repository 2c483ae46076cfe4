// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netlinkTimeout bounds one question to the kernel. It is long, as all network
// namespaces that are being torn down hold the same lock.
const netlinkTimeout = 30 * time.Second

// openNetlink returns a handle for devices, addresses and routes of the
// network namespace that the calling thread is in.
func openNetlink() (*netlink.Handle, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	if err := h.SetSocketTimeout(netlinkTimeout); err != nil {
		h.Close()
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	return h, nil
}

// between calls f with i's network namespace and a handle in the node's.
func between(i Interface, f func(netns, *netlink.Handle) error) error {
	ns, err := openNetns(i.Netns)
	if err != nil {
		return err
	}
	defer ns.close()
	h, err := openNetlink()
	if err != nil {
		return err
	}
	defer h.Close()
	return f(ns, h)
}

// device returns the device of that name, or nil if there is none.
func device(h *netlink.Handle, name string) (netlink.Link, error) {
	l, err := h.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for device %s: %w", name, err)
	}
	return l, nil
}

// errForeign: a device or a row of the switch has the port's name and is
// somebody else's. It is never touched.
var errForeign = fmt.Errorf("not Kuryr's: %w", ErrDataPath)

// pair is a device pair: the node's end, and the sandbox's.
type pair struct {
	node *netlink.Handle // in the node's network namespace
	i    Interface
}

// find returns the node's end, or nil if there is none, and the mark it
// carries: the zero mark if whoever made it was stopped before it could say so.
// A device of that name that is not this port's is an error.
func (p pair) find() (netlink.Link, mark, error) {
	name := HostDevice(p.i.PortID)
	l, err := device(p.node, name)
	if l == nil || err != nil {
		return nil, mark{}, err
	}
	alias := l.Attrs().Alias
	m, ok := parseMark(alias)
	switch {
	case l.Type() != "veth":
		return nil, mark{}, fmt.Errorf("device %s is there already, of type %s: %w", name, l.Type(), errForeign)
	case alias == "":
		return l, mark{}, nil
	case !ok:
		return nil, mark{}, fmt.Errorf("device %s is there already, for %q: %w", name, alias, errForeign)
	case m.port != p.i.PortID:
		return nil, mark{}, fmt.Errorf("device %s is there already, for port %s: %w", name, m.port, errForeign)
	}
	return l, m, nil
}

// pairMark returns the mark of a device that is the node's end of a pair.
func pairMark(l netlink.Link) (mark, bool) {
	m, ok := parseMark(l.Attrs().Alias)
	return m, ok && l.Type() == "veth" && l.Attrs().Name == HostDevice(m.port)
}

// create makes the pair, with the far end in the sandbox under its final name,
// in one step, and then marks the node's end.
func (p pair) create(ns netns, mtu int) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = HostDevice(p.i.PortID), mtu
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = p.i.Name, uint32(mtu)
	veth.PeerHardwareAddr, veth.PeerNamespace = p.i.HardwareAddr(), netlink.NsFd(ns)
	if err := p.node.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("making the devices %s and %s: %w", attrs.Name, p.i.Name, err)
	}
	if err := p.node.LinkSetAlias(veth, markOf(p.i).String()); err != nil {
		return nil, fmt.Errorf("marking device %s: %w", attrs.Name, err)
	}
	return veth, nil
}

// remove removes the pair by its node's end. Somebody else may be faster.
func (p pair) remove(l netlink.Link) error {
	err := p.node.LinkDel(l)
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing device %s: %w", l.Attrs().Name, err)
	}
	return nil
}

// carrier returns once the kernel has noticed that the pair is up: it tells a
// bridge so, which drops everything until then, in a work queue of its own,
// within a millisecond or so. Nobody has to wait long for what is a courtesy.
func carrier(ctx context.Context, name string) error {
	h, err := openNetlink()
	if err != nil {
		return err
	}
	defer h.Close()
	for range 100 {
		l, err := h.LinkByName(name)
		if err != nil {
			return fmt.Errorf("looking for device %s: %w", name, err)
		}
		if l.Attrs().OperState == netlink.OperUp {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// inTheWay returns the earlier port of ours, if it is one, that has the name
// of the sandbox's end in that same sandbox.
func (s *Set) inTheWay(p pair, ns netns) (Interface, bool) {
	index := 0
	err := inSandbox(ns, p.i, false, func(b sandbox) error {
		l, err := b.h.LinkByName(p.i.Name)
		if err != nil {
			return err
		}
		switch l.Type() {
		case "veth":
			index = l.Attrs().ParentIndex
		case "macvlan":
			index = s.parking.behind(l.Attrs().ParentIndex)
		}
		return nil
	})
	if err != nil || index == 0 {
		return Interface{}, false
	}
	node, err := p.node.LinkByIndex(index)
	if err != nil {
		return Interface{}, false
	}
	m, ok := parseMark(node.Attrs().Alias)
	if !ok || m.sandbox != p.i.ContainerID || m.name != p.i.Name || m.port == p.i.PortID {
		return Interface{}, false
	}
	earlier := p.i
	earlier.PortID = m.port
	return earlier, true
}
