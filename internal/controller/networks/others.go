// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/network"
)

// setupOthers adds what verifies the statuses that other processes write: this process makes ports in
// the networks that they name. It runs outside of planning, and asks once for each changed status.
func (r *Applier) setupOthers(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("networkstatuses").
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, RateLimiter: outcome.Limiter[ctrl.Request](r.Backoff), SkipNameValidation: new(true),
		}).
		For(&v1.KuryrNetwork{}).
		WatchesRawSource(r.others.Source()).
		Complete(reconcile.Func(r.verify))
}

// verify compares the status of a KuryrNetwork that another process applies with the cloud. A process
// that owns nothing makes no ports, and asks nothing.
func (r *Applier) verify(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if r.Shards.Owns(kube.InNamespace(req.Namespace)) || r.Shards.Share() == 0 {
		return ctrl.Result{}, nil
	}
	kn := &v1.KuryrNetwork{}
	if err := r.client.Get(ctx, req.NamespacedName, kn); err != nil {
		return kube.Retry(kube.Lost(err))
	}
	if r.Statuses.IsVerified(kn) {
		return ctrl.Result{}, nil
	}
	v := &reconciliation{Applier: r, req: req, kn: kn, memory: &memory{}}
	is, err := v.seen(ctx)
	if err != nil {
		return r.Backoff.Result(outcome.Of(outcome.Network, err))
	}
	if !agrees(&kn.Status, &is) { // as a rule its process corrects it: an event follows
		return ctrl.Result{RequeueAfter: r.Backoff.Rejected}, nil
	}
	r.Statuses.MarkVerified(kn, &kn.Status)
	return ctrl.Result{}, nil
}

// seen returns what the cloud has of the network and of the subnets that the status names.
func (v *reconciliation) seen(ctx context.Context) (v1.KuryrNetworkStatus, error) {
	if !network.Makes(&v.kn.Spec) {
		return v.given(ctx)
	}
	if v.kn.Status.NetworkID == "" { // it names no network to make ports in
		return made(v.kn), nil
	}
	is, err := v.Cloud.Network(ctx, v.kn.Status.NetworkID)
	if err == nil && !v.owns(is.Owner, is.Name) {
		err = errForeign
	}
	var spec v1.KuryrNetworkSpec
	for _, s := range v.kn.Status.Subnets {
		spec.SubnetIDs = append(spec.SubnetIDs, s.ID)
	}
	return network.GivenStatus(&spec, is), err
}

// agrees reports whether a status names the network and the subnets that the cloud has. The router does
// not count: it decides nothing about where a port is made.
func agrees(status, is *v1.KuryrNetworkStatus) bool {
	return status.NetworkID == is.NetworkID && status.MTU == is.MTU && slices.EqualFunc(status.Subnets, is.Subnets, func(a, b v1.NetworkSubnetStatus) bool {
		a.Routed, b.Routed = false, false
		return a == b
	})
}
