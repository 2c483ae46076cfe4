// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/plug"
)

// listen returns the packets of one protocol, with their Ethernet headers, that arrive at a
// device of the namespace afterwards.
func listen(t *testing.T, ns namespace, device string, protocol uint16) <-chan []byte {
	t.Helper()
	var fd int
	ns.do(t, func() (err error) {
		network := protocol<<8 | protocol>>8
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(network)); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	})
	packets, end := make(chan []byte, 1000), make(chan struct{})
	go func() {
		defer close(packets)
		defer func() { _ = unix.Close(fd) }()
		for {
			b := make([]byte, 2000)
			n, _, err := unix.Recvfrom(fd, b, 0)
			select {
			case <-end:
				return
			default:
			}
			if err == nil {
				packets <- b[:n]
			} else if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	t.Cleanup(func() { close(end) })
	return packets
}

func next(t *testing.T, packets <-chan []byte, what string, is func([]byte) bool) []byte {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		select {
		case p := <-packets:
			if is(p) {
				return p
			}
		case <-late:
			t.Fatalf("no %s within 10 s", what)
		}
	}
}

func TestWaitAnnouncesTheAddresses(t *testing.T) {
	for k, without := range []bool{false, true} {
		d := bridges(t)
		peer, ns := newNamespace(t), newNamespace(t)
		mustPlug(t, d, pod(t, "bridge", 20, peer))
		p := pod(t, "bridge", 30+k, ns)
		if without {
			p.MAC = nil
		}
		announces(t, peer, p, func() {
			mustPlug(t, d, p)
			waited(t, d, p)
		})
	}
}

// announces checks which announcements of p peer receives while p is plugged.
func announces(t *testing.T, peer namespace, p plug.Interface, doPlug func()) {
	t.Helper()
	arps, v6 := listen(t, peer, "eth0", unix.ETH_P_ARP), listen(t, peer, "eth0", unix.ETH_P_IPV6)
	doPlug()
	mac := p.HardwareAddr()

	v4, six := p.Addresses[0].Prefix.Addr(), p.Addresses[1].Prefix.Addr()
	arp := next(t, arps, "ARP announcement", func(b []byte) bool {
		return len(b) >= 42 && bytes.Equal(b[28:32], v4.AsSlice()) && bytes.Equal(b[38:42], v4.AsSlice())
	})
	if !bytes.Equal(arp[22:28], mac) || !bytes.Equal(arp[6:12], mac) || !bytes.Equal(arp[:6], bytes.Repeat([]byte{0xff}, 6)) {
		t.Errorf("ARP announcement % x: not of %s to all", arp, mac)
	}
	na := next(t, v6, "neighbour advertisement", func(b []byte) bool {
		return len(b) == 86 && b[20] == unix.IPPROTO_ICMPV6 && b[54] == 136
	})
	target, _ := netip.AddrFromSlice(na[62:78])
	if target != six || !bytes.Equal(na[80:86], mac) || na[21] != 255 || na[58] != 0x20 {
		t.Errorf("neighbour advertisement % x: not of %s at %s", na, six, mac)
	}
	if sum := sumICMPv6(na[14:]); sum != 0xffff {
		t.Errorf("checksum of the neighbour advertisement adds up to %#x", sum)
	}
}

// sumICMPv6 returns the checksum of a packet, computed as RFC 4443 §2.3 requires of its receiver.
func sumICMPv6(ip []byte) uint16 {
	words := append(append([]byte{}, ip[8:40]...), 0, 0, ip[4], ip[5], 0, 0, 0, unix.IPPROTO_ICMPV6)
	words = append(words, ip[40:]...)
	var sum uint32
	for k := 0; k < len(words); k += 2 {
		sum += uint32(binary.BigEndian.Uint16(words[k:]))
	}
	return uint16(sum>>16 + sum&0xffff)
}

// A neighbour that knows the address at another MAC address learns the new one.
func TestNeighboursLearnThatAnAddressHasMoved(t *testing.T) {
	d := bridges(t)
	peer := newNamespace(t)
	mustPlug(t, d, pod(t, "bridge", 22, peer))
	old := pod(t, "bridge", 23, newNamespace(t))
	mustPlug(t, d, old)
	for k := range old.Addresses {
		ping(t, peer, addr(old, k))
	}
	mustUnplug(t, d, old)
	moved := pod(t, "bridge", 24, newNamespace(t))
	moved.Addresses = old.Addresses
	mustPlug(t, d, moved)
	waited(t, d, moved)
	for k := range moved.Addresses {
		eventually(t, "the neighbour to learn of "+addr(moved, k), func() bool {
			return bytes.Contains([]byte(peer.run(t, "ip", "neigh", "show", addr(moved, k))), []byte(moved.MAC.String()))
		})
	}
}
