// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// errLost is an answer that does not say whether the write succeeded.
var errLost = errors.New("etcdserver: request timed out")

// TestAnswerToANewKuryrPortIsLost: the write succeeded, and the pod keeps its port.
func TestAnswerToANewKuryrPortIsLost(t *testing.T) {
	b := idleBed(t)
	var n atomic.Int32
	b.newClient = through(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			err := c.Create(ctx, obj, opts...)
			if _, ok := obj.(*v1.KuryrPort); ok && n.Add(1) == 1 {
				return errLost
			}
			return err
		},
	})
	b.start()
	port := b.bound(b.pod("first"))
	b.never("the port of a living pod is deleted", func() bool { return !b.cloud.HasPort(port.Name) })
	b.bound(b.pod("second"))
	if n := b.cloud.Calls(memory.CreatePorts); n != 2 {
		t.Errorf("%d ports asked for, want one a pod", n)
	}
}

// TestAnswerIsLostAndTheCacheIsLate: a KuryrPort that was written without an answer is not given up
// when its pod is deleted before the cache shows it.
func TestAnswerIsLostAndTheCacheIsLate(t *testing.T) {
	b := idleBed(t)
	var stale atomic.Bool
	funcs := noPortsWhile(&stale)
	funcs.Create = func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		err := c.Create(ctx, obj, opts...)
		if _, ok := obj.(*v1.KuryrPort); ok && stale.Load() {
			return errLost
		}
		return err
	}
	b.newClient = through(funcs)
	b.start()
	stale.Store(true)
	pod := b.pod("first")
	var port *v1.KuryrPort
	b.eventually("the KuryrPort is written", func() bool { port = b.portOf(pod); return port != nil })
	b.attach(port, true)
	b.delete(pod)
	b.never("the plugged port is deleted", func() bool { return !b.cloud.HasPort(port.Name) })
	stale.Store(false)
	b.never("the plugged port is deleted", func() bool { return !b.cloud.HasPort(port.Name) })
	b.attach(port, false)
	b.settled(0)
}

// pluggedIn creates a pod with a plugged port, and stops the controller once it has finished its
// writes for them.
func (b *bed) pluggedIn() (*corev1.Pod, *v1.KuryrPort) {
	b.t.Helper()
	pod := b.pod("first")
	port := b.bound(pod)
	b.attach(port, true)
	b.eventually("the pod is annotated", func() bool { return b.annotation(pod) != "" })
	b.stop()
	return pod, port
}

// TestNewLeaderKnowsPodsBeforePorts: an annotated pod with a plugged port keeps its port, also if
// the cache shows the KuryrPort late.
func TestNewLeaderKnowsPodsBeforePorts(t *testing.T) {
	b := newBed(t)
	_, port := b.pluggedIn()
	var stale atomic.Bool
	stale.Store(true)
	b.newClient = through(noPortsWhile(&stale))
	b.start()
	b.never("another port is made or one deleted", func() bool {
		return b.cloud.Calls(memory.CreatePorts) != 1 || b.cloud.Calls(memory.DeletePort) != 0
	})
	stale.Store(false)
	b.never("the plugged port is deleted", func() bool { return !b.cloud.HasPort(port.Name) })
	b.bound(b.pod("second"))
	b.settled(2)
}

// noPortsWhile makes the cache show no KuryrPorts while stale is set.
func noPortsWhile(stale *atomic.Bool) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*v1.KuryrPort); ok && stale.Load() {
				return apierrors.NewNotFound(schema.GroupResource{Group: "openstack.org", Resource: "kuryrports"}, key.Name)
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*v1.KuryrPortList); ok && stale.Load() {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	}
}

// TestNewLeaderKnowsPortsBeforePods: a KuryrPort that was deleted by hand is restored also if the
// cache does not show its pod yet.
func TestNewLeaderKnowsPortsBeforePods(t *testing.T) {
	b := newBed(t)
	pod, port := b.pluggedIn()
	b.delete(port)
	var stale atomic.Bool
	stale.Store(true)
	b.newClient = through(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.Pod); ok && stale.Load() {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*corev1.PodList); ok && stale.Load() {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	b.start()
	b.never("the plugged port is deleted", func() bool { return !b.cloud.HasPort(port.Name) })
	stale.Store(false)
	b.settings.Set(b.current) // an event would do so if the cache really were late
	b.eventually("the KuryrPort is put back", func() bool {
		again := b.portOf(pod)
		return again != nil && again.UID != port.UID
	})
	if b.cloud.Calls(memory.DeletePort) != 0 {
		t.Error("the port of a living pod was deleted")
	}
}

// TestLookedUpForAPodThatRunsToItsEnd: a port without an object is looked up for its pod, whose
// deletion begins meanwhile. The port stays as long as the pod runs.
func TestLookedUpForAPodThatRunsToItsEnd(t *testing.T) {
	b := newBed(t)
	pod, port := b.pluggedIn()
	b.delete(port)
	if err := b.client.Patch(t.Context(), port, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	release := b.block(memory.GetPort)
	defer release()
	b.start()
	b.eventually("the port is being looked up", func() bool { return b.cloud.Calls(memory.GetPort) == 1 })
	if err := b.client.Delete(t.Context(), pod, client.GracePeriodSeconds(3600)); err != nil {
		t.Fatal(err)
	}
	b.bound(b.pod("second")) // planned after the deletion has begun
	release()
	b.never("the port of a pod that runs is deleted", func() bool { return !b.cloud.HasPort(port.Name) })
	b.delete(pod)
	b.settled(1)
}

// TestPortBehindTheCacheIsNobodysToDelete: a port that seems unnamed because the cache does not
// show its KuryrPort is not deleted.
func TestPortBehindTheCacheIsNobodysToDelete(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) {
		s.Pools.Min, s.Orphans.Grace.Duration = 1, 200*time.Millisecond
	})
	b.start()
	b.bound(b.pod("first"))
	b.settled(2)
	before := b.ports()
	b.stop()
	var stale atomic.Bool
	stale.Store(true)
	b.newClient = through(noPortsWhile(&stale))
	listed := b.cloud.Calls(memory.ListPorts)
	b.start()
	b.eventually("the collector has looked often enough", func() bool { return b.cloud.Calls(memory.ListPorts) > listed+5 })
	for _, port := range before {
		if !b.cloud.HasPort(port.Name) {
			t.Errorf("the collector has deleted port %s, which has a KuryrPort", port.Name)
		}
	}
}
