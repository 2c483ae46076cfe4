// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attacker sends and hears whole frames on a device, as a pod with CAP_NET_RAW does.
type attacker struct {
	t     testing.TB
	fd    int
	index int
	mac   net.HardwareAddr
}

// attack has ns's device in its hands until the test ends.
func attack(t testing.TB, ns namespace, device string) *attacker {
	t.Helper()
	a := &attacker{t: t}
	ns.do(t, func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		a.index, a.mac = dev.Index, dev.HardwareAddr
		a.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(swap(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(a.fd) })
		if err := unix.SetsockoptPacketMreq(a.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(a.index), Type: unix.PACKET_MR_PROMISC}); err != nil {
			return err
		}
		return unix.Bind(a.fd, &unix.SockaddrLinklayer{Protocol: swap(unix.ETH_P_ALL), Ifindex: a.index})
	})
	return a
}

func (a *attacker) send(frame []byte) {
	a.t.Helper()
	if err := unix.Sendto(a.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: a.index}); err != nil {
		a.t.Fatalf("sending a frame: %v", err)
	}
}

// hears reports whether a frame comes in, and is no echo of its own, that is what is
// waited for. Meanwhile again is done some times, from the beginning.
func (a *attacker) hears(again func(), is func(frame []byte) bool) bool {
	a.t.Helper()
	const tries, pause = 4, 100 * time.Millisecond
	if err := unix.SetsockoptTimeval(a.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}); err != nil {
		a.t.Fatal(err)
	}
	frame := make([]byte, 4096)
	for range tries {
		again()
		for end := time.Now().Add(pause); time.Now().Before(end); {
			n, from, err := unix.Recvfrom(a.fd, frame, 0)
			if err != nil {
				continue
			}
			if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype != unix.PACKET_OUTGOING && n >= 14 && is(frame[:n]) {
				return true
			}
		}
	}
	return false
}

// sends a frame, and hears what is waited for.
func (a *attacker) provokes(frame []byte, is func(frame []byte) bool) bool {
	a.t.Helper()
	return a.hears(func() { a.send(frame) }, is)
}

func swap(n uint16) uint16 { return n<<8 | n>>8 }

var (
	broadcast = net.HardwareAddr{255, 255, 255, 255, 255, 255}
	allNodes  = netip.MustParseAddr("ff02::1")
)

// from reports whether a frame comes from that address.
func from(mac net.HardwareAddr) func([]byte) bool {
	return func(frame []byte) bool { return net.HardwareAddr(frame[6:12]).String() == mac.String() }
}

// multicast6 is the MAC address of a group.
func multicast6(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// linkLocal is the address that the kernel makes of a MAC address.
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

func ether(dst, src net.HardwareAddr, typ uint16, payload []byte) []byte {
	f := append(append([]byte{}, dst...), src...)
	return append(binary.BigEndian.AppendUint16(f, typ), payload...)
}

// tagged is a frame in that VLAN.
func tagged(frame []byte, vlan uint16) []byte {
	f := append([]byte{}, frame[:12]...)
	f = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(f, unix.ETH_P_8021Q), vlan)
	return append(f, frame[12:]...)
}

const arpRequest, arpReply = 1, 2

func arp(op uint16, dst, mac net.HardwareAddr, sender, target netip.Addr) []byte {
	p := binary.BigEndian.AppendUint16([]byte{0, 1, 8, 0, 6, 4}, op)
	p = append(append(p, mac...), sender.AsSlice()...)
	p = append(append(p, make([]byte, 6)...), target.AsSlice()...)
	return ether(dst, mac, unix.ETH_P_ARP, p)
}

// udp is a datagram; its checksum is left out, as IPv4 may.
func udp(dst, src net.HardwareAddr, from, to netip.AddrPort, payload []byte) []byte {
	d := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from.Port()), to.Port())
	d = append(binary.BigEndian.AppendUint16(d, uint16(8+len(payload))), 0, 0)
	return ether(dst, src, unix.ETH_P_IP, ipv4(unix.IPPROTO_UDP, from.Addr(), to.Addr(), append(d, payload...)))
}

func ipv4(protocol byte, from, to netip.Addr, payload []byte) []byte {
	h := binary.BigEndian.AppendUint16([]byte{0x45, 0}, uint16(20+len(payload)))
	h = append(append(append(h, 0, 1, 0, 0, 64, protocol, 0, 0), from.AsSlice()...), to.AsSlice()...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, payload...)
}

// icmp6 is a message with the hop limit that NDP wants.
func icmp6(dst, src net.HardwareAddr, from, to netip.Addr, message []byte) []byte {
	pseudo := append(append(append([]byte{}, from.AsSlice()...), to.AsSlice()...), 0, 0, 0, byte(len(message)), 0, 0, 0, unix.IPPROTO_ICMPV6)
	binary.BigEndian.PutUint16(message[2:], checksum(append(pseudo, message...)))
	h := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(message)))
	h = append(append(append(h, unix.IPPROTO_ICMPV6, 255), from.AsSlice()...), to.AsSlice()...)
	return ether(dst, src, unix.ETH_P_IPV6, append(h, message...))
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

// evil is the prefix that false routers give.
var evil = netip.MustParsePrefix("2001:db8:bad::/64")

// routerAdvertisement says to all that mac is their router for half an hour, and that
// they are to make an address of evil.
func routerAdvertisement(mac net.HardwareAddr) []byte {
	m := []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	m = append(m, 3, 4, byte(evil.Bits()), 0xc0, 0, 0x27, 0x8d, 0, 0, 9, 0x3a, 0x80, 0, 0, 0, 0)
	m = append(m, evil.Addr().AsSlice()...)
	return icmp6(multicast6(allNodes), mac, linkLocal(mac), allNodes, m)
}

// echo6 is a ping of a group or an address.
func echo6(dst, mac net.HardwareAddr, from, to netip.Addr) []byte {
	return icmp6(dst, mac, from, to, []byte{128, 0, 0, 0, 0, 1, 0, 1})
}

// solicitation asks who has target.
func solicitation(mac net.HardwareAddr, from, target netip.Addr) []byte {
	b := target.As16()
	group := netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 0xff, b[13], b[14], b[15]})
	m := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...)
	return icmp6(multicast6(group), mac, from, group, append(append(m, 1, 1), mac...))
}

// advertisement says that mac has target, whoever had it before.
func advertisement(dst, mac net.HardwareAddr, from, to, target netip.Addr) []byte {
	m := append([]byte{136, 0, 0, 0, 0x60, 0, 0, 0}, target.AsSlice()...)
	return icmp6(dst, mac, from, to, append(append(m, 2, 1), mac...))
}
