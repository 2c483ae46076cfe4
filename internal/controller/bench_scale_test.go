// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// heapLimit is the most memory that a controller of the full size may use after a restart.
const heapLimit = 400 << 20

// BenchmarkScale measures a cluster of 1,000 nodes, 30,000 KuryrPorts, 10,000 pods and 2,000 Services with 20
// endpoints each: start, restart, bursts, a drain, a rolling restart, and three controllers that share the work.
// The API server is real, the cloud is in memory, and nodes are objects only. KURYR_SCALE=2 measures half of all that.
func BenchmarkScale(b *testing.B) {
	part := 1
	if testing.Short() {
		part = 20
	}
	if text := os.Getenv("KURYR_SCALE"); text != "" {
		var err error
		if part, err = strconv.Atoi(text); err != nil || part < 1 {
			b.Fatalf("KURYR_SCALE=%s: want a number, 1 or more", text)
		}
	}
	scale(b, part)
	b.ReportMetric(0, "ns/op")
}

// TestScale is BenchmarkScale in small: what it wants of counts holds, whatever the times are.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it takes a minute; 'make long' runs it")
	}
	scale(t, 50)
}

func scale(t testing.TB, part int) {
	b := newScaleBed(t, part)
	bare := make(chan time.Duration, 1)
	go func() { bare <- b.bareBurst() }()
	b.furnish()
	p := b.start()
	p = b.restart(p)
	b.warmBurst(p)
	b.coldBurst(p, <-bare)
	b.drain(p)
	p.stop()
	p = b.rollingRestart()
	b.sharing(p)
}

// start starts the first controller. It makes all load balancers.
func (b *scaleBed) start() (p *process) {
	b.t.Helper()
	b.measure("start", nil, func() []*process {
		p = b.launch("a", 1)
		b.balanced()
		return []*process{p}
	})
	return p
}

// restart starts the controller again, which changes nothing, and once more while a pod waits.
func (b *scaleBed) restart(p *process) *process {
	b.t.Helper()
	p.stop()
	used := b.measure("restart", nil, func() []*process {
		p = b.launch("a", 1)
		b.within("the process owns all keys", p.replica.Holding)
		return []*process{p}
	})[0]
	delete(used.asked, memory.GetSubnet) // the planner of Services reads the prefix of its subnet once; no pod waits for it
	if used.writes > 0 || len(used.asked) > 0 {
		b.t.Errorf("a restart writes %v, and asks the cloud %v; want nothing of both", used.wrote, used.asked)
	}
	if n := int64(b.ports + b.nodes + 2*b.services); used.worked < n {
		b.t.Errorf("a restart reconciles %d times, want %d at least: each object", used.worked, n)
	}
	if b.full() && used.heap > heapLimit {
		b.t.Errorf("after a restart %d MiB of heap are in use, want %d MiB at most", used.heap>>20, heapLimit>>20)
	}
	p.stop()
	pod := b.pod("first", onNode(b.nodeNamed(b.nodes/2)))
	b.measure("restart, until a new pod has its port", nil, func() []*process {
		p = b.launch("a", 1)
		p.serves(pod)
		return []*process{p}
	})
	b.run([]*corev1.Pod{pod})
	return p
}

// warmBurst creates pods on the first nodes, which have enough free ports.
func (b *scaleBed) warmBurst(p *process) {
	b.t.Helper()
	var pods []*corev1.Pod
	b.measure("burst, warm", []*process{p}, func() []*process {
		pods = b.burst("warm", 0, p)
		return []*process{p}
	})
	b.run(pods)
}

// coldBurst creates pods on nodes that have no pool, with a cloud that takes as long for ports as a measured one. bare is
// how long that cloud takes for the ports alone.
func (b *scaleBed) coldBurst(p *process, bare time.Duration) {
	b.t.Helper()
	b.backend.slow.Store(true)
	defer b.backend.slow.Store(false)
	var pods []*corev1.Pod
	took := b.measure("burst, cold", []*process{p}, func() []*process {
		pods = b.burst("cold", b.nodes, p)
		return []*process{p}
	})[0].took
	b.say("burst, cold: the ports alone %.1f s, ratio %.3f", bare.Seconds(), took.Seconds()/bare.Seconds())
	b.run(pods)
}

// drain deletes the pods of a burst on one node, and waits until their ports are free.
func (b *scaleBed) drain(p *process) {
	b.t.Helper()
	before, n := p.freed.Load(), int64(b.pods/crowded)
	b.measure("drain", []*process{p}, func() []*process {
		parallel(int(n), func(i int) {
			b.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("warm-", i*crowded)}})
		})
		b.within("the ports of the drained node are free", func() bool { return p.freed.Load()-before == n })
		return []*process{p}
	})
}

// rollingRestart has two replicas, of which one owns all, and ends that one. A pod arrives meanwhile.
func (b *scaleBed) rollingRestart() *process {
	b.t.Helper()
	var from, to *process
	b.measure("two replicas start, one is active", nil, func() []*process {
		from = b.launch("b", 1)
		b.within("the first owns all keys", from.replica.Holding)
		time.Sleep(time.Second) // the ages of Leases are in seconds, and the oldest replica is the active one
		to = b.launch("c", 1)
		return []*process{from, to}
	})
	var gained time.Duration
	used := b.measure("rolling restart, until a new pod has its port", []*process{from, to}, func() []*process {
		began, done := time.Now(), make(chan struct{})
		to.afterGain(sync.OnceFunc(func() { gained = time.Since(began); close(done) }))
		go from.stop()
		pod := b.pod("rolling", onNode(b.nodeNamed(b.nodes/3)))
		to.serves(pod)
		<-done
		from.stop()
		return []*process{from, to}
	})
	b.say("hand-over of %d keys of nodes and namespaces with %d requests: %.2f s from SIGTERM until all are requeued",
		b.nodes+b.namespaces(), used[1].worked, gained.Seconds())
	if used[0].writes > 0 {
		b.t.Errorf("the replica that ends writes %v, want nothing", used[0].wrote)
	}
	return to
}

// sharing compares what one controller does with what each of three does of the same work.
func (b *scaleBed) sharing(p *process) {
	b.t.Helper()
	const level = 21 // above what most nodes have free
	b.set(func(s *settings.Settings) { s.Pools.Min = level })
	b.quiet(p)
	one := b.measure("one controller", []*process{p}, func() []*process { return b.work("one", p) })[0]
	p.stop()
	b.set(func(s *settings.Settings) { s.Pools.Min = level + 1 }) // as many as are free now: see work
	three := []*process{b.launch("d", 0), b.launch("e", 0), b.launch("f", 0)}
	b.within("each of three has its share", func() bool {
		return !slices.ContainsFunc(three, func(p *process) bool { return p.replica.Share() < 0.2 })
	})
	b.quiet(three...)
	each := b.measure("three controllers", three, func() []*process { return b.work("three", three...) })
	for what, of := range map[string]func(usage) int64{
		"reconciles": func(u usage) int64 { return u.worked }, "writes": func(u usage) int64 { return u.writes }, "cloud calls": func(u usage) int64 { return u.calls },
	} {
		var all, most int64
		for _, u := range each {
			all, most = all+of(u), max(most, of(u))
		}
		share := func(n int64) float64 { return 100 * float64(n) / float64(of(one)) }
		b.say("%s: one controller %d; of three the busiest %.1f %% of that, all together %.1f %%", what, of(one), share(most), share(all))
		// Writes that fall together or not make a difference of a third in small. Nothing is done three times.
		if share(all) > 200 || share(all) < 50 {
			b.t.Errorf("%s: three controllers do %.1f %% of what one does, want what one does", what, share(all))
		}
		// Few keys are not spread evenly.
		if b.full() && share(most) > 40 {
			b.t.Errorf("%s: a controller of three does %.1f %% of what one does, want 40 %% at most", what, share(most))
		}
	}
}

// work is the same for one controller and for three: on each node a pod comes, and goes when a new free port is in its
// place; then half of the Services get another endpoint. Each node then has one more free port.
func (b *scaleBed) work(name string, ps ...*process) []*process {
	pods := make([]*corev1.Pod, b.nodes)
	parallel(b.nodes, func(i int) { pods[i] = b.pod(fmt.Sprint(name, "-", i), onNode(b.nodeNamed(i))) })
	ps[0].serves(pods...)
	b.run(pods)
	b.quiet(ps...)
	parallel(b.nodes, func(i int) { b.delete(pods[i]) })
	parallel(b.services/2, func(i int) {
		var s discoveryv1.EndpointSlice
		svc := serviceNamed(i)
		if err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: b.namespaceOf(i), Name: svc + "-1"}, &s); err != nil {
			b.t.Error(err)
			return
		}
		s.Endpoints[0].Addresses[0] = fmt.Sprintf("10.1.%d.%d", 200+len(name), 1+i%250)
		if err := b.client.Update(b.t.Context(), &s); err != nil {
			b.t.Error(err)
		}
	})
	return ps
}

// bareBurst is how long the slow cloud takes for the ports of a burst, in bulk requests.
func (b *scaleBed) bareBurst() time.Duration {
	cloud := newSlowPorts(memory.New(memory.Subnet{ID: subnet, NetworkID: network, Prefix: netip.MustParsePrefix("10.1.0.0/16"), MTU: 1442}))
	cloud.slow.Store(true)
	began := time.Now()
	parallelOf(atOnce, b.pods/batch, func(int) {
		request := sdn.PortRequest{SubnetIDs: []string{subnet}, SecurityGroupIDs: []string{group}, Host: node}
		if _, err := cloud.CreatePorts(b.t.Context(), sdn.Owner{Kind: "kuryrportpool", Name: "bare"}, request, batch); err != nil {
			b.t.Error(err)
		}
	})
	return time.Since(began)
}
