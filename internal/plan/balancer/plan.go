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

// compare plans the differences between what is wanted and what the cloud has.
func (p *planner) compare() {
	have := sorted(p.in.Trees, Named(p.in.LoadBalancer))
	for i := range p.Want {
		p.place(&p.Want[i], have)
	}
	free := func(a *place) bool { // one that is being deleted still has the address
		return !slices.ContainsFunc(have, func(lb sdn.LoadBalancer) bool { return at(&lb, a.want.VIP) })
	}
	for i := range have {
		lb := &have[i]
		switch {
		case slices.ContainsFunc(p.places, func(a *place) bool { return at(lb, a.want.VIP) }), !p.accepts(lb):
		case strings.HasSuffix(lb.Name, trialSuffix) && slices.ContainsFunc(p.places, free):
			// It has served its purpose, and may have the room that the wanted one needs.
			p.Steps = append(p.Steps, DeleteLoadBalancer{ID: lb.ID, Because: "it was a trial"})
		case !slices.ContainsFunc(p.places, func(a *place) bool { return family(a.vip()) == family(lb.VIP.IP) && !a.isThere() }):
			// Its replacement is ACTIVE and has all ports, or none of that IP family is wanted. The next
			// load balancer with this address must not wait for anything else.
			p.Last = append(p.Last, DeleteLoadBalancer{ID: lb.ID, Because: "the Service no longer has the address " + lb.VIP.IP})
		}
	}
	slices.SortStableFunc(p.Steps, inOrder)
}

// order ranks a step: steps that keep clients out come first, with what has to precede them, then
// endpoints. Additions come later, and marks last.
func order(step Step) int {
	switch s := step.(type) {
	case UpdatePool:
		if s.Before {
			return 0
		}
	case DeleteListener:
		return 1
	case UpdateListener:
		if s.Narrows {
			return 2
		}
		return 4
	case CreateLoadBalancer, DeleteLoadBalancer, DeletePool, ChangeMembers:
		return 3
	case CreateListener, CreatePool:
		return 5
	case MarkLoadBalancer:
		return 7
	}
	return 6
}

// inOrder sorts steps. Of changes of members, those of the emptiest pool come first, so that no port
// waits for its first endpoints until others have all theirs: many members take several requests.
func inOrder(a, b Step) int {
	has := func(s Step) int {
		c, _ := s.(ChangeMembers)
		return c.has
	}
	return cmp.Or(order(a)-order(b), has(a)-has(b))
}

// Serving returns the load balancer of have that serves a VIP; nil if none does.
func Serving(vip v1.VIPAddress, have []sdn.LoadBalancer, keep []string) *sdn.LoadBalancer {
	have = sorted(have, keep)
	i := slices.IndexFunc(have, func(lb sdn.LoadBalancer) bool { return at(&lb, vip) })
	if i < 0 {
		return nil
	}
	return &have[i]
}

// sorted returns the load balancers that exist: those to keep first, then those that are not in ERROR,
// then by ID.
func sorted(all []sdn.LoadBalancer, keep []string) []sdn.LoadBalancer {
	rank := func(lb sdn.LoadBalancer) int {
		switch {
		case slices.Contains(keep, lb.ID):
			return 0
		case lb.Provisioning == sdn.ProvisioningError:
			return 2
		}
		return 1
	}
	all = slices.DeleteFunc(slices.Clone(all), func(lb sdn.LoadBalancer) bool { return lb.Provisioning == sdn.ProvisioningDeleted })
	slices.SortFunc(all, func(a, b sdn.LoadBalancer) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a.ID, b.ID)) })
	return all
}

// busy reports whether an object accepts no change in this state. An unknown state does not
// count as busy.
func busy(s sdn.Provisioning) bool {
	return !slices.Contains([]sdn.Provisioning{"", sdn.ProvisioningActive, sdn.ProvisioningError, sdn.ProvisioningDeleted}, s)
}

func at(lb *sdn.LoadBalancer, vip v1.VIPAddress) bool {
	return sameAddress(lb.VIP.IP, vip.IP) && sdn.SameID(lb.VIP.SubnetID, vip.SubnetID)
}

// place finds the load balancer for a wanted one and plans the differences. Only one load balancer
// can have an address: one that cannot be changed to what is wanted is deleted before another is
// created.
func (p *planner) place(want *sdn.LoadBalancer, have []sdn.LoadBalancer) {
	var found *sdn.LoadBalancer
	gone := true
	for i := range have {
		lb := &have[i]
		if !at(lb, want.VIP) {
			continue
		}
		because := unlike(want, lb, p.in.Features)
		if found == nil && because == "" {
			found = lb
			continue
		}
		if gone = false; p.accepts(lb) {
			p.Steps = append(p.Steps, DeleteLoadBalancer{lb.ID, cmp.Or(because, "another load balancer has its address"), want.VIP.IP})
		}
	}
	at := p.inspect(want, found)
	switch {
	case found != nil:
		p.Kept = append(p.Kept, kept(want, found)...)
		p.tree(at)
	case gone:
		p.Steps = append(p.Steps, CreateLoadBalancer{*want})
	}
	p.places = append(p.places, at)
}

// unlike says why a load balancer has to be made anew; empty if it need not. Without a wanted
// provider, any provider will do.
func unlike(want, have *sdn.LoadBalancer, f sdn.Features) string {
	if want.Provider == "" || have.Provider == f.Provider || sdn.SameProvider(want.Provider, have.Provider) {
		return ""
	}
	return fmt.Sprintf("its provider is %q and should be %q", have.Provider, want.Provider)
}

// kept returns the other fields of a load balancer that differ and cannot be changed. They
// stay: mostly they are defaults of Kuryr's configuration, and an edit of these would otherwise
// interrupt all Services.
func kept(want, have *sdn.LoadBalancer) (all []v1.UnchangedField) {
	for _, d := range []v1.UnchangedField{
		{Field: "projectID", Is: have.ProjectID, Wanted: want.ProjectID},
		{Field: "flavorID", Is: have.FlavorID, Wanted: want.FlavorID},
		{Field: "availabilityZone", Is: have.AvailabilityZone, Wanted: want.AvailabilityZone},
	} {
		if d.Of = have.ID; d.Wanted != "" && !sdn.SameID(d.Wanted, d.Is) {
			all = append(all, d)
		}
	}
	return all
}

// keptNetwork is the field of a floating IP that may keep another value, as a status names it.
const keptNetwork = "publicIP.networkID"

// Unchanged describes for people what stays as it is.
func Unchanged(d v1.UnchangedField) string {
	field := strings.TrimSuffix(strings.TrimPrefix(d.Field, "publicIP."), "ID")
	return fmt.Sprintf("%s keeps its %s %q instead of %q", d.Of, field, d.Is, d.Wanted)
}

// OfPublicIP reports whether an unchanged field is one of the floating IP.
func OfPublicIP(d v1.UnchangedField) bool { return d.Field == keptNetwork }

// Moves returns the provider of the serving load balancers if the spec names another. It is
// empty if no provider changes, or if the change has begun already and should continue. To
// change the provider, a load balancer is deleted and created again.
func Moves(klb *v1.KuryrLoadBalancer, have []sdn.LoadBalancer, keep []string) (from string) {
	for _, vip := range klb.Spec.VIPs {
		lb := Serving(vip, have, keep)
		switch {
		case klb.Spec.Provider == "" || lb == nil, sdn.SameProvider(lb.Provider, klb.Spec.Provider), lb.Provisioning == sdn.ProvisioningError && !mayServe(lb):
			return ""
		}
		from = lb.Provider
	}
	return from
}

// accepts reports whether a load balancer may be changed now, and notes that it is busy.
func (p *planner) accepts(lb *sdn.LoadBalancer) bool {
	if busy(lb.Provisioning) {
		p.Busy = append(p.Busy, lb.ID)
		return false
	}
	return !slices.Contains(p.left, lb.ID)
}

// tree plans the differences below a load balancer.
func (p *planner) tree(at *place) {
	have := at.have
	off := !busy(have.Provisioning) && p.noteDisabled(have)
	if !p.accepts(have) || at.broken() {
		return
	}
	if have.Unmarked {
		p.Steps = append(p.Steps, MarkLoadBalancer{have.ID})
	}
	p.Steps = append(p.Steps, p.differences(at, off && p.in.Features.DisabledBlocks)...)
}
