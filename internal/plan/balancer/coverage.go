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

// Coverage says which members a security group protects. The addresses are sorted.
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
	for _, m := range members(klb) {
		f.add(klb, group, m, at(m.IP))
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

// CoverageMemory remembers by address what each member lacks. The zero value is that of a process
// that has just started.
type CoverageMemory map[string]memberState

type memberState struct {
	lacks lack
	since time.Time
	had   bool // its port was seen
}

type lack int

const (
	nothing lack = iota
	group
	portGone   // its port was seen, and is not there any more
	protection // it never had a port that filters
)

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
	before, is, pending := f.recall(klb), CoverageMemory{}, false
	v := Verdict{OtherNamespace: found.OtherNamespace}
	for _, ip := range Members(klb) {
		was := before[ip]
		m := memberState{lacks: found.lack(ip, was.had), since: now, had: was.had}
		if m.lacks == was.lacks {
			m.since = was.since
		}
		switch rest := m.since.Add(patience).Sub(now); {
		case m.lacks == nothing:
		case m.lacks == protection, m.lacks == portGone && rest <= 0:
			v.Unprotected = append(v.Unprotected, ip)
		case rest <= 0:
			v.Unreached = append(v.Unreached, v1.UnreachedMember{IP: ip, Since: metav1.Time{Time: m.since.Truncate(time.Second)}})
		default:
			v.Soon = min(rest, cmp.Or(v.Soon, rest))
			v.Passing, pending = v.Passing || m.lacks == portGone, pending || m.lacks == group
		}
		m.had = m.lacks != protection
		is[ip] = m
	}
	v.Waits = pending && !found.Guarded
	*f = is
	return v
}

// lack returns what a member lacks; had says whether its port was seen before.
func (f *Coverage) lack(ip string, had bool) lack {
	_, unprotected := slices.BinarySearch(f.Unprotected, ip)
	_, pending := slices.BinarySearch(f.Pending, ip)
	switch {
	case unprotected && had:
		return portGone
	case unprotected:
		return protection
	case pending:
		return group
	}
	return nothing
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
			all[ip] = memberState{had: true}
		}
	}
	for _, m := range klb.Status.UnreachedMembers {
		all[m.IP] = memberState{lacks: group, since: m.Since.Time, had: all[m.IP].had}
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
