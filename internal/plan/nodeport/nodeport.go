// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeport plans what a node forwards.
//
// For Services, in addition to their load balancers: traffic to a node port at one of the node's
// own addresses, and to an external IP, is sent to the cluster IP, where the load balancer is. The
// node's own traffic to the Kubernetes API is sent to one of its servers. Some Services have a
// health check port on the node.
//
// For the node's pods: traffic to a hostPort is sent to the pod.
//
// The package only plans. Package nft writes the kernel's tables; the daemon answers at the health
// check ports.
package nodeport

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr-go/kuryr/internal/plan/service"
)

// Frontend is what traffic is addressed to.
type Frontend struct {
	// Address is an external IP, or the API's cluster IP; unspecified (0.0.0.0 or ::)
	// stands for each address of the node of that family.
	Address  netip.Addr
	Protocol corev1.Protocol
	Port     uint16
	// Host has it count at addresses of the node only, those of its loopback among
	// them, as a pod's hostPort does. An external IP need not be the node's, and a
	// node port leaves the loopback alone.
	Host bool
}

// Everywhere reports whether f is a port of all the node's addresses of its family.
func (f Frontend) Everywhere() bool { return f.Address.IsUnspecified() }

// Loopback reports whether f takes traffic that the node sends to itself by the
// loopback's addresses.
func (f Frontend) Loopback() bool { return f.Host && (f.Everywhere() || f.Address.IsLoopback()) }

// Backend is where it goes, an address of the frontend's family: a cluster IP, a
// pod's, or an API server's.
type Backend struct {
	netip.AddrPort
	// For names the owner for people: NAMESPACE/NAME of a Service, with :PORT if the port has a
	// name, or "pod NAMESPACE/NAME".
	For string
	// Own means that only the node itself sends traffic there: the node need not forward for it.
	Own bool
}

// Table is what a node passes on.
type Table map[Frontend]Backend

// Family returns what t has of IPv6, or of IPv4.
func (t Table) Family(v6 bool) Table {
	of := Table{}
	for f, b := range t {
		if f.Address.Is6() == v6 {
			of[f] = b
		}
	}
	return of
}

// Forwards reports whether the node forwards traffic of others.
func (t Table) Forwards() bool {
	for _, b := range t {
		if !b.Own {
			return true
		}
	}
	return false
}

// Check is a port of the node that tells whether it has endpoints of a Service.
type Check struct {
	Port    uint16
	Service types.NamespacedName
}

// Conflict is a frontend that a Service or pod does not get, as another has it.
type Conflict struct {
	Frontend
	For, Holder string // as Backend.For says it
}

// Wanted is what a node has to do.
type Wanted struct {
	Table     Table
	Checks    []Check // by port
	Conflicts []Conflict
}

// Plan returns what a node does for Services and for host ports of its pods. The order of the input
// does not matter. Services must be all Services: those that Kuryr leaves alone have cluster IPs,
// too. Services win over pods, because their ports are the same on all nodes, and come from the API
// server or an administrator. If several Services, or several pods, want the same, the oldest gets
// it.
func Plan(services []*corev1.Service, hosts []HostPort, api APIServers) Wanted {
	p := planner{taken: map[netip.Addr]bool{}, api: api}
	p.Table = Table{}
	mine := slices.DeleteFunc(slices.Clone(services), func(svc *corev1.Service) bool { return !service.Wanted(svc) })
	slices.SortFunc(mine, service.Older)
	for _, svc := range services { // whoever serves them
		for _, ip := range service.ClusterIPs(svc) {
			p.taken[ip] = true
		}
	}
	for _, svc := range mine {
		p.add(svc)
	}
	hosts = slices.Clone(hosts)
	slices.SortFunc(hosts, HostPort.compare)
	for _, h := range hosts {
		p.addHost(h)
	}
	slices.SortFunc(p.Checks, func(a, b Check) int { return cmp.Compare(a.Port, b.Port) })
	return p.Wanted
}

type planner struct {
	Wanted
	taken map[netip.Addr]bool // cluster IPs, of all Services
	api   APIServers
}

func (p *planner) add(svc *corev1.Service) {
	if port := svc.Spec.HealthCheckNodePort; port > 0 && port <= 0xffff && healthChecked(svc) {
		p.Checks = append(p.Checks, Check{Port: uint16(port), Service: types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}})
	}
	for _, ip := range service.ClusterIPs(svc) {
		for i := range svc.Spec.Ports {
			p.addPort(svc, &svc.Spec.Ports[i], ip)
			if isAPI(svc) {
				p.addAPI(svc, &svc.Spec.Ports[i], ip)
			}
		}
	}
}

// healthChecked reports whether the API server gives a Service its health check
// port: elsewhere it may stand for nothing.
func healthChecked(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func (p *planner) addPort(svc *corev1.Service, port *corev1.ServicePort, ip netip.Addr) {
	if port.Port < 1 || port.Port > 0xffff {
		return
	}
	to := Backend{AddrPort: netip.AddrPortFrom(ip, uint16(port.Port)), For: svc.Namespace + "/" + svc.Name}
	if port.Name != "" {
		to.For += ":" + port.Name
	}
	protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
	if n := port.NodePort; n > 0 && n <= 0xffff && svc.Spec.Type != corev1.ServiceTypeClusterIP {
		p.claim(Frontend{Address: everywhere(ip), Protocol: protocol, Port: uint16(n)}, to)
	}
	for _, text := range svc.Spec.ExternalIPs {
		if external, err := service.ParseAddr(text); err == nil && external.Is6() == ip.Is6() && p.external(external) {
			front := Frontend{Address: external, Protocol: protocol, Port: to.Port()}
			if p.api.listen(front) { // whoever may write Services would be the API for all nodes
				p.Conflicts = append(p.Conflicts, Conflict{Frontend: front, For: to.For, Holder: "the Kubernetes API"})
				continue
			}
			p.claim(front, to)
		}
	}
}

func everywhere(ip netip.Addr) netip.Addr {
	if ip.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// external reports whether an address can be somewhere outside: not one that
// every machine has, and no cluster IP, where a load balancer answers.
func (p *planner) external(ip netip.Addr) bool {
	return !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast() && !p.taken[ip]
}

func (p *planner) claim(f Frontend, to Backend) {
	switch holder, taken := p.Table[f]; {
	case !taken:
		p.Table[f] = to
	case holder != to: // a Service may name an external IP twice, a pod be seen twice
		p.Conflicts = append(p.Conflicts, Conflict{Frontend: f, For: to.For, Holder: holder.For})
	}
}
