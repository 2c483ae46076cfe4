// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestStatusIsBounded: a status with many long findings keeps the bounds of its definition. It
// counts all, and lists errors before others.
func TestStatusIsBounded(t *testing.T) {
	long := strings.Repeat("ä", 2000)
	var r preflight.Report
	for i := range 60 {
		severity := preflight.Warning
		if i == 59 {
			severity = preflight.Error
		}
		r.Findings = append(r.Findings, preflight.Finding{
			Name: fmt.Sprint("Finding", i), Severity: severity, Object: long, Message: long, Remedy: strings.Split(strings.Repeat(long+"\n", 20), "\n"),
		})
	}
	s := status(&v1.KuryrClusterStatus{}, r, noon)
	if s.Errors != 1 || s.Warnings != 59 || s.Unknown != 0 {
		t.Errorf("%d errors, %d warnings, %d unknown; want 1, 59, 0", s.Errors, s.Warnings, s.Unknown)
	}
	if n := len(s.Findings); n != v1.MaxFindings || s.Findings[0].Name != "Finding59" {
		t.Errorf("%d findings, the first is %s; want %d, Finding59", n, s.Findings[0].Name, v1.MaxFindings)
	}
	for _, f := range s.Findings {
		if len(f.Object) > v1.MaxFindingObject || len(f.Message) > v1.MaxFindingText || len(f.Remedy) != v1.MaxRemedies || len(f.Remedy[0]) > v1.MaxRemedy {
			t.Errorf("%s has %d, %d bytes and %d commands, one of %d bytes", f.Name, len(f.Object), len(f.Message), len(f.Remedy), len(f.Remedy[0]))
		}
		if !strings.HasSuffix(f.Message, "ä…") {
			t.Errorf("the message of %s does not end with a whole letter: %q", f.Name, f.Message[len(f.Message)-8:])
		}
	}
	if said := meta.FindStatusCondition(s.Conditions, v1.ConditionReady).Message; len(said) > 2000 || !strings.Contains(said, "and 50 more") {
		t.Errorf("Ready says %q", said)
	}
}

// TestReady: the worst finding decides.
func TestReady(t *testing.T) {
	for _, tc := range []struct {
		severities string
		is         metav1.ConditionStatus
		reason     string
	}{
		{"", metav1.ConditionTrue, v1.ReasonReady},
		{"Warning", metav1.ConditionTrue, v1.ReasonWarnings},
		{"Warning Unknown", metav1.ConditionUnknown, v1.ReasonNotChecked},
		{"Unknown Warning Error", metav1.ConditionFalse, v1.ReasonErrors},
	} {
		var r preflight.Report
		for _, severity := range strings.Fields(tc.severities) {
			r.Findings = append(r.Findings, preflight.Finding{Name: "F", Severity: preflight.Severity(severity)})
		}
		c := meta.FindStatusCondition(status(&v1.KuryrClusterStatus{}, r, noon).Conditions, v1.ConditionReady)
		if c.Status != tc.is || c.Reason != tc.reason {
			t.Errorf("with %q: Ready is %s, %s; want %s, %s", tc.severities, c.Status, c.Reason, tc.is, tc.reason)
		}
	}
}

// TestDue: an unchanged result is written once an hour. While the cloud is away, the time of the
// last checks stays, and changed words of its error are no reason to write.
func TestDue(t *testing.T) {
	away := func(text string) preflight.Report {
		return preflight.Report{Findings: []preflight.Finding{{Name: preflight.CloudUnavailable, Severity: preflight.Unknown, Message: text}}}
	}
	is := status(&v1.KuryrClusterStatus{}, preflight.Report{}, noon)
	if !due(&v1.KuryrClusterStatus{}, is) {
		t.Error("the first result is not due")
	}
	gone := status(is, away("a"), noon.Add(2*time.Hour))
	for _, tc := range []struct {
		name     string
		is, next *v1.KuryrClusterStatus
		want     bool
	}{
		{"after 59 minutes", is, status(is, preflight.Report{}, noon.Add(59*time.Minute)), false},
		{"after an hour", is, status(is, preflight.Report{}, noon.Add(time.Hour)), true},
		{"a finding", is, status(is, preflight.Report{Findings: []preflight.Finding{{Name: "F", Severity: preflight.Warning}}}, noon.Add(time.Minute)), true},
		{"the cloud goes away", is, gone, true},
		{"the cloud stays away", gone, status(gone, away("b"), noon.Add(4*time.Hour)), false},
		{"the cloud is back", gone, status(gone, preflight.Report{}, noon.Add(4*time.Hour)), true},
	} {
		if got := due(tc.is, tc.next); got != tc.want {
			t.Errorf("%s: due = %t, want %t", tc.name, got, tc.want)
		}
	}
	never := status(&v1.KuryrClusterStatus{}, away("a"), noon)
	if never.LastChecked != nil || never.Unknown != 1 {
		t.Errorf("the cloud never answered: %+v", never)
	}
	if due(never, status(never, away("b"), noon.Add(time.Minute))) {
		t.Error("an outage whose error changes is due twice")
	}
}

// TestKept: a finding stays while its check could not be made because a request was not answered,
// so it is no new one afterwards. A check that was made, or that is forbidden, ends it.
func TestKept(t *testing.T) {
	finding := preflight.Finding{Name: "F", Severity: preflight.Warning, Object: "o", Message: "wrong", Remedy: []string{"mend"}}
	unknown := preflight.Finding{Name: "F", Severity: preflight.Unknown, Object: "check F", Message: "503", Unavailable: true}
	forbidden := preflight.Finding{Name: "F", Severity: preflight.Unknown, Object: "check F", Message: "403"}
	before := status(&v1.KuryrClusterStatus{}, preflight.Report{Findings: []preflight.Finding{finding}}, noon)
	for _, tc := range []struct {
		name              string
		now               []preflight.Finding
		warnings, unknown int32
	}{
		{"it is found again", []preflight.Finding{finding}, 1, 0},
		{"a request was not answered", []preflight.Finding{unknown}, 1, 1},
		{"of a part only", []preflight.Finding{finding, unknown}, 1, 1},
		{"the credential may not read", []preflight.Finding{forbidden}, 0, 1},
		{"it is mended", nil, 0, 0},
	} {
		next := status(before, preflight.Report{Findings: tc.now}, noon.Add(time.Minute))
		if next.Warnings != tc.warnings || next.Unknown != tc.unknown {
			t.Errorf("%s: findings %+v, want %d warnings, %d unknown", tc.name, next.Findings, tc.warnings, tc.unknown)
		}
		if f := row(finding, finding.Message); has(next.Findings, &f) != (tc.warnings > 0) {
			t.Errorf("%s: findings %+v, want the one before kept: %t", tc.name, next.Findings, tc.warnings > 0)
		}
	}
}

// older is an API server without the kind KuryrCluster.
type older struct{ client.Reader }

func (older) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1.GroupVersion.Group, Kind: "KuryrCluster"}}
}

// TestPeriod: what the checks find decides when they are made again, also without the kind.
func TestPeriod(t *testing.T) {
	for _, tc := range []struct {
		finding preflight.Finding
		want    time.Duration
	}{
		{preflight.Finding{Name: "F", Severity: preflight.Warning}, period},
		{preflight.Finding{Name: "F", Severity: preflight.Error}, again},
		{preflight.Finding{Name: preflight.CloudUnavailable, Severity: preflight.Unknown}, again},
	} {
		report := preflight.Report{Findings: []preflight.Finding{tc.finding}}
		l := &Loop{Options: Options{Shards: kube.Alone{}, Checks: checks(func() preflight.Report { return report })}, live: older{}, serving: make(chan struct{})}
		close(l.serving)
		if err := l.run(t.Context()); err != nil || l.wait != tc.want {
			t.Errorf("after %+v without the kind: %v, %s until the next checks; want %s", tc.finding, err, l.wait, tc.want)
		}
	}
}
