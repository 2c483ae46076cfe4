// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/service"
)

// maxEvents is how many Events one write of a condition brings: anybody who may
// write Services could have any number of notes.
const maxEvents = 16

// maxMessage is the length of a condition's message that the API server takes.
const maxMessage = 32768

// report writes the Service's status, if it has changed, and an Event for each note
// that it did not have before: the condition is the memory, also over a restart.
// A Service that is not ours is left as it is.
func (r *Reconciler) report(ctx context.Context, svc *corev1.Service, klb *v1.KuryrLoadBalancer, o *service.Outcome, ours bool) error {
	if !ours {
		return nil
	}
	var said string
	if c := meta.FindStatusCondition(svc.Status.Conditions, v1.ConditionPlanned); c != nil {
		said = c.Message
	}
	written, err := r.patchStatus(ctx, svc, func(s *corev1.ServiceStatus) {
		if o.Verdict == service.Realise && !service.Foreign(svc) {
			s.LoadBalancer.Ingress = ingress(svc, klb, &o.Spec)
		}
		r.condition(svc, s, o.Notes)
	})
	if !written {
		return err
	}
	fresh := together(slices.DeleteFunc(slices.Clone(o.Notes), func(n service.Note) bool { return n.In(said) }))
	for _, n := range fresh[:min(len(fresh), maxEvents)] {
		r.tell(svc, n)
	}
	return err
}

// ingress returns what the status is to show. What says the same stays as it is:
// somebody else may have put fields there.
func ingress(svc *corev1.Service, klb *v1.KuryrLoadBalancer, spec *v1.KuryrLoadBalancerSpec) []corev1.LoadBalancerIngress {
	var status v1.KuryrLoadBalancerStatus
	if klb != nil {
		status = klb.Status
	}
	return service.Ingress(svc, spec, &status)
}

// condition puts the notes into a status.
func (r *Reconciler) condition(svc *corev1.Service, s *corev1.ServiceStatus, notes []service.Note) {
	if len(notes) == 0 {
		meta.RemoveStatusCondition(&s.Conditions, v1.ConditionPlanned)
		return
	}
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
	kube.SetCondition(&s.Conditions, v1.ConditionPlanned, reason == v1.ReasonPlanned, reason, message, svc.Generation, r.now())
}

// patchStatus changes the status of a Service, if nobody else has meanwhile, and
// not if nothing changes. It reports whether it has written.
func (r *Reconciler) patchStatus(ctx context.Context, svc *corev1.Service, change func(*corev1.ServiceStatus)) (bool, error) {
	old := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name, UID: svc.UID, ResourceVersion: svc.ResourceVersion}}
	old.Status = *svc.Status.DeepCopy()
	next := old.DeepCopy()
	change(&next.Status)
	if equality.Semantic.DeepEqual(&old.Status, &next.Status) {
		return false, nil
	}
	err := r.client.Status().Patch(ctx, next, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), kube.OwnerService)
	if err != nil {
		if err = kube.Lost(err); err != nil {
			err = fmt.Errorf("writing status of Service %s/%s: %w", svc.Namespace, svc.Name, err)
		}
		return false, err
	}
	return true, nil
}

// together makes one of notes that an Event cannot tell apart. Such notes are side by
// side.
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

// tell sends an Event. Events that differ in their text alone are made one, with the
// text of the first: so it names the field, and the version of the Service, which has
// one of each note.
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
	if err = r.letGo(ctx, svc); err == nil {
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
