// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// child is a device in the sandbox, existing or to be made.
type child struct {
	*nested
	node   *netlink.Handle // in the node's network namespace
	parent netlink.Link
	ns     netns
	i      Interface
}

// plug makes the device. If another of Kuryr's devices blocks it in the kernel, plug removes that
// device: the SDN has given its VLAN ID or MAC address to this port.
func (c child) plug(ctx context.Context) error {
	err := c.make()
	if !errors.Is(err, c.kind.taken) {
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

// make makes the device directly in the sandbox. It is never on the node.
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

// clear removes Kuryr's devices that block this one in the sandbox.
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

// create makes the device in the sandbox and returns its name there. That is the final name, with
// one exception. Kernels before 6.14 confuse it with a device of that name on the node. Renaming
// costs an RCU grace period.
func (c child) create() (string, error) {
	name := c.i.Name
	err := c.add(name)
	if errors.Is(err, unix.EEXIST) {
		l, problem := device(c.node, name)
		if problem != nil {
			return "", problem
		}
		if l != nil {
			name = HostDevice(c.i.PortID)
			err = c.add(name)
		}
	}
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return "", fmt.Errorf("the kernel makes no devices of type %s: it has no module %s, or may not load it (modprobe %[2]s, on the node): %w: %w",
			c.kind.name, c.kind.module, err, ErrDataPath)
	case err != nil:
		return "", fmt.Errorf("making %s with %s on %s: %w", c.i.Name, c.kind.claim(c.i), c.parent.Attrs().Name, err)
	}
	return name, nil
}

func (c child) add(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.Namespace = name, c.parent.Attrs().Index, netlink.NsFd(c.ns)
	attrs.HardwareAddr, attrs.MTU = c.i.HardwareAddr(), c.set.mtu(c.i, layout{mtu: c.parent.Attrs().MTU})
	return c.node.LinkAdd(c.kind.link(attrs, c.i))
}

// mark writes the owner on the device, and then sets the final name.
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

// evict removes Kuryr's devices that block this one, in any sandbox whose namespace still exists.
// They are devices of this port, or of ports that have changed. Any other device is an error that
// names it.
func (c child) evict(ctx context.Context) (bool, error) {
	p, err := openPeers(&c.set.peers)
	if err != nil {
		return false, err
	}
	defer p.close()
	ids, err := p.ids()
	if err != nil {
		return false, err
	}
	holders, err := p.find(ids, c.kind.name, func(l netlink.Link) bool { return c.kind.rival(l, c.i) })
	if err != nil {
		return false, err
	}
	evicted := false
	for _, held := range holders {
		m, ok := parseMark(held.link.Attrs().Alias)
		if !p.on(held, c.parent) || m == markOf(c.i) { // make has not finished the latter
			continue
		}
		if !ok && !c.unmarked(held.link, c.i) {
			return false, fmt.Errorf("%s is taken on %s, by %s: %w", c.kind.claim(c.i), c.parent.Attrs().Name, held, errForeign)
		}
		logr.FromContextOrDiscard(ctx).Info("removing the device of another sandbox that is in the way",
			"port", c.i.PortID, "what", c.kind.claim(c.i), "holderPort", m.port, "holderContainer", m.sandbox)
		if err := p.remove(held); err != nil {
			return false, err
		}
		evicted = true
	}
	return evicted, nil
}

// intact returns what differs from the state after plug.
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
		return s.verifyDevice(l)
	})
}

func (c child) same(l netlink.Link) error {
	a, parent := l.Attrs(), c.parent.Attrs()
	switch {
	case l.Type() != c.kind.name:
		return fmt.Errorf("%s is of type %s, want %s", a.Name, l.Type(), c.kind.name)
	case a.Alias != markOf(c.i).String():
		return fmt.Errorf("%s is not this port's: %q", a.Name, a.Alias)
	case a.ParentIndex != parent.Index || a.NetNsID < 0:
		return fmt.Errorf("%s is not on %s", a.Name, parent.Name)
	case !c.kind.rival(l, c.i):
		return fmt.Errorf("%s does not have %s", a.Name, c.kind.claim(c.i))
	}
	return nil
}

// macvlan is the kind of device for a port whose MAC address may pass the node's own port (an
// allowed address pair). Pods of one node reach each other in its kernel, without the SDN's
// security groups.
var macvlan = kind{
	name: "macvlan", module: "macvlan", taken: unix.EADDRINUSE, // when the device is brought up
	link: func(attrs netlink.LinkAttrs, _ Interface) netlink.Link {
		return &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}
	},
	rival: func(l netlink.Link, i Interface) bool {
		m, ok := l.(*netlink.Macvlan)
		return ok && m.Mode == netlink.MACVLAN_MODE_BRIDGE && m.HardwareAddr.String() == i.HardwareAddr().String()
	},
	claim: func(i Interface) string { return fmt.Sprintf("MAC address %s", i.HardwareAddr()) },
}

// vlan is the kind of device for a subport of the node's trunk. Its packets carry the subport's
// VLAN ID on the node's interface. The binding is loose: the device stays up, with its routes, while
// the node's interface is down for a moment, for example while its address is being configured.
var vlan = kind{
	name: "vlan", module: "8021q", taken: unix.EEXIST,
	link: func(attrs netlink.LinkAttrs, i Interface) netlink.Link {
		return &netlink.Vlan{LinkAttrs: attrs, VlanId: i.VLANID, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q, LooseBinding: new(true)}
	},
	rival: func(l netlink.Link, i Interface) bool {
		v, ok := l.(*netlink.Vlan)
		return ok && v.VlanId == i.VLANID && v.VlanProtocol == netlink.VLAN_PROTOCOL_8021Q
	},
	claim: func(i Interface) string { return fmt.Sprintf("VLAN ID %d", i.VLANID) },
}
