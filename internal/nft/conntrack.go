// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// translation is what the kernel did, so far, with packets to a frontend. It
// decides once for a connection, and a UDP client that does not cease to send
// is one connection for ever: a new node port would never get its packets, and
// one that goes would keep them.
type translation struct {
	nodeport.Frontend
	to netip.AddrPort // the zero value: it left them as they are
}

func (f family) stale(keys []string, of map[string]element, translated bool) []translation {
	var all []translation
	for _, key := range keys {
		front, to, ok := f.decode(key, of[key].value)
		if !ok || front.Protocol != corev1.ProtocolUDP {
			continue
		}
		if !translated {
			to = netip.AddrPort{}
		}
		all = append(all, translation{front, to})
	}
	return all
}

// forget ends the UDP connections of these translations.
func (f family) forget(stale []translation) error {
	if len(stale) == 0 {
		return nil
	}
	of := netlink.InetFamily(unix.AF_INET)
	if f.v6 {
		of = unix.AF_INET6
	}
	match := flows{}
	for _, t := range stale {
		match[t.Port] = append(match[t.Port], t)
	}
	_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, of, match)
	if err != nil && !errors.Is(err, unix.ENOENT) { // one that ended by itself
		return fmt.Errorf("forgetting UDP connections: %w", err)
	}
	return nil
}

// flows are translations by the port that the client sends to.
type flows map[uint16][]translation

// MatchConntrackFlow reports whether a connection is of one of them.
func (m flows) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	if c.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	dst, answers := addrPort(c.Forward.DstIP, c.Forward.DstPort), addrPort(c.Reverse.SrcIP, c.Reverse.SrcPort)
	for _, t := range m[c.Forward.DstPort] {
		to := t.to
		if !to.IsValid() {
			to = dst
		}
		if (t.Everywhere() || t.Address == dst.Addr()) && answers == to {
			return true
		}
	}
	return false
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}
