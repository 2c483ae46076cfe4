// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package clusterips

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// workers: one may wait for the cloud, and the other does what needs no cloud.
const workers = 2

// Setup adds the reconciler to mgr, whose cache must have Services. It watches the holders. It also
// watches for the deletion of other Services, which frees a cluster IP.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	// The namespace of all holders is the key, also that of one which is gone: then the others are counted.
	key := func(context.Context, ctrl.Request) (kube.Key, bool) { return kube.InNamespace(r.Namespace), true }
	all := func(ctx context.Context) (requests []ctrl.Request, err error) {
		holders, err := r.holders(ctx)
		for i := range holders {
			requests = append(requests, kube.RequestOf(&holders[i]))
		}
		return requests, err
	}
	r.Shards.Follow(nil, r.lose)
	own := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == r.Namespace && isHolder(o) })
	return ctrl.NewControllerManagedBy(mgr).Named("clusterips").
		WithOptions(outcome.Options[ctrl.Request](workers, r.Backoff)).
		For(&corev1.Service{}, builder.WithPredicates(own)).
		Watches(&corev1.Service{}, handler.Funcs{DeleteFunc: r.followDeletion}).
		WatchesRawSource(kube.Gained(r.Shards, key, all)).
		Complete(kube.Sharded(r.Shards, key, r))
}

// lose drops when holders were first seen: until their keys return they may be deleted and created again.
// It waits a moment longer for those of namespaces that this process still has.
func (r *Reconciler) lose(keys kube.Keys) {
	r.young.Clear()
	r.listed.Forget(func(struct{}, []sdn.LoadBalancerSummary) bool { return true })
	if keys(kube.InNamespace(r.Namespace)) {
		heldClusterIPs.Set(0) // another process counts them
	}
}

// followDeletion requeues the holders that are to get a cluster IP of a Service that is gone.
func (r *Reconciler) followDeletion(ctx context.Context, gone event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	all, err := r.holders(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the Services that hold the cluster IPs of a deleted Service", "service", client.ObjectKeyFromObject(gone.Object))
	}
	for i := range all {
		if slices.Contains(gone.Object.(*corev1.Service).Spec.ClusterIPs, all[i].Annotations[v1.HeldClusterIPAnnotation]) {
			q.Add(kube.RequestOf(&all[i]))
		}
	}
}

var heldClusterIPs = kube.Gauge("kuryr_cluster_ips_held",
	"Cluster IPs of deleted Services that Kuryr holds, as Octavia does not delete the load balancers there.")

// needless reports whether the cloud has none of a holder's load balancers any more. A credential
// that has lost a role may be shown none in a list, so each of them is read.
func (r *Reconciler) needless(ctx context.Context, holder *corev1.Service) (bool, error) {
	listed, err := r.listed.Get(ctx, struct{}{}, listAge(r.Backoff), r.Cloud.ListLoadBalancers)
	if errors.Is(err, sdn.ErrNoService) {
		return true, nil // the cloud has no load balancers at all
	}
	if err != nil {
		return false, fmt.Errorf("listing load balancers: %w", err)
	}
	ids := strings.Split(holder.Annotations[v1.HeldLoadBalancersAnnotation], ",")
	if slices.ContainsFunc(listed, func(lb sdn.LoadBalancerSummary) bool {
		return lb.Provisioning != sdn.ProvisioningDeleted && slices.Contains(ids, lb.ID)
	}) {
		return false, nil
	}
	for _, id := range ids {
		lb, err := r.Cloud.LoadBalancer(ctx, id)
		if errors.Is(err, sdn.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("reading load balancer %s: %w", id, err)
		}
		if lb.Provisioning != sdn.ProvisioningDeleted {
			return false, nil
		}
	}
	return true, nil
}

// listAge is how long a list of load balancers is used for all holders that need one.
func listAge(b outcome.Backoff) time.Duration { return b.Quota / 3 }
