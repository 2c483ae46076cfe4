// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestTagsCannotBeWritten: a load balancer has lost its tags, and the cloud refuses to write them.
// It serves as before, and follows its endpoints.
func TestTagsCannotBeWritten(t *testing.T) {
	alone(t)
	for name, refusal := range map[string]error{"forbidden": sdn.ErrForbidden, "broken": sdn.ErrUnavailable, "invalid": sdn.ErrInvalid} {
		t.Run(name, func(t *testing.T) {
			b := balancerBed(t)
			b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
			b.start()
			b.balancer("web")
			id := b.realised("web").Status.LoadBalancers[0].ID
			drifts := counted(t, "kuryr_loadbalancer_drifts_total")
			b.fail(memory.MarkLoadBalancer, fmt.Errorf("tagging: %w", refusal))
			b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Unmarked = true })
			for _, endpoint := range []int{7, 8} {
				b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, endpoint) })
				b.eventually("it follows its endpoints", func() bool {
					return slices.Contains(b.serves("web"), fmt.Sprint("TCP:80>10.1.0.", endpoint))
				})
				b.realised("web")
			}
			b.eventually("the status says so", func() bool {
				ready := meta.FindStatusCondition(b.klb("web").Status.Conditions, v1.ConditionReady)
				return ready.Status == "True" && hasWords(ready.Message, "mark load balancer "+id, "tagging")
			})
			tries := b.cloud.Calls(memory.MarkLoadBalancer)
			b.eventually("it is tried again", func() bool { return b.cloud.Calls(memory.MarkLoadBalancer) > tries })
			if n := counted(t, "kuryr_loadbalancer_drifts_total") - drifts; n > 1 {
				t.Errorf("it is told %v times that somebody has changed something, want once", n)
			}
			b.fail("", nil)
			b.eventually("it is marked again, and nothing more is said of it", func() bool {
				ready := meta.FindStatusCondition(b.klb("web").Status.Conditions, v1.ConditionReady)
				return !b.tree("web").Unmarked && !strings.Contains(ready.Message, "mark")
			})
		})
	}
}
