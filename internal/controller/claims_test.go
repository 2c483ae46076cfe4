// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// meeting delays two pools that want one pod. The first waits between its decision to give the pod
// a port and the write of that. The second waits after it has listed the pods' ports, until the
// first is done and has seen its write.
type meeting struct {
	gives   atomic.Bool // the first pool's next write of a pod is delayed
	looks   atomic.Bool // the next list of the ports is delayed
	giving  chan struct{}
	looking chan struct{}
	seen    chan struct{}
	once    [3]sync.Once
}

func newMeeting() *meeting {
	return &meeting{giving: make(chan struct{}), looking: make(chan struct{}), seen: make(chan struct{})}
}

func (m *meeting) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if port, ok := obj.(*v1.KuryrPort); ok && port.Spec.PodRef != nil && m.gives.Load() {
				m.once[0].Do(func() {
					close(m.giving)
					await(ctx, m.looking)
				})
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if _, ok := list.(*v1.KuryrPortList); !ok || !m.looks.Load() || controller.ReconcileIDFromContext(ctx) == "" {
				return err // another caller's list
			}
			held := false
			m.once[1].Do(func() { held = true })
			if held {
				close(m.looking)
				await(ctx, m.seen)
				return err
			}
			// The first pool lists again: its claim has ended.
			m.once[2].Do(func() { close(m.seen) })
			return err
		},
	}
}

func await(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// TestTwoPoolsWantOnePod: a change of labels moves the pod to another pool while the first gives it
// a port. The second has listed the ports before that port was visible, and decides after the first
// has ended its claim. The pod gets one port.
func TestTwoPoolsWantOnePod(t *testing.T) {
	b := idleBed(t)
	b.current.Pools.Min, b.current.Pools.TTL = 1, metav1.Duration{Duration: time.Hour}
	b.current.Pools.Overrides = []config.PoolOverride{{NamespaceSelector: labelled("team", "a"), Min: new(int32(1))}}
	b.set(func(*settings.Settings) {})
	ns := b.namespace("team-a")
	b.label(ns, "team", "a")
	m := newMeeting()
	b.newClient = through(m.funcs())
	b.start()
	b.bound(b.pod("common"))
	b.bound(b.pod("own", inNamespace("team-a")))
	b.settled(4)
	b.eventually("each pool has a free port", func() bool {
		p := b.pools()
		return len(p) == 2 && p[0].Status.Available == 1 && p[1].Status.Available == 1
	})
	m.gives.Store(true)
	pod := b.pod("second", inNamespace("team-a"))
	await(t.Context(), m.giving)
	m.looks.Store(true)
	b.label(ns, "team", "")
	b.bound(pod)
	b.never("a second port of the pod", func() bool { b.portOf(pod); return t.Failed() })
}

// TestPodIsLeftToAPoolInVain: a change of labels moves a pod to another pool while the first is
// about to give it a port. Then that fails, without an event. The pod gets a port of its new pool
// all the same.
func TestPodIsLeftToAPoolInVain(t *testing.T) {
	b := idleBed(t)
	b.current.Pools.Min, b.current.Pools.TTL = 1, metav1.Duration{Duration: time.Hour}
	b.current.Pools.Overrides = []config.PoolOverride{{NamespaceSelector: labelled("team", "a"), Min: new(int32(1))}}
	b.current.Orphans = noLooks
	b.set(func(*settings.Settings) {})
	ns := b.namespace("team-a")
	b.label(ns, "team", "a")
	var armed atomic.Bool
	var once sync.Once
	giving, end := make(chan struct{}), make(chan struct{})
	b.newClient = through(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			port, ok := obj.(*v1.KuryrPort)
			vain := false
			if ok && port.Spec.PodRef != nil && armed.Load() {
				once.Do(func() { vain = true })
			}
			if !vain {
				return c.Patch(ctx, obj, patch, opts...)
			}
			close(giving)
			await(ctx, end)
			return apierrors.NewConflict(schema.GroupResource{Resource: "kuryrports"}, port.Name, nil)
		},
	})
	b.start()
	first := b.bound(b.pod("common")).Spec.Pool
	b.bound(b.pod("own", inNamespace("team-a")))
	b.label(ns, "team", "")
	moved := 0
	b.eventually("the first pool is that of the namespace", func() bool {
		moved++
		return b.bound(b.pod(fmt.Sprint("moved-", moved), inNamespace("team-a"))).Spec.Pool == first
	})
	b.eventually("it has a free port", func() bool {
		return slices.ContainsFunc(b.ports(), func(p v1.KuryrPort) bool {
			return p.Spec.Pool == first && p.Spec.PodRef == nil && p.Status.Phase == v1.PortAvailable
		})
	})
	armed.Store(true)
	pod := b.pod("second", inNamespace("team-a"))
	await(t.Context(), giving)
	b.label(ns, "team", "a")
	b.never("a port from the new pool", func() bool { return b.portOf(pod) != nil })
	close(end)
	b.bound(pod)
}
