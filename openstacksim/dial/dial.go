// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import "time"

// Set is all that is dialled. A Set that Parse returned is not to be changed;
// it may be shared. The zero Set does nothing.
type Set struct {
	Preset   string         // its rules come after those written here
	Workers  map[string]int // by service: how many requests it works on at once; missing: no limit
	Calls    []Rule
	Ports    []PortRule
	Balances []BalanceRule
	source   []byte
	services []string // further services that rules may name
}

// Services of the simulator, which every rule may name. Others are arguments of Parse.
const (
	Identity     = "identity"
	Network      = "network"
	LoadBalancer = "load-balancer"
)

// Times selects, of the calls (ports, changes) that match a rule, those that it applies to.
type Times struct {
	From        int     // the first, counted from 1; 0 is 1
	Times       int     // how often at most; 0: no end
	Every       int     // only each n-th from then on; 0 is 1
	Probability float64 // of those; 0 is 1
}

// Rule is for calls. Of the rules that match a call, the first with a latency sets its duration,
// the first that has a fault for it makes it fail, and the first with a stop stops the process.
type Rule struct {
	Name    string
	On      Pattern
	When    []Condition
	Times   Times
	Latency *Delay // of the call
	PerItem *Delay // and for each item of a bulk create, or each row of the answer to a GET
	Script  []Step // one for each call that the rule applies to; a single fault is a script that repeats
	Repeat  bool   // restart the script at its end
	Stop    Moment
}

// PortRule is for how a bound port becomes ACTIVE. The first that applies decides.
type PortRule struct {
	Times Times
	After Delay
	Never bool // not by itself
}

// BalanceRule is for how a change of a load balancer, or of its parts, ends. The
// first that applies decides.
type BalanceRule struct {
	Kind    string // loadbalancer, listener, pool, member, healthmonitor; empty: any
	Action  string // create, update, delete; empty: any
	Times   Times
	Delay   Delay
	Outcome string // ACTIVE (empty), Broken or Stuck
}

// Outcomes of a BalanceRule other than success.
const (
	Broken = "ERROR"
	Stuck  = "STUCK" // stays PENDING
)

// Condition narrows a Rule.
type Condition string

// Conditions.
const (
	Bulk     Condition = "bulk"     // a create of several
	Single   Condition = "single"   // a create of one
	Bound    Condition = "bound"    // a port with binding:host_id
	Unbound  Condition = "unbound"  // a port without
	Parallel Condition = "parallel" // while another call that the rule fits is in progress
)

// Moment is when, around the effect of a call, something happens.
type Moment string

// Moments. The zero Moment is never.
const (
	Before Moment = "before"
	After  Moment = "after"
)

// Step is a script's fault for one call.
type Step struct {
	OK    bool // nothing happens
	Fault Fault
}

// Fault is how a call fails. If Cut, the client sees the connection end.
type Fault struct {
	Name       string // as written; empty if by status alone
	Status     int
	Type       string        // of Neutron's errors
	Message    string        // {network}, {id} and {kind} are replaced by the call's
	RetryAfter time.Duration // of 429 and 503, in whole seconds on the wire
	Effect     bool          // the requested change happens in spite of the fault
	Cut        bool          // no answer
	Hang       bool          // no answer, and the connection stays open until the client closes it
	Expire     bool          // the token is worth nothing from now on
	Death      string        // of Octavia's API in the midst of the change: "killed" or "rolled-back"
}

// Call is the part of a request that rules see.
type Call struct {
	Service string // Identity, Network, LoadBalancer, or the type of a service that was added
	Method  string
	Path    string // as the service sees it: /v2.0/ports
	Items   int    // of a bulk create; 0: no bulk
	Bound   bool
}
