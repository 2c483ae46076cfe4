// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
)

// policyNotices reports on each NetworkPolicy that Kuryr does not enforce it. It sends one Event
// for each generation of the NetworkPolicy. The Event's name contains the generation. So the API
// server knows whether the Event was sent, for as long as it keeps Events.
//
// NetworkPolicies have a cache of their own, of metadata only. The manager's cache waits for all
// its kinds. A cluster may lack the permission to list NetworkPolicies, as it was added in a later
// version than the serving of pods.
type policyNotices struct {
	mgr       ctrl.Manager
	shards    kube.Shards
	pace      *rate.Limiter
	forbidden sync.Once
}

// policyGeneration is one generation of one NetworkPolicy.
type policyGeneration struct {
	types.NamespacedName
	uid        types.UID
	generation int64
}

func addPolicyNotices(mgr ctrl.Manager, shards kube.Shards, backoff outcome.Backoff) error {
	// A cluster may have thousands of NetworkPolicies when the controller starts, and nothing waits
	// for these Events.
	n := &policyNotices{mgr: mgr, shards: shards, pace: rate.NewLimiter(20, 20)}
	return builder.TypedControllerManagedBy[policyGeneration](mgr).Named("networkpolicies").
		WithOptions(outcome.Options[policyGeneration](1, backoff)).
		WatchesRawSource(source.TypedFunc[policyGeneration](n.watch)).
		Complete(kube.Sharded(shards, namespaceOf, n))
}

// namespaceOf is the key of a NetworkPolicy, also of one that is gone: nothing is remembered of it.
func namespaceOf(_ context.Context, g policyGeneration) (kube.Key, bool) {
	return kube.InNamespace(g.Namespace), true
}

// watch adds each generation of each NetworkPolicy to queue, until ctx ends.
func (n *policyNotices) watch(ctx context.Context, queue workqueue.TypedRateLimitingInterface[policyGeneration]) error {
	policies, err := cache.New(n.mgr.GetConfig(), cache.Options{
		HTTPClient: n.mgr.GetHTTPClient(), Scheme: n.mgr.GetScheme(), Mapper: n.mgr.GetRESTMapper(),
		DefaultTransform: trimPolicy, DefaultWatchErrorHandler: n.failed,
	})
	if err != nil {
		return fmt.Errorf("making the cache of NetworkPolicies: %w", err)
	}
	kind := &metav1.PartialObjectMetadata{}
	kind.SetGroupVersionKind(networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"))
	informer, err := policies.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching NetworkPolicies: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { queue.Add(generationOf(o)) },
		UpdateFunc: func(before, after any) {
			if g := generationOf(after); g != generationOf(before) {
				queue.Add(g)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching NetworkPolicies: %w", err)
	}
	// The store, as a list of the cache would wait for it to fill. What comes later is an event.
	store := informer.(toolscache.SharedInformer).GetStore()
	all := func(context.Context) (all []policyGeneration, _ error) {
		for _, o := range store.List() {
			all = append(all, generationOf(o))
		}
		return all, nil
	}
	if err := kube.Gained(n.shards, namespaceOf, all).Start(ctx, queue); err != nil {
		return err
	}
	go func() {
		if err := policies.Start(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "NetworkPolicies are not watched, and get no Event that they are not enforced")
		}
	}()
	return nil
}

func trimPolicy(in any) (any, error) {
	if o, ok := in.(*metav1.PartialObjectMetadata); ok {
		o.ObjectMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation}
	}
	return in, nil
}

func generationOf(o any) policyGeneration {
	policy := o.(*metav1.PartialObjectMetadata)
	return policyGeneration{client.ObjectKeyFromObject(policy), policy.UID, policy.Generation}
}

// failed handles an error of a list or watch of NetworkPolicies. It runs at each try.
func (n *policyNotices) failed(ctx context.Context, r *toolscache.Reflector, err error) {
	if !apierrors.IsForbidden(err) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	n.forbidden.Do(func() {
		n.mgr.GetLogger().Error(err, "NetworkPolicies get no Event that they are not enforced: apply the ClusterRole kuryr-controller of this version")
	})
}

// Reconcile sends the Event of one generation, unless the Event exists.
func (n *policyNotices) Reconcile(ctx context.Context, g policyGeneration) (ctrl.Result, error) {
	if !kube.Pause(ctx, n.pace.Reserve().Delay()) {
		return ctrl.Result{}, nil // the process is ending
	}
	return ctrl.Result{}, kube.Announce(ctx, n.mgr.GetClient(), fmt.Sprintf("not-enforced-%s-%d", g.uid, g.generation), &corev1.ObjectReference{
		APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy", Namespace: g.Namespace, Name: g.Name, UID: g.uid,
	}, v1.ReasonNotEnforced, "EnforceNetworkPolicy",
		"Kuryr does not enforce NetworkPolicies, and unless another program of the cluster does, this one has no effect: "+
			"pods get and send what the security groups of their ports let pass. pods.securityGroups in Kuryr's configuration chooses these by labels")
}
