// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Groups whose write ended with an error may have been written. They are written again, even if
// the wanted groups are meanwhile those of the status. So are groups that may have differed
// since the status was written. Binding the port costs no request.
func TestGroupsAreWrittenAgainAfterAnErrorOfUnknownEffect(t *testing.T) {
	for _, c := range []struct {
		reason        string
		is            metav1.ConditionStatus
		observed      int64
		needed, stuck bool
	}{
		{v1.ReasonUnavailable, metav1.ConditionFalse, 3, true, true},
		{v1.ReasonBackendError, metav1.ConditionFalse, 3, true, true},
		{v1.ReasonRejected, metav1.ConditionFalse, 3, true, false},
		{v1.ReasonReady, metav1.ConditionTrue, 3, false, false},
		{v1.ReasonReady, metav1.ConditionTrue, 2, false, false},
		{v1.ReasonReady, metav1.ConditionTrue, 1, true, false},
	} {
		port := &v1.KuryrPort{}
		port.Generation = 3
		port.Spec.SecurityGroupIDs = []string{"a"}
		port.Status.AppliedSecurityGroupIDs = []string{"a"}
		port.Status.Phase = v1.PortRecycling
		port.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: c.is, Reason: c.reason, ObservedGeneration: c.observed}}
		r := &Reconciler{Options: Options{Settings: settings.NewLive(settings.Settings{Pods: config.Pods{}})}, memory: newPortMemory()}
		if u, needed := r.update(port); needed != c.needed || needed && (*u.SecurityGroupIDs)[0] != "a" {
			t.Errorf("%s of generation %d: update %v, %v; want needed %v", c.reason, c.observed, u, needed, c.needed)
		}
		if got := port.InDoubt(); got != c.stuck {
			t.Errorf("%s of generation %d: stuck %v, want %v: pods are not to wait for it", c.reason, c.observed, got, c.stuck)
		}
	}
}

// A refusal says that the request changed nothing, and not what the groups were before. If they
// were not known before, the status lists no groups any more.
func TestRefusalEndsNoDoubt(t *testing.T) {
	for _, c := range []struct {
		reason   string
		is       metav1.ConditionStatus
		observed int64
		known    bool
	}{
		{v1.ReasonReady, metav1.ConditionTrue, 2, true},
		{v1.ReasonReady, metav1.ConditionTrue, 1, false},
		{v1.ReasonUnavailable, metav1.ConditionFalse, 2, false},
	} {
		port := &v1.KuryrPort{}
		port.Generation, port.Spec.SecurityGroupIDs = 3, []string{"refused"}
		port.Status = v1.KuryrPortStatus{
			Phase: v1.PortAvailable, AppliedSecurityGroupIDs: []string{"a"},
			Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: c.is, Reason: c.reason, ObservedGeneration: c.observed}},
		}
		r := &Reconciler{Options: Options{Settings: settings.NewLive(settings.Settings{})}, memory: newPortMemory()}
		status := r.status(port, v1.ReasonRejected, sdn.ErrInvalid)
		if known := status.AppliedSecurityGroupIDs != nil; known != c.known {
			t.Errorf("%s of generation %d, then refused: groups %v, want them known %v", c.reason, c.observed, status.AppliedSecurityGroupIDs, c.known)
		}
	}
}

// A name that could not be written is written with the next attempt. The status says that the
// port is bound, or free again, whether it has its name or not.
func TestNameIsWrittenAgainAfterAnError(t *testing.T) {
	for _, c := range []struct {
		phase v1.PortPhase
		is    metav1.ConditionStatus
		bound bool
		name  string // empty: none is written
	}{
		{"", "", true, "default/web"},
		{"", "", false, ""}, // it was created with its name
		{v1.PortAvailable, metav1.ConditionTrue, true, "default/web"},
		{v1.PortBound, metav1.ConditionFalse, true, "default/web"},
		{v1.PortBound, metav1.ConditionTrue, true, ""},
		{v1.PortBound, metav1.ConditionTrue, false, sdn.FreePortName},
		{v1.PortRecycling, metav1.ConditionFalse, false, sdn.FreePortName},
		{v1.PortAvailable, metav1.ConditionTrue, false, ""},
	} {
		port := &v1.KuryrPort{}
		port.Generation, port.Status.Phase = 2, c.phase
		if c.is != "" {
			port.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: c.is, Reason: v1.ReasonUnavailable, ObservedGeneration: 2}}
		}
		if c.bound {
			port.Spec.PodRef = &v1.PodReference{Namespace: "default", Name: "web", UID: "1"}
		}
		r := &Reconciler{Options: Options{Settings: settings.NewLive(settings.Settings{Pods: config.Pods{PortDebug: true}})}, memory: newPortMemory()}
		u, _ := r.update(port)
		got := ""
		if u.Name != nil {
			got = *u.Name
		}
		if got != c.name {
			t.Errorf("phase %q, Ready %q, bound %v: named %q, want %q", c.phase, c.is, c.bound, got, c.name)
		}
	}
}
