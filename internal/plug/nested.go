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
	"golang.org/x/sys/unix"
)

// nested plugs ports of a node that is a virtual machine: a device of the
// kernel's on top of the node's interface, its parent, goes into the sandbox.
// There is no pair and no switch on the node; the SDN's switch is outside of it
// and has the port wired before there is a pod. So nothing is left on the node
// when the sandbox goes, and the mark is on the device in the sandbox.
type nested struct {
	set  *Set
	kind kind
}

var _ Driver = (*nested)(nil)

// kind is what differs between devices that have a parent.
type kind interface {
	name() string   // the kernel's word for such devices
	module() string // of the kernel, that makes them
	check(i Interface) error
	link(attrs netlink.LinkAttrs, i Interface) netlink.Link
	// rival reports whether l, on the same parent, leaves no room for i's device.
	rival(l netlink.Link, i Interface) bool
	taken(err error) bool // whether the kernel says so
	claim(i Interface) string
}

func (n *nested) Plug(ctx context.Context, i Interface) error {
	if err := n.check(i); err != nil {
		return err
	}
	done, err := n.set.busy.take(ctx, i.PortID)
	if err != nil {
		return err
	}
	defer done()
	return n.with(i, func(c child) error {
		if c.intact() != nil {
			if err := c.plug(ctx); err != nil {
				return err
			}
		}
		return inSandbox(c.ns, i, false, func(s sandbox) error {
			l, err := s.h.LinkByName(i.Name)
			if err != nil {
				return fmt.Errorf("looking for %s: %w", i.Name, err)
			}
			return announce(i, l.Attrs().Index)
		})
	})
}

// Wait returns at once: the SDN has wired the port when its node got it.
func (n *nested) Wait(context.Context, Interface) error { return nil }

// Unplug needs no path of the network namespace, which the runtime may have
// forgotten while something still holds the namespace, and the device in it.
func (n *nested) Unplug(ctx context.Context, i Interface) error {
	if err := i.checkIdentity(); err != nil {
		return err
	}
	done, err := n.set.busy.take(ctx, i.PortID)
	if err != nil {
		return err
	}
	defer done()
	p, err := openPeers(&n.set.peers)
	if err != nil {
		return err
	}
	defer p.close()
	ours := func(l netlink.Link) bool {
		m, ok := parseMark(l.Attrs().Alias)
		return ok && m.port == i.PortID && m.sandbox == i.ContainerID || n.unmarked(l, i)
	}
	if ns, err := openNetns(i.Netns); err == nil {
		defer ns.close()
		if removed, err := p.removeIn(p.id(int(ns)), n.kind.name(), ours); removed || err != nil {
			return err
		}
	}
	return p.removeAll(n.kind.name(), ours)
}

func (n *nested) Check(_ context.Context, i Interface) error {
	if err := n.check(i); err != nil {
		return err
	}
	return n.with(i, child.intact)
}

func (n *nested) check(i Interface) error {
	if err := i.check(); err != nil {
		return err
	}
	return n.kind.check(i)
}

// unmarked reports whether l is i's, made by a call that was cut off before it
// could say so: the port's MAC address is nobody else's.
func (n *nested) unmarked(l netlink.Link, i Interface) bool {
	a := l.Attrs()
	return a.Alias == "" && l.Type() == n.kind.name() && a.HardwareAddr.String() == i.HardwareAddr().String()
}

// with calls f with i's place: its namespace and the parent, which is up.
func (n *nested) with(i Interface, f func(child) error) error {
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
	parent, err := n.set.parent(h)
	if err != nil {
		return err
	}
	return f(child{n, h, parent, ns, i})
}

// parent returns the interface that devices are put on top of: the configured
// one, or else that of the default route.
func (s *Set) parent(h *netlink.Handle) (netlink.Link, error) {
	if s.config.Parent == "" {
		index, err := defaultRoute(h)
		if err != nil {
			return nil, err
		}
		l, err := h.LinkByIndex(index)
		if err != nil {
			return nil, fmt.Errorf("looking for the interface of the default route: %w", err)
		}
		return l, parentUp(l)
	}
	l, err := device(h, s.config.Parent)
	if err == nil && l == nil {
		err = fmt.Errorf("the node has no interface %s, which pods' interfaces are to be put on: %w", s.config.Parent, ErrDataPath)
	}
	if err != nil {
		return nil, err
	}
	return l, parentUp(l)
}

func parentUp(l netlink.Link) error {
	if l.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("the node's interface %s is down: %w", l.Attrs().Name, ErrDataPath)
	}
	return nil
}

// defaultRoute returns the index of its interface; IPv4's comes first.
func defaultRoute(h *netlink.Handle) (int, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return 0, fmt.Errorf("listing the node's routes: %w", err)
		}
		var best *netlink.Route
		for k := range routes {
			r := &routes[k]
			if r.LinkIndex > 0 && prefix(r.Dst).Bits() <= 0 && (best == nil || r.Priority < best.Priority) {
				best = r
			}
		}
		if best != nil {
			return best.LinkIndex, nil
		}
	}
	return 0, fmt.Errorf("the node has no default route that says which interface pods' are to be put on, and none is configured: %w", ErrDataPath)
}

// child is a device to be, or that is, in the sandbox.
type child struct {
	*nested
	node   *netlink.Handle // in the node's network namespace
	parent netlink.Link
	ns     netns
	i      Interface
}

// plug makes the device. If the kernel has no room for it, as there is another,
// that one goes if it is Kuryr's: the SDN has given what it has to this port.
func (c child) plug(ctx context.Context) error {
	err := c.make()
	if !c.kind.taken(err) {
		return err
	}
	evicted, problem := c.evict(ctx)
	if problem != nil {
		return problem
	}
	if evicted {
		return c.make()
	}
	a, holder := c.parent.Attrs(), "a device in a network namespace that nothing of Kuryr's is in"
	if a.HardwareAddr.String() == c.i.HardwareAddr().String() {
		holder = a.Name + " itself"
	}
	return fmt.Errorf("%s is taken on %s, by %s: %w: %w", c.kind.claim(c.i), a.Name, holder, err, ErrDataPath)
}

// make makes the device anew, right in the sandbox: there is no moment at which
// it is on the node.
func (c child) make() error {
	if err := inSandbox(c.ns, c.i, false, c.clear); err != nil {
		return err
	}
	if err := c.set.peers.register(c.node, c.ns); err != nil {
		return err
	}
	name, err := c.create()
	if err != nil {
		return err
	}
	return inSandbox(c.ns, c.i, false, func(s sandbox) error {
		if err := c.mark(s, name); err != nil {
			return err
		}
		return s.configure()
	})
}

// clear removes from the sandbox what is in the way there and Kuryr's.
func (c child) clear(s sandbox) error {
	for _, name := range []string{c.i.Name, HostDevice(c.i.PortID)} {
		l, err := device(s.h, name)
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		m, ok := parseMark(l.Attrs().Alias)
		if !c.unmarked(l, c.i) && (!ok || m.sandbox != c.i.ContainerID && m.port != c.i.PortID) {
			return fmt.Errorf("the sandbox has a device %s already, of type %s: %w", name, l.Type(), errForeign)
		}
		if err := s.h.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("removing %s: %w", name, err)
		}
	}
	return nil
}

// create makes the device in the sandbox and returns its name there. It is the
// final one, unless the node has a device of that name: kernels before 6.14 take
// that for the one that is meant. Renaming costs a grace period of RCU.
func (c child) create() (string, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = c.i.Name
	if l, err := device(c.node, attrs.Name); err != nil {
		return "", err
	} else if l != nil {
		attrs.Name = HostDevice(c.i.PortID)
	}
	attrs.ParentIndex, attrs.Namespace = c.parent.Attrs().Index, netlink.NsFd(c.ns)
	attrs.HardwareAddr, attrs.MTU = c.i.HardwareAddr(), c.set.mtu(c.i, layout{mtu: c.parent.Attrs().MTU})
	err := c.node.LinkAdd(c.kind.link(attrs, c.i))
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return "", fmt.Errorf("the kernel makes no devices of type %s: it has no module %s, or may not load it (modprobe %[2]s, on the node): %w: %w",
			c.kind.name(), c.kind.module(), err, ErrDataPath)
	case err != nil:
		return "", fmt.Errorf("making %s with %s on %s: %w", c.i.Name, c.kind.claim(c.i), c.parent.Attrs().Name, err)
	}
	return attrs.Name, nil
}

// mark says whose the device is, and then gives it its name.
func (c child) mark(s sandbox, name string) error {
	l, err := s.h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", name, err)
	}
	if err := s.h.LinkSetAlias(l, markOf(c.i).String()); err != nil {
		return fmt.Errorf("marking %s: %w", name, err)
	}
	if name == c.i.Name {
		return nil
	}
	if err := s.h.LinkSetName(l, c.i.Name); err != nil {
		return fmt.Errorf("renaming %s to %s: %w", name, c.i.Name, err)
	}
	return nil
}

// evict removes Kuryr's devices, in whichever sandbox, that leave no room for
// this one: of this port, or of one that is no more what it was, in a sandbox
// whose namespace something holds. Anybody else's is an error that names it.
func (c child) evict(ctx context.Context) (bool, error) {
	p, err := openPeers(&c.set.peers)
	if err != nil {
		return false, err
	}
	defer p.close()
	holders, err := p.find(c.kind.name(), func(l netlink.Link) bool { return c.kind.rival(l, c.i) })
	if err != nil {
		return false, err
	}
	evicted := false
	for _, held := range holders {
		m, ok := parseMark(held.link.Attrs().Alias)
		if !p.on(held, c.parent) || m == markOf(c.i) { // the latter is what make has not finished
			continue
		}
		if !ok && !c.unmarked(held.link, c.i) {
			return false, fmt.Errorf("%s is taken on %s, by %s: %w", c.kind.claim(c.i), c.parent.Attrs().Name, held, errForeign)
		}
		logr.FromContextOrDiscard(ctx).Info("taking what a port has from a sandbox that still holds it",
			"port", c.i.PortID, "what", c.kind.claim(c.i), "holderPort", m.port, "holderContainer", m.sandbox)
		if err := p.remove(held); err != nil {
			return false, err
		}
		evicted = true
	}
	return evicted, nil
}

// intact says what is not as plug has left it.
func (c child) intact() error {
	return inSandbox(c.ns, c.i, false, func(s sandbox) error {
		l, err := device(s.h, c.i.Name)
		if err != nil {
			return err
		}
		if l == nil {
			return fmt.Errorf("there is no %s", c.i.Name)
		}
		if err := c.same(l); err != nil {
			return err
		}
		if err := s.verifyAddresses(l); err != nil {
			return err
		}
		return s.verifyRoutes(l)
	})
}

func (c child) same(l netlink.Link) error {
	a, parent := l.Attrs(), c.parent.Attrs()
	switch {
	case l.Type() != c.kind.name():
		return fmt.Errorf("%s is of type %s, want %s", a.Name, l.Type(), c.kind.name())
	case a.Alias != markOf(c.i).String():
		return fmt.Errorf("%s is not this port's: %q", a.Name, a.Alias)
	case a.ParentIndex != parent.Index || a.NetNsID < 0:
		return fmt.Errorf("%s is not on %s", a.Name, parent.Name)
	case !c.kind.rival(l, c.i):
		return fmt.Errorf("%s does not have %s", a.Name, c.kind.claim(c.i))
	case a.HardwareAddr.String() != c.i.HardwareAddr().String():
		return fmt.Errorf("%s has the MAC address %s, and the port %s", a.Name, a.HardwareAddr, c.i.HardwareAddr())
	case a.Flags&net.FlagUp == 0:
		return fmt.Errorf("%s is down", a.Name)
	case c.i.MTU > 0 && a.MTU > c.i.MTU:
		return fmt.Errorf("%s has an MTU of %d, and the port %d", a.Name, a.MTU, c.i.MTU)
	}
	return nil
}
