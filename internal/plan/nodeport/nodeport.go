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
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
			if svc.Namespace == corev1.NamespaceDefault && svc.Name == "kubernetes" { // by which the Kubernetes API is found
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

// Local counts the endpoints of a Service's slices that are ready on a node. One
// that has addresses of both families is in slices of both and counts once.
func Local(slices []*discoveryv1.EndpointSlice, node string) int {
	ready := map[discoveryv1.AddressType]map[string]bool{}
	for _, slice := range slices {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if !on(e, node) || len(e.Addresses) == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			if ready[slice.AddressType] == nil {
				ready[slice.AddressType] = map[string]bool{}
			}
			ready[slice.AddressType][e.Addresses[0]] = true
		}
	}
	most := 0
	for _, addresses := range ready {
		most = max(most, len(addresses))
	}
	return most
}

// Keep returns the endpoints on the node. Local needs no others.
func Keep(endpoints []discoveryv1.Endpoint, node string) []discoveryv1.Endpoint {
	var kept []discoveryv1.Endpoint
	for i := range endpoints {
		if e := &endpoints[i]; on(e, node) {
			kept = append(kept, discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, NodeName: e.NodeName})
		}
	}
	return kept
}

func on(e *discoveryv1.Endpoint, node string) bool { return e.NodeName != nil && *e.NodeName == node }

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
