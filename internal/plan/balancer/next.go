// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Input is all that Next decides from. Next changes nothing of it.
type Input struct {
	// LoadBalancer is the object with the spec to apply now.
	LoadBalancer *v1.KuryrLoadBalancer
	// Trees are all load balancers that its owner has in the cloud, in any order.
	Trees []sdn.LoadBalancer
	// Features are those of the provider.
	Features sdn.Features
	// Attempts is what was tried before.
	Attempts Attempts
	// Busy are load balancers that are waited for already. Nothing is planned for them.
	Busy []string
	Now  time.Time
	// Pause is the first pause between two repairs of what serves, usually 30 s. All others are in proportion.
	Pause time.Duration
}

// Actions is what to do next. All steps may be tried one after the other: Steps, Remedies, Last.
// After any of them the cloud has to be read again.
type Actions struct {
	// Attempts is what was tried before and still matters.
	Attempts Attempts
	// Want are the load balancers as the provider can make them, without the members that the
	// cloud refuses for now.
	Want []sdn.LoadBalancer

	// Steps bring the cloud in line with what is wanted. Steps that keep clients out come
	// first, at all addresses of the Service. Additions come before removals, wherever the
	// cloud can have both at once.
	Steps []Step
	// Remedies are about objects in ERROR, and about objects that cannot be deleted.
	Remedies []Fault
	// Last are the deletions of what the replacement has outlived.
	Last []Step

	// Busy are the load balancers that accept no change now. Unfinished accept changes, but the
	// provider is still at work on the objects below them: no list shows when these are done.
	Busy, Unfinished []string
	// Wake is when to plan again at the latest, although nothing has changed; 0: never. Reread is when
	// to read the unfinished ones again.
	Wake, Reread time.Duration

	// Withholds says that the load balancer may have no floating IP: it does not keep the source
	// ranges. Open says that clients outside of them may come in until the steps are done.
	Withholds, Open bool

	Report
}

// Report is what a status says of a plan, besides what comes of its steps.
type Report struct {
	Problems []Problem           // what the provider cannot do
	Kept     []v1.UnchangedField // fields that differ and stay, as only a new load balancer could change them
	Disabled []string            // what a person has disabled: it stays so
	// DisabledMembers are likewise; their pools serve by others.
	DisabledMembers []string

	Broken []string // objects in ERROR, and objects that cannot be deleted
	Tried  []string // what was tried for them, and what comes next
	Spent  bool     // everything was tried as often as it may be, for now

	RefusedMembers []string // members that the cloud refuses, and why
	Partial        bool     // some members are left out for now
	AcceptedAsIs   []Step   // updates without effect, which are not repeated: the cloud's defaults differ
	NotApplied     []Step   // all other steps without effect: they are tried again
	Failed         []string // failures that do no harm

	// Complete says that all load balancers that are wanted are ACTIVE with all their ports, and
	// no part of them is in ERROR.
	Complete bool
}

// Next returns what to do with the load balancers of one KuryrLoadBalancer. Of several at one
// VIP, the one that the status names stays, if it fits.
func Next(in Input) Actions {
	p := planner{in: in}
	p.Attempts = maps.Clone(in.Attempts)
	p.Want, p.Problems = Want(in.LoadBalancer, p.in.Features)
	p.Problems = append(p.Problems, brokenMonitors(in.Trees)...)
	p.leaveRefused()
	p.Withholds, p.Open = WithholdsFloatingIP(in.LoadBalancer, p.in.Features), AdmitsOthers(p.Want, in.Trees, Named(in.LoadBalancer))
	p.Unfinished, p.Reread = p.Attempts.Unfinished(in.Trees, in.Now, in.Pause)
	p.left = slices.Concat(in.Busy, p.Unfinished)
	p.compare()
	p.repair()
	p.leaveIneffective()
	p.Complete = len(p.faults) == 0 && !slices.ContainsFunc(p.places, func(a *place) bool { return !a.isThere() })
	return p.Actions
}

// planner is a plan being made.
type planner struct {
	Actions
	in     Input
	left   []string // load balancers that are waited for: nothing is planned for them
	places []*place
	faults []Fault // the broken objects that no step repairs
}

// wake has the next plan be made after a pause at the latest.
func (p *planner) wake(after time.Duration) {
	p.Wake = min(after, cmp.Or(p.Wake, after))
}
