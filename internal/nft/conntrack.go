// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/conntrack"
	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// translation is the kernel's current translation of packets to a frontend. The kernel decides once
// for a connection, and a UDP client that sends without a pause is one endless connection: a new
// node port would never get its packets, and a removed one would keep them.
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

// manyPorts is from how many ports on the table of connections is looked through once
// for all of them.
const manyPorts = 8

// forget ends the UDP connections of these translations.
func (f family) forget(ctx context.Context, stale []translation) error {
	of := flows{}
	for _, t := range stale {
		of[t.Port] = append(of[t.Port], t)
	}
	var matches []conntrack.Match
	for port := range of {
		matches = append(matches, conntrack.Match{V6: f.v6, Protocol: unix.IPPROTO_UDP, Port: port})
	}
	if len(matches) >= manyPorts {
		matches = []conntrack.Match{{V6: f.v6, Protocol: unix.IPPROTO_UDP}}
	}
	if err := conntrack.End(ctx, matches, of.has); err != nil {
		return fmt.Errorf("forgetting UDP connections: %w", err)
	}
	return nil
}

// flows are translations by the port that the client sends to.
type flows map[uint16][]translation

// has reports whether a connection is of one of them.
func (m flows) has(c conntrack.Flow) bool {
	for _, t := range m[c.Destination.Port()] {
		to := t.to
		if !to.IsValid() {
			to = c.Destination
		}
		if (t.Everywhere() || t.Address == c.Destination.Addr()) && c.Answers == to {
			return true
		}
	}
	return false
}
