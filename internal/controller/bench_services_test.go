// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// endpointsEvery is the time between two changes of endpoints in BenchmarkServices. OVN's provider
// takes half a second for each answer, so two workers can make at most four changes a second.
const endpointsEvery = time.Second

// BenchmarkServices measures a thousand Services on an OpenStack as slow as a measured one. It
// measures the time from an endpoint change that the API server has acknowledged to the answer to
// the request that changes the member. It reports which part is not the cloud's: events, plan,
// writes of the KuryrLoadBalancer and the wait for permission to send the request.
//
// Then it measures how long a restart takes until each half of the controller has reconciled every
// Service. The restart writes nothing, neither objects nor in Octavia.
func BenchmarkServices(bench *testing.B) {
	n := 1000
	if testing.Short() {
		n = 50
	}
	b := newSimBed(bench)
	b.launch(10_000)
	all := b.services(n)
	pools := map[string]string{}
	b.within("all are in the cloud", func() bool {
		for i := n - 1; i >= 0; i-- {
			name := serviceNamed(i)
			if pools[name] == "" && !b.atRest(name, 1, ipsOf(all[i])) {
				return false
			}
			if pools[name] == "" {
				pools[name] = b.balancerOf(name).Status.Pools[0].ID
			}
		}
		return true
	})
	b.quiet()
	b.slow("preset: measured")
	b.api.Reset()
	var acknowledged []time.Time
	tick := time.NewTicker(endpointsEvery)
	defer tick.Stop()
	for i := 0; bench.Loop(); i++ {
		s := all[i%n]
		s.Endpoints = endpointsAt(fmt.Sprintf("10.1.%d.%d", 100+i/n, 1+i%250))
		if err := b.client.Update(bench.Context(), s); err != nil {
			bench.Fatal(err)
		}
		acknowledged = append(acknowledged, time.Now())
		<-tick.C
	}
	b.within("all changes are in the cloud", func() bool {
		return !slices.ContainsFunc(all[:min(n, len(acknowledged))], func(s *discoveryv1.EndpointSlice) bool {
			return !b.atRest(strings.TrimSuffix(s.Name, "-1"), 1, ipsOf(s))
		})
	})
	bench.ReportMetric(0, "ns/op")
	b.reportChanges(bench, acknowledged, func(i int) string { return pools[serviceNamed(i%n)] })
	b.restart(bench, n)
}

// reportChanges reports the times of the requests that changes of members caused. Each change is of
// a pool that no other change of the same thousand concerns.
func (b *simBed) reportChanges(bench *testing.B, acknowledged []time.Time, pool func(i int) string) {
	calls := map[string][]openstacksim.Call{}
	changed, refused := 0, 0
	for _, c := range b.api.Calls() {
		parts := strings.Split(c.Path, "/")
		i := slices.Index(parts, "pools")
		if c.Service != "load-balancer" || i < 0 || i+1 == len(parts) {
			continue
		}
		calls[parts[i+1]] = append(calls[parts[i+1]], c)
		if c.Write() && c.Status == 409 {
			refused++
		} else if c.Write() {
			changed++
		}
	}
	var own, whole []time.Duration
	for i, from := range acknowledged {
		last := openstacksim.Call{}
		for _, c := range calls[pool(i)] {
			if c.Write() && c.At.After(from) && last.At.Before(c.At) {
				last = c
			}
		}
		if last.At.IsZero() { // the member changed before the API server had answered
			continue
		}
		share := last.At.Sub(from)
		for _, c := range calls[pool(i)] { // earlier reads
			if c.At.After(from) && c.At.Before(last.At) {
				share -= c.Took
			}
		}
		own, whole = append(own, share), append(whole, last.At.Add(last.Took).Sub(from))
	}
	report := func(what string, took []time.Duration) {
		slices.Sort(took)
		bench.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, what+"-ms-p50")
		bench.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, what+"-ms-p99")
	}
	report("own", own)
	report("whole", whole)
	bench.ReportMetric(float64(changed)/float64(len(acknowledged)), "requests/change")
	bench.ReportMetric(float64(refused)/float64(len(acknowledged)), "refused/change")
}

func serviceNamed(i int) string { return fmt.Sprint("many-", i) }

func ipsOf(s *discoveryv1.EndpointSlice) (ips []string) {
	for i := range s.Endpoints {
		ips = append(ips, s.Endpoints[i].Addresses[0])
	}
	return ips
}

// restart measures the time until the planner and the applier have reconciled each Service. Nothing
// is written.
func (b *simBed) restart(bench *testing.B, services int) {
	before := b.quiet()
	b.stop()
	b.api.Reset()
	planned, applied := reconciles(bench, "services"), reconciles(bench, "loadbalancers")
	from := time.Now()
	b.launch(0) // with the usual request limit
	b.within("each has been looked at", func() bool {
		return reconciles(bench, "services") >= planned+float64(services) && reconciles(bench, "loadbalancers") >= applied+float64(services)
	})
	bench.ReportMetric(time.Since(from).Seconds(), "s-restart")
	n := b.quiet()
	changed, refused, looked := b.asked()
	if n != before || len(changed)+len(refused) > 0 {
		bench.Errorf("after a restart %d writes of objects; of the cloud was asked %v, refused %v", n-before, changed, refused)
	}
	bench.ReportMetric(float64(total(looked)), "looks-restart")
}

// services creates so many Services with an endpoint each.
func (b *serviceBed) services(n int) []*discoveryv1.EndpointSlice {
	all := make([]*discoveryv1.EndpointSlice, n)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := worker; i < n; i += 8 {
				b.service(serviceNamed(i))
				all[i] = b.slice(serviceNamed(i), serviceNamed(i)+"-1", fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250))
			}
		})
	}
	group.Wait()
	return all
}

// within is eventually for conditions that take long.
func (b *serviceBed) within(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("not so after 5m: %s", what)
		}
	}
}

// reconciles returns the number of reconciles of a controller in this process.
func reconciles(t testing.TB, controller string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var n float64
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "controller" && l.GetValue() == controller {
					n += m.Counter.GetValue()
				}
			}
		}
	}
	return n
}
