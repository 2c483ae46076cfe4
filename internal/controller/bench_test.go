// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// span is a period of time.
type span struct{ from, to time.Time }

// stopwatch records the times of a pod: its event in this process, the request that writes its
// bound KuryrPort, and the answer to it.
//
// For each pool it records when the pool waits for the API server. A wait lasts until a write of
// the pool is answered. If the write was of a KuryrPort, it lasts until its event arrives: the pool
// is not planned before.
type stopwatch struct {
	mu                sync.Mutex
	seen, asked, done map[types.UID]time.Time
	pool              map[types.UID]string
	waits             map[string][]span          // by pool
	open              map[string]func(time.Time) // by KuryrPort whose event has not arrived
}

func newStopwatch() *stopwatch {
	w := &stopwatch{}
	w.reset()
	return w
}

func (w *stopwatch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.asked, w.done = map[types.UID]time.Time{}, map[types.UID]time.Time{}, map[types.UID]time.Time{}
	w.pool, w.waits, w.open = map[types.UID]string{}, map[string][]span{}, map[string]func(time.Time){}
}

func (w *stopwatch) take(into map[types.UID]time.Time, uid types.UID) {
	if _, ok := into[uid]; !ok {
		into[uid] = time.Now()
	}
}

func (w *stopwatch) podSeen(o any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.take(w.seen, o.(*corev1.Pod).UID)
}

func (w *stopwatch) portSeen(o any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if shut := w.open[o.(*v1.KuryrPort).Name]; shut != nil {
		shut(time.Now())
	}
}

// waiting records that pool waits from now until the returned function is called. The caller holds
// w.mu, for that call too.
func (w *stopwatch) waiting(pool string) (until func(time.Time)) {
	w.waits[pool] = append(w.waits[pool], span{from: time.Now()})
	i := len(w.waits[pool]) - 1
	return func(at time.Time) {
		if s := &w.waits[pool][i]; s.to.IsZero() {
			s.to = at
		}
	}
}

func (w *stopwatch) client(cfg *rest.Config, o client.Options) (client.Client, error) {
	c, err := client.NewWithWatch(cfg, o)
	if err != nil {
		return nil, err
	}
	object := func(obj client.Object, write func() error) error {
		if _, ok := obj.(*v1.KuryrPortPool); !ok {
			return write()
		}
		w.mu.Lock()
		shut := w.waiting(obj.GetName())
		w.mu.Unlock()
		err := write()
		w.mu.Lock()
		defer w.mu.Unlock()
		shut(time.Now())
		return err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			port, ok := obj.(*v1.KuryrPort)
			if !ok || port.Spec.PodRef == nil {
				return object(obj, func() error { return c.Create(ctx, obj, opts...) })
			}
			uid := port.Spec.PodRef.UID
			w.mu.Lock()
			w.take(w.asked, uid)
			w.pool[uid] = port.Spec.Pool
			w.open[port.Name] = w.waiting(port.Spec.Pool)
			w.mu.Unlock()
			err := c.Create(ctx, obj, opts...)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.take(w.done, uid)
			return err
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return object(obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			u, ok := obj.(interface {
				GetName() string
				GetKind() string
			})
			if !ok || u.GetKind() != "KuryrPortPool" {
				return c.SubResource(sub).Apply(ctx, obj, opts...)
			}
			return object(&v1.KuryrPortPool{ObjectMeta: metav1.ObjectMeta{Name: u.GetName()}}, func() error { return c.SubResource(sub).Apply(ctx, obj, opts...) })
		},
	}), nil
}

func (w *stopwatch) finished() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.done)
}

// percentiles returns the median and the 99th percentile of the values of of, in milliseconds.
func (w *stopwatch) percentiles(of func(types.UID) time.Duration) (p50, p99 float64) {
	var all []time.Duration
	for uid := range w.done {
		all = append(all, of(uid))
	}
	slices.Sort(all)
	ms := func(i int) float64 { return float64(all[i].Microseconds()) / 1000 }
	return ms(len(all) / 2), ms(len(all) * 99 / 100)
}

// waited is how long, before the request for a pod, its pool waited for the API server's answers to
// requests for other pods.
func (w *stopwatch) waited(uid types.UID) (sum time.Duration) {
	at, end := w.seen[uid], w.asked[uid]
	for _, s := range w.waits[w.pool[uid]] { // sorted by from
		from, to := s.from, s.to
		if to.IsZero() || to.After(end) {
			to = end
		}
		if from.Before(at) {
			from = at
		}
		if to.After(from) {
			sum += to.Sub(from)
			at = to
		}
	}
	return sum
}

// BenchmarkBind measures the time from a bound pod to its bound KuryrPort, with a cloud that
// answers at once. It has 1000 pods on 20 nodes.
//
// "asked" ends with the request that writes the KuryrPort. "own" is the part of it in which the
// pool did not wait for the API server's answers to earlier requests. "bound" ends with the API
// server's answer. In "steady" 40 pods a second arrive. In "burst" all arrive at once, as fast as
// the API server accepts them.
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
	if _, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: w.podSeen}); err != nil {
		b.Fatal(err)
	}
	if informer, err = bed.manager.GetCache().GetInformer(b.Context(), &v1.KuryrPort{}); err != nil {
		b.Fatal(err)
	}
	if _, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: w.portSeen}); err != nil {
		b.Fatal(err)
	}
	bed.bound(bed.pod("first")) // the controller has started, which is not measured
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
	for name, of := range map[string]func(types.UID) time.Duration{
		"own":   func(uid types.UID) time.Duration { return w.asked[uid].Sub(w.seen[uid]) - w.waited(uid) },
		"asked": func(uid types.UID) time.Duration { return w.asked[uid].Sub(w.seen[uid]) },
		"bound": func(uid types.UID) time.Duration { return w.done[uid].Sub(w.seen[uid]) },
	} {
		p50, p99 := w.percentiles(of)
		b.ReportMetric(p50, name+"-p50-ms")
		b.ReportMetric(p99, name+"-p99-ms")
	}
	b.ReportMetric(0, "ns/op")
	time.Sleep(2 * time.Second) // statuses and annotations
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MiB")
	b.ReportMetric(float64(goruntime.NumGoroutine()), "goroutines")
}
