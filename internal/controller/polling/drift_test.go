// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package polling

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// listed is a client that knows some KuryrLoadBalancers.
type listed struct {
	client.Client
	names []string
	ports int
}

func (l listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, name := range l.names {
		all := list.(*v1.KuryrLoadBalancerList)
		all.Items = append(all.Items, v1.KuryrLoadBalancer{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       v1.KuryrLoadBalancerSpec{VIPs: make([]v1.VIPAddress, 1), Listeners: make([]v1.ListenerSpec, l.ports)},
		})
	}
	return nil
}

// TestLooksAreSpread: each load balancer is checked once an interval, without bursts of checks.
func TestLooksAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval, n = 10 * time.Minute, 30
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint("web-", i))
		}
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		looks := map[string][]time.Duration{}
		var last time.Duration
		r := &Drift{
			client:   listed{names: names},
			settings: settings.NewLive(settings.Settings{Services: config.Services{CheckInterval: metav1.Duration{Duration: interval}}}),
			requestCheck: func(_ ctrl.Request, statusIncomplete bool) {
				if statusIncomplete {
					t.Error("a look for its own sake has doubts")
				}
			},
			looking: func(ctrl.Request) bool { return false },
			wake: func(req ctrl.Request) {
				at := time.Since(began)
				if len(looks) > 0 && at-last < interval/n {
					t.Errorf("a look %s after the one before, want %s", at-last, interval/n)
				}
				looks[req.Name], last = append(looks[req.Name], at), at
			},
		}
		done := make(chan error)
		go func() { done <- r.Look(ctx) }()
		time.Sleep(4*interval - time.Second)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, name := range names {
			at := looks[name]
			if len(at) != 3 || at[0] < interval {
				t.Errorf("%s was looked at after %v, want once in each interval but the first", name, at)
				continue
			}
			for i := 1; i < len(at); i++ {
				if at[i]-at[i-1] != interval {
					t.Errorf("%s was looked at after %v, want an interval between", name, at)
				}
			}
		}
	})
}

// TestLooksFollowInterval: after the interval has become shorter, the next check does not wait for
// the old interval.
func TestLooksFollowInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		every := func(d time.Duration) settings.Settings {
			return settings.Settings{Services: config.Services{CheckInterval: metav1.Duration{Duration: d}}}
		}
		var looks atomic.Int32 // by another goroutine
		r := &Drift{
			client: listed{names: []string{"a", "b"}}, settings: settings.NewLive(every(10 * time.Minute)),
			requestCheck: func(ctrl.Request, bool) {}, looking: func(ctrl.Request) bool { return false }, wake: func(ctrl.Request) { looks.Add(1) },
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Look(ctx) }()
		time.Sleep(time.Minute)
		r.settings.Set(every(10 * time.Second))
		time.Sleep(13 * time.Second)
		if looks := looks.Load(); looks < 3 {
			t.Errorf("%d looks in the 13 s after the interval became 10 s, want 3 or more", looks)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestLooksHaveABudget: checks take at most a fifth of the allowed requests, whatever the number of
// load balancers and the interval. No load balancer is checked again before its last check is done.
func TestLooksHaveABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, n = 20.0, 50
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint("web-", i))
		}
		ctx, stop := context.WithCancel(t.Context())
		open := map[ctrl.Request]bool{} // requested checks that are not done
		requests, looks := 0, map[string]int{}
		r := &Drift{
			client: listed{names: names, ports: 3},
			settings: settings.NewLive(settings.Settings{
				Services: config.Services{CheckInterval: metav1.Duration{Duration: 10 * time.Second}}, RequestsPerSecond: perSecond,
			}),
			requestCheck: func(req ctrl.Request, _ bool) { open[req] = true }, looking: func(req ctrl.Request) bool { return open[req] },
			wake: func(req ctrl.Request) {
				looks[req.Name]++
				if req.Name != "web-7" { // the cloud does not answer for web-7
					requests += 4 + 3
					delete(open, req)
				}
			},
		}
		done := make(chan error)
		go func() { done <- r.Look(ctx) }()
		const long = time.Hour
		time.Sleep(long)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if share := float64(requests) / long.Seconds() / perSecond; share > 1./lookShare || share < 0.8/lookShare {
			t.Errorf("looks take %.3f of what may be sent, want a fifth of it, or little less", share)
		}
		if looks["web-7"] != 1 || looks["web-8"] < 30 {
			t.Errorf("one whose look is not done was looked at %d times, another %d, want 1 and many", looks["web-7"], looks["web-8"])
		}
	})
}
