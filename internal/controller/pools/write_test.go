// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// lateCache shows KuryrPorts only once it is open, and then those of the API server.
type lateCache struct {
	client.Client
	open chan struct{}
}

func (c lateCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	select {
	case <-c.open:
		return c.Client.Get(ctx, key, obj, opts...)
	default:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "kuryrports"}, key.Name)
	}
}

// unanswering is an API server that fails the first reads.
type unanswering struct {
	client.Reader
	failures *int
}

func (u unanswering) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if *u.failures--; *u.failures >= 0 {
		return errors.New("etcdserver: request timed out")
	}
	return u.Reader.Get(ctx, key, obj, opts...)
}

// A plan waits until the cache shows its writes. Of a write with an error the API server knows the
// result: an object that was written all the same has to be shown, too.
func TestAwaitOwnWrites(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	ref := pool.Ref{Pool: "p", Node: "n"}
	for _, c := range []struct {
		what  string
		name  string
		w     write
		waits bool
	}{
		{"a created object", "made", write{version: "999"}, true},
		{"a lost answer to a creation that was done", "made", write{unsure: true}, true},
		{"a lost answer to a creation that was not done", "none", write{unsure: true}, false},
		{"a deletion", "none", write{}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: "made", ResourceVersion: "999"}}).Build()
				failures := 1
				cache := lateCache{server, make(chan struct{})}
				r := &Reconciler{client: cache, live: unanswering{server, &failures}, memory: newMemory()}
				done := make(chan error)
				go func() { done <- r.await(t.Context(), ref, map[string]write{c.name: c.w}) }()
				if c.waits {
					select {
					case err := <-done:
						t.Fatalf("await returned %v while the cache was late", err)
					case <-time.After(time.Minute):
					}
					close(cache.open)
					r.memory.with(ref, func(p *poolMemory) { p.event.Send() })
				}
				if err := <-done; err != nil {
					t.Errorf("await returned %v, want nil", err)
				}
			})
		})
	}
}

// The end of the process ends the wait with an error: nothing is planned on.
func TestAwaitEndsWithTheProcess(t *testing.T) {
	server := fake.NewClientBuilder().Build()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &Reconciler{client: lateCache{server, make(chan struct{})}, live: server, memory: newMemory()}
	if err := r.await(ctx, pool.Ref{}, map[string]write{"made": {version: "5"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("await returned %v, want that the context ended", err)
	}
}

// TestAwaitGoneObjects: objects that are gone before the cache shows them are waited for together.
func TestAwaitGoneObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := lateCache{fake.NewFakeClient(), nil}
		r := &Reconciler{client: never, live: never, memory: newMemory()}
		writes := map[string]write{}
		for i := range 16 {
			writes[fmt.Sprint(i)] = write{version: "5"}
		}
		began := time.Now()
		if err := r.await(t.Context(), pool.Ref{Pool: "p", Node: "n"}, writes); err != nil || time.Since(began) > staleAfter+time.Second {
			t.Errorf("await of 16 objects that are gone: %v after %s, want it after %s", err, time.Since(began), staleAfter)
		}
	})
}

// TestAwaitWithoutAnswer: an API server that does not answer is asked ever more slowly.
func TestAwaitWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		left := 1000
		never := lateCache{fake.NewFakeClient(), nil}
		r := &Reconciler{client: never, live: unanswering{never, &left}, memory: newMemory()}
		err := r.await(ctx, pool.Ref{Pool: "p", Node: "n"}, map[string]write{"a": {unsure: true}})
		if asked := 1000 - left; !errors.Is(err, context.DeadlineExceeded) || asked < 10 || asked > 70 {
			t.Errorf("it was asked %d times in ten minutes, %v; want some 63 times", asked, err)
		}
	})
}
