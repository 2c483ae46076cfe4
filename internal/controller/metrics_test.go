// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// tally has the values of the metrics, by name and label values.
type tally map[string]float64

func measured(t *testing.T) tally {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := tally{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			// The getters of other kinds of metric return zero.
			out[name] = float64(m.GetHistogram().GetSampleCount()) + m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// since waits until the metrics have moved so far since before. They also contain the counts of
// earlier tests.
func (b *bed) since(t *testing.T, before, want tally) {
	t.Helper()
	var name string
	defer func() {
		if t.Failed() {
			t.Logf("%s has moved by %v, want %v", name, measured(t)[name]-before[name], want[name])
		}
	}()
	b.eventually("the metrics have moved as they should", func() bool {
		now := measured(t)
		for k, v := range want {
			if now[k]-before[k] != v {
				name = k
				return false
			}
		}
		return true
	})
}

// TestPoolMetrics: the metrics of pools during a pool's life.
func TestPoolMetrics(t *testing.T) {
	alone(t)
	b := idleBed(t)
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.Max, s.Pools.TTL.Duration = 1, 3, time.Hour })
	before := measured(t)
	b.start()
	late := b.pod("late")
	b.since(t, before, tally{
		"kuryr_pool_misses_total": 1, "kuryr_pool_wait_seconds": 1, "kuryr_pool_hits_total": 0, "kuryr_pods_waiting": 0,
		"kuryr_port_requests_total pods ok": 1, "kuryr_pool_refills_total ok": 1, "kuryr_port_requests_total refill ok": 1,
		"kuryr_ports available": 1, "kuryr_ports bound": 1, "kuryr_port_creations_in_flight": 0,
	})
	refused := measured(t)["kuryr_pool_refills_total failed"]
	b.fail(memory.CreatePorts, sdn.ErrForbidden)
	lucky := b.pod("lucky")
	b.eventually("a refill has failed", func() bool { return measured(t)["kuryr_pool_refills_total failed"] > refused })
	b.since(t, before, tally{
		"kuryr_pool_misses_total": 1, "kuryr_pool_wait_seconds": 1, "kuryr_pool_hits_total": 1,
		"kuryr_ports available": 0, "kuryr_ports bound": 2, "kuryr_pool_refills_total ok": 1,
	})
	b.fail("", nil)
	b.since(t, before, tally{"kuryr_pool_refills_total ok": 2, "kuryr_ports available": 1})
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL.Duration = 0, 0 })
	b.delete(late)
	b.delete(lucky)
	b.settled(0)
	b.since(t, before, tally{
		"kuryr_ports available": 0, "kuryr_ports bound": 0, "kuryr_ports recycling": 0, "kuryr_pods_waiting": 0,
		"kuryr_pool_hits_total": 1, "kuryr_pool_misses_total": 1, "kuryr_pool_wait_seconds": 1,
	})
}

// TestPodsOfAMachineThatIsNotFoundWait: these pods are in no pool. They are counted all the same,
// once, until the machine is found.
func TestPodsOfAMachineThatIsNotFoundWait(t *testing.T) {
	alone(t)
	b := machinesBed(t)
	before := measured(t)
	b.start()
	pods := []*corev1.Pod{b.pod("a"), b.pod("b"), b.pod("c")}
	b.since(t, before, tally{"kuryr_pods_waiting": 3})
	b.delete(pods[2])
	b.since(t, before, tally{"kuryr_pods_waiting": 2})
	b.cloud.AddMachine(memory.Machine{PortID: machine, SubnetID: machineNet, Address: machineAddr, Trunk: true})
	b.bound(pods[0])
	b.bound(pods[1])
	b.since(t, before, tally{"kuryr_pods_waiting": 0})
}

// TestHitIsOnePodThatHasItsPort: nothing is counted before the pod has the port.
func TestHitIsOnePodThatHasItsPort(t *testing.T) {
	alone(t)
	b := idleBed(t)
	var refuse atomic.Bool
	var refused atomic.Int32
	b.newClient = through(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if port, ok := obj.(*v1.KuryrPort); ok && port.Spec.PodRef != nil && refuse.Load() {
				refused.Add(1)
				return apierrors.NewConflict(v1.GroupVersion.WithResource("kuryrports").GroupResource(), obj.GetName(), nil)
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL.Duration = 1, time.Hour })
	b.start()
	b.bound(b.pod("first"))
	// Else the pod would get the port that is made for the pool, and with its creation.
	b.knows("a port is free", func(p *v1.KuryrPort) bool { return p.Spec.PodRef == nil && p.Status.Phase == v1.PortAvailable })
	before := measured(t)
	refuse.Store(true)
	pod := b.pod("web")
	b.eventually("the pod was to have the port", func() bool { return refused.Load() > 1 })
	if n := measured(t)["kuryr_pool_hits_total"] - before["kuryr_pool_hits_total"]; n != 0 {
		t.Errorf("%v hits of a pod that has no port", n)
	}
	refuse.Store(false)
	b.bound(pod)
	b.since(t, before, tally{"kuryr_pool_hits_total": 1, "kuryr_pool_misses_total": 0, "kuryr_pool_wait_seconds": 0})
}

// TestConfigurationMetrics: the metrics name the file in use, and show when a newer one is refused.
func TestConfigurationMetrics(t *testing.T) {
	live := settings.NewLive(settings.Settings{})
	says := func(what string, want tally) {
		t.Helper()
		have := measured(t)
		for name := range have {
			if strings.HasPrefix(name, "kuryr_configuration") && have[name] != want[name] {
				t.Errorf("%s: %s is %v, want %v", what, name, have[name], want[name])
			}
		}
		for name := range want {
			if _, ok := have[name]; !ok {
				t.Errorf("%s: there is no %s", what, name)
			}
		}
	}
	live.Accept("sha256:one")
	says("accepted", tally{"kuryr_configuration_valid": 1, "kuryr_configuration_info sha256:one": 1})
	live.Refuse()
	says("refused", tally{"kuryr_configuration_valid": 0, "kuryr_configuration_info sha256:one": 1})
	live.Accept("sha256:two")
	says("another", tally{"kuryr_configuration_valid": 1, "kuryr_configuration_info sha256:two": 1})
}
