// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/service"
)

// release gives up the KuryrLoadBalancer of a Service that goes, or that is to have
// none any more; then what is ours on the Service, the finalizer last.
func (r *Reconciler) release(ctx context.Context, svc *corev1.Service, klb *v1.KuryrLoadBalancer) (ctrl.Result, error) {
	if klb != nil && ownerOf(klb) != "" {
		if klb.DeletionTimestamp.IsZero() {
			if err := r.withdraw(ctx, svc); err != nil {
				return kube.Retry(err)
			}
		}
		return kube.Retry(r.discard(ctx, klb, ""))
	}
	if !controllerutil.ContainsFinalizer(svc, v1.ServiceFinalizer) {
		return kube.Retry(r.wipe(ctx, svc, false))
	}
	// The cache may not show yet what was made a moment ago.
	var there v1.KuryrLoadBalancer
	err := r.live.Get(ctx, client.ObjectKeyFromObject(svc), &there)
	switch {
	case err == nil && ownerOf(&there) != "":
		return kube.Retry(r.discard(ctx, &there, ""))
	case err != nil && !apierrors.IsNotFound(err):
		return ctrl.Result{}, fmt.Errorf("reading KuryrLoadBalancer %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	if svc.DeletionTimestamp.IsZero() {
		if wiped, err := r.wiped(ctx, svc); !wiped || err != nil {
			return kube.Retry(err)
		}
	}
	err = r.patch(ctx, svc, func(s client.Object) { controllerutil.RemoveFinalizer(s, v1.ServiceFinalizer) })
	if err == nil {
		ctrl.LoggerFrom(ctx).V(1).Info("released Service", "deleted", !svc.DeletionTimestamp.IsZero())
	}
	return kube.Retry(err)
}

// withdraw takes our ingress from a Service that stays, before its load balancer goes:
// afterwards who serves it then may have written theirs.
func (r *Reconciler) withdraw(ctx context.Context, svc *corev1.Service) error {
	if !svc.DeletionTimestamp.IsZero() || service.Foreign(svc) || len(svc.Status.LoadBalancer.Ingress) == 0 {
		return nil
	}
	return r.wipe(ctx, svc, true)
}

// wiped takes our status from a Service that stays. It reports whether there was
// none: else the event of the write leads here again, with a version to go by.
func (r *Reconciler) wiped(ctx context.Context, svc *corev1.Service) (bool, error) {
	ours := svc.Spec.Type != corev1.ServiceTypeLoadBalancer // else it is withdrawn already
	if !(ours && len(svc.Status.LoadBalancer.Ingress) > 0) && meta.FindStatusCondition(svc.Status.Conditions, v1.ConditionPlanned) == nil {
		return true, nil
	}
	return false, r.wipe(ctx, svc, ours)
}

// wipe takes our condition from the status of a Service and, if that is ours, the
// ingress.
func (r *Reconciler) wipe(ctx context.Context, svc *corev1.Service, ingress bool) error {
	_, err := r.patchStatus(ctx, svc, func(s *corev1.ServiceStatus) {
		if ingress {
			s.LoadBalancer.Ingress = nil
		}
		meta.RemoveStatusCondition(&s.Conditions, v1.ConditionPlanned)
	})
	return err
}

// discard deletes a KuryrLoadBalancer whose Service is gone or is not to have it.
// One that is no Service's, or that of keep, stays.
func (r *Reconciler) discard(ctx context.Context, klb *v1.KuryrLoadBalancer, keep types.UID) error {
	if klb == nil || ownerOf(klb) == keep || ownerOf(klb) == "" || !klb.DeletionTimestamp.IsZero() {
		return nil
	}
	err := r.client.Delete(ctx, klb, client.Preconditions{UID: &klb.UID})
	if err = kube.Lost(err); err != nil {
		return fmt.Errorf("deleting KuryrLoadBalancer %s/%s: %w", klb.Namespace, klb.Name, err)
	}
	return nil
}

// ownerOf returns the UID of the Service that a KuryrLoadBalancer is of; empty if
// it is nobody's.
func ownerOf(klb *v1.KuryrLoadBalancer) types.UID {
	for _, o := range klb.OwnerReferences {
		if o.Kind == "Service" && o.APIVersion == "v1" {
			return o.UID
		}
	}
	return ""
}

func requestFor(svc *corev1.Service) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(svc)}
}
