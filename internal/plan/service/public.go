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

// maxSources is how many source ranges a KuryrLoadBalancer holds.
const maxSources = 512

// hostForm matches host names that the API server accepts in a status.
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
	before := len(p.notes)
	ip, ok := p.requestedIP()
	if !ok {
		// It keeps the floating IP that it has. One of another network might admit clients that should
		// be excluded, and a released one is lost.
		if p.previous().PublicIP != nil {
			p.spec.PublicIP = new(*p.Previous.PublicIP)
		}
		return
	}
	if first, err := netip.ParseAddr(p.spec.VIPs[0].IP); err != nil || !first.Is4() {
		p.notes = p.notes[:before]
		p.noFloating(first)
		return
	}
	ip.Keep = p.yes(annotationKeepFloatingIP, false)
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

// sameNetwork keeps the floating IP in its network if no network for it is configured any more. A
// released floating IP is lost, and an edit of the configuration would release those of all
// Services. It reports whether the Service has a floating IP to keep.
func (p *planner) sameNetwork(ip *v1.PublicIPSpec) bool {
	const cure = "set services.externalNetworkID in Kuryr's configuration or the annotation " + annotationFloatingNetwork + ", or set " + annotationInternal + " to true"
	if p.Previous == nil || p.Previous.PublicIP == nil {
		p.warn(ReasonNoNetwork, "spec.type", "there is no network for a floating IP: %s", cure)
		return false
	}
	ip.NetworkID, ip.SubnetID = p.Previous.PublicIP.NetworkID, p.Previous.PublicIP.SubnetID
	p.warn(ReasonNoNetwork, "spec.type", "there is no network for a floating IP any more: the Service keeps its floating IP of network %s; %s", ip.NetworkID, cure)
	return true
}

// requestedIP returns the floating IP that the Service requests. It returns false if the request is
// unclear or not allowed.
func (p *planner) requestedIP() (ip v1.PublicIPSpec, ok bool) {
	before := len(p.notes)
	ip.NetworkID, ip.SubnetID = p.floatingSource()
	ip.Address, ok = p.address()
	return ip, ok && !slices.ContainsFunc(p.notes[before:], func(n Note) bool { return n.Reason == ReasonInvalid || n.Reason == ReasonNotAllowed })
}

// address returns the floating IP that the Service requests. It returns an empty string if any will
// do, and false if the requested address is invalid.
func (p *planner) address() (string, bool) {
	at, wanted := "spec.loadBalancerIP", p.Service.Spec.LoadBalancerIP
	if other := p.text(annotationAddress); wanted == "" {
		at, wanted = field(annotationAddress), other
	} else if other != "" && other != wanted {
		p.warn(ReasonContradiction, field(annotationAddress), "spec.loadBalancerIP says %s and takes precedence: remove one of the two", clip(wanted))
	}
	if wanted == "" {
		return "", true
	}
	ip, err := ParseAddr(wanted)
	if err != nil || !ip.Is4() {
		p.warn(ReasonInvalid, at, "%q is no IPv4 address, and floating IPs have no others: correct it", clip(wanted))
		return "", false
	}
	return ip.String(), true
}

// internal notes values that contradict a Service without a floating IP.
func (p *planner) internal() {
	for _, name := range []string{annotationFloatingNetwork, annotationFloatingSubnet, annotationKeepFloatingIP} {
		if p.text(name) != "" && p.text(name) != "false" {
			p.warn(ReasonContradiction, field(name), "an internal load balancer has no floating IP: remove this annotation, or %s", annotationInternal)
		}
	}
	asked := map[string]string{"spec.loadBalancerIP": p.Service.Spec.LoadBalancerIP, field(annotationAddress): p.text(annotationAddress)}
	for at, ip := range asked {
		if ip != "" && !slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return v.IP == ip }) {
			p.warn(ReasonContradiction, at, "the address of an internal load balancer is the Service's cluster IP: remove this, or set spec.clusterIP when you create the Service")
		}
	}
}

// noFloating notes that IPv6 has no floating IPs.
func (p *planner) noFloating(vip netip.Addr) {
	if routed(vip) {
		p.tell("spec.type", "OpenStack has no IPv6 floating IPs: clients use the Service's cluster IP")
		return
	}
	p.warn(ReasonUnsupported, "spec.type", "OpenStack has no IPv6 floating IPs, and clients outside cannot reach the cluster IP: add IPv4 to spec.ipFamilies, or use cluster IPs of a routed prefix")
}

// routed reports whether an address may be reachable from outside without a floating IP.
func routed(ip netip.Addr) bool { return ip.Is6() && ip.IsGlobalUnicast() && !ip.IsPrivate() }

func isHost(name string) bool { return len(name) <= 253 && hostForm.MatchString(name) }

func (p *planner) hostname() {
	if name := p.text(annotationHostname); name != "" && !isHost(name) {
		p.warn(ReasonInvalid, field(annotationHostname), "%q is no host name, so the status shows addresses: write a name in lower case, as in www.example.com", clip(name))
	}
}

// sources plans the allowed source ranges. The Service's ranges are about clients from outside.
// Pods and nodes must always reach a cluster IP, so their subnets are added. An invalid range is
// omitted, which excludes clients instead of admitting them.
func (p *planner) sources() {
	asked := p.ranges()
	if !p.external() || len(asked) == 0 {
		return
	}
	all := map[bool]bool{} // by whether the family is IPv4
	var ranges []netip.Prefix
	for _, r := range asked {
		prefix, err := parsePrefix(r)
		if err != nil || prefix.Addr().Is4In6() {
			p.warn(ReasonInvalid, "spec.loadBalancerSourceRanges", "%q is no range, and admits no client: write a prefix, as in 192.0.2.0/24", clip(r))
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

// open reports whether a Service admits every client: it is reachable from outside, and no range
// excludes a client. Where security groups enforce ranges, the pods' own groups do not admit
// clients from outside.
func (p *planner) open() bool {
	if !p.external() || p.yes(annotationInternal, true) || p.limited {
		return false
	}
	return p.spec.PublicIP != nil || slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool {
		ip, err := netip.ParseAddr(v.IP)
		return err == nil && routed(ip)
	})
}

// ranges returns the source ranges of the Service. The field counts before the older annotation.
func (p *planner) ranges() []string {
	if ranges := p.Service.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
		return ranges
	}
	if value := p.text(annotationSourceRanges); value != "" {
		return strings.Split(value, ",")
	}
	return nil
}

// allow writes ranges and the cluster's own subnets into the spec, as the fewest prefixes. It
// writes only the families of the VIPs.
func (p *planner) allow(ranges []netip.Prefix) {
	var own []netip.Prefix
	for _, s := range slices.Concat(p.Settings.Services, p.Settings.Members) {
		own = append(own, s.Prefix.Masked())
	}
	own = append(own, p.Settings.PodRanges...)
	if lost := p.Settings.Lost; len(lost) > 0 {
		p.notShown("spec.loadBalancerSourceRanges", "Kuryr does not know its addresses, so the Service admits a client in it only if a range of the Service contains the client, or an earlier range that contains a cluster IP or an endpoint in it", lost...)
		own = append(own, p.heldRanges()...)
	}
	own, ranges = p.compact(own), p.compact(ranges)
	if most := max(0, maxSources-len(own)); len(ranges) > most {
		p.warn(ReasonUnsupported, "spec.loadBalancerSourceRanges", "there are more than %d ranges: the last ones are ignored and admit no client. Use larger ranges", most)
		ranges = ranges[:most]
	}
	for _, r := range p.compact(slices.Concat(own, ranges)) {
		p.spec.SourceRanges = append(p.spec.SourceRanges, r.String())
	}
	slices.Sort(p.spec.SourceRanges)
}

// heldRanges returns the previous ranges that contain a VIP or a member in a subnet that the cloud
// does not show now. Most likely they are the ranges of these subnets, of which nothing else is
// known. Some may be ranges that the Service does not request any more.
func (p *planner) heldRanges() []netip.Prefix {
	held := p.held
	for _, v := range p.previous().VIPs {
		if ip, err := netip.ParseAddr(v.IP); err == nil && slices.Contains(p.Settings.Lost, v.SubnetID) {
			held[ip] = v.SubnetID
		}
	}
	var ranges []netip.Prefix
	for _, text := range p.previous().SourceRanges {
		r, err := netip.ParsePrefix(text)
		if err == nil && r.Bits() > 0 && slices.ContainsFunc(slices.Collect(maps.Keys(held)), r.Contains) {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// compact sorts prefixes. It drops those that another prefix contains, and those of a family
// without a VIP.
func (p *planner) compact(all []netip.Prefix) []netip.Prefix {
	// A prefix precedes the prefixes in it.
	slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Compare(b) })
	var kept []netip.Prefix
	for _, r := range all {
		used := slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return sameFamily(v.IP, r.Addr()) })
		if n := len(kept); used && (n == 0 || !kept[n-1].Overlaps(r)) {
			kept = append(kept, r)
		}
	}
	return kept
}

// Ingress returns the status.loadBalancer.ingress of a Service, given its plan and the status of
// its KuryrLoadBalancer.
//
// After somebody has emptied that status, planned addresses that the Service shows stay. The
// address that the Service requests also stays until Kuryr has served it once: Kuryr may take it
// over from another controller. The ingress of a Foreign Service is not Kuryr's: Ingress returns
// none.
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
	mode := corev1.LoadBalancerIPModeVIP
	if slices.ContainsFunc(spec.Listeners, func(l v1.ListenerSpec) bool { return l.ProxyProtocol != "" }) {
		// A service proxy may connect to the endpoints of a VIP itself, without the PROXY header that they expect.
		mode = corev1.LoadBalancerIPModeProxy
	}
	var ingress []corev1.LoadBalancerIngress
	for _, ip := range ips {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: ip, IPMode: new(mode)})
	}
	return ingress
}

// HasServed reports whether a load balancer has been complete, with its floating IP if it has one,
// since somebody last emptied its status.
func HasServed(status *v1.KuryrLoadBalancerStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c metav1.Condition) bool { return c.Type == v1.ConditionInSync })
}

// Refused reports whether the cloud refuses the floating IP of a load balancer. Otherwise the
// Service may show a floating IP that still belongs to another user.
func Refused(status *v1.KuryrLoadBalancerStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1.ConditionReady && c.Status == metav1.ConditionFalse && c.Reason == v1.ReasonFloatingIPRefused
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
	case len(status.LoadBalancers) > 0: // the floating IP is withheld or taken away
		if ip := spec.PublicIP.Address; ip != "" && shown(ip) && !HasServed(status) && !Refused(status) {
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
