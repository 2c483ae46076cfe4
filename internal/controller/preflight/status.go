// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
)

// maxNames is how many findings a condition's message names.
const maxNames = 10

// status returns the status that follows from a report. If the cloud did not answer, the findings
// of the checks before stay. Those of an outage before the first checks are the outage's first.
func status(is *v1.KuryrClusterStatus, report preflight.Report, now time.Time) *v1.KuryrClusterStatus {
	next := is.DeepCopy()
	away := unreached(report)
	known := meta.IsStatusConditionFalse(is.Conditions, v1.ConditionChecked)
	if away == nil || is.LastChecked == nil && !known {
		list(next, kept(is.Findings, report.Findings))
		is, reason := ready(next)
		set(next, now, v1.ConditionReady, is, reason, summary(next))
	}
	if away == nil {
		next.LastChecked = &metav1.Time{Time: now.Truncate(time.Second)}
		set(next, now, v1.ConditionChecked, metav1.ConditionTrue, v1.ReasonChecked, "The last checks reached the cloud.")
	} else if f := row(*away, away.Message); !known {
		// Only the first error: errors of one outage may read differently.
		set(next, now, v1.ConditionChecked, metav1.ConditionFalse, v1.ReasonUnavailable, "Findings of earlier checks are kept. "+f.String())
	}
	return next
}

// kept returns findings, and those of the checks before that could not be made because a request was
// not answered. So an outage of one part of the cloud does not report them anew when it ends.
func kept(before []v1.KuryrClusterFinding, now []preflight.Finding) []v1.KuryrClusterFinding {
	var all []v1.KuryrClusterFinding
	unavailable := map[string]bool{}
	for _, f := range now {
		all = append(all, row(f, f.Message))
		unavailable[f.Name] = unavailable[f.Name] || f.Unavailable
	}
	for _, old := range before {
		if unavailable[old.Name] && old.Severity != string(preflight.Unknown) && !has(all, &old) {
			all = append(all, old)
		}
	}
	return all
}

func set(s *v1.KuryrClusterStatus, now time.Time, kind string, is metav1.ConditionStatus, reason, message string) {
	c := metav1.Condition{Type: kind, Status: is, Reason: reason, Message: kube.Reword(message)}
	c.LastTransitionTime = metav1.Time{Time: now.Truncate(time.Second)}
	meta.SetStatusCondition(&s.Conditions, c)
}

// unreached returns the finding that the cloud did not answer; nil if it did.
func unreached(report preflight.Report) *preflight.Finding {
	i := slices.IndexFunc(report.Findings, func(f preflight.Finding) bool { return f.Name == preflight.CloudUnavailable })
	if i < 0 {
		return nil
	}
	return &report.Findings[i]
}

// list puts the findings into a status: errors first, then warnings, then checks that were not made.
func list(s *v1.KuryrClusterStatus, all []v1.KuryrClusterFinding) {
	s.Errors, s.Warnings, s.Unknown, s.Findings = 0, 0, 0, nil
	counts := map[preflight.Severity]*int32{preflight.Error: &s.Errors, preflight.Warning: &s.Warnings, preflight.Unknown: &s.Unknown}
	for _, severity := range []preflight.Severity{preflight.Error, preflight.Warning, preflight.Unknown} {
		for _, f := range all {
			if f.Severity != string(severity) {
				continue
			}
			if *counts[severity]++; len(s.Findings) < v1.MaxFindings {
				s.Findings = append(s.Findings, f)
			}
		}
	}
}

// row returns a finding as the status lists it.
func row(f preflight.Finding, text string) v1.KuryrClusterFinding {
	out := v1.KuryrClusterFinding{
		Name: f.Name, Severity: string(f.Severity), Object: cut(f.Object, v1.MaxFindingObject), Message: cut(text, v1.MaxFindingText),
	}
	for _, command := range f.Remedy[:min(len(f.Remedy), v1.MaxRemedies)] {
		out.Remedy = append(out.Remedy, cut(command, v1.MaxRemedy))
	}
	return out
}

// cut returns a text that has at most n bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n-len("…")], "") + "…"
}

func has(list []v1.KuryrClusterFinding, f *v1.KuryrClusterFinding) bool {
	return slices.ContainsFunc(list, func(g v1.KuryrClusterFinding) bool {
		return g.Name == f.Name && g.Object == f.Object && g.Severity == f.Severity
	})
}

// ready returns status and reason of the condition Ready that follow from the findings.
func ready(s *v1.KuryrClusterStatus) (is metav1.ConditionStatus, reason string) {
	switch {
	case s.Errors > 0:
		return metav1.ConditionFalse, v1.ReasonErrors
	case s.Unknown > 0:
		return metav1.ConditionUnknown, v1.ReasonNotChecked
	case s.Warnings > 0:
		return metav1.ConditionTrue, v1.ReasonWarnings
	}
	return metav1.ConditionTrue, v1.ReasonReady
}

// summary says in a line what was found.
func summary(s *v1.KuryrClusterStatus) string {
	total := int(s.Errors + s.Warnings + s.Unknown)
	if total == 0 {
		return "The preflight checks found nothing wrong."
	}
	var names []string
	for _, f := range s.Findings[:min(len(s.Findings), maxNames)] {
		name := f.Name
		if f.Object != "" {
			name += " (" + cut(f.Object, 80) + ")"
		}
		names = append(names, name)
	}
	more := ""
	if total > len(names) {
		more = fmt.Sprintf(" and %d more", total-len(names))
	}
	return fmt.Sprintf("Errors: %d, warnings: %d, not checked: %d. %s%s", s.Errors, s.Warnings, s.Unknown, strings.Join(names, ", "), more)
}
