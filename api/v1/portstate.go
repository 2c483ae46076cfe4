// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Lost reports whether the SDN no longer has the port, according to the KuryrPort.
func (p *KuryrPort) Lost() bool {
	ready := meta.FindStatusCondition(p.Status.Conditions, ConditionReady)
	return p.Status.Phase == PortFailed && ready != nil && ready.Reason == ReasonPortMissing
}

// InDoubt reports whether the last attempt ended with an error that may hide an executed change.
// The port may then have other groups than its status says.
func (p *KuryrPort) InDoubt() bool {
	ready := meta.FindStatusCondition(p.Status.Conditions, ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return false
	}
	switch ready.Reason {
	case ReasonUnavailable, ReasonBackendError, ReasonConflict, ReasonForbidden:
		return true
	}
	return false
}

// GroupSet returns ids for comparison: sorted, without duplicates, never nil.
func GroupSet(ids []string) []string {
	out := append([]string{}, ids...)
	slices.Sort(out)
	return slices.Compact(out)
}
