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

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// fencing is what a round has found of the security group that keeps source ranges.
type fencing struct {
	known bool   // group is what the status is to say
	group string // empty: none
	told  []balancer.Problem
	balancer.Verdict
	done bool  // the cloud was asked for it in this round
	err  error // and this came of it
	wide bool  // so that it may let in others than it is to
}

// fenceMemory is the security group as it was made last, and whom it did not reach.
type fenceMemory struct {
	group string
	rules []sdn.Rule
	going time.Time // when it was first asked to go with its KuryrLoadBalancer

	balancer.Coverage
}

// is reports whether the security group that the status names was made as the spec says.
func (f *fenceMemory) is(klb *v1.KuryrLoadBalancer) bool {
	return f.group != "" && f.group == klb.Status.SecurityGroupID && slices.Equal(f.rules, balancer.FenceRules(klb))
}

// fence has a security group on the members' ports keep the source ranges, or let
// everybody in where there are none, where that is its task, and returns what is left
// to the load balancers. The status names the group before the planner of the ports
// can give it to any.
func (r *Reconciler) fence(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, spec *v1.KuryrLoadBalancer, f sdn.Features, o *round) (*v1.KuryrLoadBalancer, error) {
	if f.Unsure {
		return spec, nil
	}
	fenced := r.groups != nil && balancer.Fenced(spec, f)
	if err := r.grants.Need(ctx, klb, fenced); err != nil || !fenced {
		o.fence.known = err == nil && r.groups != nil
		return spec, err
	}
	rest := balancer.Unfenced(spec)
	found, err := r.surround(ctx, klb)
	if err != nil {
		return rest, err
	}
	o.fence.group = klb.Status.SecurityGroupID
	if found.Reached || o.fence.group != "" {
		if o.fence.group, err = r.ensureFence(ctx, klb, m, found.ProjectID, o); err != nil {
			return rest, err
		}
	}
	o.fence.known, o.fence.Verdict = true, m.fence.Assess(klb, &found, r.now(), r.patience())
	o.fence.told = o.fence.Problems(klb)
	if p, is := balancer.TooManyRules(klb); is {
		o.fence.told = append(o.fence.told, p)
	}
	return rest, nil
}

// surround returns how far the group of the status keeps the source ranges.
func (r *Reconciler) surround(ctx context.Context, klb *v1.KuryrLoadBalancer) (balancer.Fence, error) {
	var failed error
	f := balancer.Surround(klb, klb.Status.SecurityGroupID, func(ip string) []*v1.KuryrPort {
		ports, err := kube.PortsAt(ctx, r.client, ip)
		failed = errors.Join(failed, err)
		return ports
	})
	return f, failed
}

// ensureFence makes the security group what it is to be, if it may be otherwise, and
// writes into the status which it is. A round does that once.
func (r *Reconciler) ensureFence(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, project string, o *round) (string, error) {
	if !o.fence.done {
		o.fence.done = true
		sure := m.fence.group == "" && balancer.IsReady(klb) || m.fence.is(klb)
		was := klb.Status.SecurityGroupID
		var mended bool
		if mended, o.fence.err = r.makeFence(ctx, klb, m, project); o.fence.err == nil && sure && mended {
			o.fence.err = r.tellDrift(ctx, klb, m, []string{"have security group " + was + " as it was, by " + klb.Status.SecurityGroupID})
		}
		if o.fence.err != nil && !sure {
			m.fence.group, m.fence.rules = "", nil
			// For a quota it has none too many, and what is for all cannot be too wide.
			o.fence.wide = !balancer.Open(klb) && !errors.Is(o.fence.err, sdn.ErrQuota)
		}
	}
	return klb.Status.SecurityGroupID, o.fence.err
}

// makeFence does that, and reports whether somebody has changed or deleted what there was.
func (r *Reconciler) makeFence(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, project string) (mended bool, err error) {
	rules, has := balancer.FenceRules(klb), klb.Status.SecurityGroupID
	if m.fence.is(klb) && !m.check {
		return false, nil
	}
	release, err := r.making.Take(ctx, kube.RequestOf(klb))
	if err != nil {
		return false, fmt.Errorf("waiting for a security group to be deleted: %w", err)
	}
	defer release()
	name := klb.Namespace + "/" + klb.Name
	g, err := r.groups.EnsureSecurityGroup(ctx, ownerOf(klb), sdn.SecurityGroup{ID: has, Name: name, ProjectID: project, Rules: rules})
	if err != nil {
		return false, fmt.Errorf("having a security group keep the source ranges: %w", err)
	}
	m.untouched = false
	m.fence.group, m.fence.rules = g.ID, rules
	if g.ID == has {
		return g.Mended, nil
	}
	ctrl.LoggerFrom(ctx).Info("made security group", "group", g.ID, "rules", len(rules))
	s := *klb.Status.DeepCopy()
	s.SecurityGroupID = g.ID
	return has != "", r.write(ctx, klb, m, &s)
}

// apply has what the fence has found count for the floating IP.
func (f *fencing) apply(klb *v1.KuryrLoadBalancer, o *round) {
	o.problems = append(o.problems, f.told...)
	if f.Soon > 0 && (o.within == 0 || f.Soon < o.within) {
		o.within = f.Soon
	}
	if balancer.Open(klb) {
		return
	}
	o.withheld = o.withheld || len(f.Bare) > 0 && klb.Spec.PublicIP != nil
	o.closing = o.closing || f.Waits || f.Passing
}

// unfence deletes the security group of a KuryrLoadBalancer that goes. The ports lose
// it meanwhile, as one that goes gives it to none any more. What keeps it for longer,
// as somebody's own port does, keeps no Service: the collector deletes it once that can be.
// One that lost its mark is its owner's to delete.
func (r *Reconciler) unfence(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round) error {
	id := klb.Status.SecurityGroupID
	if r.groups == nil || id == "" {
		return nil
	}
	err := r.groups.DeleteSecurityGroup(ctx, id)
	if err == nil || o.waiting != "" || o.again > 0 { // the load balancers are not gone yet
		return nil
	}
	if errors.Is(err, sdn.ErrInvalid) { // it bears no mark any more: nobody finds it later
		r.event(klb, v1.ReasonSecurityGroupLeft, "DeleteSecurityGroup", fmt.Sprintf("Security group %s is left in the cloud: %s. "+
			"Delete it there if it was this Service's", id, err))
		return nil
	}
	if m.fence.going.IsZero() {
		m.fence.going = r.now()
	}
	if r.now().Sub(m.fence.going) >= r.patience() {
		r.event(klb, v1.ReasonSecurityGroupLeft, "DeleteSecurityGroup", fmt.Sprintf("Security group %s cannot be deleted: %s. The Service goes without it, and Kuryr "+
			"deletes it once that is possible: take it from ports that are not Kuryr's", id, err))
		return nil
	}
	if pending := (*sdn.PendingError)(nil); errors.As(err, &pending) {
		o.again = min(pending.Retry, r.patience())
		return nil
	}
	return fmt.Errorf("deleting security group %s: %w", id, err)
}

// fencedAs reports whether a KuryrLoadBalancer whose members all have what they are to
// have has a floating IP, and whether its status says of its security group what is so;
// and when that may be otherwise, if it may.
func (r *Reconciler) fencedAs(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, f sdn.Features) (public, told bool, again time.Duration, err error) {
	public = klb.Spec.PublicIP != nil
	fenced := r.groups != nil && balancer.Fenced(klb, f)
	if !f.Unsure {
		err = r.grants.Need(ctx, klb, fenced)
	}
	if !fenced || err != nil {
		return public && !balancer.Withheld(klb, f), true, 0, err
	}
	found, err := r.surround(ctx, klb)
	v := m.fence.Assess(klb, &found, r.now(), r.patience())
	told = (klb.Status.SecurityGroupID != "" || !found.Reached) && v.IsTold(klb)
	return public && (balancer.Open(klb) || len(v.Bare) == 0), told, v.Soon, err
}

// guards returns the KuryrLoadBalancers that wait for a port to have their group.
func (r *Reconciler) guards(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	port := o.(*v1.KuryrPort)
	for _, ip := range kube.AddressesOfPort(port) {
		klbs, err := r.grants.Granting(ctx, port, ip)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot tell what load balancers wait for a port", "port", port.Name)
		}
		for _, klb := range klbs {
			requests = append(requests, kube.RequestOf(klb))
		}
	}
	return requests
}

// groupsMoved lets pass that a port has other security groups in the cloud.
var groupsMoved = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.(*v1.KuryrPort), e.ObjectNew.(*v1.KuryrPort)
		return b.Annotations[v1.MemberGroupsAnnotation] != "" && !slices.Equal(a.Status.AppliedSecurityGroupIDs, b.Status.AppliedSecurityGroupIDs)
	},
}

// guardAfter is how many first pauses of mending a public load balancer may let in
// others than it is to let in.
const guardAfter = 2

// patience is how long that is.
func (r *Reconciler) patience() time.Duration { return guardAfter * r.mend }

// keepOut does what source ranges ask for before Octavia is asked for anything, as that
// may be slow, or away: a security group that is there gets its rules, and the patience
// with what may let others in than it is to begins.
func (r *Reconciler) keepOut(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round) error {
	err := r.narrow(ctx, klb, m, o)
	if m.lax.IsZero() && (o.fence.wide || mayLetIn(klb)) {
		m.lax = r.now()
	}
	return err
}

// narrow has the security group that the status names let in whom the spec says.
func (r *Reconciler) narrow(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round) error {
	if r.groups == nil || klb.Status.SecurityGroupID == "" || !klb.Spec.SourceRangesAtMembers && len(klb.Spec.SourceRanges) == 0 {
		return nil
	}
	found, err := r.surround(ctx, klb)
	if err != nil {
		return err
	}
	_, err = r.ensureFence(ctx, klb, m, found.ProjectID, o)
	return err
}

// mayLetIn reports whether a public load balancer whose task the source ranges are may
// keep others than are wanted, by what was seen last.
func mayLetIn(klb *v1.KuryrLoadBalancer) bool {
	byGroup := klb.Spec.SourceRangesAtMembers && klb.Status.SecurityGroupID != ""
	if klb.Spec.PublicIP == nil || klb.Status.PublicIP == nil || balancer.Open(klb) || byGroup || balancer.IsReady(klb) {
		return false
	}
	kept := klb.Annotations[v1.KeptSourceRangesAnnotation]
	return kept == "" || balancer.Wider(strings.Split(kept, ","), klb.Spec.SourceRanges)
}

// noteKept notes the source ranges that load balancers were seen to keep; none if others
// may come in, before anything is done about that.
func (r *Reconciler) noteKept(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, kept bool) error {
	text := ""
	if kept && klb.Spec.PublicIP != nil {
		text = strings.Join(klb.Spec.SourceRanges, ",")
	}
	if klb.Annotations[v1.KeptSourceRangesAnnotation] == text {
		return nil
	}
	return r.patch(ctx, klb, m, func(o client.Object) {
		all := o.GetAnnotations()
		if delete(all, v1.KeptSourceRangesAnnotation); text != "" {
			if all == nil {
				all = map[string]string{}
			}
			all[v1.KeptSourceRangesAnnotation] = text
		}
		o.SetAnnotations(all)
	})
}

// guardRanges says what source ranges mean for the floating IP; lax: the load balancers
// do not keep them yet, if that is their task.
func (r *Reconciler) guardRanges(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, lax bool, o *round) error {
	r.guard(m, o.features.Unsure, lax || o.fence.wide, o)
	o.fence.apply(klb, o)
	return r.noteKept(ctx, klb, m, o.features.SourceRanges && !o.features.Unsure && !lax)
}

// guard sees to it that nobody comes in for long who is to stay out: a floating IP is
// not given before the source ranges are kept, and taken away if that takes its time,
// whatever the reason.
func (r *Reconciler) guard(m *memory, unsure, lax bool, o *round) {
	o.closing = unsure || lax
	switch rest := m.closes(lax, r.now(), r.patience()); {
	case !lax:
	case rest <= 0:
		o.withheld = true
	default:
		o.within = rest
	}
}

// shut does likewise where nothing is known of the load balancers, as err says: the
// floating IP is taken from the port that the status names.
func (r *Reconciler) shut(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round, err error) error {
	err = errors.Join(err, o.fence.err)
	switch {
	case m.lax.IsZero():
	case m.overdue(r.now(), r.patience()):
		o.withheld = true
		return errors.Join(err, r.locate(ctx, klb, m, nil, o))
	default:
		o.within = m.lax.Add(r.patience()).Sub(r.now())
	}
	return err
}
