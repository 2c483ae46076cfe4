// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Coverage says which members a security group protects.
type Coverage struct {
	Lacks          map[string]Lack // by address, of members that lack something
	OtherNamespace []string        // addresses of pods of other namespaces, sorted: they never get the group
	Guarded        bool            // a member has the group
	Reached        bool            // a port is to have the group
	ProjectID      string          // the project of the first such port, and so of the group
}

// Lack is what a member lacks of the protection by a security group.
type Lack int

// Zero is a member that lacks nothing.
const (
	LacksGroup Lack = iota + 1 // its port does not have the group yet
	LacksPort                  // it has no filtering port of Kuryr
)

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
	f := Coverage{Lacks: map[string]Lack{}}
	for _, m := range members(klb) {
		lacks, has, otherNamespace := LacksPort, false, false
		for _, p := range at(m.IP) {
			if !holds(p, m) {
				continue
			}
			lacks = LacksGroup
			own := ofNamespace(p, klb)
			if otherNamespace = !own && (otherNamespace || p.Spec.PodRef != nil); own {
				f.Reached, f.ProjectID = true, cmp.Or(f.ProjectID, p.Spec.ProjectID)
				has = has || group != "" && slices.Contains(p.Status.AppliedSecurityGroupIDs, group)
			}
		}
		switch {
		case has:
			f.Guarded = true
		case otherNamespace:
			f.OtherNamespace = append(f.OtherNamespace, m.IP)
		default:
			f.Lacks[m.IP] = max(f.Lacks[m.IP], lacks)
		}
	}
	return f
}

// members returns the members of all ports, sorted, each address once.
func members(klb *v1.KuryrLoadBalancer) (all []v1.MemberSpec) {
	for i := range klb.Spec.Listeners {
		all = append(all, klb.Spec.Listeners[i].Members...)
	}
	compare := func(a, b v1.MemberSpec) int {
		return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.SubnetID, b.SubnetID))
	}
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(a, b v1.MemberSpec) bool { return compare(a, b) == 0 })
}

// holds reports whether a port that filters has a member's address.
func holds(p *v1.KuryrPort, m v1.MemberSpec) bool {
	return p.Spec.VIF.Type != typePaired && slices.ContainsFunc(p.Spec.VIF.Addresses, func(a v1.Address) bool {
		return a.IP == m.IP && strings.EqualFold(a.SubnetID, m.SubnetID)
	})
}

func ofNamespace(p *v1.KuryrPort, klb *v1.KuryrLoadBalancer) bool {
	return p.Spec.PodRef != nil && p.Spec.PodRef.Namespace == klb.Namespace
}

// Reaches reports whether a port belongs to a member that would get the security group of a
// KuryrLoadBalancer, should it have one.
func Reaches(klb *v1.KuryrLoadBalancer, port *v1.KuryrPort) bool {
	return ofNamespace(port, klb) && slices.ContainsFunc(klb.Spec.Listeners, func(l v1.ListenerSpec) bool {
		return slices.ContainsFunc(l.Members, func(m v1.MemberSpec) bool { return holds(port, m) })
	})
}

// MemberGroup returns the security group that a KuryrLoadBalancer gives its members; empty if none.
// One that is being deleted gives none any more, so that the group can be deleted, too.
func MemberGroup(klb *v1.KuryrLoadBalancer) string {
	if !GivesMemberGroup(klb) {
		return ""
	}
	return klb.Status.SecurityGroupID
}

// GivesMemberGroup reports whether a KuryrLoadBalancer may give its members a security group.
func GivesMemberGroup(klb *v1.KuryrLoadBalancer) bool {
	return klb.Spec.SourceRangesAtMembers && klb.DeletionTimestamp.IsZero()
}

// Members returns the addresses of all members, sorted, each once.
func Members(klb *v1.KuryrLoadBalancer) (ips []string) {
	for _, m := range members(klb) {
		ips = append(ips, m.IP)
	}
	return slices.Compact(ips)
}

// Ports get a security group one by one, and endpoints change one by one. A state that lasts
// for a moment does not take the floating IP from a Service.
//
// A Service gets its floating IP once one member has the group. The group opens ports that are
// closed otherwise (services.sourceRangesBySecurityGroups promises that), so a member without
// it is closed. If no member gets the group within a minute, the Service gets its floating IP,
// too, and the status lists the members.
//
// A Service loses its floating IP if one of its members is unprotected. A member whose port has
// just been deleted is not: mostly the pod is deleted, too, and the address has no listener
// then.

// CoverageMemory remembers by address what the members lack whose ports were seen. The zero value is that
// of a process that has just started.
type CoverageMemory map[string]memberState

type memberState struct {
	lacks Lack // of LacksPort: its port is not there any more
	since time.Time
}

// Verdict is what the coverage means for a KuryrLoadBalancer.
type Verdict struct {
	Unprotected    []string // members that no security group protects
	OtherNamespace []string // members that never get the group
	// Unreached are the members that have lacked the group for long, by address.
	Unreached []v1.UnreachedMember
	Waits     bool // no member has the group yet, and not for long
	Passing   bool // the port of a member was deleted a moment ago
	Soon      time.Duration
}

// Assess returns what the coverage means, given the coverage before.
func (f *CoverageMemory) Assess(klb *v1.KuryrLoadBalancer, found *Coverage, now time.Time, patience time.Duration) Verdict {
	before := f.recall(klb)
	*f = CoverageMemory{}
	v := Verdict{OtherNamespace: found.OtherNamespace}
	for _, ip := range Members(klb) {
		was, seen := before[ip]
		is := memberState{lacks: found.Lacks[ip], since: now}
		if is.lacks == was.lacks {
			is.since = was.since
		}
		switch rest := is.since.Add(patience).Sub(now); {
		case is.lacks == 0:
		case is.lacks == LacksPort && (!seen || rest <= 0):
			v.Unprotected = append(v.Unprotected, ip)
		case rest <= 0:
			v.Unreached = append(v.Unreached, v1.UnreachedMember{IP: ip, Since: metav1.Time{Time: is.since.Truncate(time.Second)}})
		default:
			v.Soon = min(rest, cmp.Or(v.Soon, rest))
			v.Passing = v.Passing || is.lacks == LacksPort
			v.Waits = v.Waits || is.lacks == LacksGroup && !found.Guarded
		}
		if seen || is.lacks != LacksPort {
			(*f)[ip] = is
		}
	}
	return v
}

// recall returns what is remembered. Once after a start that is what the status says.
func (f *CoverageMemory) recall(klb *v1.KuryrLoadBalancer) CoverageMemory {
	if *f != nil {
		return *f
	}
	all := CoverageMemory{}
	// With an unprotected member it would have no floating IP.
	if IsReady(klb) && klb.Status.PublicIP != nil && !Open(klb) {
		for _, ip := range Members(klb) {
			all[ip] = memberState{}
		}
	}
	for _, m := range klb.Status.UnreachedMembers {
		all[m.IP] = memberState{LacksGroup, m.Since.Time}
	}
	return all
}

// Problems returns the problems of the coverage, for the status of the KuryrLoadBalancer.
func (v *Verdict) Problems(klb *v1.KuryrLoadBalancer) (all []Problem) {
	say := func(ips []string, reason, format string, args ...any) {
		if len(ips) > 0 {
			all = append(all, Problem{ranges, reason, fmt.Sprintf(format, append(args, first(ips))...)})
		}
	}
	if !Open(klb) {
		say(v.Unprotected, ReasonUnprotected, "Kuryr's security groups do not protect endpoints on the host network, endpoints that are not pods, and pods with vifType macvlan: "+
			"%s. The Service gets no floating IP, as any client could use it. Remove these endpoints, or choose another provider "+
			"(annotation openstack.org/kuryr-provider)")
	}
	say(v.OtherNamespace, ReasonOtherNamespace, "endpoints that are pods of other namespaces do not get the Service's security group, and clients outside cannot reach them: %s. "+
		"Remove them, or create a Service in their namespace")
	var unreached []string
	for _, m := range v.Unreached {
		unreached = append(unreached, m.IP)
	}
	say(unreached, ReasonNotReached, "endpoints have lacked the Service's security group (%s) for more than a minute, and clients outside cannot reach them: %s. "+
		"Check the conditions of their KuryrPorts, and the security groups there: a port can have 64 at most", klb.Status.SecurityGroupID)
	return all
}

// first names the first of many, and counts the others.
func first(all []string) string {
	const most = 4
	if len(all) > most {
		return fmt.Sprintf("%s and %d others", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// IsReported reports whether the status lists exactly the members that have lacked the group for long.
func (v *Verdict) IsReported(klb *v1.KuryrLoadBalancer) bool {
	return slices.EqualFunc(klb.Status.UnreachedMembers, v.Unreached, func(a, b v1.UnreachedMember) bool { return a.IP == b.IP })
}
