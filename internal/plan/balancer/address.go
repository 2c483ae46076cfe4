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

// CreateFloatingIP makes a floating IP.
type CreateFloatingIP struct{ Request sdn.FloatingIPRequest }

// Associate gives a port the floating IP, which is nobody's.
type Associate struct{ ID, Address, PortID string }

// Dissociate takes the floating IP from the port that it was seen at, and from no
// other: whoever has been given it since keeps it.
type Dissociate struct{ ID, Address, PortID string }

// DeleteFloatingIP removes a floating IP that a port has; empty: none.
type DeleteFloatingIP struct{ ID, Address, PortID string }

// DisownFloatingIP takes the cluster's mark off a floating IP that is kept.
type DisownFloatingIP struct{ ID, Address string }

func (s CreateFloatingIP) String() string {
	return strings.TrimSuffix("create floating IP "+s.Request.Address, " ") + " of network " + s.Request.NetworkID
}

func (s Associate) String() string {
	return "give floating IP " + s.Address + " to port " + s.PortID
}

func (s Dissociate) String() string {
	return "take floating IP " + s.Address + " from port " + s.PortID
}

func (s DeleteFloatingIP) String() string { return "delete floating IP " + s.Address }

func (s DisownFloatingIP) String() string { return "keep floating IP " + s.Address }

// Address is what to do about the floating IP of a KuryrLoadBalancer.
type Address struct {
	// Steps are carried out in this order; then there is a plan anew, with what
	// they brought.
	Steps []Step
	// Has is the floating IP as it is to be; with a Problem the one that is in place.
	// nil if there is none.
	Has *v1.PublicIPStatus
	// Problem says why it cannot be as wanted; empty if it can.
	Problem string
	// Kept says what differs and stays, as it could be had only by giving the address
	// up, for people.
	Kept []string
	// Unsure says that there is more to take away, maybe, once all of Own are known.
	Unsure bool
}

// Place is where a floating IP is to be.
type Place struct {
	// Port is that of the first VIP; empty: there is none yet.
	Port string
	// Own are the ports of all load balancers of the owner, also those that are to
	// go: from no other port a floating IP is taken.
	Own []string
	// ProjectID is that of the load balancer; empty: that of the spec.
	ProjectID string
	// Withheld says that the load balancer has to have none for now, as Withheld has
	// it. One that was made for it is reserved.
	Withheld bool
	// Subnet is what the spec's subnet of floating IPs holds; zero: not known.
	Subnet netip.Prefix
	// Before is the KuryrLoadBalancer that comes before this one for the address that it
	// asks for, as Before has it; empty: none.
	Before string
	// Held says that it had the floating IP that it asks for by its address, whatever the
	// status says since: the status names none that is withheld.
	Held bool
	// Partial says that Own may lack some: a floating IP elsewhere may be at one of them.
	Partial bool
}

// NextAddress returns what to do about the floating IP, given the floating IPs that
// may be used or are owner's. A KuryrLoadBalancer that is being deleted wants none.
// One that owner has not made is never deleted, and none is taken from a port that
// is not owner's: whoever has put it there may go on with it.
func NextAddress(klb *v1.KuryrLoadBalancer, at Place, all []sdn.FloatingIP, owner sdn.Owner) Address {
	a := addresser{klb: klb, at: at, all: all, owner: owner, prior: klb.Status.PublicIP}
	switch want := klb.Spec.PublicIP; {
	case want == nil || !klb.DeletionTimestamp.IsZero():
		a.release(nil)
	case at.Withheld:
		a.withhold()
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

// here reports whether a floating IP is at a port of the owner's.
func (a *addresser) here(f *sdn.FloatingIP) bool {
	return f.PortID != "" && (f.PortID == a.at.Port || slices.Contains(a.at.Own, f.PortID))
}

// ours reports whether a floating IP is the owner's to take away from where it is.
// One that the Service asks for by its address is, where a status has lost it.
func (a *addresser) ours(f *sdn.FloatingIP) bool { return a.mine(f) || a.known(f) || a.asked(f) }

// asked reports whether a floating IP at the owner's port is what the Service asks for.
func (a *addresser) asked(f *sdn.FloatingIP) bool {
	want := a.klb.Spec.PublicIP
	return want != nil && want.Address != "" && sameAddress(want.Address, f.Address) && f.Owner == (sdn.Owner{}) && a.here(f)
}

// away reports whether somebody has given a floating IP to a port of their own.
func (a *addresser) away(f *sdn.FloatingIP) bool { return f.PortID != "" && !a.here(f) }

func dissociate(f *sdn.FloatingIP) Step { return Dissociate{f.ID, f.Address, f.PortID} }

// outlives reports whether one that owner made outlives its use.
func (a *addresser) outlives(f *sdn.FloatingIP) bool {
	if want := a.klb.Spec.PublicIP; want != nil && want.Keep {
		return true
	}
	return a.known(f) && !a.prior.Made || a.away(f)
}

// release gives back all but the one in use, by how they were obtained.
func (a *addresser) release(but *sdn.FloatingIP) {
	for i := range a.all {
		f := &a.all[i]
		if but != nil && f.ID == but.ID {
			continue
		}
		if a.at.Partial && a.away(f) {
			a.Unsure = a.Unsure || a.mine(f) || a.known(f)
			continue
		}
		if a.mine(f) && !a.outlives(f) {
			a.Steps = append(a.Steps, DeleteFloatingIP{f.ID, f.Address, f.PortID})
			continue
		}
		if a.ours(f) && a.here(f) {
			a.Steps = append(a.Steps, dissociate(f))
		}
		if a.mine(f) {
			a.Steps = append(a.Steps, DisownFloatingIP{f.ID, f.Address})
		}
	}
}

// withhold takes away what makes the load balancer public, and gives nothing back.
func (a *addresser) withhold() {
	for i := range a.all {
		switch f := &a.all[i]; {
		case !a.here(f):
		case a.ours(f):
			a.Steps = append(a.Steps, dissociate(f))
		default:
			a.Problem = fmt.Sprintf("somebody has given floating IP %s to the load balancer, which cannot keep out whom the Service says: take it away there", f.Address)
		}
	}
}

func (a *addresser) obtain(want *v1.PublicIPSpec) {
	f := a.choose(want)
	occupied := a.clear(f)
	switch {
	case a.Problem != "":
	case f == nil:
		r := sdn.FloatingIPRequest{
			ProjectID: cmp.Or(a.at.ProjectID, a.klb.Spec.ProjectID), NetworkID: want.NetworkID, SubnetID: want.SubnetID, Address: want.Address,
		}
		if !occupied {
			r.PortID = a.at.Port
		}
		a.Steps = []Step{CreateFloatingIP{r}} // the one in use is taken away when there is another
	case f.PortID == a.at.Port:
		a.inPlace(f, want)
		a.release(f)
	case a.away(f):
		a.Problem = fmt.Sprintf("floating IP %s is in use by port %s: take it from there, or ask for another address", f.Address, f.PortID)
	case f.PortID != "":
		a.Steps = append(a.Steps, dissociate(f), Associate{f.ID, f.Address, a.at.Port})
	default:
		a.Steps = append(a.Steps, Associate{f.ID, f.Address, a.at.Port})
	}
	if a.Problem != "" {
		a.Steps, a.Has = nil, a.there()
	}
}

// inPlace says what is at the VIP. One to keep bears no mark of ours from then on:
// whatever becomes of the objects, nobody takes it for something that nobody needs.
func (a *addresser) inPlace(f *sdn.FloatingIP, want *v1.PublicIPSpec) {
	a.Has = &v1.PublicIPStatus{ID: f.ID, IP: f.Address, Made: a.mine(f) && !want.Keep}
	if a.mine(f) && want.Keep {
		a.Steps = append(a.Steps, DisownFloatingIP{f.ID, f.Address})
	}
	ip, err := netip.ParseAddr(f.Address)
	switch {
	case want.Address != "":
	case !sdn.SameID(f.NetworkID, want.NetworkID):
		a.Kept = append(a.Kept, fmt.Sprintf("floating IP %s of network %s stays, wanted is one of %s", f.Address, f.NetworkID, want.NetworkID))
	case a.at.Subnet.IsValid() && err == nil && !a.at.Subnet.Contains(ip):
		a.Kept = append(a.Kept, fmt.Sprintf("floating IP %s stays, wanted is one of subnet %s (%s)", f.Address, want.SubnetID, a.at.Subnet))
	}
}

// there returns what the load balancer has although it cannot have what is wanted:
// what is forgotten would never be given back.
func (a *addresser) there() *v1.PublicIPStatus {
	for i := range a.all {
		if f := &a.all[i]; a.ours(f) && a.here(f) {
			return &v1.PublicIPStatus{ID: f.ID, IP: f.Address, Made: a.mine(f) && !a.outlives(f)}
		}
	}
	return nil
}

// clear plans to free the VIP's port of other floating IPs than f, and reports
// whether there are any. A port of one address has one floating IP at a time.
func (a *addresser) clear(f *sdn.FloatingIP) (occupied bool) {
	for i := range a.all {
		o := &a.all[i]
		if o.PortID != a.at.Port || f != nil && o.ID == f.ID {
			continue
		}
		occupied = true
		if !a.ours(o) {
			a.Problem = fmt.Sprintf("somebody has given floating IP %s to the load balancer: take it away there, or ask for this address", o.Address)
			continue
		}
		a.Steps = append(a.Steps, dissociate(o))
	}
	return occupied
}

// choose returns the floating IP to have; nil if one is to be made.
func (a *addresser) choose(want *v1.PublicIPSpec) *sdn.FloatingIP {
	var fit []*sdn.FloatingIP
	for i := range a.all {
		f := &a.all[i]
		if want.Address == "" && a.fits(f, want) {
			fit = append(fit, f)
		}
		if want.Address == "" || !sameAddress(f.Address, want.Address) {
			continue
		}
		if f.Owner != (sdn.Owner{}) && !a.mine(f) {
			a.Problem = fmt.Sprintf("floating IP %s was made for %s/%s: ask for another address", f.Address, f.Owner.Namespace, f.Owner.Name)
		}
		if f.Owner == (sdn.Owner{}) && !a.known(f) && !a.at.Held && !sdn.SameID(f.NetworkID, want.NetworkID) {
			a.Problem = fmt.Sprintf("floating IP %s is of network %s, and the Service has one of %s: ask for another address, or name that network "+
				"in the annotation loadbalancer.openstack.org/floating-network-id", f.Address, f.NetworkID, want.NetworkID)
		}
		if f.Owner == (sdn.Owner{}) && a.at.Before != "" && !a.here(f) {
			a.Problem = fmt.Sprintf("floating IP %s is for %s, which has it or is older: ask for another address", f.Address, a.at.Before)
		}
		return f
	}
	if len(fit) == 0 {
		return nil
	}
	// The one that is in place, then the one that was last in use.
	return slices.MinFunc(fit, func(x, y *sdn.FloatingIP) int { return a.rank(x) - a.rank(y) })
}

// fits reports whether a floating IP will do where no address is asked for. One that
// the Service has stays, also if another network is meant now: addresses are in use
// out there.
func (a *addresser) fits(f *sdn.FloatingIP, want *v1.PublicIPSpec) bool {
	switch {
	case a.mine(f):
		return true
	case a.known(f):
		return !a.away(f)
	}
	return f.PortID == a.at.Port && f.Owner == (sdn.Owner{}) && sdn.SameID(f.NetworkID, want.NetworkID)
}

func (a *addresser) rank(f *sdn.FloatingIP) int {
	switch {
	case f.PortID == a.at.Port:
		return 0
	case a.known(f):
		return 1
	case !a.away(f):
		return 2
	}
	return 3
}
