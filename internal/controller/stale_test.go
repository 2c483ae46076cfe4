// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// through passes the calls of the controller's client through funcs.
func through(funcs interceptor.Funcs) client.NewClientFunc {
	return func(cfg *rest.Config, o client.Options) (client.Client, error) {
		c, err := client.NewWithWatch(cfg, o)
		if err != nil {
			return nil, err
		}
		return interceptor.NewClient(c, funcs), nil
	}
}

// TestStaleCacheMakesNothingTwice: while the cache does not show a written KuryrPort, the pool
// creates no other, whatever requeues it.
func TestStaleCacheMakesNothingTwice(t *testing.T) {
	b := idleBed(t)
	var stale atomic.Bool
	b.newClient = through(noPortsWhile(&stale))
	b.start()
	stale.Store(true)
	first := b.pod("first")
	b.eventually("the first pod has its KuryrPort", func() bool { return b.portOf(first) != nil })
	for i := range 5 {
		b.pod(fmt.Sprint("next-", i))
		time.Sleep(50 * time.Millisecond)
	}
	if n := b.cloud.Calls(memory.CreatePorts); n != 1 {
		t.Errorf("%d ports asked for while the cache was stale, want 1", n)
	}
	stale.Store(false)
	b.pod("last")
	b.settled(7)
	if n := b.cloud.Calls(memory.CreatePorts); n != 7 {
		t.Errorf("%d ports asked for in all, want 7", n)
	}
}

// TestLostClaim: another client binds a free port at the last moment, and keeps it. The pod gets
// another port.
func TestLostClaim(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL = 1, metav1.Duration{Duration: time.Hour} })
	var once sync.Once
	var taken string
	var armed atomic.Bool
	b.newClient = through(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			port, ok := obj.(*v1.KuryrPort)
			if ok && armed.Load() && port.Spec.PodRef != nil {
				once.Do(func() {
					taken = port.Name
					b.steal(port.Name)
				})
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	b.start()
	b.bound(b.pod("first"))
	b.settled(2)
	b.eventually("one is available", func() bool { return b.pools()[0].Status.Available == 1 })
	armed.Store(true)
	pod := b.pod("second")
	port := b.bound(pod)
	if taken == "" || port.Name == taken {
		t.Errorf("the pod has port %q, which another had taken: %q", port.Name, taken)
	}
}

// steal binds a port to an existing pod that Kuryr does not serve.
func (b *bed) steal(name string) {
	thief := b.pod("thief")
	patch := fmt.Appendf(nil, `{"spec":{"podRef":{"namespace":"default","name":"thief","uid":%q,"interface":"eth0"}}}`, thief.UID)
	port := &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := b.client.Patch(context.Background(), port, client.RawPatch(types.MergePatchType, patch)); err != nil {
		b.t.Error(err)
	}
}
