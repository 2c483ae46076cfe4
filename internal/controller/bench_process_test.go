// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
)

// process is a controller process, as of `kuryr controller`: it has a cache, a replica and counts of its own.
type process struct {
	replica *shards.Replica
	stop    func() // as SIGTERM; it returns when the process has ended
	freed   atomic.Int64

	mu    sync.Mutex
	since usage
	bound map[types.UID]bool // pods with a KuryrPort, as the process' cache shows them
	bed   *scaleBed
}

// processKey is the key, in a context, of the process that a call of the cloud is from.
type processKey struct{}

// usage is what a process did.
type usage struct {
	took                         time.Duration
	worked, reads, writes, calls int64 // work on keys that was admitted; requests of the API server, without Leases; calls of the cloud
	wrote, asked                 map[string]int
	before, heap, peak           int64 // of this test's process: heap in use before and after; the most resident memory meanwhile
}

func (p *process) note(change func(*usage)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.since)
}

func (p *process) used() (u usage) {
	p.note(func(now *usage) { u = *now })
	return u
}

func (p *process) reset() {
	p.note(func(u *usage) { *u = usage{wrote: map[string]int{}, asked: map[string]int{}} })
}

// admitted counts the work that begins.
type admitted struct {
	kube.Shards
	p *process
}

// Enter implements kube.Shards.
func (a admitted) Enter(key kube.Key) (func(), bool) {
	leave, ok := a.Shards.Enter(key)
	if ok {
		a.p.note(func(u *usage) { u.worked++ })
	}
	return leave, ok
}

// requests returns a transport to the API server that counts.
func (p *process) requests(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		p.note(func(u *usage) {
			if r.Method == http.MethodGet || strings.HasSuffix(r.URL.Path, "accessreviews") { // it asks what it may do
				u.reads++
				return
			}
			u.writes++
			u.wrote[r.Method+" "+kindOf(r.URL.Path)]++
		})
		return next.RoundTrip(r)
	})
}

// kindOf returns the resource of a path of the API server, and the subresource.
func kindOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	parts = parts[min(len(parts), map[string]int{"api": 2, "apis": 3}[parts[0]]):]
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" {
		parts = parts[2:]
	}
	if len(parts) > 1 {
		parts = slices.Delete(parts, 1, 2)
	}
	return strings.Join(parts, "/")
}

// launch starts a process of which so many share the keys, as active says. Its delays are those of production.
func (b *scaleBed) launch(name string, active int) *process {
	b.t.Helper()
	p := &process{bound: map[types.UID]bool{}, bed: b}
	p.reset()
	marked := context.WithValue(context.Background(), processKey{}, p)
	ctx, cancel := context.WithCancel(marked)
	replica, err := shards.New(ctx, shards.Options{Cluster: serverOf(b.t), Namespace: "default", Identity: name, Active: active})
	if err != nil {
		b.t.Fatal(err)
	}
	cluster := rest.CopyConfig(serverOf(b.t))
	cluster.Wrap(p.requests)
	cluster.Wrap(replica.Fence)
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme: b.client.Scheme(), Cache: kube.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		GracefulShutdownTimeout: new(shard.Patience + time.Second), BaseContext: func() context.Context { return marked },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	options := controller.Options{Settings: b.bed.settings, Shards: admitted{replica, p}, Namespace: holderNamespace}
	if err := errors.Join(controller.Setup(ctx, mgr, options.With(b.backend)), replica.Setup(mgr)); err != nil {
		b.t.Fatal(err)
	}
	p.replica = replica
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("controller %s ended with: %v", name, err)
		}
	})
	b.t.Cleanup(p.stop)
	p.watch(mgr)
	return p
}

// watch records which pods get and return KuryrPorts.
func (p *process) watch(mgr ctrl.Manager) {
	informer, err := mgr.GetCache().GetInformer(p.bed.t.Context(), &v1.KuryrPort{})
	if err != nil {
		p.bed.t.Fatal(err)
	}
	seen := func(o any) {
		if ref := o.(*v1.KuryrPort).Spec.PodRef; ref != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.bound[ref.UID] = true
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(was, is any) {
		if seen(is); was.(*v1.KuryrPort).Spec.PodRef != nil && is.(*v1.KuryrPort).Spec.PodRef == nil {
			p.freed.Add(1)
		}
	}}); err != nil {
		p.bed.t.Fatal(err)
	}
}

// afterGain has done called after the process has gained keys, and after all its parts have requeued theirs.
func (p *process) afterGain(done func()) {
	p.replica.Follow(func(context.Context, kube.Keys, bool) { done() }, nil)
}

// serves waits until all pods have a KuryrPort.
func (p *process) serves(pods ...*corev1.Pod) {
	p.bed.t.Helper()
	p.bed.within("all pods have ports", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return !p.bound[pod.UID] })
	})
}

// quiet waits until processes do nothing for some seconds.
func (b *scaleBed) quiet(ps ...*process) {
	b.t.Helper()
	still := time.Second + 500*time.Millisecond // more than what a pool or a port waits for its status to be written
	if b.full() {
		still = 4 * time.Second
	}
	last, since := int64(-1), time.Now()
	b.within("the controllers are at rest", func() bool {
		var n int64
		for _, p := range ps {
			u := p.used()
			n += u.worked + u.writes + u.calls
		}
		if n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > still
	})
}

// measure reports what processes do until do has returned and they are at rest. running were there before.
func (b *scaleBed) measure(what string, running []*process, do func() []*process) (all []usage) {
	b.t.Helper()
	var m goruntime.MemStats
	if b.full() { // otherwise other tests run, too, whose memory is in the figures
		debug.FreeOSMemory()
	}
	goruntime.ReadMemStats(&m)
	before := int64(m.HeapAlloc)
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600) // the peak from now on
	for _, p := range running {
		p.reset()
	}
	began := time.Now()
	ps := do()
	took := time.Since(began)
	b.quiet(ps...)
	peak := resident(b)
	if b.full() {
		debug.FreeOSMemory()
	}
	goruntime.ReadMemStats(&m)
	for i, p := range ps {
		u := p.used()
		u.took, u.before, u.heap, u.peak = took, before, int64(m.HeapAlloc), peak
		all = append(all, u)
		b.say("%s [%d]: %.2f s; admitted %d, reads %d, writes %d, cloud calls %d; heap %d MiB (before %d), peak resident %d MiB\n\twrites %s\n\tcalls %s",
			what, i, took.Seconds(), u.worked, u.reads, u.writes, u.calls, u.heap>>20, u.before>>20, peak>>20, listed(u.wrote), listed(u.asked))
	}
	return all
}

func listed(counts map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprint(name, " ", counts[name]))
	}
	return strings.Join(all, ", ")
}

// resident is the most memory that this process had resident, in bytes.
func resident(b *scaleBed) (n int64) {
	b.t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n << 10
}
