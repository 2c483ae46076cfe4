// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// The names of metrics as measured returns them.
const (
	stageActive = "kuryr_loadbalancer_stage_seconds active"
	stageSynced = "kuryr_loadbalancer_stage_seconds synced"
	drifts      = "kuryr_loadbalancer_drifts_total"
)

func writeOf(change, result string) string {
	return fmt.Sprintf("kuryr_loadbalancer_writes_total %s %s", change, result)
}

// TestServiceMetrics: the metrics of load balancers during a Service's life.
func TestServiceMetrics(t *testing.T) {
	alone(t)
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = time.Hour })
	before := measured(t)
	before["kuryr_loadbalancers_busy"] = 0 // a gauge: an earlier value does not count
	b.start()
	klb := b.balancer("web", func(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork} })
	b.realised("web")
	b.since(t, before, tally{
		stageActive: 1, stageSynced: 1, drifts: 0, "kuryr_loadbalancers_busy": 0,
		writeOf("CreateLoadBalancer", "ok"): 1, writeOf("CreateFloatingIP", "ok"): 1, writeOf("ChangeMembers", "ok"): 0,
	})
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 2, 3) })
	b.realised("web")
	b.since(t, before, tally{stageActive: 1, stageSynced: 2, writeOf("ChangeMembers", "ok"): 1})
	b.fail(memory.ChangeMembers, fmt.Errorf("changing members: %w", sdn.ErrQuota))
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 3, 4) })
	b.eventually("a failure is counted", func() bool {
		return measured(t)[writeOf("ChangeMembers", "OverQuota")] > before[writeOf("ChangeMembers", "OverQuota")]
	})
	b.since(t, before, tally{stageSynced: 2, writeOf("ChangeMembers", "ok"): 1})
	b.fail("", nil)
	b.realised("web")
	b.since(t, before, tally{stageActive: 1, stageSynced: 3, writeOf("ChangeMembers", "ok"): 2})
	b.delete(klb)
	b.removed("web")
	b.since(t, before, tally{
		stageActive: 1, stageSynced: 3, drifts: 0, "kuryr_loadbalancers_busy": 0, writeOf("DeleteFloatingIP", "ok"): 1, writeOf("CreateLoadBalancer", "ok"): 1,
	})
	if asked := measured(t).moved(before, "kuryr_loadbalancer_writes_total DeleteLoadBalancer "); asked < 1 || asked > 2 { // one may find it gone
		t.Errorf("%v deletions of one load balancer", asked)
	}
}

// TestWritesOfSecurityGroups: the changes of a security group that keeps source ranges are counted.
func TestWritesOfSecurityGroups(t *testing.T) {
	alone(t)
	b := fenceBed(t)
	b.start()
	one := b.bound(b.pod("one"))
	before := measured(t)
	klb := b.fenced("web", one)
	b.realised("web")
	b.delete(klb)
	b.removed("web")
	after := measured(t)
	for _, change := range []string{"EnsureSecurityGroup", "CreateFloatingIP", "DeleteLoadBalancer", "DeleteSecurityGroup"} {
		if n := after.moved(before, "kuryr_loadbalancer_writes_total "+change+" "); n == 0 {
			t.Errorf("%s was not counted in the life of a Service with source ranges", change)
		}
	}
}

// moved returns how far all metrics with this prefix have moved.
func (now tally) moved(before tally, prefix string) (n float64) {
	for name, v := range now {
		if strings.HasPrefix(name, prefix) {
			n += v - before[name]
		}
	}
	return n
}

// TestStagesAreOfChanges: a check of an unchanged load balancer is no stage. That holds after a
// restart, and if the check finds a change by somebody else.
func TestStagesAreOfChanges(t *testing.T) {
	alone(t)
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 200 * time.Millisecond })
	b.start()
	b.balancer("web")
	id := b.realised("web").Status.LoadBalancers[0].ID
	b.stop()
	before := measured(t)
	looks := b.cloud.Calls(memory.GetLoadBalancer)
	b.start()
	b.eventually("it is looked at, twice", func() bool { return b.cloud.Calls(memory.GetLoadBalancer) > looks+1 })
	b.since(t, before, tally{stageActive: 0, stageSynced: 0, drifts: 0})
	b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) { lb.Listeners = lb.Listeners[1:] })
	b.since(t, before, tally{drifts: 1, writeOf("CreateListener", "ok"): 1})
	b.eventually("it is put right", func() bool {
		c := meta.FindStatusCondition(b.klb("web").Status.Conditions, v1.ConditionInSync)
		return c != nil && c.Status == metav1.ConditionTrue && len(b.serves("web")) == len(served)
	})
	b.since(t, before, tally{stageActive: 0, stageSynced: 0, drifts: 1, writeOf("CreateListener", "ok"): 1})
}
