// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
)

// tell writes condition Planned, which is absent if there is nothing to report, and an Event on the
// KuryrNetwork and on the namespace when it changes.
func (p *Planner) tell(ctx context.Context, ns *metav1.PartialObjectMetadata, kn *v1.KuryrNetwork, reason, text string) error {
	if kn == nil {
		return p.notice(ctx, ns, reason, text)
	}
	var is, want v1.KuryrNetworkStatus
	if c := meta.FindStatusCondition(kn.Status.Conditions, v1.ConditionPlanned); c != nil {
		is.Conditions = []metav1.Condition{*c}
	}
	if reason != "" {
		want.Conditions = slices.Clone(is.Conditions)
		kube.SetCondition(&want.Conditions, v1.ConditionPlanned, false, reason, text, kn.Generation, time.Now())
	}
	there, err := p.objects.Report(ctx, kn, &is, &want)
	if err != nil || !there || reason == "" {
		return err
	}
	if len(is.Conditions) == 0 || is.Conditions[0].Reason != reason {
		p.events.Eventf(kube.Reference(kn, kind), nil, corev1.EventTypeWarning, reason, "PlanNetwork", "%s", outcome.Cut(text))
	}
	return p.notice(ctx, ns, reason, text)
}

// notice writes an Event on a namespace, in the namespace: its author has asked for what Kuryr does
// not do. The Event's name contains a hash of the text. So the API server knows whether the Event
// was written, for as long as it keeps Events.
func (p *Planner) notice(ctx context.Context, ns *metav1.PartialObjectMetadata, reason, text string) error {
	if reason == "" {
		delete(p.told, ns.Name)
		return nil
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(reason + text)) // never fails
	name := fmt.Sprintf("network-%s-%x", ns.UID, h.Sum64())
	if p.told[ns.Name] == name {
		return nil
	}
	on := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Namespace: ns.Name, Name: ns.Name, UID: ns.UID}
	if err := kube.Announce(ctx, p.client, name, on, reason, "PlanNetwork", outcome.Cut(text)); err != nil {
		return err
	}
	p.told[ns.Name] = name
	return nil
}

// unsure reports that the network of a namespace cannot be planned, and has it planned again: with
// the answer of the SDN, or when the SDN is asked again.
func (p *Planner) unsure(ctx context.Context, ns *metav1.PartialObjectMetadata, kn *v1.KuryrNetwork, failed error) (ctrl.Result, error) {
	if errors.Is(failed, errAsked) {
		return ctrl.Result{}, nil
	}
	o := outcome.Of(outcome.Network, failed)
	if o.Lasting {
		if err := p.tell(ctx, ns, kn, o.Reason, "the network of the namespace cannot be planned: "+o.Explain()); err != nil {
			return kube.Retry(err)
		}
	}
	return p.Backoff.Result(o)
}
