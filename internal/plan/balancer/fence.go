// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Fenced reports whether a security group on the ports of the members is to keep the
// source ranges of a KuryrLoadBalancer, or to let everybody in: where it says so, the
// provider does not keep them, and members see the client's address.
func Fenced(klb *v1.KuryrLoadBalancer, f sdn.Features) bool {
	return klb.Spec.SourceRangesAtMembers && !f.Unsure && !f.SourceRanges && f.KeepsClientAddress
}

// Open reports whether there is nobody whom a security group is to keep out of the floating
// IP, which is of the first VIP's family: it opens ports that are closed otherwise, and
// whom it does not reach yet is closed to clients, and no reason to have no floating IP.
func Open(klb *v1.KuryrLoadBalancer) bool {
	return len(klb.Spec.VIPs) == 0 || !limited(klb.Spec.SourceRanges, family(klb.Spec.VIPs[0].IP))
}

// Unfenced is klb without its source ranges, which a security group keeps: the rest of
// it is for the load balancers. klb is not changed.
func Unfenced(klb *v1.KuryrLoadBalancer) *v1.KuryrLoadBalancer {
	rest := *klb
	rest.Spec.SourceRanges = nil
	return &rest
}

// mostRules is what a security group gets: ten times Neutron's usual quota, and a minute
// or two to make them.
const mostRules = 1000

// FenceRules returns what the security group of a KuryrLoadBalancer lets in: its source
// ranges, or everybody, at the ports of its members, sorted, each once, as many as a
// group gets.
func FenceRules(klb *v1.KuryrLoadBalancer) []sdn.Rule {
	all := fenceRules(klb)
	return all[:min(len(all), mostRules)]
}

// TooManyRules says that a group gets less than is wanted; false if it does not.
func TooManyRules(klb *v1.KuryrLoadBalancer) (Problem, bool) {
	all := fenceRules(klb)
	if len(all) <= mostRules {
		return Problem{}, false
	}
	next := all[mostRules]
	return Problem{ranges, fmt.Sprintf("%d rules of a security group are needed, and it gets the first %d: from %s at port %d of the endpoints on, "+
		"clients are kept out. Take fewer or larger ranges, or fewer ports", len(all), mostRules, next.Remote, next.From)}, true
}

func fenceRules(klb *v1.KuryrLoadBalancer) []sdn.Rule {
	var rules []sdn.Rule
	from := klb.Spec.SourceRanges
	if len(from) == 0 {
		from = everybody(klb)
	}
	seen := map[sdn.Rule]bool{}
	for i := range klb.Spec.Listeners {
		l := &klb.Spec.Listeners[i]
		for _, m := range l.Members {
			at := sdn.Rule{Protocol: l.Protocol, From: m.Port, To: m.Port}
			if seen[at] {
				continue
			}
			seen[at] = true
			for _, r := range from {
				at.Remote = r
				rules = append(rules, at)
			}
		}
	}
	slices.SortFunc(rules, func(a, b sdn.Rule) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.From, b.From), cmp.Compare(a.Remote, b.Remote))
	})
	return rules
}

// everybody is the ranges that hold all addresses of the VIPs' families.
func everybody(klb *v1.KuryrLoadBalancer) []string {
	var all []string
	for _, v := range klb.Spec.VIPs {
		r := "0.0.0.0/0"
		if strings.Contains(v.IP, ":") {
			r = "::/0"
		}
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// Fence is how far a security group keeps the source ranges.
type Fence struct {
	Bare      []string // addresses of members at which no port of Kuryr's filters: the group keeps nobody out there
	Behind    []string // addresses of members whose port does not have the group yet
	Foreign   []string // addresses of members that are pods of other namespaces: these never get it
	Guarded   bool     // there is a member that has it
	Reached   bool     // there is a port that is to have the group
	ProjectID string   // of the first, as the group's is to be
}

// typePaired is how a port is plugged that is an address pair of its machine's.
const typePaired = "macvlan"

// Surround returns how far group keeps the source ranges, given the KuryrPorts at an
// address. A port without the group is closed: its other groups let in nobody from
// outside. Of one that is not Kuryr's nobody knows that, nor of one that is a pair of
// its machine's: that one's groups decide.
//
// The ports of pods in other namespaces never get the group: who may write
// EndpointSlices in one is not to open pods of another.
func Surround(klb *v1.KuryrLoadBalancer, group string, at func(ip string) []*v1.KuryrPort) Fence {
	var f Fence
	seen := map[v1.Address]bool{}
	for i := range klb.Spec.Listeners {
		for _, m := range klb.Spec.Listeners[i].Members {
			key := v1.Address{IP: m.IP, SubnetID: m.SubnetID}
			if !seen[key] {
				seen[key] = true
				f.add(klb, group, m, at(m.IP))
			}
		}
	}
	slices.Sort(f.Bare)
	slices.Sort(f.Behind)
	slices.Sort(f.Foreign)
	return f
}

func (f *Fence) add(klb *v1.KuryrLoadBalancer, group string, m v1.MemberSpec, ports []*v1.KuryrPort) {
	bare, has, foreign := true, false, false
	for _, p := range ports {
		if !holds(p, m) || p.Spec.VIF.Type == typePaired {
			continue
		}
		bare = false
		if p.Spec.PodRef == nil {
			continue
		}
		if foreign = p.Spec.PodRef.Namespace != klb.Namespace; foreign {
			continue
		}
		f.Reached, f.ProjectID = true, cmp.Or(f.ProjectID, p.Spec.ProjectID)
		has = has || group != "" && slices.Contains(p.Status.AppliedSecurityGroupIDs, group)
	}
	switch {
	case bare:
		f.Bare = append(f.Bare, m.IP)
	case has:
		f.Guarded = true
	case foreign:
		f.Foreign = append(f.Foreign, m.IP)
	default:
		f.Behind = append(f.Behind, m.IP)
	}
}

// holds reports whether a member's address is a port's.
func holds(p *v1.KuryrPort, m v1.MemberSpec) bool {
	return slices.ContainsFunc(p.Spec.VIF.Addresses, func(a v1.Address) bool {
		return a.IP == m.IP && strings.EqualFold(a.SubnetID, m.SubnetID)
	})
}

// Grants reports whether a port is to have the security group of a KuryrLoadBalancer.
func Grants(klb *v1.KuryrLoadBalancer, port *v1.KuryrPort) bool {
	return Granted(klb) != "" && Reaches(klb, port)
}

// Reaches reports whether a port is a member's that a security group of a
// KuryrLoadBalancer is for, should it have one.
func Reaches(klb *v1.KuryrLoadBalancer, port *v1.KuryrPort) bool {
	ref := port.Spec.PodRef
	if ref == nil || ref.Namespace != klb.Namespace || port.Spec.VIF.Type == typePaired {
		return false
	}
	return slices.ContainsFunc(klb.Spec.Listeners, func(l v1.ListenerSpec) bool {
		return slices.ContainsFunc(l.Members, func(m v1.MemberSpec) bool { return holds(port, m) })
	})
}

// Granted returns the security group that a KuryrLoadBalancer gives its members; empty
// if none. One that goes gives none any more, so that the group can go, too.
func Granted(klb *v1.KuryrLoadBalancer) string {
	if !Grantor(klb) {
		return ""
	}
	return klb.Status.SecurityGroupID
}

// Grantor reports whether a KuryrLoadBalancer may give its members a security group.
func Grantor(klb *v1.KuryrLoadBalancer) bool {
	return klb.Spec.SourceRangesAtMembers && klb.DeletionTimestamp.IsZero()
}

// Members returns the addresses of all members, sorted, each once.
func Members(klb *v1.KuryrLoadBalancer) []string {
	var ips []string
	for i := range klb.Spec.Listeners {
		for _, m := range klb.Spec.Listeners[i].Members {
			ips = append(ips, m.IP)
		}
	}
	slices.Sort(ips)
	return slices.Compact(ips)
}

// ranges is where a Service says what fences are about.
const ranges = "spec.loadBalancerSourceRanges"

// OfBare says that there are members that nobody can be kept out of.
func OfBare(ips []string) Problem {
	return Problem{ranges, fmt.Sprintf("no security group of Kuryr's keeps anybody from endpoints on the host's network, or that are no pods, or with vifType macvlan: "+
		"%s. So the Service gets no floating IP, which all could use. Take these endpoints away, or choose another provider "+
		"(annotation openstack.org/kuryr-provider)", first(ips))}
}

// OfForeign says that there are members that never get the group.
func OfForeign(ips []string) Problem {
	return Problem{ranges, fmt.Sprintf("endpoints that are pods of other namespaces do not get the Service's security group, and are closed to clients outside: %s. "+
		"Take them away, or have a Service in their namespace", first(ips))}
}

// StuckWords are in what OfStuck says, and in nothing else; stuckBefore and stuckAfter
// are right before and after the addresses there.
const (
	StuckWords  = "have been without its security group"
	stuckBefore = "and are closed to clients outside: "
	stuckAfter  = ". Look at"
)

// OfStuck says that there are members that should have had the group for long.
func OfStuck(group string, ips []string) Problem {
	return Problem{ranges, fmt.Sprintf("endpoints %s (%s) for more than a minute, %s%s%s "+
		"the conditions of their KuryrPorts, and at the groups of these: a port has 64 at most", StuckWords, group, stuckBefore, first(ips), stuckAfter)}
}

// StuckIn returns the addresses that OfStuck has named in a text, which may say other
// things, too.
func StuckIn(text string) []string {
	_, text, _ = strings.Cut(text, StuckWords)
	_, text, _ = strings.Cut(text, stuckBefore)
	text, _, _ = strings.Cut(text, stuckAfter)
	var ips []string
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		if _, err := netip.ParseAddr(word); err == nil {
			ips = append(ips, word)
		}
	}
	return ips
}

// first names the first of many.
func first(all []string) string {
	const most = 4
	if len(all) > most {
		return fmt.Sprintf("%s and %d others", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}
