// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

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
	// followTime is how long the author of an EndpointSlice may take to follow a change of the Service.
	followTime = time.Minute
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

func (e *endpoint) member() v1.MemberSpec {
	return v1.MemberSpec{Name: e.name, IP: e.at.Addr().String(), Port: int32(e.at.Port()), SubnetID: e.subnet}
}

// members writes the endpoints into the listeners.
func (p *planner) members() {
	p.elsewhere, p.denied = p.memberSubnet()
	p.before = p.currentMembers()
	p.held = maps.Clone(p.before)
	maps.DeleteFunc(p.held, func(_ netip.Addr, subnet string) bool { return !slices.Contains(p.Settings.Lost, subnet) })
	found := p.endpoints()
	for i := range p.spec.Listeners {
		l := &p.spec.Listeners[i]
		for _, e := range used(found[keyOf(l)]) {
			l.Members = append(l.Members, e.member())
		}
	}
	p.bound()
}

func keyOf(l *v1.ListenerSpec) portKey { return portKey{l.Name, l.Protocol} }

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

// endpoints returns the endpoints of each port of the Service, each address once.
func (p *planner) endpoints() map[portKey]map[netip.AddrPort]endpoint {
	found := map[portKey]map[netip.AddrPort]endpoint{}
	for i := range p.spec.Listeners {
		found[keyOf(&p.spec.Listeners[i])] = map[netip.AddrPort]endpoint{}
	}
	lost := lostEndpoints{}
	for _, slice := range p.Slices {
		if _, headless := slice.Labels[labelHeadless]; headless {
			continue // as kube-proxy does
		}
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			p.warn(ReasonLeftOut, endpointsField, "members of load balancers need addresses, not host names: use EndpointSlices of addressType IPv4 or IPv6 instead of FQDN")
			continue
		}
		for i := range slice.Endpoints {
			p.endpoint(slice, &slice.Endpoints[i], found, lost)
		}
	}
	p.noteLost(lost)
	if len(p.held) > 0 {
		p.notShown(endpointsField, "endpoints there that are members stay, and others wait", slices.Compact(slices.Sorted(maps.Values(p.held)))...)
	}
	return found
}

// Texts of notes about endpoints that are not members.
const (
	leftWrong    = "%q is no IP address: correct the Service's EndpointSlices"
	leftPortless = "%s is in an EndpointSlice with a port that has no number: add the number"
	leftUnnamed  = "EndpointSlice %s: its endpoints get no traffic at the port that it lacks. Give its ports the names and protocols of the Service's ports, in the Endpoints if it mirrors these"
	leftForeign  = "%s is a pod in another project: make a Service in the pod's namespace, or have the administrator add the pod's subnet to services.allowed.memberSubnetIDs of Kuryr's configuration"
	leftNowhere  = "%s is in no subnet that Kuryr knows: " + knowSubnet
	leftFormerly = "%s is no longer in a subnet that Kuryr knows: it stays a member, but no other endpoint there becomes one; " + knowSubnet
	knowSubnet   = "add its subnet to services.nodeSubnetIDs of Kuryr's configuration, or to services.allowed.memberSubnetIDs and its ID into the annotation " + annotationMemberSubnet
)

// lostEndpoints has, by the text of the note, the first endpoint or EndpointSlice in sort order.
type lostEndpoints map[string]string

func (l lostEndpoints) add(text, candidate string) {
	if first, is := l[text]; !is || candidate < first {
		l[text] = candidate
	}
}

// endpoint adds e for each port of its slice.
func (p *planner) endpoint(slice *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, found map[portKey]map[netip.AddrPort]endpoint, lost lostEndpoints) {
	if len(e.Addresses) == 0 {
		return
	}
	// The meaning of further addresses is not specified, and kube-proxy ignores them.
	ip, err := ParseAddr(e.Addresses[0])
	if err != nil {
		lost.add(leftWrong, clip(e.Addresses[0]))
		return
	}
	if !slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return sameFamily(v.IP, ip) }) {
		return
	}
	if p.foreign(ip) {
		lost.add(leftForeign, ip.String())
		return
	}
	subnet := p.subnetOf(ip)
	// An edit of the configuration is not to remove current members, least of all those of all Services
	// at once, unless the Service may not have members in that subnet.
	if subnet == "" {
		if subnet = p.before[ip]; subnet == "" || subnet == p.denied {
			lost.add(leftNowhere, ip.String())
			return
		}
		lost.add(leftFormerly, ip.String())
	}
	c := e.Conditions
	serving := or(c.Serving, true)
	one := endpoint{
		name: p.nameOf(e), subnet: subnet,
		ready:       or(c.Ready, true) || p.Service.Spec.PublishNotReadyAddresses,
		terminating: serving && or(c.Terminating, false),
	}
	matched, others := 0, []string{}
	for _, port := range slice.Ports {
		if port.Port == nil || *port.Port < 1 || *port.Port > 65535 {
			lost.add(leftPortless, ip.String())
			continue
		}
		one.at = netip.AddrPortFrom(ip, uint16(*port.Port))
		key := portKey{or(port.Name, ""), string(cmp.Or(or(port.Protocol, ""), corev1.ProtocolTCP))}
		if into := found[key]; into != nil {
			into[one.at] = merge(into[one.at], one)
			matched++
		} else if !p.keep(slice, key.protocol, one, found) {
			others = append(others, fmt.Sprintf("%q (%s)", key.name, key.protocol))
		}
	}
	// An EndpointSlice may have ports for other purposes, and need not have all of the Service's.
	if matched < len(p.spec.Listeners) && (len(others) > 0 || len(slice.Ports) == 0) && !p.selected(slice) {
		lost.add(leftUnnamed, fmt.Sprintf("%s lacks a port of the Service, and has %s", slice.Name, cmp.Or(some(others), "none")))
	}
}

// keep adds an endpoint, at a port that the Service does not have, to the ports that it is a member of
// already: Service and EndpointSlice change one after the other if a port gets another name. It reports
// whether there is such a port.
func (p *planner) keep(slice *discoveryv1.EndpointSlice, protocol string, e endpoint, found map[portKey]map[netip.AddrPort]endpoint) (kept bool) {
	for _, l := range p.previous().Listeners {
		i := slices.IndexFunc(p.spec.Listeners, func(now v1.ListenerSpec) bool { return now.Port == l.Port && now.Protocol == l.Protocol })
		if i >= 0 && l.Protocol == protocol && p.follows(slice) && slices.Contains(l.Members, e.member()) {
			into := found[keyOf(&p.spec.Listeners[i])]
			into[e.at], kept = merge(into[e.at], e), true
		}
	}
	return kept
}

// follows reports whether an EndpointSlice is about to get the Service's ports. Kubernetes' controller
// gives it no others. Of another author that is assumed for a while after a change of the Service.
func (p *planner) follows(slice *discoveryv1.EndpointSlice) bool {
	if p.selected(slice) {
		return true
	}
	for _, f := range p.Service.ManagedFields {
		if f.Subresource == "" && f.Time != nil {
			p.again = max(p.again, f.Time.Add(followTime).Sub(p.Now))
		}
	}
	return p.again > 0
}

// selected reports whether Kubernetes' controller makes an EndpointSlice of what the Service selects.
func (p *planner) selected(slice *discoveryv1.EndpointSlice) bool {
	return len(p.Service.Spec.Selector) > 0 && slice.Labels[discoveryv1.LabelManagedBy] == "endpointslice-controller.k8s.io"
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
	for text, first := range lost {
		if text == leftNowhere {
			text += strings.ReplaceAll(p.lost(), "%", "%%")
		}
		p.warn(ReasonLeftOut, endpointsField, text, first)
	}
}

// subnetOf returns the subnet through which an endpoint is reached; empty if that is not known.
func (p *planner) subnetOf(ip netip.Addr) string {
	return cmp.Or(p.Known[ip], p.Namespace.Foreign[ip], p.held[ip], within(p.Settings.Members, ip), within(p.Settings.Services, ip), p.elsewhere)
}

// currentMembers returns the subnets of current members.
func (p *planner) currentMembers() map[netip.Addr]string {
	before := map[netip.Addr]string{}
	for _, l := range p.previous().Listeners {
		for _, m := range l.Members {
			if ip, err := netip.ParseAddr(m.IP); err == nil {
				before[ip] = m.SubnetID
			}
		}
	}
	return before
}

// previous returns the previous spec; an empty one if there is none.
func (p *planner) previous() *v1.KuryrLoadBalancerSpec {
	return cmp.Or(p.Previous, &v1.KuryrLoadBalancerSpec{})
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
	bytes, cut := 0, false
	for _, l := range p.spec.Listeners {
		for i := range l.Members {
			bytes += size(&l.Members[i])
		}
	}
	budget := maxBytes
	if bytes > maxBytes {
		budget = maxBytes / len(p.spec.Listeners)
	}
	for i := range p.spec.Listeners {
		l := &p.spec.Listeners[i]
		if n := fitting(l.Members, budget); n < len(l.Members) {
			l.Members, cut = l.Members[:n], true
		}
	}
	if cut {
		p.warn(ReasonLeftOut, "spec.ports", "there are more endpoints than fit into a KuryrLoadBalancer (some thousands over all ports): the last ones get no traffic. Split the Service")
	}
}

// fitting returns how many members fit into a budget.
func fitting(members []v1.MemberSpec, budget int) int {
	for i := range members {
		if budget -= size(&members[i]); budget < 0 || i == maxMembers {
			return i
		}
	}
	return len(members)
}

// size estimates the size of a member in the JSON of spec and status.
func size(m *v1.MemberSpec) int { return memberBytes + 2*(len(m.Name)+len(m.IP)+len(m.SubnetID)) }

func sameFamily(vip string, ip netip.Addr) bool { return bits(vip) == ip.BitLen() }

// or returns what p points to, or otherwise.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
