// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
)

// A security group reaches ports one by one, and endpoints come and go one by one. What
// is so in passing is no reason to take the floating IP from all.
//
// It is given once one member has the group: a member without it is closed by what
// services.sourceRangesBySecurityGroups promises, and so it is also given if no member
// gets the group in a minute, which is told. It is taken away for members that nobody
// can be kept out of; but not while the port of one has just gone, as it mostly has with
// its pod: there is nobody at its address.

// verdict is what a fence means for a KuryrLoadBalancer.
type verdict struct {
	bare    []string // members that nobody can be kept out of
	stuck   []string // have been without the group for long
	foreign []string // never get it
	waits   bool     // no member has it yet, and it has not been long
	passing bool     // the port of one has just gone
	soon    time.Duration
}

// judge says what a fence means, given what it was found to be before.
func (f *fenceMemory) judge(klb *v1.KuryrLoadBalancer, found *balancer.Fence, now time.Time, patience time.Duration) verdict {
	f.recall(klb, now.Add(-patience))
	v := verdict{foreign: found.Foreign}
	v.stuck, v.soon = overdue(f.behind, found.Behind, now, patience)
	var gone []string
	for _, ip := range found.Bare {
		if f.ported[ip] {
			gone = append(gone, ip)
		} else {
			v.bare = append(v.bare, ip)
		}
	}
	late, soon := overdue(f.gone, gone, now, patience)
	v.bare, v.passing = append(v.bare, late...), len(late) < len(gone)
	if soon > 0 && (v.soon == 0 || soon < v.soon) {
		v.soon = soon
	}
	f.remember(klb, found.Bare)
	v.waits = !found.Guarded && len(found.Behind) > len(v.stuck)
	return v
}

// recall knows after a start what the status says.
func (f *fenceMemory) recall(klb *v1.KuryrLoadBalancer, long time.Time) {
	if f.behind != nil {
		return
	}
	f.behind, f.gone, f.ported = map[string]time.Time{}, map[string]time.Time{}, map[string]bool{}
	if balancer.IsReady(klb) && klb.Status.PublicIP != nil && !balancer.Open(klb) { // else it would have none
		f.remember(klb, nil)
	}
	said := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionSupported)
	if said == nil {
		return
	}
	for _, ip := range balancer.StuckIn(said.Message) {
		f.behind[ip] = long
	}
}

// remember notes which members' ports were seen: those of all that are not bare, now or
// before.
func (f *fenceMemory) remember(klb *v1.KuryrLoadBalancer, bare []string) {
	seen := map[string]bool{}
	for _, ip := range balancer.Members(klb) {
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

// problems says what is to be told of it.
func (v *verdict) problems(klb *v1.KuryrLoadBalancer) (all []balancer.Problem) {
	if len(v.bare) > 0 && !balancer.Open(klb) {
		all = append(all, balancer.OfBare(v.bare))
	}
	if len(v.foreign) > 0 {
		all = append(all, balancer.OfForeign(v.foreign))
	}
	if len(v.stuck) > 0 {
		all = append(all, balancer.OfStuck(klb.Status.SecurityGroupID, v.stuck))
	}
	return all
}

// isTold reports whether the status says of members without the group what is so.
func (v *verdict) isTold(klb *v1.KuryrLoadBalancer) bool {
	said := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionSupported)
	return said == nil || strings.Contains(said.Message, balancer.StuckWords) == (len(v.stuck) > 0)
}
