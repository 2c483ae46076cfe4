// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
)

// describe writes the result of a round into a status. A status that differs in the remark alone
// stays as it is. Otherwise an upgrade to a version with a new remark would write all of them.
func (v *visit) describe(s *v1.KuryrLoadBalancerStatus) {
	plain := s.DeepCopy()
	if v.describeWith(plain, ""); v.differs(plain) {
		v.describeWith(s, v.remark())
	}
}

// describeWith is describe with this remark for whoever reads that the load balancer is ready.
func (v *visit) describeWith(s *v1.KuryrLoadBalancerStatus, remark string) {
	if v.round.seen && (len(v.round.did) == 0 || len(v.round.trees) > len(s.LoadBalancers)) {
		has := balancer.Status(v.round.trees, v.klb.Spec.VIPs)
		s.LoadBalancers, s.Listeners, s.Pools, s.Members = has.LoadBalancers, has.Listeners, has.Pools, has.Members
	}
	s.WaitingFor = v.waitingFor()
	// As long as the floating IP is still to be taken off, the status keeps its group.
	if v.round.group.known && (!v.round.withholds || v.round.located) {
		s.SecurityGroupID = v.round.group.id
		s.SecurityGroupState = v.groupState(s.SecurityGroupState, s.SecurityGroupID, v.round.group.wanted)
	}
	if v.round.group.known {
		s.UnreachedMembers = v.round.group.Unreached
	}
	if v.round.located {
		s.PublicIP = v.round.address.Has
	}
	put := func(kind string, is bool, reason, message string) {
		v.set(s, kind, is, reason, message)
	}
	if v.round.asked {
		s.Unsupported = balancer.Unsupported(v.round.problems)
		if text := supported(v.round.problems); len(v.round.problems) == 0 {
			put(v1.ConditionSupported, true, "Supported", text)
		} else {
			put(v1.ConditionSupported, false, v1.ReasonNotSupported, text)
		}
	}
	if v.round.settled() {
		s.NotChanged = v.notChanged()
		text := v.ready()
		if remark != "" {
			text = strings.TrimSuffix(text, ".") + ". " + remark
		}
		put(v1.ConditionReady, true, v1.ReasonReady, text)
		put(v1.ConditionProgressing, false, "Settled", "Nothing is to be done.")
		put(v1.ConditionInSync, true, "InSync", "The last look at the cloud showed what this status says.")
		return
	}
	reason, message := v.unready()
	// A load balancer that serves stays ready while it is changed. It then serves what an
	// earlier generation wanted, which observedGeneration says.
	was := meta.FindStatusCondition(v.klb.Status.Conditions, v1.ConditionReady)
	if reason != v1.ReasonPending || was == nil || was.Status != metav1.ConditionTrue {
		put(v1.ConditionReady, false, reason, message)
	}
	put(v1.ConditionProgressing, !v.round.mending.Spent, v.working(), v.progress())
}

// notChanged returns the fields that differ from the spec and stay so.
func (v *visit) notChanged() []v1.UnchangedField {
	return slices.Concat(v.round.kept, v.round.address.Kept)
}

// ready returns the message of a ready load balancer, with its exceptions.
func (v *visit) ready() string {
	text := "The cloud has the load balancer as wanted."
	if kept := v.notChanged(); len(kept) > 0 {
		var texts []string
		for _, d := range kept {
			texts = append(texts, balancer.Unchanged(d))
		}
		text += " These fields apply to new load balancers only: " + strings.Join(texts, "; ") +
			". Delete the KuryrLoadBalancer to recreate the load balancer. This interrupts the Service, and deletes a floating IP that Kuryr made " +
			"(the annotation loadbalancer.openstack.org/keep-floatingip: \"true\" keeps it)."
	}
	if len(v.round.acceptedAsIs) > 0 {
		text += " Octavia accepted these changes and kept its own values, and Kuryr does not repeat them: " + strings.Join(v.round.acceptedAsIs, "; ") +
			". Nothing is to be done if the Service works."
	}
	if len(v.round.noted) > 0 {
		text += " A step failed. Nothing is to be done: the load balancer serves, and Kuryr tries the step again: " + strings.Join(v.round.noted, "; ") + "."
	}
	if len(v.round.disabledMembers) > 0 {
		text += " " + disabledText(v.round.disabledMembers)
	}
	return text
}

// remark says what the provider always does otherwise than a user may expect; empty: nothing.
func (v *visit) remark() string {
	if !balancer.KeepsUDPClients(v.round.trees, v.round.features) {
		return ""
	}
	return fmt.Sprintf("With provider %s, a UDP client that keeps sending from one source port stays with its endpoint, even after that has gone. "+
		"It gets another one when it pauses or changes its port: see docs/services.md, \"Limits\".", v.round.features.Provider)
}

// working is the reason of Progressing while something is to be done.
func (v *visit) working() string {
	if v.holdsTurn() {
		return v1.ReasonReplacing
	}
	return "Working"
}

// progress says what Kuryr is doing.
func (v *visit) progress() string {
	switch {
	case v.round.waits != "" && v.round.deferred != "":
		return fmt.Sprintf("The new provider waits; provider %s still serves: %s.", v.round.deferred, v.round.waits)
	case v.round.replaces:
		return "Kuryr replaces a load balancer that serves, once the cloud has created another one as a trial."
	}
	return "Kuryr changes the load balancer, or waits until Octavia has changed it."
}

// closed says that a Service has no floating IP although its load balancer exists.
func (v *visit) closed() string {
	if !v.round.withholds {
		return ""
	}
	return ". The Service has no floating IP until its source ranges are enforced"
}

// unready says why the cloud is not as wanted.
func (v *visit) unready() (reason, message string) {
	switch {
	case v.round.err != nil:
		return outcome.Of(outcome.LoadBalancer, v.round.err).Reason, v.failed() + v.closed()
	case v.round.mending.Spent:
		return v1.ReasonLoadBalancerInError, "ERROR in Octavia, and Kuryr's repairs did not help. To see the objects: " + v.showCommands() + ". Tried: " + strings.Join(v.round.mending.Tried, "; ")
	case v.round.waits != "" && len(v.round.broken) > 0:
		return v1.ReasonLoadBalancerInError, "ERROR in Octavia, and clients are served: " + strings.Join(v.round.broken, ", ") + ". Kuryr replaces it later: " + v.round.waits
	case len(v.round.mending.Tried) > 0:
		return v1.ReasonLoadBalancerInError, "ERROR in Octavia; Kuryr repairs it: " + strings.Join(v.round.mending.Tried, "; ")
	case len(v.round.broken) > 0:
		return v1.ReasonLoadBalancerInError, "ERROR in Octavia: " + strings.Join(v.round.broken, ", ")
	case len(v.round.refusedMembers) > 0:
		return v1.ReasonRejected, "Octavia refuses members: " + strings.Join(v.round.refusedMembers, "; ") + ". The other endpoints are members. Kuryr tries the refused ones again. " +
			"Check their addresses in the Service's EndpointSlices, and their subnets"
	case len(v.round.disabled) > 0:
		text := disabledText(v.round.disabled)
		if v.round.features.DisabledBlocks {
			text += fmt.Sprintf(". Until then Kuryr does not change endpoints, nor add ports: with provider %s such a change would never end", v.round.features.Provider)
		}
		return v1.ReasonDisabled, text
	case v.round.address.Problem != "" && v.round.addressRefused:
		return reasonNoWay, v.round.address.Problem
	case v.round.address.Problem != "":
		return v1.ReasonFloatingIPNotUsable, v.round.address.Problem
	case len(v.round.notApplied) > 0:
		return v1.ReasonNotTaken, "Octavia accepted these changes but did not apply them: " + strings.Join(v.round.notApplied, "; ") + ". Kuryr tries again by itself" + v.closed()
	case v.round.blocked != "":
		return v1.ReasonLoadBalancerBusy, fmt.Sprintf("Load balancer %s refuses each change as busy, although Octavia does not show it as busy. Another object in Octavia may block it, "+
			"such as an L7 policy that uses a pool. Check it in Octavia. Kuryr tries again every %s", v.round.blocked, v.backoff.Quota)
	case v.isStuck():
		return v1.ReasonLoadBalancerBusy, v.wedged()
	}
	if v.round.group.Waits && v.klb.Status.PublicIP == nil && v.klb.Spec.PublicIP != nil {
		return v1.ReasonPending, "The Service gets its floating IP once an endpoint has its security group, " + v.round.group.id
	}
	return v1.ReasonPending, "Kuryr or Octavia is still changing the load balancer."
}

// showCommands returns the commands that show all objects of the load balancers.
func (v *visit) showCommands() string {
	var commands []string
	for i := range v.round.trees {
		commands = append(commands, "openstack loadbalancer status show "+v.round.trees[i].ID)
	}
	return strings.Join(commands, "; ")
}

// failed describes the error, and what does not end in Octavia if its cluster IP cannot be held.
func (v *visit) failed() string {
	text := explain(v.round.err)
	if errors.Is(v.round.err, outcome.ErrNotPermitted) && v.isStuck() {
		text += fmt.Sprintf(". Load balancer %s has been busy in Octavia since %s", v.round.waiting, v.round.since.UTC().Format(time.RFC3339))
	}
	return text
}

// disabledText says what a person has disabled, and how to enable it again.
func disabledText(all []balancer.Disabled) string {
	var texts, commands []string
	for _, d := range all {
		texts, commands = append(texts, d.What), append(commands, d.Command)
	}
	return "Somebody disabled in Octavia: " + strings.Join(texts, ", ") + ". Kuryr does not change that. To enable again: " + strings.Join(commands, "; ")
}

// waitingFor is what the status says of a load balancer that stays busy.
func (v *visit) waitingFor() *v1.WaitingStatus {
	if !v.isStuck() {
		return nil
	}
	return &v1.WaitingStatus{LoadBalancerID: v.round.waiting, Since: metav1.Time{Time: v.round.since.Truncate(time.Second)}}
}

// wedged says what waits for a load balancer that stays busy, and what Octavia's operator can
// do.
func (v *visit) wedged() string {
	id, waits := v.round.waiting, "changes of the Service and of its endpoints wait"
	if !v.klb.DeletionTimestamp.IsZero() {
		waits = "the Service and its namespace stay until it is deleted"
		if at, ever := v.releaseAt(); ever {
			waits = fmt.Sprintf("the Service and its namespace stay until it is deleted, or until %s (services.releaseAfter)", at.UTC().Format(time.RFC3339))
		}
	}
	return fmt.Sprintf("Load balancer %[1]s has been busy in Octavia since %[2]s: %[3]s. "+
		"See 'openstack loadbalancer status show %[1]s', and the logs of octavia-api and octavia-driver-agent (provider ovn), or of octavia-worker and octavia-health-manager (amphora). "+
		"With provider ovn, a PENDING state some minutes old never ends by itself, and restarting Octavia does not help. "+
		"If nothing works on it any more, Octavia's operator runs in the database: %[4]s; Kuryr then deletes or repairs the load balancer. "+
		"docs/services.md, \"When it stays busy\", has the steps", id, v.round.since.UTC().Format(time.RFC3339), waits, fmt.Sprintf(setError, id))
}

// setError ends the busy state of a load balancer in Octavia's database. docs/services.md has the
// same statement.
const setError = "UPDATE octavia.load_balancer SET provisioning_status = 'ERROR' WHERE id = '%s' AND provisioning_status LIKE 'PENDING%%'"

// supported says what the provider can do of what is wanted.
func supported(problems []balancer.Problem) string {
	if len(problems) == 0 {
		return "The provider does all that is asked for."
	}
	return outcome.Cut(list(problems))
}

// list joins problems into one text.
func list(problems []balancer.Problem) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

// explain describes err for a person: what happened, and what to do about it.
func explain(err error) string {
	if errors.Is(err, errTaken) {
		return err.Error() + ". Release the address in the cloud, or create the Service again to get another cluster IP"
	}
	return outcome.Of(outcome.LoadBalancer, err).Explain()
}
