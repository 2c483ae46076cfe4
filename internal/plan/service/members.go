// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

const (
	// maxName is how long a member's name may be: longer than that of any pod, but
	// in an EndpointSlice that somebody has written there is no limit.
	maxName = 320
	// maxMembers is what a listener of a KuryrLoadBalancer holds.
	maxMembers = 5000
	// maxBytes bounds what the members of a KuryrLoadBalancer take in its spec
	// and its status: etcd refuses objects of more than 1.5 MiB.
	maxBytes = 1300 << 10
	// memberBytes is what a member takes in the JSON of spec and status beyond
	// name, address and subnet, which are in both: the names of the fields, the
	// ports, and two IDs.
	memberBytes = 190
)

const endpointsField = "endpoints"

// portKey tells the ports of a Service apart as EndpointSlices do.
type portKey struct {
	name     string
	protocol string
}

// endpoint is an endpoint of one port.
type endpoint struct {
	at     netip.AddrPort
	name   string
	subnet string

	ready       bool
	terminating bool // and still serving
}

// members puts the endpoints into the listeners.
func (p *planner) members() {
	p.elsewhere, p.denied = p.memberSubnet()
	p.held = p.heldMembers()
	found := p.endpoints()
	for i := range p.spec.Listeners {
		l := &p.spec.Listeners[i]
		for _, e := range used(found[portKey{l.Name, l.Protocol}]) {
			l.Members = append(l.Members, v1.MemberSpec{Name: e.name, IP: e.at.Addr().String(), Port: int32(e.at.Port()), SubnetID: e.subnet})
		}
	}
	p.bound()
}

// used returns the endpoints that traffic goes to, sorted. As kube-proxy does it:
// those that are ready, and if there is none in a family those that serve while
// they terminate, so that the last ones of a rollout are not cut off.
func used(all map[netip.AddrPort]endpoint) []endpoint {
	var ready, ending []endpoint
	families := map[int]bool{}
	for _, e := range all {
		if e.ready {
			ready = append(ready, e)
			families[e.at.Addr().BitLen()] = true
		} else if e.terminating {
			ending = append(ending, e)
		}
	}
	for _, e := range ending {
		if !families[e.at.Addr().BitLen()] {
			ready = append(ready, e)
		}
	}
	slices.SortFunc(ready, func(a, b endpoint) int { return a.at.Compare(b.at) })
	return ready
}

// endpoints returns the endpoints of each port, each address once.
func (p *planner) endpoints() map[portKey]map[netip.AddrPort]endpoint {
	found := map[portKey]map[netip.AddrPort]endpoint{}
	lost := lostEndpoints{}
	for _, slice := range p.Slices {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			p.warn(ReasonLeftOut, endpointsField, "load balancers take addresses, no names, as members: write EndpointSlices of addressType IPv4 or IPv6 in place of FQDN")
			continue
		}
		for i := range slice.Endpoints {
			p.endpoint(slice, &slice.Endpoints[i], found, &lost)
		}
	}
	p.noteLost(lost)
	if len(p.held) > 0 {
		p.notShown(endpointsField, "endpoints that were members in it stay, others wait", slices.Compact(slices.Sorted(maps.Values(p.held)))...)
	}
	return found
}

// lostEndpoints are the first, by their order, of endpoints that are left out, or
// would be if they were no members yet.
type lostEndpoints struct {
	nowhere, formerly, wrong, portless string
}

func first(of *string, candidate string) {
	if *of == "" || candidate < *of {
		*of = candidate
	}
}

// endpoint adds e for each port of its slice.
func (p *planner) endpoint(slice *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, found map[portKey]map[netip.AddrPort]endpoint, lost *lostEndpoints) {
	if len(e.Addresses) == 0 {
		return
	}
	ip, err := ParseAddr(e.Addresses[0]) // what others mean is said nowhere, and kube-proxy does not look at them
	if err != nil {
		first(&lost.wrong, clip(e.Addresses[0]))
		return
	}
	if !slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return sameFamily(v.IP, ip) }) {
		return
	}
	subnet := p.subnetOf(ip)
	if subnet == "" {
		if subnet = p.formerly(ip); subnet == "" {
			first(&lost.nowhere, ip.String())
			return
		}
		first(&lost.formerly, ip.String())
	}
	c := e.Conditions
	serving := isTrue(c.Serving, true)
	one := endpoint{
		name: p.nameOf(e), subnet: subnet,
		ready:       isTrue(c.Ready, true) || p.Service.Spec.PublishNotReadyAddresses,
		terminating: serving && isTrue(c.Terminating, false),
	}
	for _, port := range slice.Ports {
		if port.Port == nil || *port.Port < 1 || *port.Port > 65535 {
			first(&lost.portless, ip.String())
			continue
		}
		one.at = netip.AddrPortFrom(ip, uint16(*port.Port))
		key := portKey{deref(port.Name), string(cmp.Or(deref(port.Protocol), corev1.ProtocolTCP))}
		if found[key] == nil {
			found[key] = map[netip.AddrPort]endpoint{}
		}
		found[key][one.at] = merge(found[key][one.at], one)
	}
}

// merge makes one of what two slices say of an endpoint, which may be while an
// endpoint moves between them: whatever the order, the better counts.
func merge(a, b endpoint) endpoint {
	if a.subnet == "" {
		return b
	}
	a.ready, a.terminating = a.ready || b.ready, a.terminating || b.terminating
	a.name = min(a.name, b.name)
	return a
}

func (p *planner) noteLost(lost lostEndpoints) {
	if lost.wrong != "" {
		p.warn(ReasonLeftOut, endpointsField, "%q is no address: correct the Service's EndpointSlices", lost.wrong)
	}
	if lost.portless != "" {
		p.warn(ReasonLeftOut, endpointsField, "%s is in an EndpointSlice with a port without a number: write one", lost.portless)
	}
	const cure = "add its subnet to services.nodeSubnetIDs of Kuryr's configuration, or to services.allowed.memberSubnetIDs and its ID into the annotation " + annotationMemberSubnet
	if lost.nowhere != "" {
		p.warn(ReasonLeftOut, endpointsField, "%s is in no subnet that Kuryr knows: %s%s", lost.nowhere, cure, p.lost())
	}
	if lost.formerly != "" {
		p.warn(ReasonLeftOut, endpointsField, "%s is in no subnet that Kuryr knows any more: it stays a member, others would not become one; %s", lost.formerly, cure)
	}
}

// subnetOf returns the subnet by which an endpoint is reached; empty if that is
// not known.
func (p *planner) subnetOf(ip netip.Addr) string {
	return cmp.Or(p.Known[ip], p.held[ip], within(p.Settings.Members, ip), within(p.Settings.Services, ip), p.elsewhere)
}

// formerly returns the subnet of an address that is a member now, when nothing else
// is known of it: an edit of the configuration takes no members away, those of all
// Services at once; empty if it is none, or if the Service may not have members there.
func (p *planner) formerly(ip netip.Addr) string {
	if p.before == nil && p.Previous != nil {
		p.before = map[netip.Addr]string{}
		for _, l := range p.Previous.Listeners {
			for _, m := range l.Members {
				if ip, err := netip.ParseAddr(m.IP); err == nil && (p.denied == "" || m.SubnetID != p.denied) {
					p.before[ip] = m.SubnetID
				}
			}
		}
	}
	return p.before[ip]
}

// heldMembers returns the subnets of members that there are, as far as the cloud
// does not show these now: see subnetOfVIP.
func (p *planner) heldMembers() map[netip.Addr]string {
	if p.Previous == nil || len(p.Settings.Lost) == 0 {
		return nil
	}
	held := map[netip.Addr]string{}
	for _, l := range p.Previous.Listeners {
		for _, m := range l.Members {
			if ip, err := netip.ParseAddr(m.IP); err == nil && slices.Contains(p.Settings.Lost, m.SubnetID) {
				held[ip] = m.SubnetID
			}
		}
	}
	return held
}

// nameOf tells people what an endpoint is.
func (p *planner) nameOf(e *discoveryv1.Endpoint) string {
	ref := e.TargetRef
	if ref == nil || ref.Name == "" {
		return p.Service.Namespace + "/" + p.Service.Name
	}
	name := cmp.Or(ref.Namespace, p.Service.Namespace) + "/" + ref.Name
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
}

// bound leaves out what an object cannot hold, of each listener the endpoints
// that come last.
func (p *planner) bound() {
	bytes, most := 0, 0
	for _, l := range p.spec.Listeners {
		most = max(most, len(l.Members))
		bytes += size(l.Members)
	}
	if bytes <= maxBytes && most <= maxMembers {
		return
	}
	budget := maxBytes
	if bytes > maxBytes {
		budget = maxBytes / len(p.spec.Listeners)
	}
	for i := range p.spec.Listeners {
		l := &p.spec.Listeners[i]
		l.Members = l.Members[:fitting(l.Members, budget)]
	}
	p.warn(ReasonLeftOut, "spec.ports", "there are more endpoints than fit into a KuryrLoadBalancer, some thousands of all ports together: the last ones get no traffic; split the Service")
}

// fitting returns how many members fit into a budget.
func fitting(members []v1.MemberSpec, budget int) int {
	for i, m := range members {
		if budget -= size([]v1.MemberSpec{m}); budget < 0 || i == maxMembers {
			return i
		}
	}
	return len(members)
}

// size estimates what members take in the JSON of spec and status.
func size(members []v1.MemberSpec) int {
	n := 0
	for _, m := range members {
		n += memberBytes + 2*(len(m.Name)+len(m.IP)+len(m.SubnetID))
	}
	return n
}

func sameFamily(vip string, ip netip.Addr) bool { return bits(vip) == ip.BitLen() }

func isTrue(b *bool, fallback bool) bool {
	if b == nil {
		return fallback
	}
	return *b
}

func deref[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
