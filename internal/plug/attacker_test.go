// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attacker sends and receives whole frames on a device, as a pod with CAP_NET_RAW does.
type attacker struct {
	t     testing.TB
	fd    int
	index int
	mac   net.HardwareAddr
}

// attack opens ns's device for an attacker until the test ends.
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

// hears reports whether a matching frame comes in that is no echo of its own. Meanwhile it calls
// again several times, first at the start.
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

// provokes sends a frame, and reports whether a matching one comes in.
func (a *attacker) provokes(frame []byte, is func(frame []byte) bool) bool {
	a.t.Helper()
	return a.hears(func() { a.send(frame) }, is)
}

func swap(n uint16) uint16 { return n<<8 | n>>8 }

// from reports whether a frame comes from that address. IGMP does not count: a bridge itself
// sends queries for multicast routers, without an address.
func from(mac net.HardwareAddr) func([]byte) bool {
	return func(frame []byte) bool {
		igmp := len(frame) > 23 && frame[12] == 8 && frame[13] == 0 && frame[23] == unix.IPPROTO_IGMP
		return !igmp && net.HardwareAddr(frame[6:12]).String() == mac.String()
	}
}
