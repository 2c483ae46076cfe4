// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// A pod's life costs Neutron one POST and one DELETE, counted by the controller.
func TestNeutronCallsOfAPod(t *testing.T) {
	f := onBed(t)
	const pods = 6
	f.atRest(t)
	before := f.cloudCalls(t)
	var names []string
	for i := range pods {
		names = append(names, fmt.Sprintf("p%d", i))
	}
	began := time.Now()
	made := f.pods(t, names...)
	took := time.Since(began)
	f.delete(t, made...)
	f.atRest(t)
	after := f.cloudCalls(t)
	t.Logf("%d pods run after %.1f s", pods, took.Seconds())
	for key, n := range after {
		if n -= before[key]; n > 0 {
			t.Logf("%s: %d calls for %d pods", key, n, pods)
		}
	}
	for _, verb := range []string{"POST", "DELETE"} {
		if got := after[verb+" ports"] - before[verb+" ports"]; got != pods {
			t.Errorf("%d pods cost %d %s of ports, want %d", pods, got, verb, pods)
		}
	}
	if got := after["PUT ports"] - before["PUT ports"]; got != 0 {
		t.Errorf("%d pods cost %d PUT of ports, want none", pods, got)
	}
}

// cloudCalls returns what the controller has counted, by verb and resource.
func (f *fixture) cloudCalls(t testing.TB) map[string]int {
	t.Helper()
	text := must(f.OnNode(t.Context(), f.controller(t).Spec.NodeName, "curl", "-sS", "-m5", "http://127.0.0.1:9654/metrics"))(t)
	calls := map[string]int{}
	for _, line := range regexp.MustCompile(`(?m)^kuryr_cloud_requests_total\{(.*)\} (\S+)$`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			t.Fatalf("counter %q: %v", line[0], err)
		}
		label := func(name string) string {
			if found := regexp.MustCompile(name + `="([^"]*)"`).FindStringSubmatch(line[1]); found != nil {
				return found[1]
			}
			return ""
		}
		calls[label("verb")+" "+label("resource")] += int(n)
	}
	return calls
}
