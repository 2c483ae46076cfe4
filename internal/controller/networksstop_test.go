// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// stopsAt has the controller stop before or after the first call of a kind. restart waits until it
// does, and starts another one.
func (b *netBed) stopsAt(call string, after bool) (restart func()) {
	return b.stopsAtThe(1, call, after)
}

// stopsAtThe is stopsAt for the nth call of a kind.
func (b *netBed) stopsAtThe(nth int, call string, after bool) (restart func()) {
	reached := make(chan struct{})
	var once sync.Once
	stop := func(ctx context.Context, c string, n int) error {
		stopped := false
		if c == call && n >= nth {
			once.Do(func() { stopped = true; close(reached) })
		}
		if stopped {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	if after {
		b.onAfter(stop)
	} else {
		b.onBefore(stop)
	}
	return func() {
		<-reached
		b.stop()
		b.start()
	}
}

// A controller that is stopped before or after each of its writes to the cloud leaves nothing, and
// makes nothing twice: the next one finishes the network, and its deletion.
func TestNetworksWhileTheControllerIsStopped(t *testing.T) {
	for _, call := range []string{memory.CreateNetwork, memory.CreateSubnet, memory.AddRouterInterface, memory.RemoveRouterInterface, memory.DeleteNetwork} {
		for when, after := range map[string]bool{"before": false, "after": true} {
			t.Run(when+" "+call, func(t *testing.T) {
				b := newNetBed(t, "flat")
				restart := b.stopsAt(call, after)
				leaving := call == memory.RemoveRouterInterface || call == memory.DeleteNetwork
				b.start()
				b.makeNamespace(b.namespace, nil)
				pod := b.waiting(b.namespace, "first")
				if !leaving {
					restart()
				}
				kn := b.ready(b.namespace)
				if all := b.owned(); len(all) != 1 || all[0].ID != kn.Status.NetworkID || len(all[0].Subnets) != 1 {
					t.Errorf("the cloud has %+v; want network %s with one subnet", all, kn.Status.NetworkID)
				}
				b.delete(pod)
				b.deleteNetworkOf(b.namespace)
				if leaving {
					restart()
				}
				b.eventually("nothing is left", func() bool { return b.kn(b.namespace) == nil && len(b.owned()) == 0 })
			})
		}
	}
}

// A pod gets a port in the network of its namespace. A deletion of the network waits for the pod,
// says so, and ends when the pod is gone: the pools empty themselves.
func TestPortsInTheNetworkOfANamespace(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, nil)
	pod := b.pod("served", func(p *corev1.Pod) { p.Namespace = b.namespace })
	port := b.bound(pod)
	kn := b.ready(b.namespace)
	if port.Spec.NetworkID != kn.Status.NetworkID {
		t.Fatalf("the pod's port is in network %s, want %s", port.Spec.NetworkID, kn.Status.NetworkID)
	}
	b.deleteNetworkOf(b.namespace)
	b.eventually("the deletion names what it waits for", func() bool { return b.reason(b.namespace, v1.ConditionReady) == v1.ReasonNetworkInUse })
	b.delete(pod)
	b.eventuallyIn(15*time.Second, "nothing is left", func() bool { return b.kn(b.namespace) == nil && len(b.owned()) == 0 })
}

// A status that names the network of another namespace does not have that one deleted.
func TestAStatusThatNamesAnotherNetwork(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	other := b.namespace + "-other"
	for _, namespace := range []string{b.namespace, other} {
		b.makeNamespace(namespace, nil)
		b.waiting(namespace, "first")
	}
	wrong, right := b.ready(b.namespace), b.ready(other)
	patch := fmt.Appendf(nil, `{"status":{"networkID":%q}}`, right.Status.NetworkID)
	if err := b.client.Status().Patch(t.Context(), wrong.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	b.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "first"}})
	b.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
	b.deleteNetworkOf(b.namespace)
	b.eventually("the KuryrNetwork is gone", func() bool { return b.kn(b.namespace) == nil })
	if left := b.owned(); len(left) != 1 || left[0].ID != right.Status.NetworkID || len(left[0].Subnets) != 1 || len(left[0].Subnets[0].RouterIDs) != 1 {
		t.Errorf("the cloud has %+v, want only network %s with its subnet and router", left, right.Status.NetworkID)
	}
}

// A network with pods is not replaced while somebody has emptied its status.
func TestAnEmptiedStatusOfANetworkInUse(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.bound(b.pod("served", func(p *corev1.Pod) { p.Namespace = b.namespace }))
	kn := b.ready(b.namespace)
	b.set(func(s *settings.Settings) { s.Networks.Mode = "namespace" })
	b.eventually("the change waits", func() bool { return b.reason(b.namespace, v1.ConditionPlanned) == v1.ReasonWaitsForPods })
	b.fail(memory.ListNetworks, sdn.ErrUnavailable)
	if err := b.client.Status().Patch(t.Context(), kn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))); err != nil {
		t.Fatal(err)
	}
	b.pod("more", func(p *corev1.Pod) { p.Namespace = b.namespace }) // has it planned again
	b.never("it is replaced", func() bool {
		is := b.kn(b.namespace)
		return is == nil || is.UID != kn.UID || !is.DeletionTimestamp.IsZero()
	})
	b.fail("", nil)
	b.eventually("the network is found", func() bool { return b.kn(b.namespace).Status.NetworkID == kn.Status.NetworkID })
}

// A network whose subnet is full gets another one, and the waiting pod a port there.
func TestAFullNetworkOfANamespace(t *testing.T) {
	b := newNetBed(t, "namespace", func(s *settings.Settings) { s.Networks.PrefixLength = 29 })
	b.start()
	b.makeNamespace(b.namespace, nil)
	var pods []*corev1.Pod
	for i := range 8 { // more than a /29 has addresses
		pods = append(pods, b.pod(fmt.Sprintf("p%d", i), func(p *corev1.Pod) { p.Namespace = b.namespace }))
	}
	b.eventuallyIn(20*time.Second, "all pods have ports", func() bool {
		for _, pod := range pods {
			if b.portOf(pod) == nil {
				return false
			}
		}
		return true
	})
	if n := len(b.kn(b.namespace).Status.Subnets); n != 2 {
		t.Errorf("the network has %d subnets, want 2", n)
	}
}
