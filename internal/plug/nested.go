// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nested plugs ports of a node that is a virtual machine. It makes a kernel device in the
// sandbox, on top of the node's interface, which is the device's parent. The node has no pair and
// no switch. The SDN's switch is outside of the node, and has wired the port before the pod
// exists. So nothing stays on the node when the sandbox ends. The mark is on the device in the
// sandbox.
type nested struct {
	set  *Set
	kind kind
}

var _ Driver = (*nested)(nil)

// kind is what differs between the kinds of devices with a parent.
type kind struct {
	name, module string // the kernel's name for such devices, and of the module that makes them
	link         func(attrs netlink.LinkAttrs, i Interface) netlink.Link
	rival        func(l netlink.Link, i Interface) bool // whether l, on the same parent, conflicts with i's device
	taken        error                                  // by which the kernel reports such a conflict
	claim        func(i Interface) string
}

func (n *nested) Plug(ctx context.Context, i Interface) error {
	return n.with(i, func(c child) error {
		if c.intact() != nil {
			if err := c.plug(ctx); err != nil {
				return err
			}
		}
		return inSandbox(c.ns, i, false, sandbox.announce)
	})
}

// Wait returns at once: the SDN wired the port when it gave the port to the node.
func (n *nested) Wait(context.Context, Interface) error { return nil }

// Unplug needs no path of the network namespace. The runtime may have forgotten the path while
// the namespace, with the device in it, still exists.
func (n *nested) Unplug(_ context.Context, i Interface) error {
	p, err := openPeers(&n.set.peers)
	if err != nil {
		return err
	}
	defer p.close()
	ours := func(l netlink.Link) bool {
		m, ok := parseMark(l.Attrs().Alias)
		return ok && m.port == i.PortID && m.sandbox == i.ContainerID || n.unmarked(l, i)
	}
	var found []held
	if ns, err := openNetns(i.Netns); err == nil {
		defer ns.close()
		if id := p.id(int(ns)); id != noID {
			found, err = p.find([]int{id}, n.kind.name, ours)
			if err != nil {
				return err
			}
		}
	}
	if len(found) == 0 {
		ids, err := p.ids()
		if err != nil {
			return err
		}
		if found, err = p.find(ids[1:], n.kind.name, ours); err != nil { // nothing of a pod is in the node's
			return err
		}
	}
	for _, d := range found {
		if err := p.remove(d); err != nil {
			return err
		}
	}
	return nil
}

func (n *nested) Check(_ context.Context, i Interface) error {
	return n.with(i, child.intact)
}

// unmarked reports whether l is i's device, made by a call that was interrupted before it wrote the
// mark: no other device has the port's MAC address.
func (n *nested) unmarked(l netlink.Link, i Interface) bool {
	a := l.Attrs()
	return a.Alias == "" && l.Type() == n.kind.name && a.HardwareAddr.String() == i.HardwareAddr().String()
}

// with calls f with i's namespace and the parent, which is up.
func (n *nested) with(i Interface, f func(child) error) error {
	return between(i, func(ns netns, h *netlink.Handle) error {
		parent, err := n.set.parent(h)
		if err != nil {
			return err
		}
		return f(child{n, h, parent, ns, i})
	})
}

// parent returns the interface that devices are put on top of: the configured one, otherwise that
// of the default route.
func (s *Set) parent(h *netlink.Handle) (l netlink.Link, err error) {
	if s.config.Parent == "" {
		l, err = defaultRoute(h)
	} else if l, err = device(h, s.config.Parent); err == nil && l == nil {
		err = fmt.Errorf("the node has no interface %s, which is configured below pods' devices: %w", s.config.Parent, ErrDataPath)
	}
	if err == nil && l.Attrs().Flags&net.FlagUp == 0 {
		err = fmt.Errorf("the node's interface %s is down: %w", l.Attrs().Name, ErrDataPath)
	}
	return l, err
}

// defaultRoute returns the interface of the default route. IPv4 comes first. With next hops on
// several interfaces, nothing says which of them is on the machine's port.
func defaultRoute(h *netlink.Handle) (netlink.Link, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := dump(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		// The kernel never returns a consistent dump of a large table that changes all the time.
		// The default route is not among the routes that change.
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("listing the node's routes: %w", err)
		}
		var best *netlink.Route
		for k := range routes {
			r := &routes[k]
			if r.Type == unix.RTN_UNICAST && prefix(r.Dst).Bits() <= 0 && (best == nil || r.Priority < best.Priority) {
				best = r
			}
		}
		if best == nil {
			continue
		}
		index := best.LinkIndex // 0: it has several next hops
		for _, hop := range best.MultiPath {
			if index = cmp.Or(index, hop.LinkIndex); index != hop.LinkIndex {
				return nil, fmt.Errorf("the node's default route has next hops on several interfaces, and one of them has to be below pods' devices: set node.parentInterface: %w", ErrDataPath)
			}
		}
		l, err := h.LinkByIndex(index)
		if err != nil {
			return nil, fmt.Errorf("looking for the interface of the default route: %w", err)
		}
		return l, nil
	}
	return nil, fmt.Errorf("the node has no default route to find the interface below pods' devices: set node.parentInterface: %w", ErrDataPath)
}
