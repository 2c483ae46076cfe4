// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

const (
	endpointsEach = 20 // of each Service
	podsOfNode    = 10
	portsOfNode   = 30
	crowded       = 10 // nodes of a burst
	batch, atOnce = 10, 8
	measuredPort  = 400 * time.Millisecond // in a bulk request, by openstacksim/dial/measured.yaml; two requests at once
)

// scaleBed is a cluster of many nodes, which are objects only.
type scaleBed struct {
	*serviceBed
	backend      *slowPorts
	nodes, ports int // there are portsOfNode ports for each node, and more for those of the warm burst
	pods         int // of a burst
	services     int
}

// slowPorts is a cloud in memory that can be as slow with ports as a measured one.
type slowPorts struct {
	*memory.Backend
	slow    atomic.Bool
	workers chan struct{} // of Neutron
}

func newSlowPorts(c *memory.Cloud) *slowPorts {
	return &slowPorts{Backend: c.Backend("cluster"), workers: make(chan struct{}, 2)}
}

// CreatePorts implements sdn.Ports.
func (s *slowPorts) CreatePorts(ctx context.Context, owner sdn.Owner, r sdn.PortRequest, n int) ([]sdn.Port, error) {
	if s.slow.Load() {
		s.workers <- struct{}{}
		time.Sleep(time.Duration(n) * measuredPort)
		<-s.workers
	}
	return s.Backend.CreatePorts(ctx, owner, r, n)
}

func newScaleBed(t testing.TB, part int) *scaleBed {
	t.Helper()
	servers.Store(t, apitest.Start(t, 1)[0].Config) // it ends with all that is in it
	b := &scaleBed{serviceBed: newServiceBed(t), nodes: 1000 / part, services: 2000 / part, pods: 1000 / part}
	t.Cleanup(func() { // what others clean up one by one goes with the API server
		b.client, _ = client.New(&rest.Config{Host: "127.0.0.1:1"}, client.Options{Scheme: b.client.Scheme(), Mapper: b.client.RESTMapper()})
	})
	b.ports = b.nodes*portsOfNode + b.pods
	b.backend = newSlowPorts(b.bed.cloud)
	b.current.Pools = config.Pools{Batch: batch, MaxCreatesPerSubnet: atOnce, TTL: metav1.Duration{Duration: 10 * time.Hour}}
	b.current.Orphans = config.New().Orphans
	b.bed.settings = settings.NewLive(b.current)
	b.onBefore(func(ctx context.Context, call string, _ int) error {
		if p, ok := ctx.Value(processKey{}).(*process); ok {
			p.note(func(u *usage) { u.calls++; u.asked[call]++ })
		} else if ctx != t.Context() {
			t.Errorf("call %s of the cloud is nobody's", call)
		}
		return nil
	})
	return b
}

// full reports whether the size is one for figures: nothing else runs, and keys are many enough to be spread evenly.
func (b *scaleBed) full() bool { return b.nodes >= 500 }

// say reports a figure. A run of full size takes long: it says each figure at once.
func (b *scaleBed) say(format string, args ...any) {
	if b.full() {
		fmt.Printf(format+"\n", args...)
		return
	}
	b.t.Logf(format, args...)
}

// within is eventually for conditions that take very long.
func (b *scaleBed) within(what string, ok func() bool) {
	b.t.Helper()
	b.eventuallyIn(20*time.Minute, what, ok)
}

func (b *scaleBed) nodeNamed(i int) string   { return fmt.Sprint("bench-", i) }
func (b *scaleBed) namespaces() int          { return b.services / 2 }
func (b *scaleBed) namespaceOf(i int) string { return fmt.Sprint("many-", i%b.namespaces()) }

// furnish creates what was there before the controller: pools with ports, of which some are bound, and Services.
func (b *scaleBed) furnish() {
	b.t.Helper()
	began := time.Now()
	s := pool.Settings{SubnetIDs: b.current.Pods.SubnetIDs, SecurityGroupIDs: b.current.Pods.SecurityGroupIDs}
	parallel(b.nodes, func(i int) {
		name, n := b.nodeNamed(i), portsOfNode
		if i < crowded {
			n += b.pods / crowded
		}
		b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		b.kubelet(name, corev1.ConditionFalse, 250) // more than a kubelet runs by default: pods beyond that get no ports
		pods := make([]*corev1.Pod, podsOfNode)
		for j := range pods {
			pods[j] = b.pod(fmt.Sprintf("old-%d-%d", i, j), onNode(name))
			b.run(pods[j : j+1])
		}
		b.warmPoolOf(pool.KeyOn(name, s), network, n, pods...)
	})
	for i := range crowded { // nodes without a pool
		b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.nodeNamed(b.nodes + i)}})
	}
	parallel(b.namespaces(), func(i int) { b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespaceOf(i)}}) })
	parallel(b.services, func(i int) {
		in := func(svc *corev1.Service) { svc.Namespace = b.namespaceOf(i) }
		svc := b.service(serviceNamed(i), in)
		ips := make([]string, endpointsEach)
		for j := range ips {
			n := (i*endpointsEach + j) % (b.nodes * podsOfNode)
			ips[j] = fmt.Sprintf("10.1.%d.%d", n/250, 2+n%250)
		}
		slice := newSlice(svc.Name, svc.Name+"-1", ips...)
		slice.Namespace = svc.Namespace
		b.create(slice)
	})
	b.say("objects: %d nodes, %d KuryrPorts, %d pods, %d Services, made in %.0f s", b.nodes, b.ports, b.nodes*podsOfNode, b.services, time.Since(began).Seconds())
}

// run tells of pods that they run, as the kubelet does.
func (b *scaleBed) run(pods []*corev1.Pod) {
	parallel(len(pods), func(i int) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"podIP":"10.1.0.9","podIPs":[{"ip":"10.1.0.9"}]}}`))
		if err := b.client.Status().Patch(b.t.Context(), pods[i].DeepCopy(), patch); err != nil {
			b.t.Error(err)
		}
	})
}

// burst creates pods on nodes from first on, and waits for their ports.
func (b *scaleBed) burst(name string, first int, p *process) []*corev1.Pod {
	pods := make([]*corev1.Pod, b.pods)
	parallel(b.pods, func(i int) { pods[i] = b.pod(fmt.Sprint(name, "-", i), onNode(b.nodeNamed(first+i%crowded))) })
	p.serves(pods...)
	return pods
}

// balanced waits until each Service has its load balancer.
func (b *scaleBed) balanced() {
	b.t.Helper()
	b.within("all Services have load balancers", func() bool {
		time.Sleep(time.Second)
		var all v1.KuryrLoadBalancerList
		if err := b.client.List(b.t.Context(), &all); err != nil {
			b.t.Fatal(err)
		}
		n := 0
		for i := range all.Items {
			if len(all.Items[i].Status.Members) == endpointsEach {
				n++
			}
		}
		return n == b.services
	})
}

// parallel calls do for 0 to n-1, some at once.
func parallel(n int, do func(i int)) { parallelOf(32, n, do) }

func parallelOf(most, n int, do func(i int)) {
	var group sync.WaitGroup
	var next atomic.Int64
	for range most {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	group.Wait()
}
