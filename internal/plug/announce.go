// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

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
