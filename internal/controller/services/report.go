// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
