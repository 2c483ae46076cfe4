// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// firstStart returns a bed on which a first start waits for the checks of f, and a count of the
// calls to the cloud.
func firstStart(t *testing.T, f *finder) (*bed, *atomic.Int32) {
	t.Helper()
	b := idleBed(t)
	b.preflight = f
	b.current.Preflight.FirstStartWaits = true
	b.settings.Set(b.current)
	calls := &atomic.Int32{}
	b.before = func(context.Context, string, int) error { calls.Add(1); return nil }
	return b, calls
}

// waits waits until the first start is reported to wait, and returns what is said.
func (b *bed) waits() string {
	b.t.Helper()
	c := b.clusterSays(v1.ConditionServing, metav1.ConditionFalse, v1.ReasonFirstStartWaits)
	return meta.FindStatusCondition(c.Status.Conditions, v1.ConditionServing).Message
}

// nothingMade fails the test if the controller has made or planned anything.
func (b *bed) nothingMade(calls *atomic.Int32) {
	b.t.Helper()
	if n, ports, pools := calls.Load(), len(b.ports()), len(b.pools()); n+int32(ports+pools) > 0 {
		b.t.Errorf("%d calls to the cloud, %d KuryrPorts, %d KuryrPortPools; want none while the first start waits", n, ports, pools)
	}
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// passes reports whether a probe succeeds.
func (b *bed) passes(address, probe string) bool {
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+address+probe, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// TestFirstStartWaits: with an error, or while the cloud does not answer, a first start makes
// nothing, and says so; its probes pass. A restart meanwhile is a first start, too, and repeats no
// Event. It goes on by itself once all is mended. A later start serves beside checks that hang.
func TestFirstStartWaits(t *testing.T) {
	f := &finder{}
	f.set(cloudAway)
	b, calls := firstStart(t, f)
	b.probes = freeAddress(t)
	pod := b.pod("web-0")
	b.start()
	b.mentions("Serving", b.waits(), cloudAway.Message, "preflight.firstStartWaits")
	for _, probe := range []string{"/healthz", "/readyz"} {
		b.eventually(probe+" passes while the first start waits", func() bool { return b.passes(b.probes, probe) })
	}
	f.set(noPublic, noRoom)
	b.checkAgain(f)
	b.eventually("the error is what it waits for", func() bool { return hasWords(b.waits(), noPublic.Name, noPublic.Message) })
	b.mentions("the Event", b.eventOn(v1.ClusterName, v1.ReasonFirstStartWaits), cloudAway.Message)
	note := b.eventOn(pod.Name, v1.ReasonFirstStartWaits)
	if b.mentions("the Event on a waiting pod", note, "waits for a port", "first start", "kubectl describe kuryrclusters"); hasWords(note, cloudAway.Message) {
		t.Errorf("the Event on a pod is %q, which tells a tenant of the cloud", note)
	}
	b.nothingMade(calls)
	late := b.pod("web-late")
	b.checkAgain(f)
	b.eventOn(late.Name, v1.ReasonFirstStartWaits)
	b.stop()
	before := f.count()
	b.start()
	b.eventually("the checks are made at the start", func() bool { return f.count() > before })
	b.checkAgain(f)
	b.nothingMade(calls)
	if n := b.told()["KuryrCluster/default "+v1.ReasonFirstStartWaits]; n != 1 {
		t.Errorf("%d Events, want 1", n)
	}
	f.set(noRoom, unread, ofATenant) // none holds it
	b.checkAgain(f)
	b.clusterSays(v1.ConditionServing, metav1.ConditionTrue, v1.ReasonServing)
	b.eventOn(v1.ClusterName, v1.ReasonServing)
	b.bound(pod)
	b.stop()
	f.gate = make(chan struct{})
	f.set(noPublic)
	b.start()
	b.bound(b.pod("web-1"))
	close(f.gate)
	b.clusterSays(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonErrors)
	b.clusterSays(v1.ConditionServing, metav1.ConditionTrue, v1.ReasonServing)
}

// TestFirstStartAnyway: the setting lets a first start that waits go on, also while the checks hang.
func TestFirstStartAnyway(t *testing.T) {
	f := &finder{}
	f.set(noPublic)
	b, calls := firstStart(t, f)
	pod := b.pod("web-0")
	b.start()
	b.waits()
	b.nothingMade(calls)
	gate := make(chan struct{})
	f.mu.Lock()
	f.gate = gate
	f.mu.Unlock()
	t.Cleanup(func() { close(gate) })
	b.set(func(s *settings.Settings) { s.Preflight.FirstStartWaits = false })
	b.bound(pod)
}

// TestFirstStartOfServices: while a first start waits, no Service is planned.
func TestFirstStartOfServices(t *testing.T) {
	f := &finder{}
	f.set(noPublic)
	b := newServiceBed(t)
	b.whole, b.preflight = true, f
	b.current.Preflight.FirstStartWaits = true
	b.settings.Set(b.current)
	b.launch()
	b.waits()
	b.checkAgain(f)
	b.checkAgain(f)
	if lb := b.balancerOf("kubernetes"); lb != nil {
		t.Errorf("KuryrLoadBalancer %s is there although the first start waits", lb.Name)
	}
	f.set()
	b.checkAgain(f)
	b.eventually("Services are served", func() bool { return b.balancerOf("kubernetes") != nil })
}
