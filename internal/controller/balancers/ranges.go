// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// ensuredGroup is what came of the request for the security group that keeps the source ranges.
type ensuredGroup struct {
	wanted bool  // the security group is to exist, as soon as a member's port can have it
	err    error // the cloud's answer
	wide   bool  // it may admit clients outside the source ranges
}

// groupMemory is the security group as Kuryr made it last, and the members that lack it.
type groupMemory struct {
	id    string
	rules []sdn.Rule

	balancer.CoverageMemory
}

// is reports whether the security group that the status names was made as the spec says.
func (f *groupMemory) is(klb *v1.KuryrLoadBalancer) bool {
	rules, _ := balancer.RangeGroupRules(klb)
	return f.id != "" && f.id == klb.Status.SecurityGroupID && slices.Equal(f.rules, rules)
}

// keepByGroup has a security group on the members' ports keep the source ranges, where the
// provider does not. Without ranges the group admits every client. It returns the spec that is
// left to the load balancers. The status names the group before a port gets it.
func (v *reconciliation) keepByGroup(ctx context.Context, spec *v1.KuryrLoadBalancer, f sdn.Features) (*v1.KuryrLoadBalancer, error) {
	if f.Unsure {
		return spec, nil
	}
	byGroup := v.Cloud.SecurityGroups != nil && balancer.NeedsRangeGroup(spec, f)
	if v.round.ensured.wanted = byGroup; !byGroup {
		v.round.Group.Known = v.Cloud.SecurityGroups != nil
		return spec, nil
	}
	rest := balancer.WithoutRanges(spec)
	found, verdict, err := v.assess(ctx)
	if err = errors.Join(err, v.round.ensured.err); err == nil && found.Reached && v.klb.Status.SecurityGroupID == "" { // else see enforceRanges
		err = v.ensureGroup(ctx, found.ProjectID)
	}
	if v.round.Group.ID = v.klb.Status.SecurityGroupID; err != nil {
		return rest, err
	}
	v.round.Group.Known, v.round.Group.Verdict = true, verdict
	_, missing := balancer.RangeGroupRules(v.klb)
	v.round.Group.Problems = append(verdict.Problems(v.klb), missing...)
	return rest, nil
}

// assess returns how far the security group of the status keeps the source ranges, and what that
// means.
func (v *reconciliation) assess(ctx context.Context) (balancer.Coverage, balancer.Verdict, error) {
	var failed error
	found := balancer.Covered(v.klb, v.klb.Status.SecurityGroupID, func(ip string) []*v1.KuryrPort {
		ports, err := kube.PortsAt(ctx, v.client, ip)
		failed = errors.Join(failed, err)
		return ports
	})
	if failed != nil {
		return found, balancer.Verdict{}, failed
	}
	return found, v.memory.group.Assess(v.klb, &found, v.Now(), v.patience()), nil
}

// ensureGroup makes the security group as the spec says, unless it is known to be so, and
// writes its ID into the status.
func (v *reconciliation) ensureGroup(ctx context.Context, project string) error {
	sure := v.memory.group.id == "" && balancer.IsReady(v.klb) || v.memory.group.is(v.klb)
	was := v.klb.Status.SecurityGroupID
	mended, err := v.makeGroup(ctx, project)
	if err == nil && sure && mended {
		err = v.reportDrift(ctx, []string{"restore security group " + was + " as " + v.klb.Status.SecurityGroupID})
	}
	if v.round.ensured.err = err; err != nil && !sure {
		v.memory.group.id, v.memory.group.rules = "", nil
		// A refusal by the quota says that the group has no rule too many. A group that
		// admits every client cannot be too wide.
		v.round.ensured.wide = !balancer.Open(v.klb) && !errors.Is(err, sdn.ErrQuota)
	}
	return err
}

// makeGroup creates the security group or mends its rules. It reports whether another user of
// the cloud had changed or deleted the group.
func (v *reconciliation) makeGroup(ctx context.Context, project string) (mended bool, err error) {
	has := v.klb.Status.SecurityGroupID
	rules, _ := balancer.RangeGroupRules(v.klb)
	if v.memory.group.is(v.klb) && !v.memory.checkRequested {
		return false, nil
	}
	release, err := v.Making.Take(ctx, v.req)
	if err != nil {
		return false, fmt.Errorf("waiting until the old security group is deleted: %w", err)
	}
	defer release()
	// The collector must see that the status will name the group.
	if v.klb.Status.SecurityGroupState == v1.SecurityGroupNone {
		if err := v.write(ctx, func(s *v1.KuryrLoadBalancerStatus) { s.SecurityGroupState = v1.SecurityGroupWanted }); err != nil {
			return false, err
		}
	}
	name := v.klb.Namespace + "/" + v.klb.Name
	g, err := v.Cloud.SecurityGroups.EnsureSecurityGroup(ctx, ownerOf(v.klb), sdn.SecurityGroup{ID: has, Name: name, ProjectID: project, Rules: rules})
	if count("EnsureSecurityGroup", err) != nil {
		return false, fmt.Errorf("cannot make the security group of the source ranges: %w", err)
	}
	v.memory.nothingCreated = false
	v.memory.group.id, v.memory.group.rules = g.ID, rules
	if g.ID == has {
		return g.Mended, nil
	}
	ctrl.LoggerFrom(ctx).Info("made security group", "group", g.ID, "rules", len(rules))
	return has != "", v.write(ctx, func(s *v1.KuryrLoadBalancerStatus) {
		s.SecurityGroupID, s.SecurityGroupState = g.ID, v1.SecurityGroupReady
	})
}

// groupState returns the SecurityGroupState of a status that names the group id, or none. The
// status of an older version does not say that its group is ready; it stays so, as nothing
// depends on it.
func (v *reconciliation) groupState(before v1.SecurityGroupState, id string, wanted bool) v1.SecurityGroupState {
	switch {
	case !v.klb.Spec.SourceRangesAtMembers && id == "", before == "" && id != "":
		return ""
	case id != "":
		return v1.SecurityGroupReady
	case wanted:
		return v1.SecurityGroupWanted
	}
	return v1.SecurityGroupNone
}

// deleteGroup deletes the security group of a KuryrLoadBalancer in deletion. Kuryr's ports lose
// the group meanwhile. Another port with this group does not delay the Service: the collector
// deletes the group later. A group without Kuryr's mark is left to people.
func (v *reconciliation) deleteGroup(ctx context.Context) error {
	id := v.klb.Status.SecurityGroupID
	if v.Cloud.SecurityGroups == nil || id == "" {
		return nil
	}
	err := count("DeleteSecurityGroup", v.Cloud.SecurityGroups.DeleteSecurityGroup(ctx, id))
	if err == nil || v.round.Waiting.ID != "" || v.round.again > 0 { // the load balancers still exist
		return nil
	}
	if errors.Is(err, sdn.ErrInvalid) { // it has no mark any more: the collector does not find it
		v.event(v1.ReasonSecurityGroupLeft, "DeleteSecurityGroup", fmt.Sprintf("Security group %s is left in the cloud: %s. "+
			"Delete it there if it belonged to this Service", id, err))
		return nil
	}
	if v.Now().Sub(v.klb.DeletionTimestamp.Time) >= v.patience()+time.Second { // the API server cuts it to seconds
		v.event(v1.ReasonSecurityGroupLeft, "DeleteSecurityGroup", fmt.Sprintf("Security group %s cannot be deleted: %s. Kuryr deletes the Service nevertheless. It "+
			"deletes it once that is possible. Remove it from ports that are not Kuryr's", id, err))
		return nil
	}
	if pending := (*sdn.PendingError)(nil); errors.As(err, &pending) {
		v.round.again = min(pending.Retry, v.patience())
		return nil
	}
	return fmt.Errorf("deleting security group %s: %w", id, err)
}

// coveredAs is for a KuryrLoadBalancer whose members are all as they should be. public reports
// whether it should have a floating IP. described reports whether its status describes its security
// group truly. again is when that may change; zero: never.
func (v *reconciliation) coveredAs(ctx context.Context, f sdn.Features) (public, described bool, again time.Duration, err error) {
	public = v.klb.Spec.PublicIP != nil
	byGroup := v.Cloud.SecurityGroups != nil && balancer.NeedsRangeGroup(v.klb, f)
	// An older version left a status that names no group and says nothing of its state.
	if !byGroup && !f.Unsure && balancer.GivesMemberGroup(v.klb) && v.klb.Status.SecurityGroupID == "" {
		err = v.write(ctx, func(s *v1.KuryrLoadBalancerStatus) { s.SecurityGroupState = v1.SecurityGroupNone })
	}
	if !byGroup || err != nil {
		return public && !balancer.WithholdsFloatingIP(v.klb, f), true, 0, err
	}
	found, verdict, err := v.assess(ctx)
	described = (v.klb.Status.SecurityGroupID != "" || !found.Reached) && v.klb.Status.SecurityGroupState != v1.SecurityGroupNone && verdict.IsReported(v.klb)
	return public && (balancer.Open(v.klb) || len(verdict.Unprotected) == 0), described, verdict.Soon, err
}

// followGroups requeues the KuryrLoadBalancers that wait for a port to get their security group, once
// its security groups in the cloud have changed.
func (r *Reconciler) followGroups(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	old, port := e.ObjectOld.(*v1.KuryrPort), e.ObjectNew.(*v1.KuryrPort)
	if port.Annotations[v1.MemberGroupsAnnotation] == "" || slices.Equal(old.Status.AppliedSecurityGroupIDs, port.Status.AppliedSecurityGroupIDs) {
		return
	}
	for _, ip := range kube.AddressesOfPort(port) {
		klbs, err := r.Members.LoadBalancersOf(ctx, port, ip)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot find the load balancers that wait for a port", "port", port.Name)
		}
		for _, klb := range klbs {
			q.Add(kube.RequestOf(klb))
		}
	}
}

// guardAfter is for how many first pauses of mending a public load balancer may admit clients
// outside its source ranges.
const guardAfter = 2

// patience is that time.
func (r *Reconciler) patience() time.Duration { return guardAfter * r.Mend }

// tolerated returns how much longer clients outside the source ranges may come in; false: none may.
func (v *reconciliation) tolerated() (left time.Duration, open bool) {
	return v.memory.openSince.Add(v.patience()).Sub(v.Now()), !v.memory.openSince.IsZero()
}

// overdue reports whether clients outside the source ranges could come in for longer than patience.
func (v *reconciliation) overdue() bool {
	left, open := v.tolerated()
	return open && left <= 0
}

// enforceRanges applies the source ranges before any request to Octavia, which may be slow or
// unavailable: an existing security group gets its rules. If other clients may come in, the
// time starts after which the floating IP is taken away.
func (v *reconciliation) enforceRanges(ctx context.Context) (err error) {
	if v.Cloud.SecurityGroups != nil && v.klb.Status.SecurityGroupID != "" && (v.klb.Spec.SourceRangesAtMembers || len(v.klb.Spec.SourceRanges) > 0) {
		var found balancer.Coverage
		if found, _, err = v.assess(ctx); err == nil {
			err = v.ensureGroup(ctx, found.ProjectID)
		} else {
			v.round.ensured.err = err // the group is not as the status says
		}
	}
	v.noteOpen(!v.memory.openSince.IsZero() || v.round.ensured.wide || mayLetIn(v.klb))
	return err
}

// noteOpen notes whether clients outside the source ranges may come in.
func (v *reconciliation) noteOpen(open bool) {
	if !open {
		v.memory.openSince = time.Time{}
	} else if v.memory.openSince.IsZero() {
		v.memory.openSince = v.Now()
	}
}

// mayLetIn reports whether a public load balancer that keeps the source ranges itself may admit
// other clients. It compares with the ranges that the load balancer was last seen to keep.
func mayLetIn(klb *v1.KuryrLoadBalancer) bool {
	byGroup := klb.Spec.SourceRangesAtMembers && klb.Status.SecurityGroupID != ""
	if klb.Spec.PublicIP == nil || klb.Status.PublicIP == nil || balancer.Open(klb) || byGroup || balancer.IsReady(klb) {
		return false
	}
	kept := klb.Annotations[v1.KeptSourceRangesAnnotation]
	return kept == "" || balancer.Wider(strings.Split(kept, ","), klb.Spec.SourceRanges)
}

// noteKept writes the source ranges that the load balancers were seen to keep into an
// annotation; none if they admit other clients. It writes before the load balancers are
// changed.
func (v *reconciliation) noteKept(ctx context.Context, kept bool) error {
	text := ""
	if kept && v.klb.Spec.PublicIP != nil {
		text = strings.Join(v.klb.Spec.SourceRanges, ",")
	}
	if v.klb.Annotations[v1.KeptSourceRangesAnnotation] == text {
		return nil
	}
	return v.objects.Patch(ctx, v.klb, func(o *v1.KuryrLoadBalancer) {
		if delete(o.Annotations, v1.KeptSourceRangesAnnotation); text != "" {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1.KeptSourceRangesAnnotation, text)
		}
	})
}

// guardRanges lets the source ranges decide about the floating IP. open says that the load
// balancers should keep the ranges and do not do so yet. A load balancer gets no floating IP before
// the ranges are kept. It loses the floating IP that it has if the ranges are not kept in time,
// whatever the reason, and if the security group leaves a member unprotected.
func (v *reconciliation) guardRanges(ctx context.Context, open bool) error {
	unsure, group := v.round.Features.Unsure, &v.round.Group
	v.noteOpen(open || v.round.ensured.wide)
	v.round.notYetClosed = v.round.notYetClosed || unsure || open || v.round.ensured.wide
	v.round.Address.Withheld = v.round.Address.Withheld || v.overdue()
	v.round.Problems = append(v.round.Problems, group.Problems...)
	v.round.within = sooner(v.round.within, group.Soon)
	if !balancer.Open(v.klb) {
		v.round.Address.Withheld = v.round.Address.Withheld || len(group.Unprotected) > 0 && v.klb.Spec.PublicIP != nil
		v.round.notYetClosed = v.round.notYetClosed || group.Waits || group.Passing
	}
	return v.noteKept(ctx, v.round.Features.SourceRanges && !unsure && !open)
}

// unread ends a round whose load balancers could not be read. If the source ranges have not been
// kept in time, it takes the floating IP from the port that the status names.
func (v *reconciliation) unread(ctx context.Context, err error) error {
	err = errors.Join(err, v.round.ensured.err)
	if v.round.Address.Withheld = v.overdue(); v.round.Address.Withheld {
		err = errors.Join(err, v.locate(ctx, nil))
	}
	return err
}
