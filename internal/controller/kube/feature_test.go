// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
)

// cluster is a manager on an API server that, at first, has no KuryrLoadBalancers and allows
// nothing.
type cluster struct {
	ctrl.Manager
	turn           sync.Mutex // orders the test before what the Feature calls later
	known, allowed bool
	asked          int
	watched        map[string]time.Time // by kind: since when the API server lists all of them
	listing        time.Duration        // how long that takes
}

func (c *cluster) GetRESTMapper() meta.RESTMapper { return kinds{c: c} }
func (c *cluster) GetClient() client.Client       { return reviews{c: c} }
func (c *cluster) GetCache() cache.Cache          { return caches{c: c} }
func (c *cluster) GetScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	_ = v1.AddToScheme(s)
	return s
}

type kinds struct {
	meta.RESTMapper
	c *cluster
}

func (k kinds) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	k.c.turn.Lock()
	defer k.c.turn.Unlock()
	if k.c.asked++; !k.c.known {
		return nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
	}
	return &meta.RESTMapping{}, nil
}

type reviews struct {
	client.Client
	c *cluster
}

func (r reviews) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	r.c.turn.Lock()
	defer r.c.turn.Unlock()
	review := obj.(*authorizationv1.SelfSubjectAccessReview)
	review.Status.Allowed = r.c.allowed || review.Spec.ResourceAttributes.Verb == "get"
	return nil
}

type caches struct {
	cache.Cache
	c *cluster
}

func (c caches) GetInformer(_ context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	c.c.turn.Lock()
	kind := fmt.Sprintf("%T", obj)
	if c.c.watched[kind].IsZero() {
		c.c.watched[kind] = time.Now()
	}
	left := c.c.listing - time.Since(c.c.watched[kind])
	c.c.turn.Unlock()
	var o cache.InformerGetOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.BlockUntilSynced == nil || *o.BlockUntilSynced {
		time.Sleep(left)
	}
	return nil, nil
}

// featureBed runs one Feature on a cluster.
type featureBed struct {
	cluster
	kube.Feature
	wanted, left bool
	added, lacks int
	isLeft       func() (bool, error) // nil: left
	told         []string
	serve        chan struct{}
	done         chan error
}

// startFeature starts a Feature that needs what the cluster lacks.
func startFeature(t *testing.T, change func(*featureBed)) *featureBed {
	t.Helper()
	b := &featureBed{serve: make(chan struct{}), done: make(chan error, 1)}
	b.watched = map[string]time.Time{}
	b.Feature = kube.Feature{
		Parts: parts{b}, Wanted: b.serve,
		Needs:   []rbacv1.PolicyRule{{APIGroups: []string{"openstack.org"}, Resources: []string{"kuryrloadbalancers/status"}, Verbs: []string{"get", "patch"}}},
		Kinds:   []client.Object{&v1.KuryrLoadBalancer{}},
		Without: "nothing balances", Blocked: prometheus.NewGauge(prometheus.GaugeOpts{Name: "blocked"}), Retry: time.Minute, Shards: kube.Alone{},
		Tell: func(_ context.Context, fault error) {
			locked(b, func() bool { b.told = append(b.told, fault.Error()); return true })
		},
	}
	change(b)
	if b.NeedLeaderElection() {
		t.Error("a replica that does not lead would have no cache when it does")
	}
	adder := &adding{cluster: &b.cluster}
	if err := b.AddTo(adder); err != nil || !adder.added {
		t.Fatalf("AddTo: added %v, error %v", adder.added, err)
	}
	go func() { b.done <- b.Feature.Start(t.Context()) }()
	return b
}

// parts are what the Feature of a featureBed adds.
type parts struct{ b *featureBed }

func (p parts) Wanted() bool { return locked(p.b, func() bool { return p.b.wanted }) }
func (p parts) Lacks()       { locked(p.b, func() bool { p.b.lacks++; return true }) }

func (p parts) Left(context.Context) (bool, error) {
	if p.b.isLeft != nil {
		return p.b.isLeft()
	}
	return locked(p.b, func() bool { return p.b.left }), nil
}

func (p parts) Add(context.Context, ctrl.Manager) error {
	locked(p.b, func() bool { p.b.added++; return true })
	return nil
}

// adding is a cluster that records what was added.
type adding struct {
	*cluster
	added bool
}

func (a *adding) Add(manager.Runnable) error { a.added = true; return nil }

// locked runs a function of the Feature in turn with the test.
func locked(b *featureBed, f func() bool) bool {
	b.turn.Lock()
	defer b.turn.Unlock()
	return f()
}

// pass lets an hour pass and checks the state. The race detector knows no order between a test
// that sleeps and what a timer starts meanwhile: the mutex tells it.
func (b *featureBed) pass(t *testing.T, added int, blocked float64, told ...string) {
	t.Helper()
	b.turn.Lock()
	b.turn.Unlock() //nolint:staticcheck // SA2001: what comes later sees what the test did before
	time.Sleep(time.Hour)
	synctest.Wait()
	if b.added != added || testutil.ToFloat64(b.Blocked) != blocked {
		t.Errorf("added %d times, blocked %v; want %d, %v", b.added, testutil.ToFloat64(b.Blocked), added, blocked)
	}
	if !slices.EqualFunc(b.told, told, strings.Contains) {
		t.Errorf("told %q, want %q", b.told, told)
	}
}

// A missing kind or permission is reported once, and the feature waits for it.
func TestFeatureWaitsForKindAndPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFeature(t, func(b *featureBed) { b.wanted = true })
		b.pass(t, 0, 0)
		if b.asked > 0 {
			t.Errorf("%d requests for what is not wanted", b.asked)
		}
		close(b.serve)
		const kind, right = "nothing balances: the API server does not know kuryrloadbalancers.openstack.org", "the controller may not patch kuryrloadbalancers/status"
		b.pass(t, 0, 1, kind)
		b.known = true
		b.pass(t, 0, 1, kind, right)
		b.allowed = true
		b.pass(t, 1, 0, kind, right)
		if err := <-b.done; err != nil || len(b.watched) == 0 || b.lacks == 0 {
			t.Errorf("error %v, %d kinds watched, Lacks called %d times", err, len(b.watched), b.lacks)
		}
	})
}

// The kinds are listed at the same time. What the feature adds finds all objects in the caches.
func TestFeatureListsItsKindsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFeature(t, func(b *featureBed) {
			b.Kinds = []client.Object{&v1.KuryrLoadBalancer{}, &v1.KuryrNetwork{}, &v1.KuryrPort{}}
			b.wanted, b.known, b.allowed, b.listing = true, true, true, 10*time.Second
		})
		began := time.Now()
		close(b.serve)
		if err := <-b.done; err != nil || b.added != 1 {
			t.Errorf("error %v, added %d times, want once", err, b.added)
		}
		if took := time.Since(began); took != b.listing {
			t.Errorf("added after %v, want after the %v that each of the lists takes", took, b.listing)
		}
	})
}

// A feature that is no longer wanted is no longer blocked, and not added.
func TestFeatureThatIsNotWantedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFeature(t, func(b *featureBed) { b.wanted = true })
		close(b.serve)
		b.pass(t, 0, 1, "does not know")
		b.wanted, b.known, b.allowed = false, true, true
		b.pass(t, 0, 0, "does not know")
		b.wanted = true
		b.pass(t, 1, 0, "does not know")
	})
}

// Something left over adds the feature although it is not wanted.
func TestFeatureThatHasSomethingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFeature(t, func(b *featureBed) { b.left, b.known, b.allowed = true, true, true })
		b.pass(t, 1, 0)
	})
}

// What another process has left is found as soon as this one gains keys, also when it looked before.
func TestFeatureAsksWhatIsLeftInGainedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := shards.NewGate(nil)
		b := startFeature(t, func(b *featureBed) { b.known, b.allowed, b.Shards = true, true, gate })
		b.pass(t, 0, 0)
		locked(b, func() bool { b.left = true; return true })
		gate.Open(t.Context(), bucketOf("any"), false)
		time.Sleep(time.Second)
		synctest.Wait()
		if !locked(b, func() bool { return b.added == 1 }) {
			t.Error("the feature was not added when keys were gained")
		}
	})
}

// The feature asks whether something is left until it gets an answer, and then seldom.
func TestFeatureAsksWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		b := startFeature(t, func(b *featureBed) {
			b.isLeft = func() (bool, error) {
				if asked++; asked < 3 {
					return false, errors.New("no answer")
				}
				return false, nil
			}
		})
		time.Sleep(b.Retry)
		b.pass(t, 0, 0)
		if asked < 4 || asked > 10 {
			t.Errorf("asked %d times in an hour, want 3 times for an answer, and then seldom", asked)
		}
	})
}

// Something that is restored from a backup later adds the feature although it is not wanted.
func TestFeatureGetsSomethingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFeature(t, func(b *featureBed) {
			b.known, b.allowed = true, true
		})
		b.pass(t, 0, 0)
		b.left = true
		b.pass(t, 1, 0)
	})
}

// A feature that asked what is left is added as soon as it is wanted.
func TestFeatureThatIsWantedAfterTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startFeature(t, func(b *featureBed) {
			b.known, b.allowed = true, true
		})
		b.pass(t, 0, 0)
		locked(b, func() bool { b.wanted = true; return true })
		close(b.serve)
		if err := <-b.done; err != nil || b.added != 1 {
			t.Errorf("error %v, added %d times, want once", err, b.added)
		}
	})
}
