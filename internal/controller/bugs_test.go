// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// Faults of the former implementation, by the numbers of its bug tracker. docs/pools.md lists them
// all.

// Bug 1894212: a finalizer was to be added to a pod in deletion, which the API server refuses, over
// and over. Here pods get no finalizer. A pod that is first seen in deletion gets no port.
func TestBug1894212(t *testing.T) {
	b := idleBed(t)
	const hold = "example.com/hold"
	going := b.pod("going", func(p *corev1.Pod) { p.Finalizers = []string{hold} })
	t.Cleanup(func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := b.client.Patch(context.WithoutCancel(t.Context()), going, patch); err != nil {
			t.Error(err)
		}
	})
	b.delete(going)
	b.start()
	pod := b.pod("staying")
	b.bound(pod)
	b.settled(1)
	b.never("a port for a pod that is going", func() bool { return b.portOf(going) != nil || b.cloud.Ports() != 1 })
	for _, p := range []*corev1.Pod{going, pod} {
		var now corev1.Pod
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(p), &now); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(now.Finalizers, p.Finalizers) {
			t.Errorf("pod %s has finalizers %v, want %v", p.Name, now.Finalizers, p.Finalizers)
		}
	}
}

// Bug 1982478: each of several concurrent pods had the same empty pool filled, which ended with far
// too many ports. Here twelve pods exist before the first port does.
func TestBug1982478(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) {
		s.Pools.Min, s.Pools.Batch, s.Pools.TTL = 3, 10, metav1.Duration{Duration: time.Hour}
	})
	release := b.block(memory.CreatePorts)
	defer release()
	b.start()
	var pods []*corev1.Pod
	for i := range 12 {
		pods = append(pods, b.pod(fmt.Sprint("burst-", i)))
	}
	b.eventually("ports are asked for", func() bool { return b.cloud.Calls(memory.CreatePorts) > 0 })
	release()
	for _, p := range pods {
		b.bound(p)
	}
	b.settled(15)
	b.never("more ports than pods and min", func() bool { return b.cloud.Ports() != 15 })
	// IDs count up: no port was created and deleted again, either.
	last := slices.MaxFunc(b.cloud.Inventory(), func(x, y memory.Item) int { return strings.Compare(x.Port.ID, y.Port.ID) }).Port.ID
	if want := "00000000-0000-4000-8000-00000000000f"; last != want {
		t.Errorf("the last port made is %s, want the fifteenth, %s", last, want)
	}
}

// A leak without a number: a port was taken out of its pool, and the following call failed. No
// object named the port until a restart. Here the write of the claim fails three times.
func TestPortOfAFailedClaimIsNotLost(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL = 1, metav1.Duration{Duration: time.Hour} })
	var failures atomic.Int32
	b.newClient = through(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if port, ok := obj.(*v1.KuryrPort); ok && port.Spec.PodRef != nil && failures.Add(-1) >= 0 {
				return errors.New("the API server is out of order")
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	b.start()
	b.bound(b.pod("first"))
	b.settled(2)
	b.eventually("one is available", func() bool { return b.pools()[0].Status.Available == 1 })
	want := b.free().Name
	failures.Store(3)
	if got := b.bound(b.pod("second")).Name; got != want {
		t.Errorf("the pod has port %s, want %s, which was free all the time", got, want)
	}
	if failures.Load() >= 0 {
		t.Error("no claim has failed")
	}
	b.settled(3)
}

// The adoption of an earlier Kuryr's free port was interrupted after the mark and before the
// object. The port has the security groups of its last pod. It must not get to another pod with
// these: it is deleted.
func TestClaimedPortWithOtherGroupsReachesNoPod(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL = 1, metav1.Duration{Duration: time.Hour} })
	b.start()
	b.bound(b.pod("first"))
	b.settled(2)
	owner := sdn.Owner{Kind: "kuryrportpool", Name: b.pools()[0].Name}
	left := map[string]bool{}
	for _, groups := range [][]string{{group}, {group, "5f1c5aac-0000-4000-8000-00000000000b"}} {
		p := b.cloud.AddStray(sdn.PortRequest{SubnetIDs: []string{subnet}, Host: node, SecurityGroupIDs: groups})
		if err := b.cloud.Backend("cluster").Claim(t.Context(), p.ID, owner); err != nil {
			t.Fatal(err)
		}
		left[p.ID] = len(groups) == 1
	}
	b.settled(3)
	for _, p := range b.ports() {
		if adopted, was := left[p.Name]; was && !adopted {
			t.Errorf("port %s is in the pool, with groups %v", p.Name, p.Spec.SecurityGroupIDs)
		}
		delete(left, p.Name)
	}
	if len(left) != 1 {
		t.Errorf("ports left that have no object: %v, want the one with other groups", left)
	}
}
