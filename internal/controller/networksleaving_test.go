// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// While pods have ports in a network in deletion, new pods of the namespace get ports there, too. It
// is deleted once none has. A pod may get its port while a deletion is on its way, which nothing can
// undo.
func TestANetworkInDeletionServesItsPods(t *testing.T) {
	t.Run("a person deletes it", func(t *testing.T) {
		b := newNetBed(t, "flat")
		b.start()
		b.makeNamespace(b.namespace, nil)
		first := b.pod("first", inNamespace(b.namespace))
		b.bound(first)
		kn := b.ready(b.namespace)
		b.deleteNetworkOf(b.namespace)
		b.servesUntilNoPod(kn, first)
	})
	t.Run("it is to be replaced", func(t *testing.T) {
		b := newNetBed(t, "flat", func(s *settings.Settings) { s.Networks.MinFree = 1 })
		arrived, open := make(chan struct{}), make(chan struct{})
		var once atomic.Bool
		b.newClient = through(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if _, is := obj.(*v1.KuryrNetwork); is && once.CompareAndSwap(false, true) {
				close(arrived)
				<-open
			}
			return c.Delete(ctx, obj, opts...)
		}})
		b.start()
		b.makeNamespace(b.namespace, nil)
		zero := b.pod("zero", inNamespace(b.namespace))
		b.bound(zero)
		kn := b.ready(b.namespace)
		b.eventually("there is a free port", func() bool { return b.free() != nil })
		b.delete(zero)
		b.set(func(s *settings.Settings) { s.Networks.Mode = "namespace" })
		<-arrived
		first := b.pod("first", inNamespace(b.namespace))
		b.bound(first)
		close(open)
		b.servesUntilNoPod(kn, first)
	})
}

// servesUntilNoPod checks that a KuryrNetwork in deletion serves a second pod, and is gone after both.
func (b *netBed) servesUntilNoPod(kn *v1.KuryrNetwork, first *corev1.Pod) {
	b.t.Helper()
	b.eventually("the KuryrNetwork says that it is being deleted", func() bool {
		return slices.Contains([]string{v1.ReasonDeleting, v1.ReasonNetworkInUse}, b.reason(b.namespace, v1.ConditionReady))
	})
	second := b.pod("second", inNamespace(b.namespace))
	if port := b.bound(second); port.Spec.NetworkID != kn.Status.NetworkID {
		b.t.Errorf("the second pod is in network %s, want that of the first, %s", port.Spec.NetworkID, kn.Status.NetworkID)
	}
	b.delete(first)
	b.delete(second)
	b.eventually("the network is gone after its pods", func() bool {
		return !slices.ContainsFunc(b.cloud.Networks(), func(n memory.NetworkItem) bool { return n.Network.ID == kn.Status.NetworkID })
	})
	b.eventually("the KuryrNetwork is gone", func() bool { is := b.kn(b.namespace); return is == nil || is.UID != kn.UID })
}
