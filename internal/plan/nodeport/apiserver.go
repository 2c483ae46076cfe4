// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nodeport

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kuryr-go/kuryr/internal/plan/service"
)

// APIServers are the Kubernetes API's servers, as a node sees them: endpoints of the
// Service default/kubernetes.
type APIServers struct {
	Node   string // spreads nodes over them
	Slices []*discoveryv1.EndpointSlice
	// By is the address at which the daemon itself finds the API. If that is a cluster IP of the
	// Service, another proxy handles it already, and the daemon must learn of a replaced server by
	// it: the address is left alone. Zero: another address.
	By netip.Addr
}

// addAPI makes the node's own traffic to the API's cluster IP go directly to one of its servers.
// The servers are on the nodes' own network. Behind the load balancer they would see the node's
// address and answer past it; the node would drop the answer. Also, programs on the host network
// reach the API without the cloud.
func (p *planner) addAPI(svc *corev1.Service, port *corev1.ServicePort, ip netip.Addr) {
	from := &p.api
	if port.Port < 1 || port.Port > 0xffff || slices.Contains(service.ClusterIPs(svc), from.By) {
		return
	}
	var all []netip.AddrPort
	for _, slice := range from.Slices {
		if at := portOf(slice, port); at > 0 {
			all = appendReady(all, slice, ip.Is6(), at)
		}
	}
	if len(all) == 0 {
		return // the load balancer, as everybody
	}
	// A new or removed server changes the choice for no other address.
	weight := func(at netip.AddrPort) []byte {
		sum := sha256.Sum256([]byte(from.Node + " " + at.String()))
		return sum[:]
	}
	best := slices.MaxFunc(all, func(a, b netip.AddrPort) int { return bytes.Compare(weight(a), weight(b)) })
	protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
	p.claim(Frontend{Address: ip, Protocol: protocol, Port: uint16(port.Port)}, Backend{AddrPort: best, For: svc.Namespace + "/" + svc.Name, Own: true})
}

// listen reports whether an API server is at f: its address and port as its endpoints
// have it, ready or not.
func (s *APIServers) listen(f Frontend) bool {
	if f.Protocol != corev1.ProtocolTCP {
		return false
	}
	for _, slice := range s.Slices {
		if !slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return p.Port != nil && *p.Port == int32(f.Port) }) {
			continue
		}
		for i := range slice.Endpoints {
			for _, text := range slice.Endpoints[i].Addresses {
				if ip, err := service.ParseAddr(text); err == nil && ip == f.Address {
					return true
				}
			}
		}
	}
	return false
}

// portOf returns the number that a port of a Service has at a slice's endpoints; 0 if none.
func portOf(slice *discoveryv1.EndpointSlice, port *corev1.ServicePort) uint16 {
	for _, sp := range slice.Ports {
		name, protocol := "", corev1.ProtocolTCP
		if sp.Name != nil {
			name = *sp.Name
		}
		if sp.Protocol != nil {
			protocol = *sp.Protocol
		}
		if name == port.Name && protocol == cmp.Or(port.Protocol, corev1.ProtocolTCP) && sp.Port != nil && *sp.Port > 0 && *sp.Port <= 0xffff {
			return uint16(*sp.Port)
		}
	}
	return 0
}

func appendReady(all []netip.AddrPort, slice *discoveryv1.EndpointSlice, v6 bool, port uint16) []netip.AddrPort {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		if ip, err := service.ParseAddr(e.Addresses[0]); err == nil && ip.Is6() == v6 && !ip.IsLoopback() {
			all = append(all, netip.AddrPortFrom(ip, port))
		}
	}
	return all
}
