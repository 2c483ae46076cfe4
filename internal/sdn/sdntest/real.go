// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"os"
	"testing"
)

// Missing skips a test of a real cloud and names the missing part. If the test bed should exist
// (KURYR_E2E is set), it fails instead, because the test bed has everything.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("KURYR_E2E") != "" {
		t.Fatal(what)
	}
	t.Skip("SKIPPED: " + what)
}

// Host returns a host that a real Neutron can bind ports to: KURYR_TEST_HOST, or a host with a
// live agent. agents decodes the answer to GET /v2.0/agents.
func Host(t testing.TB, agents func(into any) error) string {
	t.Helper()
	if h := os.Getenv("KURYR_TEST_HOST"); h != "" {
		return h
	}
	var out struct {
		Agents []struct {
			Host  string
			Type  string `json:"agent_type"`
			Alive bool
		}
	}
	if err := agents(&out); err != nil {
		t.Fatal(err)
	}
	for _, a := range out.Agents {
		if a.Alive && (a.Type == "OVN Controller agent" || a.Type == "Open vSwitch agent") {
			return a.Host
		}
	}
	Missing(t, "this Neutron shows no live agent that could bind a port; set KURYR_TEST_HOST to a host that can")
	return ""
}
