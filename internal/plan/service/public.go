// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// maxSources is what a KuryrLoadBalancer holds.
const maxSources = 512

// hostForm is what the API server takes as a host name in a status.
var hostForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)

// public plans the floating IP of a Service of type LoadBalancer.
func (p *planner) public() {
	if !p.external() {
		return
	}
	p.hostname()
	if p.yes(annotationInternal, true) {
		p.internal()
		return
	}
	if p.garbled() {
		return
	}
	if first, err := netip.ParseAddr(p.spec.VIPs[0].IP); err != nil || !first.Is4() {
		p.noFloating(first)
		return
	}
	address, _ := p.address()
	ip := v1.PublicIPSpec{Address: address, Keep: p.yes(annotationKeepFloatingIP, false)}
	ip.NetworkID, ip.SubnetID = p.floatingSource()
	if ip.NetworkID == "" || ip.NetworkID == p.Settings.ExternalNetworkID {
		ip.NetworkID = p.Settings.ExternalNetworkID
		if ip.SubnetID == "" {
			ip.SubnetID = p.Settings.ExternalSubnetID
		}
	}
	if ip.NetworkID == "" && !p.sameNetwork(&ip) {
		return
	}
	p.spec.PublicIP = &ip
}

// sameNetwork has a floating IP stay in its network if there is none for it any more:
// one that was given back is lost, and an edit of the configuration would give back
// those of all Services. It reports whether there is one to stay.
func (p *planner) sameNetwork(ip *v1.PublicIPSpec) bool {
	const cure = "set services.externalNetworkID in Kuryr's configuration or the annotation " + annotationFloatingNetwork + ", or write true into " + annotationInternal
	if p.Previous == nil || p.Previous.PublicIP == nil {
		p.warn(ReasonNoNetwork, "spec.type", "there is no network for a floating IP: %s", cure)
		return false
	}
	ip.NetworkID, ip.SubnetID = p.Previous.PublicIP.NetworkID, p.Previous.PublicIP.SubnetID
	p.warn(ReasonNoNetwork, "spec.type", "there is no network for a floating IP any more: the Service keeps what it has of network %s; %s", ip.NetworkID, cure)
	return true
}

// garbled reports whether it cannot be told what floating IP is meant, or the Service may
// not have it. Then it keeps what it has: one of another network than was meant might be
// open to whom it should not, and one that was given back is lost.
func (p *planner) garbled() bool {
	before := len(p.notes)
	p.floatingSource()
	_, ok := p.address()
	invalid := slices.ContainsFunc(p.notes[before:], func(n Note) bool { return n.Reason == ReasonInvalid || n.Reason == ReasonNotAllowed })
	if ok && !invalid {
		p.notes = p.notes[:before]
		return false
	}
	if p.Previous != nil && p.Previous.PublicIP != nil {
		p.spec.PublicIP = new(*p.Previous.PublicIP)
	}
	return true
}

// address returns the floating IP that the Service asks for; empty if any will
// do, and false if what it asks for is none.
func (p *planner) address() (string, bool) {
	at, wanted := "spec.loadBalancerIP", p.Service.Spec.LoadBalancerIP
	if other := p.text(annotationAddress); wanted == "" {
		at, wanted = field(annotationAddress), other
	} else if other != "" && other != wanted {
		p.warn(ReasonContradiction, field(annotationAddress), "spec.loadBalancerIP says %s, which counts: remove one of the two", clip(wanted))
	}
	if wanted == "" {
		return "", true
	}
	ip, err := ParseAddr(wanted)
	if err != nil || !ip.Is4() {
		p.warn(ReasonInvalid, at, "%q is no IPv4 address, as floating IPs are: correct it", clip(wanted))
		return "", false
	}
	return ip.String(), true
}

// internal notes what contradicts a Service that is to have no floating IP.
func (p *planner) internal() {
	for _, name := range []string{annotationFloatingNetwork, annotationFloatingSubnet, annotationKeepFloatingIP} {
		if p.text(name) != "" && p.text(name) != "false" {
			p.warn(ReasonContradiction, field(name), "an internal load balancer has no floating IP: remove it, or %s", annotationInternal)
		}
	}
	asked := map[string]string{"spec.loadBalancerIP": p.Service.Spec.LoadBalancerIP, field(annotationAddress): p.text(annotationAddress)}
	for at, ip := range asked {
		if ip != "" && !slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return v.IP == ip }) {
			p.warn(ReasonContradiction, at, "the address of an internal load balancer is the Service's cluster IP: remove it, or set spec.clusterIP when you make the Service")
		}
	}
}

// noFloating notes that there are no floating IPs of IPv6.
func (p *planner) noFloating(vip netip.Addr) {
	if routed(vip) {
		p.tell("spec.type", "there are no floating IPs of IPv6: the Service is reached at its cluster IP")
		return
	}
	p.warn(ReasonUnsupported, "spec.type", "there are no floating IPs of IPv6, and the cluster IP is no address that is reached from outside: add IPv4 to spec.ipFamilies, or have cluster IPs of a routed prefix")
}

// routed reports whether an address may be reached from outside without a
// floating IP.
func routed(ip netip.Addr) bool { return ip.Is6() && ip.IsGlobalUnicast() && !ip.IsPrivate() }

func isHost(name string) bool { return len(name) <= 253 && hostForm.MatchString(name) }

func (p *planner) hostname() {
	if name := p.text(annotationHostname); name != "" && !isHost(name) {
		p.warn(ReasonInvalid, field(annotationHostname), "%q is no host name: write one in lower case, as in www.example.com; the status shows addresses", clip(name))
	}
}

// sources plans where clients may be. Ranges are for who comes from outside: pods
// and nodes reach a cluster IP in any case, so their subnets are added. A range
// that makes no sense is left out: closed, not open.
func (p *planner) sources() {
	asked := p.ranges()
	if !p.external() || len(asked) == 0 {
		return
	}
	all := map[bool]bool{} // by whether it is of IPv4
	var ranges []netip.Prefix
	for _, r := range asked {
		prefix, err := parsePrefix(r)
		if err != nil || prefix.Addr().Is4In6() {
			p.warn(ReasonInvalid, "spec.loadBalancerSourceRanges", "%q is no range: write a prefix, as in 192.0.2.0/24; nobody is let in by it", clip(r))
			continue
		}
		all[prefix.Addr().Is4()] = all[prefix.Addr().Is4()] || prefix.Bits() == 0
		ranges = append(ranges, prefix.Masked())
	}
	if !slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return !all[!strings.Contains(v.IP, ":")] }) {
		return
	}
	p.limited = true
	p.allow(ranges)
}

// open reports whether a Service is for everybody: it is reached from outside, and no
// range keeps anybody out. Where groups keep ranges, the pods' own let nobody in from
// there.
func (p *planner) open() bool {
	if !p.external() || p.yes(annotationInternal, true) || p.limited {
		return false
	}
	return p.spec.PublicIP != nil || slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool {
		ip, err := netip.ParseAddr(v.IP)
		return err == nil && routed(ip)
	})
}

// ranges returns what the Service says: of the field and the annotation that came
// before it the field counts.
func (p *planner) ranges() []string {
	if ranges := p.Service.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
		return ranges
	}
	if value := p.text(annotationSourceRanges); value != "" {
		return strings.Split(value, ",")
	}
	return nil
}

// allow puts ranges and the cluster's own subnets into the spec, as few prefixes
// as say it, of the families that there are VIPs of.
func (p *planner) allow(ranges []netip.Prefix) {
	var own []netip.Prefix
	for _, s := range slices.Concat(p.Settings.Services, p.Settings.Members) {
		own = append(own, s.Prefix.Masked())
	}
	if lost := p.Settings.Lost; len(lost) > 0 {
		p.notShown("spec.loadBalancerSourceRanges", "who is in it is let in only by the ranges of the Service, and by those of before that an address of its load balancers in that subnet is in", lost...)
		own = append(own, p.heldRanges()...)
	}
	own, ranges = p.compact(own), p.compact(ranges)
	if most := max(0, maxSources-len(own)); len(ranges) > most {
		p.warn(ReasonUnsupported, "spec.loadBalancerSourceRanges", "there are more ranges than the %d that are taken: the last ones are left out, and nobody is let in by them; write larger ones", most)
		ranges = ranges[:most]
	}
	for _, r := range p.compact(slices.Concat(own, ranges)) {
		p.spec.SourceRanges = append(p.spec.SourceRanges, r.String())
	}
	slices.Sort(p.spec.SourceRanges)
}

// heldRanges returns the ranges of before that hold a VIP or a member in a subnet that
// the cloud does not show now. They are most likely those of the subnets, of which
// nothing else is known; others may be some that the Service does not ask for any more.
func (p *planner) heldRanges() []netip.Prefix {
	if p.Previous == nil {
		return nil
	}
	held := p.heldMembers()
	for _, v := range p.Previous.VIPs {
		if ip, err := netip.ParseAddr(v.IP); err == nil && slices.Contains(p.Settings.Lost, v.SubnetID) {
			held[ip] = v.SubnetID
		}
	}
	var ranges []netip.Prefix
	for _, text := range p.Previous.SourceRanges {
		r, err := netip.ParsePrefix(text)
		if err == nil && r.Bits() > 0 && slices.ContainsFunc(slices.Collect(maps.Keys(held)), r.Contains) {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// compact sorts prefixes, and drops those that are in others, or of a family that
// there is no VIP of.
func (p *planner) compact(all []netip.Prefix) []netip.Prefix {
	slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Compare(b) }) // a prefix comes before those in it
	var kept []netip.Prefix
	for _, r := range all {
		used := slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return sameFamily(v.IP, r.Addr()) })
		if n := len(kept); used && (n == 0 || !kept[n-1].Overlaps(r)) {
			kept = append(kept, r)
		}
	}
	return kept
}

// Ingress returns what status.loadBalancer.ingress of a Service is to be, given
// what is planned for it and what the cloud has of it. While that is not known,
// as after somebody has emptied the status, what is there and planned stays, and so
// does the address that the Service asks for until Kuryr serves it once: it may be taken
// over from who served the Service before. That of a Service that is Foreign is not ours to tell.
func Ingress(svc *corev1.Service, spec *v1.KuryrLoadBalancerSpec, status *v1.KuryrLoadBalancerStatus) []corev1.LoadBalancerIngress {
	p := &planner{Input: Input{Service: svc}}
	if !p.external() {
		return nil
	}
	ips := addresses(svc, spec, status, p.yes(annotationInternal, true))
	name := p.text(annotationHostname)
	if len(ips) > 0 && isHost(name) {
		return []corev1.LoadBalancerIngress{{Hostname: name}}
	}
	var ingress []corev1.LoadBalancerIngress
	for _, ip := range ips {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: ip, IPMode: new(corev1.LoadBalancerIPModeVIP)})
	}
	return ingress
}

// HasServed reports whether a load balancer has been as wanted, with its floating IP or
// none, since somebody has emptied its status.
func HasServed(status *v1.KuryrLoadBalancerStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c metav1.Condition) bool { return c.Type == v1.ConditionInSync })
}

// FloatingIPRefused is the reason of the condition Ready of a KuryrLoadBalancer whose
// floating IP the cloud refuses. One that is somebody else's as yet may be shown.
const FloatingIPRefused = "FloatingIPRefused"

func refused(status *v1.KuryrLoadBalancerStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1.ConditionReady && c.Status == metav1.ConditionFalse && c.Reason == FloatingIPRefused
	})
}

func addresses(svc *corev1.Service, spec *v1.KuryrLoadBalancerSpec, status *v1.KuryrLoadBalancerStatus, internal bool) []string {
	shown := func(ip string) bool {
		return slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool { return i.IP == ip })
	}
	up := func(ip string) bool {
		return slices.ContainsFunc(status.LoadBalancers, func(l v1.LoadBalancerStatus) bool { return l.IP == ip })
	}
	isVIP := func(ip string) bool {
		return slices.ContainsFunc(spec.VIPs, func(v v1.VIPAddress) bool { return v.IP == ip })
	}
	var ips []string
	switch {
	case spec.PublicIP == nil:
	case status.PublicIP != nil:
		ips = append(ips, status.PublicIP.IP)
	case len(status.LoadBalancers) > 0: // it is withheld, or somebody has taken it
		if ip := spec.PublicIP.Address; ip != "" && shown(ip) && !HasServed(status) && !refused(status) {
			ips = append(ips, ip)
		}
	default:
		for _, i := range svc.Status.LoadBalancer.Ingress {
			if i.IP != "" && !isVIP(i.IP) {
				ips = append(ips, i.IP)
			}
		}
	}
	for _, v := range spec.VIPs {
		ip, err := netip.ParseAddr(v.IP)
		if err == nil && (internal || routed(ip)) && (up(v.IP) || shown(v.IP)) {
			ips = append(ips, v.IP)
		}
	}
	return ips
}
