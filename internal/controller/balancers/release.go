// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// release deletes what a KuryrLoadBalancer has in the cloud: its floating IP, as it was
// obtained, and all load balancers with its mark. It needs no status.
func (v *reconciliation) release(ctx context.Context) (ctrl.Result, error) {
	if !v.objects.Held(v.klb) {
		return ctrl.Result{}, nil
	}
	v.replaced(v.req)
	if v.memory.nothingCreated {
		return kube.Retry(v.objects.Drop(ctx, v.klb))
	}
	if v.round.err = v.unpublish(ctx); v.round.err != nil {
		return v.report(ctx)
	}
	if ids, since := v.wait.of(v.req); len(ids) > 0 && v.memory.leaving {
		v.round.Waiting.ID, v.round.Waiting.Since = ids[0], since
	} else {
		v.round.err = v.remove(ctx)
	}
	if v.round.err == nil && v.round.Waiting.ID == "" && v.round.again == 0 {
		return kube.Retry(v.objects.Drop(ctx, v.klb)) // nothing is left in the cloud
	}
	if held, err := v.hold(ctx); held {
		return kube.Retry(v.objects.Drop(ctx, v.klb))
	} else if err != nil {
		v.round.err = errors.Join(v.round.err, err)
	}
	return v.report(ctx)
}

// releaseAt is when a deleted Service stops waiting for Octavia; false: never.
func (v *reconciliation) releaseAt() (at time.Time, ever bool) {
	after := v.Settings.Load().Services.ReleaseAfter.Duration
	return v.klb.DeletionTimestamp.Add(after), after > 0
}

// hold has the cluster IPs held once the deletion has waited for long enough. It reports
// whether the object may be deleted: the floating IP is withdrawn by then. The collector
// deletes the load balancers, which then have no owner.
func (v *reconciliation) hold(ctx context.Context) (bool, error) {
	at, ever := v.releaseAt()
	if !ever {
		return false, nil
	}
	if left := at.Sub(v.Now()); left > 0 {
		v.round.within = left
		return false, nil
	}
	if !v.round.Address.Placed && v.mayHaveAddress() {
		return false, nil
	}
	ids := balancer.Named(v.klb)
	if owned, err := v.owned(ctx); err == nil { // else the ones that the status names must do
		for _, lb := range owned {
			ids = append(ids, lb.ID)
		}
	}
	if len(ids) == 0 {
		return false, nil // no load balancer is known
	}
	again, err := v.Holder.Hold(ctx, v.klb, ids)
	v.round.within = again
	return again == 0 && err == nil, err
}

// remains returns the load balancers that exist: those with the object's mark, and those that the status
// names and no list shows, as another user of the cloud has removed their tags.
func (v *reconciliation) remains(ctx context.Context) ([]sdn.LoadBalancerSummary, error) {
	named := balancer.Named(v.klb)
	owned, err := v.owned(ctx)
	if errors.Is(err, sdn.ErrNoService) && len(named) == 0 {
		return nil, nil // a cloud without load balancers has none of this object
	}
	if err != nil {
		return nil, err
	}
	trees, _, err := v.read(ctx, slices.DeleteFunc(named, func(id string) bool {
		return slices.ContainsFunc(owned, func(s sdn.LoadBalancerSummary) bool { return s.ID == id })
	}))
	for _, lb := range trees {
		if lb.Provisioning != sdn.ProvisioningDeleted {
			owned = append(owned, sdn.LoadBalancerSummary{ID: lb.ID, VIPPortID: lb.VIPPortID})
		}
	}
	return owned, err
}

// remove requests the deletion of everything. v.round.Waiting.ID or v.round.again is set if
// something still exists.
func (v *reconciliation) remove(ctx context.Context) error {
	owned, err := v.remains(ctx)
	if err != nil {
		return err
	}
	if err := v.withdraw(ctx, owned); err != nil {
		return err
	}
	for _, lb := range owned {
		// A load balancer whose deletion ended in ERROR is deleted again only after a pause.
		step := balancer.DeleteLoadBalancer{ID: lb.ID}
		if rest := v.memory.attempts.Rests(step, v.Now()); rest > 0 {
			v.round.again = rest
			v.round.Broken = append(v.round.Broken, "load balancer "+lb.ID)
			continue
		}
		err := v.send(ctx, step)
		if err != nil && !errors.As(err, new(*sdn.PendingError)) {
			return fmt.Errorf("deleting load balancer %s: %w", lb.ID, err)
		}
		v.deleted(ctx, lb.ID, v.memory.attempts.Did(step, v.Now(), v.Backoff.Min, ""))
		if err != nil {
			v.awaitStill(lb.ID)
		}
	}
	if err := v.freeVIPs(ctx, owned); err != nil {
		return err
	}
	return v.deleteGroup(ctx)
}

// freeVIPs removes what refused creations have left at VIPs that never got a load balancer.
// Else the next Service with this address could get none.
func (v *reconciliation) freeVIPs(ctx context.Context, owned []sdn.LoadBalancerSummary) error {
	if len(owned) > 0 { // they are being deleted, or another round follows
		return nil
	}
	for _, vip := range v.klb.Spec.VIPs {
		had := slices.ContainsFunc(v.klb.Status.LoadBalancers, func(lb v1.LoadBalancerStatus) bool { return lb.IP == vip.IP && lb.ID != "" })
		if had {
			continue
		}
		if err := count("FreeVIP", v.Cloud.LoadBalancers.FreeVIP(ctx, v.klb.Spec.ProjectID, vip, "")); err != nil {
			return err
		}
	}
	return nil
}

// deleted logs the first request to delete a load balancer. The load balancer still exists
// then, and no event reports its end.
func (v *reconciliation) deleted(ctx context.Context, id string, times int) {
	if times == 1 {
		ctrl.LoggerFrom(ctx).Info("deleted load balancer", "loadBalancer", id)
	}
}

// withdraw gives the floating IP back. It may be at any of the load balancers, of which the status
// does not name all.
func (v *reconciliation) withdraw(ctx context.Context, owned []sdn.LoadBalancerSummary) error {
	if v.round.Address.Placed || !v.mayHaveAddress() {
		return nil
	}
	at := balancer.Place{Own: portsOf(v.klb)}
	for _, lb := range owned {
		at.Own = append(at.Own, lb.VIPPortID)
	}
	return v.place(ctx, at)
}

// unpublish takes the floating IP from a load balancer that should have none, before any
// request to Octavia. It takes it from the ports that the status names. A floating IP at
// another port has to wait until that port is known.
func (v *reconciliation) unpublish(ctx context.Context) error {
	switch named := len(v.klb.Status.LoadBalancers) > 0; {
	case !v.leaves() && (v.klb.Spec.PublicIP != nil || !named):
		return nil
	case v.memory.noAddress: // it was taken away before, whatever the status still says
		v.round.Address.Placed = true
		return nil
	case !named:
		return nil
	}
	if err := v.place(ctx, balancer.Place{Own: portsOf(v.klb), Partial: true}); err != nil {
		return err
	}
	if v.round.Address.Unsure {
		v.round.Address.Address, v.round.Address.Placed = balancer.Address{}, false
		v.memory.noAddress = false
	}
	return nil
}
