// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
)

// loopOn returns a Loop on a cluster with these objects.
func loopOn(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *Loop {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1.KuryrCluster{}).WithInterceptorFuncs(funcs).Build()
	waits := settings.NewLive(settings.Settings{Preflight: config.Preflight{FirstStartWaits: true}})
	return &Loop{
		Options: Options{Settings: waits, Shards: kube.Alone{}}, client: c, live: c, events: events.NewFakeRecorder(100), early: kube.NewSignal(), wait: period, serving: make(chan struct{}),
	}
}

// checks makes reports.
type checks func() preflight.Report

func (c checks) Check(context.Context) preflight.Report { return c() }

// TestFirst: any of three kinds shows that Kuryr has been here.
func TestFirst(t *testing.T) {
	named := metav1.ObjectMeta{Namespace: "shop", Name: "shop"}
	for _, tc := range []struct {
		what    string
		objects []client.Object
		first   bool
	}{
		{"nothing", nil, true},
		{"its report and a pool", []client.Object{&v1.KuryrCluster{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, &v1.KuryrPortPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}}, true},
		{"a KuryrPort", []client.Object{&v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: "p"}}}, false},
		{"a KuryrNetwork", []client.Object{&v1.KuryrNetwork{ObjectMeta: named}}, false},
		{"a KuryrLoadBalancer", []client.Object{&v1.KuryrLoadBalancer{ObjectMeta: named}}, false},
	} {
		l := loopOn(t, interceptor.Funcs{}, tc.objects...)
		if first, err := l.first(t.Context()); err != nil || first != tc.first {
			t.Errorf("with %s: first() = %v, %v; want %v", tc.what, first, err, tc.first)
		}
	}
}

// TestBeginAsksAgain: an API server that fails leaves open whether this is a first start.
func TestBeginAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := 3
		l := loopOn(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if fails--; fails >= 0 {
				return errors.New("etcd is away")
			}
			return c.List(ctx, list, o...)
		}}, &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
		began := time.Now()
		if !l.begin(t.Context()) || l.waiting() || time.Since(began) != 3*time.Second {
			t.Errorf("waiting: %v, after %v; want that it serves after 3s", l.waiting(), time.Since(began))
		}
	})
}

// TestFirstStartLooksAgain: a first start that waits makes the checks again soon, then at longer
// times. It goes on with the first checks that find all that it needs; a warning, a check
// that this credential may not make, or an error of a part does not hold it.
func TestFirstStartLooksAgain(t *testing.T) {
	wrong := preflight.Finding{Name: "PodSubnetMissing", Severity: preflight.Error, Object: "subnet a", Message: "Neutron does not show it."}
	reports := []preflight.Report{
		{Findings: []preflight.Finding{{Name: preflight.CloudUnavailable, Severity: preflight.Unknown, Object: "Neutron", Message: "It did not answer."}}},
		{Findings: []preflight.Finding{wrong}}, {Findings: []preflight.Finding{wrong}}, {Findings: []preflight.Finding{wrong}},
		{Findings: []preflight.Finding{wrong}}, {Findings: []preflight.Finding{wrong}}, {Findings: []preflight.Finding{wrong}},
		{Findings: []preflight.Finding{{Name: "OctaviaOld", Severity: preflight.Warning}, {Name: "NodeAgentDown", Severity: preflight.Unknown}, {Name: "ServiceInterfaceMissing", Severity: preflight.Error}}},
	}
	synctest.Test(t, func(t *testing.T) {
		l := loopOn(t, interceptor.Funcs{})
		l.early.Send()
		began, served := time.Now(), make(chan time.Duration, 1)
		go func() {
			<-l.serving
			served <- time.Since(began)
		}()
		var at []time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		l.Checks = checks(func() preflight.Report {
			at = append(at, time.Since(began).Round(time.Second))
			if len(at) > len(reports) {
				return preflight.Report{}
			}
			return reports[len(at)-1]
		})
		done := make(chan error)
		go func() { done <- l.lead(ctx) }()
		time.Sleep(2 * time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		second := time.Second
		want := []time.Duration{0, 3 * second, 9 * second, 21 * second, 45 * second, 93 * second, 153 * second, 213 * second}
		if len(at) < len(want)+1 || !slices.Equal(at[:len(want)], want) || at[len(want)] != 213*second+again {
			t.Errorf("checks at %v; want %v, and others as usual", at, want)
		}
		if after := <-served; after.Round(second) != 213*second {
			t.Errorf("it served after %v, want 3m33s", after)
		}
	})
}

// TestFirstStartOfOtherProcesses: a process that does not own the checks makes none, and goes on once the
// KuryrCluster says that another one serves. Without that kind it makes them for itself. Once it gains
// the key, it makes the checks.
func TestFirstStartOfOtherProcesses(t *testing.T) {
	wrong := preflight.Report{Findings: []preflight.Finding{{Name: "PodSubnetMissing", Severity: preflight.Error, Object: "subnet a", Message: "Neutron does not show it."}}}
	lacks := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
		return older{}.Get(ctx, key, o)
	}}
	for name, tc := range map[string]struct {
		funcs  interceptor.Funcs
		checks bool // by itself
	}{"with the kind": {}, "without the kind": {lacks, true}} {
		synctest.Test(t, func(t *testing.T) {
			l, gate, made := loopOn(t, tc.funcs), shards.NewGate(nil), 0
			l.Shards = gate
			var mu sync.Mutex
			report := wrong
			l.Checks = checks(func() preflight.Report {
				mu.Lock()
				defer mu.Unlock()
				made++
				return report
			})
			l.follows()
			l.early.Send()
			done := make(chan error)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { done <- l.lead(ctx) }()
			pass := func(serves bool) int {
				t.Helper()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if l.waiting() == serves {
					t.Errorf("%s: it serves %v, want %v", name, !serves, serves)
				}
				mu.Lock()
				defer mu.Unlock()
				return made
			}
			if n := pass(false); (n > 0) != tc.checks {
				t.Errorf("%s: %d checks by a process that does not own them", name, n)
			}
			if tc.checks {
				mu.Lock()
				report = preflight.Report{}
				mu.Unlock()
			} else {
				o := &v1.KuryrCluster{ObjectMeta: metav1.ObjectMeta{Name: v1.ClusterName}}
				if err := l.client.Create(ctx, o); err != nil {
					t.Fatal(err)
				}
				pass(false)
				o.Status.Conditions = []metav1.Condition{{Type: v1.ConditionServing, Status: metav1.ConditionTrue}}
				if err := l.client.Status().Update(ctx, o); err != nil {
					t.Fatal(err)
				}
			}
			before := pass(true)
			gate.Open(ctx, shard.All(), false)
			if after := pass(true); after == before {
				t.Errorf("%s: no checks after their key was gained", name)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
