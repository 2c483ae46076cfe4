// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestQuota: an exhausted quota causes an Event and conditions that say what to do. The pods
// recover.
func TestQuota(t *testing.T) {
	b := idleBed(t)
	b.cloud.SetQuota(1)
	b.start()
	first := b.pod("first")
	b.bound(first)
	second := b.pod("second")
	b.mentions("Event", b.eventOn("second", "OverQuota"), "quota", "Raise", "by itself")
	b.eventually("the pool is over quota", func() bool {
		p := b.pools()
		return len(p) == 1 && meta.IsStatusConditionTrue(p[0].Status.Conditions, v1.ConditionOverQuota) &&
			meta.IsStatusConditionFalse(p[0].Status.Conditions, v1.ConditionReady) && p[0].Status.WaitingPods == 1
	})
	b.cloud.SetQuota(2)
	b.bound(second)
	b.eventually("the pool has recovered", func() bool {
		c := b.pools()[0].Status.Conditions
		return meta.IsStatusConditionFalse(c, v1.ConditionOverQuota) && meta.IsStatusConditionTrue(c, v1.ConditionReady)
	})
}

// TestPortOfFinishedPodServesNextOverQuota: at the quota a freed port serves a waiting pod.
func TestPortOfFinishedPodServesNextOverQuota(t *testing.T) {
	b := idleBed(t)
	b.cloud.SetQuota(1)
	b.start()
	first := b.pod("first")
	b.bound(first)
	second := b.pod("second")
	b.eventOn("second", "OverQuota")
	b.delete(first)
	b.bound(second)
	b.settled(1)
}

// TestMissingSubnet: a wrong subnet in the settings is reported on the pod and the pool, and
// corrected without a restart.
func TestMissingSubnet(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) { s.Pods.SubnetIDs = []string{"5f1c5aac-0000-4000-8000-00000000dead"} })
	b.start()
	pod := b.pod("web")
	b.mentions("Event", b.eventOn("web", "Rejected"), "5f1c5aac-0000-4000-8000-00000000dead", "subnetIDs", "without a restart")
	b.eventually("the pool says so", func() bool {
		p := b.pools()
		return len(p) == 1 && meta.FindStatusCondition(p[0].Status.Conditions, v1.ConditionReady) != nil &&
			meta.FindStatusCondition(p[0].Status.Conditions, v1.ConditionReady).Reason == "Rejected"
	})
	wrong := b.pools()[0].Name
	b.set(func(s *settings.Settings) { s.Pods.SubnetIDs = []string{subnet} })
	b.bound(pod)
	b.eventually("the pool of the wrong subnet goes", func() bool {
		p := b.pools()
		return len(p) == 1 && p[0].Name != wrong
	})
}

// TestErrorsOfTheCloud: each error is reported on the pod, which recovers from it.
func TestErrorsOfTheCloud(t *testing.T) {
	b := newBed(t)
	for _, tc := range []struct {
		err    error
		reason string
		word   string
	}{
		{fmt.Errorf("creating ports: %w", sdn.ErrForbidden), "Forbidden", "credential"},
		{fmt.Errorf("creating ports: %w", sdn.ErrUnbound), "HostUnusable", node},
		{fmt.Errorf("creating ports: %w", sdn.ErrUnavailable), "Unavailable", "tries again"},
		{&sdn.BusyError{After: 50 * time.Millisecond, Err: errors.New("503")}, "Unavailable", "tries again"},
		{errors.New("who knows"), "BackendError", "tries again"},
	} {
		b.fail(memory.CreatePorts, tc.err)
		pod := b.pod("pod")
		b.mentions("Event", b.eventOn("pod", tc.reason), tc.word)
		b.fail("", nil)
		b.bound(pod)
		b.delete(pod)
		b.settled(0)
		_ = b.client.DeleteAllOf(t.Context(), &corev1.Event{}, client.InNamespace("default"))
	}
}

// TestPortVanishesBeforeItIsPlugged: the pod gets another port.
func TestPortVanishesBeforeItIsPlugged(t *testing.T) {
	b := newBed(t)
	pod := b.pod("web")
	port := b.bound(pod)
	b.eventually("the pod is annotated", func() bool { return b.annotation(pod) != "" })
	b.cloud.RemovePort(port.Name)
	b.mentions("Event", b.eventOn("web", "PortMissing"), port.Name, "replaced")
	b.eventually("the pod has another port", func() bool {
		again := b.portOf(pod)
		return again != nil && again.Name != port.Name && b.cloud.HasPort(again.Name)
	})
	b.settled(1)
}

// TestPortVanishesFromTheCloud: a plugged port is reported as lost, a free one is replaced.
func TestPortVanishesFromTheCloud(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) { s.Pools.Min = 1 })
	b.start()
	pod := b.pod("web")
	port := b.bound(pod)
	b.attach(port, true)
	b.settled(2)
	for _, p := range b.ports() {
		b.cloud.RemovePort(p.Name)
	}
	b.mentions("Event", b.eventOn("web", "PortMissing"), "Delete the pod")
	b.eventually("the KuryrPort has failed", func() bool { return b.portOf(pod).Status.Phase == v1.PortFailed })
	b.eventually("the free one is replaced", func() bool { return b.cloud.Ports() == 1 && len(b.ports()) == 2 })
	b.delete(pod)
	b.attach(port, false)
	b.eventually("the failed one goes with its pod", func() bool {
		err := b.client.Get(t.Context(), client.ObjectKeyFromObject(port), &v1.KuryrPort{})
		return apierrors.IsNotFound(err)
	})
}
