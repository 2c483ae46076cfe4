// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// whenDoubtful has no interval, and a short grace period.
var whenDoubtful = config.Orphans{Grace: metav1.Duration{Duration: 200 * time.Millisecond}}

// doubtfulBed is idleBed without periodic comparisons.
func doubtfulBed(t *testing.T) *bed {
	t.Helper()
	b := idleBed(t)
	b.current.Orphans = whenDoubtful
	b.settings = settings.NewLive(b.current)
	return b
}

// quiet waits until the cloud's ports have not been listed for several grace periods. It returns
// the number of lists before that.
func (b *bed) quiet() int {
	b.t.Helper()
	n, since := b.cloud.Calls(memory.ListPorts), time.Now()
	b.eventually("the cloud's ports are listed no more", func() bool {
		if now := b.cloud.Calls(memory.ListPorts); now != n {
			n, since = now, time.Now()
		}
		return time.Since(since) > 8*whenDoubtful.Grace.Duration
	})
	return n
}

// runs reports, as kubelet does, that a pod has its address.
func (b *bed) runs(pod *corev1.Pod, port *v1.KuryrPort) {
	b.t.Helper()
	ip := port.Spec.VIF.Addresses[0].IP
	patch := fmt.Appendf(nil, `{"status":{"podIP":%q,"podIPs":[{"ip":%[1]q}]}}`, ip)
	if err := b.client.Status().Patch(b.t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		b.t.Fatal(err)
	}
}

// Without an interval the cloud's ports are listed after the start and never again, while pods come
// and go.
func TestNobodyLooksWithoutReason(t *testing.T) {
	b := doubtfulBed(t)
	b.start()
	if n := b.quiet(); n != 1 {
		t.Errorf("%d looks after the start, want 1", n)
	}
	for range 5 {
		pod := b.pod("web")
		b.runs(pod, b.bound(pod))
		b.delete(pod)
		b.eventually("its port is gone", func() bool { return b.cloud.Ports() == 0 })
	}
	if n := b.quiet(); n != 1 {
		t.Errorf("%d looks, want that of the start alone", n)
	}
}

// The ports of a lost answer are collected, also if the first comparisons fail. Then no more
// comparisons follow.
func TestDoubtIsLookedInto(t *testing.T) {
	b := doubtfulBed(t)
	var creates, lists atomic.Int32
	var away atomic.Bool
	b.before = func(_ context.Context, call string, _ int) error {
		if call == memory.ListPorts && away.Load() {
			lists.Add(1)
			return sdn.ErrUnavailable
		}
		return nil
	}
	b.after = func(_ context.Context, call string, _ int) error {
		if call == memory.CreatePorts && creates.Add(1) == 1 {
			return sdn.ErrUnavailable
		}
		return nil
	}
	b.start()
	b.quiet()
	away.Store(true)
	pod := b.pod("web")
	b.runs(pod, b.bound(pod))
	b.eventually("looks have failed", func() bool { return lists.Load() >= 3 })
	away.Store(false)
	b.settled(1)
	b.quiet()
}

// A port that the SDN has lost is noticed when the pod that gets it does not start.
func TestPodThatDoesNotStart(t *testing.T) {
	b := doubtfulBed(t)
	b.current.Pools.Min, b.current.Pools.TTL.Duration = 1, time.Hour
	b.settings = settings.NewLive(b.current)
	b.start()
	first := b.pod("first")
	b.runs(first, b.bound(first))
	b.settled(2)
	b.eventually("a port is free", func() bool { p := b.free(); return p != nil && p.Status.Phase == v1.PortAvailable })
	b.quiet()
	lost := b.free().Name
	b.cloud.RemovePort(lost)
	pod := b.pod("web")
	b.eventually("the pod has a port that is there", func() bool {
		port := b.portOf(pod)
		return port != nil && port.Name != lost && b.cloud.HasPort(port.Name)
	})
	b.quiet() // it still does not start, but had its comparison
}

// A port whose deletion has failed is deleted later.
func TestUndeletedOrphanIsNotForgotten(t *testing.T) {
	b := doubtfulBed(t)
	stray, err := b.cloud.Backend("cluster").CreatePorts(t.Context(), sdn.Owner{Kind: "kuryrportpool", Name: "gone"},
		sdn.PortRequest{SubnetIDs: []string{subnet}, Host: node}, 1)
	if err != nil {
		t.Fatal(err)
	}
	b.fail(memory.DeletePort, sdn.ErrConflict)
	b.start()
	b.eventually("its deletion was tried", func() bool { return b.cloud.Calls(memory.DeletePort) > 1 })
	b.fail("", nil)
	b.eventually("it is gone", func() bool { return !b.cloud.HasPort(stray[0].ID) })
	b.quiet()
}
