// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/network"
)

// report writes the status after an attempt, and an Event about a new reason why pods wait.
func (v *reconciliation) report(ctx context.Context, status v1.KuryrNetworkStatus, failed error) (ctrl.Result, error) {
	o := outcome.Of(outcome.Network, failed)
	reason, text := o.Reason, "The network is there as wanted."
	switch {
	case errors.Is(failed, errMissing):
		reason, text = v1.ReasonNetworkMissing, failed.Error()
	case failed != nil:
		text = o.Explain()
	}
	if failed != nil && v.checking { // also of a network that pods can use
		v.memory.check.Store(true)
	}
	if failed != nil && v.usable(&status) && !errors.Is(failed, errMissing) {
		return v.reportUsable(ctx, status, o)
	}
	if err := v.write(ctx, status, reason, text, failed == nil); err != nil {
		return kube.Retry(err)
	}
	if errors.Is(failed, errMissing) {
		v.memory.check.Store(true)
		return ctrl.Result{RequeueAfter: v.Backoff.Rejected}, nil
	}
	return v.Backoff.Result(o)
}

// usable reports whether the network was ready before, and still has a subnet of each IP family.
// Pods then get ports, whatever the cloud says about a change.
func (v *reconciliation) usable(status *v1.KuryrNetworkStatus) bool {
	if !meta.IsStatusConditionTrue(v.kn.Status.Conditions, v1.ConditionReady) || status.NetworkID != v.kn.Status.NetworkID {
		return false
	}
	for _, want := range v.kn.Spec.Subnets {
		if !slices.ContainsFunc(status.Subnets, func(s v1.NetworkSubnetStatus) bool {
			return s.IPVersion == want.IPVersion && (s.Routed || !network.Routed(&v.kn.Spec))
		}) {
			return false
		}
	}
	return len(status.Subnets) > 0
}

// reportUsable writes why a change of a network that pods can use is not made yet. Condition Ready
// stays as it is. An outage of the cloud is not written: it would be a write for each network.
func (v *reconciliation) reportUsable(ctx context.Context, status v1.KuryrNetworkStatus, o outcome.Outcome) (ctrl.Result, error) {
	if o.Reason != v1.ReasonUnavailable {
		status.Conditions = conditions(&v.kn.Status)
		kube.SetCondition(&status.Conditions, v1.ConditionProgressing, true, o.Reason, o.Explain(), v.kn.Generation, time.Now())
		if err := v.send(ctx, &status, v1.ConditionProgressing, o.Reason, o.Explain()); err != nil {
			return kube.Retry(err)
		}
	}
	return v.Backoff.Result(o)
}

// write writes the status with its conditions, and an Event about a new reason why pods wait.
func (v *reconciliation) write(ctx context.Context, status v1.KuryrNetworkStatus, reason, text string, ready bool) error {
	status.Conditions = conditions(&v.kn.Status)
	kube.SetCondition(&status.Conditions, v1.ConditionReady, ready, reason, text, v.kn.Generation, time.Now())
	if ready && v.kn.DeletionTimestamp.IsZero() {
		kube.SetCondition(&status.Conditions, v1.ConditionProgressing, false, "Settled", "No action needed.", v.kn.Generation, time.Now())
	} else {
		kube.SetCondition(&status.Conditions, v1.ConditionProgressing, true, "Working", "Kuryr tries again.", v.kn.Generation, time.Now())
	}
	return v.send(ctx, &status, v1.ConditionReady, reason, text)
}

// send writes a status, if it differs. A new reason of a condition is also an Event, unless Kuryr
// expects it to end by itself.
func (v *reconciliation) send(ctx context.Context, status *v1.KuryrNetworkStatus, condition, reason, text string) error {
	is := v.kn.Status
	is.Conditions = conditions(&v.kn.Status)
	before := meta.FindStatusCondition(is.Conditions, condition)
	there, err := v.objects.Report(ctx, v.kn, &is, status)
	// These need no person.
	needless := slices.Contains([]string{v1.ReasonReady, v1.ReasonConflict, v1.ReasonPending, v1.ReasonDeleting, v1.ReasonNotPlanned}, reason)
	if err == nil && there && (before == nil || before.Reason != reason) && !needless {
		v.events.Eventf(kube.Reference(v.kn, kind), nil, corev1.EventTypeWarning, reason, "ApplyNetwork", "%s", outcome.Cut(text))
	}
	return err
}
