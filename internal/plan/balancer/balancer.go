// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package balancer decides what to do with the load balancers of a Service. From the
// KuryrLoadBalancer, the features of the provider and the objects in the cloud it plans the
// next requests. It is pure: the caller sends the requests and waits, then reads the cloud and
// asks for the next plan.
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

// Problem is a part of the spec that a provider cannot do. It is left out, and the rest is
// done.
type Problem struct {
	// Field is the field of the Service.
	Field string
	// Reason is one word for the problem. Decisions depend on Field and Reason alone.
	Reason string
	// Text says what follows from the problem and what to do about it.
	Text string
}

// String describes a problem for a person.
func (p Problem) String() string { return p.Field + ": " + p.Text }

// Reasons of problems. The status has them, and the next process reads them there.
const (
	ReasonHidesClients      = "HidesClients"      // endpoints do not see the client's address
	ReasonNoProtocol        = "NoProtocol"        // the port is left out
	ReasonPortTaken         = "PortTaken"         // another protocol has the port's number
	ReasonNoConnectionLimit = "NoConnectionLimit" // it is stored and has no effect
	ReasonNoTimeouts        = "NoTimeouts"        // they are stored and have no effect
	ReasonNoSourceRanges    = "NoSourceRanges"    // the provider ignores the client's address
	ReasonNoProxyProtocol   = "NoProxyProtocol"   // endpoints do not learn the client's address
	ReasonNoAlgorithm       = "NoAlgorithm"       // the provider has other algorithms
	ReasonNoAffinity        = "NoAffinity"        // each connection is balanced by itself
	ReasonAffinityUnsure    = "AffinityUnsure"    // it may have no effect
	ReasonNoAffinityTimeout = "NoAffinityTimeout" // affinity has another duration
	ReasonNoMonitor         = "NoMonitor"         // the provider has no health monitor of that type
	ReasonMonitorInError    = "MonitorInError"    // the cloud has the health monitor in ERROR
	ReasonOutOfReach        = "OutOfReach"        // endpoints are left out
	ReasonUnprotected       = "Unprotected"       // Kuryr's security groups miss endpoints
	ReasonOtherNamespace    = "OtherNamespace"    // endpoints never get the security group
	ReasonNotReached        = "NotReached"        // endpoints do not have the security group yet
	ReasonTooManyRules      = "TooManyRules"      // the security group has a part of the rules
)

// Everything is a provider that supports every feature.
func Everything() sdn.Features {
	return sdn.Features{
		Protocols: []string{"TCP", "UDP", "SCTP"}, Algorithms: []string{"ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"}, Affinity: true, AffinityTimeout: true, SourceRanges: true, Timeouts: true,
		ConnectionLimit: true, Monitors: []string{"TCP", "UDP-CONNECT", "SCTP", "HTTP"}, ProxyProtocol: true,
		KeepsClientAddress: true, ManyProtocols: true, FailOver: true, FarMembers: true,
	}
}

// Provider returns the provider whose features Want and Next should get. It is that of the
// spec, else that of an existing load balancer: a new default of the cloud must not have load
// balancers made anew. Empty is the cloud's default.
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

// Want returns the load balancers that a KuryrLoadBalancer asks for, one for each VIP, as far
// as a provider with these features can make them. It does not change the KuryrLoadBalancer,
// and the result shares nothing with it that is changed later.
func Want(klb *v1.KuryrLoadBalancer, f sdn.Features) ([]sdn.LoadBalancer, []Problem) {
	w := wanter{klb: klb, spec: &klb.Spec, f: f}
	w.can(!klb.Spec.KeepClientAddress || f.KeepsClientAddress, "spec.externalTrafficPolicy", ReasonHidesClients,
		"hides clients' addresses: endpoints see the load balancer's address instead. Choose another provider, or set the policy to Cluster")
	provider := klb.Spec.Provider
	if provider == "" && klb.Spec.FlavorID == "" && !f.Unsure { // a flavor implies its provider
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

// family returns the IP family of an address or a range.
func family(ip string) string {
	if strings.Contains(ip, ":") {
		return "ipv6"
	}
	return "ipv4"
}

// wanter collects the problems of one KuryrLoadBalancer, each once.
type wanter struct {
	klb      *v1.KuryrLoadBalancer
	spec     *v1.KuryrLoadBalancerSpec
	f        sdn.Features
	problems []Problem
}

// can returns whether the provider does something. If it does not, that is a problem.
func (w *wanter) can(does bool, field, reason, format string, args ...any) bool {
	if does {
		return true
	}
	p := Problem{field, reason, fmt.Sprintf("provider %s ", cmp.Or(w.f.Provider, w.spec.Provider)) + fmt.Sprintf(format, args...)}
	if !slices.Contains(w.problems, p) {
		w.problems = append(w.problems, p)
	}
	return false
}

func (w *wanter) listeners(vip v1.VIPAddress) (all []sdn.Listener) {
	ranges := w.sourceRanges(vip)
	ports := map[int32]bool{}
	for i := range w.spec.Listeners {
		s := &w.spec.Listeners[i]
		if w.can(slices.Contains(w.f.Protocols, s.Protocol), field(s, "protocol"), ReasonNoProtocol,
			"does not support %s: the port gets no listener. Choose another provider", s.Protocol) &&
			w.can(!ports[s.Port] || w.f.ManyProtocols, field(s, "port"), ReasonPortTaken,
				"supports one protocol for each port number: %s gets no listener. Choose another port number or another provider", s.Protocol) {
			ports[s.Port] = true
			all = append(all, w.listener(s, vip, ranges))
		}
	}
	return all
}

func field(s *v1.ListenerSpec, what string) string {
	return fmt.Sprintf("spec.ports[%s].%s", cmp.Or(s.Name, fmt.Sprint(s.Port)), what)
}

func (w *wanter) listener(s *v1.ListenerSpec, vip v1.VIPAddress, ranges []string) sdn.Listener {
	timed := s.TimeoutClientData != nil || s.TimeoutMemberData != nil || s.TimeoutMemberConnect != nil || s.TimeoutTCPInspect != nil
	w.can(s.ConnectionLimit == nil || w.f.ConnectionLimit, "connection limit", ReasonNoConnectionLimit,
		"does not limit connections: the limit is stored and has no effect. Remove the annotation, or choose another provider")
	w.can(!timed || w.f.Timeouts, "timeouts", ReasonNoTimeouts,
		"does not support timeouts: they are stored and have no effect. Choose another provider if you need them")
	name := fmt.Sprintf("%s/%s:%s:%d", w.klb.Namespace, w.klb.Name, s.Protocol, s.Port)
	pool := &sdn.Pool{Name: name, Protocol: s.Protocol, Algorithm: w.f.Algorithm, AffinitySeconds: w.affinity(s), Members: w.members(s, vip)}
	if s.ProxyProtocol != "" && w.can(w.f.ProxyProtocol && s.Protocol == "TCP", "PROXY protocol", ReasonNoProxyProtocol,
		"does not support it on port %d of %s: endpoints do not learn the client's address. Remove the annotation, or choose another provider", s.Port, s.Protocol) {
		pool.Protocol = s.ProxyProtocol
	}
	if s.Algorithm != "" && w.can(w.f.Balances(s.Algorithm), "algorithm", ReasonNoAlgorithm,
		"supports the algorithms %s, but not %s. Remove the annotation, or choose another provider", strings.Join(w.f.Algorithms, ", "), s.Algorithm) {
		pool.Algorithm = s.Algorithm
	}
	if s.Monitor != nil && w.can(slices.Contains(w.f.Monitors, s.Monitor.Type), "health monitor", ReasonNoMonitor,
		"has no health monitor of type %s: Octavia does not check the endpoints, only Kubernetes does. Remove the annotation, or choose another provider", s.Monitor.Type) {
		pool.Monitor = s.Monitor
	}
	return sdn.Listener{
		Name: name, Protocol: s.Protocol, Port: s.Port, SourceRanges: ranges, ConnectionLimit: s.ConnectionLimit,
		TimeoutClientData: s.TimeoutClientData, TimeoutMemberData: s.TimeoutMemberData,
		TimeoutMemberConnect: s.TimeoutMemberConnect, TimeoutTCPInspect: s.TimeoutTCPInspect, Pool: pool,
	}
}

// sourceRanges returns the source ranges of the VIP's family. If all ranges are of the other
// family, it returns a range that admits no client: a load balancer without ranges would admit
// all.
func (w *wanter) sourceRanges(vip v1.VIPAddress) []string {
	if len(w.spec.SourceRanges) == 0 || !w.f.SourceRanges && !limited(w.spec.SourceRanges, family(vip.IP)) {
		return nil
	}
	if !w.f.SourceRanges {
		w.cannotKeepRanges()
		return nil
	}
	var out []string
	for _, r := range w.spec.SourceRanges {
		if p, err := netip.ParsePrefix(r); err == nil && family(r) == family(vip.IP) {
			out = append(out, p.Masked().String())
		}
	}
	if len(out) == 0 {
		return []string{nowhere[family(vip.IP)]}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// brokenMonitors returns the problem of health monitors that check nothing, with their ports.
// OVN's provider of OpenStack Zed accepts a monitor, and has it in ERROR where the network of
// the members has no metadata port. Pool and load balancer stay ACTIVE.
func brokenMonitors(trees []sdn.LoadBalancer) []Problem {
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
	return []Problem{{"health monitor", ReasonMonitorInError, "is in ERROR in Octavia, for " + first(slices.Compact(ports)) +
		": Octavia does not check these endpoints, only Kubernetes does. Remove the annotation, or check the health monitor in Octavia. " +
		"Provider ovn needs a metadata port in the network of the endpoints (ovn_metadata_enabled in Neutron)"}}
}

// WithholdsFloatingIP reports whether a KuryrLoadBalancer gets no floating IP because the provider
// does not keep its source ranges: it must rather be closed than open. A floating IP is of the first
// VIP's family; ranges of the other family do not count.
func WithholdsFloatingIP(klb *v1.KuryrLoadBalancer, f sdn.Features) bool {
	return klb.Spec.PublicIP != nil && !f.SourceRanges && !Open(klb)
}

// cannotKeepRanges says what follows from source ranges that the provider does not keep, and suggests
// security groups, where they could keep them.
func (w *wanter) cannotKeepRanges() {
	follows, groups := "Every client with a route to the cluster IP can connect", ""
	if WithholdsFloatingIP(w.klb, w.f) {
		follows = "The Service gets no floating IP, as any client could use it; Kuryr keeps one that it had for it"
	}
	if w.f.KeepsClientAddress && !w.spec.SourceRangesAtMembers {
		groups = ", let security groups enforce them (services.sourceRangesBySecurityGroups in Kuryr's configuration)"
	}
	w.can(false, ranges, ReasonNoSourceRanges, "does not filter clients by address. %s. Choose another provider "+
		"(annotation openstack.org/kuryr-provider)%s, or remove the ranges", follows, groups)
}

// affinity returns for how many seconds a client stays with its endpoint; nil: each connection is
// balanced independently. 0 is for as long as the provider chooses.
func (w *wanter) affinity(s *v1.ListenerSpec) *int32 {
	switch {
	case s.AffinitySeconds == nil || !w.can(w.f.Affinity, "spec.sessionAffinity", ReasonNoAffinity,
		"does not support session affinity: it balances each connection independently. Choose another provider"):
		return nil
	case w.f.TimesAffinity(s.Protocol):
		return s.AffinitySeconds
	}
	w.can(!w.f.AffinityUnsure, "spec.sessionAffinity", ReasonAffinityUnsure, "may not keep session affinity: that of OpenStack Zed accepts it without effect, "+
		"that of 2025.1 for TCP. Each connection is balanced independently then. Choose another provider")
	w.can(*s.AffinitySeconds == corev1.DefaultClientIPServiceAffinitySeconds, "spec.sessionAffinityConfig", ReasonNoAffinityTimeout,
		"supports session affinity for %s, but not this timeout. Remove the field", s.Protocol)
	return new(int32)
}

// members returns the members of the VIP's family, each address and port once.
func (w *wanter) members(s *v1.ListenerSpec, vip v1.VIPAddress) []sdn.Member {
	var all []sdn.Member
	seen := map[memberKey]bool{}
	for _, m := range s.Members {
		if family(m.IP) != family(vip.IP) || seen[memberKey{m.IP, m.Port}] {
			continue
		}
		if w.can(m.SubnetID == "" || m.SubnetID == vip.SubnetID || w.f.FarMembers, "endpoints", ReasonOutOfReach,
			"reaches no endpoint outside the subnet of the cluster IP: %s is not a member. Choose another provider", m.IP) {
			seen[memberKey{m.IP, m.Port}] = true
			all = append(all, sdn.Member{Name: w.memberName(m), IP: m.IP, Port: m.Port, SubnetID: m.SubnetID})
		}
	}
	return all
}

// longestName is the length that Octavia allows a name.
const longestName = 255

func (w *wanter) memberName(m v1.MemberSpec) string {
	target := cmp.Or(m.Name, w.klb.Namespace+"/"+w.klb.Name)
	port := fmt.Sprintf(":%d", m.Port)
	return target[:min(len(target), longestName-len(port))] + port
}
