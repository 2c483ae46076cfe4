// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
)

// guardAfter is how many first pauses of mending a public load balancer may let in
// others than it is to let in.
const guardAfter = 2

// patience is how long that is.
func (r *balancers) patience() time.Duration { return guardAfter * r.mend }

// keepOut does what source ranges ask for before Octavia is asked for anything, as that
// may be slow, or away: a security group that is there gets its rules, and the patience
// with what may let others in than it is to begins.
func (r *balancers) keepOut(ctx context.Context, klb *v1.KuryrLoadBalancer, m *balancerMemory, o *round) error {
	err := r.narrow(ctx, klb, m, o)
	if m.lax.IsZero() && (o.fence.wide || mayLetIn(klb)) {
		m.lax = r.now()
	}
	return err
}

// narrow has the security group that the status names let in whom the spec says.
func (r *balancers) narrow(ctx context.Context, klb *v1.KuryrLoadBalancer, m *balancerMemory, o *round) error {
	if r.groups == nil || klb.Status.SecurityGroupID == "" || !klb.Spec.SourceRangesAtMembers && balancer.Open(klb) {
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
	if klb.Spec.PublicIP == nil || klb.Status.PublicIP == nil || balancer.Open(klb) || byGroup || isReady(klb) {
		return false
	}
	kept := klb.Annotations[v1.KeptSourceRangesAnnotation]
	return kept == "" || balancer.Wider(strings.Split(kept, ","), klb.Spec.SourceRanges)
}

// noteKept notes the source ranges that load balancers were seen to keep; none if others
// may come in, before anything is done about that.
func (r *balancers) noteKept(ctx context.Context, klb *v1.KuryrLoadBalancer, m *balancerMemory, kept bool) error {
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
func (r *balancers) guardRanges(ctx context.Context, klb *v1.KuryrLoadBalancer, m *balancerMemory, lax bool, o *round) error {
	r.guard(m, o.features.Unsure, lax || o.fence.wide, o)
	o.fence.apply(klb, o)
	return r.noteKept(ctx, klb, m, o.features.SourceRanges && !o.features.Unsure && !lax)
}

// guard sees to it that nobody comes in for long who is to stay out: a floating IP is
// not given before the source ranges are kept, and taken away if that takes its time,
// whatever the reason.
func (r *balancers) guard(m *balancerMemory, unsure, lax bool, o *round) {
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
func (r *balancers) shut(ctx context.Context, klb *v1.KuryrLoadBalancer, m *balancerMemory, o *round, err error) error {
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
