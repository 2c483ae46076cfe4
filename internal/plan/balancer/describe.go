// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Result is what a reconciliation of a KuryrLoadBalancer has found and done.
type Result struct {
	Report
	Found
	Changed     bool // something was requested, and the cloud was not read since
	Lost        bool // the object of a step was not found: somebody else changes the cloud
	Waiting     Waiting
	Blocked     string // a load balancer that is not shown as busy, and refuses changes as busy
	Replacement Replacement
	Group       Group
	Address     PlacedAddress
	Failure     *Failure
}

// Found is what was read.
type Found struct {
	Trees    []sdn.LoadBalancer
	Seen     bool // Trees are what the cloud has; else it was not read
	Features sdn.Features
	Asked    bool // the features are known, and the problems of the report complete
}

// Waiting is a load balancer that is busy; the zero value is none.
type Waiting struct {
	ID      string
	Since   time.Time
	Stuck   bool      // for so long that it is reported
	Release time.Time // until when a deleted Service waits for it; zero: until it is done
}

// Replacement is that of load balancers that serve.
type Replacement struct {
	Begun    bool   // one is being replaced, or a trial shows whether it can be
	Waits    string // why none is replaced now
	Deferred string // the provider that stays until it may be changed
}

// Group is the security group that keeps the source ranges.
type Group struct {
	Known    bool   // ID is what the status should say
	ID       string // empty: none
	State    v1.SecurityGroupState
	Problems []Problem
	Verdict
}

// PlacedAddress is the floating IP.
type PlacedAddress struct {
	Address
	Placed   bool // Has is what the cloud has and should have
	Refused  bool // Problem is a refusal of the cloud
	Withheld bool // there is to be none: the source ranges would not be kept
}

// Failure is why the reconciliation has not come to its end.
type Failure struct{ Reason, Text string }

// Condition is what Describe says under one type of condition.
type Condition struct {
	Type         string
	Is           bool
	Reason, Text string
}

// IsSettled reports whether the cloud was found as wanted.
func (r *Result) IsSettled() bool {
	return r.Failure == nil && r.Seen && r.Address.Placed && r.Address.Problem == "" && r.Replacement.Deferred == "" &&
		len(r.Broken)+len(r.NotApplied)+len(r.RefusedMembers) == 0 && !r.Changed && !r.IsDisabled() && !r.Lost && !r.Partial &&
		r.Waiting.ID == "" && r.Blocked == ""
}

// IsDisabled reports whether a person has disabled more than members.
func (r *Report) IsDisabled() bool { return len(r.Disabled) > 0 }

// Describe writes a result into the status of klb, but for the conditions, which it returns.
func Describe(s *v1.KuryrLoadBalancerStatus, klb *v1.KuryrLoadBalancer, r *Result) (all []Condition) {
	if r.Seen && (!r.Changed || len(r.Trees) > len(s.LoadBalancers)) {
		has := Status(r.Trees, klb.Spec.VIPs)
		s.LoadBalancers, s.Listeners, s.Pools, s.Members = has.LoadBalancers, has.Listeners, has.Pools, has.Members
	}
	s.WaitingFor = r.Waiting.Status()
	// As long as the floating IP is still to be taken off, the status keeps its group.
	if r.Group.Known && (!r.Address.Withheld || r.Address.Placed) {
		s.SecurityGroupID, s.SecurityGroupState = r.Group.ID, r.Group.State
	}
	if r.Group.Known {
		s.UnreachedMembers = r.Group.Unreached
	}
	if r.Address.Placed {
		s.WithheldPublicIP = withheld(s, klb, r)
		s.PublicIP = r.Address.Has
	}
	if r.Asked {
		s.Unsupported = Unsupported(r.Problems)
		if len(r.Problems) == 0 {
			all = append(all, Condition{v1.ConditionSupported, true, "Supported", "The provider does all that is asked for."})
		} else {
			all = append(all, Condition{v1.ConditionSupported, false, v1.ReasonNotSupported, joined(r.Problems, Problem.String)})
		}
	}
	if r.IsSettled() {
		s.NotChanged = r.unchanged()
		return append(all,
			Condition{v1.ConditionReady, true, v1.ReasonReady, r.ready()},
			Condition{v1.ConditionProgressing, false, "Settled", "No action needed."},
			Condition{v1.ConditionInSync, true, "InSync", "The last look at the cloud showed what this status says."})
	}
	reason, message := Unready(klb, r)
	// A load balancer that serves stays ready while it is changed. It then serves what an
	// earlier generation wanted, which observedGeneration says.
	if reason != v1.ReasonPending || !meta.IsStatusConditionTrue(klb.Status.Conditions, v1.ConditionReady) {
		all = append(all, Condition{v1.ConditionReady, false, reason, message})
	}
	return append(all, Progress(klb, r))
}

// unchanged returns the fields that differ from the spec and stay so.
func (r *Result) unchanged() []v1.UnchangedField { return slices.Concat(r.Kept, r.Address.Kept) }

// ready returns the message of a ready load balancer, with its exceptions.
func (r *Result) ready() string {
	text := "The cloud has the load balancer as wanted."
	if kept := r.unchanged(); len(kept) > 0 {
		text += " These fields apply to new load balancers only: " + joined(kept, Unchanged) +
			". Delete the KuryrLoadBalancer to recreate the load balancer. This interrupts the Service, and deletes a floating IP that Kuryr made " +
			"(the annotation loadbalancer.openstack.org/keep-floatingip: \"true\" keeps it)."
	}
	if len(r.AcceptedAsIs) > 0 {
		text += " Octavia accepted these changes and kept its own values, and Kuryr does not repeat them: " + joined(r.AcceptedAsIs, Step.String) +
			". No action is needed if the Service works."
	}
	if len(r.Failed) > 0 {
		text += " A step failed. No action needed: the load balancer serves, and Kuryr tries the step again: " + strings.Join(r.Failed, "; ") + "."
	}
	if len(r.DisabledMembers) > 0 {
		text += " " + disabledText(r.DisabledMembers) + "."
	}
	udp := slices.ContainsFunc(r.Trees, func(lb sdn.LoadBalancer) bool {
		return slices.ContainsFunc(lb.Listeners, func(l sdn.Listener) bool { return l.Protocol == "UDP" })
	})
	if udp && r.Features.KeepsUDPClients {
		text += fmt.Sprintf(" With provider %s, a UDP client that keeps sending from one source port stays with its endpoint, even after that has gone. "+
			"It gets another one when it pauses or changes its port: see docs/services.md, \"Limits\".", r.Features.Provider)
	}
	return text
}

// HoldsTurn reports whether a KuryrLoadBalancer keeps its turn to replace what serves: until its load
// balancers are complete again, or until what fails is no concern of any other one.
func HoldsTurn(klb *v1.KuryrLoadBalancer, r *Result) bool {
	if r.Failure != nil && slices.Contains([]string{v1.ReasonRejected, v1.ReasonNotSupported, v1.ReasonConflict}, r.Failure.Reason) {
		return false
	}
	return r.Replacement.Waits == "" && !r.Spent && (r.Replacement.Begun || IsReplaced(klb) && !r.Complete)
}

// Progress says what Kuryr is doing.
func Progress(klb *v1.KuryrLoadBalancer, r *Result) Condition {
	if r.Spent {
		return Condition{v1.ConditionProgressing, false, "Waiting", "Kuryr's repairs did not help. Ready says when it tries again."}
	}
	c := Condition{v1.ConditionProgressing, true, "Working", "Kuryr changes the load balancer, or waits until Octavia has changed it."}
	if HoldsTurn(klb, r) {
		c.Reason = v1.ReasonReplacing
	}
	switch {
	case r.Replacement.Waits != "" && r.Replacement.Deferred != "":
		c.Text = fmt.Sprintf("The new provider waits; provider %s still serves: %s.", r.Replacement.Deferred, r.Replacement.Waits)
	case r.Replacement.Begun:
		c.Text = "Kuryr replaces a load balancer that serves, once the cloud has created another one as a trial."
	}
	return c
}

// Unready says why the cloud is not as wanted.
func Unready(klb *v1.KuryrLoadBalancer, r *Result) (reason, message string) {
	closed := ""
	if r.Address.Withheld { // although its load balancer may exist
		closed = ". The Service has no floating IP until its source ranges are enforced"
	}
	switch {
	case r.Failure != nil:
		return r.Failure.Reason, r.Failure.Text + closed
	case r.Spent:
		show := joined(r.Trees, func(lb sdn.LoadBalancer) string { return "openstack loadbalancer status show " + lb.ID })
		return v1.ReasonLoadBalancerInError, "ERROR in Octavia, and Kuryr's repairs did not help. To see the objects: " + show + ". Tried: " + strings.Join(r.Tried, "; ")
	case r.Replacement.Waits != "" && len(r.Broken) > 0:
		return v1.ReasonLoadBalancerInError, "ERROR in Octavia, and clients are served: " + strings.Join(r.Broken, ", ") + ". Kuryr replaces it later: " + r.Replacement.Waits
	case len(r.Tried) > 0:
		return v1.ReasonLoadBalancerInError, "ERROR in Octavia; Kuryr repairs it: " + strings.Join(r.Tried, "; ")
	case len(r.Broken) > 0:
		return v1.ReasonLoadBalancerInError, "ERROR in Octavia: " + strings.Join(r.Broken, ", ")
	case len(r.RefusedMembers) > 0:
		return v1.ReasonRejected, "Octavia refuses members: " + strings.Join(r.RefusedMembers, "; ") + ". The other endpoints are members. Kuryr tries the refused ones again. " +
			"Check their addresses in the Service's EndpointSlices, and their subnets"
	case r.IsDisabled():
		text := disabledText(r.Disabled)
		if r.Features.DisabledBlocks {
			text += fmt.Sprintf(". Until then Kuryr does not change endpoints, nor add ports: with provider %s such a change would never end", r.Features.Provider)
		}
		return v1.ReasonDisabled, text
	case r.Address.Problem != "" && r.Address.Refused:
		return v1.ReasonFloatingIPRefused, r.Address.Problem
	case r.Address.Problem != "":
		return v1.ReasonFloatingIPNotUsable, r.Address.Problem
	case len(r.NotApplied) > 0:
		return v1.ReasonNotApplied, "Octavia accepted these changes but did not apply them: " + joined(r.NotApplied, Step.String) + ". Kuryr tries again by itself" + closed
	case r.Blocked != "":
		return v1.ReasonLoadBalancerBusy, fmt.Sprintf("Load balancer %s refuses each change as busy, although Octavia does not show it as busy. Another object in Octavia may block it, "+
			"such as an L7 policy that uses a pool. Check it in Octavia. Kuryr tries again by itself", r.Blocked)
	case r.Waiting.Stuck:
		return v1.ReasonLoadBalancerBusy, r.Waiting.text(klb)
	case r.Group.Waits && klb.Status.PublicIP == nil && klb.Spec.PublicIP != nil:
		return v1.ReasonPending, "The Service gets its floating IP once an endpoint has its security group, " + r.Group.ID
	}
	return v1.ReasonPending, "Kuryr or Octavia is still changing the load balancer."
}

// disabledText says what a person has disabled, and how to enable it again.
func disabledText(all []string) string {
	return "Somebody disabled in Octavia: " + strings.Join(all, ", ") + ". Kuryr does not change that; the commands enable it again"
}

// Status is what a status says of a load balancer that stays busy.
func (w *Waiting) Status() *v1.WaitingStatus {
	if !w.Stuck {
		return nil
	}
	return &v1.WaitingStatus{LoadBalancerID: w.ID, Since: metav1.Time{Time: w.Since.Truncate(time.Second)}}
}

// text says what waits for a load balancer that stays busy, and what Octavia's operator can do.
func (w *Waiting) text(klb *v1.KuryrLoadBalancer) string {
	waits := "changes of the Service and of its endpoints wait"
	if !klb.DeletionTimestamp.IsZero() {
		waits = "the Service and its namespace stay until it is deleted"
		if !w.Release.IsZero() {
			waits = fmt.Sprintf("the Service and its namespace stay until it is deleted, or until %s (services.releaseAfter)", w.Release.UTC().Format(time.RFC3339))
		}
	}
	return fmt.Sprintf("Load balancer %[1]s has been busy in Octavia since %[2]s: %[3]s. "+
		"See 'openstack loadbalancer status show %[1]s', and the logs of octavia-api and octavia-driver-agent (provider ovn), or of octavia-worker and octavia-health-manager (amphora). "+
		"With provider ovn, a PENDING state some minutes old never ends by itself, and restarting Octavia does not help. "+
		"If nothing works on it any more, Octavia's operator runs in the database: %[4]s; Kuryr then deletes or repairs the load balancer. "+
		"docs/services.md, \"When it stays busy\", has the steps", w.ID, w.Since.UTC().Format(time.RFC3339), waits, fmt.Sprintf(setError, w.ID))
}

// setError ends the busy state of a load balancer in Octavia's database. docs/services.md has the
// same statement.
const setError = "UPDATE octavia.load_balancer SET provisioning_status = 'ERROR' WHERE id = '%s' AND provisioning_status LIKE 'PENDING%%'"

// joined joins what text says of each.
func joined[T any](all []T, text func(T) string) string {
	each := make([]string, len(all))
	for i, one := range all {
		each[i] = text(one)
	}
	return strings.Join(each, "; ")
}
