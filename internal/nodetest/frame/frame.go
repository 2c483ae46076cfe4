// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package frame makes whole Ethernet frames, as a pod with CAP_NET_RAW may send them to claim a
// false identity. Only tests import it.
package frame

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

var (
	// Broadcast is the broadcast MAC address.
	Broadcast = net.HardwareAddr{255, 255, 255, 255, 255, 255}
	// AllNodes is the group of all IPv6 nodes of a link.
	AllNodes = netip.MustParseAddr("ff02::1")
)

// Multicast6 returns the MAC address of an IPv6 multicast group.
func Multicast6(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// LinkLocal returns the link-local address that the kernel derives from a MAC address.
func LinkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

// Ether returns a frame.
func Ether(dst, src net.HardwareAddr, typ uint16, payload []byte) []byte {
	f := append(append([]byte{}, dst...), src...)
	return append(binary.BigEndian.AppendUint16(f, typ), payload...)
}

// Tagged returns the frame with a VLAN tag.
func Tagged(frame []byte, vlan uint16) []byte {
	f := append([]byte{}, frame[:12]...)
	f = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(f, unix.ETH_P_8021Q), vlan)
	return append(f, frame[12:]...)
}

// Operations of ARP.
const (
	Request = 1
	Reply   = 2
)

// ARP returns a frame that says that mac has sender's address, and requests or answers target.
func ARP(op uint16, dst, mac net.HardwareAddr, sender, target netip.Addr) []byte {
	p := binary.BigEndian.AppendUint16([]byte{0, 1, 8, 0, 6, 4}, op)
	p = append(append(p, mac...), sender.AsSlice()...)
	p = append(append(p, make([]byte, 6)...), target.AsSlice()...)
	return Ether(dst, mac, unix.ETH_P_ARP, p)
}

// UDP returns a datagram without a checksum, as IPv4 allows.
func UDP(dst, src net.HardwareAddr, from, to netip.AddrPort, payload []byte) []byte {
	d := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from.Port()), to.Port())
	d = append(binary.BigEndian.AppendUint16(d, uint16(8+len(payload))), 0, 0)
	return Ether(dst, src, unix.ETH_P_IP, ipv4(unix.IPPROTO_UDP, from.Addr(), to.Addr(), append(d, payload...)))
}

func ipv4(protocol byte, from, to netip.Addr, payload []byte) []byte {
	h := binary.BigEndian.AppendUint16([]byte{0x45, 0}, uint16(20+len(payload)))
	h = append(append(append(h, 0, 1, 0, 0, 64, protocol, 0, 0), from.AsSlice()...), to.AsSlice()...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, payload...)
}

// icmp6 returns a message with the hop limit that NDP requires.
func icmp6(dst, src net.HardwareAddr, from, to netip.Addr, message []byte) []byte {
	pseudo := append(append(append([]byte{}, from.AsSlice()...), to.AsSlice()...), 0, 0, 0, byte(len(message)), 0, 0, 0, unix.IPPROTO_ICMPV6)
	binary.BigEndian.PutUint16(message[2:], checksum(append(pseudo, message...)))
	h := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(message)))
	h = append(append(append(h, unix.IPPROTO_ICMPV6, 255), from.AsSlice()...), to.AsSlice()...)
	return Ether(dst, src, unix.ETH_P_IPV6, append(h, message...))
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Evil is the prefix that false routers advertise.
var Evil = netip.MustParsePrefix("2001:db8:bad::/64")

// RouterAdvertisement tells all nodes that mac is their router for half an hour, and that they
// shall make an address of Evil.
func RouterAdvertisement(mac net.HardwareAddr) []byte {
	m := []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	m = append(m, 3, 4, byte(Evil.Bits()), 0xc0, 0, 0x27, 0x8d, 0, 0, 9, 0x3a, 0x80, 0, 0, 0, 0)
	m = append(m, Evil.Addr().AsSlice()...)
	return icmp6(Multicast6(AllNodes), mac, LinkLocal(mac), AllNodes, m)
}

// Echo6 returns a ping of a group or an address.
func Echo6(dst, mac net.HardwareAddr, from, to netip.Addr) []byte {
	return icmp6(dst, mac, from, to, []byte{128, 0, 0, 0, 0, 1, 0, 1})
}

// Solicitation returns a frame that asks for the MAC address of target.
func Solicitation(mac net.HardwareAddr, from, target netip.Addr) []byte {
	b := target.As16()
	group := netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 0xff, b[13], b[14], b[15]})
	m := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...)
	return icmp6(Multicast6(group), mac, from, group, append(append(m, 1, 1), mac...))
}

// Advertisement returns a frame that says that mac has target, whichever machine had it before.
func Advertisement(dst, mac net.HardwareAddr, from, to, target netip.Addr) []byte {
	m := append([]byte{136, 0, 0, 0, 0x60, 0, 0, 0}, target.AsSlice()...)
	return icmp6(dst, mac, from, to, append(append(m, 2, 1), mac...))
}
