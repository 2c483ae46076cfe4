// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// round is what one round has found and done.
type round struct {
	trees    []sdn.LoadBalancer
	seen     bool // trees are what the cloud has; else the cloud was not read
	features sdn.Features
	problems []balancer.Problem
	asked    bool   // the provider's features are known, and problems are complete
	deferred string // the provider that stays until it may be changed
	waits    string // why what serves is not replaced now
	replaces bool   // what serves is being replaced, or a trial shows whether it can be
	complete bool   // the cloud has all load balancers as wanted

	busy       []string // load balancers that were already waited for: they are left out
	did        []string // steps that were carried out
	unfinished []string // load balancers with children that are still being changed: they are left out
	waiting    string   // a busy load balancer
	since      time.Time
	broken     []string // objects in ERROR
	mending    balancer.Mending
	// blocked is a load balancer that is not shown as busy, and refuses changes as busy.
	blocked         string
	lost            bool                // a step's object was not found: the cloud has changed
	stopped         bool                // a busy load balancer has stopped a step, maybe half way
	refusedMembers  []string            // members that the cloud refuses, and why
	withoutRefused  bool                // the next plan leaves out members that were just refused
	partial         bool                // some of them are left out for now
	disabled        []balancer.Disabled // what a person has disabled
	disabledMembers []balancer.Disabled // likewise, where other members of the pool serve
	notApplied      []string            // steps that the cloud accepts and does not carry out
	acceptedAsIs    []string            // likewise, and Kuryr leaves them so
	kept            []v1.UnchangedField // fields that apply to new load balancers only
	noted           []string            // failures that do no harm
	again           time.Duration

	group        rangeGroup    // the security group that keeps the source ranges
	withholds    bool          // no floating IP: the source ranges would not be kept
	notYetClosed bool          // the source ranges are not kept in the cloud yet
	within       time.Duration // when to check that again, at the latest; 0: no limit

	address        balancer.Address
	addressRefused bool     // the cloud refuses that floating IP
	located        bool     // address is what the cloud has and should have
	moved          []string // steps about the floating IP that were carried out

	checking bool // the KuryrLoadBalancer has not changed
	err      error
	refusals int // how often in a row the error was something not supported
}

// settled reports whether the round has found the cloud as wanted.
func (o *round) settled() bool {
	return o.err == nil && o.seen && o.located && o.address.Problem == "" && o.deferred == "" &&
		len(o.did)+len(o.broken)+len(o.notApplied)+len(o.refusedMembers)+len(o.disabled) == 0 && o.waiting == "" && o.blocked == "" && !o.lost && !o.partial
}

// provider returns the provider of a load balancer that the round has seen.
func (o *round) provider(id string) string {
	for i := range o.trees {
		if o.trees[i].ID == id {
			return o.trees[i].Provider
		}
	}
	return ""
}

// open notes that a step which narrows the source ranges was not carried out.
func (o *round) open(s balancer.Step) {
	if balancer.Narrows(s) {
		o.withholds, o.located = true, false
	}
}
