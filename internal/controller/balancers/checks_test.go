// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// checked returns how often each of n load balancers is checked within that time after the start, and
// the longest times before the first check of one, and between two checks of one.
func checked(t *testing.T, n int, within time.Duration, live func() *settings.Settings) (times map[ctrl.Request]int, first, longest time.Duration) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme)
	for i := range n {
		klb := &v1.KuryrLoadBalancer{Spec: v1.KuryrLoadBalancerSpec{VIPs: make([]v1.VIPAddress, 1), Listeners: make([]v1.ListenerSpec, 2)}}
		klb.Namespace, klb.Name = "shop", fmt.Sprintf("web-%03d", i)
		api.WithObjects(klb)
	}
	r := &Reconciler{client: api.Build(), Options: Options{Shards: kube.Alone{}}}
	times, last := map[ctrl.Request]int{}, map[ctrl.Request]time.Time{}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), within)
		defer stop()
		task := func(ctx context.Context) error {
			err := r.checkNext(ctx)
			for req := range r.memories.all {
				if times[req]++; times[req] > 1 {
					longest = max(longest, time.Since(last[req]))
				} else {
					first = max(first, time.Since(began))
				}
				last[req] = time.Now()
				r.memories.forget(req)
			}
			return err
		}
		if err := kube.Every("checks", func() time.Duration { return r.checks.pause(live()) }, task, nil)(ctx); err != nil {
			t.Error(err)
		}
	})
	return times, first, longest
}

// every returns settings with an interval and a limit of requests.
func every(interval time.Duration, perSecond float64) *settings.Settings {
	var s settings.Settings
	s.Services.CheckInterval.Duration, s.Neutron.RequestsPerSec = interval, perSecond
	return &s
}

// TestChecksAreSpread: each load balancer is checked once an interval but the first, without bursts of
// checks.
func TestChecksAreSpread(t *testing.T) {
	const interval = 10 * time.Minute
	times, first, longest := checked(t, 60, 4*interval+time.Second, func() *settings.Settings { return every(interval, 0) })
	if len(times) != 60 || first > 2*interval || longest > interval+time.Second {
		t.Errorf("%d of 60 were checked, the last one first after %s, with %s between two checks; want %s", len(times), first, longest, interval)
	}
	for req, n := range times {
		if n < 2 || n > 4 {
			t.Errorf("%s was checked %d times in four intervals", req, n)
		}
	}
}

// TestChecksFollowInterval: after the interval has become shorter, the next check does not wait for
// the old interval.
func TestChecksFollowInterval(t *testing.T) {
	var asked int
	times, _, _ := checked(t, 1, 2*time.Minute, func() *settings.Settings {
		if asked++; asked > 1 {
			return every(10*time.Second, 0)
		}
		return every(10*time.Minute, 0)
	})
	for _, n := range times {
		if n < 10 {
			t.Errorf("in two minutes there were %d checks, want one in 10 s", n)
		}
	}
	if len(times) == 0 {
		t.Error("there was no check")
	}
}

// TestChecksHaveABudget: checks take at most their share of the allowed requests, whatever the number of
// load balancers and the interval.
func TestChecksHaveABudget(t *testing.T) {
	const n, perSecond, requests = 50, 25, 9 // 1.8 s for each, 90 s for all, of an interval of 10 s
	times, _, _ := checked(t, n, time.Hour, func() *settings.Settings { return every(10*time.Second, perSecond) })
	sum := 0
	for req, each := range times {
		if sum += each; each < 35 {
			t.Errorf("%s was checked %d times, want some 40", req, each)
		}
	}
	if share := float64(sum*requests) / (perSecond * time.Hour.Seconds()); share > 1.05/checkShare || share < 0.9/checkShare {
		t.Errorf("checks take %.3f of all requests, want nearly a fifth", share)
	}
}
