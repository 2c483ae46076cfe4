// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Plan is what to do next. All steps may be tried one after the other in this
// order; after any of them the cloud is to be looked at anew.
type Plan struct {
	// Steps bring what there is in line with what is wanted: what a Service does not
	// admit any more goes first, at all its addresses; of what serves it what is added
	// comes before what is removed, wherever the cloud can have both at once.
	Steps []Step
	// Mend is what gets something out of ERROR. It is to be bounded: a cloud that
	// puts it there again would be asked for ever.
	Mend []Step
	// Last is what is to go once there are no other steps, nothing is busy and
	// the floating IP is where it should be: until then it may serve.
	Last []Step
	// Busy are the load balancers that take no change now.
	Busy []string
	// Broken says what is in ERROR, for people.
	Broken []string
	// Kept says what differs and stays, as it could be had only by making a load
	// balancer anew, for people.
	Kept []string
}

// Next returns what to do with the load balancers of one KuryrLoadBalancer: want
// is what Want returned, have all that its owner has in the cloud, in any order.
// With several at one VIP the one named in keep stays, if it fits. Neither is changed.
func Next(want, have []sdn.LoadBalancer, keep []string, f sdn.Features) Plan {
	var p Plan
	have = slices.DeleteFunc(slices.Clone(have), func(lb sdn.LoadBalancer) bool { return lb.Provisioning == sdn.ProvisioningDeleted })
	sortBalancers(have, keep)
	used := map[string]bool{}
	for i := range want {
		p.place(&want[i], have, used, f)
	}
	for i := range have {
		lb := &have[i]
		if used[lb.ID] {
			continue
		}
		if busy(lb.Provisioning) {
			p.Busy = append(p.Busy, lb.ID)
			continue
		}
		p.Last = append(p.Last, DeleteLoadBalancer{ID: lb.ID, Because: "the Service no longer has the address " + lb.VIP.IP})
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return order(a) - order(b) })
	return p
}

// Leave takes out what is about these load balancers.
func (p *Plan) Leave(ids []string) {
	about := func(s Step) bool { return slices.Contains(ids, Target(s)) }
	p.Steps, p.Mend, p.Last = slices.DeleteFunc(p.Steps, about), slices.DeleteFunc(p.Mend, about), slices.DeleteFunc(p.Last, about)
}

// order is by what steps are ordered: what keeps somebody out comes first, and nobody
// waits for a mark.
func order(step Step) int {
	switch s := step.(type) {
	case DeleteListener:
		return 0
	case UpdateListener:
		if s.Narrows {
			return 0
		}
	case MarkLoadBalancer:
		return 2
	}
	return 1
}

// Serving returns which of have is the load balancer at a VIP; nil if none is.
func Serving(vip v1.VIPAddress, have []sdn.LoadBalancer, keep []string) *sdn.LoadBalancer {
	have = slices.Clone(have)
	sortBalancers(have, keep)
	i := slices.IndexFunc(have, func(lb sdn.LoadBalancer) bool { return at(&lb, vip) && lb.Provisioning != sdn.ProvisioningDeleted })
	if i < 0 {
		return nil
	}
	return &have[i]
}

// sortBalancers puts those to keep first, then what serves, then by ID.
func sortBalancers(all []sdn.LoadBalancer, keep []string) {
	rank := func(lb sdn.LoadBalancer) int {
		switch {
		case slices.Contains(keep, lb.ID):
			return 0
		case lb.Provisioning == sdn.ProvisioningError:
			return 2
		}
		return 1
	}
	slices.SortFunc(all, func(a, b sdn.LoadBalancer) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
}

// busy reports whether something takes no change in this state. One that the cloud
// does not tell is none.
func busy(s sdn.Provisioning) bool {
	switch s {
	case "", sdn.ProvisioningActive, sdn.ProvisioningError, sdn.ProvisioningDeleted:
		return false
	}
	return true
}

func at(lb *sdn.LoadBalancer, vip v1.VIPAddress) bool {
	return sameAddress(lb.VIP.IP, vip.IP) && sdn.SameID(lb.VIP.SubnetID, vip.SubnetID)
}

// place finds the load balancer for a wanted one and plans what differs; used
// gets the IDs of those at its VIP. An address can be had once: one there that
// cannot be changed to what is wanted has to go before another can be made.
func (p *Plan) place(want *sdn.LoadBalancer, have []sdn.LoadBalancer, used map[string]bool, f sdn.Features) {
	var found *sdn.LoadBalancer
	gone := true
	for i := range have {
		lb := &have[i]
		if !at(lb, want.VIP) {
			continue
		}
		used[lb.ID] = true
		because := unlike(want, lb, f)
		if found == nil && because == "" {
			found = lb
			continue
		}
		if because == "" {
			because = "another load balancer has its address"
		}
		gone = false
		if busy(lb.Provisioning) {
			p.Busy = append(p.Busy, lb.ID)
		} else {
			p.Steps = append(p.Steps, DeleteLoadBalancer{lb.ID, because, want.VIP.IP})
		}
	}
	switch {
	case found != nil:
		p.Kept = append(p.Kept, kept(want, found)...)
		p.tree(want, found, f)
	case gone:
		p.Steps = append(p.Steps, CreateLoadBalancer{*want})
	}
}

// unlike says why a load balancer has to be made anew; empty if it need not. Of a
// provider that nobody names any will do.
func unlike(want, have *sdn.LoadBalancer, f sdn.Features) string {
	if want.Provider == "" || have.Provider == f.Provider || sdn.SameProvider(want.Provider, have.Provider) {
		return ""
	}
	return fmt.Sprintf("it has provider %q, wanted is %q", have.Provider, want.Provider)
}

// kept says what else of a load balancer differs and cannot be changed. It stays:
// these are mostly defaults of Kuryr's configuration, and an edit of that would
// otherwise interrupt all Services.
func kept(want, have *sdn.LoadBalancer) (all []string) {
	for _, d := range []struct{ what, want, have string }{
		{"project", want.ProjectID, have.ProjectID},
		{"flavor", want.FlavorID, have.FlavorID},
		{"availability zone", want.AvailabilityZone, have.AvailabilityZone},
	} {
		if d.want != "" && !sdn.SameID(d.want, d.have) {
			all = append(all, fmt.Sprintf("load balancer %s keeps its %s %q, wanted is %q", have.ID, d.what, d.have, d.want))
		}
	}
	return all
}

// Moves returns the provider that serves and is to be another's place, as the spec
// names another; empty if there is none, or if the change has begun already: then
// it is to go on. To change it a load balancer is deleted and made anew.
func Moves(klb *v1.KuryrLoadBalancer, have []sdn.LoadBalancer, keep []string) (from string) {
	for _, vip := range klb.Spec.VIPs {
		lb := Serving(vip, have, keep)
		switch {
		case klb.Spec.Provider == "" || lb == nil, sdn.SameProvider(lb.Provider, klb.Spec.Provider), lb.Provisioning == sdn.ProvisioningError:
			return ""
		}
		from = lb.Provider
	}
	return from
}

// tree plans what differs below a load balancer.
func (p *Plan) tree(want, have *sdn.LoadBalancer, f sdn.Features) {
	switch {
	case have.Provisioning == sdn.ProvisioningError:
		p.Broken = append(p.Broken, "load balancer "+have.ID)
		if f.FailOver {
			p.Mend = append(p.Mend, FailOver{have.ID})
		} else {
			p.Mend = append(p.Mend, DeleteLoadBalancer{ID: have.ID, Because: "it is in ERROR"})
		}
	case busy(have.Provisioning):
		p.Busy = append(p.Busy, have.ID)
	default:
		if have.Unmarked {
			p.Steps = append(p.Steps, MarkLoadBalancer{have.ID})
		}
		d := differ{lb: have, f: f}
		d.listeners(want.Listeners)
		emptiestFirst(d.members, have)
		p.Steps = append(p.Steps, d.steps()...)
		p.Mend = append(p.Mend, d.mend...)
		p.Broken = append(p.Broken, d.broken...)
	}
}

// emptiestFirst puts changes of members into an order in which no port waits for its
// first endpoints until others have all theirs: many are told in several requests.
func emptiestFirst(members []Step, lb *sdn.LoadBalancer) {
	has := map[string]int{}
	for _, l := range lb.Listeners {
		if l.Pool != nil {
			has[l.Pool.ID] = len(l.Pool.Members)
		}
	}
	of := func(s Step) int {
		c, _ := s.(ChangeMembers)
		return has[c.PoolID]
	}
	slices.SortStableFunc(members, func(a, b Step) int { return of(a) - of(b) })
}
