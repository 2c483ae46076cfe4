// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// release lets a KuryrLoadBalancer go: its floating IP, by how it was obtained, and
// all load balancers that bear its mark. It needs no status.
func (r *Reconciler) release(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory) (ctrl.Result, error) {
	if !hasFinalizer(klb) {
		return ctrl.Result{}, nil
	}
	r.quotas.Forget(kube.RequestOf(klb))
	o := &round{}
	if m.untouched {
		return r.drop(ctx, klb, m)
	}
	if o.err = r.unpublish(ctx, klb, m, o); o.err != nil {
		return r.reportLeaving(ctx, klb, m, o)
	}
	if id, since := r.wait.WaitsFor(kube.RequestOf(klb)); id != "" && m.leaving {
		o.waiting, o.since = id, since
		return r.reportLeaving(ctx, klb, m, o)
	}
	o.err = r.remove(ctx, klb, m, o)
	if o.err != nil || o.waiting != "" || o.again > 0 {
		return r.reportLeaving(ctx, klb, m, o)
	}
	return r.drop(ctx, klb, m)
}

// remove asks for all to be deleted; o.waiting is set if something is still going.
func (r *Reconciler) remove(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round) error {
	owned, err := r.owned(ctx, klb)
	if errors.Is(err, sdn.ErrNoService) && len(balancer.Named(klb)) == 0 {
		owned, err = nil, nil // where there are no load balancers it has none
	}
	if err != nil {
		return err
	}
	trees, err := r.unlisted(ctx, klb, owned)
	if err != nil {
		return err
	}
	for i := range trees {
		owned = append(owned, sdn.LoadBalancerSummary{ID: trees[i].ID})
	}
	if err := r.withdraw(ctx, klb, m, owned, o); err != nil {
		return err
	}
	for _, lb := range owned {
		// One whose deletion ended in ERROR is not deleted over and over without a pause.
		if a := m.stubborn[lb.ID]; a != nil && a.Times >= balancer.IneffectiveAfter && r.now().Before(a.Next) {
			o.again = a.Next.Sub(r.now())
			o.broken = append(o.broken, "load balancer "+lb.ID)
			continue
		}
		err := r.cloud.DeleteLoadBalancer(ctx, lb.ID)
		var pending *sdn.PendingError
		if err != nil && !errors.As(err, &pending) {
			return fmt.Errorf("deleting load balancer %s: %w", lb.ID, err)
		}
		r.deleted(ctx, m, lb.ID, lb.ID)
		if err != nil {
			r.await(lb.ID, klb, o)
		}
	}
	return r.unfence(ctx, klb, m, o)
}

// unlisted returns the load balancers that the status names and no list shows:
// somebody has taken their tags off.
func (r *Reconciler) unlisted(ctx context.Context, klb *v1.KuryrLoadBalancer, listed []sdn.LoadBalancerSummary) ([]sdn.LoadBalancer, error) {
	ids := slices.DeleteFunc(balancer.Named(klb), func(id string) bool {
		return slices.ContainsFunc(listed, func(s sdn.LoadBalancerSummary) bool { return s.ID == id })
	})
	trees, _, err := r.read(ctx, klb, ids)
	return slices.DeleteFunc(trees, func(lb sdn.LoadBalancer) bool { return lb.Provisioning == sdn.ProvisioningDeleted }), err
}

// deleted notes that a load balancer was asked to go, and says so once: it is not
// gone by then, and nobody is told when it is.
func (r *Reconciler) deleted(ctx context.Context, m *memory, key, id string) {
	if m.stubborn.Did(key, r.now(), r.backoff.Min) == 1 {
		ctrl.LoggerFrom(ctx).Info("deleted load balancer", "loadBalancer", id)
	}
}

// withdraw gives the floating IP back. The ports that it may be taken from are read
// of the load balancers that the status does not name.
func (r *Reconciler) withdraw(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, owned []sdn.LoadBalancerSummary, o *round) error {
	if o.located {
		return nil
	}
	if may, err := r.mayHaveAddress(ctx, klb, m); !may || err != nil {
		return err
	}
	at := balancer.Place{Own: portsOf(klb)}
	var unnamed []string
	for _, lb := range owned {
		if !slices.Contains(balancer.Named(klb), lb.ID) {
			unnamed = append(unnamed, lb.ID)
		}
	}
	trees, _, err := r.read(ctx, klb, unnamed)
	if err != nil {
		return err
	}
	for i := range trees {
		at.Own = append(at.Own, trees[i].VIPPortID)
	}
	return r.place(ctx, klb, m, at, o)
}

// unpublish takes the floating IP from what is not to have one any more, before Octavia
// is asked for anything or waited for: from the ports that the status names. What may be
// at others has to wait until these are known.
func (r *Reconciler) unpublish(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round) error {
	if klb.Spec.PublicIP != nil && klb.DeletionTimestamp.IsZero() || len(klb.Status.LoadBalancers) == 0 {
		return nil
	}
	if m.public == private { // it was taken away before, whatever the status says still
		o.located = true
		return nil
	}
	if may, err := r.mayHaveAddress(ctx, klb, m); !may || err != nil {
		return err
	}
	if err := r.place(ctx, klb, m, balancer.Place{Own: portsOf(klb), Partial: true}, o); err != nil {
		return err
	}
	if o.address.Unsure {
		o.address, o.located = balancer.Address{}, false
		m.public, m.suspected = maybeOpen, true
	}
	r.held.Forget(kube.RequestOf(klb))
	return nil
}
