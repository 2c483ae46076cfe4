// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sandbox is the pod's end of a pair. Its methods run inside the sandbox's network namespace.
type sandbox struct {
	h   *netlink.Handle
	i   Interface
	raw bool // the sandbox must compute checksums
}

// inSandbox runs f in the network namespace ns.
func inSandbox(ns netns, i Interface, raw bool, f func(sandbox) error) error {
	return ns.do(func() error {
		h, err := openNetlink()
		if err != nil {
			return err
		}
		defer h.Close()
		return f(sandbox{h, i, raw})
	})
}

func (s sandbox) announce() error {
	l, err := s.h.LinkByName(s.i.Name)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", s.i.Name, err)
	}
	return announce(s.i, l.Attrs().Index)
}

// configure brings a new end of the pod up, with its addresses and routes.
func (s sandbox) configure() error {
	l, err := s.h.LinkByName(s.i.Name)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", s.i.Name, err)
	}
	if err := s.loopback(); err != nil {
		return err
	}
	if err := s.prepareIPv6(l); err != nil {
		return err
	}
	if s.raw {
		if err := checksumInSoftware(s.i.Name); err != nil {
			return err
		}
	}
	if err := s.h.LinkSetUp(l); err != nil {
		return fmt.Errorf("bringing %s up: %w", s.i.Name, err)
	}
	if err := s.address(l); err != nil {
		return err
	}
	return s.route(l)
}

func (s sandbox) loopback() error {
	lo, err := s.h.LinkByName("lo")
	if err == nil && lo.Attrs().Flags&net.FlagUp == 0 {
		err = s.h.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bringing lo up: %w", err)
	}
	return nil
}

// prepareIPv6 makes the kernel accept Kuryr's IPv6 addresses and no others. The SDN guarantees that
// they are unique, so duplicate detection is off. The SDN provides the routes, so router
// advertisements are off. A port without IPv6 addresses has no IPv6: any router on the network
// would otherwise give the pod an address and a default route.
func (s sandbox) prepareIPv6(l netlink.Link) error {
	if !s.i.hasIPv6() {
		err := sysctl(filepath.Join("/proc/sys/net/ipv6/conf", s.i.Name, "disable_ipv6"), "1")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("switching IPv6 of %s off: %w", s.i.Name, err)
		}
		return nil
	}
	if mtu := l.Attrs().MTU; mtu < minMTUv6 {
		return fmt.Errorf("MTU of %d bytes, and IPv6 needs %d: %w", mtu, minMTUv6, ErrInvalid)
	}
	for _, set := range []struct{ device, key, value string }{
		{"lo", "disable_ipv6", "0"},
		{s.i.Name, "accept_dad", "0"},
		{s.i.Name, "accept_ra", "0"},
		{s.i.Name, "disable_ipv6", "0"},
	} {
		if err := sysctl(filepath.Join("/proc/sys/net/ipv6/conf", set.device, set.key), set.value); err != nil {
			return fmt.Errorf("preparing %s for IPv6: %w", set.device, err)
		}
	}
	return nil
}

// sysctl writes only values that differ: a container may have a read-only /proc/sys with the
// right values.
func sysctl(path, value string) error {
	got, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(got)) == value {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the kernel has no IPv6 here: %w", err)
	}
	return os.WriteFile(path, []byte(value), 0)
}

func (s sandbox) address(l netlink.Link) error {
	for _, a := range s.i.Addresses {
		addr := &netlink.Addr{IPNet: ipNet(a.Prefix)}
		if a.Prefix.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := s.h.AddrReplace(l, addr); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", s.i.Name, a.Prefix, err)
		}
	}
	return nil
}

func (s sandbox) route(l netlink.Link) error {
	for _, hop := range s.i.Hops() {
		r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(hop.Destination)}
		switch {
		case !hop.Gateway.IsValid():
			r.Scope = netlink.SCOPE_LINK
		case hop.OnLink:
			r.Flags = int(netlink.FLAG_ONLINK)
			fallthrough
		default:
			r.Gw = hop.Gateway.AsSlice()
		}
		if err := s.h.RouteReplace(r); err != nil {
			return fmt.Errorf("routing %s by %s: %w", hop.Destination, hop.Gateway, err)
		}
	}
	return nil
}

// verify returns the first difference from the state after configure. node is the peer. If the
// sandbox's device is on top of a parked one, node is the parked one's peer.
func (s sandbox) verify(node netlink.Link, on bool) error {
	l, err := device(s.h, s.i.Name)
	if err != nil {
		return err
	}
	if l == nil {
		return fmt.Errorf("there is no %s", s.i.Name)
	}
	a := l.Attrs()
	switch {
	case on && (l.Type() != "macvlan" || a.ParentIndex != node.Attrs().ParentIndex || a.NetNsID == -1):
		return fmt.Errorf("%s is not on top of the other end of %s", s.i.Name, node.Attrs().Name)
	case !on && (l.Type() != "veth" || a.ParentIndex != node.Attrs().Index || node.Attrs().ParentIndex != a.Index):
		return fmt.Errorf("%s is not the other end of %s", s.i.Name, node.Attrs().Name)
	}
	if err := s.verifyDevice(l); err != nil {
		return err
	}
	if s.raw {
		return verifyChecksumInSoftware(s.i.Name)
	}
	return nil
}

// verifyDevice returns what a device of any kind lacks.
func (s sandbox) verifyDevice(l netlink.Link) error {
	if err := s.i.differs(l); err != nil {
		return err
	}
	if err := s.verifyAddresses(l); err != nil {
		return err
	}
	return s.verifyRoutes(l)
}

// differs returns how a device differs from i's, except for addresses and routes.
func (i Interface) differs(l netlink.Link) error {
	a := l.Attrs()
	switch {
	case a.HardwareAddr.String() != i.HardwareAddr().String():
		return fmt.Errorf("%s has the MAC address %s, and the port %s", a.Name, a.HardwareAddr, i.HardwareAddr())
	case a.Flags&net.FlagUp == 0:
		return fmt.Errorf("%s is down", a.Name)
	case i.MTU > 0 && a.MTU > i.MTU:
		return fmt.Errorf("%s has an MTU of %d, and the port %d", a.Name, a.MTU, i.MTU)
	}
	return nil
}

// verifyAddresses requires all addresses of the port, and no other of global scope: the SDN would
// drop its packets.
func (s sandbox) verifyAddresses(l netlink.Link) error {
	found, err := dump(func() ([]netlink.Addr, error) { return s.h.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("listing the addresses of %s: %w", s.i.Name, err)
	}
	got := map[netip.Prefix]bool{}
	for _, a := range found {
		if a.Scope == unix.RT_SCOPE_UNIVERSE {
			got[prefix(a.IPNet)] = true
		}
	}
	for _, a := range s.i.Addresses {
		if !got[a.Prefix] {
			return fmt.Errorf("%s lacks the address %s", s.i.Name, a.Prefix)
		}
		delete(got, a.Prefix)
	}
	for p := range got {
		return fmt.Errorf("%s has the address %s, which is not the port's", s.i.Name, p)
	}
	return nil
}

func (s sandbox) verifyRoutes(l netlink.Link) error {
	want := s.i.Hops()
	if len(want) == 0 {
		return nil
	}
	found, err := dump(func() ([]netlink.Route, error) { return s.h.RouteList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("listing the routes of %s: %w", s.i.Name, err)
	}
	type key struct {
		to netip.Prefix
		by netip.Addr
	}
	got := map[key]bool{}
	for _, r := range found {
		by, _ := netip.AddrFromSlice(r.Gw)
		got[key{prefix(r.Dst), by.Unmap()}] = true
	}
	for _, hop := range want {
		if !got[key{hop.Destination, hop.Gateway}] {
			return fmt.Errorf("%s lacks the route to %s by %s", s.i.Name, hop.Destination, hop.Gateway)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, _ := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if bits == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, ones)
}
