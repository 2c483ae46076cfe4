// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// keeper is the wiring of a data path that supports parked ports.
type keeper interface {
	wiring
	// kept reports whether a parked port is still connected as attach left it, and passes traffic
	// already.
	kept(ctx context.Context, p pair, node netlink.Link) (wired bool, err error)
	// forget makes the data path forget the pod that had the port: its connections, and what a
	// bridge has learnt about it.
	forget(ctx context.Context, p pair, node netlink.Link) error
}

// claim gives a parked port to the sandbox, and reports whether it did. If anything is wrong with
// the port, it returns false, and the caller plugs the port again.
func (s *Set) claim(ctx context.Context, p pair, ns netns, k keeper) bool {
	if s.parking.path == "" || p.i.ContainerID == parkingName {
		return false
	}
	err := s.tryClaim(ctx, p, ns, k)
	if err == nil {
		s.claimed.Add(1)
		return true
	}
	if !errors.Is(err, errNotParked) {
		logr.FromContextOrDiscard(ctx).Info("plugging the port again, without the parked device", "port", p.i.PortID, "reason", err.Error())
	}
	return false
}

var errNotParked = errors.New("the port is not parked")

func (s *Set) tryClaim(ctx context.Context, p pair, ns netns, k keeper) error {
	i := p.i
	node, m, err := p.find()
	if err != nil || node == nil || m != markOf(s.parked(i)) {
		return errNotParked // otherwise the new plugging names the error
	}
	wired, err := k.kept(ctx, p, node)
	if err != nil {
		return err
	}
	lot, err := s.parking.open()
	if err != nil {
		return err
	}
	far, err := lot.far(i, node)
	if err != nil {
		return err
	}
	if err := p.node.LinkSetAlias(node, mark{i.PortID, i.ContainerID, i.Name, true}.String()); err != nil {
		return fmt.Errorf("marking device %s: %w", node.Attrs().Name, err)
	}
	if err := lot.put(far, i, s.mtu(i, layout{mtu: far.Attrs().MTU}), ns); err != nil {
		return err
	}
	return inSandbox(ns, i, false, func(b sandbox) error {
		if err := b.configure(); err != nil || !wired {
			return err
		}
		if err := b.announce(); err != nil {
			return err
		}
		s.wired.Store(i.PortID, i.ContainerID) // Wait has nothing to wait for; after an error the port is plugged again
		return nil
	})
}

// far returns the far end of a parked pair, in the state in which Park left it. node is the other
// end. The same index means different devices in different namespaces, so far compares everything
// that distinguishes ports.
func (l *lot) far(i Interface, node netlink.Link) (netlink.Link, error) {
	far, err := l.h.LinkByIndex(node.Attrs().ParentIndex)
	if err != nil {
		return nil, fmt.Errorf("looking for the parked end of %s: %w", node.Attrs().Name, err)
	}
	if !isOtherEnd(far, node) {
		return nil, fmt.Errorf("parked device %s is not the other end of %s", far.Attrs().Name, node.Attrs().Name)
	}
	return far, i.differs(far)
}

// isOtherEnd reports whether far is node's peer. far is a device of the parking with the index
// that node reports for its peer, and may be nil. That index may belong to a device of another
// namespace.
func isOtherEnd(far, node netlink.Link) bool {
	return far != nil && far.Type() == "veth" && far.Attrs().Name == node.Attrs().Name && far.Attrs().ParentIndex == node.Attrs().Index
}

// put makes the sandbox's device on top of the far end. The kernel refuses a second device on the
// same far end, so no two sandboxes ever have one port.
func (l *lot) put(far netlink.Link, i Interface, mtu int, ns netns) error {
	d := passthru(i.Name, far.Attrs().Index)
	d.MTU, d.Namespace = mtu, netlink.NsFd(ns)
	if err := l.h.LinkAdd(d); err != nil {
		return fmt.Errorf("making %s on top of %s: %w", i.Name, far.Attrs().Name, err)
	}
	return nil
}

// passthru returns a device on top of the device with that index.
func passthru(name string, far int) *netlink.Macvlan {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = name, far
	return &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PASSTHRU}
}

// isFree reports whether no namespace has a device on top of node's far end. It tries to make
// one. If it cannot know, it returns false.
func (l *lot) isFree(node netlink.Link) (bool, error) {
	far, err := l.h.LinkByIndex(node.Attrs().ParentIndex)
	if err != nil || !isOtherEnd(far, node) {
		return false, nil //nolint:nilerr // the far end is elsewhere, or on its way out
	}
	// An interrupted check left this one.
	if left, _ := device(l.h, probeName); left != nil {
		_ = l.h.LinkDel(left)
	}
	probe := passthru(probeName, far.Attrs().Index)
	err = l.h.LinkAdd(probe)
	if errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	if err == nil {
		err = l.h.LinkDel(probe)
	}
	if err != nil {
		return false, fmt.Errorf("checking whether parked device %s is free: %w", far.Attrs().Name, err)
	}
	return true, nil
}

// release moves a claimed port from its sandbox back to the parking. After an error the port may
// not be as good as new, and must be removed.
func (s *Set) release(ctx context.Context, p pair, node netlink.Link, k keeper) error {
	lot, err := s.parking.open()
	if err != nil {
		return err
	}
	if err := lot.takeOut(p.i, node.Attrs().ParentIndex); err != nil {
		return err
	}
	far, err := lot.far(p.i, node)
	if err != nil {
		return err
	}
	allmulticast, err := lot.allmulticast(far)
	if err != nil {
		return err
	}
	if a := far.Attrs(); a.Alias != "" || len(a.AltNames) > 0 || a.MasterIndex != 0 || a.Xdp != nil && a.Xdp.Attached ||
		allmulticast || a.Promisc != 0 || a.RawFlags&unix.IFF_NOARP != 0 {
		return fmt.Errorf("parked device %s is not as it was made", a.Name)
	}
	if err := k.forget(ctx, p, node); err != nil {
		return err
	}
	if err := p.node.LinkSetAlias(node, markOf(s.parked(p.i)).String()); err != nil {
		return fmt.Errorf("marking device %s: %w", node.Attrs().Name, err)
	}
	return nil
}

// allmulticast reports whether the far end receives all multicast frames. A device on top can leave
// that behind (seen with Linux 6.18), and the flags of the device do not show it. A kernel before 6.0
// does not show it at all; veth itself never filters frames.
func (l *lot) allmulticast(far netlink.Link) (on bool, err error) {
	const attrAllmulti = 61 // IFLA_ALLMULTI of linux/if_link.h
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(far.Attrs().Index)
	err = l.ns.do(func() error {
		found, err := request(unix.RTM_GETLINK, 0, unix.RTM_NEWLINK, msg)
		if err != nil {
			return fmt.Errorf("reading the state of %s: %w", far.Attrs().Name, err)
		}
		for _, m := range found {
			attrs, err := nl.ParseRouteAttrAsMap(m[unix.SizeofIfInfomsg:])
			if err != nil {
				return fmt.Errorf("reading the state of %s: %w", far.Attrs().Name, err)
			}
			count := attrs[attrAllmulti].Value
			on = len(count) == 4 && nl.NativeEndian().Uint32(count) != 0
		}
		return nil
	})
	return on, err
}

// takeOut removes the device on top of the far end from i's sandbox, whatever its name is by now.
// In mode passthru only one such device exists, so no namespace has one afterwards. If takeOut
// does not find it, it returns an error.
func (l *lot) takeOut(i Interface, far int) error {
	ns, err := openNetns(i.Netns)
	if err != nil {
		return err
	}
	defer ns.close()
	return inSandbox(ns, i, false, func(b sandbox) error {
		id, err := b.h.GetNetNsIdByFd(int(l.ns)) // the sandbox's number of the parking
		if err != nil {
			return fmt.Errorf("looking for the parking from the sandbox: %w", err)
		}
		is := func(d netlink.Link) bool {
			m, ok := d.(*netlink.Macvlan)
			return ok && m.Mode == netlink.MACVLAN_MODE_PASSTHRU && m.ParentIndex == far && m.NetNsID == id
		}
		all, err := dump(b.h.LinkList)
		if err != nil {
			return fmt.Errorf("listing the sandbox's devices: %w", err)
		}
		for _, d := range all {
			if is(d) {
				return b.remove(d)
			}
		}
		return fmt.Errorf("the sandbox has no %s any more", i.Name)
	})
}

func (s sandbox) remove(l netlink.Link) error {
	if err := s.h.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing %s from the sandbox: %w", l.Attrs().Name, err)
	}
	return nil
}
