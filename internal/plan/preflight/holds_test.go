// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"slices"
	"testing"

	"github.com/kuryr-go/kuryr/internal/plan/preflight"
)

// TestHolds: a first start waits for errors that concern all pods or all Services, and for the cloud.
// It does not wait for warnings, for checks that could not be made, and for errors of a part.
func TestHolds(t *testing.T) {
	for _, tc := range []struct {
		name     string
		severity preflight.Severity
		want     bool
	}{
		{"PodSubnetMissing", preflight.Error, true},
		{"PodSubnetNotRouted", preflight.Warning, false},
		{"ProviderMissing", preflight.Unknown, false},
		{preflight.CloudUnavailable, preflight.Unknown, true},
		{"NodeAgentDown", preflight.Error, false},
		{"ServiceLegMissing", preflight.Error, false},
		{"ClockSkew", preflight.Warning, false},
	} {
		if got := preflight.Holds(preflight.Finding{Name: tc.name, Severity: tc.severity}); got != tc.want {
			t.Errorf("Holds(%s %s) = %v, want %v", tc.severity, tc.name, got, tc.want)
		}
	}
	kinds := preflight.Catalog()
	for _, name := range preflight.Holding() {
		if !slices.ContainsFunc(kinds, func(k preflight.Kind) bool {
			return k.Name == name && (k.Severity == preflight.Error || name == preflight.CloudUnavailable)
		}) {
			t.Errorf("%s holds a first start, and is no kind of error", name)
		}
	}
}
