// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package service plans what load balancers a Service is to have: from the
// Service, its EndpointSlices and the configuration to the spec of a
// KuryrLoadBalancer, and to what its author should know, as what is misspelled,
// contradicts itself or cannot be had. It knows neither what a provider can do
// nor what the cloud has: that is for who applies the spec.
package service

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// LoadBalancerClass is the class of Services that Kuryr makes public besides those
// of none. That of others is somebody else's task.
const LoadBalancerClass = "openstack.org/kuryr"

// Labels by which a Service says that it is not for a proxy as Kuryr is one.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = "service.kubernetes.io/headless"
)

// Input is all that a plan depends on. Nothing of it is changed.
type Input struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice // all of the Service, in any order
	// Known tells the subnets of addresses that are pods' ports.
	Known map[netip.Addr]string
	// Previous is the spec of the Service's KuryrLoadBalancer; nil: it has none.
	Previous *v1.KuryrLoadBalancerSpec
	// Rivals are other Services that have claims of this one, too, and maybe more.
	Rivals   []*corev1.Service
	Settings Settings
}

// Settings is what the configuration says of load balancers.
type Settings struct {
	ProjectID string
	Provider  string
	FlavorID  string

	Services []Subnet // that hold cluster IPs
	Members  []Subnet // that endpoints may be in: of pods and of nodes
	Lost     []string // IDs of subnets of the configuration that the cloud does not show

	ExternalNetworkID string // of floating IPs
	ExternalSubnetID  string

	Allowed Allowed

	SourceRangesAtMembers bool // where the provider does not keep source ranges, groups on the members' ports do

	TimeoutClientData int64 // milliseconds; 0: Octavia's default
	TimeoutMemberData int64
}

// Allowed is what annotations may name besides what Settings name themselves.
type Allowed struct {
	MemberSubnetIDs    []string // of endpoints
	ExternalNetworkIDs []string // of floating IPs
	ExternalSubnetIDs  []string
	Providers          []string
	FlavorIDs          []string
}

// Subnet is a subnet of the cloud.
type Subnet struct {
	ID     string
	Prefix netip.Prefix
}

// Verdict says what is to become of the load balancers of a Service.
type Verdict string

// Verdicts.
const (
	Realise Verdict = "Realise" // they are to be as the spec says
	Keep    Verdict = "Keep"    // they stay as they are, if there are any: nothing can be planned now
	Remove  Verdict = "Remove"  // there are to be none
)

// Outcome is a plan.
type Outcome struct {
	Verdict Verdict
	Spec    v1.KuryrLoadBalancerSpec // of Realise
	Notes   []Note                   // sorted, each once
}

// planner collects an Outcome.
type planner struct {
	Input
	spec  v1.KuryrLoadBalancerSpec
	notes []Note

	limited   bool   // not everybody may come in
	elsewhere string // subnet of endpoints of which nothing else is known
	denied    string // subnet of endpoints that the Service names and may not
	held      map[netip.Addr]string
	before    map[netip.Addr]string // subnets of members that there are; see formerly
}

// Plan returns what load balancers the Service is to have. Like input, like
// outcome: whatever the order of slices and endpoints.
//
// Nothing is planned before the Service has an EndpointSlice, for which one
// with a selector does not wait long; without any that a realised Service had,
// it keeps its load balancers, without members.
func Plan(in Input) Outcome {
	p := &planner{Input: in}
	verdict := p.verdict()
	if verdict == Realise {
		p.plan()
	}
	slices.SortFunc(p.notes, compareNotes)
	return Outcome{Verdict: verdict, Spec: p.spec, Notes: slices.Compact(p.notes)}
}

// verdict decides, and plans the VIPs on the way.
func (p *planner) verdict() Verdict {
	switch svc := p.Service; {
	case !Wanted(svc):
		return Remove
	case len(p.Settings.Services)+len(p.Settings.Lost) == 0:
		return Keep
	case !p.vips(), len(p.Slices) == 0 && p.Previous == nil:
		return Keep
	}
	return Realise
}

// Wanted reports whether a Service is to have load balancers at all: not a
// headless one, ExternalName, or one that says that it is for another proxy, or
// not for Kuryr. It depends on the Service alone, so that whoever asks, controller,
// daemon or user, gets the same answer.
func Wanted(svc *corev1.Service) bool {
	if value, alone := svc.Labels[v1.LeaveAloneLabel]; alone && value != "false" {
		return false
	}
	_, proxy := svc.Labels[labelProxyName]
	_, headless := svc.Labels[labelHeadless]
	return svc.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ClusterIP != corev1.ClusterIPNone && !proxy && !headless
}

// Foreign reports whether a Service of type LoadBalancer is made public by somebody
// else: then status.loadBalancer and what it says of its public side are theirs. Its
// cluster IP is as that of others, which nobody else serves.
func Foreign(svc *corev1.Service) bool {
	class := svc.Spec.LoadBalancerClass
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && class != nil && *class != LoadBalancerClass
}

func (p *planner) plan() {
	s := p.Settings
	p.spec.ProjectID, p.spec.Provider, p.spec.FlavorID = s.ProjectID, s.Provider, s.FlavorID
	p.spelling()
	p.placement()
	p.listeners()
	p.public()
	p.sources()
	p.spec.SourceRangesAtMembers = s.SourceRangesAtMembers && (len(p.spec.SourceRanges) > 0 || p.open())
	p.unsupported()
	p.rivals()
}

// vips puts the cluster IPs into the spec, IPv4 first. It reports whether there
// is one.
func (p *planner) vips() bool {
	for _, text := range clusterIPs(p.Service) {
		ip, err := ParseAddr(text)
		if err != nil {
			p.warn(ReasonAddress, "spec.clusterIPs", "%q is no address: make the Service anew", clip(text))
			continue
		}
		if subnet := p.subnetOfVIP(ip); subnet != "" {
			p.spec.VIPs = append(p.spec.VIPs, v1.VIPAddress{IP: ip.String(), SubnetID: subnet})
		}
	}
	slices.SortStableFunc(p.spec.VIPs, func(a, b v1.VIPAddress) int { return cmp.Compare(bits(a.IP), bits(b.IP)) })
	p.spec.VIPs = slices.CompactFunc(p.spec.VIPs, func(a, b v1.VIPAddress) bool { return bits(a.IP) == bits(b.IP) })
	return len(p.spec.VIPs) > 0
}

// subnetOfVIP returns the subnet of a cluster IP; empty if there is none. A VIP that
// there is stays where it is if its subnet cannot be seen, which may be a permission
// that somebody has taken away, and if it is in the configuration no more: neither
// takes away what serves, of all Services at once.
func (p *planner) subnetOfVIP(ip netip.Addr) string {
	before := ""
	if p.Previous != nil {
		for _, v := range p.Previous.VIPs {
			if v.IP == ip.String() {
				before = v.SubnetID
			}
		}
	}
	now := within(p.Settings.Services, ip)
	switch {
	case before != "" && slices.Contains(p.Settings.Lost, before):
		p.notShown("spec.clusterIPs", "the load balancer at "+ip.String()+" stays as it is", before)
		return before
	case now != "":
		return now
	case before != "":
		p.warn(ReasonAddress, "spec.clusterIPs", "%s is in none of services.subnetIDs of Kuryr's configuration any more: its load balancer stays; write its subnet %s there again, or make the Service anew", ip, before)
		return before
	}
	p.warn(ReasonAddress, "spec.clusterIPs", "%s is in none of services.subnetIDs of Kuryr's configuration: add its subnet there, or make the Service anew with an address of them%s", ip, p.lost())
	return ""
}

// notShown notes what becomes of what is in subnets that the cloud does not show.
func (p *planner) notShown(field, effect string, subnets ...string) {
	p.warn(ReasonSubnet, field, "the cloud shows no subnet %s, which is in the configuration: %s; correct the configuration, or what Kuryr's credential may see", some(subnets), effect)
}

// some names the first of many IDs.
func some(ids []string) string {
	const most = 4
	if len(ids) > most {
		return strings.Join(ids[:most], ", ") + " and others"
	}
	return strings.Join(ids, ", ")
}

// bits tells the family of an address.
func bits(ip string) int {
	addr, _ := netip.ParseAddr(ip) // what is none has no family
	return addr.BitLen()
}

// lost ends a note that may be so because a subnet cannot be seen.
func (p *planner) lost() string {
	if len(p.Settings.Lost) == 0 {
		return ""
	}
	return "; the cloud shows no subnet " + some(p.Settings.Lost) + ", which is in the configuration"
}

// clusterIPs returns the cluster IPs of a Service; none as long as it has none.
func clusterIPs(svc *corev1.Service) []string {
	if len(svc.Spec.ClusterIPs) > 0 {
		return svc.Spec.ClusterIPs
	}
	if svc.Spec.ClusterIP != "" {
		return []string{svc.Spec.ClusterIP}
	}
	return nil
}

// within returns the ID of the smallest subnet that holds ip; empty if none does.
func within(subnets []Subnet, ip netip.Addr) string {
	id, bits := "", -1
	for _, s := range subnets {
		if s.Prefix.Contains(ip) && s.Prefix.Bits() > bits {
			id, bits = s.ID, s.Prefix.Bits()
		}
	}
	return id
}

// external reports whether the Service is made public by Kuryr.
func (p *planner) external() bool {
	return p.Service.Spec.Type == corev1.ServiceTypeLoadBalancer && !Foreign(p.Service)
}
