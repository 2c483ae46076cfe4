// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// stopwatch takes the times of a pod's way: its event reaching this process,
// the request that writes its bound KuryrPort, and the answer to that.
type stopwatch struct {
	mu                sync.Mutex
	seen, asked, done map[types.UID]time.Time
}

func newStopwatch() *stopwatch {
	return &stopwatch{seen: map[types.UID]time.Time{}, asked: map[types.UID]time.Time{}, done: map[types.UID]time.Time{}}
}

func (w *stopwatch) take(into map[types.UID]time.Time, uid types.UID) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := into[uid]; !ok {
		into[uid] = now
	}
}

func (w *stopwatch) client(cfg *rest.Config, o client.Options) (client.Client, error) {
	c, err := client.NewWithWatch(cfg, o)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			port, ok := obj.(*v1.KuryrPort)
			if !ok || port.Spec.PodRef == nil {
				return c.Create(ctx, obj, opts...)
			}
			uid := port.Spec.PodRef.UID
			w.take(w.asked, uid)
			err := c.Create(ctx, obj, opts...)
			w.take(w.done, uid)
			return err
		},
	}), nil
}

func (w *stopwatch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.seen)
	clear(w.asked)
	clear(w.done)
}

func (w *stopwatch) finished() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.done)
}

// percentiles returns the middle and the 99th percentile of the ways from one
// point to another, in milliseconds.
func (w *stopwatch) percentiles(from, to map[types.UID]time.Time) (p50, p99 float64) {
	var all []time.Duration
	for uid, at := range to {
		all = append(all, at.Sub(from[uid]))
	}
	slices.Sort(all)
	ms := func(i int) float64 { return float64(all[i].Microseconds()) / 1000 }
	return ms(len(all) / 2), ms(len(all) * 99 / 100)
}

// BenchmarkBind measures, for 1000 pods on 20 nodes, pod bound → KuryrPort bound
// with a cloud that answers at once: "own" is up to the request that writes the
// KuryrPort, "bound" up to the API server's answer. In "steady" 40 pods a second
// come, in "burst" all at once, as fast as the API server takes them; what it
// measures then is mostly that server, which shares the machine.
func BenchmarkBind(b *testing.B) {
	b.Run("steady", func(b *testing.B) { benchmarkBind(b, 25*time.Millisecond) })
	b.Run("burst", func(b *testing.B) { benchmarkBind(b, 0) })
}

func benchmarkBind(b *testing.B, gap time.Duration) {
	const pods, nodes = 1000, 20
	bed := idleBed(b)
	w := newStopwatch()
	bed.newClient, bed.unhurried = w.client, true
	for i := range nodes {
		bed.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bench-", i)}})
	}
	bed.start()
	informer, err := bed.manager.GetCache().GetInformer(b.Context(), &corev1.Pod{})
	if err != nil {
		b.Fatal(err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) { w.take(w.seen, o.(*corev1.Pod).UID) }})
	if err != nil {
		b.Fatal(err)
	}
	bed.bound(bed.pod("first")) // the controller has started, and is not part of it
	w.reset()
	b.ResetTimer()
	for round := range b.N {
		var wg sync.WaitGroup
		limit := make(chan struct{}, 16)
		for i := range pods {
			time.Sleep(gap)
			limit <- struct{}{}
			wg.Go(func() {
				defer func() { <-limit }()
				bed.pod(fmt.Sprintf("bench-%d-%d", round, i), func(p *corev1.Pod) { p.Spec.NodeName = fmt.Sprint("bench-", i%nodes) })
			})
		}
		wg.Wait()
		bed.eventually("all pods have ports", func() bool { return w.finished() >= pods*(round+1) })
	}
	own50, own99 := w.percentiles(w.seen, w.asked)
	all50, all99 := w.percentiles(w.seen, w.done)
	b.ReportMetric(own50, "own-p50-ms")
	b.ReportMetric(own99, "own-p99-ms")
	b.ReportMetric(all50, "bound-p50-ms")
	b.ReportMetric(all99, "bound-p99-ms")
	b.ReportMetric(0, "ns/op")
	time.Sleep(2 * time.Second) // statuses and annotations
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MiB")
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
}
