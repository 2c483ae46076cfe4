// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// announce sends the neighbours of i, once, the MAC address of its addresses, so that neighbours
// with an older entry lose no packets: an ARP announcement (RFC 5227 §3) for IPv4 and an
// unsolicited neighbour advertisement (RFC 9131's reason, RFC 4861 §7.2.6) for IPv6. It runs inside
// the sandbox.
func announce(i Interface, index int) error {
	if len(i.Addresses) == 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a packet socket: %w", err)
	}
	// Closing a packet socket waits for all CPUs (synchronize_net). That takes as long as the rest
	// of plugging, so no caller waits for it.
	defer func() { go func() { _ = unix.Close(fd) }() }()
	for _, a := range i.Addresses {
		packet, to := announcement(i.HardwareAddr(), a.Prefix.Addr())
		to.Ifindex = index
		if err := unix.Sendto(fd, packet, 0, to); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("announcing %s: %w", a.Prefix.Addr(), err)
		}
	}
	return nil
}

// announcement returns the packet that says a is at mac, without its Ethernet header, and its
// destination.
func announcement(mac net.HardwareAddr, a netip.Addr) ([]byte, *unix.SockaddrLinklayer) {
	if a.Is4() {
		return arpAnnouncement(mac, a), linklayer(unix.ETH_P_ARP, [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	}
	return neighbourAdvertisement(mac, a), linklayer(unix.ETH_P_IPV6, [6]byte{0x33, 0x33, 0, 0, 0, 1})
}

func linklayer(protocol uint16, mac [6]byte) *unix.SockaddrLinklayer {
	to := &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Halen: 6} // network order
	copy(to.Addr[:], mac[:])
	return to
}

// arpAnnouncement is an ARP request for a by a itself. Every Linux with an entry for a heeds it,
// whatever its arp_accept.
func arpAnnouncement(mac net.HardwareAddr, a netip.Addr) []byte {
	p := []byte{0, 1, 8, 0, 6, 4, 0, 1} // Ethernet, IPv4, lengths, request
	p = append(p, mac...)
	p = append(p, a.AsSlice()...)
	p = append(p, make([]byte, 6)...)
	return append(p, a.AsSlice()...)
}

func neighbourAdvertisement(mac net.HardwareAddr, a netip.Addr) []byte {
	const (
		typeNA       = 136
		flagOverride = 0x20
		targetMAC    = 2 // option: target link-layer address
		length       = 32
	)
	allNodes := netip.IPv6LinkLocalAllNodes()
	icmp := []byte{typeNA, 0, 0, 0, flagOverride, 0, 0, 0}
	icmp = append(icmp, a.AsSlice()...)
	icmp = append(icmp, targetMAC, 1) // its length: one unit of 8 bytes
	icmp = append(icmp, mac...)
	pseudo := append(a.AsSlice(), allNodes.AsSlice()...)
	pseudo = append(pseudo, 0, 0, 0, length, 0, 0, 0, unix.IPPROTO_ICMPV6)
	binary.BigEndian.PutUint16(icmp[2:], checksum(append(pseudo, icmp...)))

	p := []byte{0x60, 0, 0, 0, 0, length, unix.IPPROTO_ICMPV6, 255} // hop limit 255: RFC 4861 §7.1.2
	p = append(p, a.AsSlice()...)
	p = append(p, allNodes.AsSlice()...)
	return append(p, icmp...)
}

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// muteSysctls keep the node's own stack off a device that receives pods' frames. Pods must not
// reach the node through it: not past the security groups of their ports, and not by claiming to be
// a router.
//
//   - IPv6 is off: otherwise the device would have a link-local address, accept router
//     advertisements (also on a node without other IPv6), and be a pod's neighbour.
//   - The node answers ARP for the device's own addresses only. By default it answers
//     for all its addresses.
//   - It accepts no packet from a source that it does not reach by that device. The
//     device has no address and no route, so that is every source. The loose mode (2)
//     is as good; systemd's udev rule writes it after Kuryr where sysctl.d has it for
//     all devices. For a device without an address the kernel refuses in loose mode what
//     it would accept by another device. The larger of conf/all and the device's value
//     counts.
//
// A switch or a bridge takes a port's frames before these checks, but not always: Open vSwitch's
// data path in user space gets a copy, and when a device has left its switch (ovs-vsctl del-port)
// the node gets every frame. A filter at the device's tc ingress would help in the former case
// only, because the kernel's data path comes after it.
var muteSysctls = []muteSysctl{
	{"ipv6/conf/%s/disable_ipv6", []string{"1"}},
	{"ipv4/conf/%s/arp_ignore", []string{"1"}},
	{"ipv4/conf/%s/rp_filter", []string{"1", "2"}},
}

type muteSysctl struct {
	key string
	are []string // accepted values; Kuryr writes the first one
}

func (m muteSysctl) path(device string) string {
	return filepath.Join("/proc/sys/net", strings.Replace(m.key, "%s", device, 1))
}

// wrong returns the value if it is not accepted. A value that cannot be read does not exist.
func (m muteSysctl) wrong(device string) error {
	got, err := os.ReadFile(m.path(device))
	if value := strings.TrimSpace(string(got)); err == nil && !slices.Contains(m.are, value) {
		return fmt.Errorf("the node's own IP stack is not disabled on %s: %s is %s, not %s", device, m.path(device), value, m.are[0])
	}
	return nil
}

// mute sets sysctls. A device that is still down passes nothing before that.
func mute(device string, sysctls []muteSysctl) error {
	for _, m := range sysctls {
		if m.wrong(device) == nil {
			continue
		}
		if err := os.WriteFile(m.path(device), []byte(m.are[0]), 0); err != nil {
			return fmt.Errorf("disabling the node's own IP stack on %s: %w: %w", device, err, ErrDataPath)
		}
	}
	return nil
}

// muted returns an error that names the first wrong value.
func muted(device string) error {
	for _, m := range muteSysctls {
		if err := m.wrong(device); err != nil {
			return err
		}
	}
	return nil
}
