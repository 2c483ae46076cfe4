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

// TestUnsupported: the list of a status has each field with each reason once, whatever the texts.
func TestUnsupported(t *testing.T) {
	timeouts, ranges := v1.UnsupportedField{Field: "timeouts", Reason: balancer.ReasonNoTimeouts}, v1.UnsupportedField{Field: "spec.loadBalancerSourceRanges", Reason: balancer.ReasonUnprotected}
	problems := []balancer.Problem{
		{Field: timeouts.Field, Reason: timeouts.Reason, Text: "one"}, {Field: ranges.Field, Reason: ranges.Reason, Text: "two"}, {Field: timeouts.Field, Reason: timeouts.Reason, Text: "three"},
	}
	if diff := cmp.Diff([]v1.UnsupportedField{ranges, timeouts}, balancer.Unsupported(problems)); diff != "" {
		t.Errorf("Unsupported (-want +got):\n%s", diff)
	}
}

// TestListsMore: what stays as it is, and what is not supported, is reported once.
func TestListsMore(t *testing.T) {
	flavor, project := v1.UnchangedField{Field: "flavorID", Of: "lb", Wanted: "f"}, v1.UnchangedField{Field: "projectID", Of: "lb", Wanted: "p"}
	if balancer.OfPublicIP(flavor) || !balancer.OfPublicIP(v1.UnchangedField{Field: "publicIP.networkID"}) {
		t.Error("OfPublicIP does not tell a flavor from the network of a floating IP")
	}
	for _, tc := range []struct {
		name        string
		before, now []v1.UnchangedField
		want        bool
	}{
		{"nothing is listed", nil, nil, false},
		{"the first", nil, []v1.UnchangedField{flavor}, true},
		{"it was listed", []v1.UnchangedField{flavor}, []v1.UnchangedField{flavor}, false},
		{"there is another", []v1.UnchangedField{flavor}, []v1.UnchangedField{flavor, project}, true},
		{"one is no more", []v1.UnchangedField{flavor, project}, []v1.UnchangedField{project}, false},
	} {
		if got := balancer.ListsMore(tc.before, tc.now); got != tc.want {
			t.Errorf("%s: ListsMore = %t, want %t", tc.name, got, tc.want)
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
		v := c.Assess(klb, &balancer.Coverage{Lacks: lacking(nil, tc.behind), Reached: true}, now, patience)
		if diff := cmp.Diff(tc.want, v.Unreached); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if v.IsReported(klb) != tc.told {
			t.Errorf("%s: IsReported = %t, want %t", tc.name, !tc.told, tc.told)
		}
	}
}
