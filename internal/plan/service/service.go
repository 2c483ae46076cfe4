// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package service plans the load balancers of a Service. It turns the Service, its EndpointSlices
// and the configuration into the spec of a KuryrLoadBalancer. It also returns notes for the author
// of the Service: about misspelled, contradictory or impossible requests.
//
// Package service knows neither the abilities of a provider nor the resources of the cloud. Those
// concern the package that applies the spec.
package service

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// LoadBalancerClass is the class of Services that Kuryr makes public. It also makes Services
// without a class public. Services of other classes are left to other controllers.
const LoadBalancerClass = "openstack.org/kuryr"

// Labels by which a Service says that it is not for a service proxy such as Kuryr. An EndpointSlice says it by the second.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = "service.kubernetes.io/headless"
)

// Input is all that a plan depends on. Plan does not change it.
type Input struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice // all of the Service, in any order
	// Known has the subnets of addresses that are ports of pods. If two ports in separate networks
	// have the same address, the one of a pod of the Service's namespace counts.
	Known map[netip.Addr]string
	// Previous is the spec of the Service's KuryrLoadBalancer; nil: the Service has none.
	Previous *v1.KuryrLoadBalancerSpec
	// Made reports that the KuryrLoadBalancer has a load balancer or a floating IP in the cloud.
	Made      bool
	Namespace Namespace
	// Rivals are other Services that share a claim with this one. It may have further Services.
	Rivals   []*corev1.Service
	Settings Settings
	Now      time.Time
}

// Settings is the configuration of load balancers.
type Settings struct {
	ProjectID string    // of namespaces that have none of their own
	Projects  []Project // that namespaces may have instead
	Provider  string
	FlavorID  string

	Services []Subnet // subnets of cluster IPs
	Members  []Subnet // subnets of endpoints: of pods and of nodes
	Lost     []string // IDs of subnets of the configuration that the cloud does not show
	// PodRanges are the ranges that the prefixes of namespaces' own networks are chosen from.
	PodRanges []netip.Prefix

	ExternalNetworkID string // of floating IPs
	ExternalSubnetID  string

	Allowed Allowed

	// SourceRangesAtMembers requests security groups on the members' ports where the provider does
	// not enforce source ranges.
	SourceRangesAtMembers bool
}

// Allowed is what annotations may name besides the values of Settings.
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

// Verdict says what is to happen to the load balancers of a Service.
type Verdict string

// The verdicts.
const (
	Realise Verdict = "Realise" // they are to match the spec
	Keep    Verdict = "Keep"    // existing ones stay as they are: nothing can be planned now
	Remove  Verdict = "Remove"  // the Service is to have none
)

// Outcome is the result of a plan.
type Outcome struct {
	Verdict Verdict
	Spec    v1.KuryrLoadBalancerSpec // set for Realise
	Notes   []Note                   // sorted, without duplicates
	Again   time.Duration            // when time changes the plan; 0: never
}

// planner collects an Outcome.
type planner struct {
	Input
	spec  v1.KuryrLoadBalancerSpec
	notes []Note

	limited   bool                  // source ranges exclude some clients
	elsewhere string                // subnet that the Service names for endpoints that are in no known subnet
	denied    string                // subnet that the Service names for endpoints, without permission
	before    map[netip.Addr]string // subnets of the current members
	held      map[netip.Addr]string // those that the cloud does not show; see subnetOfVIP
	again     time.Duration         // see Outcome.Again
}

// Plan returns the load balancers that the Service is to have. The same input gives the same
// outcome, whatever the order of slices and endpoints.
//
// Plan plans nothing before the Service has an EndpointSlice. A Service with a selector does not
// wait long for one. A Service that had load balancers and has no EndpointSlice any more keeps
// them, without members.
func Plan(in Input) Outcome {
	p := &planner{Input: in}
	p.settle()
	verdict := p.verdict()
	if verdict == Realise {
		p.plan()
	}
	slices.SortFunc(p.notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Text, b.Text))
	})
	return Outcome{Verdict: verdict, Spec: p.spec, Notes: slices.Compact(p.notes), Again: p.again}
}

// verdict returns the verdict, and plans the VIPs.
func (p *planner) verdict() Verdict {
	switch svc := p.Service; {
	case !Wanted(svc):
		return Remove
	case len(p.Settings.Services)+len(p.Settings.Lost) == 0:
		return Keep
	case p.blocked(), !p.vips(), len(p.Slices) == 0 && p.Previous == nil:
		return Keep
	}
	return Realise
}

// Wanted reports whether a Service is to have load balancers at all. Headless Services, those of
// type ExternalName, and those that name another proxy have none. The same holds for Services with
// a label that excludes Kuryr.
//
// Wanted depends on the Service alone. So the controller, the daemon and a user get the same
// answer.
func Wanted(svc *corev1.Service) bool {
	if value, alone := svc.Labels[v1.LeaveAloneLabel]; alone && value != "false" {
		return false
	}
	_, proxy := svc.Labels[labelProxyName]
	_, headless := svc.Labels[labelHeadless]
	return svc.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ClusterIP != corev1.ClusterIPNone && !proxy && !headless
}

// Foreign reports whether another controller makes a Service of type LoadBalancer public. Then
// status.loadBalancer, and the fields and annotations about its public side, belong to that
// controller. Kuryr still serves its cluster IP, which no other program serves.
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

// vips writes the cluster IPs into the spec, IPv4 first. It reports whether there is at least one.
func (p *planner) vips() bool {
	for _, text := range clusterIPs(p.Service) {
		ip, err := ParseAddr(text)
		if err != nil {
			p.warn(ReasonAddress, "spec.clusterIPs", "%q is no IP address: create the Service again", clip(text))
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

// subnetOfVIP returns the subnet of a cluster IP; empty if the cluster IP is in none. An existing
// VIP keeps its subnet if the cloud does not show the subnet: Kuryr may have lost a permission. It
// also keeps a subnet that the configuration does not name any more. Neither is to stop all
// Services at once.
func (p *planner) subnetOfVIP(ip netip.Addr) string {
	before := ""
	for _, v := range p.previous().VIPs {
		if v.IP == ip.String() {
			before = v.SubnetID
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
		p.warn(ReasonAddress, "spec.clusterIPs", "%s is no longer in any of services.subnetIDs of Kuryr's configuration. Its load balancer stays. Add its subnet %s there again, or create the Service again", ip, before)
		return before
	}
	p.warn(ReasonAddress, "spec.clusterIPs", "%s is in none of services.subnetIDs of Kuryr's configuration: add its subnet there, or create the Service again with an address in one of them%s", ip, p.lost())
	return ""
}

// notShown notes what happens to addresses in subnets that the cloud does not show.
func (p *planner) notShown(field, effect string, subnets ...string) {
	p.warn(ReasonSubnet, field, "the cloud shows no subnet %s, which is in Kuryr's configuration: %s. Correct the configuration, or let Kuryr's credential see the subnet", some(subnets), effect)
}

// some names the first few of many IDs.
func some(ids []string) string {
	const most = 4
	if len(ids) > most {
		return strings.Join(ids[:most], ", ") + " and others"
	}
	return strings.Join(ids, ", ")
}

// bits returns the address length, which identifies the family.
func bits(ip string) int {
	addr, _ := netip.ParseAddr(ip) // an invalid address has no family
	return addr.BitLen()
}

// lost ends a note whose cause may be a subnet that the cloud does not show.
func (p *planner) lost() string {
	if len(p.Settings.Lost) == 0 {
		return ""
	}
	return "; the cloud shows no subnet " + some(p.Settings.Lost) + ", which is in Kuryr's configuration"
}

// clusterIPs returns the cluster IPs of a Service; none if it has none yet.
func clusterIPs(svc *corev1.Service) []string {
	if len(svc.Spec.ClusterIPs) > 0 {
		return svc.Spec.ClusterIPs
	}
	if svc.Spec.ClusterIP != "" {
		return []string{svc.Spec.ClusterIP}
	}
	return nil
}

// ClusterIPs returns the cluster IPs of a Service, one of each IP family at most.
func ClusterIPs(svc *corev1.Service) (all []netip.Addr) {
	for _, text := range clusterIPs(svc) {
		if ip, err := ParseAddr(text); err == nil {
			all = append(all, ip)
		}
	}
	return all
}

// within returns the ID of the smallest subnet that contains ip; empty if none does.
func within(subnets []Subnet, ip netip.Addr) string {
	id, bits := "", -1
	for _, s := range subnets {
		if s.Prefix.Contains(ip) && s.Prefix.Bits() > bits {
			id, bits = s.ID, s.Prefix.Bits()
		}
	}
	return id
}

// external reports whether Kuryr makes the Service public.
func (p *planner) external() bool {
	return p.Service.Spec.Type == corev1.ServiceTypeLoadBalancer && !Foreign(p.Service)
}
