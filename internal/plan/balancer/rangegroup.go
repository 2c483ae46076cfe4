// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// NeedsRangeGroup reports whether a security group on the ports of the members has to keep the
// source ranges, or to admit every client. That is so if the KuryrLoadBalancer asks for it, the
// provider does not keep the ranges, and members see the client's address.
func NeedsRangeGroup(klb *v1.KuryrLoadBalancer, f sdn.Features) bool {
	return klb.Spec.SourceRangesAtMembers && !f.Unsure && !f.SourceRanges && f.KeepsClientAddress
}

// Open reports whether the source ranges admit every client of the floating IP, which is of the
// first VIP's family. The security group keeps no client out then: it only opens ports that are
// closed otherwise. A member that lacks it is closed, which withholds no floating IP.
func Open(klb *v1.KuryrLoadBalancer) bool {
	return len(klb.Spec.VIPs) == 0 || !limited(klb.Spec.SourceRanges, family(klb.Spec.VIPs[0].IP))
}

// WithoutRanges returns klb without its source ranges, which a security group keeps. The rest
// is for the load balancers. klb is not changed.
func WithoutRanges(klb *v1.KuryrLoadBalancer) *v1.KuryrLoadBalancer {
	rest := *klb
	rest.Spec.SourceRanges = nil
	return &rest
}

// mostRules is the most rules of a security group: ten times Neutron's usual quota. To create
// them takes a minute or two.
const mostRules = 1000

// RangeGroupRules returns the rules of the security group of a KuryrLoadBalancer. They admit
// its source ranges, or every client, at the ports of its members. They are sorted and unique,
// and at most mostRules.
func RangeGroupRules(klb *v1.KuryrLoadBalancer) []sdn.Rule {
	all := rangeGroupRules(klb)
	return all[:min(len(all), mostRules)]
}

// TooManyRules returns the problem of a group that needs more than mostRules rules; false if it
// does not.
func TooManyRules(klb *v1.KuryrLoadBalancer) (Problem, bool) {
	all := rangeGroupRules(klb)
	if len(all) <= mostRules {
		return Problem{}, false
	}
	next := all[mostRules]
	return Problem{ranges, ReasonTooManyRules, fmt.Sprintf("the source ranges need %d rules of a security group, which gets only the first %d. From range %s at endpoint port %d on, "+
		"clients cannot connect. Use fewer or larger ranges, or fewer ports", len(all), mostRules, next.Remote, next.From)}, true
}

func rangeGroupRules(klb *v1.KuryrLoadBalancer) []sdn.Rule {
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

// everybody returns the ranges that hold all addresses of the VIPs' families.
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

// Coverage says which members a security group protects.
type Coverage struct {
	Unprotected    []string // addresses of members without a filtering port of Kuryr
	Pending        []string // addresses of members whose port does not have the group yet
	OtherNamespace []string // addresses of pods of other namespaces: they never get the group
	Guarded        bool     // a member has the group
	Reached        bool     // a port is to have the group
	ProjectID      string   // the project of the first such port, and so of the group
}

// typePaired is the VIF type of a port that is an address pair of its machine's port.
const typePaired = "macvlan"

// Covered returns which members have group, given the KuryrPorts at an address. A port without
// the group is closed: its other groups admit no client from outside. That is known only of
// Kuryr's ports with a pod's own interface: the groups of a machine's port decide for its
// address pairs.
//
// The ports of pods in other namespaces never get the group. The author of an EndpointSlice
// must not open pods of another namespace.
func Covered(klb *v1.KuryrLoadBalancer, group string, at func(ip string) []*v1.KuryrPort) Coverage {
	var f Coverage
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
	slices.Sort(f.Unprotected)
	slices.Sort(f.Pending)
	slices.Sort(f.OtherNamespace)
	return f
}

func (f *Coverage) add(klb *v1.KuryrLoadBalancer, group string, m v1.MemberSpec, ports []*v1.KuryrPort) {
	unprotected, has, otherNamespace := true, false, false
	for _, p := range ports {
		if !holds(p, m) || p.Spec.VIF.Type == typePaired {
			continue
		}
		unprotected = false
		if p.Spec.PodRef == nil {
			continue
		}
		if otherNamespace = p.Spec.PodRef.Namespace != klb.Namespace; otherNamespace {
			continue
		}
		f.Reached, f.ProjectID = true, cmp.Or(f.ProjectID, p.Spec.ProjectID)
		has = has || group != "" && slices.Contains(p.Status.AppliedSecurityGroupIDs, group)
	}
	switch {
	case unprotected:
		f.Unprotected = append(f.Unprotected, m.IP)
	case has:
		f.Guarded = true
	case otherNamespace:
		f.OtherNamespace = append(f.OtherNamespace, m.IP)
	default:
		f.Pending = append(f.Pending, m.IP)
	}
}

// holds reports whether a port has a member's address.
func holds(p *v1.KuryrPort, m v1.MemberSpec) bool {
	return slices.ContainsFunc(p.Spec.VIF.Addresses, func(a v1.Address) bool {
		return a.IP == m.IP && strings.EqualFold(a.SubnetID, m.SubnetID)
	})
}

// Reaches reports whether a port belongs to a member that would get the security group of a
// KuryrLoadBalancer, should it have one.
func Reaches(klb *v1.KuryrLoadBalancer, port *v1.KuryrPort) bool {
	ref := port.Spec.PodRef
	if ref == nil || ref.Namespace != klb.Namespace || port.Spec.VIF.Type == typePaired {
		return false
	}
	return slices.ContainsFunc(klb.Spec.Listeners, func(l v1.ListenerSpec) bool {
		return slices.ContainsFunc(l.Members, func(m v1.MemberSpec) bool { return holds(port, m) })
	})
}

// Granted returns the security group that a KuryrLoadBalancer gives its members; empty if none.
// One that is being deleted gives none any more, so that the group can be deleted, too.
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

// ranges is the field of a Service that has its source ranges.
const ranges = "spec.loadBalancerSourceRanges"

// OfUnprotected is the problem of members that no security group protects.
func OfUnprotected(ips []string) Problem {
	return Problem{ranges, ReasonUnprotected, fmt.Sprintf("Kuryr's security groups do not protect endpoints on the host network, endpoints that are not pods, and pods with vifType macvlan: "+
		"%s. The Service gets no floating IP, as any client could use it. Remove these endpoints, or choose another provider "+
		"(annotation openstack.org/kuryr-provider)", first(ips))}
}

// OfOtherNamespace is the problem of members that never get the group.
func OfOtherNamespace(ips []string) Problem {
	return Problem{ranges, ReasonOtherNamespace, fmt.Sprintf("endpoints that are pods of other namespaces do not get the Service's security group, and clients outside cannot reach them: %s. "+
		"Remove them, or create a Service in their namespace", first(ips))}
}

// OfNotReached is the problem of members that have lacked the group for long.
func OfNotReached(group string, ips []string) Problem {
	return Problem{ranges, ReasonNotReached, fmt.Sprintf("endpoints have lacked the Service's security group (%s) for more than a minute, and clients outside cannot reach them: %s. "+
		"Check the conditions of their KuryrPorts, and the security groups there: a port can have 64 at most", group, first(ips))}
}

// first names the first of many, and counts the others.
func first(all []string) string {
	const most = 4
	if len(all) > most {
		return fmt.Sprintf("%s and %d others", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}
