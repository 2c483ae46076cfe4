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
	// maxName is the longest name of a member. It is longer than the name of any pod. Names in an
	// EndpointSlice that a user has written have no limit.
	maxName = 320
	// maxMembers is how many members a listener of a KuryrLoadBalancer holds.
	maxMembers = 5000
	// maxBytes limits the size of a KuryrLoadBalancer's members in its spec and its status: etcd
	// rejects objects of more than 1.5 MiB.
	maxBytes = 1300 << 10
	// memberBytes is the size of a member in the JSON of spec and status. It counts the names of
	// the fields, the ports, and two IDs. It does not count the name, the address and the subnet,
	// which are in both.
	memberBytes = 190
)

const endpointsField = "endpoints"

// portKey identifies a port of a Service as EndpointSlices do.
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

// members writes the endpoints into the listeners.
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

// used returns the endpoints that get traffic, sorted. Like kube-proxy it takes the ready ones. If
// a family has none, it takes those that still serve while they terminate. So a rollout does not
// cut off its last endpoints.
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
			p.warn(ReasonLeftOut, endpointsField, "members of load balancers need addresses, not host names: use EndpointSlices of addressType IPv4 or IPv6 instead of FQDN")
			continue
		}
		for i := range slice.Endpoints {
			p.endpoint(slice, &slice.Endpoints[i], found, &lost)
		}
	}
	p.noteLost(lost)
	if len(p.held) > 0 {
		p.notShown(endpointsField, "endpoints there that are members stay, and others wait", slices.Compact(slices.Sorted(maps.Values(p.held)))...)
	}
	return found
}

// lostEndpoints has, of each kind, the first endpoint in sort order that is not a member. formerly
// is an endpoint that stays a member only because it is one already.
type lostEndpoints struct {
	nowhere, formerly, foreign, wrong, portless string
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
	// The meaning of further addresses is not specified, and kube-proxy ignores them.
	ip, err := ParseAddr(e.Addresses[0])
	if err != nil {
		first(&lost.wrong, clip(e.Addresses[0]))
		return
	}
	if !slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return sameFamily(v.IP, ip) }) {
		return
	}
	if p.foreign(ip) {
		first(&lost.foreign, ip.String())
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

// merge combines what two slices say of one endpoint: an endpoint may move between slices. The
// better state counts, whatever the order.
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
		p.warn(ReasonLeftOut, endpointsField, "%q is no IP address: correct the Service's EndpointSlices", lost.wrong)
	}
	if lost.portless != "" {
		p.warn(ReasonLeftOut, endpointsField, "%s is in an EndpointSlice with a port that has no number: add the number", lost.portless)
	}
	if lost.foreign != "" {
		p.warn(ReasonLeftOut, endpointsField, "%s is a pod in another project: make a Service in the pod's namespace, or have the administrator add the pod's subnet to services.allowed.memberSubnetIDs of Kuryr's configuration", lost.foreign)
	}
	const cure = "add its subnet to services.nodeSubnetIDs of Kuryr's configuration, or to services.allowed.memberSubnetIDs and its ID into the annotation " + annotationMemberSubnet
	if lost.nowhere != "" {
		p.warn(ReasonLeftOut, endpointsField, "%s is in no subnet that Kuryr knows: %s%s", lost.nowhere, cure, p.lost())
	}
	if lost.formerly != "" {
		p.warn(ReasonLeftOut, endpointsField, "%s is no longer in a subnet that Kuryr knows: it stays a member, but no other endpoint there becomes one; %s", lost.formerly, cure)
	}
}

// subnetOf returns the subnet through which an endpoint is reached; empty if that is not known.
func (p *planner) subnetOf(ip netip.Addr) string {
	return cmp.Or(p.Known[ip], p.Namespace.Foreign[ip], p.held[ip], within(p.Settings.Members, ip), within(p.Settings.Services, ip), p.elsewhere)
}

// formerly returns the subnet of a current member whose subnet is not known otherwise. An edit of
// the configuration is not to remove members, least of all those of all Services at once. It
// returns an empty string if the address is no member, or if the Service may not have members in
// that subnet.
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

// heldMembers returns the subnets of current members, if the cloud does not show these subnets now.
// See subnetOfVIP.
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

// nameOf returns the name of a member, by which people recognise the endpoint.
func (p *planner) nameOf(e *discoveryv1.Endpoint) string {
	ref := e.TargetRef
	if ref == nil || ref.Name == "" {
		return p.Service.Namespace + "/" + p.Service.Name
	}
	name := cmp.Or(ref.Namespace, p.Service.Namespace) + "/" + ref.Name
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
}

// bound omits endpoints that do not fit into the object: the last ones of each listener.
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
	p.warn(ReasonLeftOut, "spec.ports", "there are more endpoints than fit into a KuryrLoadBalancer (some thousands over all ports): the last ones get no traffic. Split the Service")
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

// size estimates the size of members in the JSON of spec and status.
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
