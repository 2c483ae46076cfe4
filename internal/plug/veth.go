// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netlinkTimeout bounds one request to the kernel. It is long, because the teardown of any
// network namespace holds the same lock.
const netlinkTimeout = 30 * time.Second

// openNetlink returns a handle for devices, addresses and routes of the calling thread's network
// namespace.
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

// device returns the device with that name, or nil if it does not exist.
func device(h *netlink.Handle, name string) (netlink.Link, error) {
	l, err := h.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for device %s: %w", name, err)
	}
	return l, nil
}

// errForeign: another program's device or row of the switch has the port's name. Kuryr never
// touches it.
var errForeign = fmt.Errorf("not Kuryr's: %w", ErrDataPath)

// pair is a device pair: the node's end and the sandbox's end.
type pair struct {
	node *netlink.Handle // in the node's network namespace
	i    Interface
}

// find returns the node's end, or nil if it does not exist, and its mark. The mark is zero if its
// maker was stopped before it wrote one. Another port's device of that name is an error.
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

// create makes the pair in one step, with the far end in the sandbox under its final name. Then
// it marks the node's end.
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

// remove removes the pair by its node's end. Another process may have removed it already.
func (p pair) remove(l netlink.Link) error {
	err := p.node.LinkDel(l)
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing device %s: %w", l.Attrs().Name, err)
	}
	return nil
}

// carrier returns when the kernel has noticed that the pair is up. The kernel informs a bridge,
// which drops everything until then, in a work queue, within a millisecond or so. The call does not
// wait long, because this is only a courtesy.
func carrier(ctx context.Context, h *netlink.Handle, name string) error {
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

// checksums are the features that leave a packet's checksum to the hardware.
var checksums = []string{"tx-checksum-ip-generic", "tx-checksum-sctp"}

// checksumInSoftware makes the kernel complete the checksums of packets that leave by device.
// Between devices of one kernel it leaves them incomplete. The kernel's own switches know that, and
// a switch in user space does not: Open vSwitch 3.1 drops such TCP and UDP packets as invalid in
// its connection tracking. This also switches off segmentation offload.
func checksumInSoftware(device string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("opening ethtool: %w", err)
	}
	defer e.Close()
	known, err := e.FeatureNames(device)
	if err != nil {
		return fmt.Errorf("listing the offloads of %s: %w", device, err)
	}
	off := map[string]bool{}
	for _, name := range checksums {
		if _, ok := known[name]; ok {
			off[name] = false
		}
	}
	if err := e.Change(device, off); err != nil {
		return fmt.Errorf("switching checksum offload of %s off: %w", device, err)
	}
	return nil
}

func verifyChecksumInSoftware(device string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("opening ethtool: %w", err)
	}
	defer e.Close()
	features, err := e.Features(device)
	if err != nil {
		return fmt.Errorf("listing the offloads of %s: %w", device, err)
	}
	for _, name := range checksums {
		if features[name] {
			return fmt.Errorf("%s has %s on, and the bridge's data path is in user space", device, name)
		}
	}
	return nil
}
