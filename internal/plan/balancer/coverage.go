// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// A security group reaches ports one by one, and endpoints come and go one by one. What
// is so in passing is no reason to take the floating IP from all.
//
// It is given once one member has the group: a member without it is closed by what
// services.sourceRangesBySecurityGroups promises, and so it is also given if no member
// gets the group in a minute, which is told. It is taken away for members that nobody
// can be kept out of; but not while the port of one has just gone, as it mostly has with
// its pod: there is nobody at its address.

// Coverage is which members a security group has reached, and since when it has not
// reached the others. The zero value is that of a process that has just started.
type Coverage struct {
	behind map[string]time.Time // members without it, and since when; nil: not known yet
	ported map[string]bool      // members whose port was seen
	gone   map[string]time.Time // those whose port is gone, and since when
}

// Verdict is what a fence means for a KuryrLoadBalancer.
type Verdict struct {
	Bare    []string // members that nobody can be kept out of
	stuck   []string // have been without the group for long
	foreign []string // never get it
	Waits   bool     // no member has it yet, and it has not been long
	Passing bool     // the port of one has just gone
	Soon    time.Duration
}

// Assess says what a fence means, given what it was found to be before.
func (f *Coverage) Assess(klb *v1.KuryrLoadBalancer, found *Fence, now time.Time, patience time.Duration) Verdict {
	f.recall(klb, now.Add(-patience))
	v := Verdict{foreign: found.Foreign}
	v.stuck, v.Soon = overdue(f.behind, found.Behind, now, patience)
	var gone []string
	for _, ip := range found.Bare {
		if f.ported[ip] {
			gone = append(gone, ip)
		} else {
			v.Bare = append(v.Bare, ip)
		}
	}
	late, soon := overdue(f.gone, gone, now, patience)
	v.Bare, v.Passing = append(v.Bare, late...), len(late) < len(gone)
	if soon > 0 && (v.Soon == 0 || soon < v.Soon) {
		v.Soon = soon
	}
	f.remember(klb, found.Bare)
	v.Waits = !found.Guarded && len(found.Behind) > len(v.stuck)
	return v
}

// recall knows after a start what the status says.
func (f *Coverage) recall(klb *v1.KuryrLoadBalancer, long time.Time) {
	if f.behind != nil {
		return
	}
	f.behind, f.gone, f.ported = map[string]time.Time{}, map[string]time.Time{}, map[string]bool{}
	if IsReady(klb) && klb.Status.PublicIP != nil && !Open(klb) { // else it would have none
		f.remember(klb, nil)
	}
	said := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionSupported)
	if said == nil {
		return
	}
	for _, ip := range StuckIn(said.Message) {
		f.behind[ip] = long
	}
}

// remember notes which members' ports were seen: those of all that are not bare, now or
// before.
func (f *Coverage) remember(klb *v1.KuryrLoadBalancer, bare []string) {
	seen := map[string]bool{}
	for _, ip := range Members(klb) {
		if f.ported[ip] || !slices.Contains(bare, ip) {
			seen[ip] = true
		}
	}
	f.ported = seen
}

// overdue notes since when addresses are such as they are now, and returns those that
// have been for longer than there is patience for, and when the next will have been.
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

// Problems says what is to be told of it.
func (v *Verdict) Problems(klb *v1.KuryrLoadBalancer) (all []Problem) {
	if len(v.Bare) > 0 && !Open(klb) {
		all = append(all, OfBare(v.Bare))
	}
	if len(v.foreign) > 0 {
		all = append(all, OfForeign(v.foreign))
	}
	if len(v.stuck) > 0 {
		all = append(all, OfStuck(klb.Status.SecurityGroupID, v.stuck))
	}
	return all
}

// IsTold reports whether the status says of members without the group what is so.
func (v *Verdict) IsTold(klb *v1.KuryrLoadBalancer) bool {
	said := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionSupported)
	return said == nil || strings.Contains(said.Message, StuckWords) == (len(v.stuck) > 0)
}
