// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
)

// unsupportedStatus is a status whose condition Supported is False.
func unsupportedStatus(fields ...v1.UnsupportedField) *v1.KuryrLoadBalancerStatus {
	return &v1.KuryrLoadBalancerStatus{
		Unsupported: fields, Conditions: []metav1.Condition{{Type: v1.ConditionSupported, Status: metav1.ConditionFalse}},
	}
}

// TestUnsupported: the list of a status decides, not the text of its condition.
func TestUnsupported(t *testing.T) {
	timeouts, ranges := v1.UnsupportedField{Field: "timeouts", Reason: balancer.ReasonNoTimeouts}, v1.UnsupportedField{Field: "spec.loadBalancerSourceRanges", Reason: balancer.ReasonUnprotected}
	problems := []balancer.Problem{
		{Field: timeouts.Field, Reason: timeouts.Reason, Text: "one"}, {Field: ranges.Field, Reason: ranges.Reason, Text: "two"}, {Field: timeouts.Field, Reason: timeouts.Reason, Text: "three"},
	}
	both := []v1.UnsupportedField{ranges, timeouts}
	if diff := cmp.Diff(both, balancer.Unsupported(problems)); diff != "" {
		t.Errorf("Unsupported (-want +got):\n%s", diff)
	}
	none := &v1.KuryrLoadBalancerStatus{}
	for _, tc := range []struct {
		name     string
		status   *v1.KuryrLoadBalancerStatus
		problems []balancer.Problem
		want     bool
	}{
		{"all is listed", unsupportedStatus(both...), problems, true},
		{"one is not listed", unsupportedStatus(timeouts), problems, false},
		{"one is listed that is no more", unsupportedStatus(both...), problems[:1], false},
		{"there is none", none, nil, true},
		{"none is listed", none, problems, false},
	} {
		if got := balancer.SaysUnsupported(tc.status, tc.problems); got != tc.want {
			t.Errorf("%s: SaysUnsupported = %t, want %t", tc.name, got, tc.want)
		}
	}
	for _, tc := range []struct {
		name        string
		before, now *v1.KuryrLoadBalancerStatus
		want        bool
	}{
		{"one is new", unsupportedStatus(timeouts), unsupportedStatus(both...), false},
		{"one is no more", unsupportedStatus(both...), unsupportedStatus(timeouts), true},
		{"the first", none, unsupportedStatus(timeouts), false},
	} {
		if got := balancer.TellsUnsupported(tc.before, tc.now); got != tc.want {
			t.Errorf("%s: TellsUnsupported = %t, want %t", tc.name, got, tc.want)
		}
	}
}

// TestNotChangedAnew: what stays is reported once.
func TestNotChangedAnew(t *testing.T) {
	status := func(generation int64, ready metav1.ConditionStatus, stays ...v1.UnchangedField) *v1.KuryrLoadBalancerStatus {
		return &v1.KuryrLoadBalancerStatus{NotChanged: stays, Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: ready, ObservedGeneration: generation}}}
	}
	flavor, project := v1.UnchangedField{Field: "flavorID", Of: "lb", Wanted: "f"}, v1.UnchangedField{Field: "projectID", Of: "lb", Wanted: "p"}
	for _, tc := range []struct {
		name        string
		before, now *v1.KuryrLoadBalancerStatus
		want        bool
	}{
		{"nothing stays", status(1, "True"), status(2, "True"), false},
		{"the spec has changed", status(1, "True"), status(2, "True", flavor), true},
		{"it was listed", status(1, "True", flavor), status(2, "True", flavor), false},
		{"there is another", status(1, "True", flavor), status(1, "True", flavor, project), true},
		{"it was not ready", status(1, "False"), status(1, "True", flavor), true},
	} {
		if got := balancer.NotChangedAnew(tc.before, tc.now); got != tc.want {
			t.Errorf("%s: NotChangedAnew = %t, want %t", tc.name, got, tc.want)
		}
	}
}

// TestUnreachedAfterRestart: a process that has just started reads from the status which
// members have lacked the security group for long. It waits a minute for others.
func TestUnreachedAfterRestart(t *testing.T) {
	now, patience := time.Unix(10000, 0), time.Minute
	since := metav1.Time{Time: now.Add(-time.Hour)}
	late := []v1.UnreachedMember{{IP: "10.1.0.5", Since: since}}
	for _, tc := range []struct {
		name   string
		status *v1.KuryrLoadBalancerStatus
		behind []string
		want   []v1.UnreachedMember
		told   bool
	}{
		{"it is listed", &v1.KuryrLoadBalancerStatus{UnreachedMembers: late}, []string{"10.1.0.5"}, late, true},
		{"it is listed, and has the group", &v1.KuryrLoadBalancerStatus{UnreachedMembers: late}, nil, nil, false},
		{"another is listed", &v1.KuryrLoadBalancerStatus{UnreachedMembers: late}, []string{"10.1.0.6"}, nil, false},
		{"none is listed", &v1.KuryrLoadBalancerStatus{}, []string{"10.1.0.5"}, nil, true},
	} {
		klb := fencedBalancer()
		klb.Status = *tc.status
		klb.Status.SecurityGroupID = "group"
		var c balancer.CoverageMemory
		v := c.Assess(klb, &balancer.Coverage{Pending: tc.behind, Reached: true}, now, patience)
		if diff := cmp.Diff(tc.want, v.Unreached); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if v.IsReported(klb) != tc.told {
			t.Errorf("%s: IsReported = %t, want %t", tc.name, !tc.told, tc.told)
		}
	}
}
