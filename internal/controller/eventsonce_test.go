// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// told returns the number of Events for each object and reason.
func (b *bed) told() map[string]int {
	b.t.Helper()
	var list eventsv1.EventList
	if err := b.client.List(b.t.Context(), &list); err != nil {
		b.t.Fatal(err)
	}
	all := map[string]int{}
	for _, e := range list.Items {
		if e.ReportingController != "kuryr-controller" {
			continue
		}
		n := 1
		if e.Series != nil {
			n = int(e.Series.Count)
		}
		all[fmt.Sprintf("%s/%s %s", e.Regarding.Kind, e.Regarding.Name, e.Reason)] += n
	}
	return all
}

// TestRestartRepeatsNoEvent: the conditions of pools, ports and load balancers record what an Event
// was sent for. A new process finds everything unchanged, and sends no Event again. TestNotesOnce
// tests that for Services.
func TestRestartRepeatsNoEvent(t *testing.T) {
	b := balancerBed(t)
	b.cloud.AddGroups(group)
	b.cloud.SetLoadBalancerQuota(0)
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.Batch = 0, 1 })
	b.start()
	b.bound(b.pod("web", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} }))
	b.balancer("lb")
	b.eventOn("lb", v1.ReasonOverQuota)
	b.set(func(s *settings.Settings) {
		s.Pods.SecurityGroups = []config.GroupRule{{PodSelector: labelled("app", "x"), SecurityGroupIDs: []string{nobody}}}
	})
	b.eventOn("web", v1.ReasonRejected)
	b.fail(memory.CreatePorts, fmt.Errorf("creating: %w", sdn.ErrForbidden))
	b.set(func(s *settings.Settings) { s.Pools.Min = 4 })
	b.eventOn(b.poolOn(node).Name, v1.ReasonForbidden)
	time.Sleep(time.Second) // the status of each is written
	before := b.told()
	b.stop()
	b.start()
	time.Sleep(2 * time.Second)
	if diff := cmp.Diff(before, b.told()); diff != "" {
		t.Errorf("Events after a restart (-before +after):\n%s", diff)
	}
}
