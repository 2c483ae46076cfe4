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

// CreateFloatingIP creates a floating IP.
type CreateFloatingIP struct{ Request sdn.FloatingIPRequest }

// Associate gives a port the floating IP, which no port has.
type Associate struct{ ID, Address, PortID string }

// Dissociate takes the floating IP from the port at which it was seen. If it is at another port
// by now, it stays there.
type Dissociate struct{ ID, Address, PortID string }

// DeleteFloatingIP deletes a floating IP; PortID is the port that has it, or empty.
type DeleteFloatingIP struct{ ID, Address, PortID string }

// DisownFloatingIP takes the cluster's mark off a floating IP that is kept.
type DisownFloatingIP struct{ ID, Address string }

func (s CreateFloatingIP) String() string {
	return strings.TrimSuffix("create floating IP "+s.Request.Address, " ") + " in network " + s.Request.NetworkID
}

func (s Associate) String() string {
	return "associate floating IP " + s.Address + " with port " + s.PortID
}

func (s Dissociate) String() string {
	return "dissociate floating IP " + s.Address + " from port " + s.PortID
}

func (s DeleteFloatingIP) String() string { return "delete floating IP " + s.Address }

func (s DisownFloatingIP) String() string { return "keep floating IP " + s.Address + " in the project" }

// Address is what to do about the floating IP of a KuryrLoadBalancer.
type Address struct {
	// Steps are carried out in this order. Then the caller plans again, with their results.
	Steps []Step
	// Has is the floating IP as it is to be; with a Problem, the one that is in place. nil if
	// the load balancer has none.
	Has *v1.PublicIPStatus
	// Problem says why the floating IP cannot be as wanted; empty if it can.
	Problem string
	// Kept lists fields that differ and stay, as only another address could change them.
	Kept []v1.UnchangedField
	// Unsure says that more may have to be taken away, once all of Own are known.
	Unsure bool
}

// Place says where a floating IP is to be.
type Place struct {
	// Port is the port of the first VIP; empty: not created yet.
	Port string
	// Own are the VIP ports of all load balancers of the owner, including those that are to be
	// deleted. A floating IP is taken from no other port.
	Own []string
	// ProjectID is that of the load balancer; empty: that of the spec.
	ProjectID string
	// Withheld says that the load balancer may have no floating IP for now. One
	// that was made for it stays reserved.
	Withheld bool
	// Before is the KuryrLoadBalancer that has precedence for the requested address, see
	// Before; empty: none has.
	Before string
	// Partial says that Own may lack ports: a floating IP elsewhere may be at one of them.
	Partial bool
}

// NextAddress returns what to do about the floating IP. all are the floating IPs that may be
// used and those of owner. A KuryrLoadBalancer that is being deleted wants none.
//
// A floating IP that owner has not made is never deleted. None is taken from a port that is not
// owner's: its user may still need it there.
func NextAddress(klb *v1.KuryrLoadBalancer, at Place, all []sdn.FloatingIP, owner sdn.Owner) Address {
	a := addresser{klb: klb, at: at, all: all, owner: owner, prior: klb.Status.PublicIP}
	switch want := klb.Spec.PublicIP; {
	case want == nil || !klb.DeletionTimestamp.IsZero():
		a.release(nil)
	case at.Withheld:
		// What makes the load balancer public is taken off, and nothing is given back.
		a.takeOff(a.here, ", which cannot enforce the Service's source ranges: dissociate it in the cloud")
	case at.Port != "":
		a.obtain(want)
	}
	return a.Address
}

type addresser struct {
	Address
	klb   *v1.KuryrLoadBalancer
	at    Place
	all   []sdn.FloatingIP
	owner sdn.Owner
	prior *v1.PublicIPStatus
}

func (a *addresser) mine(f *sdn.FloatingIP) bool  { return f.Owner == a.owner }
func (a *addresser) known(f *sdn.FloatingIP) bool { return a.prior != nil && a.prior.ID == f.ID }

// here reports whether a floating IP is at a port of the owner.
func (a *addresser) here(f *sdn.FloatingIP) bool {
	return f.PortID != "" && (f.PortID == a.at.Port || slices.Contains(a.at.Own, f.PortID))
}

// ours reports whether the owner may take a floating IP off its port. It also may if the
// Service asks for its address and a status has lost it.
func (a *addresser) ours(f *sdn.FloatingIP) bool { return a.mine(f) || a.known(f) || a.asked(f) }

// asked reports whether a floating IP at the owner's port is the one that the Service asks for.
func (a *addresser) asked(f *sdn.FloatingIP) bool {
	want := a.klb.Spec.PublicIP
	return want != nil && want.Address != "" && sameAddress(want.Address, f.Address) && f.Owner == (sdn.Owner{}) && a.here(f)
}

// away reports whether a floating IP is at a port that is not the owner's.
func (a *addresser) away(f *sdn.FloatingIP) bool { return f.PortID != "" && !a.here(f) }

func dissociate(f *sdn.FloatingIP) Step { return Dissociate{f.ID, f.Address, f.PortID} }

// outlives reports whether a floating IP that owner made stays after its use.
func (a *addresser) outlives(f *sdn.FloatingIP) bool {
	if want := a.klb.Spec.PublicIP; want != nil && want.Keep {
		return true
	}
	return a.known(f) && !a.prior.Made || a.away(f)
}

// release gives back all floating IPs but the one in use, by how they were obtained.
func (a *addresser) release(but *sdn.FloatingIP) {
	for i := range a.all {
		switch f := &a.all[i]; {
		case but != nil && f.ID == but.ID:
		case a.at.Partial && a.away(f):
			a.Unsure = a.Unsure || a.mine(f) || a.known(f)
		case a.mine(f) && !a.outlives(f):
			a.Steps = append(a.Steps, DeleteFloatingIP{f.ID, f.Address, f.PortID})
		default:
			if a.ours(f) && a.here(f) {
				a.Steps = append(a.Steps, dissociate(f))
			}
			if a.mine(f) {
				a.Steps = append(a.Steps, DisownFloatingIP{f.ID, f.Address})
			}
		}
	}
}

// takeOff plans to dissociate the floating IPs for which is returns true, and reports whether there are
// any. One that is not the owner's is a problem.
func (a *addresser) takeOff(is func(*sdn.FloatingIP) bool, problem string) (some bool) {
	for i := range a.all {
		f := &a.all[i]
		if !is(f) {
			continue
		}
		if some = true; a.ours(f) {
			a.Steps = append(a.Steps, dissociate(f))
		} else {
			a.Problem = fmt.Sprintf("somebody gave floating IP %s to the load balancer%s", f.Address, problem)
		}
	}
	return some
}

func (a *addresser) obtain(want *v1.PublicIPSpec) {
	f := a.choose(want)
	// A port with one address can have one floating IP at a time.
	occupied := a.takeOff(func(o *sdn.FloatingIP) bool { return o.PortID == a.at.Port && (f == nil || o.ID != f.ID) },
		": dissociate it in the cloud, or ask for this address")
	switch {
	case a.Problem != "":
	case f == nil:
		r := sdn.FloatingIPRequest{
			ProjectID: cmp.Or(a.at.ProjectID, a.klb.Spec.ProjectID), NetworkID: want.NetworkID, SubnetID: want.SubnetID, Address: want.Address,
		}
		if !occupied {
			r.PortID = a.at.Port
		}
		a.Steps = []Step{CreateFloatingIP{r}} // the one in use is taken off once the new one exists
	case f.PortID == a.at.Port:
		a.Has = a.status(f)
		if a.mine(f) && want.Keep {
			// It loses Kuryr's mark at once: whatever becomes of the objects, the collector must not delete it.
			a.Steps = append(a.Steps, DisownFloatingIP{f.ID, f.Address})
		}
		if want.Address == "" && !sdn.SameID(f.NetworkID, want.NetworkID) {
			a.Kept = append(a.Kept, v1.UnchangedField{Field: keptNetwork, Of: f.Address, Is: f.NetworkID, Wanted: want.NetworkID})
		}
		a.release(f)
	case a.away(f):
		a.Problem = fmt.Sprintf("floating IP %s is in use by port %s: dissociate it there, or ask for another address", f.Address, f.PortID)
	default:
		if f.PortID != "" {
			a.Steps = append(a.Steps, dissociate(f))
		}
		a.Steps = append(a.Steps, Associate{f.ID, f.Address, a.at.Port})
	}
	if a.Problem == "" {
		return
	}
	// The load balancer may have another one. If the status did not name it, it would never be given back.
	a.Steps = nil
	if i := slices.IndexFunc(a.all, func(f sdn.FloatingIP) bool { return a.ours(&f) && a.here(&f) }); i >= 0 {
		a.Has = a.status(&a.all[i])
	}
}

func (a *addresser) status(f *sdn.FloatingIP) *v1.PublicIPStatus {
	return &v1.PublicIPStatus{ID: f.ID, IP: f.Address, Made: a.mine(f) && !a.outlives(f), NetworkID: f.NetworkID}
}

// choose returns the floating IP to use; nil if one is to be created.
func (a *addresser) choose(want *v1.PublicIPSpec) (best *sdn.FloatingIP) {
	for i := range a.all {
		switch f := &a.all[i]; {
		case want.Address != "" && sameAddress(f.Address, want.Address):
			a.check(f, want)
			return f
		case want.Address != "" || !a.fits(f, want):
		case f.PortID == a.at.Port: // the one that is in place, then the one that was in use last
			return f
		case best == nil || a.known(f) || a.away(best) && !a.known(best):
			best = f
		}
	}
	return best
}

// check says why the floating IP that the Service asks for cannot be used.
func (a *addresser) check(f *sdn.FloatingIP, want *v1.PublicIPSpec) {
	switch nobodys := f.Owner == (sdn.Owner{}); {
	case a.mine(f):
	case !nobodys:
		a.Problem = fmt.Sprintf("floating IP %s was made for Service %s/%s: ask for another address", f.Address, f.Owner.Namespace, f.Owner.Name)
	case a.at.Before != "" && !a.here(f):
		a.Problem = fmt.Sprintf("floating IP %s goes to Service %s, which has it already or is older: ask for another address", f.Address, a.at.Before)
	case !a.known(f) && !hasAddress(a.klb, f.Address) && !sdn.SameID(f.NetworkID, want.NetworkID):
		a.Problem = fmt.Sprintf("floating IP %s is in network %s, but the Service wants one in %s: ask for another address, or name that network "+
			"in the annotation loadbalancer.openstack.org/floating-network-id", f.Address, f.NetworkID, want.NetworkID)
	}
}

// fits reports whether a floating IP will do if no address is asked for. The Service keeps the
// one that it has, even if another network is configured by now: clients use its address.
func (a *addresser) fits(f *sdn.FloatingIP, want *v1.PublicIPSpec) bool {
	if a.mine(f) || a.known(f) {
		return a.mine(f) || !a.away(f)
	}
	return f.PortID == a.at.Port && f.Owner == (sdn.Owner{}) && sdn.SameID(f.NetworkID, want.NetworkID)
}

// Before returns the one of others that has precedence over klb for the floating IP address
// that klb asks for; nil if none has. The KuryrLoadBalancer that has the address keeps it. It
// does so even while the address is at no port, as the load balancer is made anew or the
// floating IP is withheld. Else the older KuryrLoadBalancer has precedence.
func Before(klb *v1.KuryrLoadBalancer, others []*v1.KuryrLoadBalancer) *v1.KuryrLoadBalancer {
	if klb.Spec.PublicIP == nil || klb.Spec.PublicIP.Address == "" {
		return nil
	}
	address := klb.Spec.PublicIP.Address
	lacks := func(o *v1.KuryrLoadBalancer) int {
		if hasAddress(o, address) {
			return 0
		}
		return 1
	}
	compare := func(a, b *v1.KuryrLoadBalancer) int {
		return cmp.Or(lacks(a)-lacks(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	first := klb
	for _, o := range others {
		wants := o.Spec.PublicIP != nil && o.DeletionTimestamp.IsZero() && (lacks(o) == 0 || sameAddress(o.Spec.PublicIP.Address, address))
		if wants && o.UID != klb.UID && compare(o, first) < 0 {
			first = o
		}
	}
	if first == klb {
		return nil
	}
	return first
}

// hasAddress reports whether a status names the floating IP of an address, also while that is withheld.
func hasAddress(klb *v1.KuryrLoadBalancer, address string) bool {
	s := &klb.Status
	return s.PublicIP != nil && sameAddress(s.PublicIP.IP, address) || s.WithheldPublicIP != "" && sameAddress(s.WithheldPublicIP, address)
}

// withheld returns the address that status.withheldPublicIP is to name after a round that has placed the
// floating IP, or has none to place. A floating IP that Kuryr made has one user.
func withheld(s *v1.KuryrLoadBalancerStatus, klb *v1.KuryrLoadBalancer, r *Result) string {
	switch {
	case klb.Spec.PublicIP == nil || !r.Address.Withheld:
		return ""
	case s.PublicIP != nil && !s.PublicIP.Made:
		return s.PublicIP.IP
	}
	return s.WithheldPublicIP
}
