// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// BenchmarkRestartNetworks measures the restart of a controller with 1000 namespaces, each with a
// network of its own and a pool with one free port. It measures the time from the start to the first
// pod with a port, and the memory for all of it, including the test's.
func BenchmarkRestartNetworks(b *testing.B) {
	const namespaces, machines = 1000, 50
	servers.Store(b, apitest.Start(b, 1)[0].Config) // it does not finish the deletion of namespaces
	bed := idleBed(b)
	bed.unhurried = true
	bed.current.Pools.TTL.Duration, bed.current.Orphans = time.Hour, config.New().Orphans
	bed.current.Networks = config.Networks{MinFree: 1, Namespaces: []config.NamespaceNetwork{{
		NamespaceSelector: labelled("team", "many"), NetworkChoice: config.NetworkChoice{Mode: "namespace"},
	}}}
	bed.settings = settings.NewLive(bed.current)
	nodes := bed.nodes(machines)
	var wg sync.WaitGroup
	limit := make(chan struct{}, 32)
	for i := range namespaces {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			bed.warmNetwork(i, nodes[i%machines])
		})
	}
	wg.Wait()
	pod := bed.pod("first", inNamespace(fmt.Sprint("many-", namespaces/2)), func(p *corev1.Pod) { p.Spec.NodeName = nodes[namespaces/2%machines] })
	goruntime.GC()
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	made := bed.cloud.Calls(memory.CreatePorts)
	b.ResetTimer()
	began := time.Now()
	bed.start()
	w := bed.watchArrivals()
	bed.eventually("pod "+pod.Name+" has a port", func() bool { return w.count() > 0 })
	b.ReportMetric(time.Since(began).Seconds(), "s-to-first-pod")
	bed.eventually("the refill of its pool is there", func() bool { return bed.cloud.Calls(memory.CreatePorts) > made })
	time.Sleep(10 * time.Second) // all plans are done
	goruntime.GC()
	goruntime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "heap-MiB")
	b.ReportMetric(float64(bed.cloud.Calls(memory.CreatePorts)-made), "creations")
	b.ReportMetric(float64(bed.cloud.Calls(memory.DeletePort)), "deletions")
	b.ReportMetric(0, "ns/op")
	used := cpuTime(b)
	time.Sleep(20 * time.Second)
	b.ReportMetric((cpuTime(b)-used).Seconds()*1.5, "cpu-s-in-30s")
	bed.logCalls("in all")
}

// warmNetwork creates a namespace with its network, and a pool with a free port on a node.
func (b *bed) warmNetwork(i int, node string) {
	b.t.Helper()
	name, network, subnet := fmt.Sprint("many-", i), fmt.Sprintf("5f1c5aac-0000-4000-8001-%012d", i), fmt.Sprintf("5f1c5aac-0000-4000-8002-%012d", i)
	prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + i/250), byte(i % 250), 0}), 24)
	b.cloud.AddSubnet(memory.Subnet{ID: subnet, NetworkID: network, Prefix: prefix, MTU: 1442})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "many"}}}
	b.create(ns)
	n := b.planned(ns, "")
	n.Status = v1.KuryrNetworkStatus{
		NetworkID: network, MTU: 1442, Subnets: []v1.NetworkSubnetStatus{{ID: subnet, IPVersion: 4, CIDR: prefix.String()}},
		Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonReady, Message: "ok", LastTransitionTime: metav1.Now()}},
	}
	if err := b.client.Status().Update(b.t.Context(), n); err != nil {
		b.t.Error(err)
		return
	}
	b.warmPoolOf(pool.KeyOn(node, pool.Settings{
		NetworkID: network, SubnetIDs: []string{subnet}, SecurityGroupIDs: b.current.Pods.SecurityGroupIDs, Namespace: name,
	}), network, 1)
}
