// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/service"
)

// finalizers returns the finalizers that a Service has as long as it has a load balancer. A Service
// that Kuryr makes public also has Kubernetes' cleanup finalizer. It shows other controllers that
// the Service is served.
func finalizers(svc *corev1.Service) []string {
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && !service.Foreign(svc) {
		return []string{v1.ServiceFinalizer, v1.CleanupFinalizer}
	}
	return []string{v1.ServiceFinalizer}
}

// hold adds its finalizers to a Service.
func (r *Reconciler) hold(ctx context.Context, svc *corev1.Service) error {
	_, err := r.patch(ctx, svc, func(s *corev1.Service) {
		for _, f := range finalizers(svc) {
			controllerutil.AddFinalizer(s, f)
		}
	})
	return err
}

// uncover removes the cleanup finalizer from a Service that is no longer of type LoadBalancer.
func (r *Reconciler) uncover(ctx context.Context, svc *corev1.Service) error {
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer || !slices.Contains(svc.Finalizers, v1.ServiceFinalizer) {
		return nil
	}
	ours, err := r.cleansUp(ctx, svc)
	if !ours || err != nil {
		return err
	}
	_, err = r.patch(ctx, svc, func(s *corev1.Service) { controllerutil.RemoveFinalizer(s, v1.CleanupFinalizer) })
	return err
}

// letGo removes the finalizers from a Service.
func (r *Reconciler) letGo(ctx context.Context, svc *corev1.Service) error {
	ours, err := r.cleansUp(ctx, svc)
	if err != nil {
		return err
	}
	_, err = r.patch(ctx, svc, func(s *corev1.Service) {
		controllerutil.RemoveFinalizer(s, v1.ServiceFinalizer)
		if ours {
			controllerutil.RemoveFinalizer(s, v1.CleanupFinalizer)
		}
	})
	return err
}

// cleansUp reports whether Kuryr may remove the cleanup finalizer from a Service. It may do so on a
// Service in deletion that Kuryr makes public. Otherwise it may do so only if no other field
// manager has added the finalizer.
//
// Another service controller keeps a Service of its own class by the same finalizer. It may still
// have something to clean up after the Service has got another type.
func (r *Reconciler) cleansUp(ctx context.Context, svc *corev1.Service) (bool, error) {
	switch {
	case !slices.Contains(svc.Finalizers, v1.CleanupFinalizer), service.Foreign(svc):
		return false, nil
	case svc.Spec.Type == corev1.ServiceTypeLoadBalancer && !svc.DeletionTimestamp.IsZero():
		return true, nil
	}
	var live corev1.Service // the cache does not keep managed fields
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(svc), &live); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading Service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	return !slices.ContainsFunc(live.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager != string(kube.OwnerService) && hasFinalizer(m, v1.CleanupFinalizer)
	}), nil
}

// hasFinalizer reports whether a field manager has set a finalizer.
func hasFinalizer(m metav1.ManagedFieldsEntry, finalizer string) bool {
	if m.FieldsV1 == nil {
		return false
	}
	var fields struct {
		Metadata struct {
			Finalizers map[string]any `json:"f:finalizers"`
		} `json:"f:metadata"`
	}
	err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields)
	_, has := fields.Metadata.Finalizers[fmt.Sprintf("v:%q", finalizer)]
	return err != nil || has // unreadable fields are taken for those of another manager
}
