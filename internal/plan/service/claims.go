// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Claim is a port of an external IP. Only one Service can have it.
type Claim struct {
	Address  netip.Addr
	Protocol corev1.Protocol
	Port     int32
}

// String formats the claim as one word. Equal claims give equal words.
func (c Claim) String() string { return fmt.Sprintf("%s,%s,%d", c.Address, c.Protocol, c.Port) }

// Claims returns the ports of external IPs that nodes are to forward to a Service, without
// duplicates. It omits addresses of families that the Service has no cluster IP of.
func Claims(svc *corev1.Service) []Claim {
	if len(svc.Spec.ExternalIPs) == 0 || !Wanted(svc) {
		return nil
	}
	families := map[int]bool{}
	for _, ip := range ClusterIPs(svc) {
		families[ip.BitLen()] = true
	}
	var claims []Claim
	seen := map[netip.Addr]bool{}
	for _, text := range svc.Spec.ExternalIPs {
		ip, err := ParseAddr(text)
		if err != nil || !families[ip.BitLen()] || seen[ip] {
			continue
		}
		seen[ip] = true
		for _, port := range svc.Spec.Ports {
			claims = append(claims, Claim{ip, cmp.Or(port.Protocol, corev1.ProtocolTCP), port.Port})
		}
	}
	return claims
}

// Older orders Services by precedence for a shared claim: the first one gets it.
func Older(a, b *corev1.Service) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// rivals notes the claims that older Services have.
func (p *planner) rivals() {
	older := slices.DeleteFunc(slices.Clone(p.Rivals), func(r *corev1.Service) bool { return Older(r, p.Service) >= 0 })
	slices.SortFunc(older, Older)
	holders := map[Claim]*corev1.Service{}
	for _, r := range older {
		for _, c := range Claims(r) {
			if holders[c] == nil {
				holders[c] = r
			}
		}
	}
	for _, c := range Claims(p.Service) {
		if h := holders[c]; h != nil {
			p.warn(ReasonTaken, "spec.externalIPs", "%s at %s %d belongs to Service %s/%s, which is older: use another address or port", c.Address, c.Protocol, c.Port, h.Namespace, h.Name)
		}
	}
}
