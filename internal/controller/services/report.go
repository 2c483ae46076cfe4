// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/service"
)

// maxEvents is how many Events one write of a condition sends at most. A user who may write
// Services could otherwise cause any number of them.
const maxEvents = 16

// maxMessage is the longest message of a condition that the API server accepts.
const maxMessage = 32768

// report writes the Service's status, if it has changed. It sends an Event for each note that has
// not been reported before. An annotation records the reported notes, so they survive a restart.
// The annotation is written together with the status.
func (r *Reconciler) report(ctx context.Context, svc *corev1.Service, klb *v1.KuryrLoadBalancer, o *service.Outcome) error {
	var status v1.KuryrLoadBalancerStatus
	if klb != nil {
		status = klb.Status
	}
	written, err := r.patch(ctx, svc, func(s *corev1.Service) {
		if o.Verdict == service.Realise && !service.Foreign(svc) {
			s.Status.LoadBalancer.Ingress = service.Ingress(svc, &o.Spec, &status)
		}
		r.condition(s, o.Notes, svc.Generation)
	})
	if !written {
		return err
	}
	fresh := together(service.Fresh(o.Notes, svc.Annotations[v1.ReportedAnnotation]))
	for _, n := range fresh[:min(len(fresh), maxEvents)] {
		r.tell(svc, n)
	}
	return err
}

// condition writes the notes into a Service of that generation.
func (r *Reconciler) condition(svc *corev1.Service, notes []service.Note, generation int64) {
	if len(notes) == 0 {
		unreport(svc)
		return
	}
	metav1.SetMetaDataAnnotation(&svc.ObjectMeta, v1.ReportedAnnotation, service.IDs(notes))
	reason := v1.ReasonPlanned
	var lines []string
	for _, n := range notes {
		lines = append(lines, n.String())
		switch {
		case n.Info || n.Reason == reason:
		case reason == v1.ReasonPlanned:
			reason = n.Reason
		default:
			reason = v1.ReasonSeveralProblems
		}
	}
	message := strings.Join(lines, "\n")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	kube.SetCondition(&svc.Status.Conditions, v1.ConditionPlanned, reason == v1.ReasonPlanned, reason, message, generation, time.Now())
}

// unreport removes the notes from a Service.
func unreport(svc *corev1.Service) {
	meta.RemoveStatusCondition(&svc.Status.Conditions, v1.ConditionPlanned)
	delete(svc.Annotations, v1.ReportedAnnotation)
}

// together merges notes that an Event cannot distinguish. Such notes must be adjacent.
func together(notes []service.Note) []service.Note {
	var out []service.Note
	for _, n := range notes {
		if last := len(out) - 1; last >= 0 && out[last].Field == n.Field && out[last].Reason == n.Reason && out[last].Info == n.Info {
			out[last].Text += "; " + n.Text
			continue
		}
		out = append(out, n)
	}
	return out
}

// tell sends an Event. Kubernetes merges Events that differ in their text alone, and keeps the
// first text. So the Event names the field and the resource version of the Service: one version has
// one Event of each note.
func (r *Reconciler) tell(svc *corev1.Service, n service.Note) {
	kind := corev1.EventTypeWarning
	if n.Info {
		kind = corev1.EventTypeNormal
	}
	on := kube.Reference(svc, "Service")
	on.ResourceVersion = svc.ResourceVersion
	if n.OfService() {
		on.FieldPath = n.Field
	}
	r.events.Eventf(on, nil, kind, n.Reason, "PlanLoadBalancer", "%s", outcome.Cut(n.Field+": "+n.Text))
}

// release deletes the KuryrLoadBalancer of a Service that is deleted, or that is to have no load
// balancer any more. Then it removes what Kuryr has written on the Service, the finalizer last.
func (r *Reconciler) release(ctx context.Context, svc *corev1.Service, klb *v1.KuryrLoadBalancer) (ctrl.Result, error) {
	if klb == nil || ownerOf(klb) == "" {
		if !controllerutil.ContainsFinalizer(svc, v1.ServiceFinalizer) {
			_, err := r.wipe(ctx, svc, false)
			return kube.Retry(err)
		}
		var err error
		if klb, err = r.planned(ctx, svc); err != nil {
			return ctrl.Result{}, err
		}
	}
	if svc.DeletionTimestamp.IsZero() {
		// Once its load balancer is being deleted, another controller may serve a Service of type
		// LoadBalancer, and may have written its own ingress.
		ours := svc.Spec.Type != corev1.ServiceTypeLoadBalancer || klb != nil && klb.DeletionTimestamp.IsZero() && !service.Foreign(svc)
		written, err := r.wipe(ctx, svc, ours)
		if err != nil || written && klb == nil { // the event of the write requeues the Service, with its new version
			return kube.Retry(err)
		}
	}
	if klb != nil {
		// The event of the KuryrLoadBalancer's end requeues the Service.
		return kube.Retry(r.discard(ctx, klb))
	}
	err := r.letGo(ctx, svc)
	if err == nil {
		ctrl.LoggerFrom(ctx).V(1).Info("released Service", "deleted", !svc.DeletionTimestamp.IsZero())
	}
	return kube.Retry(err)
}

// planned reads the KuryrLoadBalancer that was planned for a Service from the API server; nil if
// there is none. The cache may not show yet one that was created a moment ago.
//
// The cache does not keep managed fields, either. With `kubectl delete service --cascade=orphan`
// Kubernetes' garbage collector removes the owner reference. A KuryrLoadBalancer that Kuryr has
// planned is still the Service's. One that another client has written is not.
func (r *Reconciler) planned(ctx context.Context, svc *corev1.Service) (*v1.KuryrLoadBalancer, error) {
	var klb v1.KuryrLoadBalancer
	err := r.live.Get(ctx, client.ObjectKeyFromObject(svc), &klb)
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading KuryrLoadBalancer %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	ours := func(m metav1.ManagedFieldsEntry) bool { return m.Manager == v1.FieldOwnerService }
	if ownerOf(&klb) == "" && !slices.ContainsFunc(klb.ManagedFields, ours) {
		return nil, nil
	}
	return &klb, nil
}

// wipe removes Kuryr's condition from the status of a Service. With ingress it removes the ingress,
// too. It reports whether there was something to remove.
func (r *Reconciler) wipe(ctx context.Context, svc *corev1.Service, ingress bool) (written bool, err error) {
	return r.patch(ctx, svc, func(s *corev1.Service) {
		if ingress {
			s.Status.LoadBalancer.Ingress = nil
		}
		unreport(s)
	})
}

// discard deletes a KuryrLoadBalancer whose Service is gone, or is not to have a load balancer.
func (r *Reconciler) discard(ctx context.Context, klb *v1.KuryrLoadBalancer) error {
	if !klb.DeletionTimestamp.IsZero() {
		return nil
	}
	err := r.client.Delete(ctx, klb, client.Preconditions{UID: &klb.UID})
	if err = kube.Lost(err); err != nil {
		return fmt.Errorf("deleting KuryrLoadBalancer %s/%s: %w", klb.Namespace, klb.Name, err)
	}
	return nil
}

// ownerOf returns the UID of the Service that owns a KuryrLoadBalancer; empty if none owns it.
func ownerOf(klb *v1.KuryrLoadBalancer) types.UID {
	for _, o := range klb.OwnerReferences {
		if o.Kind == "Service" && o.APIVersion == "v1" {
			return o.UID
		}
	}
	return ""
}
