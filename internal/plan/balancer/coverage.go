// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

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

// CoverageMemory remembers which members have the security group, and since when the others
// lack it. The zero value is that of a process that has just started.
type CoverageMemory struct {
	pending map[string]time.Time // members without the group, and since when; nil: not known yet
	ported  map[string]bool      // members whose port was seen
	gone    map[string]time.Time // members whose port is gone, and since when
}

// Verdict is what the coverage means for a KuryrLoadBalancer.
type Verdict struct {
	Unprotected    []string // members that no security group protects
	otherNamespace []string // members that never get the group
	// Unreached are the members that have lacked the group for long, by address.
	Unreached []v1.UnreachedMember
	Waits     bool // no member has the group yet, and not for long
	Passing   bool // the port of a member was deleted a moment ago
	Soon      time.Duration
}

// Assess returns what the coverage means, given the coverage before.
func (f *CoverageMemory) Assess(klb *v1.KuryrLoadBalancer, found *Coverage, now time.Time, patience time.Duration) Verdict {
	f.recall(klb, found, now.Add(-patience))
	v := Verdict{otherNamespace: found.OtherNamespace}
	stuck, soon := overdue(f.pending, found.Pending, now, patience)
	v.Soon = soon
	for _, ip := range stuck {
		v.Unreached = append(v.Unreached, v1.UnreachedMember{IP: ip, Since: metav1.Time{Time: f.pending[ip].Truncate(time.Second)}})
	}
	var gone []string
	for _, ip := range found.Unprotected {
		if f.ported[ip] {
			gone = append(gone, ip)
		} else {
			v.Unprotected = append(v.Unprotected, ip)
		}
	}
	late, soon := overdue(f.gone, gone, now, patience)
	v.Unprotected, v.Passing = append(v.Unprotected, late...), len(late) < len(gone)
	if soon > 0 && (v.Soon == 0 || soon < v.Soon) {
		v.Soon = soon
	}
	f.remember(klb, found.Unprotected)
	v.Waits = !found.Guarded && len(found.Pending) > len(v.Unreached)
	return v
}

// recall reads the status, once after a start. A status of an older version may say that
// members lack the group, without a list of them. Then all pending members count as these.
func (f *CoverageMemory) recall(klb *v1.KuryrLoadBalancer, found *Coverage, long time.Time) {
	if f.pending != nil {
		return
	}
	f.pending, f.gone, f.ported = map[string]time.Time{}, map[string]time.Time{}, map[string]bool{}
	// With an unprotected member it would have no floating IP.
	if IsReady(klb) && klb.Status.PublicIP != nil && !Open(klb) {
		f.remember(klb, nil)
	}
	for _, m := range klb.Status.UnreachedMembers {
		f.pending[m.IP] = m.Since.Time
	}
	if klb.Status.SecurityGroupID != "" && listsNothing(&klb.Status) {
		for _, ip := range found.Pending {
			f.pending[ip] = long
		}
	}
}

// remember notes the members whose port was seen: each that is protected now, or was before.
func (f *CoverageMemory) remember(klb *v1.KuryrLoadBalancer, unprotected []string) {
	seen := map[string]bool{}
	for _, ip := range Members(klb) {
		if f.ported[ip] || !slices.Contains(unprotected, ip) {
			seen[ip] = true
		}
	}
	f.ported = seen
}

// overdue notes since when each address is in a state. It returns the addresses that have been
// in it for longer than patience, and the time until the next one will have been.
func overdue(since map[string]time.Time, all []string, now time.Time, patience time.Duration) (late []string, soon time.Duration) {
	is := make(map[string]bool, len(all))
	for _, ip := range all {
		is[ip] = true
		if since[ip].IsZero() {
			since[ip] = now
		}
		rest := since[ip].Add(patience).Sub(now)
		if rest <= 0 {
			late = append(late, ip)
		} else if soon == 0 || rest < soon {
			soon = rest
		}
	}
	for ip := range since {
		if !is[ip] {
			delete(since, ip)
		}
	}
	return late, soon
}

// Problems returns the problems of the coverage, for the status of the KuryrLoadBalancer.
func (v *Verdict) Problems(klb *v1.KuryrLoadBalancer) (all []Problem) {
	if len(v.Unprotected) > 0 && !Open(klb) {
		all = append(all, OfUnprotected(v.Unprotected))
	}
	if len(v.otherNamespace) > 0 {
		all = append(all, OfOtherNamespace(v.otherNamespace))
	}
	if len(v.Unreached) > 0 {
		var ips []string
		for _, m := range v.Unreached {
			ips = append(ips, m.IP)
		}
		all = append(all, OfNotReached(klb.Status.SecurityGroupID, ips))
	}
	return all
}

// IsReported reports whether the status lists exactly the members that have lacked the group for long.
func (v *Verdict) IsReported(klb *v1.KuryrLoadBalancer) bool {
	return slices.EqualFunc(klb.Status.UnreachedMembers, v.Unreached, func(a, b v1.UnreachedMember) bool { return a.IP == b.IP })
}
