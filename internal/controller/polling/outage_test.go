// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package polling_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/internal/controller/polling"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// outageBed is a service that can be away, and the Outage that watches it.
type outageBed struct {
	*polling.Outage
	turn   sync.Mutex                  // orders the test before what the Outage calls later
	answer func(context.Context) error // of the service
	probes []time.Time
	woken  []string
	others []ctrl.Request // also to be woken
	last   time.Time      // when the last one was woken
}

// newOutageBed is for a synctest bubble: its goroutines take turns.
func newOutageBed(t *testing.T) *outageBed {
	b := &outageBed{answer: func(context.Context) error { return nil }}
	b.Outage = polling.NewOutage("Octavia", func(ctx context.Context) error {
		b.turn.Lock()
		b.probes = append(b.probes, time.Now())
		answer := b.answer
		b.turn.Unlock()
		return answer(ctx)
	}, time.Now, func(req ctrl.Request) {
		b.turn.Lock()
		defer b.turn.Unlock()
		b.woken, b.last = append(b.woken, req.Name), time.Now()
	}, func(context.Context) []ctrl.Request {
		b.turn.Lock()
		defer b.turn.Unlock()
		return b.others
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return b
}

func unavailable(context.Context) error {
	return fmt.Errorf("connection refused: %w", sdn.ErrUnavailable)
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

// awayMetric is the value of kuryr_cloud_outage for Octavia.
func awayMetric(t *testing.T) (away float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kuryr_cloud_outage" && m.GetLabel()[0].GetValue() == "Octavia" {
				away = m.GetGauge().GetValue()
			}
		}
	}
	return away
}

// pass lets time pass. The race detector knows no order between a test that sleeps and what
// a timer starts meanwhile: the mutex tells it.
func (b *outageBed) pass(d time.Duration) {
	b.turn.Lock()
	b.turn.Unlock() //nolint:staticcheck // SA2001: what comes later sees what the test did before
	time.Sleep(d)
	synctest.Wait()
}

// TestOutageParksAndSpreads: while a service is away it gets one probe at a time. When it is back
// the parked requests are woken one after the other. Requests whose load balancer serves nothing
// come first.
func TestOutageParksAndSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOutageBed(t)
		b.answer = unavailable
		began := time.Now()
		if b.Park(request("first"), true) {
			t.Error("Park before any probe = true: the failure of one request is no outage")
		}
		b.pass(time.Second)
		if err := b.Err(); !errors.Is(err, sdn.ErrUnavailable) || !strings.Contains(err.Error(), began.UTC().Format(time.RFC3339)) {
			t.Errorf("Err = %v, want an ErrUnavailable that says since when: %s", err, began.UTC().Format(time.RFC3339))
		}
		for i := range 200 {
			for range 2 { // the second time changes nothing
				if name := fmt.Sprintf("%03d", i); !b.Park(request(name), i >= 190) {
					t.Fatalf("Park(%s) in an outage = false", name)
				}
			}
		}
		b.pass(10 * time.Minute)
		if n := len(b.probes); n < 200 || n > 610 {
			t.Errorf("%d probes in ten minutes, want about 300", n)
		}
		if len(b.woken) > 0 || awayMetric(t) != 1 {
			t.Errorf("in the outage: kuryr_cloud_outage %v, woken: %v", awayMetric(t), b.woken)
		}
		b.others = []ctrl.Request{request("195"), request("other")}
		b.answer = func(context.Context) error { return fmt.Errorf("that is not to be had: %w", sdn.ErrForbidden) } // an error is an answer, too
		back := time.Now()
		b.pass(time.Minute)
		if len(b.woken) != 201 || b.last.Sub(back) > 30*time.Second || b.last.Sub(back) < 9*time.Second {
			t.Errorf("%d of 201 were woken, the last after %s, want all, spread over about ten seconds", len(b.woken), b.last.Sub(back))
		}
		if len(b.woken) > 11 && (b.woken[0] != "190" || b.woken[9] != "199" || b.woken[10] != "other" || b.woken[11] != "000") {
			t.Errorf("woken in the order %v, want those first that serve nothing", b.woken)
		}
		if err := b.Err(); err != nil || awayMetric(t) != 0 {
			t.Errorf("after the outage: Err = %v, kuryr_cloud_outage %v", err, awayMetric(t))
		}
	})
}

// TestOutageIsNotOneObject: one object that meets errors while the probe is answered parks no
// request. It causes few probes, however often it tries.
func TestOutageIsNotOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOutageBed(t)
		for range 600 {
			if b.Park(request("sick"), true) {
				t.Fatal("Park = true while the service answers the probe")
			}
			b.pass(100 * time.Millisecond)
		}
		if n := len(b.probes); n < 1 || n > 31 {
			t.Errorf("%d probes in a minute, want one every two seconds at most", n)
		}
		if len(b.woken) > 0 {
			t.Errorf("woken: %v", b.woken)
		}
	})
}

// TestOutageThatComesBack: if the service is away again while parked requests are woken, the others
// stay parked.
func TestOutageThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOutageBed(t)
		b.answer = unavailable
		b.Park(request("first"), true)
		b.pass(time.Second)
		for i := range 100 {
			b.Park(request(fmt.Sprintf("%03d", i)), false)
		}
		b.answer = func(context.Context) error { return nil }
		for len(b.woken) == 0 {
			b.pass(10 * time.Millisecond)
		}
		b.answer = unavailable
		b.Park(request(b.woken[0]), false) // it was woken, and has failed again
		b.pass(10 * time.Second)
		woken := len(b.woken)
		if b.Err() == nil || woken > 50 {
			t.Errorf("Err = %v and %d of 100 woken, want the outage again and most parked", b.Err(), woken)
		}
		b.Park(request(b.woken[0]), false)
		b.answer = func(context.Context) error { return nil }
		b.pass(time.Minute)
		if want := 101; len(b.woken) != want {
			t.Errorf("%d woken, want %d", len(b.woken), want)
		}
	})
}

// TestOutageOfOneThatHangs: a probe without an answer ends by its own deadline. A slow service is
// recognised, as the deadline grows.
func TestOutageOfOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOutageBed(t)
		b.answer = func(ctx context.Context) error {
			select {
			case <-time.After(30 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		b.Park(request("first"), true)
		b.pass(6 * time.Second)
		if b.Err() == nil || !b.Park(request("first"), true) {
			t.Errorf("Err = %v six seconds after a request failed, want an outage", b.Err())
		}
		b.pass(2 * time.Minute)
		if b.Err() != nil || len(b.woken) != 1 {
			t.Errorf("Err = %v and woken %v, want the slow answer to have been heard", b.Err(), b.woken)
		}
	})
}

// TestOutageEndsForAllWhileOneFails: those who waited are woken although another request
// fails again and again, and that one brings few probes.
func TestOutageEndsForAllWhileOneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOutageBed(t)
		b.answer = unavailable
		b.Park(request("first"), true)
		b.pass(time.Second)
		for i := range 100 {
			b.Park(request(fmt.Sprintf("%03d", i)), false)
		}
		b.answer = func(context.Context) error { return nil }
		b.pass(5 * time.Second)
		before := len(b.probes)
		for range 300 {
			b.Park(request("sick"), true)
			b.pass(100 * time.Millisecond)
		}
		if n := len(b.probes) - before; n > 16 {
			t.Errorf("%d probes in 30 seconds, want one every two seconds at most", n)
		}
		if len(b.woken) != 100 {
			t.Errorf("%d of 100 were woken", len(b.woken))
		}
	})
}

// TestOutageEndsInOrder: a parked request keeps its place when it is also named as
// one that is to be woken.
func TestOutageEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOutageBed(t)
		b.answer = unavailable
		b.Park(request("first"), true)
		b.pass(time.Second)
		b.Park(request("leaving"), false)
		b.Park(request("new"), true)
		b.others = []ctrl.Request{request("leaving"), request("new"), request("other")}
		b.answer = func(context.Context) error { return nil }
		b.pass(10 * time.Second)
		if got := strings.Join(b.woken, " "); got != "new other leaving" {
			t.Errorf("woken: %s", got)
		}
	})
}

// TestRetryWithoutAnOutage: a service that can change something again wakes the requests of others,
// one after the other, once. In an outage they wait for its end.
func TestRetryWithoutAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOutageBed(t)
		b.pass(time.Second)
		for i := range 100 {
			b.others = append(b.others, request(fmt.Sprintf("%03d", i)))
		}
		b.Retry(t.Context())
		b.pass(time.Second)
		if n := len(b.woken); n < 10 || n > 25 {
			t.Errorf("%d were woken in a second, want about 20", n)
		}
		b.Retry(t.Context()) // the others still wait
		b.pass(10 * time.Second)
		if n := len(b.woken); n != 100 {
			t.Errorf("%d were woken, want each of 100 once", n)
		}
		b.answer = unavailable
		b.Park(request("first"), true)
		b.pass(5 * time.Second)
		b.Retry(t.Context())
		b.pass(10 * time.Second)
		if n := len(b.woken); n != 100 {
			t.Errorf("%d were woken in an outage", n-100)
		}
		b.answer = func(context.Context) error { return nil }
		b.pass(time.Minute)
		if n := len(b.woken); n != 200 {
			t.Errorf("%d were woken in all, want 200", n)
		}
	})
}
