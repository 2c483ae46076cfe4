// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nodeport

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// HostPort is a port of the node at which a pod of the node is to be reached.
type HostPort struct {
	Pod   string    // NAMESPACE/NAME, for people
	Since time.Time // when the pod came: who was there first has it
	// Address is one of the node's; unspecified stands for all of its family, and
	// the zero value for all of both.
	Address  netip.Addr
	Protocol corev1.Protocol
	Port     uint16
	// To are the pod's addresses, of which the first of each family counts, and
	// Target its port.
	To     []netip.Addr
	Target uint16
}

// compare sorts the older first. The further comparisons make plans deterministic.
func (h HostPort) compare(o HostPort) int {
	return cmp.Or(h.Since.Compare(o.Since), strings.Compare(h.Pod, o.Pod), o.Address.Compare(h.Address),
		cmp.Compare(h.Port, o.Port), strings.Compare(string(h.Protocol), string(o.Protocol)), cmp.Compare(h.Target, o.Target))
}

func (p *planner) addHost(h HostPort) {
	seen := map[bool]bool{}
	for _, ip := range h.To {
		v6 := ip.Is6()
		if seen[v6] || h.Port == 0 || h.Target == 0 {
			continue
		}
		seen[v6] = true
		f := Frontend{Address: everywhere(ip), Protocol: h.Protocol, Port: h.Port, Host: true}
		if h.Address.IsValid() {
			f.Address = h.Address
		}
		if f.Address.Is6() == v6 {
			p.claimHost(f, Backend{AddrPort: netip.AddrPortFrom(ip, h.Target), For: "pod " + h.Pod})
		}
	}
}

// claimHost is claim of a pod, which Services go before: an external IP that is the
// same address, and a node port, which is a port of all addresses but the loopback's.
func (p *planner) claimHost(f Frontend, to Backend) {
	service := f
	service.Host = false
	holder, taken := p.Table[service]
	if !taken && !f.Address.IsLoopback() {
		service.Address = everywhere(f.Address)
		holder, taken = p.Table[service]
	}
	if taken {
		p.Conflicts = append(p.Conflicts, Conflict{Frontend: f, For: to.For, Holder: holder.For})
		return
	}
	p.claim(f, to)
}
