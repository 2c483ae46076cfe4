// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package balancer decides what to do with the load balancers of a Service: from
// what its KuryrLoadBalancer says, what the provider can do, and what the cloud
// has, to the next requests. It is pure; asking and waiting is left to the caller,
// who looks again after each change and asks for the next plan.
package balancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Problem is what a provider cannot do of what is wanted. It is left out, the
// rest is done.
type Problem struct {
	// Field is where the Service says it.
	Field string
	// Text says what comes of it and what to do about it.
	Text string
}

// String is a problem for a person.
func (p Problem) String() string { return p.Field + ": " + p.Text }

// Everything is a provider that can do all that there is.
func Everything() sdn.Features {
	return sdn.Features{
		Protocols: []string{"TCP", "UDP", "SCTP"}, Algorithms: []string{"ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"}, Affinity: true, AffinityTimeout: true, SourceRanges: true, Timeouts: true,
		ConnectionLimit: true, Monitors: []string{"TCP", "UDP-CONNECT", "SCTP", "HTTP"}, ProxyProtocol: true,
		KeepsClientAddress: true, ManyProtocols: true, FailOver: true, FarMembers: true,
	}
}

// Provider returns the one that the features given to Want and Next are to be of:
// that of the spec, else that of a load balancer that is there, so that a cloud
// that gets another default has none made anew; empty is the cloud's default.
func Provider(klb *v1.KuryrLoadBalancer, have []sdn.LoadBalancer, keep []string) string {
	if klb.Spec.Provider != "" {
		return klb.Spec.Provider
	}
	for _, vip := range klb.Spec.VIPs {
		if lb := Serving(vip, have, keep); lb != nil {
			return lb.Provider
		}
	}
	return ""
}

// Want returns the load balancers that a KuryrLoadBalancer asks for, one for each
// VIP, as far as a provider with these features can make them. The KuryrLoadBalancer
// is not changed; the result shares nothing with it that is changed later.
func Want(klb *v1.KuryrLoadBalancer, f sdn.Features) ([]sdn.LoadBalancer, []Problem) {
	w := wanter{klb: klb, spec: &klb.Spec, f: f, said: map[Problem]bool{}}
	if klb.Spec.KeepClientAddress && !f.KeepsClientAddress {
		w.cannot("spec.externalTrafficPolicy", "hides clients: endpoints see its own address instead of theirs. Choose another provider, or the policy Cluster")
	}
	provider := klb.Spec.Provider
	if provider == "" && klb.Spec.FlavorID == "" && !f.Unsure { // a flavor is of its own provider
		provider = f.Provider
	}
	var all []sdn.LoadBalancer
	for i, vip := range klb.Spec.VIPs {
		name := klb.Namespace + "/" + klb.Name
		if i > 0 {
			name += "/" + vip.IP
		}
		all = append(all, sdn.LoadBalancer{
			Name: name, ProjectID: klb.Spec.ProjectID, Provider: provider, FlavorID: klb.Spec.FlavorID,
			AvailabilityZone: klb.Spec.AvailabilityZone, VIP: vip, Listeners: w.listeners(vip),
		})
	}
	return all, w.problems
}

// family returns what family an address is of.
func family(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err == nil && a.Unmap().Is4() {
		return "ipv4"
	}
	return "ipv6"
}

// wanter collects the problems of one KuryrLoadBalancer, each once.
type wanter struct {
	klb      *v1.KuryrLoadBalancer
	spec     *v1.KuryrLoadBalancerSpec
	f        sdn.Features
	problems []Problem
	said     map[Problem]bool
}

func (w *wanter) cannot(field, format string, args ...any) {
	p := Problem{field, fmt.Sprintf("provider %s ", cmp.Or(w.f.Provider, w.spec.Provider)) + fmt.Sprintf(format, args...)}
	if !w.said[p] {
		w.said[p] = true
		w.problems = append(w.problems, p)
	}
}

func (w *wanter) listeners(vip v1.VIPAddress) []sdn.Listener {
	ranges := w.sourceRanges(vip)
	var all []sdn.Listener
	ports := map[int32]bool{}
	for i := range w.spec.Listeners {
		s := &w.spec.Listeners[i]
		switch {
		case !slices.Contains(w.f.Protocols, s.Protocol):
			w.cannot(field(s, "protocol"), "has no %s: the port is left out. Choose another provider", s.Protocol)
			continue
		case ports[s.Port] && !w.f.ManyProtocols:
			w.cannot(field(s, "port"), "takes one protocol on a port: %s is left out. Choose another port number or another provider", s.Protocol)
			continue
		}
		ports[s.Port] = true
		all = append(all, w.listener(s, vip, ranges))
	}
	return all
}

func field(s *v1.ListenerSpec, what string) string {
	return fmt.Sprintf("spec.ports[%s].%s", cmp.Or(s.Name, fmt.Sprint(s.Port)), what)
}

func (w *wanter) listener(s *v1.ListenerSpec, vip v1.VIPAddress, ranges []string) sdn.Listener {
	if s.ConnectionLimit != nil && !w.f.ConnectionLimit {
		w.cannot("connection limit", "does not limit connections: it is stored and has no effect. Take the annotation away, or choose another provider")
	}
	if (s.TimeoutClientData != nil || s.TimeoutMemberData != nil || s.TimeoutMemberConnect != nil || s.TimeoutTCPInspect != nil) && !w.f.Timeouts {
		w.cannot("timeouts", "knows no timeouts: they are stored and have no effect. Choose another provider if they matter")
	}
	name := fmt.Sprintf("%s/%s:%s:%d", w.klb.Namespace, w.klb.Name, s.Protocol, s.Port)
	l := sdn.Listener{
		Name: name, Protocol: s.Protocol, Port: s.Port, SourceRanges: ranges, ConnectionLimit: s.ConnectionLimit,
		TimeoutClientData: s.TimeoutClientData, TimeoutMemberData: s.TimeoutMemberData,
		TimeoutMemberConnect: s.TimeoutMemberConnect, TimeoutTCPInspect: s.TimeoutTCPInspect,
	}
	l.Pool = &sdn.Pool{
		Name: name, Protocol: w.poolProtocol(s), Algorithm: w.algorithm(s),
		AffinitySeconds: w.affinity(s), Monitor: w.monitor(s), Members: w.members(s, vip),
	}
	return l
}

// sourceRanges returns those of the VIP's family. If all are of the other one,
// nobody of this one may come: a load balancer without ranges would let all.
func (w *wanter) sourceRanges(vip v1.VIPAddress) []string {
	if len(w.spec.SourceRanges) == 0 {
		return nil
	}
	if !w.f.SourceRanges && !limited(w.spec.SourceRanges, family(vip.IP)) {
		return nil
	}
	if !w.f.SourceRanges {
		w.cannot("spec.loadBalancerSourceRanges", "does not look at where clients are. %s. Choose another provider "+
			"(annotation openstack.org/kuryr-provider)%s, or take the ranges away", w.consequence(), w.byGroups())
		return nil
	}
	var out []string
	for _, r := range w.spec.SourceRanges {
		if p, err := netip.ParsePrefix(r); err == nil && family(p.Addr().String()) == family(vip.IP) {
			out = append(out, p.Masked().String())
		}
	}
	if len(out) == 0 {
		return []string{nowhere[family(vip.IP)]}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// BrokenMonitors says of which ports the cloud has health monitors that check nothing.
// OVN's provider of OpenStack Zed accepts one, and has it in ERROR where the network of
// the members has no metadata port; pool and load balancer stay ACTIVE.
func BrokenMonitors(trees []sdn.LoadBalancer) []Problem {
	var ports []string
	for _, lb := range trees {
		for _, l := range lb.Listeners {
			if l.Pool != nil && l.Pool.MonitorBroken {
				ports = append(ports, fmt.Sprintf("%s:%d", l.Protocol, l.Port))
			}
		}
	}
	if len(ports) == 0 {
		return nil
	}
	slices.Sort(ports)
	return []Problem{{"health monitor", "is in ERROR in the cloud, of " + first(slices.Compact(ports)) +
		": endpoints are not checked beyond their readiness. Take the annotation away, or look at it there; " +
		"OVN's provider wants a metadata port in the network of the endpoints (ovn_metadata_enabled in Neutron)"}}
}

// Withheld reports whether a KuryrLoadBalancer gets no floating IP as the provider
// could not keep out those who are to stay out: closed, never open. A floating IP is of
// the first VIP's family; ranges of another one are no reason.
func Withheld(klb *v1.KuryrLoadBalancer, f sdn.Features) bool {
	return klb.Spec.PublicIP != nil && !f.SourceRanges && !Open(klb)
}

// byGroups says that security groups could keep source ranges, where that is so.
func (w *wanter) byGroups() string {
	if !w.f.KeepsClientAddress || w.spec.SourceRangesAtMembers {
		return ""
	}
	return ", have security groups keep them (services.sourceRangesBySecurityGroups in Kuryr's configuration)"
}

// consequence says what comes of source ranges that cannot be kept.
func (w *wanter) consequence() string {
	if Withheld(w.klb, w.f) {
		return "So the Service gets no floating IP, which all could use; one that it had is reserved for it"
	}
	return "Whoever has a route to the cluster IP gets in"
}

func (w *wanter) poolProtocol(s *v1.ListenerSpec) string {
	if s.ProxyProtocol == "" {
		return s.Protocol
	}
	if !w.f.ProxyProtocol || s.Protocol != "TCP" {
		w.cannot("PROXY protocol", "does not speak it on port %d of %s: endpoints are not told the client's address. Take the annotation away, or choose another provider", s.Port, s.Protocol)
		return s.Protocol
	}
	return s.ProxyProtocol
}

func (w *wanter) algorithm(s *v1.ListenerSpec) string {
	switch {
	case s.Algorithm == "":
	case w.f.Balances(s.Algorithm):
		return s.Algorithm
	default:
		w.cannot("algorithm", "balances by %s, not by %s. Take the annotation away, or choose another provider",
			strings.Join(w.f.Algorithms, ", "), s.Algorithm)
	}
	return w.f.Algorithm
}

func (w *wanter) affinity(s *v1.ListenerSpec) *int32 {
	if s.AffinitySeconds == nil {
		return nil
	}
	if !w.f.Affinity {
		w.cannot("spec.sessionAffinity", "keeps no client at its endpoint: each connection is balanced by itself. Choose another provider")
		return nil
	}
	if w.f.AffinityUnsure {
		w.cannot("spec.sessionAffinity", "keeps clients at their endpoints from OpenStack 2023.1 on, and does not tell which release it is of: "+
			"before, it takes this and each connection is balanced by itself. Nothing is to be done if it is of 2023.1 or later; else update it, or choose another provider")
	}
	if w.f.TimesAffinity(s.Protocol) {
		return s.AffinitySeconds
	}
	if *s.AffinitySeconds != corev1.DefaultClientIPServiceAffinitySeconds {
		w.cannot("spec.sessionAffinityConfig", "keeps clients of %s at their endpoints, but not for as long as is said here. Take the field away", s.Protocol)
	}
	return new(int32)
}

func (w *wanter) monitor(s *v1.ListenerSpec) *v1.MonitorSpec {
	if s.Monitor == nil {
		return nil
	}
	if !slices.Contains(w.f.Monitors, s.Monitor.Type) {
		w.cannot("health monitor", "has none of type %s: endpoints are not checked beyond their readiness. Take the annotation away, or choose another provider", s.Monitor.Type)
		return nil
	}
	return s.Monitor
}

// members returns those of the VIP's family, each address and port once.
func (w *wanter) members(s *v1.ListenerSpec, vip v1.VIPAddress) []sdn.Member {
	var all []sdn.Member
	seen := map[memberKey]bool{}
	for _, m := range s.Members {
		if family(m.IP) != family(vip.IP) || seen[memberKey{m.IP, m.Port}] {
			continue
		}
		if m.SubnetID != "" && m.SubnetID != vip.SubnetID && !w.f.FarMembers {
			w.cannot("endpoints", "reaches none outside the subnet of the cluster IP: %s is left out. Choose another provider", m.IP)
			continue
		}
		seen[memberKey{m.IP, m.Port}] = true
		all = append(all, sdn.Member{Name: w.memberName(m), IP: m.IP, Port: m.Port, SubnetID: m.SubnetID})
	}
	return all
}

// longestName is how long Octavia lets a name be.
const longestName = 255

func (w *wanter) memberName(m v1.MemberSpec) string {
	target := cmp.Or(m.Name, w.klb.Namespace+"/"+w.klb.Name)
	port := fmt.Sprintf(":%d", m.Port)
	return target[:min(len(target), longestName-len(port))] + port
}
