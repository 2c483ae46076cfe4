// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// arrivals records the times at which pods and their bound KuryrPorts reach this process as events.
// The second is when a node's daemon can begin to plug.
type arrivals struct {
	mu          sync.Mutex
	seen, bound map[types.UID]time.Time
}

// watchArrivals begins to record. The controller must have been started.
func (b *bed) watchArrivals() *arrivals {
	b.t.Helper()
	a := &arrivals{seen: map[types.UID]time.Time{}, bound: map[types.UID]time.Time{}}
	pod := func(o any) { a.take(a.seen, o.(*corev1.Pod).UID) }
	port := func(o any) {
		if ref := o.(*v1.KuryrPort).Spec.PodRef; ref != nil {
			a.take(a.bound, ref.UID)
		}
	}
	for kind, add := range map[client.Object]func(any){&corev1.Pod{}: pod, &v1.KuryrPort{}: port} {
		informer, err := b.manager.GetCache().GetInformer(b.t.Context(), kind)
		if err != nil {
			b.t.Fatal(err)
		}
		handler := toolscache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, now any) { add(now) }}
		if _, err := informer.AddEventHandler(handler); err != nil {
			b.t.Fatal(err)
		}
	}
	return a
}

func (a *arrivals) take(into map[types.UID]time.Time, uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := into[uid]; !ok {
		into[uid] = time.Now()
	}
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.bound)
}

// report reports how long the pods that were seen after began waited, and how many were served per
// second.
func (a *arrivals) report(b *testing.B, began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var waits []time.Duration
	var last time.Time
	for uid, seen := range a.seen {
		if bound, ok := a.bound[uid]; ok && seen.After(began) {
			waits = append(waits, max(0, bound.Sub(seen)))
			last = slices.MaxFunc([]time.Time{last, bound}, time.Time.Compare)
		}
	}
	slices.Sort(waits)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(waits[len(waits)/2]), "p50-ms")
	b.ReportMetric(ms(waits[len(waits)*99/100]), "p99-ms")
	b.ReportMetric(float64(len(waits))/last.Sub(began).Seconds(), "pods/s")
	b.ReportMetric(0, "ns/op")
}

func (b *bed) nodes(n int) (names []string) {
	for i := range n {
		name := fmt.Sprint("bench-", i)
		b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		names = append(names, name)
	}
	return names
}

// podsOn creates n pods on each of nodes, with this gap between them.
func (b *bed) podsOn(nodes []string, n int, gap time.Duration) {
	var wg sync.WaitGroup
	limit := make(chan struct{}, 32)
	for i := range n {
		time.Sleep(gap)
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			b.pod(fmt.Sprint("bench-", i), func(p *corev1.Pod) { p.Spec.NodeName = nodes[i%len(nodes)] })
		})
	}
	wg.Wait()
}

// BenchmarkWarmBind measures the time from a pod's event to that of its bound KuryrPort. It has
// 1000 pods on 20 nodes with warm pools. In "steady" 40 pods a second arrive. In "burst" all arrive
// at once, as fast as the API server accepts them.
func BenchmarkWarmBind(b *testing.B) {
	b.Run("steady", func(b *testing.B) { benchmarkWarmBind(b, 25*time.Millisecond) })
	b.Run("burst", func(b *testing.B) { benchmarkWarmBind(b, 0) })
}

func benchmarkWarmBind(b *testing.B, gap time.Duration) {
	const pods = 1000
	bed := idleBed(b)
	bed.unhurried = true
	nodes := bed.nodes(20)
	bed.set(func(s *settings.Settings) {
		s.Pools.Min, s.Pools.Batch, s.Pools.TTL.Duration = pods/20, 50, time.Hour
	})
	bed.start()
	for _, node := range nodes {
		bed.pod("first-"+node, func(p *corev1.Pod) { p.Spec.NodeName = node })
	}
	bed.settled(pods + len(nodes))
	bed.eventually("all pools are warm", func() bool {
		free := 0
		for _, p := range bed.pools() {
			free += int(p.Status.Available)
		}
		return free == pods
	})
	bed.set(func(s *settings.Settings) { s.Pools.Min = 0 }) // refills are not measured
	w := bed.watchArrivals()
	for w.count() < len(nodes) {
		time.Sleep(time.Millisecond)
	}
	calls := bed.cloud.Calls(memory.CreatePorts) + bed.cloud.Calls(memory.UpdatePort) + bed.cloud.Calls(memory.GetPort)
	began := time.Now()
	bed.podsOn(nodes, pods, gap)
	bed.eventually("all pods have ports", func() bool { return w.count() == pods+len(nodes) })
	w.report(b, began)
	calls = bed.cloud.Calls(memory.CreatePorts) + bed.cloud.Calls(memory.UpdatePort) + bed.cloud.Calls(memory.GetPort) - calls
	b.ReportMetric(float64(calls), "cloud-calls")
}

// BenchmarkRestart measures the restart of a controller with 500 pools of 20 free ports each. It
// measures the time from the start to the first pod with a port. It measures the memory of the
// process then, including the test's. It measures the CPU time in the half minute after the first
// comparison with the cloud.
func BenchmarkRestart(b *testing.B) {
	const pools, each, grace, idle = 500, 20, 15 * time.Second, 30 * time.Second
	bed := idleBed(b)
	bed.unhurried = true
	bed.current.Pools.Min, bed.current.Pools.TTL.Duration, bed.current.Orphans = each, time.Hour, config.New().Orphans
	bed.current.Orphans.Grace.Duration = grace // for a minute; pods are checked more often
	// A change of the settings would cause a comparison with the cloud.
	bed.settings = settings.NewLive(bed.current)
	nodes := bed.nodes(pools)
	var wg sync.WaitGroup
	limit := make(chan struct{}, 32)
	for _, node := range nodes {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			bed.warmPool(node, each)
		})
	}
	wg.Wait()
	pod := bed.pod("first", func(p *corev1.Pod) { p.Spec.NodeName = nodes[pools/2] })
	goruntime.GC()
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	b.ResetTimer()
	began := time.Now()
	bed.start()
	// Listing ten thousand objects again and again would dominate the measurement.
	w := bed.watchArrivals()
	bed.eventually("pod "+pod.Name+" has a port", func() bool { return w.count() > 0 })
	b.ReportMetric(time.Since(began).Seconds(), "s-to-first-pod")
	bed.logCalls("to the first pod")
	b.ReportMetric(0, "ns/op")
	bed.runs(pod, bed.portOf(pod))
	time.Sleep(grace + 5*time.Second) // all comparisons are done
	goruntime.GC()
	goruntime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "heap-MiB")
	b.ReportMetric(float64(after.Sys)/(1<<20), "sys-MiB")
	used := cpuTime(b)
	time.Sleep(idle)
	b.ReportMetric((cpuTime(b) - used).Seconds(), "cpu-s-in-30s")
	bed.logCalls("in all")
}

// cpuTime is the CPU time of this process so far. The API server is another process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// logCalls logs the calls to the cloud.
func (b *bed) logCalls(until string) {
	for _, call := range []string{memory.CreatePorts, memory.ListPorts, memory.GetPort, memory.States, memory.UpdatePort, memory.DeletePort, memory.Room} {
		if n := b.cloud.Calls(call); n > 0 {
			b.t.Logf("%s: %d calls of %s", until, n, call)
		}
	}
}

// warmPool creates a pool with free ports.
func (b *bed) warmPool(node string, n int) {
	b.t.Helper()
	s := pool.Settings{SubnetIDs: b.current.Pods.SubnetIDs, SecurityGroupIDs: b.current.Pods.SecurityGroupIDs}
	b.warmPoolOf(pool.KeyOn(node, s), network, n)
}

// warmPoolOf creates a pool in a network with n ports, of which these pods have the first ones. The others are free.
func (b *bed) warmPoolOf(key v1.PoolKey, network string, n int, pods ...*corev1.Pod) {
	b.t.Helper()
	object := &v1.KuryrPortPool{Spec: v1.KuryrPortPoolSpec{
		Key: key, Min: int32(n), Batch: 1, TTL: metav1.Duration{Duration: time.Hour},
	}}
	object.Name = pool.Name(object.Spec.Key)
	b.create(object)
	made, err := b.cloud.Backend("cluster").CreatePorts(b.t.Context(), sdn.Owner{Kind: "kuryrportpool", Name: object.Name},
		sdn.PortRequest{SubnetIDs: key.SubnetIDs, SecurityGroupIDs: key.SecurityGroupIDs, Host: key.NodeName}, n)
	if err != nil {
		b.t.Error(err)
		return
	}
	for i := range made {
		port := &v1.KuryrPort{
			ObjectMeta: metav1.ObjectMeta{
				Name: made[i].ID, Finalizers: []string{v1.PortFinalizer},
				Labels: map[string]string{v1.PortStatusLabel: string(v1.PortAvailable)},
			},
			Spec: v1.KuryrPortSpec{
				Pool: object.Name, NodeName: key.NodeName, NetworkID: network, SecurityGroupIDs: []string{group},
				VIF: made[i].VIF,
			},
		}
		phase := v1.PortAvailable
		if i < len(pods) {
			phase = v1.PortBound
			port.Labels[v1.PortStatusLabel] = string(phase)
			port.Spec.PodRef = &v1.PodReference{Namespace: pods[i].Namespace, Name: pods[i].Name, UID: pods[i].UID, Interface: "eth0", Default: true}
		}
		b.create(port)
		port.Status = v1.KuryrPortStatus{Phase: phase, AppliedSecurityGroupIDs: []string{group}}
		for _, c := range []metav1.Condition{ // as the controller leaves a port at rest
			{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: kube.Reword("The port matches its spec.")},
			{Type: v1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: "Settled", Message: kube.Reword("No action needed.")},
		} {
			c.ObservedGeneration = port.Generation
			meta.SetStatusCondition(&port.Status.Conditions, c)
		}
		if err := b.client.Status().Update(b.t.Context(), port, client.FieldOwner("kuryr-port")); err != nil {
			b.t.Error(err)
			return
		}
	}
}

// BenchmarkColdBurst measures how long 500 pods on 10 nodes with empty pools wait. The OpenStack is
// as slow as a measured one. For comparison it measures the same ports in bulk requests only.
func BenchmarkColdBurst(b *testing.B) {
	const pods, batch, atOnce = 500, 10, 8
	b.Run("bare", func(b *testing.B) {
		cloud, backend := newMeasured(b)
		began := time.Now()
		var wg sync.WaitGroup
		limit := make(chan struct{}, atOnce)
		for i := range pods / batch {
			limit <- struct{}{}
			wg.Go(func() {
				defer func() { <-limit }()
				owner := sdn.Owner{Kind: "kuryrportpool", Name: "bench"}
				request := sdn.PortRequest{SubnetIDs: []string{cloud.subnet}, SecurityGroupIDs: []string{cloud.group}, Host: fmt.Sprint("bench-", i%10)}
				if _, err := backend.CreatePorts(b.Context(), owner, request, batch); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		b.ReportMetric(time.Since(began).Seconds(), "s")
		b.ReportMetric(0, "ns/op")
	})
	b.Run("pods", func(b *testing.B) {
		bed := idleBed(b)
		cloud, backend := newMeasured(b)
		bed.unhurried, bed.backend = true, backend
		nodes := bed.nodes(10)
		bed.set(func(s *settings.Settings) {
			s.Pods.SubnetIDs, s.Pods.SecurityGroupIDs, s.Pools.Batch, s.Pools.MaxCreatesPerSubnet = []string{cloud.subnet}, []string{cloud.group}, batch, atOnce
		})
		bed.start()
		w := bed.watchArrivals()
		began := time.Now()
		bed.podsOn(nodes, pods, 0)
		for w.count() < pods {
			time.Sleep(10 * time.Millisecond)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s")
		w.report(b, began)
		b.ReportMetric(float64(cloud.api.(*openstacksim.Cloud).Count("POST", "ports")), "requests")
	})
}

// newMeasured returns an OpenStack as slow as a measured one, and a backend for it.
func newMeasured(b *testing.B) (*openstackCloud, *openstack.Backend) {
	b.Helper()
	hosts := make([]string, 10)
	for i := range hosts {
		hosts[i] = fmt.Sprint("bench-", i)
	}
	c := openstacksim.Start(b, func(o *openstacksim.Options) { o.Hosts = hosts })
	o := &openstackCloud{t: b, api: c}
	o.logIn()
	net := o.make("network", map[string]any{"name": "pods"})
	o.subnet = o.make("subnet", map[string]any{"network_id": net, "cidr": "10.1.0.0/16", "ip_version": 4})
	o.group = o.make("security-group", map[string]any{"name": "pods"})
	slow, err := dial.Parse([]byte("preset: measured"))
	if err != nil {
		b.Fatal(err)
	}
	c.SetDials(slow)
	backend, err := openstack.New(b.Context(), openstack.Config{
		ClusterID: clusterID, Cloud: "kuryr", CloudsFile: c.CloudsFile(b), RequestTimeout: time.Minute, RequestsPerSecond: 20, MaxConcurrent: 8,
	})
	if err != nil {
		b.Fatal(err)
	}
	return o, backend
}
